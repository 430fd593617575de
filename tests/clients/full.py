#!/usr/bin/python3
"""A cluster of small OSDs is filled: health tells of it in good time, stock clients' writes wait or are refused, everything
is killed with -9 and comes back, copies are made whole meanwhile, and what was deleted makes room again. A pool reaches
its quota, and gets a larger one.

    full.py -c DIR/ceph.conf --bin BINARY       (OSDs of 512 MiB)
"""
import os, random, signal, subprocess, time
import rados
from harness import Client, Failed, arguments, check, equal, match, until

POOL, MOVED, QUOTA = "full", "moved", "quota"
FULL_TRY, FULL_FORCE = 64, 128  # LIBRADOS_OPERATION_...
MIB = 1 << 20

def pids(directory):
    names = [n for n in os.listdir(directory + "/run") if n.endswith(".pid")]
    return {n[:-4]: int(open("%s/run/%s" % (directory, n)).read()) for n in names}

def content(n, size=MIB):
    return random.Random(n).randbytes(size)

class Full:
    def __init__(self, client, directory, binary):
        self.client, self.dir, self.bin = client, directory, binary
        self.stored = {}

    def connect(self):
        return rados.Rados(conffile=self.client.conf)

    def up(self):
        subprocess.run([self.bin, "up", "--dir", self.dir], check=True, stdout=subprocess.DEVNULL)

    def write(self, io, name, data, flags):
        with rados.WriteOpCtx() as op:
            op.write_full(data)
            io.operate_write_op(op, name, flags=flags)

    def fill_to(self, count):
        with self.connect() as cluster, cluster.open_ioctx(POOL) as io:
            for n in range(len(self.stored), count):
                self.write(io, "o%d" % n, content(n), FULL_TRY)
                self.stored["o%d" % n] = n

    def refused(self, pool, errno, what):
        with self.connect() as cluster, cluster.open_ioctx(pool) as io:
            try:
                self.write(io, "refused", b"x" * 100000, FULL_TRY)
            except rados.Error as e:
                return equal(abs(e.errno), errno, what)
        raise Failed("%s: a write went through" % what)

    def put_that_waits(self, pool, name):
        p = subprocess.Popen(["rados", "-c", self.client.conf, "-p", pool, "put", name, "/bin/ls"], stderr=subprocess.DEVNULL)
        time.sleep(2)
        equal(p.poll(), None, "a stock put to a full pool waits")
        return p

    def remove(self, names):
        """With the flag: librados holds back every change of a full pool that does not insist."""
        with self.connect() as cluster, cluster.open_ioctx(POOL) as io:
            for name in names:
                with rados.WriteOpCtx() as op:
                    op.remove()
                    io.operate_write_op(op, name, flags=FULL_FORCE)
                del self.stored[name]

    def reads_back(self):
        with self.connect() as cluster, cluster.open_ioctx(POOL) as io:
            for name, n in self.stored.items():
                check(io.read(name, 5 * MIB) == content(n), "%s reads back" % name)

    def checks(self):
        return self.client.json("health", "detail")["checks"]

    def wait_for(self, *codes):
        until(lambda: all(c in self.checks() for c in codes), " and ".join(codes), 40)
        return self.checks()

    def wait_for_osds(self, code, message):
        """All OSDs have reported."""
        summary = lambda: self.checks().get(code, {"summary": {"message": ""}})["summary"]["message"]
        until(lambda: summary() == message, message, 40)
        return self.checks()

    def wait_without(self, *codes):
        until(lambda: not any(c in self.checks() for c in codes), "no " + ", no ".join(codes), 90)

    def states(self):
        return {s["state_name"] for s in self.client.json("status")["pgmap"]["pgs_by_state"]}

    def wait_clean(self):
        until(lambda: self.states() == {"active+clean"}, "active+clean", 120)

    def pool_flags(self, pool):
        return next(p for p in self.client.json("osd", "dump")["pools"] if p["pool_name"] == pool)["flags_names"]

def fills_up(f):
    for name, ratio in (("nearfull", "0.4"), ("backfillfull", "0.6"), ("full", "0.8")):
        f.client.ceph("osd", "set-%s-ratio" % name, ratio)
    f.fill_to(200)
    checks = f.wait_for_osds("OSD_NEARFULL", "3 nearfull osd(s)")
    equal(checks["POOL_NEARFULL"]["detail"][0]["message"], "pool '%s' is nearfull" % POOL)
    equal(checks["OSD_NEARFULL"]["detail"][0]["message"], "osd.0 is near full")
    equal((checks["OSD_NEARFULL"]["severity"], "OSD_FULL" in checks), ("HEALTH_WARN", False))
    f.fill_to(300)
    checks = f.wait_for_osds("OSD_BACKFILLFULL", "3 backfillfull osd(s)")
    check("POOL_BACKFILLFULL" in checks, "the pool's health")
    equal(checks["OSD_BACKFILLFULL"]["detail"][1]["message"], "osd.1 is backfill full")
    f.fill_to(400)
    checks = f.wait_for_osds("OSD_FULL", "3 full osd(s)")
    equal(checks["OSD_FULL"]["severity"], "HEALTH_ERR")
    equal(checks["POOL_FULL"]["detail"][0]["message"], "pool '%s' is full (no space)" % POOL)
    check("full" in f.pool_flags(POOL).split(","), "the pool's flags say so: " + f.pool_flags(POOL))
    f.refused(POOL, 28, "FULL_TRY on a full pool")

def dies_and_comes_back(f):
    for pid in pids(f.dir).values():
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)
    f.up()
    f.wait_for("OSD_FULL", "POOL_FULL")
    f.wait_clean()
    f.refused(POOL, 28, "FULL_TRY after the restart")
    f.reads_back()

def heals(f):
    """One that was away gets what was deleted and written meanwhile."""
    os.kill(pids(f.dir)["osd.0"], signal.SIGKILL)
    f.client.ceph("osd", "down", "0")
    f.remove(list(f.stored)[:5])
    with f.connect() as cluster, cluster.open_ioctx(POOL) as io:
        f.write(io, "forced", content(4000), FULL_FORCE)
    f.stored["forced"] = 4000
    f.up()
    f.wait_clean()
    check("OSD_FULL" in f.checks(), "the cluster is full all the time")
    f.reads_back()

def backfill_waits_for_space(f):
    """A PG of more objects than its log tells of is to move, and finds its new place too full."""
    f.client.ceph("osd", "set-full-ratio", "0.97")
    f.wait_without("OSD_FULL")
    f.client.ceph("osd", "pool", "create", MOVED, "1", "1", "replicated", "--size", "2", "--autoscale-mode", "off")
    f.client.ceph("osd", "pool", "application", "enable", MOVED, "test")
    f.wait_clean()
    with f.connect() as cluster, cluster.open_ioctx(MOVED) as io:
        for n in range(0, 4500, 500):
            for completion in [io.aio_write_full("m%d" % m, b"%d" % m) for m in range(n, n + 500)]:
                completion.wait_for_complete()
    leaves = f.client.json("osd", "map", MOVED, "m0")["acting"][1]
    f.client.ceph("osd", "out", leaves)
    checks = f.wait_for("PG_BACKFILL_FULL")
    match(r"1 pg backfill_toofull", checks["PG_BACKFILL_FULL"]["summary"]["message"])
    check(any("backfill_toofull" in s for s in f.states()), "states: %s" % f.states())
    f.client.ceph("osd", "set-backfillfull-ratio", "0.96")
    moved = lambda: f.client.json("pg", "ls-by-pool", MOVED)["pg_stats"][0]
    until(lambda: moved()["state"] == "active+clean" and leaves not in moved()["acting"], "the PG has moved", 60)
    f.client.ceph("osd", "in", leaves)
    f.wait_clean()
    with f.connect() as cluster, cluster.open_ioctx(MOVED) as io:
        for n in range(0, 4500, 100):
            equal(io.read("m%d" % n), b"%d" % n, "m%d reads back" % n)
    f.reads_back()

def a_quota_is_reached_and_raised(f):
    f.client.ceph("osd", "pool", "create", QUOTA, "4")
    f.client.ceph("osd", "pool", "application", "enable", QUOTA, "test")
    f.client.ceph("osd", "pool", "set-quota", QUOTA, "max_objects", "10")
    quota = f.client.json("osd", "pool", "get-quota", QUOTA)
    equal((quota["quota_max_objects"], quota["quota_max_bytes"]), (10, 0), "get-quota")
    with f.connect() as cluster, cluster.open_ioctx(QUOTA) as io:
        for n in range(10):
            f.write(io, "q%d" % n, b"x" * 1000, 0)
    checks = f.wait_for("POOL_FULL")
    equal(checks["POOL_FULL"]["detail"][0]["message"], "pool '%s' is full (running out of quota)" % QUOTA)
    check({"full", "full_quota"} <= set(f.pool_flags(QUOTA).split(",")), "flags: " + f.pool_flags(QUOTA))
    f.refused(QUOTA, 122, "FULL_TRY beyond a quota")
    waits = f.put_that_waits(QUOTA, "late")
    f.client.ceph("osd", "pool", "set-quota", QUOTA, "max_objects", "20")
    equal(waits.wait(timeout=60), 0, "the put goes on with a larger quota")
    f.wait_without("POOL_FULL")
    f.client.ceph("osd", "pool", "set-quota", QUOTA, "max_objects", "0")
    f.client.ceph("osd", "pool", "set-quota", QUOTA, "max_bytes", "64Ki")
    f.wait_for("POOL_FULL")
    f.refused(QUOTA, 122, "FULL_TRY beyond a quota of bytes")
    f.client.ceph("osd", "pool", "set-quota", QUOTA, "max_bytes", "0")
    f.wait_without("POOL_FULL")

def is_emptied(f):
    for name, ratio in (("nearfull", "0.4"), ("backfillfull", "0.45"), ("full", "0.5")):
        f.client.ceph("osd", "set-%s-ratio" % name, ratio)
    f.wait_for("OSD_FULL", "POOL_FULL")
    waits = f.put_that_waits(POOL, "late")
    f.client.rados("-p", POOL, "rm", next(iter(f.stored)), "--force-full")
    del f.stored[next(iter(f.stored))]
    f.remove(list(f.stored))
    until(lambda: "HEALTH_OK" in f.client.ceph("health")[0], "HEALTH_OK after the deletions", 60)
    equal(waits.wait(timeout=60), 0, "the put that waited goes on")
    f.fill_to(20)
    f.reads_back()

def main():
    a = arguments(__doc__).parse_args()
    client = Client(a.conf)
    f = Full(client, os.path.dirname(os.path.realpath(a.conf)), a.bin)
    client.ceph("osd", "pool", "create", POOL, "16")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    f.wait_clean()
    for part in (fills_up, dies_and_comes_back, heals, backfill_waits_for_space, a_quota_is_reached_and_raised, is_emptied):
        start = time.monotonic()
        part(f)
        print("ok  %-32s %5.1f s" % (part.__name__, time.monotonic() - start), flush=True)
    client.close()

if __name__ == "__main__":
    main()
