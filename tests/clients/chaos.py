#!/usr/bin/python3
"""Four OSDs and three monitors, each on a machine of its own (a network namespace on a bridge), under everything at once: daemons get
SIGKILL and SIGSTOP, machines are cut off all networks or, if they are OSDs, off one of their two, hear nothing though they are heard,
or miss one other machine; one OSD's file system fills up, and one monitor's, another OSD's device (a loop device) returns errors; OSDs are
marked out and in.
Meanwhile stock librados clients write, read and compare, in a pool with copies and in one that is erasure-coded, with snapshots in both (chaos_clients.py), and the stock `rados bench` writes and verifies, round
after round.

At the end no acknowledged write is lost, no read was of wrong data, histories of shared objects are linearizable, no client saw an
error or was started again, every placement group is active+clean, and a deep scrub of all of them finds nothing.

    chaos.py --bin BINARY [--seconds 600] [--seed N] [--keep]

Needs root, for network namespaces and loop devices; says so and does nothing where it cannot have them, and fails if CI is set.
"""
import argparse, collections, json, os, random, re, shutil, subprocess, sys, time
from harness import Failed, check, until
from chaos_clients import EC_POOL, POOL, SNAPPERS, WRITERS, Board
from machines import OSDS, Cluster, within_namespace

HERE = os.path.dirname(os.path.realpath(__file__))

class Chaos(Cluster):
    def __init__(self, args, ns):
        super().__init__(args.bin, ns, args.seed)
        self.count = collections.Counter()

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
        if m.kind == "osd":
            kinds += ["front", "back"]
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
        who = [("writer", n) for n in range(len(WRITERS))] + [("snapper", n) for n in range(len(SNAPPERS))]
        who += [("reader", 0), ("shared", 0), ("shared", 1)]
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
        stats = lambda: {s["pgid"]: s for p in (POOL, EC_POOL, "bench") for s in json.loads(self.ceph("pg", "ls-by-pool", p, "-f", "json"))["pg_stats"]}
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
        # Any one OSD may be away for writes, any two for what is there.
        self.ceph("osd", "erasure-code-profile", "set", "chaos", "k=2", "m=2", "crush-failure-domain=host")
        for pool, pgs, *kind in ((POOL, 16), ("bench", 8), (EC_POOL, 8, 8, "erasure", "chaos")):
            # A placement group that moves, as the autoscaler would have it, begins its scrub again.
            self.ceph("osd", "pool", "create", pool, pgs, *kind, "--autoscale-mode", "off")
            self.ceph("osd", "pool", "application", "enable", pool, "rados")
        self.ceph("osd", "pool", "set", EC_POOL, "allow_ec_overwrites", "true")
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
        sys.argv += ["--seed", str(a.seed)]
        return within_namespace("chaos")
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
