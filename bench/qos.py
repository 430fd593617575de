#!/usr/bin/python3
"""Who gets how much of a slow disk: Cuttlebone and stock Ceph, three OSDs each on three disks of 75 I/Os a second, their databases and logs on the fast one.

    qos.py --bin target/dist/cuttlebone [--peer none|pacific|reef|tentacle] [--objects 2890] [--only balanced,shares] [--dir DIR]

Each cluster by itself, one after the other (they would share a core otherwise):
  alone     a client overwrites 4 KiB at random in 64 objects of 4 MiB, four at a time
  balanced, high_client_ops, high_recovery_ops
            an OSD was away while --objects of 16 KiB were written; now it is back, a client offers 40 writes of 4 KiB a second, and a deep scrub reads
            another pool
  shares    the same profiles, while a client reads cold objects, sixty-four at a time, so that each disk always has some of them waiting, and
            more recovers than can in that time: what each class had of the disks' time while each of both had work waiting (ours only: of its
            counters `perf dump device`)
Each begins when what was written before is in its place: a log that is full makes a client as slow as the disk.
Stock before Quincy has no profiles: for Pacific the three are one and the same. Needs root (see tests/clients/slow_disk.py).
"""
import json, os, shutil, statistics, subprocess, sys, tempfile, threading, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/clients"))
from recovery import FILL, WATCH, ceph, drop_caches, finish, inside, make_pool, offer, output, start_again, states, stop_osd, until_clean, wait_clean
from on_disks import OursOnDisks, StockOnDisks
from side_by_side import Ours, arguments, peer_root, tool
from slow_disk import SlowDisk, lacks

PROFILES = {"balanced": (50, 50), "high_client_ops": (60, 40), "high_recovery_ops": (30, 70)}
POOL, SCRUBBED = "load", "scrubbed"
# Bytes that an OSD keeps until they are worth a flush.
BATCH = 4 << 20

def fill(cluster, pool, prefix, size, count):
    output(inside(cluster, FILL, pool, prefix, str(size), str(count)))

def writer(cluster, depth, rate, seconds):
    return offer(cluster, POOL, "write", "load-", 64, 4 << 20, 4096, depth, rate, seconds)

def device_time(cluster):
    """{osd: the logger `device`} of those that run; none of stock."""
    if not isinstance(cluster, Ours):
        return {}
    running = [n for n in range(3) if "osd.%d" % n in cluster.pids()]
    looks = {n: json.loads(ceph(cluster, "tell", "osd.%d" % n, "perf", "dump", "device"))["device"] for n in running}
    return looks if all("client_us" in look for look in looks.values()) else {}

CLASSES = ("client", "background_recovery", "background_best_effort")

def had(before, after):
    """Parts of the time, in percent, that each class had of the disks between two looks, flushes last."""
    grown = lambda name: sum(after[n][name] - before[n][name] for n in after)
    used = [grown(c + "_us") for c in CLASSES] + [grown("flushes_us")]
    return [100 * u / max(1, sum(used)) for u in used]

def behind(cluster, prefix, count):
    """An OSD is away while so many objects are written."""
    stop_osd(cluster, 2)
    fill(cluster, POOL, prefix, 16 << 10, count)

def profile(cluster, name):
    tool(cluster, "ceph", "config", "set", "osd", "osd_mclock_profile", name)
    time.sleep(2)

def scrub(cluster):
    tool(cluster, "ceph", "osd", "pool", "deep-scrub", SCRUBBED)

def drain(cluster, seconds=900):
    """Waits until no more is left to be written to its place later than what stays for a batch."""
    end = time.monotonic() + seconds
    throttle = "throttle-bluestore_throttle_deferred_bytes"
    waiting = lambda n: json.loads(ceph(cluster, "tell", "osd.%d" % n, "perf", "dump", throttle))[throttle]["val"]
    while any(waiting(n) > BATCH for n in range(3)):
        if time.monotonic() > end:
            raise RuntimeError("after %d s still more than %d bytes wait for their places" % (seconds, BATCH))
        time.sleep(1)

def settle(cluster, seconds=20):
    """What was put off is written."""
    time.sleep(seconds)
    drain(cluster)

class Promise(threading.Thread):
    """What `ceph progress` says of the time that is left."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.told, self.over = cluster, [], False
        self.start()

    def run(self):
        while not self.over:
            p = tool(self.cluster, "ceph", "progress", "json")
            events = json.loads(p.stdout or "{}").get("events") if p.returncode == 0 else None
            if events and events[0].get("time_remaining") is not None:
                self.told.append((time.monotonic(), events[0]["time_remaining"]))
            time.sleep(0.5)

    def kept(self, end):
        """By how much it was wrong, in the median of what was told while more than four seconds were left; None if nothing was."""
        self.over = True
        off = [100 * abs(left - (end - at)) / (end - at) for at, left in self.told if end - at > 4]
        return statistics.median(off) if off else None

def recover(cluster, name, a):
    profile(cluster, name)
    behind(cluster, "small-", a.objects)
    time.sleep(5)
    before = device_time(cluster)
    watch = inside(cluster, WATCH, str(a.limit))
    watch.stdout.readline()
    begin = time.monotonic()
    start_again(cluster, 2)
    # What is written while it is away is another thing to recover, and not the same for both.
    wait_for(cluster, lambda: json.loads(ceph(cluster, "osd", "stat", "-f", "json"))["num_up_osds"] == 3)
    client = writer(cluster, 16, 40, 3600)
    scrub(cluster)
    promise = Promise(cluster)
    took, _ = until_clean(watch, begin)
    watch.kill(); watch.wait()
    promised = promise.kept(begin + took)
    after = device_time(cluster)
    if took < a.least:
        # For a percentile of something.
        time.sleep(a.least - took)
    row = finish(client)
    row |= {"s": took, "copies/s": a.objects / took, "finish off by %": promised}
    if after:
        row["had"] = had({n: before.get(n) or dict.fromkeys(after[n], 0) for n in after}, after)
    return row

def wait_for(cluster, probe, seconds=120):
    """False if it has not come by then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if probe():
            return True
        time.sleep(0.2)
    return False

def shares(cluster, name, a):
    """What each class has while clients and recovery both have work waiting on a disk, by that disk's own word."""
    profile(cluster, name)
    behind(cluster, "more-", 3 * a.objects)
    time.sleep(20)
    # What a profile before has read is not cold any more.
    drop_caches(cluster, (0, 1))
    client = offer(cluster, SCRUBBED, "read", "cold-", a.cold, 256 << 10, 4096, 64, 0, 3600)
    start_again(cluster, 2)
    scrub(cluster)
    wait_for(cluster, lambda: json.loads(ceph(cluster, "osd", "stat", "-f", "json"))["num_up_osds"] == 3)
    # What it can do has to be learned anew by the one that was started.
    time.sleep(10)
    before = device_time(cluster)
    wait_for(cluster, lambda: set(states(cluster)) == {"active+clean"}, 40)
    after = device_time(cluster)
    row = finish(client)
    wait_clean(cluster, a.limit)
    had = [sum(after[n][c + "_contended_us"] - before[n][c + "_contended_us"] for n in after) for c in CLASSES]
    row |= {"had": [100 * s / max(1, sum(had)) for s in had], "client part": 100 * had[0] / max(1, sum(had[:2])), "seconds seen": sum(had) / 1e6}
    return row

def run(cluster, who, a, rows):
    wanted = lambda name: not a.only or any(part in name for part in a.only.split(","))
    def add(name, row):
        rows.append((name, who, row))
        show = lambda v: "/".join("%.0f" % x for x in v) if isinstance(v, list) else "%.4g" % v if v is not None else "-"
        print("%-25s %-10s %s" % (name, who, "  ".join("%s %s" % (k, show(v)) for k, v in row.items())), flush=True)
    print("%s: up after %.1f s" % (who, cluster.start()), flush=True)
    ceph(cluster, "osd", "set", "noout")
    tool(cluster, "ceph", "config", "set", "osd", "osd_scrub_during_recovery", "true")
    make_pool(cluster, POOL, "32")
    make_pool(cluster, SCRUBBED, "8")
    fill(cluster, POOL, "load-", 4 << 20, 64)
    fill(cluster, SCRUBBED, "cold-", 256 << 10, a.cold)
    settle(cluster)
    if wanted("alone"):
        add("alone", json.loads(output(writer(cluster, 4, 0, 30))))
        settle(cluster, 30)
    for name in PROFILES:
        if wanted(name):
            add(name, recover(cluster, name, a))
            settle(cluster)
    for name in PROFILES if wanted("shares") and device_time(cluster) else ():
        add("shares, " + name, shares(cluster, name, a))

def main():
    ap = arguments(__doc__)
    ap.add_argument("--objects", type=int, default=2890)
    ap.add_argument("--cold", type=int, default=600, help="objects of 256 KiB that are scrubbed, and read cold")
    ap.add_argument("--least", type=int, default=30, help="seconds that a client is measured for at least")
    ap.add_argument("--limit", type=int, default=900, help="seconds after which a recovery is given up")
    ap.add_argument("--port", type=int, default=16300)
    a = ap.parse_args()
    if lacks():
        sys.exit("qos.py: NOT RUN: it needs " + lacks())
    os.makedirs(a.dir, exist_ok=True)
    base = tempfile.mkdtemp(prefix="cuttlebone-qos.", dir=a.dir)
    root = peer_root(a.peer)
    rows = []
    try:
        for who in ["cuttlebone"] + ["stock"] * (a.peer != "none"):
            disks = [SlowDisk("%s/disk.%s.%d" % (base, who, n), 8 << 30) for n in range(3)]
            devices = [disk.device for disk in disks]
            cluster = None
            try:
                if who == "stock":
                    cluster = StockOnDisks("/tmp/" + os.path.basename(base) if root else base + "/stock", root, devices)
                else:
                    cluster = OursOnDisks(os.path.realpath(a.bin), base + "/ours", a.port, root, devices)
                run(cluster, who, a, rows)
            finally:
                if cluster:
                    cluster.stop()
                for disk in disks:
                    disk.end()
    finally:
        shutil.rmtree(base, ignore_errors=True)
    report(rows)

def report(rows):
    columns = ["IOPS", "p50 ms", "p99 ms", "max ms", "copies/s", "s", "finish off by %"]
    print("\n| what | who | %s | disks: client, recovery, best effort, flushes |\n| --- | --- |%s --- |" % (" | ".join(columns), " ---: |" * len(columns)))
    for name, who, r in sorted(rows, key=lambda row: row[0]):
        cells = ["%.4g" % r[c] if r.get(c) is not None else "" for c in columns]
        print("| %s | %s | %s | %s |" % (name, who, " | ".join(cells), " ".join("%.0f" % p for p in r.get("had", []))))
    for name, who, r in rows:
        if name.startswith("shares"):
            client, recovery = PROFILES[name.split(", ")[1]]
            print("%s: of what clients and recovery had, clients had %.1f%%; promised %.0f%% (seen for %.0f s of disks' time)" % (name, r["client part"], client, r["seconds seen"]))

if __name__ == "__main__":
    main()
