"""Clients that go on while daemons die: each a process with one session of the stock bindings, of this machine or of another root directory,
that notes when what it asked for was done. It never connects again by itself: what it gets through, the library got through.
"""
import bisect, subprocess, sys, tempfile, threading, time
from harness import check, until

# Writes small objects, or has the monitors agree on something and reads it back; prints when each was acknowledged.
SCRIPT = """
import json, os, signal, sys, threading, time, rados
conf, what, pool, objects = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
over, test, key = [], os.getppid(), "steady/%d" % os.getpid()
signal.signal(signal.SIGTERM, lambda *_: over.append(1))

def outlived():
    while os.getppid() == test:
        time.sleep(1)
    os._exit(1)

threading.Thread(target=outlived, daemon=True).start()
cluster = rados.Rados(conffile=conf); cluster.connect(timeout=30)

def command(**cmd):
    rc, out, err = cluster.mon_command(json.dumps(cmd), b"")
    if rc:
        sys.exit("%s: %d %s" % (cmd, rc, err))
    return out.decode()

def commands(n):
    command(prefix="config-key set", key=key, val=str(n))
    value = command(prefix="config-key get", key=key)
    if value != str(n):
        sys.exit("%r is read where %d was set" % (value, n))

def writes(n):
    io.write_full("%s%d" % (pool, n % objects), b"%16d" % n * 256)

io, n = cluster.open_ioctx(pool) if what == "writes" else None, 0
while not over:
    {"commands": commands, "writes": writes}[what](n)
    n += 1
    print(time.monotonic(), flush=True)
cluster.shutdown()
"""

class Steady:
    """`what` is `commands` or `writes` (of objects POOL0, POOL1 and so on); `done` holds when each was acknowledged."""

    def __init__(self, conf, what, pool="", objects=50, root=None):
        argv = (["chroot", root] if root else []) + ["/usr/bin/python3", "-", conf, what, pool, str(objects)]
        self.what, self.done, self.said = what, [], tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.said, text=True)
        self.process.stdin.write(SCRIPT)
        self.process.stdin.close()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        self.await_answer(0)

    def _read(self):
        for line in self.process.stdout:
            self.done.append(float(line))

    def _lives(self):
        if self.process.poll() is not None:
            self._fail("ended by itself, exit code %d" % self.process.returncode)

    def _fail(self, how):
        self.said.seek(0)
        # Whoever waits for something does not wait on.
        sys.exit("%s: %s: %s" % (self.what, how, self.said.read()[-2000:]))

    def await_answer(self, after, seconds=60):
        """Until something was acknowledged later than that."""
        def answered():
            self._lives()
            return self.done and self.done[-1] > after
        until(answered, "%s go on" % self.what, seconds)

    def longest(self, begin, end):
        """The longest time without an answer that reaches into the time between; one that has not ended yet is as long as it is."""
        done = self.done[:]
        first, last = bisect.bisect(done, begin), bisect.bisect(done, end)
        check(0 < first, "%s: nothing was done before" % self.what)
        times = done[first - 1:last + 1] + ([time.monotonic()] if last == len(done) else [])
        return max(b - a for a, b in zip(times, times[1:]))

    def answered_after(self, at):
        """Seconds until something was done that was asked for later than `at`."""
        done = self.done[:]
        first = bisect.bisect(done, at)
        check(first + 1 < len(done), "%s: nothing was done since" % self.what)
        return done[first + 1] - at

    def end(self):
        """Whoever got an error has ended before; how often something was done."""
        self._lives()
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self._fail("one hangs")
        if self.process.returncode:
            self._fail("exit code %d" % self.process.returncode)
        self.reader.join()
        return len(self.done)
