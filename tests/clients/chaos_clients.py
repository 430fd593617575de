#!/usr/bin/python3
"""The clients of chaos.py: stock librados, each process on a session of its own that is never opened again.

    chaos_clients.py writer|reader|shared|snapper CONF DIRECTORY NUMBER

A writer changes objects of its own and compares every read with what it wrote; a reader reads the writers' objects meanwhile, and
finds nothing damaged, nothing older than what was acknowledged, nothing newer than what was begun. Shared clients change the same few
objects and note when each operation began and ended and what it answered, for tests/linearizability. Snappers have snapshots of their own, roll back to them,
remove them, and compare what each of them shows. One writer and one snapper are at home in a pool that is erasure-coded. All end when standard
input does, after a last look at everything, and print what they did as JSON.
"""
import json, mmap, os, random, struct, subprocess, sys, threading, time, traceback, zlib
import rados

POOL, EC_POOL = "chaos", "chaos-ec"
# Where the writers' objects are, and the snappers'.
WRITERS, SNAPPERS = (POOL, POOL, EC_POOL), (POOL, EC_POOL)
THREADS, OBJECTS = 3, 24
HEAD = struct.Struct("<4sIQII")

class Board:
    """For every writer's object, the number of the newest change begun and of the newest acknowledged, seen by all processes.

    Stored and loaded eight bytes at a time: struct.pack_into fills what it writes to with zeros first, and others look."""

    def __init__(self, directory):
        with open(directory + "/board", "r+b") as f:
            self.numbers = memoryview(mmap.mmap(f.fileno(), 0)).cast("q")

    @staticmethod
    def make(directory):
        with open(directory + "/board", "wb") as f:
            f.truncate(16 * len(WRITERS) * THREADS * OBJECTS)

    def begun(self, n):
        return self.numbers[2 * n]

    def acked(self, n):
        return self.numbers[2 * n + 1]

    def begin(self, n, change):
        self.numbers[2 * n] = change

    def ack(self, n, change):
        self.numbers[2 * n + 1] = change

def record(n, change, size):
    """What one change writes: it says of which object and which change it is, and is checkable by itself."""
    body = random.randbytes(size)
    return HEAD.pack(b"chao", n, change, size, zlib.crc32(body)) + body

def newest(n, data):
    """The newest change in an object's content; dies of anything that nobody wrote."""
    at = last = 0
    while at < len(data):
        magic, of, change, size, crc = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size:at + HEAD.size + size]
        if (magic, of, len(body)) != (b"chao", n, size) or zlib.crc32(body) != crc:
            raise AssertionError("o%d has at %d something that was never written: %r" % (n, at, data[at:at + 32]))
        at, last = at + HEAD.size + size, max(last, change)
    return last

def read(io, name):
    try:
        return io.read(name, 4 << 20)
    except rados.ObjectNotFound:
        return None

def asked(socket, command):
    """What a client or a daemon says on its admin socket, as JSON."""
    p = subprocess.run(["timeout", "20", "ceph", "--admin-daemon", socket, command], capture_output=True, text=True)
    return json.loads(p.stdout) if p.returncode == 0 else {"error": p.stderr}

def waits(directory):
    """The operations that this client waits for, and what the OSDs that they went to know of them."""
    ours = asked("%s/run/ceph-client.admin.%d.asok" % (directory, os.getpid()), "objecter_requests").get("ops", [])
    keep = ("tid", "pg", "osd", "object_id", "last_sent", "attempts", "osd_ops")
    said = ["the client: %s" % {k: op.get(k) for k in keep} for op in ours]
    for osd in sorted({op["osd"] for op in ours if op["osd"] >= 0}):
        said.append("osd.%d: %s" % (osd, json.dumps(asked("%s/run/ceph-osd.%d.asok" % (directory, osd), "dump_ops_in_flight"))))
    return said

# Seconds after which it is told what an operation waits for: longer than one fault lasts.
LONG = 35

class Client:
    """Runs `step` in threads until standard input ends; then `last` once each."""

    def __init__(self, conf, directory, number):
        self.directory, self.number = directory, number
        self.cluster = rados.Rados(conffile=conf)
        self.cluster.connect(timeout=60)
        self.board = Board(directory)
        self.stop, self.bad = threading.Event(), []
        self.done, self.longest, self.begun = {}, 0.0, {}

    def timed(self, what, f):
        me = threading.get_ident()
        begin = self.begun[me] = time.monotonic()
        out = f()
        del self.begun[me]
        self.longest = max(self.longest, time.monotonic() - begin)
        self.done[what] = self.done.get(what, 0) + 1
        return out

    def tell_of_long_waits(self):
        while True:
            time.sleep(5)
            waited = time.monotonic() - min(list(self.begun.values()), default=time.monotonic())
            if waited > LONG:
                said = waits(self.directory)
                print("\n".join(["%s %d has waited for %.0f s" % (type(self).__name__, self.number, waited)] + said), file=sys.stderr, flush=True)
                time.sleep(30)

    def loop(self, thread):
        try:
            ios = {pool: self.cluster.open_ioctx(pool) for pool in (POOL, EC_POOL)}
            while not self.stop.is_set():
                self.step(ios, thread)
                time.sleep(0.002)
            self.last(ios, thread)
        except BaseException as e:
            self.bad.append("".join(traceback.format_exception_only(type(e), e)).strip())

    def last(self, ios, thread):
        pass

    def run(self, threads):
        all_ = [threading.Thread(target=self.loop, args=(n,), daemon=True) for n in range(threads)]
        for t in all_:
            t.start()
        threading.Thread(target=self.tell_of_long_waits, daemon=True).start()
        sys.stdin.read()
        self.stop.set()
        end = time.monotonic() + 150
        for t in all_:
            t.join(max(0.1, end - time.monotonic()))
            if t.is_alive():
                self.bad.append("an operation hangs")
        if any(t.is_alive() for t in all_):
            self.bad += waits(self.directory)
        print(json.dumps({"done": self.done, "longest": self.longest, "bad": self.bad}), flush=True)
        os._exit(1 if self.bad else 0)

class Writer(Client):
    def __init__(self, *args):
        super().__init__(*args)
        self.holds = {}

    def objects(self, thread):
        first = (self.number * THREADS + thread) * OBJECTS
        return range(first, first + OBJECTS)

    def step(self, ios, thread):
        io, n = ios[WRITERS[self.number]], random.choice(self.objects(thread))
        have, change, what = self.holds.get(n, []), self.board.begun(n) + 1, random.randrange(10)
        if what < 3:
            return self.compare(io, n)
        size, name = random.choice((0, 100, 4000, 4072, 20000, 90000)), "o%d" % n
        if what < 6 and have and len(have) < 8:
            new = have + [record(n, change, size)]
            act = lambda: io.append(name, new[-1])
        elif what < 8 and have:
            i = random.randrange(len(have))
            new = list(have)
            new[i] = record(n, change, len(have[i]) - HEAD.size)
            act = lambda: io.write(name, new[i], sum(map(len, have[:i])))
        else:
            new = [record(n, change, size)]
            act = lambda: io.write_full(name, new[0])
        self.board.begin(n, change)
        self.timed("write", act)
        self.holds[n] = new
        self.board.ack(n, change)

    def compare(self, io, n):
        data, want = self.timed("read", lambda: read(io, "o%d" % n)), b"".join(self.holds.get(n, []))
        if (data or b"") != want:
            raise AssertionError("o%d: %d bytes read, %d acknowledged, and they differ" % (n, len(data or b""), len(want)))

    def last(self, ios, thread):
        for n in self.objects(thread):
            self.compare(ios[WRITERS[self.number]], n)

class Reader(Client):
    def step(self, ios, thread, n=None):
        n = random.randrange(len(WRITERS) * THREADS * OBJECTS) if n is None else n
        io, acked = ios[WRITERS[n // (THREADS * OBJECTS)]], self.board.acked(n)
        data = self.timed("read", lambda: read(io, "o%d" % n))
        found, begun = newest(n, data or b""), self.board.begun(n)
        if not acked <= found <= begun:
            raise AssertionError("o%d is read at change %d; acknowledged %d, begun %d" % (n, found, acked, begun))

    def last(self, ios, thread):
        for n in range(len(WRITERS) * THREADS * OBJECTS):
            self.step(ios, thread, n)

class Shared(Client):
    """Operations that race. Objects change every few seconds, so that no history is long."""

    def __init__(self, *args):
        super().__init__(*args)
        self.count, self.lock, self.seen = 0, threading.Lock(), {}
        self.history = open("%s/history.%d" % (self.directory, self.number), "w")

    def token(self, thread):
        with self.lock:
            self.count += 1
            return "%02d%02d%012d" % (self.number, thread, self.count)

    def step(self, ios, thread):
        io, name = ios[POOL], "s%d.%d" % (time.monotonic() // 10, random.randrange(3))
        what = random.choice(("read", "read", "read", "write", "append", "append", "swap", "swap", "remove"))
        op = {"object": name, "client": self.number * 10 + thread, "op": what}
        if what not in ("read", "remove"):
            op["arg"] = self.token(thread)
        if what == "swap":
            op["expect"] = self.seen.get(name, "no such content.")
        op["call"] = time.monotonic_ns()
        try:
            self.timed(what, lambda: self.act(io, name, what, op))
            op["return"] = time.monotonic_ns()
        finally:
            # Without an answer it may have happened, or may still.
            with self.lock:
                self.history.write(json.dumps(op) + "\n")
                self.history.flush()
        time.sleep(random.random() * 0.1)

    def act(self, io, name, what, op):
        op["result"] = "ok"
        try:
            if what == "read":
                op["value"] = io.read(name, 1 << 20).decode()
                self.seen[name] = op["value"][:16]
            elif what == "write":
                io.write_full(name, op["arg"].encode())
            elif what == "append":
                io.append(name, op["arg"].encode())
            elif what == "remove":
                io.remove_object(name)
            else:
                with rados.WriteOpCtx() as swap:
                    swap.cmpext(op["expect"].encode(), 0)
                    swap.write_full(op["arg"].encode())
                    io.operate_write_op(swap, name)
        except rados.ObjectNotFound:
            op["result"] = "absent"
        except rados.Error as e:
            # -MAX_ERRNO minus where the contents differ.
            if what != "swap" or abs(e.errno or 0) < 4095:
                op.pop("result")
                raise
            op["result"] = "differs"

class Snapper(Client):
    """Snapshots of its own: each thread has objects, snapshots and a snap context to itself."""

    OBJECTS, SNAPS = 8, 6

    def __init__(self, *args):
        super().__init__(*args)
        # Of each thread what its objects hold, now and at each snapshot; what does not exist is not there.
        self.heads = [{} for _ in range(THREADS)]
        self.snaps = [{} for _ in range(THREADS)]

    def name(self, thread, n):
        return "p%d.%d.%d" % (self.number, thread, n)

    def step(self, ios, thread):
        io, head, snaps = ios[SNAPPERS[self.number]], self.heads[thread], self.snaps[thread]
        n, what = random.randrange(self.OBJECTS), random.random()
        name, snap = self.name(thread, n), random.choice(list(snaps) or [None])
        if what < 0.04 and len(snaps) < self.SNAPS:
            made = self.timed("snap", io.create_self_managed_snap)
            snaps[made] = dict(head)
            self.set_context(io, snaps)
        elif what < 0.07 and len(snaps) > 1:
            del snaps[snap]
            self.set_context(io, snaps)
            self.timed("snap removed", lambda: io.remove_self_managed_snap(snap))
        elif what < 0.14 and snaps:
            self.timed("rollback", lambda: io.rollback_self_managed_snap(name, snap))
            self.put(head, n, snaps[snap].get(n))
        elif what < 0.35:
            self.compare(io, thread, n, None)
        elif what < 0.6 and snaps:
            self.compare(io, thread, n, snap)
        else:
            self.timed("write", lambda: self.write(io, head, n, name))

    def set_context(self, io, snaps):
        io.set_self_managed_snap_write(sorted(snaps, reverse=True))

    def put(self, head, n, content):
        if content is None:
            head.pop(n, None)
        else:
            head[n] = content

    def write(self, io, head, n, name):
        have, data = head.get(n), random.randbytes(random.choice((1, 100, 4000, 4096, 20000, 70000)))
        what = random.choice(("full", "append", "write", "write", "truncate", "remove")) if have else "full"
        if what == "full":
            io.write_full(name, data)
            new = data
        elif what == "append" and len(have) < 300000:
            io.append(name, data)
            new = have + data
        elif what == "truncate":
            size = random.randrange(len(have) + 1)
            io.trunc(name, size)
            new = have[:size]
        elif what == "remove":
            io.remove_object(name)
            new = None
        else:
            at = random.randrange(len(have) + 1)
            io.write(name, data, at)
            new = have[:at] + data + have[at + len(data):]
        self.put(head, n, new)

    def compare(self, io, thread, n, snap):
        want = (self.heads[thread] if snap is None else self.snaps[thread][snap]).get(n)
        io.set_read(rados.LIBRADOS_SNAP_HEAD if snap is None else snap)
        name = self.name(thread, n)
        try:
            data = self.timed("read" if snap is None else "read at a snapshot", lambda: read(io, name))
        finally:
            io.set_read(rados.LIBRADOS_SNAP_HEAD)
        if data != want:
            lengths = [None if x is None else len(x) for x in (data, want)]
            raise AssertionError("%s at %s: %s bytes read, %s written, and they differ" % (name, snap or "head", *lengths))

    def last(self, ios, thread):
        for snap in [None, *self.snaps[thread]]:
            for n in range(self.OBJECTS):
                self.compare(ios[SNAPPERS[self.number]], thread, n, snap)

if __name__ == "__main__":
    kind, conf, directory, number = sys.argv[1:]
    client = {"writer": Writer, "reader": Reader, "shared": Shared, "snapper": Snapper}[kind](conf, directory, int(number))
    client.run(THREADS)
