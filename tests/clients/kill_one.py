#!/usr/bin/python3
"""One OSD after another is killed with -9 and started again while the stock `rados bench` writes. No write fails, and
afterwards the stock `rados bench` reads every object back and finds in it what it wrote; the cluster is clean again.

    kill_one.py -c DIR/ceph.conf --bin BINARY [--rounds 2]
"""
import os, re, signal, subprocess, sys, time
from harness import Client, arguments, check, until
from stock_cluster import read_pids

def bench(client, *args):
    return subprocess.Popen(client.argv("rados", "-p", "kill", "bench", *args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

def finish(p, what):
    out = p.communicate()[0]
    if p.returncode or re.search("error|corrupt|differ|fail", out, re.I):
        sys.exit("%s: exit code %d\n%s" % (what, p.returncode, out))
    return {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in out.splitlines()) if v}

def clean(client):
    pgs = client.json("-s")["pgmap"]
    states = {s["state_name"]: s["count"] for s in pgs["pgs_by_state"]}
    check(states == {"active+clean": pgs["num_pgs"]}, states)
    return True

def main():
    ap = arguments(__doc__)
    ap.add_argument("--rounds", type=int, default=2)
    a = ap.parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    client.ceph("osd", "pool", "create", "kill", "16")
    osds = sorted(name for name in read_pids(directory) if name.startswith("osd."))
    seconds = 5 * a.rounds * len(osds)
    # Small objects and few at a time: many requests are under way when an OSD dies, and the disk stays small.
    writer = bench(client, str(seconds), "write", "-b", "16384", "-t", "16", "--no-cleanup")
    for name in osds * a.rounds:
        time.sleep(2)
        os.kill(read_pids(directory)[name], signal.SIGKILL)
        time.sleep(1.5)
        subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    wrote = finish(writer, "rados bench write")
    until(lambda: clean(client), "every placement group active and clean", 120)
    read = finish(bench(client, "600", "seq", "-t", "16"), "rados bench seq")
    if wrote["Total writes made"] != read["Total reads made"]:
        sys.exit("%s objects written, %s read" % (wrote["Total writes made"], read["Total reads made"]))
    print("%d OSDs killed under load: %s writes acknowledged, all read back as written; longest wait %s s" % (
        len(osds) * a.rounds, wrote["Total writes made"], wrote["Max latency(s)"]))
    client.close()

if __name__ == "__main__":
    main()
