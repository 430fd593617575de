#!/usr/bin/python3
"""Stores every file of a real directory tree with stock rados, kills all daemons with -9, starts them again, and
compares every file's checksum.

    kill_all.py -c DIR/ceph.conf --bin BINARY [--tree /usr/lib] [--gib 1.0]
"""
import hashlib, os, signal, subprocess, sys, time
import rados
from harness import arguments

def files(tree, limit):
    """Regular files of the tree in a fixed order until `limit` bytes; then the big directories next to it."""
    total = 0
    for top in [tree, "/usr/share", "/usr/bin", os.path.expanduser("~/.rustup")]:
        for base, dirs, names in os.walk(top):
            dirs.sort()
            for name in sorted(names):
                path = os.path.join(base, name)
                if os.path.islink(path) or not os.path.isfile(path):
                    continue
                size = os.path.getsize(path)
                if size > 256 << 20:
                    continue
                yield path
                total += size
                if total >= limit:
                    return

def digest(path):
    return hashlib.file_digest(open(path, "rb"), "sha1").hexdigest()

def put_all(conf, pool, paths):
    """Stores through the stock `rados put`, a few at a time: a process start costs more than most files."""
    running = []
    for i, path in enumerate(paths):
        running.append((path, subprocess.Popen(["rados", "-c", conf, "-p", pool, "put", "f%d" % i, path], stderr=subprocess.PIPE)))
        while len(running) >= 4:
            reap(running)
    while running:
        reap(running)

def reap(running):
    path, p = running.pop(0)
    err = p.communicate()[1]
    if p.returncode:
        sys.exit("put %s: %s" % (path, err.decode()))

def pids(directory):
    out = {}
    for name in os.listdir(directory + "/run"):
        if name.endswith(".pid"):
            out[name[:-4]] = int(open("%s/run/%s" % (directory, name)).read())
    return out

def main():
    ap = arguments(__doc__)
    ap.add_argument("--tree", default="/usr/lib")
    ap.add_argument("--gib", type=float, default=1.0)
    ap.add_argument("--small", type=int, default=1500, help="at most so many files one by one with `rados put`; the rest through the bindings")
    a = ap.parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    pool = "tree"
    subprocess.run(["ceph", "-c", a.conf, "osd", "pool", "create", pool, "32"], check=True)
    paths = list(files(a.tree, a.gib * (1 << 30)))
    paths.sort(key=lambda p: -os.path.getsize(p))
    paths, rest = paths[:a.small], paths[a.small:]
    sums = {}
    start = time.monotonic()
    put_all(a.conf, pool, paths)
    for i, path in enumerate(paths):
        sums["f%d" % i] = digest(path)
    cluster = rados.Rados(conffile=a.conf); cluster.connect(); io = cluster.open_ioctx(pool)
    pending = []
    for path in rest:
        data = open(path, "rb").read()
        name = "r" + path.replace("/", "_")
        sums[name] = hashlib.sha1(data).hexdigest()
        pending.append(io.aio_write_full(name, data))
        if len(pending) > 64:
            wait(pending)
    while pending:
        wait(pending)
    total = sum(os.path.getsize(p) for p in paths + rest)
    print("stored %d files, %d MB in %.0f s" % (len(sums), total >> 20, time.monotonic() - start), flush=True)
    killed = pids(directory)
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    print("killed -9:", " ".join(sorted(killed)), flush=True)
    cluster.shutdown()
    subprocess.run([a.bin, "up", "--dir", directory], check=True)
    cluster = rados.Rados(conffile=a.conf); cluster.connect(); io = cluster.open_ioctx(pool)
    bad = 0
    for name, want in sums.items():
        if hashlib.sha1(read(io, name)).hexdigest() != want:
            print("DIFFERS:", name); bad += 1
    print("%d passed, %d failed" % (len(sums) - bad, bad), flush=True)
    sys.exit(1 if bad else 0)

def wait(pending):
    c = pending.pop(0)
    c.wait_for_complete()
    if c.get_return_value() < 0:
        sys.exit("write: %d" % c.get_return_value())

def read(io, name):
    out = []
    offset = 0
    while True:
        piece = io.read(name, 4 << 20, offset)
        out.append(piece)
        offset += len(piece)
        if len(piece) < 4 << 20:
            return b"".join(out)

main()
