#!/usr/bin/python3
"""Placement groups that wait for recovery or backfill say so, an operator takes some of them before others, and all of them
get their turn: by stock `ceph`.

    force.py -c DIR/ceph.conf --bin BINARY
"""
import os, signal, subprocess
import rados
from harness import Client, arguments, check, equal, match, until

POOL, MOVED = "forced", "forced-backfill"

class Force:
    def __init__(self, client, directory, binary):
        self.client, self.dir, self.bin = client, directory, binary

    def states(self, pool):
        return {s["pgid"]: s["state"] for s in self.client.json("pg", "ls-by-pool", pool)["pg_stats"]}

    def wait_clean(self, *pools):
        clean = lambda: all(set(self.states(p).values()) == {"active+clean"} for p in pools)
        until(clean, "active+clean", 90)

    def wait_state(self, pool, pg, *words):
        until(lambda: set(words) <= set(self.states(pool)[pg].split("+")), "%s of %s" % ("+".join(words), pg), 30)

    def wait_without(self, pool, pg, word):
        until(lambda: word not in self.states(pool)[pg].split("+"), "no %s of %s" % (word, pg), 30)

    def write(self, pool, count, tag):
        with rados.Rados(conffile=self.client.conf) as cluster, cluster.open_ioctx(pool) as io:
            for n in range(0, count, 500):
                names = ["o%d" % m for m in range(n, min(n + 500, count))]
                for completion in [io.aio_write_full(name, b"%s %s" % (tag, name.encode())) for name in names]:
                    completion.wait_for_complete()

    def reads_back(self, pool, count, tag):
        with rados.Rados(conffile=self.client.conf) as cluster, cluster.open_ioctx(pool) as io:
            for n in range(0, count, 7):
                equal(io.read("o%d" % n), b"%s o%d" % (tag, n), "o%d reads back" % n)

def recovery_out_of_turn(f):
    ceph = f.client.ceph
    f.write(POOL, 800, b"one")
    ceph("osd", "set", "norecover")
    with open(f.dir + "/run/osd.2.pid") as pid:
        os.kill(int(pid.read()), signal.SIGKILL)
    ceph("osd", "down", "2")
    f.write(POOL, 800, b"two")
    subprocess.run([f.bin, "up", "--dir", f.dir], check=True, stdout=subprocess.DEVNULL)
    pg = sorted(f.states(POOL))[3]
    f.wait_state(POOL, pg, "active", "recovery_wait", "degraded")
    match(r"instructing pg\(s\) \[%s\] on osd\.\d to force-recovery" % pg, ceph("pg", "force-recovery", pg)[1])
    f.wait_state(POOL, pg, "forced_recovery", "recovery_wait")
    equal([p for p, s in f.states(POOL).items() if "forced" in s], [pg], "only this one is forced")
    match("pg %s recovery already forced" % pg, ceph("pg", "force-recovery", pg, rc=22)[1])
    match(r"to cancel-force-recovery", ceph("pg", "cancel-force-recovery", pg)[1])
    f.wait_without(POOL, pg, "forced_recovery")
    match("recovery not forced", ceph("pg", "cancel-force-recovery", pg)[1])
    ceph("osd", "pool", "force-recovery", POOL)
    f.wait_state(POOL, pg, "forced_recovery")
    ceph("osd", "unset", "norecover")
    f.wait_clean(POOL)
    match("doesn't require recovery", ceph("pg", "force-recovery", pg)[1])
    f.reads_back(POOL, 800, b"two")

def backfill_out_of_turn(f):
    ceph = f.client.ceph
    f.write(MOVED, 3000, b"moved")
    ceph("osd", "set", "nobackfill")
    acting = f.client.json("osd", "map", MOVED, "o1")["acting"]
    ceph("osd", "out", acting[1])
    pg = next(iter(f.states(MOVED)))
    f.wait_state(MOVED, pg, "active", "backfill_wait", "remapped")
    ceph("pg", "force-backfill", pg)
    f.wait_state(MOVED, pg, "forced_backfill", "backfill_wait")
    ceph("osd", "unset", "nobackfill")
    until(lambda: f.states(MOVED)[pg] == "active+clean", "active+clean", 90)
    ceph("osd", "in", acting[1])
    f.wait_clean(POOL, MOVED)
    f.reads_back(MOVED, 3000, b"moved")

def main():
    a = arguments(__doc__).parse_args()
    client = Client(a.conf)
    f = Force(client, os.path.dirname(os.path.realpath(a.conf)), a.bin)
    client.ceph("osd", "pool", "create", POOL, "8", "8")
    client.ceph("osd", "pool", "create", MOVED, "1", "1", "replicated", "--size", "2", "--autoscale-mode", "off")
    for pool in (POOL, MOVED):
        client.ceph("osd", "pool", "application", "enable", pool, "test")
    f.wait_clean(POOL, MOVED)
    recovery_out_of_turn(f)
    backfill_out_of_turn(f)
    print("8 PGs recovered and one moved out of turn")
    client.close()

if __name__ == "__main__":
    main()
