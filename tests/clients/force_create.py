#!/usr/bin/python3
"""An erasure-coded pool that lost more disks than it has coding chunks: its placement groups are incomplete, and say so; `ceph osd
force-create-pg` is refused for any others, and makes these anew, empty. A replicated pool on the same disks loses nothing.

    force_create.py -c DIR/ceph.conf --bin BINARY       (three OSDs)
"""
import os, shutil, signal, subprocess
from harness import Client, arguments, equal, match, until
from snapshots import Librados, scrubbed
from stock_cluster import read_pids

POOL, PLAIN, PGS = "coded", "plain", 2
EPERM, ENOENT, EBUSY, EINVAL = 1, 2, 16, 22

def states(client, pool=POOL):
    return {p["pgid"]: set(p["state"].split("+")) for p in client.json("pg", "ls-by-pool", pool)["pg_stats"]}

def all_are(client, word, pool=POOL):
    return lambda: bool(states(client, pool)) and all(word in s for s in states(client, pool).values())

def force(client, pg, rc, sure=True):
    return client.ceph("osd", "force-create-pg", pg, *(["--yes-i-really-mean-it"] if sure else []), rc=rc)[1]

def lose_disks(client, args, osds):
    """They die, and each gets an empty disk; in between, what is asked for too early is refused."""
    home = os.path.dirname(os.path.realpath(args.conf))
    for osd in osds:
        os.kill(read_pids(home)["osd.%d" % osd], signal.SIGKILL)
    until(all_are(client, "down"), "placement groups that wait for whoever is away")
    for pg in states(client):
        match("declare them lost first", force(client, pg, EBUSY))
    for osd in osds:
        client.ceph("osd", "lost", osd, "--yes-i-really-mean-it")
        client.ceph("osd", "destroy", osd, "--yes-i-really-mean-it")
        shutil.rmtree("%s/osd.%d" % (home, osd))
        os.mkdir("%s/osd.%d" % (home, osd))
    # It waits for placement groups to become active, for a while.
    return subprocess.Popen([args.bin, "up", "--dir", home], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

def main():
    args = arguments(__doc__).parse_args()
    client = Client(args.conf)
    for osd in range(3):
        client.ceph("config", "set", "osd.%d" % osd, "osd_min_pg_log_entries", "50")
        client.ceph("config", "set", "osd.%d" % osd, "osd_max_pg_log_entries", "50")
    client.ceph("osd", "erasure-code-profile", "set", "two-one", "k=2", "m=1", "crush-failure-domain=osd")
    client.ceph("osd", "pool", "create", POOL, PGS, PGS, "erasure", "two-one")
    client.ceph("osd", "pool", "create", PLAIN, PGS, PGS)
    for pool in (POOL, PLAIN):
        until(all_are(client, "clean", pool), "a clean pool")
    coded, plain = Librados(client.conf, POOL), Librados(client.conf, PLAIN)
    for n in range(300):
        equal(coded.write_full("o%d" % n, b"%d" % n * 50), 0)
    equal(plain.write_full("kept", b"kept"), 0)
    some = next(iter(states(client)))
    match("is active.clean, not incomplete", force(client, some, EINVAL))
    match("should not exist", force(client, some.split(".")[0] + ".77", ENOENT))
    match("should not exist", force(client, "77.0", ENOENT))

    comes_up = lose_disks(client, args, [1, 2])
    until(all_are(client, "incomplete"), "incomplete placement groups", 120)
    until(all_are(client, "clean", PLAIN), "a whole replicated pool", 120)
    match("PG_AVAILABILITY", client.ceph("health", "detail")[0])
    for pg in states(client):
        match("--yes-i-really-mean-it", force(client, pg, EPERM, sure=False))
        match("pg %s now creating, ok" % pg, force(client, pg, 0))
    until(all_are(client, "clean"), "placement groups that have begun anew", 60)
    equal(comes_up.wait(60), 0, "cuttlebone up")
    for n in range(300):
        equal(coded.read("o%d" % n), -ENOENT, "an object that is lost")
    equal(client.rados("-p", POOL, "ls")[0], "", "objects that are left")
    equal(plain.read("kept"), b"kept", "the replicated pool")
    for n in range(50):
        equal(coded.write_full("o%d" % n, b"new"), 0)
        equal(coded.read("o%d" % n), b"new")
    scrubbed(client, POOL)
    until(lambda: "PG_" not in client.ceph("health", "detail")[0], "health without troubles of placement groups")
    coded.close()
    plain.close()
    client.close()
    print("what lost too much began anew, and nothing else did")

if __name__ == "__main__":
    main()
