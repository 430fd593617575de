#!/usr/bin/python3
"""Where an OSD's database and log had better be: all on a slow disk, the log on flash, or database and log on flash; Cuttlebone and stock Ceph.

    devices.py --bin target/dist/cuttlebone [--peer none|pacific|reef|tentacle] [--repeat 5] [--seconds 8] [--only "4 KiB writes"] [--dir DIR]

Three OSDs each, one cluster after the other; every data device is held to 75 I/Os a second, every flash to what SATA does (tests/clients/slow_disk.py). Ours has a
file system where it keeps files, BlueStore has the devices bare. Each load begins when nothing waits for the disk any more, runs once uncounted, for at first writes
only have to reach the log, and then --repeat times. Told are means with the half width of their 95% confidence interval, and of each place against the first, and
of ours against stock's, whether there is a difference that this many runs show. Needs root.
"""
import json, math, os, shutil, statistics, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/clients"))
from on_disks import OursOnDisks
from qos import drain, fill, offer
from recovery import ceph, drop_caches, inside, make_pool, output
from side_by_side import arguments, peer_root
from slow_disk import SlowDisk, lacks
from stock_cluster import StockCluster

POOL, COLD = "p", 400
# Sets ten omap keys of objects at random: CONF POOL DEPTH SECONDS.
OMAP = """
import json, random, sys, threading, time, rados
conf, pool, depth, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
cluster = rados.Rados(conffile=conf); cluster.connect(); io = cluster.open_ioctx(pool)
slots, latencies, begin = threading.Semaphore(depth), [], time.monotonic()
while time.monotonic() < begin + seconds:
    slots.acquire()
    def done(*_, since=time.monotonic()):
        latencies.append(time.monotonic() - since)
        slots.release()
    with rados.WriteOpCtx() as op:
        keys = tuple("key%06d" % random.randrange(100000) for _ in range(10))
        io.set_omap(op, keys, tuple(b"x" * 100 for _ in keys))
        io.operate_aio_write_op(op, "omap-%d" % random.randrange(1000), oncomplete=done)
took = time.monotonic() - begin
for _ in range(depth):
    slots.acquire()
latencies.sort()
at = lambda part: latencies[int(len(latencies) * part)] * 1e3
print(json.dumps({"IOPS": len(latencies) / took, "p50 ms": at(.5), "p99 ms": at(.99)}))
cluster.shutdown()
"""

def small_writes(cluster, seconds):
    return offer(cluster, POOL, "write", "load-", 64, 4 << 20, 4096, 16, 0, seconds)

def cold_reads(cluster, seconds):
    return offer(cluster, POOL, "read", "cold-", COLD, 256 << 10, 4096, 16, 0, seconds)

def reads_after_writes(cluster, seconds):
    """What was just written waits for its place while others read."""
    output(small_writes(cluster, seconds))
    return cold_reads(cluster, seconds)

LOADS = {
    "4 KiB writes": small_writes,
    "cold reads of 4 KiB": cold_reads,
    "cold reads while small writes wait": reads_after_writes,
    "omap, ten keys a write": lambda c, s: inside(c, OMAP, POOL, "16", str(s)),
    "4 MiB writes": lambda c, s: offer(c, POOL, "write", "large-", 32, 4 << 20, 4 << 20, 4, 0, s),
}
PLACES = ("all on the disk", "log on flash", "database and log on flash")
OURS = "cuttlebone"
# 97.5% of Student's t by degrees of freedom, the last for all beyond.
T = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.0]

def t_of(degrees):
    return T[min(degrees, len(T)) - 1]

def run(*argv):
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

class FileSystem:
    """On a device; as a directory."""

    def __init__(self, disk, at):
        self.disk, self.at = disk, at
        os.makedirs(at)
        run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk.device)
        run("mount", disk.device, at)

    def end(self):
        run("umount", self.at)

class Disks:
    """Devices of a kind each, on files in a directory."""

    def __init__(self, base):
        self.base, self.all = base, []

    def add(self, name, like):
        disk = SlowDisk("%s/%s" % (self.base, name), 8 << 30, like)
        self.all.append((disk, like))
        # What is made on them is made at full speed: it is the medium that is slow.
        disk.hold(iops=0, mbps=0)
        return disk

    def hold(self):
        for disk, like in self.all:
            disk.hold(like)

    def end(self):
        for disk, _ in self.all:
            disk.end()
            os.unlink(disk.file)

class StockPlaced(StockCluster):
    """BlueStore with its DB and WAL in the given places."""

    def __init__(self, base, port, root, place):
        self.disks, self.place = Disks(base), place
        super().__init__("/tmp/" + os.path.basename(os.path.dirname(base)) if root else base + "/c", root, port)

    def start(self):
        took = super().start()
        self.disks.hold()
        return took

    def make_osd(self, i):
        osd = "%s/osd.%d" % (self.outside, i)
        os.makedirs(osd)
        os.symlink(self.disks.add("data.%d" % i, "usb-hdd").device, osd + "/block")
        if self.place != PLACES[0]:
            flash = self.disks.add("flash.%d" % i, "sata-ssd")
            os.symlink(flash.device, osd + ("/block.wal" if self.place == PLACES[1] else "/block.db"))
        super().make_osd(i)

    def stop(self):
        super().stop()
        self.disks.end()

class Placed(OursOnDisks):
    """Ours with its files in the given places."""

    def __init__(self, bin, base, port, root, place):
        self.base, self.disks, self.place, self.systems = base, Disks(base), place, []
        super().__init__(bin, base + "/c", port, root, [])

    def make_disks(self):
        for n in range(3):
            data = self.disks.add("data.%d" % n, "usb-hdd")
            if self.place == PLACES[2]:
                flash = FileSystem(self.disks.add("flash.%d" % n, "sata-ssd"), "%s/flash-fs.%d" % (self.base, n))
                self.systems.append(flash)
                os.mkdir(flash.at + "/osd")
                os.symlink(data.device, flash.at + "/osd/block")
                home = flash.at + "/osd"
            else:
                slow = FileSystem(data, "%s/data-fs.%d" % (self.base, n))
                self.systems.append(slow)
                home = slow.at + "/osd"
                os.mkdir(home)
                with open(home + "/block", "wb") as f:
                    f.truncate(6 << 30)
                if self.place == PLACES[1]:
                    os.symlink(self.disks.add("flash.%d" % n, "sata-ssd").device, home + "/block.wal")
            os.makedirs(self.outside, exist_ok=True)
            os.symlink(home, "%s/osd.%d" % (self.base, n))
        os.rmdir(self.outside)
        run(self.bin, "up", "--dir", self.outside, "--port", str(self.port), "--osds", "0")
        for n in range(3):
            os.rename("%s/osd.%d" % (self.base, n), "%s/osd.%d" % (self.outside, n))
        self.disks.hold()

    def stop(self):
        super().stop()
        for system in self.systems:
            system.end()
        self.disks.end()

def log_is_apart(cluster):
    """True if the log went where the link says."""
    return json.loads(ceph(cluster, "osd", "metadata", "0"))["bluefs_dedicated_wal"] == "1"

def measure_loads(cluster, a, place, who, results):
    if place == PLACES[1] and not log_is_apart(cluster):
        raise RuntimeError("the log is not where block.wal says")
    # With few, one disk is the primary of half of the objects, and cold reads are as fast as that one.
    make_pool(cluster, POOL, "128")
    fill(cluster, POOL, "load-", 4 << 20, 64)
    fill(cluster, POOL, "cold-", 256 << 10, COLD)
    time.sleep(20)
    for load, begin in LOADS.items():
        if a.only and a.only not in load:
            continue
        drain(cluster)
        output(begin(cluster, a.seconds))
        time.sleep(a.pause)
        for _ in range(a.repeat):
            # What one run has read is cold again in the next.
            drop_caches(cluster, range(3))
            row = json.loads(output(begin(cluster, a.seconds)))
            results.setdefault(load, {}).setdefault((place, who), []).append(row)
            print("%-34s %-26s %-10s %s" % (load, place, who, "  ".join("%s %.4g" % (k, v) for k, v in row.items() if v is not None)), flush=True)
            # What was put off is not the next one's.
            time.sleep(a.pause)

def measure(a, base, results):
    root = peer_root(a.peer)
    for at, place in enumerate(PLACES):
        for who in [OURS] + ([a.peer] if a.peer != "none" else []):
            home = "%s/%d-%s" % (base, at, who)
            os.mkdir(home)
            cluster = Placed(os.path.realpath(a.bin), home, a.port, root, place) if who == OURS else StockPlaced(home, a.port + 50, root, place)
            try:
                print("%s, %s: up after %.1f s" % (who, place, cluster.start()), flush=True)
                measure_loads(cluster, a, place, who, results)
            finally:
                cluster.stop()

def told(rows, column):
    values = [r[column] for r in rows]
    half = t_of(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else float("nan")
    return "%.4g ± %.2g" % (statistics.mean(values), half)

def differs(one, other, column):
    """By Welch's test: what factor, or that there is no difference to be seen."""
    x, y = [r[column] for r in one], [r[column] for r in other]
    if min(len(x), len(y)) < 2:
        return "too few runs"
    vx, vy = statistics.variance(x) / len(x), statistics.variance(y) / len(y)
    spread = math.sqrt(vx + vy)
    degrees = max(1, int((vx + vy) ** 2 / max(1e-12, vx * vx / (len(x) - 1) + vy * vy / (len(y) - 1))))
    if abs(statistics.mean(y) - statistics.mean(x)) <= t_of(degrees) * spread:
        return "no difference"
    return "%.2f times" % (statistics.mean(y) / statistics.mean(x))

def main():
    ap = arguments(__doc__)
    ap.add_argument("--repeat", type=int, default=5)
    ap.add_argument("--seconds", type=int, default=8)
    ap.add_argument("--pause", type=int, default=10, help="seconds between runs")
    ap.add_argument("--port", type=int, default=16300)
    a = ap.parse_args()
    if lacks():
        sys.exit("devices.py: NOT RUN: it needs " + lacks())
    os.makedirs(a.dir, exist_ok=True)
    base = tempfile.mkdtemp(prefix="cuttlebone-devices.", dir=a.dir)
    results = {}
    try:
        measure(a, base, results)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print("\n| load | place | who | IOPS | p50 ms | p99 ms | IOPS beside the first place | IOPS beside stock |\n| --- | --- | --- | ---: | ---: | ---: | --- | --- |")
    for load, by_place in results.items():
        for (place, who), rows in by_place.items():
            cells = [told(rows, c) for c in ("IOPS", "p50 ms", "p99 ms")]
            first, peers = by_place.get((PLACES[0], who)), by_place.get((place, a.peer))
            cells.append("" if first in (None, rows) else differs(first, rows, "IOPS"))
            cells.append("" if peers in (None, rows) else differs(peers, rows, "IOPS"))
            print("| %s | %s | %s | %s |" % (load, place, who, " | ".join(cells)))

if __name__ == "__main__":
    main()
