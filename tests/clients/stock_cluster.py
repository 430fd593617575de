"""A stock Ceph cluster on loopback beside ours: monitors, one mgr, three BlueStore OSDs on sparse files.

Daemons come from this machine's packages, or from a root directory with another generation's (see client-root).
"""
import json, os, shutil, signal, subprocess, time, uuid

CONF = """[global]
fsid = {fsid}
mon host = {mons}
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
run dir = {dir}/run
admin socket = {dir}/run/$cluster-$name.asok
pid file = {dir}/run/$name.pid
log file = {dir}/log/$name.log
crash dir = {dir}/log
keyring = {dir}/keyring
public addr = 127.0.0.1
osd pool default size = 3
osd pool default min size = 2
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
mon allow pool delete = true
[mon]
mon data = {dir}/mon.$id
mon data avail warn = 2
mon data avail crit = 1
host = localhost
[mgr.x]
mgr data = {dir}/mgr.x
[osd]
osd data = {dir}/osd.$id
bluestore block size = {size}
"""

class StockCluster:
    """`root` is None or a root directory; `dir` is the cluster's directory as the daemons see it."""

    def __init__(self, dir, root=None, port=13300, osds=3, size=10 << 30, mons=1):
        self.root, self.dir, self.osds, self.size, self.mons = root, dir, osds, size, mons
        at = lambda port: "[v2:127.0.0.1:%d,v1:127.0.0.1:%d]" % (port, port + 1)
        self.addrs = {name: at(port + 2 * n) for n, name in enumerate("abcde"[:mons])}
        self.outside = (root or "") + dir
        os.makedirs(self.outside)
        for sub in ["mon." + name for name in self.addrs] + ["mgr.x", "run", "log"]:
            os.makedirs(self.outside + "/" + sub)
        self.fsid = str(uuid.uuid4())
        self.conf, self.settings = dir + "/ceph.conf", ""

    def run(self, *argv, input=None, check=True):
        argv = (["chroot", self.root] if self.root else []) + [str(a) for a in argv]
        p = subprocess.run(argv, input=input, capture_output=True, text=True)
        if check and p.returncode:
            raise RuntimeError("%s: %s" % (" ".join(argv), p.stderr[-2000:]))
        return p.stdout

    def start(self):
        """From nothing to all OSDs up; returns the seconds it took."""
        with open(self.outside + "/ceph.conf", "w") as f:
            f.write(CONF.format(fsid=self.fsid, mons=",".join(self.addrs.values()), dir=self.dir, size=self.size) + self.settings)
        begin = time.monotonic()
        d, conf = self.dir, ["-c", self.conf]
        caps = ["--cap", "mon", "allow *", "--cap", "osd", "allow *", "--cap", "mds", "allow *", "--cap", "mgr", "allow *"]
        self.run("ceph-authtool", "-C", d + "/keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        self.run("ceph-authtool", d + "/keyring", "--gen-key", "-n", "client.admin", *caps)
        self.run("ceph-authtool", d + "/keyring", "--gen-key", "-n", "mgr.x", "--cap", "mon", "allow profile mgr", "--cap", "osd", "allow *", "--cap", "mds", "allow *")
        self.run("monmaptool", "--create", "--clobber", "--fsid", self.fsid, *(w for a in self.addrs.items() for w in ("--addv", *a)), d + "/monmap")
        for name in self.addrs:
            self.run("ceph-mon", *conf, "--mkfs", "-i", name, "--monmap", d + "/monmap", "--keyring", d + "/keyring")
            self.start_mon(name)
        self.run("ceph", *conf, "auth", "add", "mgr.x", "-i", d + "/keyring")
        self.run("ceph-mgr", *conf, "-i", "x")
        for i in range(self.osds):
            self.make_osd(i)
        while json.loads(self.run("ceph", *conf, "osd", "stat", "-f", "json"))["num_up_osds"] < self.osds:
            time.sleep(0.2)
        return time.monotonic() - begin

    def start_mon(self, name):
        self.run("ceph-mon", "-c", self.conf, "-i", name)

    def make_osd(self, i):
        """Makes an OSD of that number on a new file, and starts it."""
        osd, conf = "%s/osd.%d" % (self.dir, i), ["-c", self.conf]
        os.makedirs(self.outside + "/osd.%d" % i, exist_ok=True)
        key, ident = self.run("ceph-authtool", "--gen-print-key").strip(), str(uuid.uuid4())
        self.run("ceph", *conf, "osd", "new", ident, i, "-i", "-", input=json.dumps({"cephx_secret": key}))
        self.run("ceph-authtool", osd + "/keyring", "-C", "-n", "osd.%d" % i, "--add-key", key)
        self.run("ceph-osd", *conf, "-i", i, "--mkfs", "--osd-uuid", ident, "--keyring", osd + "/keyring")
        self.run("ceph-osd", *conf, "-i", i, "--keyring", osd + "/keyring")

    def pids(self):
        """{daemon name: pid} of what runs."""
        return read_pids(self.outside)

    def stop(self):
        stop_all(self.pids())
        shutil.rmtree(self.outside, ignore_errors=True)

def read_pids(directory):
    out = {}
    for name in os.listdir(directory + "/run"):
        if name.endswith(".pid"):
            text = open("%s/run/%s" % (directory, name)).read().strip()
            if text and os.path.exists("/proc/" + text):
                out[name[:-4]] = int(text)
    return out

def stop_all(pids):
    """Ends daemons in order, and by force after twenty seconds."""
    for sig, seconds in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        for pid in pids.values():
            if os.path.exists("/proc/%d" % pid):
                os.kill(pid, sig)
        end = time.monotonic() + seconds
        while time.monotonic() < end and any(os.path.exists("/proc/%d" % p) for p in pids.values()):
            time.sleep(0.1)
