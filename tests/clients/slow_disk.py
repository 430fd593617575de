#!/usr/bin/python3
"""A block device that is as slow as a disk: a loop device on a sparse file, held back by the kernel (blkio, control groups of version 1).

    slow_disk.py make FILE SIZE [--like usb-hdd|hdd|sata-ssd] [--iops N] [--mbps N]      prints the device
    slow_disk.py set DEVICE [--like ...] [--iops N] [--mbps N]
    slow_disk.py end DEVICE

usb-hdd, the default, is a disk of 5,400 turns a minute on USB: 75 I/Os a second each way, 125 MB/s. Whoever uses the device is held back, so two
systems can be compared. Needs root, and removes neither FILE nor anything else.
"""
import argparse, os, subprocess, sys

THROTTLE = "/sys/fs/cgroup/blkio/blkio.throttle."
KINDS = {"usb-hdd": (75, 125), "hdd": (130, 185), "sata-ssd": (20000, 240)}

def lacks():
    """What is missing here for slow disks, or None."""
    if os.geteuid():
        return "root"
    if not os.path.exists(THROTTLE + "read_iops_device"):
        return "the throttle of control groups version 1 (%s*)" % THROTTLE
    if not os.path.exists("/dev/loop-control"):
        return "loop devices"
    return None

class SlowDisk:
    """As a context it ends itself; its file stays."""

    def __init__(self, file, size, like="usb-hdd", iops=None, mbps=None):
        self.file = file
        with open(file, "xb") as f:
            f.truncate(size)
        p = subprocess.run(["losetup", "--find", "--show", "--direct-io=on", file], capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError("losetup: " + p.stderr.strip())
        self.device = p.stdout.strip()
        self.hold(like, iops, mbps)

    @classmethod
    def at(cls, device):
        """One that there is."""
        disk = cls.__new__(cls)
        disk.file, disk.device = None, device
        return disk

    def hold(self, like=None, iops=None, mbps=None):
        """From now on it does so many I/Os and millions of bytes a second, in each direction; 0: as many as it can."""
        kind = KINDS[like or "usb-hdd"]
        iops, mbps = (iops if iops is not None else kind[0]), (mbps if mbps is not None else kind[1])
        rdev = os.stat(self.device).st_rdev
        for way in ("read", "write"):
            for what, rate in (("iops", iops), ("bps", mbps * 1000000)):
                with open("%s%s_%s_device" % (THROTTLE, way, what), "w") as f:
                    f.write("%d:%d %d" % (os.major(rdev), os.minor(rdev), rate))

    def end(self):
        self.hold(iops=0, mbps=0)
        subprocess.run(["losetup", "--detach", self.device], check=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

def size_of(text):
    """`10G` in bytes."""
    return int(text[:-1]) << {"M": 20, "G": 30, "T": 40}[text[-1]] if text[-1] in "MGT" else int(text)

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("do", choices=["make", "set", "end"])
    ap.add_argument("what")
    ap.add_argument("size", nargs="?")
    ap.add_argument("--like", choices=list(KINDS), default="usb-hdd")
    ap.add_argument("--iops", type=int)
    ap.add_argument("--mbps", type=int)
    a = ap.parse_args()
    if lacks():
        sys.exit("this needs " + lacks())
    if a.do == "make":
        print(SlowDisk(a.what, size_of(a.size or "8G"), a.like, a.iops, a.mbps).device)
    elif a.do == "set":
        SlowDisk.at(a.what).hold(a.like, a.iops, a.mbps)
    else:
        SlowDisk.at(a.what).end()

if __name__ == "__main__":
    main()
