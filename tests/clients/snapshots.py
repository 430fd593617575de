#!/usr/bin/python3
"""Snapshots, as stock clients make them: of pools with `rados mksnap`, and of their own with librados; read, listed, rolled
back to, and removed, through the death of an OSD and more placement groups; and what removed ones leave is trimmed.

    snapshots.py -c DIR/ceph.conf [--bin BINARY]        (without: no OSD is killed, as against stock)
"""
import ctypes, json, os, signal, subprocess, sys, time
from harness import Client, arguments, check, equal, match, until
from stock_cluster import read_pids

POOL, OWN = "snaps", "ownsnaps"
ENOENT, EINVAL, EOLDSNAPC = -2, -22, -85

class Librados:
    """What the Python bindings lack: snapshots that only clients know of."""

    def __init__(self, conf, pool):
        self.lib = lib = ctypes.CDLL("librados.so.2")
        self.cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.ok(lib.rados_create(ctypes.byref(self.cluster), b"admin"))
        self.ok(lib.rados_conf_read_file(self.cluster, conf.encode()))
        self.ok(lib.rados_connect(self.cluster))
        self.ok(lib.rados_ioctx_create(self.cluster, pool.encode(), ctypes.byref(self.io)))
        self.context(0, [])

    def ok(self, result, what=""):
        check(result >= 0, "librados %s: %d" % (what, result))
        return result

    def take(self):
        snap = ctypes.c_uint64()
        self.ok(self.lib.rados_ioctx_selfmanaged_snap_create(self.io, ctypes.byref(snap)), "snap_create")
        return snap.value

    def remove_snap(self, snap):
        self.ok(self.lib.rados_ioctx_selfmanaged_snap_remove(self.io, ctypes.c_uint64(snap)), "snap_remove")

    def context(self, seq, snaps):
        array = (ctypes.c_uint64 * max(1, len(snaps)))(*snaps)
        return self.lib.rados_ioctx_selfmanaged_snap_set_write_ctx(self.io, ctypes.c_uint64(seq), array, len(snaps))

    def write_full(self, name, data):
        return self.lib.rados_write_full(self.io, name.encode(), data, ctypes.c_size_t(len(data)))

    def write(self, name, data, offset):
        return self.lib.rados_write(self.io, name.encode(), data, ctypes.c_size_t(len(data)), ctypes.c_uint64(offset))

    def remove(self, name):
        return self.lib.rados_remove(self.io, name.encode())

    def setxattr(self, name, key, value):
        return self.lib.rados_setxattr(self.io, name.encode(), key.encode(), value, ctypes.c_size_t(len(value)))

    def roll_back(self, name, snap):
        return self.lib.rados_ioctx_selfmanaged_snap_rollback(self.io, name.encode(), ctypes.c_uint64(snap))

    def read(self, name, snap=None):
        """The object's data at a snapshot, or a negative error."""
        head = 2**64 - 2
        self.lib.rados_ioctx_snap_set_read(self.io, ctypes.c_uint64(head if snap is None else snap))
        buffer = ctypes.create_string_buffer(1 << 20)
        n = self.lib.rados_read(self.io, name.encode(), buffer, ctypes.c_size_t(len(buffer)), ctypes.c_uint64(0))
        self.lib.rados_ioctx_snap_set_read(self.io, ctypes.c_uint64(head))
        return buffer.raw[:n] if n >= 0 else n

    def getxattr(self, name, key):
        buffer = ctypes.create_string_buffer(1 << 12)
        n = self.lib.rados_getxattr(self.io, name.encode(), key.encode(), buffer, ctypes.c_size_t(len(buffer)))
        return buffer.raw[:n] if n >= 0 else n

    def close(self):
        self.lib.rados_ioctx_destroy(self.io)
        self.lib.rados_shutdown(self.cluster)

def put(client, name, data, rc=0):
    client.rados("-p", POOL, "put", name, "-", input=data, rc=rc)

def get(client, name, snap=None, rc=0):
    at = ["-s", snap] if snap else []
    path = client.path("got")
    _, err = client.rados("-p", POOL, *at, "get", name, path, rc=rc)
    if rc:
        return err
    with open(client.work + "/got") as f:
        return f.read()

def clones(client, name, pool=POOL):
    """Clone to the snapshots that show it, its size and what it shares with the next."""
    out = json.loads(client.rados("-p", pool, "listsnaps", name, "-f", "json")[0])
    return [(c["id"], c["snapshots"] if c["id"] == "head" else [s["id"] if isinstance(s, dict) else s for s in c["snapshots"]], c["size"]) for c in out["clones"]]

def listed(client):
    return sorted(client.rados("-p", POOL, "ls")[0].split())

def pool_snapshots(client, ours):
    client.ceph("osd", "pool", "create", POOL, "8", "8")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    put(client, "a", "one")
    put(client, "gone", "here")
    equal(client.rados("-p", POOL, "mksnap", "first")[0].strip(), "created pool %s snap first" % POOL)
    put(client, "a", "two is longer")
    put(client, "later", "x")
    client.rados("-p", POOL, "rm", "gone")
    match("No such file", get(client, "gone", rc=1))
    equal((get(client, "a"), get(client, "a", "first"), get(client, "gone", "first")), ("two is longer", "one", "here"))
    match("No such file", get(client, "later", "first", rc=1), "what was not there then")
    equal(clones(client, "a"), [(1, [1], 3), ("head", [], 13)], "listsnaps")
    equal(clones(client, "gone"), [(1, [1], 4)], "listsnaps of what is removed")
    # Stock lists what is removed, too, as long as a clone of it is left.
    equal([name for name in listed(client) if ours or name != "gone"], ["a", "later"], "ls")
    match("No such file", client.rados("-p", POOL, "stat", "gone", rc=1)[1])
    match(r"^1\tfirst\t", client.rados("-p", POOL, "lssnap")[0])
    client.rados("-p", POOL, "mksnap", "second")
    put(client, "gone", "again")
    put(client, "a", "three")
    equal([get(client, "a", s) for s in ("first", "second", None)], ["one", "two is longer", "three"])
    match("No such file", get(client, "gone", "second", rc=1), "what was away then")
    equal(get(client, "gone"), "again")

def rollbacks(client):
    client.rados("-p", POOL, "setxattr", "a", "k", "old")
    client.rados("-p", POOL, "setomapval", "a", "key", "old")
    client.rados("-p", POOL, "mksnap", "third")
    client.rados("-p", POOL, "setxattr", "a", "k", "new")
    client.rados("-p", POOL, "setomapval", "a", "key2", "new")
    put(client, "a", "four")
    equal(client.rados("-p", POOL, "rollback", "a", "third")[0].strip(), "rolled back pool %s to snapshot third" % POOL)
    equal(get(client, "a"), "three")
    equal(client.rados("-p", POOL, "getxattr", "a", "k")[0].strip(), "old")
    equal(client.rados("-p", POOL, "listomapkeys", "a")[0].split(), ["key"])
    client.rados("-p", POOL, "rollback", "a", "first")
    equal((get(client, "a"), get(client, "a", "third")), ("one", "three"))
    client.rados("-p", POOL, "rollback", "later", "first")
    match("No such file", get(client, "later", rc=1), "what was not there is removed")
    equal(get(client, "later", "second"), "x")

def own_snapshots(client, r):
    equal(r.write_full("o", b"0" * 8192), 0)
    first = r.take()
    equal(r.context(first, [first]), 0)
    equal(r.write("o", b"1" * 4096, 0), 0)
    second = r.take()
    equal(r.context(second, [second, first]), 0)
    equal(r.setxattr("o", "x", b"2"), 0)
    equal(r.write_full("o", b"3"), 0)
    equal(r.read("o", first), b"0" * 8192)
    equal(r.read("o", second), b"1" * 4096 + b"0" * 4096)
    equal(r.read("o"), b"3")
    equal(clones(client, "o", OWN), [(first, [first], 8192), (second, [second], 8192), ("head", [], 1)])
    equal(r.context(first, [second]), EINVAL, "a context that cannot be")
    equal(r.context(second, [second, first]), 0)
    equal(r.roll_back("o", first), 0)
    equal((r.read("o"), r.getxattr("o", "x")), (b"0" * 8192, -61))
    equal(r.read("nothing", first), ENOENT)
    equal(r.remove("o"), 0)
    equal((r.read("o"), r.read("o", second)), (ENOENT, b"1" * 4096 + b"0" * 4096))
    equal(r.remove("o"), ENOENT, "it is gone already")
    equal(r.roll_back("o", second), 0)
    equal(r.read("o"), b"1" * 4096 + b"0" * 4096)
    # Snapshots of many objects, for what follows.
    for n in range(40):
        equal(r.write_full("m%d" % n, b"old %d" % n), 0)
    third = r.take()
    equal(r.context(third, [third, second, first]), 0)
    for n in range(40):
        equal(r.write_full("m%d" % n, b"new %d" % n), 0)
    return [first, second, third]

def read_all(r, third, what):
    for n in range(40):
        equal((r.read("m%d" % n), r.read("m%d" % n, third)), (b"new %d" % n, b"old %d" % n), what)

def clean(client):
    pgs = client.json("-s")["pgmap"]
    states = {s["state_name"]: s["count"] for s in pgs["pgs_by_state"]}
    check(states == {"active+clean": pgs["num_pgs"]}, states)
    return True

def through_deaths(a, client, r, third):
    """An OSD dies, much is written meanwhile, it comes back; another one dies, so that what came is what is read."""
    directory = os.path.dirname(os.path.realpath(a.conf))
    up = lambda: subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    os.kill(read_pids(directory)["osd.1"], signal.SIGKILL)
    fourth = r.take()
    equal(r.context(fourth, [fourth, third]), 0)
    for n in range(40):
        equal(r.write_full("m%d" % n, b"newer %d" % n), 0)
    up()
    until(lambda: clean(client), "every placement group active and clean", 120)
    os.kill(read_pids(directory)["osd.0"], signal.SIGKILL)
    for n in range(40):
        seen = [r.read("m%d" % n, snap) for snap in (third, fourth, None)]
        equal(seen, [b"old %d" % n, b"new %d" % n, b"newer %d" % n], "after OSDs died")
        equal(r.write_full("m%d" % n, b"new %d" % n), 0)
    up()
    until(lambda: clean(client), "every placement group active and clean", 120)

def scrubbed(client, pool):
    """A deep scrub of every PG finds nothing wrong. Who is no longer a PG's primary forgets that one was asked for."""
    stats = lambda: {s["pgid"]: s for s in client.json("pg", "ls-by-pool", pool)["pg_stats"]}
    before = stats()
    asked = {}
    def done():
        left = [s for pg, s in stats().items() if s["last_deep_scrub_stamp"] == before[pg]["last_deep_scrub_stamp"]]
        for s in left:
            pg, primary = s["pgid"], s["acting_primary"]
            if asked.get(pg) != primary:
                client.ceph("pg", "deep-scrub", pg)
                asked[pg] = primary
        return not left
    until(done, "the end of the scrubs", 180)
    equal([pg for pg, s in stats().items() if "inconsistent" in s["state"]], [], "inconsistent PGs")

def row(client, pool):
    return next(p for p in json.loads(client.rados("df", "-f", "json")[0])["pools"] if p["name"] == pool)

def trimmed(client, pool):
    """Nothing is left to be trimmed, and the map knows."""
    queue = [q for q in client.json("osd", "dump")["removed_snaps_queue"] if q["pool"] == client.pools[pool] and q["snaps"]]
    check(not queue, "to be trimmed: %r" % queue)
    left = {s["pgid"]: s["snaptrimq_len"] for s in client.json("pg", "ls-by-pool", pool)["pg_stats"] if s["snaptrimq_len"]}
    check(not left, "to be trimmed: %r" % left)
    return True

def trims(client, r, snaps):
    equal(row(client, OWN)["num_object_clones"] >= 40, True, "clones of many objects")
    client.ceph("osd", "set", "nosnaptrim")
    for snap in snaps:
        r.remove_snap(snap)
    equal([r.read("m0", snap) for snap in snaps], [ENOENT] * len(snaps), "removed snapshots show nothing")
    until(lambda: any(s["snaptrimq_len"] for s in client.json("pg", "ls-by-pool", OWN)["pg_stats"]), "a queue, as trimming is paused")
    client.ceph("osd", "unset", "nosnaptrim")
    until(lambda: trimmed(client, OWN), "everything trimmed", 120)
    until(lambda: row(client, OWN)["num_object_clones"] == 0, "no clones")
    equal(clones(client, "m0", OWN), [("head", [], len(r.read("m0")))])
    client.rados("-p", POOL, "rmsnap", "first")
    match("No such file|find snap", get(client, "a", "first", rc=1))
    equal(get(client, "a", "second"), "two is longer")
    for name in ("second", "third"):
        client.rados("-p", POOL, "rmsnap", name)
    until(lambda: trimmed(client, POOL), "everything trimmed", 120)
    until(lambda: row(client, POOL)["num_object_clones"] == 0, "no clones")
    until(lambda: row(client, POOL)["num_objects"] == len(listed(client)), "no whiteouts")

def main():
    ap = arguments(__doc__, bin=False)
    ap.add_argument("--bin")
    a = ap.parse_args()
    client = Client(a.conf)
    client.ceph("osd", "pool", "create", OWN, "4", "4")
    client.ceph("osd", "pool", "application", "enable", OWN, "test")
    pool_snapshots(client, bool(a.bin))
    rollbacks(client)
    client.pools = {p["pool_name"]: p["pool"] for p in client.json("osd", "dump")["pools"]}
    r = Librados(client.conf, OWN)
    snaps = own_snapshots(client, r)
    third = snaps[-1]
    read_all(r, third, "after the snapshot")
    client.ceph("osd", "pool", "set", OWN, "pg_num", "16")
    until(lambda: clean(client) and len(client.json("pg", "ls-by-pool", OWN)["pg_stats"]) == 16, "more placement groups", 120)
    read_all(r, third, "with more placement groups")
    if a.bin:
        through_deaths(a, client, r, third)
        snaps.append(max(snaps) + 1)
    scrubbed(client, OWN)
    scrubbed(client, POOL)
    trims(client, r, snaps)
    r.close()
    client.close()
    print("snapshots of pools and of clients: taken, read, listed, rolled back to, removed, trimmed")

if __name__ == "__main__":
    main()
