#!/usr/bin/python3
"""What a client feels of a snapshot of the pool it writes to: Cuttlebone and stock Ceph, three OSDs each, a replicated pool and an erasure-coded one (2 + 1).

    snapshots.py --bin target/dist/cuttlebone [--peer pacific|reef|tentacle|none] [--rate 1000] [--seconds 6] [--rounds 5] [--only replicated|coded] [--dir DIR]

A stock client offers --rate overwrites of 4 KiB a second in 64 objects of 4 MiB; a write waits from when it is due. Each round is --seconds without, and as
many from a snapshot on: what it holds has to be kept from then on. The snapshot is removed afterwards. Told are medians over the rounds, and the ratio.
"""
import json, shutil, statistics, tempfile, time
from recovery import FILL, ceph, inside, offer, output, wait_clean
from side_by_side import arguments, both, start

OBJECTS = 64

def writer(cluster, pool, a):
    return offer(cluster, pool, "write", "object-", OBJECTS, 4 << 20, 4096, 64, a.rate, a.seconds)

def measure(cluster, pool, a):
    """Rounds of figures: without a snapshot, and since one. Of the other program that runs beside, `ceph`, both have one."""
    def beside(*command):
        client = writer(cluster, pool, a)
        # It is connected and writes.
        time.sleep(0.5)
        ceph(cluster, *command)
        return json.loads(output(client))
    rounds = []
    for n in range(a.rounds):
        rounds.append((beside("osd", "pool", "get", pool, "size"), beside("osd", "pool", "mksnap", pool, "snap%d" % n)))
        ceph(cluster, "osd", "pool", "rmsnap", pool, "snap%d" % n)
        time.sleep(5)
        wait_clean(cluster, 120)
    return rounds

def main():
    ap = arguments(__doc__)
    ap.add_argument("--rate", type=int, default=1000)
    ap.add_argument("--seconds", type=int, default=6)
    ap.add_argument("--rounds", type=int, default=5)
    a = ap.parse_args()
    base = tempfile.mkdtemp(prefix="cuttlebone-bench.", dir=a.dir)
    clusters, rows = both(a, base), []
    try:
        start(clusters, ["osd", "erasure-code-profile", "set", "coded", "k=2", "m=1", "crush-failure-domain=osd"],
              ["osd", "pool", "create", "coded", "32", "32", "erasure", "coded"], ["osd", "pool", "set", "coded", "allow_ec_overwrites", "true"],
              ["osd", "pool", "create", "replicated", "32", "32"])
        for pool in filter(lambda pool: not a.only or a.only in pool, ("replicated", "coded")):
            for name, cluster in clusters.items():
                ceph(cluster, "osd", "pool", "application", "enable", pool, "bench")
                wait_clean(cluster, 120)
                output(inside(cluster, FILL, pool, "object-", str(4 << 20), str(OBJECTS)))
                rows.append((pool, name, measure(cluster, pool, a)))
                print(pool, name, json.dumps(rows[-1][2]), flush=True)
    finally:
        for cluster in clusters.values():
            cluster.stop()
        shutil.rmtree(base, ignore_errors=True)
    print("\n| pool | who | IOPS | p50 ms without, with | p99 ms without, with | ratio of p99 | longest ms without, with |\n| --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for pool, name, rounds in rows:
        median = lambda column: [statistics.median(r[i][column] for r in rounds) for i in (0, 1)]
        pair = lambda column: "%.3g, %.3g" % tuple(median(column))
        ratio = statistics.median(after["p99 ms"] / before["p99 ms"] for before, after in rounds)
        print("| %s | %s | %.0f | %s | %s | %.2f | %s |" % (pool, name, median("IOPS")[1], pair("p50 ms"), pair("p99 ms"), ratio, pair("max ms")))

if __name__ == "__main__":
    main()
