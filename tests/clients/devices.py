#!/usr/bin/python3
"""OSDs on devices of their own, made, looked at, moved and taken away as docs/operations.md says: data, database and journal apart, on
loop devices where we are root, else in files; a database that outgrows its place; options of RocksDB; and the words of ceph-volume.
Objects that lie on the new OSD only are read again after every move.

    devices.py -c DIR/ceph.conf --bin BINARY
"""
import json, os, random, re, signal, subprocess
from harness import Client, arguments, check, equal, match, not_run, until
from stock_cluster import read_pids

CLASS, POOL = "spare", "devices"
ROOT = os.geteuid() == 0

class Machine:
    """Disks, and the commands that are tried on them."""

    def __init__(self, client, args):
        self.client, self.bin, self.conf, self.loops = client, os.path.realpath(args.bin), os.path.realpath(args.conf), []
        self.dir = os.path.dirname(self.conf)
        self.disks = os.path.join(self.dir, "disks")
        os.mkdir(self.disks)

    def run(self, *argv, rc=0):
        p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120)
        check(p.returncode == rc, "%s: exit %d, expected %d\n%s%s" % (" ".join(map(str, argv)), p.returncode, rc, p.stdout, p.stderr))
        return p.stdout + p.stderr

    def osd(self, *words, rc=0):
        return self.run(self.bin, "osd", *words, "-c", self.conf, rc=rc)

    def file(self, name, size):
        path = os.path.join(self.disks, name)
        with open(path, "wb") as f:
            f.truncate(size)
        return path

    def disk(self, name, size):
        """A loop device, or the file itself."""
        path = self.file(name, size)
        if not ROOT:
            return path
        self.loops.append(self.run("losetup", "--direct-io=on", "--find", "--show", path).strip())
        return self.loops[-1]

    def start(self, osd):
        self.osd("-i", osd)
        until(lambda: self.is_up(osd), "osd.%s up" % osd, 30)

    def stop(self, osd):
        pid = read_pids(self.dir)["osd.%s" % osd]
        os.kill(pid, signal.SIGTERM)
        until(lambda: not os.path.exists("/proc/%d" % pid), "osd.%s ended" % osd, 30)

    def is_up(self, osd):
        return any(o["osd"] == int(osd) and o["up"] for o in self.client.json("osd", "dump")["osds"])

    def metadata(self, osd):
        return self.client.json("osd", "metadata", osd)

    def home(self, osd):
        return "%s/osd.%s" % (self.dir, osd)

    def close(self):
        """What a failed test left."""
        for name, pid in read_pids(self.dir).items():
            if name.startswith("osd.") and int(name[4:]) > 2:
                os.kill(pid, signal.SIGKILL)
        for mount in [l.split()[1] for l in open("/proc/mounts") if l.split()[1].startswith(self.dir + "/")]:
            until(lambda: subprocess.run(["umount", mount]).returncode == 0, "umount " + mount, 10)
        for loop in self.loops:
            subprocess.run(["losetup", "-d", loop], check=True)

class Objects:
    """Objects of a pool that lies on one class of devices, once."""

    def __init__(self, client):
        self.client, self.content = client, {"o%d" % n: os.urandom(40000) for n in range(8)}

    def put(self):
        self.client.ceph("osd", "crush", "rule", "create-replicated", "spare", "default", "osd", CLASS)
        self.client.ceph("config", "set", "global", "mon_allow_pool_size_one", "true")
        self.client.ceph("osd", "pool", "create", POOL, "4", "4", "replicated", "spare")
        self.client.ceph("osd", "pool", "set", POOL, "size", "1", "--yes-i-really-mean-it")
        for name, data in self.content.items():
            self.client.rados("-p", POOL, "put", name, "-", input=data)
            self.client.rados("-p", POOL, "setomapval", name, "key", "value of " + name)

    def check(self, when):
        for name, data in self.content.items():
            got = self.client.path("got")
            self.client.rados("-p", POOL, "get", name, got)
            with open(self.client.work + "/got", "rb") as f:
                check(f.read() == data, "%s: %s is as it was" % (when, name))
        match("value of o1", self.client.rados("-p", POOL, "getomapval", "o1", "key")[0], when)

def made(machine, *words):
    """Makes an OSD and starts it."""
    said = machine.osd("create", *words)
    osd = match(r"^osd\.(\d+) is made; start it: cuttlebone osd -i", said) and said.rsplit("osd -i ", 1)[1].split()[0]
    machine.start(osd)
    return osd

def create(m, objects):
    data, db, wal = m.disk("data", 2 << 30), m.disk("db", 1 << 30), m.disk("wal", 200 << 20)
    before = m.client.json("osd", "ls")
    with open(data, "r+b") as f:
        f.write(b"somebody's")
    match("has something on it: --yes takes it away", m.osd("create", "--data", data, rc=1))
    match("is a directory", m.osd("create", "--data", m.disks, rc=1))
    m.osd("create", "--data", m.disks + "/new", "--size", "1G", "--wal", m.disks + "/no/such", rc=1)
    equal(m.client.json("osd", "ls"), before, "numbers after three failures")
    m.osd("zap", data)
    words = ["--data", data, "--wal", wal, "--device-class", CLASS]
    osd = made(m, *words, "--db", db if ROOT else m.disks)
    equal(osd, "3", "the number")
    match("in use", m.osd("create", "--data", data, rc=1), "another OSD on the same device")
    about = m.metadata(osd)
    for key, value in {"bluefs": "1", "bluefs_dedicated_db": "1", "bluefs_dedicated_wal": "1", "bluefs_single_shared_device": "0",
                       "bluestore_bdev_size": str(2 << 30), "bluestore_bdev_driver": "KernelDevice"}.items():
        equal(about[key], value, key)
    for key in ["bluestore_bdev_type", "bluestore_bdev_rotational", "rotational", "journal_rotational", "default_device_class", "device_ids", "device_paths", "devices"]:
        check(key in about, "metadata has " + key)
    if ROOT:
        node = os.path.basename(data)
        for key, value in {"bluestore_bdev_dev_node": data, "bluestore_bdev_devices": node, "bluefs_db_dev_node": db, "bluefs_wal_dev_node": wal,
                           "bluefs_db_access_mode": "blk", "bluefs_wal_size": str(200 << 20)}.items():
            equal(about[key], value, key)
    tree = m.client.json("osd", "tree")["nodes"]
    equal([n["device_class"] for n in tree if n["id"] == 3], [CLASS], "the class")
    shown = {o["osd_id"]: o for o in json.loads(m.osd("list", "-f", "json"))}
    equal([p["type"] for p in shown[3]["parts"]], ["block", "db", "wal"], "parts")
    check(shown[3]["running"] and shown[0]["parts"][0]["type"] == "block", "list")
    objects.put()
    objects.check("at first")
    return osd

def move(m, osd, objects):
    match("has to be stopped first|another process uses it", m.osd("migrate", "-i", osd, "--to-data", rc=1))
    def again(*words):
        m.stop(osd)
        said = m.osd("migrate", "-i", osd, *words)
        m.start(osd)
        objects.check(" ".join(words))
        about = m.metadata(osd)
        return said, about["bluefs_dedicated_db"] + about["bluefs_dedicated_wal"]
    equal(again("--wal", m.disks + "/journal")[1], "11", "db and wal apart")
    ssd = os.path.join(m.disks, "ssd")
    os.mkdir(ssd)
    equal(again("--db", ssd)[1], "11", "db and wal apart")
    check(os.path.exists(ssd + "/osd.%s.db/CURRENT" % osd), "the database is there")
    if ROOT:
        equal(again("--db", m.disk("db2", 600 << 20))[1], "11", "on a device")
        equal(os.listdir(ssd), [], "nothing is left behind")
        equal(again("--wal", m.disk("wal2", 300 << 20))[1], "11", "on a device")
        check(not os.path.exists(m.disks + "/journal"), "nothing is left behind")
    said, where = again("--to-data")
    equal(where, "00", "all in one place")
    check(os.path.isdir(m.home(osd) + "/db") and not os.path.islink(m.home(osd) + "/db"), "a directory again")
    # Killed in the middle: what it left does not count, and the next move begins anew.
    m.stop(osd)
    os.makedirs(ssd + "/osd.%s.db" % osd)
    with open(ssd + "/osd.%s.db/CURRENT" % osd, "w") as f:
        f.write("half")
    match("is not empty", m.osd("migrate", "-i", osd, "--db", ssd, rc=1))
    with open(m.home(osd) + "/migrating", "w") as f:
        f.write(ssd + "/osd.%s.db\n" % osd)
    m.start(osd)
    objects.check("after half a move")
    equal(again("--db", ssd)[1], "10", "the database apart, the journal with it")

def killed(m, osd, objects):
    """Moves that are killed at any moment: whatever is left, the OSD starts with everything."""
    there = os.path.join(m.disks, "there")
    os.mkdir(there)
    moves = [["--to-data"], ["--db", there]] + ([["--db", m.disk("db3", 600 << 20), "--yes"]] if ROOT else []) + [["--wal", m.disks + "/ring"]]
    rng, ended = random.Random(7), 0
    for n in range(8):
        m.stop(osd)
        p = subprocess.Popen([m.bin, "osd", "migrate", "-i", osd, "-c", m.conf, *moves[n % len(moves)]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            p.wait(rng.uniform(0.01, 0.35))
            ended += 1
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
        m.start(osd)
        objects.check("after killed move %d" % n)
    check(ended < 8, "some were killed in the middle")
    m.stop(osd)
    m.osd("migrate", "-i", osd, "--to-data")
    m.start(osd)
    objects.check("after a whole one")

def flip_all(device):
    """Turns the lowest bit of each byte in all blocks that are not zeros, but for the first MiB; says of how many. Twice is as before."""
    changed = 0
    with open(device, "r+b") as f:
        for at in range(1 << 20, f.seek(0, os.SEEK_END), 4096):
            f.seek(at)
            block = f.read(4096)
            if any(block):
                f.seek(at)
                f.write(bytes(b ^ 1 for b in block))
                changed += 1
        f.flush()
        os.fsync(f.fileno())
    return changed

def fsck(m, osd, objects):
    """What an OSD has stored is right; bytes that change on the device are told, and the OSD is left as it is."""
    deep = lambda rc: m.osd("fsck", "-i", osd, "--deep", rc=rc)
    match("has to be stopped first", deep(1))
    # Small ones may all be in the log.
    m.client.rados("-p", POOL, "put", "large", "-", input=random.Random(1).randbytes(1 << 20))
    m.stop(osd)
    said = deep(0)
    match(r"^osd\.%s: \d+ objects in \d+ collections, .*; errors: 0$" % osd, said)
    equal(m.osd("fsck", "-i", osd).replace("(0 shared, 0 read)", ""), re.sub(r"\(0 shared, [1-9]\d* read\)", "", said), "the same, but for what is read")
    changed = flip_all(m.home(osd) + "/block")
    check(changed > 0, "something is on the device")
    said = deep(1)
    errors = len(re.findall("(?m)^object .*: the block at [0-9]+ has checksum 0x[0-9a-f]+, not 0x[0-9a-f]+$", said))
    check(0 < errors <= changed, "%d blocks are changed: %s" % (changed, said))
    match("errors: %d$" % errors, said)
    match("errors: 0$", m.osd("fsck", "-i", osd))
    # By option at the start: metadata is right, data is not.
    fsck_on_mount = ["--bluestore-fsck-on-mount", "true", "--bluestore-fsck-on-mount-deep", "true"]
    match("the store has errors", m.osd("-i", osd, *fsck_on_mount, rc=1))
    equal(flip_all(m.home(osd) + "/block"), changed, "changed back")
    match("errors: 0$", deep(0))
    m.client.ceph("config", "set", "osd." + osd, "bluestore_fsck_on_mount", "1")
    m.start(osd)
    until(lambda: "bluestore_fsck_on_mount" in open(m.home(osd) + "/told.json").read(), "the option is kept", 10)
    m.stop(osd)
    m.start(osd)
    with open("%s/log/osd.%s.log" % (m.dir, osd)) as f:
        match("fsck: .*errors: 0", f.read(), "a start with a check")
    m.client.ceph("config", "rm", "osd." + osd, "bluestore_fsck_on_mount")
    objects.check("after checks")

def spill(m, objects):
    """A database whose place is much too small, with levels that are soon full."""
    options = "write_buffer_size=2M,level0_file_num_compaction_trigger=2,compression=kNoCompression"
    m.client.ceph("config", "set", "osd", "bluestore_rocksdb_options", options)
    small = os.path.join(m.disks, "small")
    osd = made(m, "--data", m.disks + "/data5", "--size", "2G", "--db", small, "--db-size", "90M", "--device-class", CLASS)
    m.client.ceph("osd", "out", "3")
    until(lambda: m.client.json("pg", "ls-by-osd", osd).get("pg_stats") and not m.client.json("pg", "ls-by-osd", "3").get("pg_stats"), "everything on osd.%s" % osd, 60)
    # What the monitors say counts from the next start on.
    until(lambda: "level0" in open(m.home(osd) + "/told.json").read(), "the options are kept", 10)
    m.stop(osd)
    m.start(osd)
    equal(m.metadata(osd)["cuttlebone_rocksdb_options"], options, "what the OSD goes by")
    newest = max((f for f in os.listdir(small + "/osd.%s.db" % osd) if f.startswith("OPTIONS-")), key=lambda f: int(f[8:]))
    with open(small + "/osd.%s.db/%s" % (osd, newest)) as f:
        match(r"level0_file_num_compaction_trigger=2$", f.read(), "RocksDB's own file of options")
    value, spilled = m.file("value", 0), m.home(osd) + "/db.slow"
    def fill(n):
        with open(value, "wb") as f:
            f.write(os.urandom(1 << 20))
        m.client.rados("-p", POOL, "setomapval", "big%d" % n, "k%d" % n, "--input-file", value)
        return any(f.endswith(".sst") for f in os.listdir(spilled)) if os.path.exists(spilled) else False
    n = 0
    while not fill(n):
        n += 1
        check(n < 120, "the database spills over")
    health = lambda: m.client.json("health", "detail")["checks"].get("BLUEFS_SPILLOVER")
    found = until(health, "BLUEFS_SPILLOVER", 30)
    equal(found["summary"]["message"], "1 OSD(s) experiencing BlueFS spillover")
    match(r"^osd\.%s spilled over [\d.]+ [KM]iB metadata from 'db' device \([\d.]+ MiB used of [\d.]+ MiB\) to slow device$" % osd, found["detail"][0]["message"])
    objects.check("while it spills")
    m.client.ceph("config", "set", "osd", "bluestore_warn_on_bluefs_spillover", "false")
    until(lambda: not health(), "no warning where none is wanted", 30)
    m.client.ceph("config", "rm", "osd", "bluestore_rocksdb_options")
    m.stop(osd)
    m.osd("migrate", "-i", osd, "--to-data")
    m.start(osd)
    objects.check("after it spilled and moved")
    return osd

def options(client):
    refused = lambda *words: client.ceph("config", "set", "osd", *words, rc=22)[1]
    match("bogus", refused("bluestore_rocksdb_options", "compression=kNoCompression,bogus=1"))
    match("disableWAL=true: refused", refused("bluestore_rocksdb_options_annex", "disableWAL=true"))
    match("write_buffer_size: .many. is not", refused("bluestore_rocksdb_options", "write_buffer_size=many"))
    match("no prefix of BlueStore", refused("bluestore_rocksdb_cfs", "Q(3)"))
    stock = "m(3) p(3,0-12) O(3,0-13)=block_cache={type=binned_lru} L=min_write_buffer_number_to_merge=32 P=min_write_buffer_number_to_merge=32"
    client.ceph("config", "set", "osd", "bluestore_rocksdb_cfs", stock)
    equal(client.ceph("config", "get", "osd.0", "bluestore_rocksdb_cfs")[0].strip(), stock)
    client.ceph("config", "rm", "osd", "bluestore_rocksdb_cfs")

def volumes(m):
    """The same by the name of ceph-volume."""
    tool = os.path.join(m.disks, "ceph-volume")
    os.symlink(m.bin, tool)
    lvm = lambda *words, rc=0: m.run("env", "CEPH_CONF=" + m.conf, tool, "lvm", *words, rc=rc)
    match("not built", lvm("batch", m.disks, rc=1))
    match("not built", lvm("create", "--data", m.disks + "/x", "--dmcrypt", rc=1))
    data = m.disk("volume", 1 << 30)
    match("ceph-volume lvm create successful for: " + data, lvm("create", "--bluestore", "--data", data, "--crush-device-class", CLASS))
    listed = json.loads(lvm("list", data, "--format", "json"))
    (osd, parts), = listed.items()
    until(lambda: m.is_up(osd), "osd.%s up" % osd, 30)
    equal(parts[0]["type"], "block")
    for key in "devices lv_name lv_path lv_size lv_tags lv_uuid name path tags type vg_name".split():
        check(key in parts[0], "list has " + key)
    tags = parts[0]["tags"]
    equal((tags["ceph.osd_id"], tags["ceph.crush_device_class"], tags["ceph.type"]), (osd, CLASS, "block"))
    match(r"={6} osd\.%s =+" % osd, lvm("list"))
    match("runs: stop it first", lvm("zap", "--osd-id", osd, "--destroy", rc=1))
    m.client.ceph("osd", "out", osd)
    until(lambda: "safe to destroy" in m.client.ceph("osd", "safe-to-destroy", osd, rc=None)[1], "safe to destroy", 60)
    m.stop(osd)
    match("Zapping successful for OSD: " + osd, lvm("zap", "--osd-id", osd, "--destroy"))
    check(not os.path.exists(m.home(osd)), "its directory is gone")
    m.client.ceph("osd", "purge", osd, "--yes-i-really-mean-it")

def main():
    a = arguments(__doc__).parse_args()
    client = Client(a.conf)
    m, objects = Machine(client, a), Objects(client)
    if not ROOT:
        not_run("devices, file systems and mounts", "root")
    try:
        options(client)
        osd = create(m, objects)
        move(m, osd, objects)
        killed(m, osd, objects)
        fsck(m, osd, objects)
        spill(m, objects)
        volumes(m)
    finally:
        m.close()
        client.close()
    print("devices: passed")

if __name__ == "__main__":
    main()
