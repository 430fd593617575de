#!/usr/bin/python3
"""Nine OSDs of three sizes and two device classes on three CRUSH hosts, with the stock `ceph` and `rados`: a pool of 256 placement groups on
one class stands on three hosts; disks that are filled unevenly come within three points of each other, by a plan and by themselves, and
every rule holds, without upmaps as well (`crush-compat`); what breaks a rule is dropped; pools get numbers of placement groups.

    UP="--osds 9 --hosts 3 --device-class nvme,nvme,ssd" SIZE=512M,1G,1536M,1536M,512M,1G,1G,1536M,512M \\
        tests/clients/on_fresh_cluster BINARY tests/clients/balance.py
"""
import subprocess
from harness import Client, arguments, check, equal, match, until
from kill_one import clean

POOL = "data"

def hosts(client):
    """OSD to host, OSD to device class."""
    nodes = client.json("osd", "tree")["nodes"]
    where = {osd: n["name"] for n in nodes if n["type"] == "host" for osd in n["children"]}
    return where, {n["id"]: n.get("device_class") for n in nodes if n["type"] == "osd"}

def laid_out(client):
    where, classes = hosts(client)
    equal(sorted(where.values()), ["host1"] * 3 + ["host2"] * 3 + ["host3"] * 3, "hosts of OSDs")
    equal([classes[osd] for osd in range(9)], ["nvme", "nvme", "ssd"] * 3, "device classes")
    equal(client.json("osd", "crush", "rule", "dump", "replicated_rule")["steps"][1]["type"], "host", "failure domain of the first rule")

def script(client, conf):
    """What operators write down, word for word."""
    client.ceph("osd", "crush", "rule", "create-replicated", "nvme-only", "default", "host", "nvme")
    client.ceph("osd", "pool", "create", "nvme-replicated", "256", "256", "replicated")
    for name, value in [("size", "3"), ("min_size", "2"), ("crush_rule", "nvme-only")]:
        client.ceph("osd", "pool", "set", "nvme-replicated", name, value)
    subprocess.run(["rados", "-c", conf, "-p", "nvme-replicated", "put", "test-nvme", "/etc/hostname"], check=True)
    up = client.json("osd", "map", "nvme-replicated", "test-nvme")["up"]
    where, classes = hosts(client)
    equal((len({where[osd] for osd in up}), {classes[osd] for osd in up}), (3, {"nvme"}), "hosts and classes of %s" % up)

def fill(client, conf):
    client.ceph("osd", "pool", "create", POOL, "128", "128")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    args = ["bench", "60", "write", "-b", str(1 << 20), "--max-objects", "1000", "--no-cleanup"]
    subprocess.run(["rados", "-c", conf, "-p", POOL, *args], check=True, stdout=subprocess.DEVNULL)
    until(lambda: clean(client), "every placement group active and clean", 60)
    copies = lambda: next(p for p in client.json("df")["pools"] if p["name"] == POOL)["stats"]["bytes_used"] >= 3 * 1000 << 20
    until(copies, "every OSD has reported what it holds", 30)

def off(client):
    """By how many points the OSD that is furthest off differs from all together."""
    df = client.json("osd", "df")
    mean = df["summary"]["average_utilization"]
    return max(abs(n["utilization"] - mean) for n in df["nodes"])

def score(client):
    return float(client.ceph("balancer", "eval")[0].split("score ")[1].split(" ")[0])

def rules_hold(client):
    where, _ = hosts(client)
    for pg in client.json("pg", "ls-by-pool", POOL)["pg_stats"]:
        equal(len({where[osd] for osd in pg["up"]}), 3, "hosts of %s, on %s" % (pg["pgid"], pg["up"]))

def planned(client):
    """A plan is made, looked at and carried out."""
    client.ceph("balancer", "optimize", "tryout", POOL)
    equal(client.json("balancer", "ls"), ["tryout"], "plans")
    shown, _ = client.ceph("balancer", "show", "tryout")
    match(r"(?s)# starting osdmap epoch \d+\n# starting crush version \d+\n# mode upmap\nceph osd pg-upmap-items \d+\.[0-9a-f]+ \d+ \d+", shown, "the plan")
    items = client.json("balancer", "dump", "tryout")["new_pg_upmap_items"]
    check(1 <= len(items) <= 10, "%d upmaps in a plan" % len(items))
    client.ceph("balancer", "execute", "tryout")
    there = {i["pgid"] for i in client.json("osd", "dump")["pg_upmap_items"]}
    check({i["pgid"] for i in items} <= there, "what was planned is in the map")
    equal(client.json("balancer", "ls"), [], "plans")

def even(client):
    check(clean(client), "placement groups are not clean")
    status = client.json("balancer", "status")
    check(status["optimize_result"].startswith("Unable to find further optimization"), status["optimize_result"])
    # By weights it never says that none is needed, as in stock.
    equal(status["no_optimization_needed"], status["mode"] == "upmap", "whether no optimization is needed")
    furthest = off(client)
    check(furthest < 3, "an OSD is %.2f points off" % furthest)
    return True

def balanced(client):
    before = off(client), score(client)
    check(before[0] > 3, "OSDs are even before: %.2f points off" % before[0])
    planned(client)
    client.ceph("balancer", "on")
    until(lambda: even(client), "OSDs within three points", 90)
    rules_hold(client)
    after = off(client), score(client)
    check(after[1] < before[1], "score %f, was %f" % (after[1], before[1]))
    print("furthest OSD %.2f points off before, %.2f after; score %f before, %f after" % (before[0], after[0], before[1], after[1]))
    client.ceph("balancer", "off")
    equal(client.json("balancer", "status")["active"], False, "active")

def by_weights(client):
    """The same without upmaps: by a weight set that every client understands."""
    for item in client.json("osd", "dump")["pg_upmap_items"]:
        client.ceph("osd", "rm-pg-upmap-items", item["pgid"])
    until(lambda: clean(client), "every placement group clean again", 60)
    client.ceph("balancer", "mode", "crush-compat")
    equal(client.json("balancer", "status")["mode"], "crush-compat", "mode")
    before = off(client)
    # As soon as it has heard of its new mode.
    planned = lambda: client.ceph("balancer", "optimize", "weights") and "crush-compat" in client.ceph("balancer", "show", "weights")[0]
    until(planned, "a plan of weights", 20)
    shown, _ = client.ceph("balancer", "show", "weights")
    match(r"(?s)# starting osdmap epoch \d+\n.*# mode crush-compat\nceph osd crush weight-set create-compat\nceph osd crush weight-set reweight-compat osd\.\d \d\.\d+\n", shown, "the plan")
    client.ceph("balancer", "execute", "weights")
    equal(client.ceph("osd", "crush", "weight-set", "ls")[0], "(compat)\n", "weight sets")
    client.ceph("balancer", "on")
    until(lambda: even(client), "OSDs within three points", 90)
    client.ceph("balancer", "off")
    rules_hold(client)
    equal(client.json("osd", "dump")["pg_upmap_items"], [], "upmaps")
    print("by weights: furthest OSD %.2f points off before, %.2f after" % (before, off(client)))
    client.ceph("balancer", "mode", "upmap")

def foreign(client):
    """Somebody else reads the maps and sets upmaps: what the rule allows stays, what it does not is dropped."""
    where, _ = hosts(client)
    taken = {i["pgid"] for i in client.json("osd", "dump")["pg_upmap_items"]}
    pg = next(p for p in client.json("pg", "ls-by-pool", POOL)["pg_stats"] if p["pgid"] not in taken)
    first, second = pg["up"][:2]
    sibling = lambda osd: next(o for o in where if where[o] == where[osd] and o != osd and o not in pg["up"])
    has = lambda: [i["mappings"] for i in client.json("osd", "dump")["pg_upmap_items"] if i["pgid"] == pg["pgid"]]
    client.ceph("osd", "pg-upmap-items", pg["pgid"], str(first), str(sibling(second)))
    equal(has(), [], "an upmap that puts two copies on one host")
    client.ceph("osd", "pg-upmap-items", pg["pgid"], str(first), str(sibling(first)))
    equal(has(), [[{"from": first, "to": sibling(first)}]], "an upmap within a host")
    client.ceph("osd", "rm-pg-upmap-items", pg["pgid"])
    equal(has(), [], "an upmap that was taken away")
    out, _ = client.ceph("osd", "test-reweight-by-pg", "101")
    match(r"(?s)moved \d+ / \d+ .*\navg .*\nstddev .* -> .* \(expected baseline .*\).*oload 101\n", out, "the foresight")

def numbers(client):
    """A pool that is to be large gets many placement groups, others some, and all can be left alone."""
    client.ceph("osd", "pool", "create", "large", "--bulk", "--autoscale-mode", "on")
    client.ceph("osd", "pool", "create", "small", "--autoscale-mode", "on")
    status = {p["pool_name"]: p for p in client.json("osd", "pool", "autoscale-status")}
    equal((status["large"]["bulk"], status["small"]["bulk"]), (True, False), "bulk")
    equal((status["large"]["pg_num_target"], status["small"]["pg_num_target"]), (256, 32), "numbers of placement groups")
    check(not status["large"]["would_adjust"] and not status["small"]["would_adjust"], "numbers are good from the beginning")
    client.ceph("osd", "pool", "set", "noautoscale")
    equal({p["pg_autoscale_mode"] for p in client.json("osd", "dump")["pools"]}, {"off"}, "modes")

def main():
    a = arguments(__doc__, bin=False).parse_args()
    client = Client(a.conf)
    client.ceph("balancer", "off")
    for name, value in [("mgr/balancer/sleep_interval", "1"), ("target_max_misplaced_ratio", "0.3"), ("mgr_stats_period", "1")]:
        client.ceph("config", "set", "mgr", name, value)
    laid_out(client)
    script(client, a.conf)
    fill(client, a.conf)
    balanced(client)
    by_weights(client)
    foreign(client)
    numbers(client)
    print("balanced")

main()
