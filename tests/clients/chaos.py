#!/usr/bin/python3
"""Four OSDs and three monitors, each on a machine of its own (a network namespace on a bridge), under everything at once: daemons get
SIGKILL and SIGSTOP, machines are cut off the network, hear nothing though they are heard, or miss one other machine; one OSD's file
system fills up, another's device (a loop device) returns errors; OSDs are marked out and in. Meanwhile stock librados
clients write, read and compare (chaos_clients.py), and the stock `rados bench` writes and verifies, round after round.

At the end no acknowledged write is lost, no read was of wrong data, histories of shared objects are linearizable, no client saw an
error or was started again, every placement group is active+clean, and a deep scrub of all of them finds nothing.

    chaos.py --bin BINARY [--seconds 600] [--seed N] [--keep]

Needs root, for network namespaces and loop devices; says so and does nothing where it cannot have them.
"""
import argparse, collections, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time, uuid
import rados
from harness import Failed, check, match, until
from chaos_clients import POOL, WRITERS, Board

HERE = os.path.dirname(os.path.realpath(__file__))
MONS, OSDS = ("a", "b", "c"), 4
# Whose directory is on a small file system, and whose device is a loop device over a file on one.
ON_SMALL_FS, ON_LOOP = 2, 3
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
osd heartbeat interval = 1
osd heartbeat grace = 6
osd max markdown count = 1000
[mon]
admin socket = {dir}/run/$cluster-$name.asok
mon data = {dir}/mon.$id
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
        self.cluster, self.kind, self.id, self.addr = cluster, kind, id, "10.99.0.%d" % host
        self.name, self.port = "%s.%s" % (kind, id), "v-%s%s" % (kind, id)
        self.ns = "%s-%s%s" % (cluster.ns, kind, id)
        self.process, self.parted = None, []
        # What is wrong, and when it ends.
        self.ends = {}
        # Until when it may end by itself, for its disk has failed a moment ago.
        self.may_end = 0
        ip("netns add", self.ns)
        ip("link add", self.port, "type veth peer name eth0 netns", self.ns)
        ip("link set", self.port, "master br0 up")
        ip("-n", self.ns, "link set lo up")
        ip("-n", self.ns, "link set eth0 up")
        ip("-n", self.ns, "addr add", self.addr + "/24 dev eth0")

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

    def begin_cut(self):
        ip("link set", self.port, "nomaster")

    def end_cut(self):
        ip("link set", self.port, "master br0")

    def begin_deaf(self):
        """What it says is heard, but no packet gets to it."""
        run("tc", *("qdisc add dev %s root tbf rate 8bit burst 1 limit 1" % self.port).split())

    def end_deaf(self):
        run("tc", *("qdisc del dev %s root" % self.port).split())

    def begin_part(self):
        """It and another one do not find each other any more; everybody else does."""
        other = self.cluster.rng.choice([m for m in self.cluster.machines if m is not self])
        for one, two in ((self, other), (other, self)):
            ip("-n", one.ns, "neigh replace", two.addr, "lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
            self.parted.append((one, two))

    def end_part(self):
        for one, two in self.parted:
            ip("-n", one.ns, "neigh del", two.addr, "dev eth0", check_=False)
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

class Chaos:
    def __init__(self, args, ns):
        self.bin, self.ns = args.bin, ns
        self.rng = random.Random(args.seed)
        self.dir = tempfile.mkdtemp(prefix="cuttlebone-chaos.")
        self.conf = self.dir + "/ceph.conf"
        self.machines, self.mounts, self.loop = [], {}, None
        self.count = collections.Counter()

    def make(self):
        """As one would by hand: maps, keys, --mkfs, start."""
        for sub in ("run", "log"):
            os.mkdir("%s/%s" % (self.dir, sub))
        ip("link set lo up")
        ip("link add br0 type bridge")
        ip("addr add 10.99.0.1/24 dev br0")
        ip("link set br0 up")
        fsid, d = str(uuid.uuid4()), self.dir
        self.machines = [Machine(self, "mon", id, 11 + n) for n, id in enumerate(MONS)]
        addrs = ["[v2:%s:3300]" % m.addr for m in self.machines]
        self.machines += [Machine(self, "osd", id, 21 + id) for id in range(OSDS)]
        with open(self.conf, "w") as f:
            f.write(CONF.format(fsid=fsid, hosts=",".join(addrs), dir=d, size=2 << 30))
            # Each on a host of its own: two of them have to miss a third for the monitors to believe it.
            f.writelines("[osd.%d]\ncrush location = root=default host=host-%d\npublic addr = %s\n" % (m.id, m.id, m.addr) for m in self.machines[len(MONS):])
        caps = [x for who in ("mon", "osd", "mgr") for x in ("--cap", who, "allow *")]
        run("ceph-authtool", "-C", d + "/keyring", "--gen-key", "-n", "mon.", "--cap", "mon", "allow *")
        run("ceph-authtool", d + "/keyring", "--gen-key", "-n", "client.admin", *caps)
        run("monmaptool", "--create", "--fsid", fsid, *[w for id, a in zip(MONS, addrs) for w in ("--addv", id, a)], d + "/monmap")
        for m in self.machines[:len(MONS)]:
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
        """A small file system: for an OSD's files less than they may become, for a device enough, unless somebody else takes it."""
        image, mount = "%s/small.%d" % (self.dir, m.id), home if m.id == ON_SMALL_FS else home + ".device"
        os.makedirs(mount, exist_ok=True)
        with open(image, "wb") as f:
            f.truncate(1 << 30 if m.id == ON_SMALL_FS else DEVICE + (1 << 29))
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

    def clean(self):
        pgs = json.loads(self.ceph("-s", "-f", "json", timeout=30))["pgmap"]
        states = {s["state_name"]: s["count"] for s in pgs["pgs_by_state"]}
        check(states == {"active+clean": pgs["num_pgs"]}, states)
        return True

    # --- faults

    def watch(self):
        """Nobody ends by himself, except of a disk that fails; and nobody panics, ever."""
        for m in self.machines:
            if "kill" in m.ends or "disk" in m.ends or m.process.poll() is None:
                continue
            if time.monotonic() > m.may_end:
                raise Failed("%s has ended by itself, exit code %d\n%s" % (m.name, m.process.returncode, m.log()))
            # As whoever looks after it would.
            self.count["ended of its disk"] += 1
            m.start()

    def hurt(self):
        """Begins something, unless too much is wrong already for anything to go on: then nothing would be tried."""
        kinds = ["kill"] * 4 + ["stop"] * 3 + ["cut"] * 2 + ["deaf", "part", "part"]
        m = self.rng.choice(self.machines)
        kind = self.rng.choice(kinds + ["disk"] * 3 if m.id in self.mounts else kinds)
        badly = [x for x in self.machines if set(x.ends) - {"part"} and x.kind == m.kind]
        if m.ends or len(badly) >= (2 if self.rng.random() < 0.2 else 1):
            return
        self.begin(m, kind, self.rng.choice((0.3, 1, 3, 8, 20 if m.kind == "osd" else 8)) * (0.5 + self.rng.random()))

    def begin(self, m, kind, seconds):
        getattr(m, "begin_" + kind)()
        m.ends[kind] = time.monotonic() + seconds
        self.count[kind] += 1
        print("%7.1f  %s: %s for %.1f s" % (time.monotonic() - self.started, m.name, kind, seconds), flush=True)

    def end(self, before):
        for m in self.machines:
            for kind in [k for k, at in m.ends.items() if at <= before]:
                getattr(m, "end_" + kind)()
                del m.ends[kind]

    def everybody(self):
        """The power of the whole room, though not of its disks."""
        self.end(float("inf"))
        for m in self.machines:
            self.begin(m, "kill", 0.5 + 2 * self.rng.random())

    def meddle(self):
        """An operator's command, whoever is there to hear it; it is not waited for."""
        osd, what = self.rng.randrange(OSDS), self.rng.choice(("out", "in", "in"))
        p = subprocess.Popen(["timeout", "60", "ceph", "-c", self.conf, "osd", what, str(osd)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.operators.append(p)
        self.count["osd " + what] += 1

    def rampage(self, seconds):
        self.started, self.operators = time.monotonic(), []
        until_, calm_at, room_at = self.started + seconds, self.started + 40, self.started + seconds * self.rng.uniform(0.3, 0.7)
        while (now := time.monotonic()) < until_:
            self.end(now)
            self.watch()
            if now > room_at:
                self.everybody()
                room_at = now + self.rng.uniform(60, 180)
            elif now < calm_at:
                self.hurt()
                if self.rng.random() < 0.05:
                    self.meddle()
            elif now > calm_at + 8:
                # Copies come back, clients go on.
                calm_at = now + 40
            self.step()
            time.sleep(self.rng.uniform(0.1, 1.2))
        self.end(float("inf"))
        while any(m.may_end > time.monotonic() for m in self.machines):
            self.watch()
            time.sleep(0.2)
        for p in self.operators:
            p.wait(70)
        for osd in range(OSDS):
            self.ceph("osd", "in", osd)

    # --- clients

    def begin_clients(self):
        Board.make(self.dir)
        who = [("writer", n) for n in range(WRITERS)] + [("reader", 0), ("shared", 0), ("shared", 1)]
        self.clients = {}
        for kind, n in who:
            argv = [sys.executable, HERE + "/chaos_clients.py", kind, self.conf, self.dir, str(n)]
            self.clients["%s %d" % (kind, n)] = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.bench, self.benches, self.bench_ends = None, 0, 0

    def step(self):
        """A client that has ended has failed; `rados bench` writes, then verifies, then removes."""
        for name, p in self.clients.items():
            if p.poll() is not None:
                raise Failed("%s has ended: %s" % (name, p.stdout.read()))
        if self.bench is None or self.bench.poll() is not None:
            if self.bench is not None:
                self.judge_bench()
            # Its reader asks for as many objects at once as -t says, whether there are so many or not: no more than were written at once.
            words = (["bench", "8", "write", "-b", "16384", "-t", "2", "--no-cleanup"], ["bench", "600", "seq", "-t", "2"], ["cleanup"])[self.benches % 3]
            self.benches += 1
            self.bench = subprocess.Popen(["rados", "-c", self.conf, "-p", "bench", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def judge_bench(self):
        out = self.bench.communicate(timeout=150)[0]
        bad = [line for line in out.splitlines() if re.search("error|corrupt|differ|fail|not correct", line, re.I)]
        if self.bench.returncode or bad:
            named = re.search(r"(benchmark_data\S+) is not correct", out)
            raise Failed("rados bench: exit code %d: %s\n%s%s" % (self.bench.returncode, bad, out[-1500:], self.look_at(named[1]) if named else ""))
        if m := re.search(r"Total (writes|reads) made: +(\d+)", out):
            self.count["rados bench: " + m.group(1)] += int(m.group(2))

    def look_at(self, name):
        """What there is to know of an object that a client missed."""
        try:
            where = json.loads(self.ceph("osd", "map", "bench", name, "-f", "json", timeout=60))
            said = [str(where), self.ceph("health", "detail", timeout=60), self.ceph("pg", where["pgid"], "query", timeout=60)]
            for _ in range(3):
                p = subprocess.run(["timeout", "20", "rados", "-c", self.conf, "-p", "bench", "stat", name], capture_output=True, text=True)
                said.append(p.stdout + p.stderr)
                time.sleep(3)
            return "\n".join(said)
        except (Failed, subprocess.TimeoutExpired) as e:
            return str(e)

    def end_clients(self):
        for p in self.clients.values():
            p.stdin.close()
        done, longest = collections.Counter(), 0
        for name, p in self.clients.items():
            out = p.stdout.read()
            p.wait(200)
            report = json.loads(out or "{}")
            if p.returncode or not report:
                raise Failed("%s: exit code %d: %s" % (name, p.returncode, out))
            done.update({"%s: %s" % (name.split()[0], k): v for k, v in report["done"].items()})
            longest = max(longest, report["longest"])
        self.judge_bench()
        return done, longest

    # --- the end

    def deep_scrub(self):
        stats = lambda: {s["pgid"]: s for p in (POOL, "bench") for s in json.loads(self.ceph("pg", "ls-by-pool", p, "-f", "json"))["pg_stats"]}
        before = stats()
        for pg in before:
            self.ceph("pg", "deep-scrub", pg)
        over = lambda: all(s["last_deep_scrub_stamp"] != before[pg]["last_deep_scrub_stamp"] for pg, s in stats().items())
        until(over, "a deep scrub of every placement group", 120)
        for pg, s in stats().items():
            check(s["state"].startswith("active+clean") and "inconsistent" not in s["state"], "%s is %s" % (pg, s["state"]))
            check(s["stat_sum"]["num_scrub_errors"] == 0, "%s: the deep scrub has found something" % pg)
        return len(before)

    def panics(self):
        for m in self.machines:
            if "panicked" in m.log(100000):
                raise Failed("%s has panicked\n%s" % (m.name, m.log()))

    def linearizable(self):
        if shutil.which("go") is None:
            raise Failed("go is not installed; scripts/install-deps installs it")
        histories = [self.dir + "/" + f for f in os.listdir(self.dir) if f.startswith("history.")]
        # All clients' operations on an object are one history.
        with open(self.dir + "/histories", "w") as out:
            for path in histories:
                shutil.copyfileobj(open(path), out)
        p = subprocess.run(["go", "run", ".", self.dir + "/histories"], cwd=HERE + "/../linearizability", capture_output=True, text=True, timeout=600)
        check(p.returncode == 0, "the checker: %s%s" % (p.stdout[-6000:], p.stderr[-2000:]))
        return p.stdout.strip()

    def run(self, seconds):
        self.make()
        for pool, pgs in ((POOL, 16), ("bench", 8)):
            self.ceph("osd", "pool", "create", pool, pgs)
            self.ceph("osd", "pool", "application", "enable", pool, "rados")
        until(self.clean, "every placement group active and clean", 60)
        self.begin_clients()
        self.rampage(seconds)
        done, longest = self.end_clients()
        until(self.clean, "every placement group active and clean after the faults", 180)
        pgs = self.deep_scrub()
        self.watch()
        self.panics()
        print("faults: %s" % ", ".join("%s %d" % kv for kv in sorted(self.count.items())))
        print("clients: %s; longest wait %.1f s" % (", ".join("%s %d" % kv for kv in sorted(done.items())), longest))
        print("linearizability: " + self.linearizable())
        check(sum(v for k, v in done.items() if k.startswith("writer")) > 20 * seconds, "clients hardly got anything done")
        print("%d s: nothing acknowledged was lost, nothing wrong was read, no client saw an error; %d PGs clean and scrubbed" % (seconds, pgs))

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--seconds", type=int, default=600)
    ap.add_argument("--seed", type=int, default=random.randrange(1 << 32), help="of the faults; their effects are not repeatable")
    ap.add_argument("--keep", action="store_true", help="keep the cluster's directory")
    ap.add_argument("--within", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.within is None:
        ns = "chaos%d" % os.getpid()
        if os.geteuid() != 0 or subprocess.run(["ip", "netns", "add", ns], capture_output=True).returncode:
            print("chaos: NOT RUN: it needs root and network namespaces")
            return
        try:
            # A session of its own: mounts are seen by nobody else, and are gone with it.
            sys.exit(subprocess.run(["ip", "netns", "exec", ns, sys.executable, *sys.argv, "--seed", str(a.seed), "--within", ns]).returncode)
        finally:
            subprocess.run(["ip", "netns", "del", ns])
    print("chaos, seed %d, %d s" % (a.seed, a.seconds), flush=True)
    chaos, ok = Chaos(a, a.within), False
    try:
        chaos.run(a.seconds)
        ok = True
    except Failed as e:
        print("FAIL: %s" % e, flush=True)
        for m in chaos.machines:
            print("%s: wrong: %s, running: %s" % (m.name, sorted(m.ends), bool(m.process) and m.process.poll() is None))
            print(m.log(25))
    finally:
        for p in list(getattr(chaos, "clients", {}).values()) + [getattr(chaos, "bench", None)]:
            if p and p.poll() is None:
                p.kill()
        chaos.remove(a.keep)
    sys.exit(0 if ok else 1)

if __name__ == "__main__":
    main()
