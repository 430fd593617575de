#!/usr/bin/python3
"""p99 latency in ms of random writes or reads through stock librados: CONF POOL write|read SIZE DEPTH SECONDS"""
import random, sys, threading, time
import rados

conf, pool, op, size, depth, seconds = sys.argv[1:4] + [int(x) for x in sys.argv[4:7]]
cluster = rados.Rados(conffile=conf); cluster.connect(); io = cluster.open_ioctx(pool)
rng = random.Random(1); payload = rng.randbytes(size)
names = ["percentile%d" % i for i in range(16 if size > 1 << 20 else 1024)]
slots = threading.Semaphore(depth); latencies = []

def submit(write, name):
    slots.acquire()
    begin = time.monotonic()
    def done(*_):
        latencies.append(time.monotonic() - begin)
        slots.release()
    return io.aio_write_full(name, payload, oncomplete=done) if write else io.aio_read(name, size, 0, done)

def drain():
    for _ in range(depth):
        slots.acquire()
    for _ in range(depth):
        slots.release()

if op == "read":
    for name in names:
        submit(True, name)
    drain()
    latencies.clear()
end = time.monotonic() + seconds
while time.monotonic() < end:
    submit(op == "write", rng.choice(names))
drain()
latencies.sort()
print(latencies[int(len(latencies) * 0.99)] * 1e3)
cluster.shutdown()
