#!/usr/bin/python3
"""All monitors of a cluster in use are lost: everything is killed with -9, their stores are removed, `cuttlebone mon recover`
makes one from what the OSDs kept, `up` brings the others. Every object reads back, users keep their keys, options their
values, writes go on, and the cluster is healthy. Then the same by hand, as docs/operations.md says it for OSDs on several machines:
asked on each, recovered where the newest map is, every daemon started by itself. Then without any keyring of the monitors.

    recover_monitors.py -c DIR/ceph.conf --bin BINARY
"""
import glob, os, re, shutil, signal, subprocess, time
import rados
from harness import Client, arguments, check, equal, match, until
from kill_one import clean
from stock_cluster import read_pids

def main():
    a = arguments(__doc__).parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    def run(*argv, fails=False):
        out = subprocess.run([a.bin, *argv], capture_output=True, text=True, timeout=120)
        check((out.returncode != 0) == fails, "%s: %d %s%s" % (argv, out.returncode, out.stdout, out.stderr))
        return out.stdout + out.stderr
    def connect(**who):
        cluster = rados.Rados(conffile=a.conf, **who)
        cluster.connect(timeout=30)
        return cluster
    def kill_all():
        for pid in read_pids(directory).values():
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(os.path.exists("/proc/%d/cmdline" % p) and open("/proc/%d/cmdline" % p).read() for p in read_pids(directory).values()), "the end of all", 10)
    mons = sorted(glob.glob(directory + "/mon.*"))
    check(len(mons) >= 1, "monitors' directories")

    client.ceph("osd", "pool", "create", "kept", "16")
    client.ceph("osd", "pool", "application", "enable", "kept", "rados")
    client.ceph("config", "set", "osd", "osd_max_backfills", "3")
    client.ceph("config-key", "set", "some/key", "some value")
    user = client.ceph("auth", "get-or-create", "client.user", "mon", "allow r", "osd", "allow rw pool=kept")[0]
    keyring = directory + "/user.keyring"
    open(keyring, "w").write(user)
    until(lambda: clean(client), "every placement group active and clean", 60)
    io = connect().open_ioctx("kept")
    wanted = {}
    for n in range(500):
        wanted["o%d" % n] = os.urandom(1 + n * 97 % 40000)
        io.write_full("o%d" % n, wanted["o%d" % n])
    io.close()
    # OSDs are given what changed within seconds.
    time.sleep(7)
    # Something that no copy has seen: the OSDs' maps have it.
    client.ceph("osd", "reweight", "0", "0.9")
    dump = client.json("osd", "dump")
    # A monitor that is made anew makes a key for the manager beside it.
    everybody = lambda: [u for u in client.json("auth", "ls")["auth_dump"] if not u["entity"].startswith("mgr.")]
    users = everybody()

    text = run("mon", "recover", "--dir", directory, fails=True)
    match("osd.0 runs .process [0-9]+.: stop all OSDs first", text, "what is said while OSDs run")
    kill_all()
    text = run("mon", "recover", "--dir", directory, fails=True)
    match("holds a monitor.s store: monitors are recovered from OSDs only when all are lost", text, "what is said while a monitor is there")
    for mon in mons:
        shutil.rmtree(mon + "/kv")
    text = run("mon", "recover", "--dir", directory, "--dry-run")
    match("osd.2: osdmaps [0-9]+ to [0-9]+, the monitors' state 0.[0-9]+", text, "what OSDs kept")
    check(not os.path.exists(mons[0] + "/kv"), "a dry run makes a store")
    text = run("mon", "recover", "--dir", directory)
    match("mon.a recovered from 3 OSDs: osdmaps [0-9]+ to [0-9]+, [0-9]+ keys, [2-5] options", text, "what recover says")
    run("up", "--dir", directory)

    names = [os.path.basename(m)[4:] for m in mons]
    def whole():
        match("^HEALTH_OK", client.ceph("health")[0], "health")
        return clean(client)
    until(whole, "HEALTH_OK with all clean", 90)
    quorum = lambda: sorted(client.json("quorum_status")["quorum_names"])
    equal(quorum(), names, "the quorum")
    def same():
        now = client.json("osd", "dump")
        equal(now["fsid"], dump["fsid"], "fsid")
        check(now["epoch"] > dump["epoch"], "the osdmap went back")
        equal([(p["pool"], p["pool_name"], p["create_time"]) for p in now["pools"]], [(p["pool"], p["pool_name"], p["create_time"]) for p in dump["pools"]], "pools")
        equal(now["osds"][0]["weight"], dump["osds"][0]["weight"], "a weight")
        equal(client.ceph("config", "get", "osd", "osd_max_backfills")[0].strip(), "3", "an option")
    same()
    equal(client.ceph("config-key", "get", "some/key")[0].strip(), "some value", "a config-key")
    equal(everybody(), users, "users and their keys")
    def everything(cluster, round):
        io = cluster.open_ioctx("kept")
        for name, data in wanted.items():
            equal(io.read(name, 1 << 20), data, name)
        for n in range(0, 500, 5):
            wanted["o%d" % n] = b"written in round %d" % round
            io.write_full("o%d" % n, wanted["o%d" % n])
        for n in range(0, 500, 5):
            equal(io.read("o%d" % n), wanted["o%d" % n], "what was written since")
        cluster.shutdown()
    everything(connect(rados_id="user", conf={"keyring": keyring}), 1)

    # OSDs on two machines, by hand. The second one's has not seen the newest map.
    at = {m["name"]: m["public_addr"].split("/")[0] for m in client.json("mon", "dump")["mons"]}
    time.sleep(7)
    os.kill(read_pids(directory)["osd.2"], signal.SIGKILL)
    until(lambda: not client.json("osd", "dump")["osds"][2]["up"], "osd.2 down", 30)
    client.ceph("osd", "blocklist", "add", "10.9.9.9:0/1", "3600")
    dump = client.json("osd", "dump")
    until(lambda: client.json("tell", "osd.0", "status")["newest_map"] >= dump["epoch"], "a map on the first machine", 30)
    kill_all()
    for mon in mons:
        shutil.rmtree(mon)
    recover = ("mon", "recover", "-c", a.conf, "-i", names[0], "--keyring", directory + "/keyring")
    machines = [("--osd-data", directory + "/osd.0", "--osd-data", directory + "/osd.1"), ("--osd-data", directory + "/osd.2")]
    newest = [max(int(n) for n in re.findall(r"osdmaps \d+ to (\d+)", run(*recover, *osds, "--dry-run"))) for osds in machines]
    check(newest[0] >= dump["epoch"] > newest[1], "the newest maps: %s, %d in the monitors" % (newest, dump["epoch"]))
    check(not os.path.exists(mons[0]), "a dry run makes a monitor")
    text = run(*recover, *machines[0])
    match("mon.%s recovered from 2 OSDs: osdmaps [0-9]+ to %d, [0-9]+ keys, [2-5] options" % (names[0], newest[0]), text, "what recover says")
    match("next: start mon.%s, then the OSDs; other monitors join with empty stores" % names[0], text, "what comes next")
    run("mon", "-i", names[0], "-c", a.conf)
    for osd in "012":
        run("osd", "-i", osd, "-c", a.conf)
    for name in names[1:]:
        client.ceph("mon", "getmap", "-o", directory + "/map")
        client.ceph("auth", "get", "mon.", "-o", directory + "/key")
        run("mon", "-i", name, "-c", a.conf, "--mkfs", "--monmap", directory + "/map", "--keyring", directory + "/key")
        run("mon", "-i", name, "-c", a.conf, "--public-addr", at[name])
    until(whole, "HEALTH_OK with all clean", 90)
    equal(quorum(), names, "the quorum")
    same()
    match("^10.9.9.9:0/1 ", client.ceph("osd", "blocklist", "ls")[0], "what only the newest map says")
    equal(client.ceph("config-key", "get", "some/key")[0].strip(), "some value", "a config-key")
    equal(everybody(), users, "users and their keys")
    everything(connect(rados_id="user", conf={"keyring": keyring}), 2)

    # The keys of the monitors are lost with them.
    time.sleep(7)
    kill_all()
    for mon in mons:
        shutil.rmtree(mon)
    os.remove(directory + "/keyring")
    text = run("mon", "recover", "--dir", directory)
    match("the keys that OSDs kept are sealed, and the key of mon. that opens them is in none of", text, "what is said of keys")
    run("up", "--dir", directory, "--mons", str(len(mons)))
    client.close()
    client = Client(a.conf)
    until(whole, "HEALTH_OK with all clean", 90)
    same()
    check("client.user" not in [u["entity"] for u in client.json("auth", "ls")["auth_dump"]], "a key from nowhere")
    everything(connect(), 3)
    out = subprocess.run(["bash", "-c", "'%s' status --dir '%s' | true" % (a.bin, directory)], capture_output=True, text=True, timeout=60)
    equal(out.stderr, "", "what is said when nobody reads a status")
    print("%d objects read back after all monitors were lost, three times" % len(wanted))
    client.close()

if __name__ == "__main__":
    main()
