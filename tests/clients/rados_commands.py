"""The stock `rados` command and its Python bindings: everything that stores, lists, reads and removes data."""
import hashlib, os, random, subprocess, textwrap
from harness import *

POOL = "clients"

@test
def make_pool(c):
    c.ceph("config", "set", "mon", "mon_allow_pool_delete", "true")
    c.ceph("osd", "pool", "rm", POOL, POOL, "--yes-i-really-really-mean-it")
    c.ceph("osd", "pool", "create", POOL, "16")
    c.ceph("osd", "pool", "application", "enable", POOL, "rados")
    check(POOL in c.rados("lspools")[0].split(), "lspools")

def data(n, seed=1):
    return random.Random(seed).randbytes(n)

@test
def put_get_append_stat_rm(c):
    for n in (0, 1, 4095, 4096, 4097, 65536, 1 << 20, 6 << 20, 9000001):
        open(c.work + "/in", "wb").write(data(n, n))
        c.rados("-p", POOL, "put", "o%d" % n, c.path("in"))
        c.rados("-p", POOL, "get", "o%d" % n, c.path("out"))
        equal(hashlib.md5(open(c.work + "/out", "rb").read()).digest(), hashlib.md5(data(n, n)).digest(), "get of %d bytes" % n)
        match(r"%s/o%d mtime \S+ ?\S*, size %d" % (POOL, n, n), c.rados("-p", POOL, "stat", "o%d" % n)[0])
    open(c.work + "/in", "wb").write(b"tail")
    c.rados("-p", POOL, "append", "o4095", c.path("in"))
    c.rados("-p", POOL, "get", "o4095", c.path("out"))
    equal(open(c.work + "/out", "rb").read(), data(4095, 4095) + b"tail", "append")
    c.rados("-p", POOL, "truncate", "o4095", "100")
    match(r"size 100$", c.rados("-p", POOL, "stat", "o4095")[0])
    c.rados("-p", POOL, "create", "made")
    c.rados("-p", POOL, "touch", "made2", rc=None)
    names = set(c.rados("-p", POOL, "ls")[0].split())
    check({"o0", "o4096", "made"} <= names, "ls: %s" % names)
    c.rados("-p", POOL, "rm", "o0")
    _, err = c.rados("-p", POOL, "stat", "o0", rc=1)
    match(r"\(2\) No such file", err, "stat of a removed object")
    match(r"\(2\) No such file", c.rados("-p", POOL, "rm", "o0", rc=1)[1])
    match(r"\(2\) No such file|does not exist|error opening pool", c.rados("-p", "nosuchpool", "ls", rc=1)[1])

@test
def namespaces_and_locators(c):
    open(c.work + "/in", "wb").write(b"in a namespace")
    c.rados("-p", POOL, "-N", "ns1", "put", "same", c.path("in"))
    c.rados("-p", POOL, "--object-locator", "loc", "put", "located", c.path("in"), rc=None)
    equal(c.rados("-p", POOL, "-N", "ns1", "ls")[0].split(), ["same"], "ls -N")
    check("same" not in c.rados("-p", POOL, "ls")[0].split(), "ls of the default namespace")
    match(r"ns1\s+same", c.rados("-p", POOL, "ls", "--all")[0])
    c.rados("-p", POOL, "-N", "ns1", "rm", "same")

@test
def xattrs_and_omap(c):
    c.rados("-p", POOL, "create", "meta")
    c.rados("-p", POOL, "setxattr", "meta", "color", "blue")
    equal(c.rados("-p", POOL, "getxattr", "meta", "color")[0].strip(), "blue", "getxattr")
    check("color" in c.rados("-p", POOL, "listxattr", "meta")[0].split(), "listxattr")
    c.rados("-p", POOL, "rmxattr", "meta", "color")
    check("color" not in c.rados("-p", POOL, "listxattr", "meta")[0].split(), "rmxattr")
    c.rados("-p", POOL, "getxattr", "meta", "color", rc=1)
    for i in range(20):
        c.rados("-p", POOL, "setomapval", "meta", "key%02d" % i, "value %d" % i)
    equal(c.rados("-p", POOL, "listomapkeys", "meta")[0].split(), ["key%02d" % i for i in range(20)], "listomapkeys")
    match(r"key07\s*\nvalue \(7 bytes\)", c.rados("-p", POOL, "listomapvals", "meta")[0])
    match(r"value \(7 bytes\)", c.rados("-p", POOL, "getomapval", "meta", "key07")[0])
    c.rados("-p", POOL, "rmomapkey", "meta", "key07")
    check("key07" not in c.rados("-p", POOL, "listomapkeys", "meta")[0].split(), "rmomapkey")
    c.rados("-p", POOL, "setomapheader", "meta", "head")
    match(r"header \(4 bytes\)|head", c.rados("-p", POOL, "getomapheader", "meta")[0])
    c.rados("-p", POOL, "clearomap", "meta", rc=None)

@test
def copy(c):
    open(c.work + "/in", "wb").write(data(5 << 20, 3))
    c.rados("-p", POOL, "put", "src", c.path("in"))
    c.rados("-p", POOL, "setxattr", "src", "a", "b")
    c.rados("-p", POOL, "cp", "src", "dst")
    c.rados("-p", POOL, "get", "dst", c.path("out"))
    equal(open(c.work + "/out", "rb").read(), data(5 << 20, 3), "cp")
    equal(c.rados("-p", POOL, "getxattr", "dst", "a")[0].strip(), "b", "cp takes the xattrs along")

@test
def locks(c):
    c.rados("-p", POOL, "lock", "get", "lk", "mylock", "--lock-cookie", "c1", "--lock-tag", "t")
    match(r'"name":\s*"mylock"', c.rados("-p", POOL, "lock", "list", "lk")[0])
    info = c.rados("-p", POOL, "lock", "info", "lk", "mylock")[0]
    match(r'"type":\s*"exclusive"', info)
    _, err = c.rados("-p", POOL, "lock", "get", "lk", "mylock", "--lock-cookie", "c2", "--lock-tag", "t", rc=None)
    match(r"\(16\)|\(17\)|busy|exist", err)
    locker = re.search(r'"name":\s*"(client\.\d+)"', info).group(1)
    c.rados("-p", POOL, "lock", "break", "lk", "mylock", locker, "--lock-cookie", "c1")

@test
def watch_and_notify(c):
    c.rados("-p", POOL, "create", "watched")
    w = subprocess.Popen(c.argv("rados", "-p", POOL, "watch", "watched"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(lambda: "watcher=" in c.rados("-p", POOL, "listwatchers", "watched")[0], "listwatchers", 10)
        out = "".join(c.rados("-p", POOL, "notify", "watched", "hello there"))
        match(r"REPLY client\.\d+|0 timeouts|reply", out, "notify") if out.strip() else None
        w.stdin.write(b"\n"); w.stdin.flush()
        text = w.communicate(timeout=20)[0].decode()
        match(r"NOTIFY cookie", text, "the watcher")
    finally:
        w.kill()
    until(lambda: "watcher=" not in c.rados("-p", POOL, "listwatchers", "watched")[0], "unwatch", 40)

@test
def large_writes_that_keep_a_connection_full(c):
    # Of messages that follow each other at once each is received where it will be written; `seq` compares what was.
    large = ["--run-name", "large", "-t", "16"]
    made = c.rados("bench", "-p", POOL, "4", "write", "-b", "4194304", "--no-cleanup", *large)[0]
    match(r"Total writes made: +\d\d", made)
    match(r"Total reads made: +\d+", c.rados("bench", "-p", POOL, "3", "seq", *large)[0])
    c.rados("-p", POOL, "cleanup", "--run-name", "large")

@test
def bench(c):
    match(r"Total writes made: +\d+", c.rados("bench", "-p", POOL, "3", "write", "-b", "4096", "-t", "16", "--no-cleanup")[0])
    match(r"Total reads made: +\d+", c.rados("bench", "-p", POOL, "2", "seq", "-t", "16")[0])
    match(r"Total reads made: +\d+", c.rados("bench", "-p", POOL, "2", "rand", "-t", "16")[0])
    c.rados("-p", POOL, "cleanup")
    left = [n for n in c.rados("-p", POOL, "ls")[0].split() if n.startswith("benchmark_")]
    equal(left, [], "cleanup")

@test
def space(c):
    match(r"^POOL_NAME +USED +OBJECTS ", c.rados("df")[0])
    out, _ = c.rados("df", "-f", "json")
    has_keys(json.loads(out), "pools total_objects total_used total_avail total_space", "rados df")

@test
def export_import(c):
    c.ceph("osd", "pool", "create", "exp", "8")
    for i in range(10):
        open(c.work + "/in", "wb").write(data(10000 * i, i))
        c.rados("-p", "exp", "put", "e%d" % i, c.path("in"))
    c.rados("-p", "exp", "setomapval", "e3", "k", "v")
    c.rados("-p", "exp", "export", c.path("dump"))
    c.rados("purge", "exp", "--yes-i-really-really-mean-it")
    equal(c.rados("-p", "exp", "ls")[0].split(), [], "purge")
    c.rados("-p", "exp", "import", c.path("dump"))
    equal(sorted(c.rados("-p", "exp", "ls")[0].split()), ["e%d" % i for i in range(10)], "import")
    c.rados("-p", "exp", "get", "e7", c.path("out"))
    equal(open(c.work + "/out", "rb").read(), data(70000, 7), "import's data")
    equal(c.rados("-p", "exp", "listomapkeys", "e3")[0].split(), ["k"], "import's omap")
    c.ceph("osd", "pool", "rm", "exp", "exp", "--yes-i-really-really-mean-it")

@test
def python_bindings(c):
    here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "librados_script.py")
    with open(c.work + "/script.py", "w") as f:
        f.write(open(here).read())
    out, _ = c.run("/usr/bin/python3", c.path("script.py"), c.conf, POOL)
    match(r"^all \d+ checks hold$", out.strip(), "python")

@test
def forbidden_data(c):
    out, _ = c.ceph("auth", "get-or-create", "client.ns", "mon", "allow r", "osd", "allow r pool=%s namespace=open" % POOL)
    open(c.work + "/ns.keyring", "w").write(out)
    me = ["-n", "client.ns", "--keyring", c.path("ns.keyring")]
    open(c.work + "/in", "wb").write(b"x")
    c.rados("-p", POOL, "-N", "open", "put", "seen", c.path("in"))
    c.rados(*me, "-p", POOL, "-N", "open", "get", "seen", c.path("out"))
    match(r"\(1\) Operation not permitted", c.rados(*me, "-p", POOL, "-N", "open", "put", "seen", c.path("in"), rc=1)[1])
    match(r"\(1\) Operation not permitted", c.rados(*me, "-p", POOL, "get", "src", c.path("out"), rc=1)[1])
    c.ceph("auth", "rm", "client.ns")

@test
def keys_as_this_client_makes_them(c):
    # aes up to Squid, aes256k from Tentacle on.
    key = c.run("ceph-authtool", "--gen-print-key")[0].strip()
    caps = '\tcaps mon = "allow r"\n\tcaps osd = "allow rw pool=%s"\n' % POOL
    open(c.work + "/own.keyring", "w").write("[client.own]\n\tkey = %s\n%s" % (key, caps))
    c.ceph("auth", "import", "-i", c.path("own.keyring"))
    equal(c.ceph("auth", "get-key", "client.own")[0].strip(), key, "the key")
    me = ["-n", "client.own", "--keyring", c.path("own.keyring")]
    c.rados(*me, "-p", POOL, "put", "own", c.path("in"))
    c.rados(*me, "-p", POOL, "get", "own", c.path("out"))
    equal(open(c.work + "/out", "rb").read(), b"x", "what was stored")
    c.ceph("auth", "rm", "client.own")
