#!/usr/bin/python3
"""Copies move at the pace that is configured; `ceph -s` tells that pace, and what a client does meanwhile; `ceph progress` tells when
they will have moved: by how much it is off, by stock `ceph`.

    progress.py -c DIR/ceph.conf
"""
import json, statistics, threading, time
import rados
from harness import Client, arguments, check, has_keys, match, until

POOL, COUNT, SIZE = "moved", 3000, 4096
# Two OSDs start 25 copies a second each: sixteen hundred take half a minute.
SLEEP = 1 / 25

def fill(client):
    # Many placement groups, so that no OSD has much more to do than the others.
    client.ceph("osd", "pool", "create", POOL, "64", "64", "replicated", "--size", "2", "--autoscale-mode", "off")
    client.ceph("osd", "pool", "application", "enable", POOL, "test")
    with rados.Rados(conffile=client.conf) as cluster, cluster.open_ioctx(POOL) as io:
        for n in range(0, COUNT, 100):
            for completion in [io.aio_write_full("o%d" % m, b"p" * SIZE) for m in range(n, min(n + 100, COUNT))]:
                completion.wait_for_complete()

class Load(threading.Thread):
    """A client that writes an object and reads it, some twenty times a second."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.cluster = rados.Rados(conffile=client.conf)
        self.cluster.connect(timeout=30)
        self.count, self.over = 0, False

    def run(self):
        with self.cluster.open_ioctx(POOL) as io:
            while not self.over:
                io.write_full("busy", b"b" * SIZE)
                io.read("busy", SIZE)
                self.count += 1
                time.sleep(0.04)

def is_clean(pgmap):
    return {s["state_name"] for s in pgmap["pgs_by_state"]} == {"active+clean"}

def pool_objects(client, osd=None):
    """Of the pool, or the copies that an OSD has. Not `degraded_objects`: that grows as one primary after the other says what it has to do."""
    pgs = client.json("pg", "ls-by-pool", POOL)["pg_stats"]
    return sum(pg["stat_sum"]["num_objects"] for pg in pgs if osd is None or osd in pg["acting"])

def pgmap(client):
    return client.json("status")["pgmap"]

def estimates(client):
    """Seconds that it takes; seconds left as they were told, and as they were, from the first to the last word of it; what `ceph -s` said
    after a while, and its figures since."""
    told, figures, lines = [], [], ""
    began = time.monotonic()
    while not is_clean(now := pgmap(client)):
        check(time.monotonic() - began < 150, "done in time")
        # Rates are of ten seconds, in which copies went all the time.
        if time.monotonic() - began > 12:
            figures.append(now)
        events = json.loads(client.ceph("progress", "json")[0])["events"]
        if events and events[0]["time_remaining"] is not None:
            told.append((time.monotonic(), events[0]["time_remaining"]))
            if figures and not lines:
                lines = client.ceph("status")[0]
        time.sleep(0.5)
    end = time.monotonic()
    return end - began, [(left, end - at) for at, left in told], lines, figures

def check_rates(lines, figures, pace, load):
    """`ceph -s` tells what is copied and what clients do, in words and in figures."""
    match(r"(?s)io:\n    client:   [\d.]+ [KM]?i?B/s rd, [\d.]+ [KM]?i?B/s wr, \d+ op/s rd, \d+ op/s wr\n    recovery: [\d.]+ [KM]?i?B/s, \d+ objects/s\n", lines)
    check(len(figures) >= 2, "%d times figures" % len(figures))
    for f in figures:
        has_keys(f, "recovering_objects_per_sec recovering_bytes_per_sec recovering_keys_per_sec", "pgmap")
        has_keys(f, "read_bytes_sec write_bytes_sec read_op_per_sec write_op_per_sec", "pgmap")
    for key, true in (("recovering_objects_per_sec", pace), ("write_op_per_sec", load), ("read_bytes_sec", load * SIZE)):
        said = statistics.median(f[key] for f in figures)
        check(abs(said - true) < 0.4 * true, "%s: %d is told, %.0f is true" % (key, said, true))

def main():
    a = arguments(__doc__, bin=False).parse_args()
    client = Client(a.conf)
    fill(client)
    until(lambda: is_clean(pgmap(client)), "active+clean", 60)
    until(lambda: pool_objects(client) == COUNT, "every object in what primaries report", 30)
    moving = pool_objects(client, 2)
    # The scheduler minds no pace that it is given, unless it is told to.
    client.ceph("config", "set", "osd", "osd_mclock_override_recovery_settings", "true")
    client.ceph("config", "set", "osd", "osd_recovery_sleep", str(SLEEP))
    load = Load(client)
    load.start()
    client.ceph("osd", "out", "2")
    until(lambda: pgmap(client).get("degraded_objects"), "copies to make", 30)
    began, count = time.monotonic(), load.count
    took, told, lines, figures = estimates(client)
    match(r"(?s)progress:\n +Global Recovery Event \(\d+s\)\n +\[=*\.+\] \(remaining: \d+", lines)
    check_rates(lines, figures, moving / took, (load.count - count) / (time.monotonic() - began))
    load.over = True
    errors = [abs(said - left) / left for said, left in told if left > 4]
    check(took > 10, "the pace is kept: %.0f s" % took)
    check(len(errors) >= 4, "%d estimates" % len(errors))
    check(statistics.median(errors) < 0.25 and max(errors) < 1, "honest: %s" % told)
    until(lambda: "Nothing in progress" in "".join(client.ceph("progress")), "nothing in progress", 10)
    until(lambda: "recovery:" not in client.ceph("status")[0], "a status without a pace", 30)
    print("%.0f s; %d times the finish was told while more than 4 s were left, off by %.0f%% in the median, %.0f%% at most"
          % (took, len(errors), 100 * statistics.median(errors), 100 * max(errors)))
    client.close()

if __name__ == "__main__":
    main()
