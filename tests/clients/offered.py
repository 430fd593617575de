#!/usr/bin/python3
"""A client through stock librados that asks for so much a second, and how long it waits.

    CONF POOL write|read PREFIX OBJECTS OBJECT_SIZE SIZE DEPTH RATE SECONDS

SIZE bytes at random places of OBJECTS objects, DEPTH at a time, RATE a second (0: as many as are answered). With a rate, a request waits from when it
is due: one that finds DEPTH others before it was not asked for later because of them. Prints one JSON object; an interrupt ends it early.
"""
import json, random, signal, sys, threading, time
import rados

conf, pool, op, prefix = sys.argv[1:5]
objects, object_size, size, depth = (int(x) for x in sys.argv[5:9])
rate, seconds = float(sys.argv[9]), float(sys.argv[10])
cluster = rados.Rados(conffile=conf); cluster.connect(); io = cluster.open_ioctx(pool)
rng = random.Random(int(time.time())); payload = rng.randbytes(size)
slots = threading.Semaphore(depth); latencies = []; failed = []; stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(1))
begin = time.monotonic(); asked = 0
while time.monotonic() < begin + seconds and not stop:
    due = begin + asked / rate if rate else None
    early = due - time.monotonic() if due else 0
    if early > 0:
        time.sleep(min(early, 0.02)); continue
    if not slots.acquire(timeout=1):
        continue
    asked += 1
    def done(completion, *_, since=due or time.monotonic()):
        (failed if completion.get_return_value() < 0 else latencies).append(time.monotonic() - since)
        slots.release()
    name, off = "%s%d" % (prefix, rng.randrange(objects)), rng.randrange(object_size // size) * size
    if op == "write":
        io.aio_write(name, payload, off, oncomplete=done)
    else:
        io.aio_read(name, size, off, done)
took = time.monotonic() - begin
for _ in range(depth):
    slots.acquire()
latencies.sort()
at = lambda part: round(latencies[min(len(latencies) - 1, int(len(latencies) * part))] * 1e3, 2) if latencies else None
print(json.dumps({"IOPS": len(latencies) / took, "p50 ms": at(.5), "p99 ms": at(.99), "max ms": at(1), "failed": len(failed), "ops": len(latencies)}))
cluster.shutdown()
