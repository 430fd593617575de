#!/usr/bin/python3
"""Copies move at the pace that is configured, and `ceph progress` tells when they will have: by how much it is off, by stock `ceph`.

    progress.py -c DIR/ceph.conf
"""
import json, statistics, time
import rados
from harness import Client, arguments, check, match, until

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

def is_clean(client):
    return {s["state_name"] for s in client.json("status")["pgmap"]["pgs_by_state"]} == {"active+clean"}

def estimates(client):
    """Seconds left as they were told, and as they were, from the first to the last word of it."""
    told, lines = [], ""
    began = time.monotonic()
    while not is_clean(client):
        check(time.monotonic() - began < 150, "done in time")
        events = json.loads(client.ceph("progress", "json")[0])["events"]
        if events and events[0]["time_remaining"] is not None:
            told.append((time.monotonic(), events[0]["time_remaining"]))
            lines = lines or client.ceph("status")[0]
        time.sleep(0.5)
    end = time.monotonic()
    match(r"(?s)progress:\n +Global Recovery Event \(\d+s\)\n +\[=*\.+\] \(remaining: \d+", lines)
    return end - began, [(left, end - at) for at, left in told]

def main():
    a = arguments(__doc__, bin=False).parse_args()
    client = Client(a.conf)
    fill(client)
    until(lambda: is_clean(client), "active+clean", 60)
    client.ceph("config", "set", "osd", "osd_recovery_sleep", str(SLEEP))
    client.ceph("osd", "out", "2")
    until(lambda: not is_clean(client), "copies to move", 30)
    took, told = estimates(client)
    errors = [abs(said - left) / left for said, left in told if left > 4]
    check(took > 10, "the pace is kept: %.0f s" % took)
    check(len(errors) >= 4, "%d estimates" % len(errors))
    check(statistics.median(errors) < 0.4, "honest: %s" % told)
    until(lambda: "Nothing in progress" in "".join(client.ceph("progress")), "nothing in progress", 10)
    print("%.0f s; %d times the finish was told while more than 4 s were left, off by %.0f%% in the median, %.0f%% at most"
          % (took, len(errors), 100 * statistics.median(errors), 100 * max(errors)))
    client.close()

if __name__ == "__main__":
    main()
