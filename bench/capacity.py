#!/usr/bin/python3
"""What an OSD learns of its disk beside what fio measures, for each kind of disk, and after the disk has changed its speed under load.

    capacity.py --bin target/dist/cuttlebone [--dir DIR]

One OSD on one loop device at a time, held to the speed of a kind (tests/clients/slow_disk.py). fio reads 4 KiB at random, 32 at a time, straight from the
device before the OSD has it; then a client reads cold objects, sixteen at a time, for a minute; then the device does a third as much. What nobody keeps busy
nobody can know: flash is read by `rados bench`, 64 at a time. Needs root and fio.
"""
import json, os, shutil, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/clients"))
from on_disks import OursOnDisks
from qos import fill, offer
from recovery import ceph, make_pool
from side_by_side import arguments
from slow_disk import KINDS, SlowDisk, lacks

POOL, OBJECTS, SIZE = "cold", 1600, 256 << 10

def fio(device, seconds=10):
    """Random reads of 4 KiB in a second."""
    argv = ["fio", "--name=x", "--filename=" + device, "--direct=1", "--rw=randread", "--bs=4k", "--iodepth=32", "--ioengine=libaio", "--size=1G",
            "--runtime=%d" % seconds, "--time_based", "--output-format=json"]
    return json.loads(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)["jobs"][0]["read"]["iops"]

def load(cluster, kind):
    """Starts what keeps the disk busy."""
    if kind != "sata-ssd":
        fill(cluster, POOL, "cold-", SIZE, OBJECTS)
        return offer(cluster, POOL, "read", "cold-", OBJECTS, SIZE, 4096, 16, 0, 3600)
    bench = ["rados", "-c", cluster.conf, "-p", POOL, "bench", "3600"]
    written = [*bench, "write", "-b", "4096", "-O", str(SIZE), "-t", "64", "--max-objects", str(OBJECTS), "--no-cleanup"]
    subprocess.run(written, check=True, stdout=subprocess.DEVNULL)
    return subprocess.Popen([*bench, "rand", "-t", "64"], stdout=subprocess.DEVNULL)

def learned(cluster):
    return json.loads(ceph(cluster, "tell", "osd.0", "perf", "dump", "device"))["device"]

def follow(cluster, true, seconds=60):
    """What is learned at the end of so long a load, and when it first was within a fifth of the truth for good."""
    begin, since = time.monotonic(), None
    while time.monotonic() - begin < seconds:
        look = learned(cluster)
        near = look["learned"] and abs(look["read_iops"] - true) <= 0.2 * true
        since = (since if since is not None else time.monotonic() - begin) if near else None
        time.sleep(0.5)
    return look["read_iops"], since

def measure(kind, a, base):
    iops, mbps = KINDS[kind]
    disk, cluster, reader, rows = SlowDisk("%s/disk.%s" % (base, kind), 4 << 30, kind), None, None, []
    try:
        speeds = []
        for part in (1, 3):
            disk.hold(iops=iops // part, mbps=mbps // part)
            speeds.append((part, fio(disk.device)))
        disk.hold(kind)
        cluster = OursOnDisks(os.path.realpath(a.bin), "%s/%s" % (base, kind), a.port, None, [disk.device])
        cluster.osds = 1
        cluster.start()
        ceph(cluster, "config", "set", "global", "mon_allow_pool_size_one", "true")
        # What the page cache has keeps no disk busy.
        ceph(cluster, "config", "set", "osd", "bluestore_default_buffered_read", "false")
        ceph(cluster, "osd", "pool", "create", POOL, "8")
        ceph(cluster, "osd", "pool", "set", POOL, "size", "1", "--yes-i-really-mean-it")
        reader = load(cluster, kind)
        for part, true in speeds:
            disk.hold(iops=iops // part, mbps=mbps // part)
            got, since = follow(cluster, true)
            rows.append((kind, part, true, got, since))
            print("%s / %d: fio %.0f, learned %.0f, %s" % (kind, part, true, got, "near after %.1f s" % since if since is not None else "not near"), flush=True)
    finally:
        if reader:
            reader.kill(); reader.wait()
        if cluster:
            cluster.stop()
        disk.end()
        os.unlink(disk.file)
    return rows

def main():
    ap = arguments(__doc__)
    ap.add_argument("--port", type=int, default=16300)
    a = ap.parse_args()
    why = lacks() or (None if shutil.which("fio") else "fio")
    if why:
        sys.exit("capacity.py: NOT RUN: it needs " + why)
    os.makedirs(a.dir, exist_ok=True)
    base = tempfile.mkdtemp(prefix="cuttlebone-capacity.", dir=a.dir)
    rows = []
    try:
        for kind in KINDS:
            if not a.only or kind in a.only.split(","):
                rows += measure(kind, a, base)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print("\n| disk | fio, reads of 4 KiB a second | learned after a minute | off by | within a fifth after |\n| --- | ---: | ---: | ---: | ---: |")
    for kind, part, true, got, since in rows:
        what = kind if part == 1 else "the same, a third as fast"
        print("| %s | %.0f | %.0f | %.0f%% | %s |" % (what, true, got, 100 * abs(got - true) / true, "%.1f s" % since if since is not None else "never"))

if __name__ == "__main__":
    main()
