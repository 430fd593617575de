#!/usr/bin/python3
"""Blocks of two OSDs' disks are damaged under a running cluster. A stock client reads what was stored, all the same; a
deep scrub by stock `ceph` finds the damage, health and `rados list-inconsistent-obj` tell of it, and `ceph pg repair`
mends it.

    scrub.py -c DIR/ceph.conf
"""
import json, mmap, os, sys
from harness import Client, arguments, check, equal, has_keys, match, until

POOL = "scrub"
SIZE = 256 << 10

def damage(directory, osd, content):
    """Turns a byte over in the middle of an object, wherever it is on the OSD's device."""
    path = os.path.join(directory, "osd.%d" % osd, "block")
    with open(path, "r+b") as f:
        with mmap.mmap(f.fileno(), 0) as m:
            at = m.find(content[8192:8192 + 4096])
            check(at > 0, "the object is on osd.%d's device" % osd)
            m[at + 100] ^= 0xff
            m.flush()

def stat(client, pg):
    stats = client.json("pg", "ls-by-pool", POOL)["pg_stats"]
    return next(s for s in stats if s["pgid"] == pg)

def scrubbed(client, pg, command, text):
    """Orders a scrub, and waits until it is over; returns what is then known of the PG."""
    key = "last_scrub_stamp" if command == "scrub" else "last_deep_scrub_stamp"
    before = stat(client, pg)[key]
    _, err = client.ceph("pg", command, pg)
    match("^%s$" % text, err, command)
    def over():
        s = stat(client, pg)
        return s if s[key] != before and "scrubbing" not in s["state"] else None
    return until(over, "the end of the %s" % command, 120)

def main():
    a = arguments(__doc__, bin=False).parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    client.ceph("osd", "pool", "create", POOL, "1", "1")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    contents = {"obj%d" % n: os.urandom(SIZE) for n in range(8)}
    for name, content in contents.items():
        client.rados("-p", POOL, "put", name, "-", input=content)
    where = client.json("osd", "map", POOL, "obj0")
    pg, acting = where["pgid"], where["acting"]
    primary, replica = acting[0], acting[1]
    until(lambda: stat(client, pg)["state"] == "active+clean", "a clean PG")
    say = "instructing pg %s on osd.%d to %%s" % (pg, primary)

    _, err = client.rados("list-inconsistent-obj", pg, rc=None)
    match("No scrub information available for pg %s" % pg, err, "before the first scrub")
    equal(scrubbed(client, pg, "scrub", say % "scrub")["state"], "active+clean", "nothing is wrong")
    equal(json.loads(client.rados("list-inconsistent-obj", pg)[0])["inconsistents"], [], "nothing is wrong")

    # A bad block of the primary that nobody has noticed: who reads the object does not notice, either.
    damage(directory, primary, contents["obj7"])
    got = client.path("got")
    client.rados("-p", POOL, "get", "obj7", got)
    with open(client.work + "/got", "rb") as f:
        check(f.read() == contents["obj7"], "what was stored is what is read")
    until(lambda: "obj7" in client.ceph("log", "last", "50")[0], "a line in the cluster log")

    damage(directory, replica, contents["obj0"])
    damage(directory, primary, contents["obj1"])
    s = scrubbed(client, pg, "deep-scrub", say % "deep-scrub")
    equal(s["state"], "active+clean+inconsistent", "after the deep scrub")
    equal(s["stat_sum"]["num_scrub_errors"], 2, "two bad copies")
    equal(s["stat_sum"]["num_deep_scrub_errors"], 2, "two bad copies")
    checks = lambda: client.json("health", "detail")["checks"]
    until(lambda: "PG_DAMAGED" in checks(), "health that tells of it")
    checks = checks()
    equal(checks["OSD_SCRUB_ERRORS"]["summary"]["message"], "2 scrub errors")
    damaged = checks["PG_DAMAGED"]
    equal((damaged["severity"], damaged["summary"]["message"]), ("HEALTH_ERR", "Possible data damage: 1 pg inconsistent"))
    equal(damaged["detail"][0]["message"], "pg %s is active+clean+inconsistent, acting %s" % (pg, json.dumps(acting).replace(" ", "")))
    equal(json.loads(client.rados("list-inconsistent-pg", POOL)[0]), [pg], "list-inconsistent-pg")
    found = json.loads(client.rados("list-inconsistent-obj", pg)[0])["inconsistents"]
    equal([i["object"]["name"] for i in found], ["obj0", "obj1"], "list-inconsistent-obj")
    for i, bad in zip(found, (replica, primary)):
        equal((i["errors"], i["union_shard_errors"]), ([], ["read_error"]), i["object"]["name"])
        equal({s["osd"]: s["errors"] for s in i["shards"]}, {o: ["read_error"] if o == bad else [] for o in acting}, "shards")
        equal([s["osd"] for s in i["shards"] if s["primary"]], [primary], "the primary's shard")
        good = next(s for s in i["shards"] if not s["errors"])
        has_keys(good, "size data_digest omap_digest", "a good shard")
        info = i["selected_object_info"]
        equal((info["oid"]["oid"], info["size"], info["user_version"]), (i["object"]["name"], SIZE, i["object"]["version"]))

    scrubbed(client, pg, "repair", say % "repair")
    until(lambda: stat(client, pg)["state"] == "active+clean", "a repaired PG")
    until(lambda: "PG_DAMAGED" not in client.json("health", "detail")["checks"], "health without damage")
    match("repair 2 errors, 2 fixed", client.ceph("log", "last", "50")[0], "the cluster log")
    equal(scrubbed(client, pg, "deep-scrub", say % "deep-scrub")["state"], "active+clean", "after the repair")
    equal(json.loads(client.rados("list-inconsistent-obj", pg)[0])["inconsistents"], [], "after the repair")
    equal(json.loads(client.rados("list-inconsistent-pg", POOL)[0]), [], "after the repair")
    for name, content in contents.items():
        client.rados("-p", POOL, "get", name, got)
        with open(client.work + "/got", "rb") as f:
            check(f.read() == content, "%s is as it was stored" % name)

    before = stat(client, pg)["last_deep_scrub_stamp"]
    match("instructed osd.s. 0,1,2 to deep-scrub", client.ceph("osd", "deep-scrub", "all")[1], "osd deep-scrub")
    until(lambda: stat(client, pg)["last_deep_scrub_stamp"] != before, "a deep scrub of everything")
    match("instructed osd.s. 1 to scrub", client.ceph("osd", "scrub", "1")[1], "osd scrub")
    client.ceph("osd", "pool", "repair", POOL)
    match("pg 99.0 does not exist", client.ceph("pg", "scrub", "99.0", rc=2)[1], "pg scrub")
    print("3 damaged blocks: none was seen by a client, all were found and repaired")
    client.close()

if __name__ == "__main__":
    main()
