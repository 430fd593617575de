#!/usr/bin/python3
"""Memory that is limited by the kernel: a monitor and three OSDs that have 2 GB together, one of the OSDs 152 MB of it. They are
filled with small and large writes, two of them die in turn and are made whole again under load, and nobody is killed for memory.

    memory.py --bin BINARY [--port N]

Needs root, for a control group; says so and does nothing where it cannot have one, and fails if CI is set.
"""
import argparse, json, os, shutil, signal, subprocess, sys, tempfile, time
from harness import Client, Failed, check, equal, not_run, until

MIB = 1 << 20
NODE, SMALL = 2048 * MIB, 152 * MIB
SMALL_OSD, OTHER_OSD, POOL = 2, 1, "memory"
WHAT = "memory"

class Group:
    """A control group with a limit, of either version."""

    def __init__(self, path, limit):
        self.path = path
        self.v1 = os.path.exists(os.path.join(os.path.dirname(path), "memory.limit_in_bytes"))
        os.mkdir(path)
        self.write("memory.limit_in_bytes" if self.v1 else "memory.max", limit)

    def write(self, name, value):
        with open(os.path.join(self.path, name), "w") as f:
            f.write(str(value))

    def read(self, name):
        with open(os.path.join(self.path, name)) as f:
            return f.read()

    def run(self, *argv):
        """Runs a program, and whatever it starts, in the group."""
        into = lambda: self.write("cgroup.procs", os.getpid())
        p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, preexec_fn=into)
        check(p.returncode == 0, "%s: %s%s" % (" ".join(map(str, argv)), p.stdout, p.stderr))

    def kills(self):
        """How many processes the kernel has killed here for want of memory."""
        counts = dict(line.split() for line in self.read("memory.oom_control" if self.v1 else "memory.events").splitlines())
        return int(counts.get("oom_kill", 0))

    def peak(self):
        """Bytes, pages of files included, which the kernel takes back when it needs them."""
        name = "memory.max_usage_in_bytes" if self.v1 else "memory.peak"
        return int(self.read(name)) if os.path.exists(os.path.join(self.path, name)) else 0

    def remove(self):
        for _ in range(50):
            try:
                return os.rmdir(self.path)
            except OSError:
                time.sleep(0.1)

def own_group():
    """The directory of our own group that limits memory, if there is one in which groups can be made."""
    for line in open("/proc/self/cgroup"):
        _, kinds, path = line.rstrip("\n").split(":", 2)
        if "memory" in kinds.split(","):
            return "/sys/fs/cgroup/memory" + path.rstrip("/")
    with open("/proc/self/cgroup") as f:
        unified = "/sys/fs/cgroup" + f.read().strip().split(":", 2)[2].rstrip("/")
    return unified if os.path.exists(unified + "/memory.max") else "/sys/fs/cgroup"

def groups():
    """The node's group and the small OSD's within, or None."""
    try:
        node = Group("%s/cuttlebone-memory-%d" % (own_group(), os.getpid()), NODE)
    except OSError:
        return None
    try:
        if not node.v1:
            node.write("cgroup.subtree_control", "+memory")
        return node, Group(node.path + "/osd", SMALL)
    except OSError:
        node.remove()
        return None

class Cluster:
    def __init__(self, args, node, small):
        self.args, self.node, self.small = args, node, small
        self.dir = tempfile.mkdtemp(prefix="cuttlebone-memory.")
        self.client = None

    def up(self, group):
        group.run(self.args.bin, "up", "--dir", self.dir, "--osds", 3, "--size", "4G", "--port", self.args.port)

    def pid(self, osd):
        with open("%s/run/osd.%d.pid" % (self.dir, osd)) as f:
            return int(f.read())

    def kill(self, osd):
        pid = self.pid(osd)
        os.kill(pid, signal.SIGKILL)
        until(lambda: not os.path.exists("/proc/%d" % pid), "osd.%d is gone" % osd, 10)

    def resident(self, osd):
        with open("/proc/%d/status" % self.pid(osd)) as f:
            return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))

    def bench(self, seconds, size, depth, objects):
        """At most so many objects, however quick the disk is: a pool that is full would have its client wait for good."""
        name = "b%d-%d" % (size, time.monotonic())
        self.client.rados("bench", "-p", POOL, seconds, "write", "-b", size, "-t", depth, "--max-objects", objects, "--no-cleanup", "--run-name", name, timeout=60)

    def clean(self):
        def is_clean():
            states = self.client.json("status")["pgmap"].get("pgs_by_state", [])
            return [s["state_name"] for s in states] == ["active+clean"]
        until(is_clean, "everything is active+clean", 60)

    def target(self, osd):
        return self.client.json("tell", "osd.%d" % osd, "perf", "dump", "bluestore-pricache")["bluestore-pricache"]["target_bytes"]

    def run(self):
        self.up(self.node)
        self.client = Client(self.dir + "/ceph.conf")
        # The small one moves into its own group.
        self.kill(SMALL_OSD)
        self.up(self.small)
        self.client.ceph("osd", "pool", "create", POOL, "32")
        self.clean()
        small = int(SMALL * 0.8)
        until(lambda: abs(self.target(SMALL_OSD) - small) < MIB, "the small one stays below its group's limit", 10)
        equal(self.target(0), 128 * MIB, "a large group changes nothing")
        started = {osd: self.pid(osd) for osd in range(3)}
        self.bench(5, 4 * MIB, 16, 150)
        self.bench(4, 4096, 64, 40000)
        for osd, group in ((OTHER_OSD, self.node), (SMALL_OSD, self.small)):
            equal(self.pid(osd), started[osd], "osd.%d runs as it was started" % osd)
            self.kill(osd)
            self.client.ceph("osd", "down", osd)
            self.bench(3, 16384, 32, 10000)
            self.bench(2, 4 * MIB, 16, 75)
            self.up(group)
            started[osd] = self.pid(osd)
            self.bench(2, 4 * MIB, 16, 75)
            self.clean()
        for group, what in ((self.node, "the node"), (self.small, "the small OSD")):
            equal(group.kills(), 0, "processes of %s killed for memory" % what)
        for osd in range(3):
            equal(self.pid(osd), started[osd], "osd.%d runs as it was started" % osd)
        self.told()

    def told(self):
        """A target that is too small is refused as far as it goes, and one that is larger is taken."""
        self.client.ceph("config", "set", "osd.0", "osd_memory_target", "64M")
        until(lambda: self.target(0) == 96 * MIB, "less than possible is not taken", 10)
        self.client.ceph("config", "set", "osd.0", "osd_memory_target", "1G")
        until(lambda: self.target(0) == 1024 * MIB, "a larger target is taken", 10)

    def figures(self):
        peaks = ", ".join("osd.%d %d" % (osd, self.resident(osd) // MIB) for osd in range(3))
        print("most that was resident, MiB: %s; the groups with pages of files: node %d of %d, small %d of %d" % (
            peaks, self.node.peak() // MIB, NODE // MIB, self.small.peak() // MIB, SMALL // MIB))

    def down(self):
        subprocess.run([self.args.bin, "down", "--dir", self.dir], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        shutil.rmtree(self.dir, ignore_errors=True)

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--port", type=int, default=int(os.environ.get("PORT", 16900)))
    args = ap.parse_args()
    args.bin = os.path.realpath(args.bin)
    made = groups() if os.geteuid() == 0 else None
    if made is None:
        return not_run(WHAT, "root, and control groups that limit memory")
    cluster, begin = Cluster(args, *made), time.monotonic()
    try:
        cluster.run()
        cluster.figures()
        print("ok   %s (%.0f s)" % (WHAT, time.monotonic() - begin))
    finally:
        if cluster.client:
            cluster.client.close()
        cluster.down()
        for group in reversed(made):
            group.remove()

if __name__ == "__main__":
    try:
        main()
    except Failed as e:
        print("FAIL %s: %s" % (WHAT, e))
        sys.exit(1)
