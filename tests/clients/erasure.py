#!/usr/bin/python3
"""Erasure-coded pools, as stock clients make and use them: profiles, pools, whole objects and parts of them written and read
through the death of an OSD, with snapshots, scrubs, more and fewer placement groups and OSDs that leave; and what such pools refuse.

    erasure.py -c DIR/ceph.conf [--bin BINARY]        (six OSDs; without a binary no OSD is killed, as against stock)
"""
import ctypes, os, random, signal, subprocess
from harness import Client, arguments, check, equal, match, until
from snapshots import Librados, scrubbed
from stock_cluster import read_pids

POOL, PLAIN = "coded", "plain"
EINVAL, EPERM, EOPNOTSUPP = 22, 1, 95

class Objects:
    """Objects of random bytes, changed in every way there is, and what they should be."""

    def __init__(self, conf, pool, seed):
        self.rados, self.rng, self.all = Librados(conf, pool), random.Random(seed), {}

    def bytes(self, most):
        return self.rng.randbytes(self.rng.randint(1, most))

    def change(self, name):
        lib, io, old = self.rados.lib, self.rados.io, self.all.get(name, b"")
        size, key = ctypes.c_size_t, name.encode()
        kind = self.rng.randrange(6)
        if kind == 0 or name not in self.all:
            data = self.bytes(100000)
            done, new = self.rados.write_full(name, data), data
        elif kind == 1:
            data = self.bytes(5000)
            done, new = lib.rados_append(io, key, data, size(len(data))), old + data
        elif kind == 2:
            at = self.rng.randint(0, len(old) + 5000)
            done, new = lib.rados_trunc(io, key, ctypes.c_uint64(at)), old[:at] + bytes(max(0, at - len(old)))
        else:
            data, at = self.bytes([10, 4096, 20000][self.rng.randrange(3)]), self.rng.randint(0, len(old) + 100)
            new = bytearray(old + bytes(max(0, at + len(data) - len(old))))
            new[at:at + len(data)] = data
            done, new = self.rados.write(name, data, at), bytes(new)
        equal(done, 0, "change %d of %s" % (kind, name))
        self.all[name] = new

    def churn(self, changes, names=12):
        for _ in range(changes):
            self.change("o%d" % self.rng.randrange(names))

    def check(self, snap=None, all=None):
        for name, data in (self.all if all is None else all).items():
            found = self.rados.read(name, snap)
            check(found == data, "%s: %s of %d bytes, at snapshot %s" % (name, len(found) if isinstance(found, bytes) else found, len(data), snap))

def clean(client, pool=POOL):
    def states():
        pgs = client.json("pg", "ls-by-pool", pool)["pg_stats"]
        return bool(pgs) and all(p["state"] == "active+clean" for p in pgs)
    until(states, "PGs of %s active and clean" % pool, 120)

def profiles(client):
    client.ceph("osd", "erasure-code-profile", "set", "coded", "k=3", "m=2", "crush-failure-domain=osd")
    out, _ = client.ceph("osd", "erasure-code-profile", "get", "coded")
    check("k=3" in out and "m=2" in out and "crush-failure-domain=osd" in out, out)
    _, err = client.ceph("osd", "erasure-code-profile", "set", "coded", "k=2", "m=2", "crush-failure-domain=osd", rc=EPERM)
    match("will not override erasure code profile coded", err)
    client.ceph("osd", "erasure-code-profile", "set", "bad", "k=1", "m=1", rc=EINVAL)
    check("coded" in client.json("osd", "erasure-code-profile", "ls"), "the profile is not listed")

def pools(client):
    client.ceph("osd", "pool", "create", POOL, "8", "8", "erasure", "coded")
    client.ceph("osd", "pool", "create", PLAIN, "8", "8", "erasure", "coded")
    for pool in (POOL, PLAIN):
        client.ceph("osd", "pool", "application", "enable", pool, "test")
    client.ceph("osd", "pool", "set", POOL, "allow_ec_overwrites", "true")
    detail = {p["pool_name"]: p for p in client.json("osd", "pool", "ls", "detail")}
    pool = detail[POOL]
    equal((pool["type"], pool["size"], pool["min_size"], pool["stripe_width"], pool["erasure_code_profile"]), (3, 5, 4, 3 * 4096, "coded"), "the pool")
    check("ec_overwrites" in pool["flags_names"] and "ec_overwrites" not in detail[PLAIN]["flags_names"], "flags %s" % pool["flags_names"])
    _, err = client.ceph("osd", "erasure-code-profile", "rm", "coded", rc=16)
    match("are using the erasure code profile", err)
    client.ceph("osd", "pool", "set", POOL, "size", "4", rc=None)
    equal(client.json("osd", "pool", "get", POOL, "size")["size"], 5, "size of an erasure-coded pool")
    clean(client)

def whole_objects(client):
    """`rados put`, `get`, `stat`, `append`, xattrs; what there is not."""
    data = os.urandom(3_000_001)
    with open(client.work + "/data", "wb") as f:
        f.write(data)
    for pool in (POOL, PLAIN):
        client.rados("-p", pool, "put", "whole", client.path("data"))
        client.rados("-p", pool, "get", "whole", client.path("back"))
        with open(client.work + "/back", "rb") as f:
            check(f.read() == data, "what comes back from %s is other than what went" % pool)
        match("size 3000001", client.rados("-p", pool, "stat", "whole")[0])
        client.rados("-p", pool, "setxattr", "whole", "key", "value")
        equal(client.rados("-p", pool, "getxattr", "whole", "key")[0].strip(), "value", "an xattr")
        _, err = client.rados("-p", pool, "setomapval", "whole", "k", "v", rc=None)
        match("Operation not supported", err)
        check("whole" in client.rados("-p", pool, "ls")[0].split(), "it is not listed")
    # Only whole stripes are appended where overwrites are not allowed.
    rados = Librados(client.conf, PLAIN)
    stripe = os.urandom(3 * 4096)
    equal(rados.write_full("stripes", stripe), 0, "write_full")
    equal(rados.lib.rados_append(rados.io, b"stripes", stripe, ctypes.c_size_t(100)), 0, "append to a whole stripe")
    equal(rados.lib.rados_append(rados.io, b"stripes", stripe, ctypes.c_size_t(100)), -EOPNOTSUPP, "append to part of one")
    equal(rados.write("stripes", b"x", 5), -EOPNOTSUPP, "an overwrite")
    equal(rados.read("stripes"), stripe + stripe[:100], "what was appended")
    rados.close()

def kill(client, bin, osd):
    """Returns how to bring it back."""
    outside = os.path.dirname(os.path.realpath(client.conf))
    pids = read_pids(outside)
    os.kill(pids["osd.%d" % osd], signal.SIGKILL)
    until(lambda: "osd.%d" % osd in [n["name"] for n in client.json("osd", "tree", "down")["nodes"]], "osd.%d marked down" % osd)
    return lambda: subprocess.run([bin, "up", "--dir", outside], check=True, stdout=subprocess.DEVNULL)

def deaths(client, bin, objects):
    """One OSD after the other dies while objects change."""
    for osd in range(3):
        back = kill(client, bin, osd)
        objects.check()
        objects.churn(60)
        objects.check()
        back()
        clean(client)
        objects.check()

def snapshots(objects):
    kept = dict(objects.all)
    snap = objects.rados.take()
    equal(objects.rados.context(snap, [snap]), 0, "a context")
    objects.churn(60)
    objects.check(snap, kept)
    objects.check()
    name = next(iter(kept))
    equal(objects.rados.roll_back(name, snap), 0, "a rollback")
    objects.all[name] = kept[name]
    objects.check()
    equal(objects.rados.context(0, []), 0, "no context")
    objects.rados.remove_snap(snap)

def divide(client, objects, pg_num):
    """So many placement groups, each placed on its own, while objects change."""
    client.ceph("osd", "pool", "set", POOL, "pg_num", str(pg_num))
    def done():
        objects.churn(10)
        pool = next(p for p in client.json("osd", "dump")["pools"] if p["pool_name"] == POOL)
        return (pool["pg_num"], pool["pg_placement_num"], len(client.json("pg", "ls-by-pool", POOL)["pg_stats"])) == (pg_num,) * 3
    until(done, "%d placement groups" % pg_num, 240)
    clean(client)
    objects.check()

def moves(client, objects):
    """More placement groups, and an OSD that leaves and comes back."""
    divide(client, objects, 16)
    client.ceph("osd", "out", "1")
    objects.churn(40)
    clean(client)
    objects.check()
    client.ceph("osd", "in", "1")
    clean(client)
    objects.check()

def merges(client, bin, objects):
    """Fewer placement groups than the pool ever had, while objects change; then OSDs die, for copies have shards of several places now."""
    client.ceph("config", "set", "mgr", "target_max_misplaced_ratio", "1")
    divide(client, objects, 3)
    if bin:
        deaths(client, bin, objects)
    divide(client, objects, 8)
    scrubbed(client, POOL)

def main():
    ap = arguments(__doc__, bin=False)
    ap.add_argument("--bin")
    args = ap.parse_args()
    client = Client(args.conf)
    profiles(client)
    pools(client)
    whole_objects(client)
    objects = Objects(client.conf, POOL, 1)
    objects.churn(150)
    objects.check()
    if args.bin:
        deaths(client, args.bin, objects)
    snapshots(objects)
    scrubbed(client, POOL)
    moves(client, objects)
    merges(client, args.bin, objects)
    objects.rados.close()
    client.close()
    print("erasure-coded pools: all is well")

if __name__ == "__main__":
    main()
