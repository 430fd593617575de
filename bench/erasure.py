#!/usr/bin/python3
"""Cuttlebone and stock Ceph with an erasure-coded pool, 2 + 1 on three OSDs each, under the same stock clients in turns: large objects,
small new ones, and small parts of large ones overwritten and read.

    erasure.py --bin target/release/cuttlebone [--peer pacific|reef|tentacle|none] [--seconds 8] [--rounds 3] [--dir DIR] [--only LOADS]

Prints medians over the rounds, and the ratio to stock of each figure, as side_by_side.py does.
"""
import json, shutil, subprocess, tempfile
from side_by_side import HERE, arguments, bench, both, cpu_seconds, in_turns, report, start

PROFILE = ["k=2", "m=1", "crush-failure-domain=osd"]
# name, mode, size, depth
LOADS = [("new 4 KiB objects, depth 16", "write", 4096, 16), ("4 KiB overwrites in 4 MiB, depth 16", "overwrite", 4096, 16),
         ("4 KiB reads in 4 MiB, depth 16", "pick", 4096, 16), ("4 MiB write, depth 16", "write", 4 << 20, 16), ("4 MiB read, depth 16", "rand", 4 << 20, 16)]

def parts(cluster, mode, size, depth, seconds):
    """The same figures as `bench` gives, of parts of objects. What is written before the reads counts for the CPU, too: it is little."""
    argv = ["python3" if cluster.root else "/usr/bin/python3", "-", cluster.conf, "coded", mode, str(size), str(depth), str(seconds), "json"]
    inside = ["chroot", cluster.root] if cluster.root else []
    pids = cluster.pids()
    before = cpu_seconds(pids)
    with open(HERE + "/percentiles.py") as script:
        p = subprocess.run(inside + argv, stdin=script, capture_output=True, text=True)
    if p.returncode:
        raise RuntimeError(p.stderr[-500:])
    found = json.loads(p.stdout)
    ops = found["IOPS"] * seconds
    return {"IOPS": found["IOPS"], "MB/s": found["IOPS"] * size / 1e6, "mean ms": depth / found["IOPS"] * 1e3, "max ms": found["max ms"],
            "CPU us/op": (cpu_seconds(pids) - before) / ops * 1e6, "p99 ms": found["p99 ms"]}

def main():
    ap = arguments(__doc__)
    ap.add_argument("--seconds", type=int, default=8)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    base = tempfile.mkdtemp(prefix="cuttlebone-bench.", dir=a.dir)
    clusters = both(a, base)
    def measure(cluster, mode, size, depth):
        if mode in ("overwrite", "pick"):
            return parts(cluster, mode, size, depth, a.seconds)
        return {**bench(cluster, "coded", mode, size, depth, a.seconds), "p99 ms": float("nan")}
    try:
        start(clusters, ["osd", "erasure-code-profile", "set", "coded", *PROFILE], ["osd", "pool", "create", "coded", "64", "64", "erasure", "coded"],
              ["osd", "pool", "set", "coded", "allow_ec_overwrites", "true"], ["osd", "pool", "set", "coded", "pg_autoscale_mode", "off"],
              ["osd", "pool", "application", "enable", "coded", "rados"])
        report(in_turns(a, clusters, "coded", LOADS, measure))
    finally:
        for cluster in clusters.values():
            cluster.stop()
        shutil.rmtree(base, ignore_errors=True)

if __name__ == "__main__":
    main()
