#!/usr/bin/python3
"""p99 latency in ms of random writes or reads through stock librados: CONF POOL write|read|overwrite|pick SIZE DEPTH SECONDS [json]

`overwrite` and `pick` write and read parts of objects of 4 MiB, the others whole objects. With `json` an object with IOPS, p99 and
maximum; an interrupt ends it early.
"""
import json, random, signal, sys, threading, time
import rados

conf, pool, op, size, depth, seconds = sys.argv[1:4] + [int(x) for x in sys.argv[4:7]]
cluster = rados.Rados(conffile=conf); cluster.connect(); io = cluster.open_ioctx(pool)
rng = random.Random(1); payload = rng.randbytes(size)
PARTS = op in ("overwrite", "pick")
whole = rng.randbytes(4 << 20) if PARTS else payload
names = ["%s%d" % ("parts" if PARTS else "percentile", i) for i in range(16 if len(whole) > 1 << 20 else 1024)]
slots = threading.Semaphore(depth); latencies = []

def submit(write, name, data=payload):
    slots.acquire()
    begin = time.monotonic()
    def done(*_):
        latencies.append(time.monotonic() - begin)
        slots.release()
    at = rng.randrange(len(whole) // size) * size
    if write and len(data) < len(whole):
        return io.aio_write(name, data, at, oncomplete=done)
    return io.aio_write_full(name, data, oncomplete=done) if write else io.aio_read(name, size, at, done)

def drain():
    for _ in range(depth):
        slots.acquire()
    for _ in range(depth):
        slots.release()

if op != "write":
    for name in names:
        submit(True, name, whole)
    drain()
    latencies.clear()
begin = time.monotonic()
stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(1))
while time.monotonic() < begin + seconds and not stop:
    submit(op in ("write", "overwrite"), rng.choice(names))
took = time.monotonic() - begin
drain()
latencies.sort()
p99 = latencies[int(len(latencies) * 0.99)] * 1e3
if sys.argv[7:] == ["json"]:
    print(json.dumps({"IOPS": len(latencies) / took, "p99 ms": p99, "max ms": latencies[-1] * 1e3}))
else:
    print(p99)
cluster.shutdown()
