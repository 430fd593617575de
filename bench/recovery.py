#!/usr/bin/python3
"""How fast copies come back, and what clients feel of it: Cuttlebone and stock Ceph, three OSDs each on the same disk.

    recovery.py --bin target/dist/cuttlebone [--peer pacific|reef|tentacle|none] [--tuned] [--objects 36280] [--size 16384] [--large 180]
                [--fill 100000] [--fill-large 500] [--rate 1000] [--disks hdd|usb-hdd|sata-ssd] [--only log,quiet] [--dir DIR]

For each, one cluster after the other, each at its defaults; with --tuned for stock once more with osd_max_backfills 64,
osd_recovery_max_active 16, no sleeps, and recovery preferred where there is mClock:
  log       an OSD is away while the objects are written, and comes back: its log tells what it lacks
  quiet     the same without a client
  large     the same with objects of 4 MiB
  backfill  the same, with half as many again in few placement groups: no log tells
  fifth     in a pool of --fill objects of 16 KiB and --fill-large of 4 MiB an OSD is away while a fifth of each is overwritten
  replace   in that pool an OSD gets an empty disk under its old number, as docs/operations.md says
  grow      of that pool, an OSD more, which was started and marked out before, is marked in: what is its moves there
  fifth-quiet, replace-quiet
            the same without a client
  move      of a pool with two copies an OSD is marked out: what it held moves, degraded for nobody
  failover  the primary of an object is killed while it is written, thrice: until the next write of it is acknowledged; also
            the lead monitor of three, thrice, with a client that gives commands, too: how long writes pause, and from the kill until
            a command given since is answered
Counted is from the moment the OSD is started, or marked in or out, until every placement group is active+clean; meanwhile, and for eight
seconds before, the stock librados overwrites objects of 4 KiB, sixteen at a time or --rate a second. Copies per second are copies made per second.
"""
import json, os, shutil, signal, statistics, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/clients"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from on_disks import OursOnDisks, StockOnDisks
from side_by_side import HERE, Ours, arguments, cpu_of, peer_root, rss_mb, tool
from slow_disk import KINDS, SlowDisk, lacks
from steady import Steady
from stock_cluster import StockCluster

def ceph(cluster, *args):
    p = tool(cluster, "ceph", *args)
    if p.returncode:
        raise RuntimeError("ceph %s: %s" % (" ".join(args), p.stderr[-500:]))
    return p.stdout

def drop_caches(cluster, osds):
    """What these OSDs have read is cold again."""
    for osd in osds:
        ceph(cluster, "tell", "osd.%d" % osd, "cache", "drop")

def start_again(cluster, osd):
    if isinstance(cluster, Ours):
        subprocess.run([cluster.bin, "up", "--dir", cluster.outside], check=True, stdout=subprocess.DEVNULL)
    else:
        cluster.run("ceph-osd", "-c", cluster.conf, "-i", osd, "--keyring", "%s/osd.%d/keyring" % (cluster.dir, osd))

def stop_osd(cluster, osd):
    pid = cluster.pids()["osd.%d" % osd]
    os.kill(pid, signal.SIGKILL)
    while os.path.exists("/proc/%d" % pid):
        time.sleep(0.05)
    ceph(cluster, "osd", "down", str(osd))

def empty_disk(cluster, osd):
    """Of an OSD that is stopped."""
    ceph(cluster, "osd", "destroy", str(osd), "--yes-i-really-mean-it")
    shutil.rmtree("%s/osd.%d" % (cluster.outside, osd))

def start_empty(cluster, osd):
    if isinstance(cluster, Ours):
        cluster.make_place(osd)
        start_again(cluster, osd)
    else:
        cluster.make_osd(osd)

def start_and_empty(cluster, osd, seconds):
    """A new one that is up, and out. A new one is in from the beginning, whatever flags say: what moved there moves back first."""
    start_empty(cluster, osd)
    while not any(o["osd"] == osd and o["up"] for o in json.loads(ceph(cluster, "osd", "dump", "-f", "json"))["osds"]):
        time.sleep(0.2)
    # Until it is known that there is something to move.
    time.sleep(10)
    wait_clean(cluster, seconds)
    ceph(cluster, "osd", "out", str(osd))
    time.sleep(10)
    wait_clean(cluster, seconds)

def pgmap(cluster):
    return json.loads(ceph(cluster, "-s", "-f", "json"))["pgmap"]

def states(cluster):
    return {s["state_name"]: s["count"] for s in pgmap(cluster).get("pgs_by_state", [])}

def wait_clean(cluster, seconds):
    end = time.monotonic() + seconds
    while set(states(cluster)) != {"active+clean"}:
        if time.monotonic() > end:
            raise RuntimeError("not clean after %d s: %s" % (seconds, states(cluster)))
        time.sleep(0.2)

def write(cluster, pool, count, size):
    args = ["-p", pool, "bench", "600", "write", "-b", str(size), "-t", "32", "--max-objects", str(count), "--no-cleanup", "--run-name", "fill"]
    p = tool(cluster, "rados", *args)
    if p.returncode:
        raise RuntimeError(p.stdout[-500:] + p.stderr[-500:])

def inside(cluster, script, *args):
    """Starts a script of the stock bindings, of the peer's generation for both."""
    chroot = ["chroot", cluster.root] if cluster.root else []
    p = subprocess.Popen([*chroot, "/usr/bin/python3", "-", cluster.conf, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    p.stdin.write(script)
    p.stdin.close()
    return p

def offer(cluster, pool, op, prefix, objects, object_size, size, depth, rate, seconds):
    """Starts a client; `finish` or `output` has its figures."""
    script = open(HERE + "/../tests/clients/offered.py").read()
    return inside(cluster, script, pool, op, prefix, *map(str, (objects, object_size, size, depth, rate, seconds)))

def client(cluster, pool, seconds, rate=0):
    """Starts the client; `finish` has its figures. With a rate it offers so many writes a second."""
    if rate:
        return offer(cluster, pool, "write", "percentile", 1024, 4096, 4096, 64, rate, seconds)
    return inside(cluster, open(HERE + "/percentiles.py").read(), pool, "write", "4096", "16", str(seconds), "json")

def output(p):
    out, err = p.stdout.read(), p.stderr.read()
    if p.wait():
        raise RuntimeError(err[-500:])
    return out

def finish(p):
    p.send_signal(signal.SIGINT)
    return json.loads(output(p))

def cpu(cluster):
    """Seconds of CPU of each daemon, by pid."""
    return {pid: cpu_of(pid) for pid in cluster.pids().values()}

def forget_peaks(cluster):
    """From here on the largest resident set counts anew."""
    for pid in cluster.pids().values():
        with open("/proc/%d/clear_refs" % pid, "w") as f:
            f.write("5")

# Says what the monitor says of placement groups, as often as it changes: when, their states, and the copies that are not where they
# should be. One session for all of it: a `ceph -s` each time would take a core from whoever is measured.
WATCH = """
import json, sys, time, rados
cluster = rados.Rados(conffile=sys.argv[1]); cluster.connect()
said, end = None, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    rc, out, err = cluster.mon_command(json.dumps({"prefix": "status", "format": "json"}), b"")
    m = json.loads(out)["pgmap"] if rc == 0 else {}
    now = [{s["state_name"]: s["count"] for s in m.get("pgs_by_state", [])}, m.get("degraded_objects", 0) + m.get("misplaced_objects", 0)]
    if m and now != said:
        said = now
        print(json.dumps([time.monotonic()] + now), flush=True)
    time.sleep(0.05)
"""

# Writes whole objects named after their numbers, 32 at a time.
FILL = """
import sys, threading, rados
conf, pool, prefix, size, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
cluster = rados.Rados(conffile=conf); cluster.connect(); io = cluster.open_ioctx(pool)
payload, slots, failed = (b"%16d" % count) * (size // 16), threading.Semaphore(32), []
def done(completion):
    if completion.get_return_value():
        failed.append(completion.get_return_value())
    slots.release()
for i in range(count):
    slots.acquire()
    io.aio_write_full("%s%d" % (prefix, i), payload, oncomplete=done)
for i in range(32):
    slots.acquire()
cluster.shutdown()
sys.exit("failed: %s" % failed[:3] if failed else 0)
"""

def fill(cluster, pool, a, part=1):
    for prefix, size, count in (("small", a.size, a.fill), ("large", 4 << 20, a.fill_large)):
        output(inside(cluster, FILL, pool, prefix, str(size), str(count // part)))

FILLED, OF_FILLED = "filled", ("fifth", "replace", "grow")

def make_pool(cluster, pool, pgs, size=None):
    ceph(cluster, "osd", "pool", "create", pool, pgs, pgs)
    ceph(cluster, "osd", "pool", "application", "enable", pool, "bench")
    # Neither is to split or merge meanwhile.
    ceph(cluster, "osd", "pool", "set", pool, "pg_autoscale_mode", "off")
    if size:
        ceph(cluster, "osd", "pool", "set", pool, "size", size)
    wait_clean(cluster, 120)

def remove_pool(cluster, pool):
    ceph(cluster, "tell", "mon.*", "injectargs", "--mon_allow_pool_delete=true")
    ceph(cluster, "osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")
    time.sleep(3)

def until_clean(watch, begin):
    """Seconds until every placement group is clean, some of which were not, and the most copies that were wrong at a time."""
    most = 0
    for line in watch.stdout:
        when, states, wrong = json.loads(line)
        most = max(most, wrong)
        if most and set(states) == {"active+clean"}:
            return when - begin, most
    raise RuntimeError("never clean: " + watch.stderr.read()[-500:])

def measure(cluster, scenario, a):
    pool = FILLED if scenario.startswith(OF_FILLED) else scenario
    quiet = scenario.endswith("quiet")
    count, size = {"large": (a.large, 4 << 20), "backfill": (a.objects * 3 // 2, a.size)}.get(scenario, (a.objects, a.size))
    if pool == FILLED:
        size = (a.fill * a.size + a.fill_large * (4 << 20)) / (a.fill + a.fill_large)
        if scenario != "grow":
            stop_osd(cluster, 2)
        if scenario.startswith("fifth"):
            fill(cluster, pool, a, part=5)
        elif scenario == "grow":
            start_and_empty(cluster, 3, a.limit)
        else:
            empty_disk(cluster, 2)
    else:
        # With few placement groups there are more writes to each than any log keeps.
        make_pool(cluster, pool, "4" if scenario == "backfill" else "32", "2" if scenario == "move" else None)
        if scenario == "move":
            # Stock has a pool of its own, which would wait for its third copy.
            for other in json.loads(ceph(cluster, "osd", "pool", "ls", "-f", "json")):
                ceph(cluster, "osd", "pool", "set", other, "size", "2")
        else:
            stop_osd(cluster, 2)
        write(cluster, pool, count, size)
    row = {}
    if not quiet:
        before = client(cluster, pool, 8, a.rate)
        # To start `ceph` takes a core for a moment, as it will when something is begun.
        time.sleep(4)
        ceph(cluster, "osd", "stat")
        before = json.loads(output(before))
        row = {k + " before": v for k, v in before.items()}
        work = client(cluster, pool, 3600, a.rate)
        time.sleep(3)
    spent = cpu(cluster)
    forget_peaks(cluster)
    watch = inside(cluster, WATCH, str(a.limit))
    watch.stdout.readline()
    begin = time.monotonic()
    if scenario == "move":
        ceph(cluster, "osd", "out", "2")
    elif scenario.startswith("replace"):
        start_empty(cluster, 2)
    elif scenario == "grow":
        ceph(cluster, "osd", "in", "3")
    else:
        start_again(cluster, 2)
    try:
        took, most = until_clean(watch, begin)
    finally:
        watch.kill()
        watch.wait()
    if scenario.startswith("fifth"):
        # While the OSD was away, everything was short of a copy.
        most = a.fill // 5 + a.fill_large // 5 + (0 if quiet else 1024)
    row |= {"s": took, "copies/s": most / took, "MiB/s": most * size / took / (1 << 20)}
    row["CPU s"] = sum(s - spent.get(pid, 0) for pid, s in cpu(cluster).items())
    row["MB"] = rss_mb(cluster.pids(), "VmHWM")
    if not quiet:
        row |= finish(work)
    if scenario == "move":
        ceph(cluster, "osd", "in", "2")
    if pool != FILLED:
        remove_pool(cluster, pool)
    return row

# For so long the longest silence after a kill is looked for.
AFTER = 36

def steady(cluster, what, pool=""):
    """A client that does so all the time; its only object is POOL0."""
    return Steady(cluster.conf, what, pool, objects=1, root=cluster.root)

def kill(name, pid, *clients):
    """Kills a daemon under clients that go on; when that was."""
    time.sleep(4)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    time.sleep(AFTER)
    since = [sum(t > killed for t in c.done) for c in clients]
    print("%s killed: %s" % (name, ", ".join("%d %s before, %d after" % (len(c.done) - n, c.what, n) for c, n in zip(clients, since))), flush=True)
    return killed

def failover(cluster):
    pool, took = "failover", []
    make_pool(cluster, pool, "8")
    for _ in range(3):
        primary = json.loads(ceph(cluster, "osd", "map", pool, pool + "0", "-f", "json"))["acting_primary"]
        writes = steady(cluster, "writes", pool)
        killed = kill("osd.%d" % primary, cluster.pids()["osd.%d" % primary], writes)
        took.append(writes.longest(killed, killed + AFTER))
        writes.end()
        start_again(cluster, primary)
        time.sleep(5)
        wait_clean(cluster, 120)
    remove_pool(cluster, pool)
    return took

def leader_failover(cluster):
    """The same for the lead monitor: seconds without a write, and until a command is answered that was given after the kill."""
    pool, silences, answers = "failover", [], []
    make_pool(cluster, pool, "8")
    quorum = lambda: json.loads(ceph(cluster, "quorum_status", "-f", "json"))
    # Connected once: whatever happens then is theirs to get over.
    writes, commands = steady(cluster, "writes", pool), steady(cluster, "commands")
    for _ in range(3):
        leader = "mon." + quorum()["quorum_leader_name"]
        killed = kill(leader, cluster.pids()[leader], writes, commands)
        silences.append(writes.longest(killed, killed + AFTER))
        answers.append(commands.answered_after(killed))
        if isinstance(cluster, Ours):
            subprocess.run([cluster.bin, "up", "--dir", cluster.outside], check=True, stdout=subprocess.DEVNULL)
        else:
            cluster.start_mon(leader[len("mon."):])
        while len(quorum()["quorum_names"]) < cluster.mons:
            time.sleep(0.2)
    for client in (writes, commands):
        client.end()
    return silences, answers

def make(name, base, root, a, mons=1, disks=()):
    bin, ours, stock = os.path.realpath(a.bin), base + "/ours", "/tmp/" + os.path.basename(base) if root else base + "/stock"
    if disks:
        devices = [disk.device for disk in disks]
        return OursOnDisks(bin, ours, 16300, root, devices) if name == "cuttlebone" else StockOnDisks(stock, root, devices)
    return Ours(bin, ours, 16300, root, mons=mons) if name == "cuttlebone" else StockCluster(stock, root, mons=mons)

def tune(cluster):
    options = {"osd_mclock_override_recovery_settings": "true", "osd_mclock_profile": "high_recovery_ops", "osd_max_backfills": "64", "osd_recovery_max_active": "16"}
    sleeps = {"osd_recovery_sleep" + kind: "0" for kind in ("", "_hdd", "_ssd", "_hybrid")}
    for name, value in {**options, **sleeps}.items():
        # An older release does not know all of them.
        tool(cluster, "ceph", "config", "set", "osd", name, value)

SILENT = "without an acknowledged write"
# `move` gives every pool there is two copies: before the filled one is made.
SCENARIOS = ("log", "quiet", "large", "backfill", "move", "fifth", "replace", "fifth-quiet", "replace-quiet", "grow")

def main():
    ap = arguments(__doc__)
    ap.add_argument("--objects", type=int, default=36280)
    ap.add_argument("--size", type=int, default=16384)
    ap.add_argument("--large", type=int, default=180, help="objects of 4 MiB")
    ap.add_argument("--fill", type=int, default=100000, help="objects of --size in the pool of fifth and replace")
    ap.add_argument("--fill-large", type=int, default=500, help="objects of 4 MiB in it")
    ap.add_argument("--rate", type=int, default=0, help="writes a second that the client offers; 0: as fast as they are answered, sixteen at a time")
    ap.add_argument("--tuned", action="store_true", help="measure a stock cluster with recovery turned up, too")
    ap.add_argument("--disks", choices=list(KINDS), help="each OSD on a device held to the speed of such a disk, its database and log on the machine's (needs root); not for replace and failover")
    ap.add_argument("--limit", type=int, default=1800, help="seconds after which a recovery is given up")
    a = ap.parse_args()
    if a.disks and lacks():
        sys.exit("recovery.py --disks: NOT RUN: it needs " + lacks())
    os.makedirs(a.dir, exist_ok=True)
    base = tempfile.mkdtemp(prefix="cuttlebone-recovery.", dir=a.dir)
    root = peer_root(a.peer)
    wanted = lambda scenario: not a.only or any(part in scenario for part in a.only.split(","))
    rows, gaps = [], []
    try:
        both = ["cuttlebone"] + ["stock"] * (a.peer != "none")
        for name in both + ["tuned"] * (a.tuned and a.peer != "none"):
            disks = [SlowDisk("%s/disk.%s.%d" % (base, name, n), 8 << 30, a.disks) for n in range(4 if a.disks else 0)]
            cluster, filled = make(name, base, root, a, disks=disks), False
            try:
                cluster.start()
                ceph(cluster, "osd", "set", "noout")
                if name == "tuned":
                    tune(cluster)
                for scenario in filter(wanted, SCENARIOS):
                    if scenario.startswith(OF_FILLED) and not filled:
                        make_pool(cluster, FILLED, "32")
                        fill(cluster, FILLED, a)
                        filled = True
                    r = measure(cluster, scenario, a)
                    rows.append((scenario, name, r))
                    print("%-9s %-10s %s" % (scenario, name, "  ".join("%s %.4g" % kv for kv in r.items())), flush=True)
                if wanted("failover") and name != "tuned":
                    gaps.append((name + ", a primary", failover(cluster), SILENT))
            finally:
                cluster.stop()
                for disk in disks:
                    disk.end()
        for name in both if wanted("failover") else []:
            cluster = make(name, base, root, a, mons=3)
            try:
                cluster.start()
                silences, answers = leader_failover(cluster)
                gaps.append((name + ", the lead monitor of three", silences, SILENT))
                gaps.append((name + ", the lead monitor of three", answers, "until a command was answered"))
            finally:
                cluster.stop()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    report(rows, gaps)

def report(rows, gaps):
    columns = ["copies/s", "MiB/s", "s", "IOPS before", "IOPS", "p99 ms before", "p99 ms", "max ms before", "max ms", "CPU s", "MB"]
    print("\n| scenario | who | %s |\n| --- | --- |%s" % (" | ".join(columns), " ---: |" * len(columns)))
    for scenario, name, r in sorted(rows, key=lambda row: row[0]):
        print("| %s | %s | %s |" % (scenario, name, " | ".join("%.4g" % r[c] if c in r else "" for c in columns)))
    for what, took, until in gaps:
        print("%s killed: %s s %s (median %.2f)" % (what, ", ".join("%.2f" % t for t in took), until, statistics.median(took)))

if __name__ == "__main__":
    main()
