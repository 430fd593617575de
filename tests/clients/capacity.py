#!/usr/bin/python3
"""An OSD on a slow disk learns what that can do, tells operators by the option they know, notices when the disk becomes slower, and lets them say otherwise.

    capacity.py --bin BINARY [--port 16800]

Needs root (see slow_disk.py); says so and does nothing where it cannot have such disks, and fails if CI is set.
"""
import argparse, os, re, shutil, subprocess, sys, tempfile, time
from harness import Client, check, match, not_run, until
from slow_disk import SlowDisk, lacks

HERE = os.path.dirname(os.path.abspath(__file__))
FAST, SLOW, OFF = 150, 50, 0.2
POOL, OBJECTS, SIZE = "p", 400, 256 << 10

def fill(client):
    script = """
import sys, rados
cluster = rados.Rados(conffile=sys.argv[1]); cluster.connect(); io = cluster.open_ioctx(sys.argv[2])
for i in range(int(sys.argv[3])):
    io.write_full("cold-%d" % i, b"%16d" % i * (int(sys.argv[4]) // 16))
cluster.shutdown()
"""
    subprocess.run(["/usr/bin/python3", "-c", script, client.conf, POOL, str(OBJECTS), str(SIZE)], check=True)

def learned(client):
    """Reads of 4 KiB in a second, once they are known."""
    device = client.json("tell", "osd.0", "perf", "dump", "device")["device"]
    return device["read_iops"] if device["learned"] else None

def is_near(iops, true):
    return iops is not None and abs(iops - true) <= OFF * true

def set_for_osd(client):
    """The option in `config dump`, and its value."""
    found = re.search(r"osd\.0 +basic +(osd_mclock_max_capacity_iops_(?:hdd|ssd)) +([\d.]+)", client.ceph("config", "dump")[0])
    return found and (found.group(1), float(found.group(2)))

def learns(client, disk):
    at = time.monotonic()
    until(lambda: is_near(learned(client), FAST), "%d I/Os a second learned" % FAST, 30)
    print("%d I/Os a second were learned after %.1f s" % (FAST, time.monotonic() - at), flush=True)
    option, value = until(lambda: set_for_osd(client), "the option set", 40)
    check(is_near(value, FAST), "%s is set to %s" % (option, value))
    at = time.monotonic()
    disk.hold(iops=SLOW)
    until(lambda: is_near(learned(client), SLOW), "%d I/Os a second learned" % SLOW, 30)
    print("%d I/Os a second were learned after %.1f s" % (SLOW, time.monotonic() - at), flush=True)
    # Whatever it was taken for when the OSD started.
    profile = lambda: client.json("tell", "osd.0", "perf", "dump", "device")["device"]["profile_hdd"]
    until(lambda: profile() == 1, "a disk that is used as one whose head moves", 10)
    said = lambda: "OSD_CAPACITY_MISMATCH" in client.ceph("health", "detail")[0] and client.ceph("health", "detail")[0]
    detail = until(said, "a warning that the disk is not what it was", 40)
    match(r"osd\.0 does \d+ I/Os of 4 KiB in a second, %s says %.0f" % (option, value), detail, "health detail")
    return option

def overridden(client, option):
    """What an operator says stays, and is held against what the disk does."""
    client.ceph("config", "set", "osd.0", option, str(SLOW))
    until(lambda: "OSD_CAPACITY_MISMATCH" not in client.ceph("health", "detail")[0], "no warning where operator and disk agree", 20)
    check(set_for_osd(client) == (option, SLOW), "it was changed: %s" % (set_for_osd(client),))

def recovery_options(client):
    """The scheduler decides in their place, and says so, unless it is told not to."""
    said = lambda *args: client.ceph("config", "set", *args)[1]
    match("osd_max_backfills is ignored while osd_op_queue is mclock_scheduler", said("osd", "osd_max_backfills", "9"), "config set")
    told = client.json("tell", "osd.0", "config", "set", "osd_recovery_sleep", "1")["success"]
    match("osd_recovery_sleep is ignored", told, "tell config set")
    check(said("osd", "osd_mclock_override_recovery_settings", "true") == "", "an option with an effect needs no words")
    check(said("osd", "osd_max_backfills", "9") == "", "nor does it then")
    match("ignored unless osd_mclock_override_recovery_settings", client.ceph("config", "help", "osd_max_backfills")[0], "config help")
    out, err = client.ceph("tell", "osd.*", "injectargs", "--osd_op_queue=wpq")
    match("osd_op_queue = 'wpq'", out + err, "injectargs")

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--port", type=int, default=int(os.environ.get("PORT", "16800")))
    a = ap.parse_args()
    if lacks():
        return not_run("capacity.py", lacks())
    base = tempfile.mkdtemp(prefix="cuttlebone-capacity.")
    up = lambda osds: subprocess.run([a.bin, "up", "--dir", base + "/c", "--osds", osds, "--port", str(a.port)], check=True, stdout=subprocess.DEVNULL)
    reader = None
    try:
        with SlowDisk(base + "/disk", 4 << 30, iops=FAST) as disk:
            try:
                up("0")
                os.mkdir(base + "/c/osd.0")
                os.symlink(disk.device, base + "/c/osd.0/block")
                up("1")
                client = Client(base + "/c/ceph.conf")
                client.ceph("config", "set", "global", "mon_allow_pool_size_one", "true")
                # What the page cache has keeps no disk busy.
                client.ceph("config", "set", "osd", "bluestore_default_buffered_read", "false")
                client.ceph("osd", "pool", "create", POOL, "8")
                client.ceph("osd", "pool", "set", POOL, "size", "1", "--yes-i-really-mean-it")
                client.ceph("osd", "pool", "application", "enable", POOL, "rados")
                fill(client)
                argv = ["/usr/bin/python3", HERE + "/offered.py", client.conf, POOL, "read", "cold-", OBJECTS, SIZE, 4096, 16, 0, 3600]
                reader = subprocess.Popen(list(map(str, argv)), stdout=subprocess.DEVNULL)
                overridden(client, learns(client, disk))
                recovery_options(client)
                client.close()
            finally:
                if reader:
                    reader.kill()
                    reader.wait()
                subprocess.run([a.bin, "down", "--dir", base + "/c"], stdout=subprocess.DEVNULL)
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print("passed")

if __name__ == "__main__":
    main()
