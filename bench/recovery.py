#!/usr/bin/python3
"""How fast copies come back, and what clients feel of it: Cuttlebone and stock Ceph, three OSDs each on the same disk.

    recovery.py --bin target/release/cuttlebone [--peer pacific|reef|tentacle|none] [--objects 36280] [--size 16384] [--dir DIR]

Three times for each, one cluster after the other, each at its defaults:
  log       an OSD is away while the objects are written, and comes back: its log tells what it lacks
  backfill  the same, with half as many again in few placement groups: no log tells
  move      of a pool with two copies an OSD is marked out: what it held moves, degraded for nobody
Counted is from the moment the OSD is started, or marked out, until every placement group is active+clean; meanwhile the
stock librados overwrites objects of 4 KiB, sixteen at a time. Objects per second are copies made per second.
"""
import json, os, shutil, signal, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/clients"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from side_by_side import HERE, Ours, arguments, peer_root, tool
from stock_cluster import StockCluster

def ceph(cluster, *args):
    p = tool(cluster, "ceph", *args)
    if p.returncode:
        raise RuntimeError("ceph %s: %s" % (" ".join(args), p.stderr[-500:]))
    return p.stdout

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

def client(cluster, pool, seconds):
    """Starts the client; `finish` has its figures."""
    argv = ["/usr/bin/python3", "-", cluster.conf, pool, "write", "4096", "16", str(seconds), "json"]
    inside = ["chroot", cluster.root] if cluster.root else []
    p = subprocess.Popen(inside + argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    p.stdin.write(open(HERE + "/percentiles.py").read())
    p.stdin.close()
    return p

def finish(p):
    p.send_signal(signal.SIGINT)
    out, err = p.stdout.read(), p.stderr.read()
    if p.wait():
        raise RuntimeError(err[-500:])
    return json.loads(out)

def copies_wrong(cluster):
    m = pgmap(cluster)
    return m.get("degraded_objects", 0) + m.get("misplaced_objects", 0)

def measure(cluster, scenario, a):
    pool = scenario
    # With few placement groups there are more writes to each than any log keeps.
    pgs = "4" if scenario == "backfill" else "32"
    ceph(cluster, "osd", "pool", "create", pool, pgs, pgs)
    ceph(cluster, "osd", "pool", "application", "enable", pool, "bench")
    if scenario == "move":
        ceph(cluster, "osd", "pool", "set", pool, "size", "2")
    wait_clean(cluster, 120)
    if scenario == "move":
        write(cluster, pool, a.objects, a.size)
    else:
        stop_osd(cluster, 2)
        write(cluster, pool, a.objects * 3 // 2 if scenario == "backfill" else a.objects, a.size)
    work = client(cluster, pool, 3600)
    time.sleep(3)
    begin = time.monotonic()
    if scenario == "move":
        ceph(cluster, "osd", "out", "2")
    else:
        start_again(cluster, 2)
    most = 0
    end = begin + a.limit
    while True:
        most = max(most, copies_wrong(cluster))
        now = states(cluster)
        if set(now) == {"active+clean"} and (most or time.monotonic() - begin > 20):
            break
        if time.monotonic() > end:
            raise RuntimeError("not clean after %d s: %s" % (a.limit, now))
        time.sleep(0.2)
    took = time.monotonic() - begin
    figures = finish(work)
    if scenario == "move":
        ceph(cluster, "osd", "in", "2")
    ceph(cluster, "tell", "mon.*", "injectargs", "--mon_allow_pool_delete=true")
    ceph(cluster, "osd", "pool", "rm", pool, pool, "--yes-i-really-really-mean-it")
    time.sleep(3)
    return {"s": took, "objects/s": most / took, **figures}

def main():
    ap = arguments(__doc__)
    ap.add_argument("--objects", type=int, default=36280)
    ap.add_argument("--size", type=int, default=16384)
    ap.add_argument("--limit", type=int, default=1800, help="seconds after which a recovery is given up")
    a = ap.parse_args()
    os.makedirs(a.dir, exist_ok=True)
    base = tempfile.mkdtemp(prefix="cuttlebone-recovery.", dir=a.dir)
    root = peer_root(a.peer)
    rows = []
    try:
        for name in ["cuttlebone"] + ([] if a.peer == "none" else ["stock"]):
            inside = "/tmp/" + os.path.basename(base) if root else base + "/stock"
            cluster = Ours(os.path.realpath(a.bin), base + "/ours", 16300, root) if name == "cuttlebone" else StockCluster(inside, root)
            try:
                cluster.start()
                ceph(cluster, "osd", "set", "noout")
                for scenario in [s for s in ("log", "backfill", "move") if not a.only or a.only in s]:
                    r = measure(cluster, scenario, a)
                    rows.append((scenario, name, r))
                    print("%-9s %-10s %s" % (scenario, name, "  ".join("%s %.4g" % kv for kv in r.items())), flush=True)
            finally:
                cluster.stop()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    columns = ["objects/s", "s", "IOPS", "p99 ms", "max ms"]
    print("\n| scenario | who | objects/s | until clean, s | client IOPS | p99 ms | max ms |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for scenario, name, r in sorted(rows, key=lambda row: row[0]):
        print("| %s | %s | %s |" % (scenario, name, " | ".join("%.4g" % r[c] for c in columns)))

if __name__ == "__main__":
    main()
