"""A cluster of which every daemon has a machine of its own: a network namespace on two bridges, the public network and the cluster's.
Machines can be hurt (`begin_*`) and mended again (`end_*`). Needs root.
"""
import json, os, random, shutil, signal, subprocess, sys, tempfile, time, uuid
from harness import Failed, check, not_run, until

MONS, OSDS = ("a", "b", "c"), 4
# Whose directories are on small file systems, and whose device is a loop device over a file on one.
ON_SMALL_FS, MON_ON_SMALL_FS, ON_LOOP = 2, "c", 3
# Of the loop device: ten minutes of writing do not reach all of it, so that there is always something it has no room for.
DEVICE = 4 << 30
CONF = """[global]
fsid = {fsid}
mon host = {hosts}
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {dir}/keyring
run dir = {dir}/run
pid file = {dir}/run/$name.pid
log file = {dir}/log/$name.log
public network = 10.99.0.0/24
cluster network = 10.98.0.0/24
osd heartbeat interval = 1
osd heartbeat grace = 6
osd max markdown count = 1000
[mon]
admin socket = {dir}/run/$cluster-$name.asok
mon data = {dir}/mon.$id
mon data avail warn = 2
mon data avail crit = 1
[client]
admin socket = {dir}/run/$cluster-$name.$pid.asok
[osd]
admin socket = {dir}/run/$cluster-$name.asok
osd data = {dir}/osd.$id
keyring = {dir}/osd.$id/keyring
bluestore block size = {size}
"""

def run(*argv, check_=True, **kw):
    p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=kw.pop("timeout", 120), **kw)
    if check_ and p.returncode:
        raise Failed("%s: exit %d: %s%s" % (" ".join(map(str, argv)), p.returncode, p.stdout[-1000:], p.stderr[-2000:]))
    return p.stdout

def ip(*words, **kw):
    return run("ip", *" ".join(words).split(), **kw)

class Machine:
    """One daemon on a machine of its own, and what is wrong with it."""

    def __init__(self, cluster, kind, id, host):
        self.cluster, self.kind, self.id = cluster, kind, id
        self.addrs = ["10.99.0.%d" % host, "10.98.0.%d" % host][:2 if kind == "osd" else 1]
        self.name = "%s.%s" % (kind, id)
        # Bridge, our port there, our end of it. OSDs have a network of their own.
        self.networks = [("br0", "v-%s%s" % (kind, id), "eth0"), ("br1", "w-%s%s" % (kind, id), "eth1")][:len(self.addrs)]
        self.ns = "%s-%s%s" % (cluster.ns, kind, id)
        self.process, self.parted = None, []
        # What is wrong, and when it ends.
        self.ends = {}
        # Until when it may end by itself, for its disk has failed a moment ago.
        self.may_end = 0
        ip("netns add", self.ns)
        ip("-n", self.ns, "link set lo up")
        for (bridge, port, eth), addr in zip(self.networks, self.addrs):
            ip("link add", port, "type veth peer name", eth, "netns", self.ns)
            ip("link set", port, "master", bridge, "up")
            ip("-n", self.ns, "link set", eth, "up")
            ip("-n", self.ns, "addr add", addr + "/24 dev", eth)

    def argv(self, *more):
        return ["ip", "netns", "exec", self.ns, self.cluster.bin, self.kind, "-i", str(self.id), "-c", self.cluster.conf, *more]

    def start(self):
        with open("%s/log/%s.out" % (self.cluster.dir, self.name), "ab") as out:
            self.process = subprocess.Popen(self.argv("-f"), stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def kill(self, how):
        self.process.send_signal(how)

    def log(self, lines=40):
        tails = []
        for ending in ("log", "out"):
            path = "%s/log/%s.%s" % (self.cluster.dir, self.name, ending)
            if os.path.exists(path):
                tails += ["--- the end of " + path] + open(path, errors="replace").read().splitlines()[-lines:]
        return "\n".join(tails)

    # Each way to hurt, and its end.

    def begin_kill(self):
        self.kill(signal.SIGKILL)
        self.process.wait(30)

    def end_kill(self):
        self.start()

    def begin_stop(self):
        self.kill(signal.SIGSTOP)

    def end_stop(self):
        self.kill(signal.SIGCONT)

    def leave(self, networks):
        for _, port, _ in networks:
            ip("link set", port, "nomaster")

    def join(self, networks):
        for bridge, port, _ in networks:
            ip("link set", port, "master", bridge)

    def begin_cut(self):
        self.leave(self.networks)

    def end_cut(self):
        self.join(self.networks)

    def begin_front(self):
        """Other OSDs hear it, monitors and clients do not."""
        self.leave(self.networks[:1])

    def end_front(self):
        self.join(self.networks[:1])

    def begin_back(self):
        """Monitors and clients hear it, other OSDs do not."""
        self.leave(self.networks[1:])

    def end_back(self):
        self.join(self.networks[1:])

    def begin_deaf(self):
        """What it says is heard, but no packet gets to it."""
        for _, port, _ in self.networks:
            run("tc", *("qdisc add dev %s root tbf rate 8bit burst 1 limit 1" % port).split())

    def end_deaf(self):
        for _, port, _ in self.networks:
            run("tc", *("qdisc del dev %s root" % port).split())

    def begin_part(self):
        """It and another one do not find each other any more; everybody else does."""
        other = self.cluster.rng.choice([m for m in self.cluster.machines if m is not self])
        for one, two in ((self, other), (other, self)):
            for (_, _, eth), addr in zip(one.networks, two.addrs):
                ip("-n", one.ns, "neigh replace", addr, "lladdr 02:00:00:00:00:99 dev", eth, "nud permanent")
                self.parted.append((one, addr, eth))

    def end_part(self):
        for one, addr, eth in self.parted:
            ip("-n", one.ns, "neigh del", addr, "dev", eth, check_=False)
        self.parted.clear()

    def begin_disk(self):
        """Somebody else takes the rest of the file system: writes fail, of the device or of everything."""
        mount = self.cluster.mounts[self.id]
        with open(mount + "/hog", "wb") as f:
            s = os.statvfs(mount)
            size = s.f_bavail * s.f_frsize
            while size >= 4096:
                try:
                    os.posix_fallocate(f.fileno(), f.seek(0, os.SEEK_END), size)
                except OSError:
                    size //= 2

    def end_disk(self):
        os.unlink(self.cluster.mounts[self.id] + "/hog")
        # One that has met the failure takes a moment to end.
        self.may_end = time.monotonic() + 10

class Cluster:
    """Four OSDs and three monitors with a manager each."""

    def __init__(self, bin, ns, seed=None):
        self.bin, self.ns = bin, ns
        self.rng = random.Random(seed)
        self.dir = tempfile.mkdtemp(prefix="cuttlebone-%s." % ns)
        self.conf = self.dir + "/ceph.conf"
        self.machines, self.mounts, self.loop = [], {}, None

    def make(self):
        """As one would by hand: maps, keys, --mkfs, start."""
        for sub in ("run", "log"):
            os.mkdir("%s/%s" % (self.dir, sub))
        ip("link set lo up")
        for bridge in ("br0", "br1"):
            ip("link add", bridge, "type bridge")
            ip("link set", bridge, "up")
        ip("addr add 10.99.0.1/24 dev br0")
        fsid, d = str(uuid.uuid4()), self.dir
        self.machines = [Machine(self, "mon", id, 11 + n) for n, id in enumerate(MONS)]
        addrs = ["[v2:%s:3300]" % m.addrs[0] for m in self.machines]
        self.machines += [Machine(self, "osd", id, 21 + id) for id in range(OSDS)]
        with open(self.conf, "w") as f:
            f.write(CONF.format(fsid=fsid, hosts=",".join(addrs), dir=d, size=2 << 30))
            # Each on a host of its own: two of them have to miss a third for the monitors to believe it.
            f.writelines("[osd.%d]\ncrush location = root=default host=host-%d\n" % (m.id, m.id) for m in self.machines[len(MONS):])
        caps = [x for who in ("mon", "osd", "mgr") for x in ("--cap", who, "allow *")]
        run("ceph-authtool", "-C", d + "/keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        run("ceph-authtool", d + "/keyring", "--gen-key", "-n", "client.admin", *caps)
        run("monmaptool", "--create", "--fsid", fsid, *[w for id, a in zip(MONS, addrs) for w in ("--addv", id, a)], d + "/monmap")
        for m in self.machines[:len(MONS)]:
            if m.id == MON_ON_SMALL_FS:
                self.make_disk(m, "%s/mon.%s" % (d, m.id))
            run(*m.argv("--mkfs", "--monmap", d + "/monmap", "--keyring", d + "/keyring"))
            m.start()
        for m in self.machines[len(MONS):]:
            self.make_osd(m)
        until(lambda: json.loads(self.ceph("osd", "stat", "-f", "json"))["num_up_osds"] == OSDS, "all OSDs up", 60)

    def make_osd(self, m):
        home, ident = "%s/osd.%d" % (self.dir, m.id), str(uuid.uuid4())
        os.mkdir(home)
        if m.id in (ON_SMALL_FS, ON_LOOP):
            self.make_disk(m, home)
        key = run("ceph-authtool", "--gen-print-key").strip()
        self.ceph("osd", "new", ident, m.id, "-i", "-", input=json.dumps({"cephx_secret": key}))
        run("ceph-authtool", home + "/keyring", "-C", "-n", m.name, "--add-key", key)
        run(*m.argv("--mkfs", "--osd-uuid", ident))
        m.start()

    def make_disk(self, m, home):
        """A small file system: for an OSD's files less than they may become, for a device or a monitor enough, unless somebody else takes it."""
        image, mount = "%s/small.%s" % (self.dir, m.id), home + ".device" if m.id == ON_LOOP else home
        os.makedirs(mount, exist_ok=True)
        with open(image, "wb") as f:
            f.truncate({ON_SMALL_FS: 1 << 30, MON_ON_SMALL_FS: 1 << 29, ON_LOOP: DEVICE + (1 << 29)}[m.id])
        run("mkfs.ext4", "-q", "-m", "0", image)
        run("mount", "-o", "loop", image, mount)
        self.mounts[m.id] = mount
        if m.id == ON_LOOP:
            with open(mount + "/device", "wb") as f:
                f.truncate(DEVICE)
            # Through the page cache, the loop driver of Linux 6.18 says a write is done of which only the beginning had room.
            self.loop = run("losetup", "--find", "--show", "--direct-io=on", mount + "/device").strip()
            os.symlink(self.loop, home + "/block")

    def remove(self, keep):
        for m in self.machines:
            if m.process and m.process.poll() is None:
                m.process.kill()
                m.process.wait(30)
            ip("netns del", m.ns, check_=False)
        if self.loop:
            run("losetup", "-d", self.loop, check_=False)
        for mount in self.mounts.values():
            run("umount", mount, check_=False)
        if keep:
            print("kept: " + self.dir)
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def ceph(self, *words, **kw):
        return run("ceph", "-c", self.conf, *words, **kw)

    def rados(self, pool, *words, **kw):
        return run("rados", "-c", self.conf, "-p", pool, *words, **kw)

    def clean(self):
        pgs = json.loads(self.ceph("-s", "-f", "json", timeout=30))["pgmap"]
        states = {s["state_name"]: s["count"] for s in pgs["pgs_by_state"]}
        check(states == {"active+clean": pgs["num_pgs"]}, states)
        return True

def within_namespace(name):
    """Runs this program again in a network namespace of its own, as `--within NAMESPACE`, and exits as that did; where there
    are none it says so and returns, unless in CI."""
    ns = name + str(os.getpid())
    if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", ns], capture_output=True).returncode:
        return not_run(name, "root and network namespaces")
    try:
        # A session of its own: mounts are seen by nobody else, and are gone with it.
        sys.exit(subprocess.run(["ip", "netns", "exec", ns, sys.executable, *sys.argv, "--within", ns]).returncode)
    finally:
        subprocess.run(["ip", "netns", "del", ns])
