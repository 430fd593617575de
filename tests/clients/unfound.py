#!/usr/bin/python3
"""Objects whose newest content only a dead OSD has: while nobody else is up who knows of them, `ceph osd blocked-by` names that OSD;
then stock `ceph` shows the objects and who may have them, clients wait; nothing
is given up before that OSD is declared lost; then one placement group is reverted and another one's objects are deleted,
whoever waited is answered, and the OSD that comes back all the same does not bring anything back.

    unfound.py -c DIR/ceph.conf --bin BINARY
"""
import collections, json, os, signal, subprocess
from harness import Client, arguments, check, equal, match, until
from stock_cluster import read_pids

POOL = "unfound"
OLD, NEW = b"as it was before", b"what only a dead OSD has, and longer"

def put(client, name, content):
    client.rados("-p", POOL, "put", name, "-", input=content)

def get(client, name):
    path = client.path("got")
    client.rados("-p", POOL, "get", name, path)
    with open(client.work + "/got", "rb") as f:
        return f.read()

def stat(client, pg):
    stats = client.json("pg", "ls-by-pool", POOL)["pg_stats"]
    return next(s for s in stats if s["pgid"] == pg)

def clean(client):
    states = {s["state"] for s in client.json("pg", "ls-by-pool", POOL)["pg_stats"]}
    check(states == {"active+clean"}, states)
    return True

def kill(directory, osd):
    os.kill(read_pids(directory)["osd.%d" % osd], signal.SIGKILL)

def is_down(client, osd):
    return next(o for o in client.json("osd", "dump")["osds"] if o["osd"] == osd)["up"] == 0

def blocked_by(client):
    """Which OSDs are waited for, by how many placement groups; the text says the same."""
    told = {b["id"]: b["num_blocked"] for b in client.json("osd", "blocked-by")["osd_blocked_by"]["osd_blocked_by_infos"]}
    rows = [line.split() for line in client.ceph("osd", "blocked-by")[0].splitlines()]
    check(rows[:1] == [["osd", "num_blocked"]], rows)
    equal({int(osd): int(n) for osd, n in rows[1:]}, told, "osd blocked-by")
    return told

def waiting(client, *args):
    return subprocess.Popen(client.argv("rados", "-p", POOL, *args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

def deep_scrub(client, pg):
    before = stat(client, pg)["last_deep_scrub_stamp"]
    client.ceph("pg", "deep-scrub", pg)
    until(lambda: stat(client, pg)["last_deep_scrub_stamp"] != before, "the end of the deep scrub")
    equal(stat(client, pg)["state"], "active+clean", "after a deep scrub")

def main():
    a = arguments(__doc__).parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    up = lambda: subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    client = Client(a.conf)
    client.ceph("osd", "pool", "create", POOL, "8", "8")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    client.ceph("osd", "pool", "set", POOL, "size", "2")
    client.ceph("osd", "pool", "set", POOL, "min_size", "1")
    client.ceph("osd", "set", "noout")
    until(lambda: clean(client), "a clean pool")

    # Two placement groups on the same two OSDs.
    where = [client.json("osd", "map", POOL, "obj%d" % n) for n in range(60)]
    pairs = collections.defaultdict(lambda: collections.defaultdict(list))
    for m in where:
        pairs[frozenset(m["acting"])][m["pgid"]].append(m["objname"])
    pair, pgs = next((p, g) for p, g in pairs.items() if sum(len(names) >= 3 for names in g.values()) >= 2)
    (reverted, r), (deleted, d) = [(pg, names) for pg, names in pgs.items() if len(names) >= 3][:2]
    dies, stays = sorted(pair)
    for name in (r[0], r[2], d[0]):
        put(client, name, OLD)
    until(lambda: clean(client), "a clean pool")

    # One writes alone; the other one comes back, hears of it, and is not brought the objects before the first dies.
    client.ceph("osd", "set", "norecover")
    kill(directory, stays)
    until(lambda: is_down(client, stays), "osd.%d down" % stays)
    for name in (r[0], r[1], d[0], d[1]):
        put(client, name, NEW)
    equal(blocked_by(client), {}, "nobody is waited for")
    # It dies as well before the other one is back: who is back knows that it missed something, not what.
    kill(directory, dies)
    until(lambda: is_down(client, dies), "osd.%d down" % dies)
    client.run(a.bin, "osd", "-i", stays, "-c", a.conf)
    stats = lambda: client.json("pg", "ls-by-pool", POOL)["pg_stats"]
    waits_for = lambda: [s["pgid"] for s in stats() if "down" in s["state"].split("+") and s["blocked_by"] == [dies]]
    until(lambda: {reverted, deleted} <= set(waits_for()), "placement groups that are down", 60)
    until(lambda: blocked_by(client) == {dies: len(waits_for())}, "osd blocked-by", 30)
    up()
    both = lambda: all(len(stat(client, pg)["acting"]) == 2 and stat(client, pg)["state"].startswith("active") for pg in (reverted, deleted))
    until(both, "both OSDs active")
    until(lambda: blocked_by(client) == {}, "nobody waited for", 30)
    kill(directory, dies)
    until(lambda: is_down(client, dies), "osd.%d down" % dies)
    client.ceph("osd", "unset", "norecover")
    until(lambda: all("recovery_unfound" in stat(client, pg)["state"] for pg in (reverted, deleted)), "unfound objects")

    checks = until(lambda: client.json("health", "detail")["checks"] if "OBJECT_UNFOUND" in client.json("health")["checks"] else None, "health that tells of it")
    match(r"^4/\d+ objects unfound \(\d+\.\d+%\)$", checks["OBJECT_UNFOUND"]["summary"]["message"], "health")
    equal(sorted(x["message"] for x in checks["OBJECT_UNFOUND"]["detail"]), sorted("pg %s has 2 unfound objects" % pg for pg in (reverted, deleted)))
    match("Possible data damage: 2 pgs recovery_unfound", checks["PG_DAMAGED"]["summary"]["message"])
    listed = json.loads(client.ceph("pg", reverted, "list_unfound")[0])
    equal((listed["num_missing"], listed["num_unfound"], listed["more"]), (2, 2, False), "list_unfound")
    equal({o["oid"]["oid"]: o["have"] == "0'0" for o in listed["objects"]}, {r[0]: False, r[1]: True}, "what there is of them")
    equal(listed["might_have_unfound"], [{"osd": str(dies), "status": "osd is down"}], "who may have them")
    first = json.dumps(listed["objects"][0]["oid"])
    equal(len(json.loads(client.ceph("pg", reverted, "list_unfound", first)[0])["objects"]), 1, "behind the first one")
    query = json.loads(client.ceph("pg", deleted, "query")[0])
    check({"osd": str(dies), "status": "osd is down"} in query["recovery_state"][0]["might_have_unfound"], "query tells of it")

    # Whoever wants them waits; other objects of the same placement group are served.
    waits = {name: waiting(client, "get", name, client.path("waits-" + name)) for name in (r[0], r[1], d[0])}
    waits["write"] = waiting(client, "append", d[1], "/etc/hostname")
    equal(get(client, r[2]), OLD, "another object of the same placement group")
    for pg, how in ((reverted, "revert"), (deleted, "delete")):
        _, err = client.ceph("pg", pg, "mark_unfound_lost", how, rc=22)
        match("Error EINVAL: pg has 2 unfound objects but we haven't probed all sources, not marking lost", err)
    check(all(p.poll() is None for p in waits.values()), "clients wait")

    client.ceph("osd", "lost", dies, rc=1)
    _, err = client.ceph("osd", "lost", dies, "--yes-i-really-mean-it")
    match(r"marked osd lost in epoch \d+", err)
    for pg, how in ((reverted, "revert"), (deleted, "delete")):
        _, err = client.ceph("pg", pg, "mark_unfound_lost", how)
        match("pg has 2 objects unfound and apparently lost marking", err)
        _, err = client.ceph("pg", pg, "mark_unfound_lost", how)
        match("pg has no unfound objects", err)
    codes = {name: p.wait(30) for name, p in waits.items()}
    equal(codes, {r[0]: 0, r[1]: 1, d[0]: 1, "write": 0}, "what those who waited got")
    with open(client.work + "/waits-" + r[0], "rb") as f:
        equal(f.read(), OLD, "the reverted object")
    with open("/etc/hostname", "rb") as f:
        hostname = f.read()

    up()
    client.ceph("osd", "unset", "noout")
    until(lambda: clean(client), "a clean pool")
    until(lambda: "OBJECT_UNFOUND" not in client.json("health")["checks"], "health")
    for pg in (reverted, deleted):
        deep_scrub(client, pg)
    equal((get(client, r[0]), get(client, r[2]), get(client, d[1])), (OLD, OLD, hostname), "what is left")
    names = set(client.rados("-p", POOL, "ls")[0].split())
    equal(names, {r[0], r[2], d[1]}, "rados ls")
    sums = [stat(client, pg)["stat_sum"] for pg in (reverted, deleted)]
    equal([(s["num_objects"], s["num_bytes"]) for s in sums], [(2, 2 * len(OLD)), (1, len(hostname))], "sizes")
    client.close()
    print("4 objects that only a dead OSD had: reverted or deleted, and every copy equal")

if __name__ == "__main__":
    main()
