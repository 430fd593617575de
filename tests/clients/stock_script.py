#!/usr/bin/python3
"""A deployment script written for stock daemons starts ours: stock tools make keys and maps, the names ceph-mon, ceph-osd
and ceph-mgr are ours. Then the admin sockets through the stock client, daemons in the foreground, and `up --foreground`.

    stock_script.py --bin BINARY
"""
import argparse, json, os, re, signal, shutil, subprocess, sys, tempfile, time
import harness, stock_cluster
from harness import Failed, check, equal, has_keys, match, test, until

class Cluster(stock_cluster.StockCluster):
    """What `StockCluster` does, with other programs behind the daemons' names."""

    def __init__(self, binary, base):
        self.names = base + "/bin"
        os.makedirs(self.names)
        for name in ("ceph-mon", "ceph-osd", "ceph-mgr"):
            os.symlink(binary, self.names + "/" + name)
        os.environ["PATH"] = self.names + ":" + os.environ["PATH"]
        self.binary = binary
        super().__init__(base + "/cluster", port=16900, size=4 << 30)

    def daemon(self, *argv):
        """A daemon in the foreground, as a supervisor runs it."""
        return subprocess.Popen([self.names + "/" + argv[0]] + list(argv[1:]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

def ended(process, seconds=20):
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Failed("%s does not end" % " ".join(process.args))
    return process.returncode, out + err

@test
def everything_the_script_started_serves(c):
    out, _ = c.ceph("osd", "stat")
    match(r"3 osds: 3 up .* 3 in", out, "osd stat")
    c.ceph("osd", "pool", "create", "p", "16")
    c.ceph("osd", "pool", "application", "enable", "p", "rados")
    c.rados("-p", "p", "put", "o", sys.executable, timeout=30)
    c.rados("-p", "p", "get", "o", c.path("copy"))
    equal(open(c.work + "/copy", "rb").read() == open(sys.executable, "rb").read(), True, "read back")
    until(lambda: c.ceph("health")[0].startswith("HEALTH_OK"), "HEALTH_OK", 30)
    ours = c.ceph("osd", "metadata", "0", "-f", "json")[0]
    equal(json.loads(ours)["osd_objectstore"], "cuttlebone", "whose daemons these are")

@test
def the_keys_of_the_script_are_the_clusters(c):
    for name, file in [("client.admin", "keyring"), ("osd.1", "osd.1/keyring"), ("mgr.x", "keyring")]:
        theirs = subprocess.run(["ceph-authtool", "-p", "-n", name, c.dir + "/" + file], capture_output=True, text=True, check=True).stdout
        equal(c.ceph("auth", "get-key", name)[0].strip(), theirs.strip(), name)

@test
def the_manager_by_name_says_where_it_is(c):
    p = c.cluster.daemon("ceph-mgr", "-c", c.conf, "-i", "x")
    code, said = ended(p, 5)
    equal(code, 0, "ceph-mgr -i x")
    match("runs inside the monitor", said, "ceph-mgr")
    p = c.cluster.daemon("ceph-mgr", "-f", "-c", c.conf, "-i", "x")
    time.sleep(0.5)
    equal(p.poll(), None, "ceph-mgr -f stays")
    p.terminate()
    equal(ended(p)[0], 0, "ceph-mgr -f ends on SIGTERM")
    equal(c.json("mgr", "stat")["available"], True, "mgr stat")

@test
def admin_sockets_answer_the_stock_client(c):
    sock = "%s/run/ceph-osd.0.asok" % c.dir
    def both(*words):
        """By name, and by the socket's path; the two must agree in shape."""
        by_name = json.loads(c.ceph("daemon", "osd.0", *words)[0])
        by_path = json.loads(c.run("ceph", "--admin-daemon", sock, *words)[0])
        equal(type(by_name), type(by_path), " ".join(words))
        return by_name
    has_keys(both("version"), "version release release_type", "version")
    has_keys(both("status"), "cluster_fsid osd_fsid whoami state oldest_map newest_map num_pgs", "status")
    equal(both("status")["state"], "active", "status")
    check("perf dump" in both("help") and "config set" in both("help"), "help lists commands")
    perf = both("perf", "dump")
    has_keys(perf, "osd", "perf dump")
    check(perf["osd"]["op"] > 0 or perf["osd"]["op_w"] >= 0, "perf dump counts")
    has_keys(both("perf", "schema"), "osd", "perf schema")
    shown = both("config", "show")
    equal(shown["osd_data"], c.dir + "/osd.0", "config show")
    both("config", "set", "osd_max_backfills", "7")
    equal(both("config", "get", "osd_max_backfills"), {"osd_max_backfills": "7"}, "config get")
    has_keys(both("dump_ops_in_flight"), "ops num_ops", "dump_ops_in_flight")
    has_keys(both("dump_historic_ops"), "ops size duration", "dump_historic_ops")
    has_keys(json.loads(c.ceph("daemon", "mon.a", "mon_status")[0]), "name rank state monmap quorum", "mon_status")
    has_keys(json.loads(c.ceph("daemon", "mon.a", "version")[0]), "version", "mon version")
    _, err = c.ceph("daemon", "osd.0", "no such command", rc=22)
    match("no valid command found|unrecognized|invalid", err, "unknown command")
    _, err = c.ceph("daemon", "osd.7", "version", rc=22)
    match("admin socket", err, "no such daemon")

@test
def daemons_run_in_the_foreground(c):
    pid = c.cluster.pids()["osd.2"]
    os.kill(pid, signal.SIGTERM)
    until(lambda: "osd.2" not in c.cluster.pids(), "osd.2 ends", 20)
    until(lambda: c.json("osd", "stat")["num_up_osds"] == 2, "the map says so", 30)
    for flag in ("-f", "-d"):
        p = c.cluster.daemon("ceph-osd", flag, "-c", c.conf, "-i", "2", "--keyring", c.dir + "/osd.2/keyring")
        until(lambda: c.json("osd", "stat")["num_up_osds"] == 3, "osd.2 %s is up" % flag, 30)
        equal(c.cluster.pids()["osd.2"], p.pid, "the pid file names the process itself")
        p.send_signal(signal.SIGINT)
        code, said = ended(p)
        equal(code, 0, "osd.2 %s ends in order" % flag)
        check(flag == "-d" or not said, "-f says nothing on standard error: %r" % said[:300])
        check(not os.path.exists(c.dir + "/run/ceph-osd.2.asok"), "its admin socket is gone")
        until(lambda: c.json("osd", "stat")["num_up_osds"] == 2, "it said farewell", 30)
    c.cluster.run("ceph-osd", "-c", c.conf, "-i", "2", "--keyring", c.dir + "/osd.2/keyring")
    until(lambda: c.json("osd", "stat")["num_up_osds"] == 3, "osd.2 in the background", 30)

@test
def logs_are_rotated_as_logrotate_does_it(c):
    pids = c.cluster.pids()
    logs = {name: "%s/log/%s" % (c.dir, name) for name in os.listdir(c.dir + "/log") if re.match(r"(?!client).*\.log$", name)}
    check(len(logs) >= 4, "logs: %s" % list(logs))
    for path in logs.values():
        os.rename(path, path + ".1")
    for pid in pids.values():
        os.kill(pid, signal.SIGHUP)
    until(lambda: all(os.path.exists(path) for path in logs.values()), "new files", 10)
    match("osd.0 starts", open(c.dir + "/log/" + next(n for n in logs if "osd.0" in n) + ".1").read(), "the old file keeps what was said")
    equal(c.cluster.pids(), pids, "nobody ended")
    os.kill(pids["osd.0"], signal.SIGTERM)
    until(lambda: "osd.0" not in c.cluster.pids(), "osd.0 ends", 20)
    match("osd.0 ends with 0", open(next(p for n, p in logs.items() if "osd.0" in n)).read(), "the new file")
    c.cluster.run("ceph-osd", "-c", c.conf, "-i", "0", "--keyring", c.dir + "/osd.0/keyring")
    until(lambda: c.json("osd", "stat")["num_up_osds"] == 3, "osd.0 again", 30)

@test
def mkfs_is_done_once_and_makes_keys_when_asked(c):
    again = c.cluster.daemon("ceph-osd", "-c", c.conf, "-i", "1", "--mkfs", "--osd-uuid", open(c.dir + "/osd.1/fsid").read().strip())
    equal(ended(again)[0], 0, "mkfs of what is formatted changes nothing")
    made = c.cluster.daemon("ceph-osd", "-c", c.conf, "-i", "9", "--mkfs", "--mkkey")
    code, said = ended(made)
    equal(code, 0, "mkfs --mkkey: " + said)
    keys = subprocess.run(["ceph-authtool", "-l", c.dir + "/keyring"], capture_output=True, text=True, check=True).stdout
    for name in ("osd.9", "client.admin", "mgr.x"):
        match(r"^\[%s\]" % name, keys, "the keyring of ceph.conf")
    shutil.rmtree(c.dir + "/osd.9")
    code, said = ended(c.cluster.daemon("ceph-mon", "-c", c.conf, "-i", "a", "--mkfs", "--keyring", c.dir + "/keyring"))
    check(code != 0 and said, "mkfs of a monitor that runs is refused: %r" % said)

@test
def versions_and_help(c):
    for name in ("ceph-mon", "ceph-osd", "ceph-mgr"):
        match("cuttlebone", c.cluster.run(name, "--version"), name)
        match("usage: " + name, c.cluster.run(name, "--help"), name)
        code, said = ended(c.cluster.daemon(name, "--frobnicate"))
        check(code != 0 and "--frobnicate" in said, "%s --frobnicate: %r" % (name, said))

@test
def up_in_the_foreground_stops_everything(c):
    home = c.work + "/fore"
    for sig in (signal.SIGINT, signal.SIGTERM):
        p = subprocess.Popen([c.cluster.binary, "up", "--dir", home, "--size", "1G", "--port", "16950", "--foreground"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until(lambda: os.path.exists(home + "/ceph.conf") and len(stock_cluster.read_pids(home)) == 4, "four daemons", 30)
        out, _ = c.run("ceph", "-c", home + "/ceph.conf", "osd", "stat")
        p.send_signal(sig)
        code, said = ended(p, 40)
        equal((code, stock_cluster.read_pids(home)), (0, {}), "nothing runs: " + said)
        equal(sorted(os.listdir(home + "/run")), ["lock"], "nothing is left in run/")
    p = subprocess.Popen([c.cluster.binary, "up", "--dir", home, "--foreground"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until(lambda: len(stock_cluster.read_pids(home)) == 4, "four daemons", 30)
    until(lambda: subprocess.run([c.cluster.binary, "down", "--dir", home], capture_output=True).returncode == 0, "down from elsewhere", 30)
    equal(ended(p)[0], 0, "up --foreground ends when everything was stopped")

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--only", action="append")
    a = ap.parse_args()
    base = tempfile.mkdtemp(prefix="cuttlebone-script.")
    cluster = Cluster(os.path.realpath(a.bin), base)
    client = None
    try:
        print("started as stock is started, in %.1f s" % cluster.start(), flush=True)
        client = harness.Client(cluster.conf)
        client.cluster = cluster
        return 1 if harness.run_all(client, a.only) else 0
    finally:
        if client:
            client.close()
        cluster.stop()
        shutil.rmtree(base, ignore_errors=True)

sys.exit(main())
