"""The stock `ceph` command, every command of the foundation, with what it must print."""
import os, re, subprocess
from harness import *

@test
def status_and_health(c):
    out, _ = c.ceph("-s")
    match(r"^  cluster:\n    id:     [0-9a-f-]{36}\n    health: HEALTH_", out, "-s")
    match(r"^    mon: \d+ daemons?, quorum ", out, "-s mon")
    match(r"^    mgr: \w+\(active, since ", out, "-s mgr")
    match(r"^    osd: \d+ osds: \d+ up \(since .*\), \d+ in \(since ", out, "-s osd")
    match(r"^    usage:   .* used, .* / .* avail$", out, "-s usage")
    s = c.json("status")
    has_keys(s, "fsid health quorum quorum_names quorum_age monmap osdmap pgmap fsmap mgrmap servicemap progress_events", "status")
    has_keys(s["osdmap"], "epoch num_osds num_up_osds num_in_osds num_remapped_pgs", "status osdmap")
    has_keys(s["pgmap"], "pgs_by_state num_pgs num_pools num_objects data_bytes bytes_used bytes_avail bytes_total", "status pgmap")
    match(r"^HEALTH_(OK|WARN)", c.ceph("health")[0])
    match(r"^HEALTH_(OK|WARN)", c.ceph("health", "detail")[0])
    has_keys(c.json("health"), "status checks mutes", "health")
    out, _ = c.ceph("status", "-f", "json-pretty")
    match(r'^\{\n    "fsid": "', out.lstrip("\n"), "json-pretty")

@test
def small_facts(c):
    fsid = c.ceph("fsid")[0].strip()
    equal(len(fsid), 36, "fsid")
    equal(c.json("fsid")["fsid"], fsid, "fsid json")
    version = c.ceph("version")[0].strip()
    match(r"^ceph version \d+\.\d+\.\d+ \(.*\) \w+ \(stable\)$", version, "version")
    equal(c.json("version"), {"version": version}, "version json")
    versions = c.json("versions")
    has_keys(versions, "mon mgr osd overall", "versions")
    equal(versions["mon"], {version: len(c.json("mon", "dump")["mons"])}, "the monitors' versions")
    has_keys(c.json("features"), "mon osd", "features")
    q = c.json("quorum_status")
    has_keys(q, "election_epoch quorum quorum_names quorum_leader_name quorum_age monmap", "quorum_status")
    has_keys(c.json("time-sync-status"), "timechecks", "time-sync-status")
    has_keys(c.json("report"), "version health monmap_first_committed osdmap crushmap paxos", "report")

@test
def mon_and_mgr(c):
    out, err = c.ceph("mon", "dump")
    match(r"^epoch \d+\nfsid [0-9a-f-]+\n", out)
    match(r"dumped monmap epoch \d+", err)
    m = c.json("mon", "dump")
    has_keys(m, "epoch fsid modified created min_mon_release mons quorum", "mon dump")
    match(r"^e\d+: \d+ mons", c.ceph("mon", "stat")[0])
    name = m["mons"][0]["name"]
    has_keys(c.json("mon", "metadata", name), "addrs hostname ceph_version", "mon metadata")
    g = c.json("mgr", "dump")
    has_keys(g, "epoch active_gid active_name available standbys modules", "mgr dump")
    check(g["available"], "mgr is not available")
    has_keys(c.json("mgr", "stat"), "epoch available active_name num_standby", "mgr stat")
    has_keys(c.json("mgr", "module", "ls"), "always_on_modules enabled_modules disabled_modules", "mgr module ls")
    has_keys(c.json("tell", "mon.%s" % name, "version"), "version", "tell mon version")
    has_keys(c.json("tell", "mon.%s" % name, "mon_status"), "name rank state quorum monmap stretch_mode", "mon_status")
    check(all(set(row) == {"features", "release", "num"} for rows in c.json("tell", "mon.%s" % name, "mon_status")["feature_map"].values() for row in rows), "feature_map")
    cluster = c.json("tell", "mon.%s" % name, "perf", "dump")["cluster"]
    osds = c.json("osd", "stat")
    equal([cluster[k] for k in ("num_osd", "num_osd_up", "num_osd_in")], [osds[k] for k in ("num_osds", "num_up_osds", "num_in_osds")], "perf dump of a monitor")
    check(cluster["osd_bytes"] > cluster["osd_bytes_avail"] > 0 and cluster["osd_epoch"] > 0, "perf dump of a monitor: %r" % cluster)
    has_keys(c.json("tell", "mon.%s" % name, "perf", "schema")["cluster"]["num_osd"], "type metric_type description", "perf schema of a monitor")
    # As stock has it, in JSON as well.
    equal(c.ceph("osd", "get-require-min-compat-client", "-f", "json")[0].strip(), "luminous", "get-require-min-compat-client")

@test
def what_is_not_built_says_so(c):
    # The client's exit code is the errno: EOPNOTSUPP, or ENOENT where stock says so without an orchestrator.
    for words in ("osd tier add a b", "osd tier cache-mode a writeback", "osd tier set-overlay a b", "osd tier rm a b", "mon enable_stretch_mode a b c",
                  "mon set election_strategy connectivity", "mon set_location a host=b", "crash ls", "device ls"):
        match("Cuttlebone", c.ceph(*words.split(), rc=95)[1], words)
    match("No orchestrator configured", c.ceph("orch", "ls", rc=2)[1], "orch ls")
    c.ceph("mon", "enable-msgr2")
    c.ceph("mon", "set", "election_strategy", "classic")

@test
def osd_facts(c):
    out, _ = c.ceph("osd", "tree")
    match(r"^ID +CLASS +WEIGHT +TYPE NAME +STATUS +REWEIGHT +PRI-AFF\n-1 .* root default", out)
    match(r"^ 0 +\w+ +\d+\.\d{5} +osd\.0 +up +1\.00000 +1\.00000$", out)
    t = c.json("osd", "tree")
    has_keys(t, "nodes stray", "osd tree")
    osd = next(n for n in t["nodes"] if n["id"] == 0)
    has_keys(osd, "id device_class name type type_id crush_weight depth exists status reweight primary_affinity", "osd tree osd")
    match(r"^\d+ osds: \d+ up \(since .*\), \d+ in \(since .*\); epoch: e\d+", c.ceph("osd", "stat")[0])
    has_keys(c.json("osd", "stat"), "epoch num_osds num_up_osds num_in_osds", "osd stat")
    out, _ = c.ceph("osd", "dump")
    match(r"^epoch \d+\nfsid [0-9a-f-]+\ncreated .*\nmodified .*\nflags ", out)
    match(r"^osd\.0 up   in  weight 1 up_from \d+ up_thru \d+ down_at \d+ last_clean_interval \[\d+,\d+\) \[?v2:", out)
    d = c.json("osd", "dump")
    has_keys(d, "epoch fsid created modified flags flags_set crush_version full_ratio backfillfull_ratio nearfull_ratio pools osds osd_xinfo pg_upmap pg_upmap_items pg_temp primary_temp blocklist erasure_code_profiles require_osd_release", "osd dump")
    equal(c.ceph("osd", "ls")[0].split()[:3], ["0", "1", "2"], "osd ls")
    f = c.json("osd", "find", 0)
    has_keys(f, "osd addrs osd_fsid host crush_location", "osd find")
    has_keys(c.json("osd", "metadata", 0), "id hostname ceph_version osd_data osd_objectstore front_addr back_addr", "osd metadata")
    seq = int(c.ceph("tell", "osd.0", "flush_pg_stats")[0])
    until(lambda: int(c.ceph("osd", "last-stat-seq", 0)[0]) >= seq, "a report of osd.0 that was flushed", 30)
    equal(c.ceph("osd", "last-stat-seq", 999)[0].strip(), "0", "reports of no OSD")
    c.ceph("osd", "getmap", "-o", c.path("osdmap"))
    c.ceph("osd", "getcrushmap", "-o", c.path("crush"))
    match(r"^fsid ", c.run("osdmaptool", "--print", c.path("osdmap"))[0]) if have("osdmaptool", c) else None
    if have("crushtool", c):
        c.run("crushtool", "-d", c.path("crush"), "-o", c.path("crush.txt"))
        c.run("crushtool", "-c", c.path("crush.txt"), "-o", c.path("crush2"))
        _, err = c.ceph("osd", "setcrushmap", "-i", c.path("crush2"))
        match(r"^\d+$", err.strip(), "setcrushmap prints the crush version")
    _, err = c.ceph("osd", "setcrushmap", "-i", "/etc/hostname", rc=22) if not c.root else ("", "EINVAL")
    match(r"EINVAL", err)

def have(tool, c):
    return os.path.exists((c.root or "") + "/usr/bin/" + tool)

@test
def osd_in_out_down_reweight(c):
    match(r"marked out osd\.0", c.ceph("osd", "out", "0")[1])
    match(r"osd\.0 is already out", c.ceph("osd", "out", "0")[1])
    match(r"marked in osd\.0", c.ceph("osd", "in", "0")[1])
    match(r"reweighted osd\.0 to 0\.95", c.ceph("osd", "reweight", "0", "0.95")[1])
    match(r"reweighted osd\.0 to 1", c.ceph("osd", "reweight", "0", "1")[1])
    match(r"EINVAL", c.ceph("osd", "reweight", "0", "7", rc=22)[1])
    match(r"marked down osd\.0", c.ceph("osd", "down", "0")[1])
    until(lambda: c.json("osd", "stat")["num_up_osds"] >= 3, "osd.0 comes back by itself")
    match(r"osd\.99 does not exist", c.ceph("osd", "out", "99", rc=None)[1])

@test
def osd_flags(c):
    for flag in "noup nodown noin noout nobackfill norebalance norecover noscrub nodeep-scrub notieragent nosnaptrim pause".split():
        shown = "pauserd,pausewr" if flag == "pause" else flag
        match(r"^%s is set" % shown, c.ceph("osd", "set", flag)[1])
        check(shown.split(",")[0] in c.json("osd", "dump")["flags_set"], flag + " is in the map")
        match(r"^%s is unset" % shown, c.ceph("osd", "unset", flag)[1])
    match(r"EINVAL", c.ceph("osd", "set", "nosuch", rc=22)[1])
    c.ceph("osd", "set", "noout")
    match(r"noout flag\(s\) set", c.ceph("health", "detail")[0])
    c.ceph("osd", "unset", "noout")

@test
def crush_commands(c):
    match(r"added bucket rack9 type rack to crush map", c.ceph("osd", "crush", "add-bucket", "rack9", "rack")[1])
    match(r"moved item id -\d+ name 'rack9' to location \{root=default\}", c.ceph("osd", "crush", "move", "rack9", "root=default")[1])
    match(r"removed item id -\d+ name 'rack9' from crush map", c.ceph("osd", "crush", "rm", "rack9")[1])
    before = next(n for n in c.json("osd", "tree")["nodes"] if n["id"] == 0)
    match(r"reweighted item id 0 name 'osd\.0' to 0\.5 in crush map", c.ceph("osd", "crush", "reweight", "osd.0", "0.5")[1])
    equal(next(n for n in c.json("osd", "tree")["nodes"] if n["id"] == 0)["crush_weight"], 0.5, "crush reweight")
    c.ceph("osd", "crush", "reweight", "osd.0", "%f" % before["crush_weight"])
    c.ceph("osd", "crush", "rm-device-class", "osd.0")
    match(r"set osd\(s\) 0 to class 'nvme'", c.ceph("osd", "crush", "set-device-class", "nvme", "osd.0")[1])
    match(r"EBUSY", c.ceph("osd", "crush", "set-device-class", "ssd", "osd.0", rc=16)[1])
    c.ceph("osd", "crush", "rm-device-class", "osd.0")
    c.ceph("osd", "crush", "set-device-class", before["device_class"], "osd.0")
    has_keys(c.json("osd", "crush", "dump"), "devices types buckets rules tunables choose_args", "crush dump")
    match(r"replicated_rule", c.ceph("osd", "crush", "rule", "ls")[0])
    match(r"ENOENT|does not (exist|appear)", c.ceph("osd", "crush", "rm", "nosuch", rc=None)[1])

@test
def pool_commands(c):
    c.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
    match(r"^pool 'cmd1' created", c.ceph("osd", "pool", "create", "cmd1", "16")[1])
    match(r"^pool 'cmd1' already exists", c.ceph("osd", "pool", "create", "cmd1", "16")[1])
    check("cmd1" in c.ceph("osd", "pool", "ls")[0].split(), "pool ls")
    match(r"^pool \d+ 'cmd1' replicated size 3 min_size \d crush_rule 0 object_hash rjenkins pg_num 16 pgp_num 16 ", c.ceph("osd", "pool", "ls", "detail")[0])
    match(r"^size: 3", c.ceph("osd", "pool", "get", "cmd1", "size")[0])
    equal(c.json("osd", "pool", "get", "cmd1", "pg_num")["pg_num"], 16, "pg_num")
    match(r"^min_size: ", c.ceph("osd", "pool", "get", "cmd1", "all")[0])
    match(r"^set pool \d+ min_size to 1", c.ceph("osd", "pool", "set", "cmd1", "min_size", "1")[1])
    equal(c.json("osd", "pool", "get", "cmd1", "min_size")["min_size"], 1, "min_size")
    match(r"EINVAL", c.ceph("osd", "pool", "set", "cmd1", "nosuchvar", "1", rc=22)[1])
    match(r"ENOENT", c.ceph("osd", "pool", "get", "nosuch", "size", rc=2)[1])
    match(r"enabled application 'rados' on pool 'cmd1'", c.ceph("osd", "pool", "application", "enable", "cmd1", "rados")[1])
    has_keys(c.json("osd", "pool", "application", "get", "cmd1"), "rados", "application get")
    equal(c.json("osd", "pool", "application", "get")["cmd1"], {"rados": {}}, "application get of all pools")
    match(r"pool cmd1 id \d+", c.ceph("osd", "pool", "stats", "cmd1")[0])
    match(r"^pool 'cmd1' renamed to 'cmd2'", c.ceph("osd", "pool", "rename", "cmd1", "cmd2")[1])
    match(r"EPERM", c.ceph("osd", "pool", "rm", "cmd2", rc=1)[1])
    match(r"^osdmap e\d+ pool 'cmd2' \(\d+\) object 'foo' -> pg \d+\.7fc1f406 \(\d+\.6\) -> up \(\[\d,\d,\d\], p\d\) acting \(\[\d,\d,\d\], p\d\)", c.ceph("osd", "map", "cmd2", "foo")[0])
    match(r"\d+ cmd2", c.ceph("osd", "lspools")[0])
    match(r"^pool 'cmd2' removed", c.ceph("osd", "pool", "rm", "cmd2", "cmd2", "--yes-i-really-really-mean-it")[1])
    match(r"EINVAL|ERANGE", c.ceph("osd", "pool", "create", "big", "999999999", rc=None)[1])

@test
def osd_new_and_purge(c):
    uuid = "7c0a3a5e-0000-4000-8000-0123456789ab"
    key = "AQAAAAAAAAAAEAABAgMEBQYHCAkKCwwNDg8="
    key = c.ceph("auth", "get-or-create-key", "client.keymaker")[0].strip()
    c.ceph("auth", "rm", "client.keymaker")
    osd = c.ceph("osd", "new", uuid, "-i", "-", input='{"cephx_secret": "%s"}' % key)[0].strip()
    check(osd.isdigit(), "osd new prints the id: %r" % osd)
    equal(c.ceph("osd", "new", uuid, "-i", "-", input='{"cephx_secret": "%s"}' % key)[0].strip(), osd, "osd new again")
    equal(c.ceph("auth", "get-key", "osd." + osd)[0].strip(), key, "its key")
    match(r"destroyed osd\." + osd, c.ceph("osd", "destroy", osd, "--yes-i-really-mean-it")[1])
    match(r"ENOENT", c.ceph("auth", "get-key", "osd." + osd, rc=2)[1])
    match(r"purged osd\." + osd, c.ceph("osd", "purge", osd, "--yes-i-really-mean-it")[1])
    check(osd not in c.ceph("osd", "ls")[0].split(), "purged")
    match(r"EBUSY", c.ceph("osd", "rm", "0", rc=16)[1])
    match(r"EBUSY", c.ceph("osd", "destroy", "0", rc=16)[1])

@test
def auth_commands(c):
    out, _ = c.ceph("auth", "get-or-create", "client.t1", "mon", "allow r", "osd", "allow rw pool=p")
    match(r"^\[client\.t1\]\n\tkey = \S+==\n", out)
    match(r"EINVAL", c.ceph("auth", "get-or-create", "client.t1", "mon", "allow *", rc=22)[1])
    match(r"^client\.t1\n\tkey: \S+\n\tcaps: \[mon\] allow r\n\tcaps: \[osd\] allow rw pool=p", c.ceph("auth", "ls")[0])
    key = c.ceph("auth", "get-key", "client.t1")[0]
    equal(c.json("auth", "get-key", "client.t1")["key"], key.strip(), "get-key json")
    match(r"caps mon = \"allow r\"", c.ceph("auth", "get", "client.t1")[0])
    match(r"updated caps for client\.t1", c.ceph("auth", "caps", "client.t1", "mon", "allow rw")[1])
    match(r"EINVAL", c.ceph("auth", "caps", "client.t1", "mon", "allow nonsense", rc=22)[1])
    match(r"caps mon = \"allow rw\"", c.ceph("auth", "export", "client.t1")[0])
    open(c.work + "/imp", "w").write("[client.t2]\n\tkey = %s\n\tcaps mon = \"allow r\"\n" % key.strip())
    match(r"imported keyring", c.ceph("auth", "import", "-i", c.path("imp"))[1])
    equal(c.ceph("auth", "get-key", "client.t2")[0], key, "imported key")
    match(r"added key for client\.t3", c.ceph("auth", "add", "client.t3", "mon", "allow r")[1])
    c.ceph("auth", "rm", "client.t3")
    c.ceph("auth", "rm", "client.t2")
    c.ceph("auth", "rm", "client.t1")
    match(r"ENOENT", c.ceph("auth", "get", "client.t1", rc=2)[1])

@test
def config_commands(c):
    out, err = c.ceph("config", "set", "osd", "osd_max_backfills", "2")
    equal(out, "", "config set is silent")
    check(err == "" or "is ignored while osd_op_queue" in err, "config set says only that an option has no effect: %r" % err)
    match(r"^WHO +MASK +LEVEL +OPTION +VALUE +RO *\n", c.ceph("config", "dump")[0])
    match(r"osd +advanced +osd_max_backfills +2", c.ceph("config", "dump")[0])
    equal(c.ceph("config", "get", "osd", "osd_max_backfills")[0].strip(), "2", "config get")
    until(lambda: "osd_max_backfills" in c.ceph("config", "show", "osd.0")[0], "config show")
    match(r"EINVAL", c.ceph("config", "set", "osd", "osd_max_backfills", "many", rc=22)[1])
    match(r"EINVAL|unrecognized", c.ceph("config", "set", "osd", "no_such_option", "1", rc=22)[1])
    match(r"^osd_max_backfills - ", c.ceph("config", "help", "osd_max_backfills")[0])
    check("osd_max_backfills" in c.ceph("config", "ls")[0].split(), "config ls")
    match(r"osd/osd_max_backfills = 2", c.ceph("config", "log")[0])
    equal(c.ceph("config", "rm", "osd", "osd_max_backfills"), ("", ""), "config rm")
    c.ceph("config-key", "set", "test/a", "value")
    equal(c.ceph("config-key", "get", "test/a")[0].strip(), "value", "config-key get")
    check("test/a" in c.json("config-key", "ls"), "config-key ls")
    equal(c.json("config-key", "dump", "test/")["test/a"], "value", "config-key dump")
    c.ceph("config-key", "exists", "test/a")
    c.ceph("config-key", "rm", "test/a")
    c.ceph("config-key", "exists", "test/a", rc=2)
    match(r"ENOENT", c.ceph("config-key", "get", "test/a", rc=2)[1])

@test
def log_commands(c):
    c.ceph("log", "hello", "from", "a", "test")
    until(lambda: "hello from a test" in c.ceph("log", "last", "20")[0], "log last", 10)
    c.ceph("log", "last", "5", "info", "cluster")
    p = subprocess.Popen(c.argv("ceph", "-w"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        time.sleep(3)
        c.ceph("log", "watched", "line")
        time.sleep(3)
    finally:
        p.terminate()
    match(r"watched line", p.communicate()[0].decode(), "ceph -w")

@test
def mgr_commands(c):
    c.ceph("osd", "pool", "create", "mgrp", "8")
    until(lambda: re.search(r"pgs: .*active\+clean; ", c.ceph("pg", "stat")[0]) and "creating" not in c.ceph("pg", "stat")[0], "pg stat")
    has_keys(c.json("pg", "dump"), "pg_map", "pg dump") if "pg_map" in c.json("pg", "dump") else None
    match(r"^PG_STAT +OBJECTS ", c.ceph("pg", "dump", "pgs")[0])
    match(r"^PG +OBJECTS ", c.ceph("pg", "ls")[0])
    match(r"^PG +OBJECTS ", c.ceph("pg", "ls-by-osd", "0")[0])
    match(r"^PG +OBJECTS ", c.ceph("pg", "ls-by-pool", "mgrp")[0])
    pool = next(p for p in c.json("osd", "dump")["pools"] if p["pool_name"] == "mgrp")["pool"]
    match(r"^osdmap e\d+ pg %d\.0 \(%d\.0\) -> up \[[\d,]+\] acting \[[\d,]+\]" % (pool, pool), c.ceph("pg", "map", "%d.0" % pool)[0])
    q = c.json("pg", "%d.0" % pool, "query")
    # As Pacific answers.
    equal(sorted(q), sorted("snap_trimq snap_trimq_len state epoch up acting acting_recovery_backfill info peer_info recovery_state scrubber agent_state".split()), "pg query")
    check("active" in q["state"], "pg query: " + q["state"])
    info = "pgid last_update last_complete log_tail last_user_version last_backfill purged_snaps history stats empty dne incomplete last_epoch_started hit_set_history"
    has_keys(q["info"], info, "pg query")
    history = """epoch_created epoch_pool_created last_epoch_started last_interval_started last_epoch_clean last_interval_clean last_epoch_split
        last_epoch_marked_full same_up_since same_interval_since same_primary_since last_scrub last_scrub_stamp last_deep_scrub last_deep_scrub_stamp
        last_clean_scrub_stamp prior_readable_until_ub"""
    has_keys(q["info"]["history"], history, "pg query")
    check(0 < q["info"]["history"]["same_up_since"] <= q["info"]["history"]["same_interval_since"] <= q["epoch"], "pg query: %r" % q["info"]["history"])
    listed = next(s for s in c.json("pg", "ls-by-pool", "mgrp")["pg_stats"] if s["pgid"] == q["info"]["pgid"])
    equal(sorted(set(listed) - {"pgid"}), sorted(q["info"]["stats"]), "figures of pg query and pg ls")
    equal(sorted(int(p["peer"]) for p in q["peer_info"]), sorted(osd for osd in q["acting"] if osd != q["acting"][0]), "peers of pg query")
    equal([s["name"] for s in q["recovery_state"]], ["Started/Primary/Active", "Started"], "states of pg query")
    match(r"^ID +CLASS +WEIGHT +REWEIGHT +SIZE +RAW USE +DATA +OMAP +META +AVAIL +%USE +VAR +PGS +STATUS", c.ceph("osd", "df")[0])
    match(r"TYPE NAME *\n.*\n? *-?\d", c.ceph("osd", "df", "tree")[0])
    has_keys(c.json("osd", "df"), "nodes stray summary", "osd df")
    match(r"^osd +commit_latency\(ms\) +apply_latency\(ms\)", c.ceph("osd", "perf")[0])
    c.ceph("progress")
    has_keys(c.json("osd", "ok-to-stop", "0"), "ok_to_stop", "ok-to-stop") if False else c.ceph("osd", "ok-to-stop", "0", rc=None)
    c.ceph("osd", "safe-to-destroy", "0", rc=None)
    has_keys(c.json("balancer", "status"), "active mode", "balancer status")
    c.ceph("osd", "pool", "autoscale-status")
    # Not built here, and refused rather than empty.
    c.ceph("crash", "ls", rc=None)
    c.ceph("device", "ls", rc=None)
    match(r"^--- RAW STORAGE ---\nCLASS ", c.ceph("df")[0])
    match(r"^--- POOLS ---\nPOOL ", c.ceph("df", "detail")[0])
    has_keys(c.json("df"), "stats stats_by_class pools", "df")
    c.ceph("osd", "pool", "rm", "mgrp", "mgrp", "--yes-i-really-really-mean-it")

@test
def tell_osd(c):
    has_keys(c.json("tell", "osd.0", "version"), "version release", "tell version")
    has_keys(c.json("tell", "osd.0", "perf", "dump"), "osd", "tell perf dump")
    b = c.json("tell", "osd.0", "bench", "4194304", "4096")
    has_keys(b, "bytes_written blocksize elapsed_sec bytes_per_sec iops", "tell bench")
    c.ceph("tell", "osd.0", "config", "set", "osd_max_backfills", "3")
    equal(c.json("tell", "osd.0", "config", "get", "osd_max_backfills")["osd_max_backfills"], "3", "tell config get")
    c.ceph("tell", "osd.0", "injectargs", "--osd_max_backfills=1")
    c.ceph("tell", "osd.0", "config", "show")
    has_keys(c.json("tell", "osd.0", "dump_ops_in_flight"), "ops num_ops", "ops in flight")
    has_keys(c.json("tell", "osd.0", "dump_historic_ops"), "size duration ops", "historic ops")
    c.ceph("tell", "osd.*", "version")
    pools = [p["pool"] for p in c.json("osd", "dump")["pools"]]
    check(set(c.json("tell", "osd.0", "get_mapped_pools")) <= set(pools), "get_mapped_pools")
    equal(set(c.json("tell", "osd.0", "dump_scrub_reservations")), {"scrubs_local", "scrubs_remote", "osd_max_scrubs"}, "dump_scrub_reservations")
    scrubs = c.json("tell", "osd.0", "dump_scrubs")
    check(all(set(s) == {"pgid", "sched_time", "deadline", "forced"} for s in scrubs), "dump_scrubs: %r" % scrubs)
    # Of none there is no list.
    listed = lambda: sorted(s["pgid"] for s in c.json("pg", "ls-by-primary", "0").get("pg_stats", []))
    until(lambda: sorted(s["pgid"] for s in c.json("tell", "osd.0", "dump_scrubs")) == listed(), "every placement group that osd.0 leads in dump_scrubs")
    check(all(set(d) == {"device", "device_id"} for d in c.json("tell", "osd.0", "list_devices")), "list_devices")
    equal(c.json("tell", "osd.0", "dump_watchers"), [], "dump_watchers")
    c.ceph("osd", "blocklist", "add", "10.9.8.7:0/123")
    addr = until(lambda: c.json("tell", "osd.0", "dump_blocklist"), "a blocklist")[0]["entity_addr_t"]
    equal((addr["addr"], addr["nonce"]), ("10.9.8.7:0", 123), "dump_blocklist")
    c.ceph("osd", "blocklist", "rm", "10.9.8.7:0/123")
    match(r"EINVAL|ENOENT|ENXIO", c.ceph("tell", "osd.99", "version", rc=None)[1])

@test
def osd_figures(c):
    c.ceph("osd", "pool", "create", "figures", "8")
    data = c.work + "/figures.bin"
    open(data, "wb").write(b"x" * 5000)
    c.rados("-p", "figures", "put", "measured", c.path("figures.bin"))
    c.rados("-p", "figures", "get", "measured", c.path("figures.out"))
    osd = "osd.%d" % c.json("osd", "map", "figures", "measured")["acting_primary"]
    perf = c.json("tell", osd, "perf", "dump")
    has_keys(perf, "osd bluestore rocksdb bluefs bluestore-pricache AsyncMessenger::Worker-0 throttle-osd_client_bytes", "perf dump")
    has_keys(perf["osd"], "op_latency op_process_latency op_prepare_latency op_r_latency op_w_latency op_w_process_latency op_rw subop_w_latency "
             "subop_push_latency recovery_ops numpg", "perf dump osd")
    check(perf["osd"]["op_w"] >= 1 and perf["osd"]["op_w_in_bytes"] >= 5000 and perf["osd"]["op_r_out_bytes"] >= 5000, "reads and writes are counted")
    has_keys(perf["osd"]["op_w_latency"], "avgcount sum avgtime", "op_w_latency")
    has_keys(perf["bluestore"], "kv_flush_lat kv_commit_lat kv_sync_lat state_aio_wait_lat commit_lat throttle_lat bluestore_allocated bluestore_stored "
             "onode_hits onode_misses bluestore_write_small bluestore_write_big bluestore_txc", "perf dump bluestore")
    has_keys(perf["bluefs"], "db_total_bytes db_used_bytes wal_total_bytes wal_used_bytes slow_total_bytes slow_used_bytes", "perf dump bluefs")
    equal(list(c.json("tell", osd, "perf", "dump", "osd", "op_w")["osd"]), ["op_w"], "perf dump LOGGER COUNTER")
    has_keys(c.json("tell", osd, "perf", "schema")["osd"]["op_w_latency"], "type metric_type value_type description nick priority units", "perf schema")
    h = c.json("tell", osd, "perf", "histogram", "dump", "osd")["osd"]
    has_keys(h, "op_r_latency_out_bytes_histogram op_w_latency_in_bytes_histogram op_rw_latency_in_bytes_histogram", "perf histogram dump")
    writes = h["op_w_latency_in_bytes_histogram"]
    equal([(a["name"], a["quant_size"], a["buckets"], len(a["ranges"])) for a in writes["axes"]],
          [("Latency (usec)", 100000, 32, 32), ("Request size (bytes)", 512, 32, 32)], "its axes")
    check(sum(row[5] for row in writes["values"]) >= 1, "a write of 5000 bytes is counted where it belongs")
    has_keys(c.json("tell", osd, "perf", "histogram", "schema")["osd"], "op_w_latency_in_bytes_histogram", "perf histogram schema")
    equal(c.json("tell", osd, "perf", "reset", "nope"), {"error": "Not find: nope"}, "perf reset")
    m = c.json("tell", osd, "dump_mempools")["mempool"]
    equal(len(m["by_pool"]), 29, "dump_mempools")
    has_keys(m["by_pool"], "bluestore_cache_onode bluestore_cache_data osd_pglog osdmap buffer_anon", "dump_mempools")
    check(m["by_pool"]["osd_pglog"]["items"] >= 1 and m["total"]["bytes"] > 0, "memory is counted")
    has_keys(c.json("tell", osd, "cache", "status"), "object_ctx bluestore_onode bluestore_buffers", "cache status")
    c.ceph("tell", osd, "cache", "drop")
    match(r"^\d+\.\d+\.\d+", c.json("tell", osd, "version")["version"], "tell version")
    has_keys(c.json("tell", osd, "status"), "cluster_fsid osd_fsid whoami state oldest_map newest_map num_pgs", "tell status")

@test
def stages_of_operations(c):
    osd = c.json("osd", "map", "figures", "measured")["acting_primary"]
    ops = c.json("tell", "osd.%d" % osd, "dump_historic_ops")["ops"]
    op = next(o for o in ops if o["description"].startswith("osd_op(") and "measured" in o["description"] and "ondisk+write" in o["description"])
    has_keys(op, "description initiated_at age duration type_data", "a finished operation")
    has_keys(op["type_data"], "flag_point client_info events", "its type_data")
    names = [e["event"] for e in op["type_data"]["events"]]
    order = ["initiated", "throttled", "header_read", "all_read", "dispatched", "queued_for_pg", "reached_pg", "started"]
    equal(list(dict.fromkeys(n for n in names if n in order)), order, "the stages on its way")
    check(any(n.startswith("waiting for subops from ") for n in names), "it waited for its copies: %s" % names)
    equal((names.count("op_commit"), names.count("sub_op_commit_rec"), names[-2:]), (1, 2, ["commit_sent", "done"]), "and its end")
    equal(op["type_data"]["flag_point"], "commit sent; apply or cleanup", "flag_point")
    other = next(o for o in range(3) if o != osd)
    repops = [o for o in c.json("tell", "osd.%d" % other, "dump_historic_ops")["ops"] if o["description"].startswith("osd_repop(client.")]
    check(repops and repops[0]["type_data"]["events"][-2]["event"] == "commit_sent", "replicas' parts are shown too")
    for command, keys in (("dump_ops_in_flight", "ops num_ops"), ("dump_blocked_ops", "ops complaint_time num_blocked_ops"),
                          ("dump_historic_ops_by_duration", "size duration ops"), ("dump_historic_slow_ops", "Ops")):
        has_keys(c.json("tell", "osd.0", command), keys, command)

@test
def bench_within_limits(c):
    b = c.json("tell", "osd.0", "bench", "12288000", "4096", "4194304", "10")
    equal((b["bytes_written"], b["blocksize"]), (12288000, 4096), "bench with objects")
    for args, why in (
        (["1073741824", "4096"], "'count' values greater than 12288000 for a block size of 4 KiB, assuming 100 IOPS, for 30 seconds, can cause ill "
         "effects on osd.  Please adjust 'osd_bench_small_size_max_iops' with a higher value if you wish to use a higher 'count'."),
        (["1000000000000", "4194304"], "'count' values greater than 3145728000 for a block size of 4 MiB, assuming 100 MiB/s, for 30 seconds, can "
         "cause ill effects on osd.  Please adjust 'osd_bench_large_size_max_throughput' with a higher value if you wish to use a higher 'count'."),
        (["100000000", "134217728"], "block 'size' values are capped at 64 MiB. If you wish to use a higher value, please adjust 'osd_bench_max_block_size'"),
    ):
        _, err = c.ceph("tell", "osd.0", "bench", *args, rc=22)
        check(why in err, "bench %s: %s" % (args, err))

@test
def pg_tables(c):
    match(r"^PG +OBJECTS +DEGRADED ", c.ceph("pg", "ls-by-pool", "figures")[0], "pg ls-by-pool")
    has_keys(c.json("pg", "dump_json", "osds")["pg_map"], "pg_stats osd_stats pool_stats", "pg dump_json shows all")
    match("^dumped osds,pools$", c.ceph("pg", "dump", "pools", "osds")[1], "pg dump says what, in order")
    equal(list(c.json("pg", "dump", "summary", "osds")), ["pg_ready", "pg_map"], "a summary is alone")
    match("available choices: stale\\+creating\\+active", c.ceph("pg", "ls", "foo", rc=22)[1], "pg ls of no state")
    equal(c.json("pg", "ls", "incomplete"), {"pg_ready": True}, "pg ls of none")
    match("osd 99 is not up", c.ceph("pg", "ls-by-osd", "99", rc=11)[1], "pg ls-by-osd of nobody")
    has_keys(c.json("osd", "perf")["osdstats"]["osd_perf_infos"][0]["perf_stats"], "commit_latency_ms apply_latency_ms commit_latency_ns", "osd perf")
    match(r"^avg [\d.]+\nstddev ", c.ceph("osd", "utilization")[0], "osd utilization")
    c.ceph("osd", "pool", "rm", "figures", "figures", "--yes-i-really-really-mean-it")

@test
def wrong_input(c):
    match(r"no valid command|EINVAL", c.ceph("osd", "frobnicate", rc=22)[1])
    bad = c.work + "/bad.keyring"
    open(bad, "w").write("[client.admin]\n\tkey = AQCAAAAAAAAAEAAAAAAAAAAAAAAAAAAAAAAAAA==\n")
    key = c.ceph("auth", "get-or-create-key", "client.weak", "mon", "allow r")[0].strip()
    open(bad, "w").write("[client.admin]\n\tkey = %s\n" % key)
    _, err = c.ceph("--keyring", c.path("bad.keyring"), "--connect-timeout", "20", "-s", rc=None)
    match(r"[Pp]ermission|EACCES|denied", err, "a wrong key")
    open(bad, "w").write("[client.weak]\n\tkey = %s\n" % key)
    _, err = c.ceph("-n", "client.weak", "--keyring", c.path("bad.keyring"), "osd", "set", "noout", rc=13)
    match(r"EACCES", err, "a forbidden command")
    c.ceph("-n", "client.weak", "--keyring", c.path("bad.keyring"), "osd", "tree")
    open(bad, "w").write("[client.nobody]\n\tkey = %s\n" % key)
    c.ceph("-n", "client.nobody", "--keyring", c.path("bad.keyring"), "--connect-timeout", "20", "-s", rc=None)
    c.ceph("auth", "rm", "client.weak")
