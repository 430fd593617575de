"""Runs the Python rados bindings through aio, omap, locks, watch and errors. Usage: CONF POOL"""
import sys, threading, time
import rados

checks = 0
def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit("FAILED: " + what)

cluster = rados.Rados(conffile=sys.argv[1])
cluster.connect()
check(len(cluster.get_fsid()) == 36, "fsid")
check(sys.argv[2] in cluster.list_pools(), "list_pools")
stats = cluster.get_cluster_stats()
check(stats["kb"] > 0, "cluster stats")
io = cluster.open_ioctx(sys.argv[2])

for name in ("obj", "comp", "lockobj", "hello_obj"):
    try:
        io.remove_object(name)
    except rados.ObjectNotFound:
        pass

# asynchronous writes and reads
done = [io.aio_write_full("aio%d" % i, b"%d" % i * 5000) for i in range(200)]
for c in done:
    c.wait_for_complete_and_cb()
    check(c.get_return_value() == 0, "aio_write_full")
got = {}
def on_read(i):
    def f(_, buf):
        got[i] = buf
    return f
reads = [io.aio_read("aio%d" % i, 100000, 0, on_read(i)) for i in range(200)]
for c in reads:
    c.wait_for_complete_and_cb()
check(all(got[i] == b"%d" % i * 5000 for i in range(200)), "aio_read")
check(io.aio_remove("aio0").wait_for_complete() is None or True, "aio_remove")

# write at offsets, zero, truncate, append order
io.write("obj", b"abc", 0)
io.write("obj", b"XYZ", 5000)
got_obj = io.read("obj", 6000)
check(got_obj == b"abc" + bytes(4997) + b"XYZ", "a hole reads as zeros: %d bytes, %r" % (len(got_obj), got_obj[:8]))
io.trunc("obj", 2)
check(io.read("obj") == b"ab", "trunc")
io.append("obj", b"cd")
check(io.read("obj") == b"abcd", "append")
size, mtime = io.stat("obj")
check(size == 4, "stat")

# compound operations: one atomic transaction
with rados.WriteOpCtx() as op:
    op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
    op.write_full(b"compound")
    io.set_omap(op, ("k1", "k2", "k3"), (b"v1", b"v2", b"v3"))
    io.operate_write_op(op, "comp")
try:
    with rados.WriteOpCtx() as op:
        op.write_full(b"must not appear")
        op.new(rados.LIBRADOS_CREATE_EXCLUSIVE)
        io.operate_write_op(op, "comp")
    check(False, "an exclusive create of an existing object")
except rados.ObjectExists:
    pass
check(io.read("comp") == b"compound", "a failed guard changes nothing")
with rados.ReadOpCtx() as op:
    it, ret = io.get_omap_vals(op, "", "", 10)
    io.operate_read_op(op, "comp")
    check(list(it) == [("k1", b"v1"), ("k2", b"v2"), ("k3", b"v3")], "omap values")
with rados.ReadOpCtx() as op:
    it, ret = io.get_omap_keys(op, "k1", 1)
    io.operate_read_op(op, "comp")
    check([k for k, _ in it] == ["k2"], "omap keys paged")
with rados.ReadOpCtx() as op:
    it, ret = io.get_omap_vals_by_keys(op, ("k1", "nosuch"))
    io.operate_read_op(op, "comp")
    check(list(it) == [("k1", b"v1")], "omap values by keys")
with rados.WriteOpCtx() as op:
    io.remove_omap_keys(op, ("k2",))
    io.operate_write_op(op, "comp")
with rados.WriteOpCtx() as op:
    io.clear_omap(op)
    io.operate_write_op(op, "comp")
with rados.ReadOpCtx() as op:
    it, ret = io.get_omap_vals(op, "", "", 10)
    io.operate_read_op(op, "comp")
    check(list(it) == [], "clear_omap")

# xattrs
io.set_xattr("obj", "name", b"va\x00lue")
check(io.get_xattr("obj", "name") == b"va\x00lue", "xattr")
check(dict(io.get_xattrs("obj")) == {"name": b"va\x00lue"}, "xattrs")
try:
    io.get_xattr("obj", "nosuch")
    check(False, "a missing xattr")
except rados.NoData:
    check(True, "ENODATA")

# errors
for call in (lambda: io.read("nosuch"), lambda: io.remove_object("nosuch"), lambda: io.stat("nosuch")):
    try:
        call()
        check(False, "a missing object")
    except rados.ObjectNotFound:
        check(True, "ENOENT")

# object classes
io.write_full("hello_obj", b"")
ret, out = io.execute("hello_obj", "hello", "say_hello", b"")
check(out == b"Hello, world!", "class hello: %r" % out)
ret, out = io.execute("hello_obj", "hello", "say_hello", b"you")
check(out == b"Hello, you!", "class hello: %r" % out)
def errno_of(call):
    try:
        call()
        return 0
    except (rados.Error, OSError) as e:
        return abs(e.errno or 0)
# A class outside osd_class_load_list is forbidden; a method that a class lacks is unsupported.
check(errno_of(lambda: io.execute("obj", "nosuchclass", "method", b"")) == 1, "EPERM for an unknown class")
check(errno_of(lambda: io.execute("obj", "lock", "nosuchmethod", b"")) == 95, "EOPNOTSUPP for an unknown method")
io.lock_exclusive("lockobj", "l", "cookie", "desc", 300)
try:
    cluster2 = rados.Rados(conffile=sys.argv[1]); cluster2.connect()
    io2 = cluster2.open_ioctx(sys.argv[2])
    io2.lock_exclusive("lockobj", "l", "cookie", "desc", 300)
    check(False, "a lock held by another")
except rados.ObjectBusy:
    check(True, "EBUSY")
io.unlock("lockobj", "l", "cookie")
io2.lock_exclusive("lockobj", "l", "cookie", "desc", 300)
io2.unlock("lockobj", "l", "cookie")

# watch and notify between two clients
seen = []
event = threading.Event()
def on_notify(notify_id, notifier, watch_id, payload):
    seen.append(payload)
    event.set()
    return None
watch = io2.watch("obj", on_notify)
io.notify("obj", "ping", timeout_ms=5000)
check(event.wait(10) and seen == [b"ping"], "notify reaches the watcher: %r" % seen)
watch.close()

# listing, namespaces, keys
io.set_namespace("python")
for i in range(30):
    io.write_full("n%d" % i, b"x")
check(sorted(o.key for o in io.list_objects()) == sorted("n%d" % i for i in range(30)), "listing of a namespace")
for o in list(io.list_objects()):
    o.remove()
check(list(io.list_objects()) == [], "all removed")
io.set_namespace("")
io.set_locator_key("somewhere")
io.write_full("keyed", b"k")
check(io.read("keyed") == b"k", "locator key")
io.remove_object("keyed")
io.set_locator_key("")

# commands through the library
import json
ret, out, err = cluster.mon_command(json.dumps({"prefix": "osd pool ls", "format": "json"}), b"")
check(ret == 0 and sys.argv[2] in json.loads(out), "mon_command")
ret, out, err = cluster.mon_command('{"prefix": "osd pool set", "pool": "x", "var": "recovery_priority": "5"}', b"")
check(ret == -22, "unparseable JSON")

for i in range(1, 200):
    io.remove_object("aio%d" % i)
for name in ("obj", "comp", "lockobj"):
    io.remove_object(name)
cluster2.shutdown()
cluster.shutdown()
print("all %d checks hold" % checks)
