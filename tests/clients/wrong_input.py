#!/usr/bin/python3
"""Wrong input against real processes: each case gives the errno and the words that stock gives, or for our own commands
names the cause; nobody panics, nothing that was acknowledged is lost.

    wrong_input.py --bin BINARY [--only NAME]...
"""
import argparse, os, random, re, shutil, signal, socket, subprocess, sys, tempfile, time
import rados
import harness
from harness import Failed, check, equal, match, not_run, test, until
from stock_cluster import read_pids

PORT = 17000
# LIBRADOS_OPERATION_*
FULL_TRY, FULL_FORCE = 64, 128

class Home:
    """A cluster of ours in a directory."""
    count = 0

    def __init__(self, binary, directory, *flags):
        Home.count += 1
        self.bin, self.dir, self.conf, self.flags = binary, directory, directory + "/ceph.conf", flags
        self.port = PORT + 20 * Home.count
        self.last = None

    def run(self, *argv, rc=0, timeout=90):
        p = subprocess.run([self.bin] + list(argv), capture_output=True, text=True, timeout=timeout)
        if rc is not None and (p.returncode == 0) != (rc == 0):
            raise Failed("%s: exit %d: %s%s" % (" ".join(argv), p.returncode, p.stdout, p.stderr))
        check("panicked" not in p.stderr, "%s: %s" % (argv, p.stderr))
        return p.stdout + p.stderr

    def up(self, **kw):
        return self.run("up", "--dir", self.dir, "--port", str(self.port), *self.flags, **kw)

    def down(self):
        return self.run("down", "--dir", self.dir)

    def daemon(self, kind, id, *flags):
        """What a daemon in the foreground says that must refuse to run."""
        return self.run(kind, "-i", str(id), "-c", self.conf, "-f", *flags, rc=1, timeout=30)

    def pids(self):
        return read_pids(self.dir)

    def remove(self):
        if os.path.exists(self.conf):
            self.down()
        shutil.rmtree(self.dir, ignore_errors=True)

    def client(self):
        return Connection(self.conf)

class Connection:
    def __init__(self, conf):
        self.conf = conf

    def __enter__(self):
        self.cluster = rados.Rados(conffile=self.conf)
        self.cluster.connect(timeout=30)
        return self.cluster

    def __exit__(self, *_):
        self.cluster.shutdown()

def ceph(home, *words, rc=0, timeout=60):
    p = subprocess.run(["ceph", "-c", home.conf] + list(words), capture_output=True, text=True, timeout=timeout)
    if rc is not None:
        equal(p.returncode, rc, "ceph %s: %s" % (" ".join(words), p.stderr))
    return p.stdout + p.stderr

def damaged(path, how):
    """Runs `how` on a copy-protected file: restores it afterwards."""
    class Guard:
        def __enter__(self):
            shutil.copy2(path, path + ".kept")
            how(path)
        def __exit__(self, *_):
            os.replace(path + ".kept", path)
    return Guard()

def write(path, offset, data):
    with open(path, "r+b") as f:
        f.seek(offset)
        f.write(data)

# --- daemons and directories

@test
def a_busy_port_is_named(c):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        home = Home(c.bin, c.work + "/busy", "--size", "256M", "--osds", "1")
        s.bind(("127.0.0.1", home.port))
        s.listen()
        said = home.up(rc=1)
        match(r"listening on 127.0.0.1:%d .*port" % home.port, said, "a busy port")
    home.up()
    home.remove()

@test
def a_directory_that_is_no_clusters_is_left_alone(c):
    os.makedirs(c.work + "/mine")
    open(c.work + "/mine/thesis.tex", "w").close()
    home = Home(c.bin, c.work + "/mine")
    match("not empty and not a cluster", home.up(rc=1), "up in a full directory")
    equal(os.listdir(c.work + "/mine"), ["thesis.tex"], "nothing was added")
    for verb in ("down", "status"):
        match("no ceph.conf|is not there|cluster", home.run(verb, "--dir", home.dir, rc=1), verb)
        match("is not there", home.run(verb, "--dir", c.work + "/nowhere", rc=1), verb)
    home.flags = ("--size", "12K")
    home.dir = c.work + "/small"
    match("at least 64M", home.up(rc=2), "a size too small")

@test
def two_daemons_on_one_directory_are_one_too_many(c):
    match("is served by a running daemon", c.home.daemon("osd", 0), "a second osd.0")
    match("is served by a running daemon", c.home.daemon("mon", "a"), "a second mon.a")
    match("another process", c.home.daemon("osd", 0, "--admin-socket="), "a second osd.0 without admin socket")
    match("another process", c.home.daemon("mon", "a", "--admin-socket="), "a second mon.a without admin socket")
    match("cluster in ", c.home.up(), "up of what runs changes nothing")
    match('"version"', ceph(c.home, "daemon", "osd.0", "version"), "the first osd.0 still has its admin socket")
    match("HEALTH", ceph(c.home, "health"), "the first mon.a still serves")

@test
def directories_of_others_are_refused(c):
    other = Home(c.bin, c.work + "/other", "--size", "256M", "--osds", "1")
    other.up()
    other.down()
    try:
        said = c.home.daemon("osd", 0, "--osd-data", other.dir + "/osd.0", "--admin-socket=")
        match("belongs to cluster", said, "an OSD of another cluster")
        said = c.home.daemon("mon", "a", "--mon-data", other.dir + "/mon.a", "--admin-socket=")
        match("belongs to cluster", said, "a monitor of another cluster")
        said = c.home.daemon("osd", 1, "--osd-data", c.home.dir + "/osd.0", "--admin-socket=")
        match("belongs to osd.0, not to osd.1", said, "another OSD's directory")
        fsid = open(c.home.dir + "/osd.0/ceph_fsid").read()
        with damaged(other.dir + "/osd.0/ceph_fsid", lambda p: open(p, "w").write(fsid)):
            said = c.home.daemon("osd", 0, "--osd-data", other.dir + "/osd.0", "--admin-socket=")
            match("the store belongs to cluster", said, "files that lie about their store")
    finally:
        other.remove()

@test
def a_store_that_is_not_whole_is_not_served(c):
    home = Home(c.bin, c.work + "/half", "--size", "256M", "--osds", "1")
    home.up()
    try:
        ceph(home, "osd", "pool", "create", "p", "4")
        ceph(home, "osd", "pool", "set", "p", "min_size", "1")
        ceph(home, "osd", "pool", "set", "p", "size", "1", "--yes-i-really-mean-it", rc=None)
        data = os.urandom(3 << 20)
        with home.client() as cluster, cluster.open_ioctx("p") as io:
            io.write_full("o", data)
        home.down()
        osd = home.dir + "/osd.0"
        half = lambda p: os.truncate(p, os.path.getsize(p) // 2)
        garbage = lambda p: write(p, 0, os.urandom(4096))
        with damaged(osd + "/block", half):
            match("bytes, mkfs saw .* cut short", home.daemon("osd", 0), "a data file cut short")
        with damaged(osd + "/block", lambda p: os.truncate(p, 0)):
            match("label|bytes|reading the data device", home.daemon("osd", 0), "an empty data file")
        with damaged(osd + "/block", garbage):
            match("no label", home.daemon("osd", 0), "a label overwritten")
        with damaged(osd + "/db/CURRENT", os.unlink):
            match("CURRENT is missing", home.daemon("osd", 0), "a database without CURRENT")
        with damaged(osd + "/db/CURRENT", lambda p: open(p, "w").write("x\n")):
            match("osd.0/db", home.daemon("osd", 0), "a CURRENT of nonsense")
        manifest = [f for f in os.listdir(osd + "/db") if f.startswith("MANIFEST")][0]
        with damaged(osd + "/db/" + manifest, lambda p: write(p, 10, b"nonsense" * 8)):
            match("osd.0/db", home.daemon("osd", 0), "a damaged MANIFEST")
        for name in ("whoami", "ceph_fsid", "fsid"):
            with damaged(osd + "/" + name, os.unlink):
                match("osd.0/" + name, home.daemon("osd", 0), "no file " + name)
        with damaged(osd + "/keyring", lambda p: open(p, "w").write("[osd.0]\nkey = nonsense\n")):
            match("keyring", home.daemon("osd", 0), "a key that is none")
        with damaged(osd + "/ready", os.unlink):
            match("run --mkfs first", home.daemon("osd", 0), "mkfs that did not end")
            # The command that would have gone on.
            home.run("osd", "-i", "0", "-c", home.conf, "--mkfs")
        with damaged(home.dir + "/mon.a/kv/CURRENT", os.unlink):
            match("CURRENT is missing", home.daemon("mon", "a"), "a monitor's database without CURRENT")
        os.rename(home.dir + "/mon.a/kv", home.dir + "/mon.a/kv.away")
        match("run --mkfs first", home.daemon("mon", "a"), "a monitor without its store")
        os.rename(home.dir + "/mon.a/kv.away", home.dir + "/mon.a/kv")
        home.up()
        with home.client() as cluster, cluster.open_ioctx("p") as io:
            equal(io.read("o", 4 << 20) == data, True, "after all that the object reads back")
    finally:
        home.remove()

# --- space

def fill(home, pool, size, stop):
    """Writes objects of `size` until `stop(n)`; names and contents of those acknowledged."""
    done = {}
    with home.client() as cluster, cluster.open_ioctx(pool) as io:
        pending = []
        n = 0
        while not stop(n):
            data = random.Random(n).randbytes(size)
            pending.append(("f%d" % n, n, io.aio_write_full("f%d" % n, data)))
            n += 1
            end = time.monotonic() + 5
            while len(pending) >= 8 and time.monotonic() < end:
                for entry in [p for p in pending if p[2].is_complete()]:
                    pending.remove(entry)
                    if entry[2].get_return_value() == 0:
                        done[entry[0]] = entry[1]
                time.sleep(0.005)
            if len(pending) >= 8:
                break
        for name, n, completion in pending:
            if completion.is_complete() and completion.get_return_value() == 0:
                done[name] = n
        # What hangs would hang the end of this client too: it ends with its process.
        os.write(3, repr(done).encode())
        os._exit(0)

def filled(home, pool, size, stop):
    """`fill` in a child: writes to a full cluster wait, and so does the end of a client that has some."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(w, 3)
            fill(home, pool, size, stop)
        finally:
            os._exit(1)
    os.close(w)
    text = b""
    while chunk := os.read(r, 1 << 16):
        text += chunk
    os.close(r)
    os.waitpid(pid, 0)
    check(text, "the filling client failed")
    return eval(text)

def reads_back(home, pool, size, done):
    with home.client() as cluster, cluster.open_ioctx(pool) as io:
        for name, n in done.items():
            equal(io.read(name, size + 1) == random.Random(n).randbytes(size), True, "%s reads back" % name)

def remove_all(home, pool, names):
    """Removes objects also where the pool is full: clients hold back every change there that does not insist."""
    with home.client() as cluster, cluster.open_ioctx(pool) as io:
        for name in names:
            with rados.WriteOpCtx() as op:
                op.remove()
                io.operate_write_op(op, name, flags=FULL_FORCE)

@test
def a_full_cluster_still_deletes(c):
    home = Home(c.bin, c.work + "/full", "--size", "512M")
    home.up()
    try:
        ceph(home, "osd", "pool", "create", "p", "16")
        ceph(home, "osd", "pool", "application", "enable", "p", "rados")
        pids = home.pids()
        done = filled(home, "p", 1 << 20, lambda n: n > 600)
        check(300 < len(done) < 512, "%d MB of 512 were stored" % len(done))
        until(lambda: re.search("OSD_FULL", ceph(home, "health", "detail")), "OSD_FULL", 30)
        match(r"OSD_FULL: \d full osd\(s\)", ceph(home, "health", "detail"), "health")
        match("POOL_FULL: 1 pool\\(s\\) full", ceph(home, "health", "detail"), "health")
        # As with stock: a write waits for room; one that asks to be told gets ENOSPC.
        waiting = subprocess.Popen(["rados", "-c", home.conf, "-p", "p", "put", "late", "/bin/ls"], stderr=subprocess.DEVNULL)
        with home.client() as cluster, cluster.open_ioctx("p") as io:
            try:
                with rados.WriteOpCtx() as op:
                    op.write_full(b"x" * 100000)
                    io.operate_write_op(op, "try", flags=FULL_TRY)
                raise Failed("a write with FULL_TRY went through")
            except rados.Error as e:
                equal(abs(e.errno), 28, "FULL_TRY on a full pool")
        equal(waiting.poll(), None, "a stock put waits")
        reads_back(home, "p", 1 << 20, dict(list(done.items())[:40]))
        for name in list(done)[:3]:
            subprocess.run(["rados", "-c", home.conf, "-p", "p", "rm", name, "--force-full"], check=True, timeout=20)
        remove_all(home, "p", list(done)[3:])
        until(lambda: "HEALTH_OK" in ceph(home, "health"), "HEALTH_OK after the deletions", 40)
        equal(waiting.wait(timeout=60), 0, "the put that waited goes on")
        equal(home.pids(), pids, "nobody died")
    finally:
        home.remove()


@test
def a_full_file_system_beneath_loses_nothing(c):
    if os.geteuid() != 0:
        return not_run("a full file system", "root, for a small one")
    mount = c.work + "/tmpfs"
    os.makedirs(mount)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1000M", "tmpfs", mount], check=True)
    home = Home(c.bin, mount + "/c", "--size", "2G")
    try:
        home.up()
        ceph(home, "osd", "pool", "create", "p", "16")
        ceph(home, "osd", "pool", "application", "enable", "p", "rados")
        done = filled(home, "p", 1 << 20, lambda n: n > 2000)
        check(len(done) > 50, "%d MB were stored" % len(done))
        until(lambda: re.search("FULL", ceph(home, "health", "detail")), "health says so", 30)
        equal(len(home.pids()), 4, "everybody lives: room is watched beneath the sparse files too")
        # Someone else takes the rest.
        with open(mount + "/hog", "wb") as f:
            try:
                while True:
                    f.write(b"x" * (1 << 20))
                    f.flush()
            except OSError:
                pass
        deleted = list(done)[:20]
        subprocess.run(["timeout", "10", "rados", "-c", home.conf, "-p", "p", "rm", "--force-full"] + deleted, capture_output=True)
        time.sleep(3)
        survivors = home.pids()
        for name in ("mon.a", "osd.0", "osd.1", "osd.2"):
            if name not in survivors:
                log = open("%s/log/%s.log" % (home.dir, name)).read()
                match("No space left|ENOSPC|full", log[-3000:], "%s says why it ended" % name)
        os.unlink(mount + "/hog")
        home.up()
        for name in deleted:
            done.pop(name)
        reads_back(home, "p", 1 << 20, done)
        remove_all(home, "p", list(done))
        until(lambda: "FULL" not in ceph(home, "health", "detail"), "room again after deletions", 40)
        with home.client() as cluster, cluster.open_ioctx("p") as io:
            io.write_full("after", b"x" * 1000000)
    finally:
        home.remove()
        subprocess.run(["umount", "-l", mount])

# --- strangers and clients that vanish

def ports(home):
    text = ceph(home, "osd", "dump") + ceph(home, "mon", "dump") + ceph(home, "mgr", "dump")
    return sorted({int(p) for p in re.findall(r"127\.0\.0\.1:(\d+)", text)} - {0})

def memory(pids):
    return {n: int(re.search(r"VmRSS:\s+(\d+)", open("/proc/%d/status" % p).read()).group(1)) for n, p in pids.items()}

@test
def strangers_at_every_port_change_nothing(c):
    pids = c.home.pids()
    before = memory(pids)
    rng = random.Random(7)
    banner = b"ceph v2\n" + (16).to_bytes(2, "little") + (1).to_bytes(8, "little") + bytes(8)
    all_ports = ports(c.home)
    check(len(all_ports) >= 5, "ports: %s" % all_ports)
    for port in all_ports:
        idle = []
        for i in range(60):
            s = socket.create_connection(("127.0.0.1", port), timeout=5)
            kind = i % 6
            data = {
                0: rng.randbytes(rng.randrange(1, 5000)),
                1: banner + rng.randbytes(rng.randrange(1, 5000)),
                2: banner[:rng.randrange(1, len(banner))],
                3: b"ceph v2\n\xff\xff" + rng.randbytes(70000),
                4: banner + b"\x01\x01" + b"\xff" * 30 + rng.randbytes(100),
                5: b"GET / HTTP/1.1\r\n\r\n",
            }[kind]
            try:
                s.sendall(data)
            except OSError:
                pass
            if i % 3 == 0:
                idle.append(s)
            else:
                s.close()
        time.sleep(0.1)
        for s in idle:
            s.close()
    equal(c.home.pids(), pids, "nobody died")
    match("HEALTH_OK", ceph(c.home, "health"), "health")
    with c.home.client() as cluster, cluster.open_ioctx("p") as io:
        io.write_full("after strangers", b"x")
        equal(io.read("after strangers"), b"x", "I/O goes on")
    grown = {n: memory(pids)[n] - before[n] for n in pids}
    check(max(grown.values()) < 64 << 10, "memory grew, KiB: %s" % grown)
    for name in pids:
        log = open("%s/log/%s.log" % (c.home.dir, name)).read()
        check("panicked" not in log, "%s panicked" % name)

@test
def clients_that_vanish_leave_nothing_behind(c):
    pids = c.home.pids()
    for _ in range(3):
        p = subprocess.Popen(["rados", "-c", c.home.conf, "-p", "p", "bench", "30", "write", "-b", "65536", "-t", "16", "--no-cleanup"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1.5)
        p.kill()
        p.wait()
    watcher = subprocess.Popen(["rados", "-c", c.home.conf, "-p", "p", "watch", "after strangers"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    time.sleep(1)
    watcher.kill()
    watcher.wait()
    with c.home.client() as cluster, cluster.open_ioctx("p") as io:
        io.write_full("after the dead", b"y")
        equal(io.read("after the dead"), b"y", "I/O goes on")
    for osd in ("osd.0", "osd.1", "osd.2"):
        until(lambda: '"num_ops": 0' in ceph(c.home, "daemon", osd, "dump_ops_in_flight"), "no operation hangs in " + osd, 20)
    equal(c.home.pids(), pids, "nobody died")
    subprocess.run(["rados", "-c", c.home.conf, "purge", "p", "--yes-i-really-really-mean-it"], check=True, capture_output=True, timeout=120)

# --- what clients ask for: errno and words are those of stock 16.2

@test
def wrong_keys_and_names_are_refused_as_stock_refuses(c):
    bad = c.work + "/bad.keyring"
    key = "AQCRqVRlAAAAABAAyQxMHYAvFs5TEVbZGZp3Fw=="
    open(bad, "w").write("".join("[client.%s]\n\tkey = %s\n" % (n, key) for n in ("admin", "nobody")))
    for name in ("client.admin", "client.nobody"):
        said = ceph(c.home, "-n", name, "-k", bad, "-s", rc=13)
        match(r"\[errno 13\] RADOS permission denied \(error connecting to the cluster\)", said, name)
        p = subprocess.run(["rados", "-c", c.home.conf, "-n", name, "-k", bad, "lspools"], capture_output=True, text=True, timeout=30)
        equal(p.returncode, 1, "rados as " + name)
        match("handle_auth_bad_method", p.stdout + p.stderr, "rados as %s is answered, not hung up on" % name)

@test
def wrong_commands_are_refused_as_stock_refuses(c):
    cases = [
        (["no", "such", "command"], 22, r"no valid command found; .*closest matches:"),
        (["osd", "pool", "create"], 22, "Invalid command: missing required parameter pool"),
        (["osd", "pool", "get", "nope", "size"], 2, "Error ENOENT: unrecognized pool 'nope'"),
        (["osd", "pool", "set", "nope", "size", "2"], 2, "Error ENOENT: unrecognized pool 'nope'"),
        (["osd", "pool", "set", "p", "size", "0"], 22, "Error EINVAL: pool size must be between 1 and 10"),
        (["osd", "pool", "set", "p", "size", "11"], 22, "Error EINVAL: pool size must be between 1 and 10"),
        (["osd", "pool", "set", "p", "size", "many"], 22, "Error EINVAL: error parsing int"),
        (["osd", "pool", "set", "p", "colour", "blue"], 22, "Invalid command: colour not in"),
        (["osd", "pool", "rm", "nope", "nope", "--yes-i-really-really-mean-it"], 0, "pool 'nope' does not exist"),
        (["osd", "pool", "rm", "p", "q", "--yes-i-really-really-mean-it"], 1, "Error EPERM: WARNING: this will \\*PERMANENTLY DESTROY\\*"),
        (["osd", "pool", "rename", "nope", "x"], 2, "Error ENOENT: unrecognized pool 'nope'"),
        (["osd", "down", "77"], 0, "osd.77 does not exist"),
        (["osd", "out", "x"], 22, "Error EINVAL: .*x"),
        (["osd", "reweight", "0", "7"], 22, "Invalid command"),
        (["osd", "crush", "reweight", "osd.77", "1"], 2, "Error ENOENT: device 'osd.77' does not appear in the crush map"),
        (["config", "set", "osd", "no_such_option", "1"], 22, "Error EINVAL: unrecognized config option 'no_such_option'"),
        (["config", "set", "osd", "osd_max_backfills", "many"], 22, "Error EINVAL: error parsing value"),
        (["config", "get", "osd.0", "no_such_option"], 2, "Error ENOENT"),
        (["auth", "get", "client.nobody"], 2, "Error ENOENT: failed to find client.nobody in keyring"),
        (["auth", "caps", "client.nobody", "mon", "allow r"], 2, "Error ENOENT"),
        (["auth", "get-or-create", "client.x", "mon", "allow nonsense"], 22, "Error EINVAL"),
        (["config-key", "get", "nope"], 2, "Error ENOENT"),
        (["tell", "osd.77", "version"], 2, "Error ENOENT: problem getting command descriptions from osd.77"),
        (["tell", "osd.0", "no", "such"], 22, "no valid command found"),
        (["pg", "1.zz", "query"], 22, ""),
        (["osd", "set", "no_such_flag"], 22, "Invalid command: no_such_flag not in"),
    ]
    wrong = []
    for words, code, text in cases:
        p = subprocess.run(["ceph", "-c", c.home.conf] + words, capture_output=True, text=True, timeout=60)
        said = p.stdout + p.stderr
        if p.returncode != code or not re.search(text, said, re.S):
            wrong.append("ceph %s: exit %d, wanted %d and %r: %s" % (" ".join(words), p.returncode, code, text, said.strip()[-300:]))
    check(not wrong, "\n".join(wrong))

@test
def limits_are_those_of_stock(c):
    def fails(what, errno, f):
        try:
            f()
        except rados.Error as e:
            return equal(abs(e.errno), errno, "%s (%s)" % (what, e))
        raise Failed("%s went through" % what)
    p = subprocess.run(["rados", "-c", c.home.conf, "-p", "nope", "ls"], capture_output=True, text=True, timeout=30)
    match(r"error opening pool nope: \(2\) No such file or directory", p.stderr, "unknown pool")
    equal(p.returncode, 1, "unknown pool")
    p = subprocess.run(["rados", "-c", c.home.conf, "-p", "p", "put", "n" * 2049, "/bin/ls"], capture_output=True, text=True, timeout=30)
    match(r"\(36\) File name too long", p.stderr, "a name over osd_max_object_name_len")
    p = subprocess.run(["rados", "-c", c.home.conf, "-p", "p", "get", "nope", "-"], capture_output=True, text=True, timeout=30)
    match(r"error getting p/nope: \(2\) No such file or directory", p.stderr, "no such object")
    with c.home.client() as cluster, cluster.open_ioctx("p") as io:
        io.write_full("n" * 2048, b"x")
        equal(io.read("n" * 2048), b"x", "the longest name")
        fails("a namespace over osd_max_object_namespace_len", 36, lambda: (io.set_namespace("s" * 257), io.write_full("o", b"x")))
        io.set_namespace("")
        fails("an object over osd_max_object_size", 27, lambda: io.write("o", b"x", 128 << 20))
        io.write("o", b"x", (128 << 20) - 1)
        equal(io.stat("o")[0], 128 << 20, "the largest object")
        io.remove_object("o")
        fails("a write over osd_max_write_size", 90, lambda: io.write_full("o", b"x" * ((90 << 20) + 1)))
        io.write_full("o", b"x")
        fails("an xattr name over osd_max_attr_name_len", 36, lambda: io.set_xattr("o", "a" * 101, b"v"))
        io.set_xattr("o", "a" * 99, b"v")
        ceph(c.home, "config", "set", "osd", "osd_max_attr_size", "1000")
        until(lambda: "1000" in ceph(c.home, "config", "show", "osd.0", "osd_max_attr_size"), "the option is in force", 20)
        time.sleep(1)
        fails("an xattr over osd_max_attr_size", 27, lambda: io.set_xattr("o", "b", b"v" * 1001))
        io.set_xattr("o", "b", b"v" * 1000)
        ceph(c.home, "config", "rm", "osd", "osd_max_attr_size")
        fails("a class that is none", 1, lambda: io.execute("o", "no_such_class", "m", b""))
        fails("a method that is none", 95, lambda: io.execute("o", "hello", "no_such_method", b""))
        fails("arguments that are none", 22, lambda: io.execute("o", "lock", "lock", b"\xff" * 5))
        fails("an xattr that is not there", 61, lambda: io.get_xattr("o", "nope"))
        fails("a pool that is not there", 2, lambda: cluster.open_ioctx("nope"))
        io.remove_object("o")

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--only", action="append")
    ap.add_argument("--keep", action="store_true", help="keep the directories of failed tests")
    a = ap.parse_args()
    os.environ["CEPH_ARGS"] = ""
    base = tempfile.mkdtemp(prefix="cuttlebone-wrong.")
    home = Home(os.path.realpath(a.bin), base + "/main", "--size", "2G")
    failed = 1
    try:
        home.up()
        client = harness.Client(home.conf)
        client.home, client.bin, client.work = home, home.bin, base
        ceph(home, "osd", "pool", "create", "p", "16")
        ceph(home, "osd", "pool", "application", "enable", "p", "rados")
        failed = harness.run_all(client, a.only)
        return 1 if failed else 0
    finally:
        if failed and a.keep:
            print("kept: " + base)
        else:
            home.remove()
            shutil.rmtree(base, ignore_errors=True)

sys.exit(main())
