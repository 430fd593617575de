#!/usr/bin/python3
"""Four OSDs on machines with two networks each: they announce one address in each; an OSD that loses one of the networks is marked down
for it, whichever it is, and stays down, without coming and going, until it has the network again; meanwhile clients write and read. What heartbeats take is told of both networks.

    networks.py --bin BINARY [--keep]

Needs root, for network namespaces; says so and does nothing where it cannot have them, and fails if CI is set.
"""
import argparse, json, sys, time
from harness import Failed, check, until
from machines import Cluster, within_namespace

GONE = 2

def dump(c):
    return {o["osd"]: o for o in json.loads(c.ceph("osd", "dump", "-f", "json"))["osds"]}

def check_addresses(c):
    ip = lambda text: text.split(":")[0]
    for osd, o in dump(c).items():
        m = next(m for m in c.machines if m.name == "osd.%d" % osd)
        check(ip(o["public_addr"]) == ip(o["heartbeat_front_addr"]) == m.addrs[0], o)
        check(ip(o["cluster_addr"]) == ip(o["heartbeat_back_addr"]) == m.addrs[1], o)
        meta = json.loads(c.ceph("osd", "metadata", osd, "-f", "json"))
        check((meta["front_iface"], meta["back_iface"]) == ("eth0", "eth1"), meta)

def write(c, name):
    c.rados("p", "put", name, "/etc/hostname")
    check(c.rados("p", "get", name, "-") == open("/etc/hostname").read(), "another content")

def lose(c, which):
    m = next(m for m in c.machines if m.name == "osd.%d" % GONE)
    came_up = dump(c)[GONE]["up_from"]
    at = time.monotonic()
    getattr(m, "begin_" + which)()
    until(lambda: not dump(c)[GONE]["up"], "osd.%d down without its %s network" % (GONE, which), 30)
    noticed = time.monotonic() - at
    for n in range(20):
        write(c, "%s.%d" % (which, n))
        time.sleep(1)
        o = dump(c)[GONE]
        check(not o["up"] and o["up_from"] == came_up, "it came up behind a broken network: %s" % o)
    check(all(o["up"] for osd, o in dump(c).items() if osd != GONE), "others were taken for dead, too")
    at = time.monotonic()
    getattr(m, "end_" + which)()
    until(lambda: dump(c)[GONE]["up"], "osd.%d up with its %s network" % (GONE, which), 60)
    back = time.monotonic() - at
    until(c.clean, "every placement group active and clean", 60)
    print("%s: marked down after %.1f s, up again %.1f s after the network was whole" % (which, noticed, back), flush=True)

def slow(c):
    """What heartbeats take is told by network, and is a warning from the configured time on."""
    health = lambda: json.loads(c.ceph("health", "detail", "-f", "json"))["checks"]
    codes = ["OSD_SLOW_PING_TIME_" + which for which in ("BACK", "FRONT")]
    check(not any(code in health() for code in codes), health())
    c.ceph("config", "set", "global", "mon_warn_on_slow_ping_time", "0.001")
    until(lambda: all(code in health() for code in codes), "heartbeats of a microsecond to be slow", 90)
    for code in codes:
        found, which = health()[code], code.rsplit("_", 1)[1].lower()
        check(found["summary"]["message"].startswith("Slow OSD heartbeats on %s (longest " % which), found)
        check(all(" on %s from osd." % which in d["message"] for d in found["detail"]), found)
    c.ceph("config", "rm", "global", "mon_warn_on_slow_ping_time")
    until(lambda: not any(code in health() for code in codes), "no slow heartbeats", 30)
    shown = json.loads(c.ceph("tell", "osd.0", "dump_osd_network", "0"))["entries"]
    check({e["interface"] for e in shown} == {"back", "front"} and all(e["min"]["15min"] <= e["average"]["15min"] <= e["max"]["15min"] for e in shown), shown)
    print("heartbeats: %.3f ms on average at most" % max(e["average"]["15min"] for e in shown), flush=True)

def run(c):
    c.make()
    check_addresses(c)
    c.ceph("osd", "pool", "create", "p", 16)
    c.ceph("osd", "pool", "application", "enable", "p", "rados")
    until(c.clean, "every placement group active and clean", 60)
    for which in ("back", "front"):
        lose(c, which)
    slow(c)

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--keep", action="store_true", help="keep the cluster's directory")
    ap.add_argument("--within", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.within is None:
        return within_namespace("networks")
    c, ok = Cluster(a.bin, a.within), False
    try:
        run(c)
        ok = True
    except Failed as e:
        print("FAIL: %s" % e, flush=True)
        for m in c.machines:
            print(m.log(25))
    finally:
        c.remove(a.keep)
    sys.exit(0 if ok else 1)

if __name__ == "__main__":
    main()
