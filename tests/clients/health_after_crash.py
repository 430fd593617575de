#!/usr/bin/python3
"""HEALTH_OK is true: all daemons are killed with -9 and started again, again and again, while `ceph -s` is asked every
tenth of a second. No HEALTH_OK comes before every placement group is active and clean and an object of each is served.

    health_after_crash.py -c DIR/ceph.conf --bin BINARY
"""
import json, os, signal, subprocess, sys, threading, time
import rados
from harness import arguments
from stock_cluster import read_pids

PGS = 32

class Watcher(threading.Thread):
    """Asks for the status all the time; `said` holds (when it was asked, health, states of PGs)."""

    def __init__(self, conf):
        super().__init__(daemon=True)
        self.conf, self.said, self.stop = conf, [], False

    def run(self):
        while not self.stop:
            asked = time.monotonic()
            p = subprocess.run(["ceph", "-c", self.conf, "--connect-timeout", "2", "-s", "-f", "json"], capture_output=True, text=True)
            if p.returncode == 0:
                status = json.loads(p.stdout)
                states = {s["state_name"]: s["count"] for s in status["pgmap"]["pgs_by_state"]}
                self.said.append((asked, status["health"]["status"], states, status["pgmap"]["num_pgs"]))
            time.sleep(max(0, asked + 0.1 - time.monotonic()))

def objects(conf):
    """One object in every PG."""
    found, n = {}, 0
    while len(found) < PGS:
        name, n = "h%d" % n, n + 1
        out = subprocess.run(["ceph", "-c", conf, "osd", "map", "health", name, "-f", "json"], check=True, capture_output=True, text=True)
        found.setdefault(json.loads(out.stdout)["pgid"], name)
    return list(found.values())

def served(conf, names):
    """Writes and reads an object of every PG; when all had answered."""
    cluster = rados.Rados(conffile=conf)
    cluster.connect(timeout=30)
    io = cluster.open_ioctx("health")
    stamp = str(time.monotonic()).encode()
    writes = [io.aio_write_full(name, stamp) for name in names]
    for w in writes:
        w.wait_for_complete()
        assert w.get_return_value() == 0, w.get_return_value()
    assert all(io.read(name) == stamp for name in names)
    done = time.monotonic()
    cluster.shutdown()
    return done

def main():
    ap = arguments(__doc__)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    ceph = lambda *words: subprocess.run(["ceph", "-c", a.conf] + list(words), check=True, capture_output=True, text=True).stdout
    ceph("osd", "pool", "create", "health", str(PGS))
    ceph("osd", "pool", "application", "enable", "health", "rados")
    names = objects(a.conf)
    failures = 0
    for number in range(a.rounds):
        while ceph("health").split()[0] != "HEALTH_OK":
            time.sleep(0.2)
        for pid in read_pids(directory).values():
            os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        watcher = Watcher(a.conf)
        watcher.start()
        up = subprocess.run([a.bin, "up", "--dir", directory], stdout=subprocess.PIPE, text=True, timeout=90)
        back = time.monotonic()
        # Not earlier: a librados that found no monitor tries again after ten seconds.
        all_served = served(a.conf, names)
        while ceph("health").split()[0] != "HEALTH_OK" and time.monotonic() < back + 60:
            time.sleep(0.2)
        ok = time.monotonic()
        watcher.stop = True
        watcher.join()
        early = [s for s in watcher.said if s[1] == "HEALTH_OK" and (s[2] != {"active+clean": s[3]})]
        print("round %d: up returned after %.1f s, all was served after %.1f s, HEALTH_OK after %.1f s; asked %d times, %d lies" % (
            number + 1, back - killed, all_served - killed, ok - killed, len(watcher.said), len(early)), flush=True)
        for s in early:
            print("  HEALTH_OK with", s[2], "of", s[3])
        if up.returncode or ok - back > 59 or all_served - back > 5:
            print("up: exit %s; health: %s" % (up.returncode, ceph("health", "detail")))
            failures += 1
        failures += len(early)
    print("%d failed" % failures)
    return 1 if failures else 0

sys.exit(main())
