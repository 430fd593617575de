#!/usr/bin/python3
"""Placement groups are split while the stock `rados bench` writes and an OSD is killed with -9: 8 become 32, then 33, each with a place
of its own. No write fails, the stock `rados bench` reads every object back as it wrote it, `rados ls` lists each once, the manager
counts them right, a deep scrub finds nothing, and the cluster is clean again. Then the same the other way: 33 are merged until there
are 8.

    pg_num.py -c DIR/ceph.conf --bin BINARY
"""
import argparse, collections, os, signal, subprocess, sys, time
from harness import Client, check, equal, until
from kill_one import clean, finish
from stock_cluster import read_pids

POOL = "grows"

def bench(conf, *args):
    return subprocess.Popen(["rados", "-c", conf, "-p", POOL, "bench", *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

def pool(client):
    return next(p for p in client.json("osd", "dump")["pools"] if p["pool_name"] == POOL)

def reached(client, pg_num, pgp_num):
    p = pool(client)
    equal((p["pg_num"], p["pg_placement_num"]), (pg_num, pgp_num), "pg_num, pgp_num")
    return True

def names(conf):
    out = subprocess.run(["rados", "-c", conf, "-p", POOL, "ls"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return collections.Counter(out.splitlines())

def counted(client, objects):
    stats = next(p for p in client.json("df")["pools"] if p["name"] == POOL)["stats"]
    equal(stats["objects"], objects, "objects that the manager counts")
    return True

def scrubbed(client, since):
    pgs = [p for p in client.json("pg", "dump", "pgs")["pg_stats"] if p["pgid"].startswith("%d." % pool(client)["pool"])]
    check(all(p["last_deep_scrub_stamp"] > since for p in pgs), "placement groups are still being scrubbed")
    return True

def whole(client, conf, written):
    """The cluster is clean, and has what was written by each run once."""
    until(lambda: clean(client), "every placement group active and clean", 120)
    listed = names(conf)
    check(max(listed.values()) == 1, "objects are listed twice: %s" % [n for n, times in listed.items() if times > 1][:5])
    total = sum(written.values())
    # A run keeps two notes.
    check(total <= len(listed) <= total + 2 * len(written), "%d objects are listed, %d were written" % (len(listed), total))
    for run, n in written.items():
        read = finish(bench(conf, "600", "seq", "-t", "16", "--run-name", run), "rados bench seq")
        equal(int(read["Total reads made"]), n, "objects read back")
    until(lambda: counted(client, len(listed)), "the manager counts every object once", 60)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    client.ceph("osd", "pool", "deep-scrub", POOL)
    until(lambda: scrubbed(client, since), "a deep scrub of every placement group", 60)
    states = {p["state"] for p in client.json("pg", "dump", "pgs")["pg_stats"]}
    check(not any("inconsistent" in s for s in states), states)

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("-c", dest="conf", required=True)
    ap.add_argument("--bin", required=True)
    a = ap.parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    client.ceph("osd", "pool", "create", POOL, "8")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    # Data moves in steps of a twentieth otherwise, which takes minutes.
    client.ceph("config", "set", "mgr", "target_max_misplaced_ratio", "1")
    client.ceph("config", "set", "mgr", "mgr_stats_period", "2")
    # One scrub at a time per OSD would take a minute for so many.
    client.ceph("config", "set", "osd", "osd_max_scrubs", "40")
    until(lambda: clean(client), "every placement group active and clean", 60)
    writer = bench(a.conf, "20", "write", "-b", "16384", "-t", "16", "--no-cleanup", "--run-name", "first")
    time.sleep(3)
    client.ceph("osd", "pool", "set", POOL, "pg_num", "32")
    p = pool(client)
    equal((p["pg_num_target"], p["pg_placement_num_target"]), (32, 32), "targets")
    until(lambda: check(pool(client)["pg_num"] == 32, "not split yet") or True, "32 placement groups", 30)
    victim = sorted(name for name in read_pids(directory) if name.startswith("osd."))[0]
    os.kill(read_pids(directory)[victim], signal.SIGKILL)
    time.sleep(2)
    subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    client.ceph("osd", "pool", "set", POOL, "pg_num", "33")
    wrote = finish(writer, "rados bench write")
    until(lambda: reached(client, 33, 33), "33 placement groups, each with its place", 90)
    equal(client.json("osd", "pool", "get", POOL, "pg_num")["pg_num"], 33, "pg_num")
    written = {"first": int(wrote["Total writes made"])}
    whole(client, a.conf, written)
    print("8 placement groups became 33 under load, %s killed meanwhile: %d writes, all read back and listed once" % (victim, written["first"]))

    writer = bench(a.conf, "45", "write", "-b", "4096", "-t", "8", "--no-cleanup", "--run-name", "second")
    time.sleep(2)
    client.ceph("osd", "pool", "set", POOL, "pg_num", "8")
    p = pool(client)
    equal((p["pg_num_target"], p["pg_placement_num_target"]), (8, 8), "targets")
    until(lambda: check(pool(client)["pg_num"] < 30, "not merged yet") or True, "fewer than 30 placement groups", 60)
    os.kill(read_pids(directory)[victim], signal.SIGKILL)
    time.sleep(3)
    subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    wrote = finish(writer, "rados bench write")
    until(lambda: reached(client, 8, 8), "8 placement groups", 180)
    written["second"] = int(wrote["Total writes made"])
    whole(client, a.conf, written)
    print("33 became 8 under load, %s killed meanwhile: %d writes, all read back and listed once; longest wait %s s" % (
        victim, written["second"], wrote["Max latency(s)"]))
    client.close()

if __name__ == "__main__":
    main()
