#!/usr/bin/python3
"""Cuttlebone and stock Ceph, three OSDs each on the same disk, under the same stock `rados bench` in turns.

    side_by_side.py --bin target/release/cuttlebone [--peer pacific|reef|tentacle|none] [--seconds 10] [--rounds 3] [--quick] [--secure] [--dir DIR]

The newer two peers run from a root directory that scripts/client-root makes (a few minutes, 1 GB). Prints one table:
medians over the rounds, and the ratio to stock of each figure. Daemon CPU is user + system time of every daemon of
the cluster, monitor included, divided by the operations the client counted. Who is measured first changes from round
to round; large objects are removed after each, so that neither disk fills.
"""
import argparse, os, re, shutil, signal, statistics, subprocess, sys, tempfile, time
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/clients"))
from harness import Client
from stock_cluster import StockCluster, read_pids

HERE = os.path.dirname(os.path.abspath(__file__))
TICK = os.sysconf("SC_CLK_TCK")
# name, mode, size, depth
LOADS = [("4 KiB write, depth 1", "write", 4096, 1), ("4 KiB write, depth 16", "write", 4096, 16), ("4 KiB write, depth 64", "write", 4096, 64),
         ("4 KiB read, depth 16", "rand", 4096, 16), ("4 KiB read, depth 64", "rand", 4096, 64),
         ("4 MiB write, depth 16", "write", 4 << 20, 16), ("4 MiB read, depth 16", "rand", 4 << 20, 16)]

SECURE = "[global]\n" + "".join("ms_%s_mode = secure\n" % whose for whose in ("cluster", "service", "client", "mon_cluster", "mon_service", "mon_client"))

class Ours:
    osds, size = 3, 10 << 30

    def __init__(self, bin, dir, port, root, mons=1):
        self.bin, self.outside, self.port, self.root, self.mons = bin, dir, port, root, mons
        self.conf = dir + "/ceph.conf"
        self.client, self.settings = None, ""

    def start(self):
        self.make_disks()
        if self.settings:
            subprocess.run([self.bin, "up", "--dir", self.outside, "--osds", "0", "--port", str(self.port), "--mons", str(self.mons)], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([self.bin, "down", "--dir", self.outside], check=True, stdout=subprocess.DEVNULL)
            with open(self.outside + "/ceph.conf", "a") as f:
                f.write(self.settings)
        begin = time.monotonic()
        subprocess.run([self.bin, "up", "--dir", self.outside, "--osds", str(self.osds), "--size", str(self.size), "--port", str(self.port), "--mons", str(self.mons)], check=True, stdout=subprocess.DEVNULL)
        if self.root:
            # The other root's client needs ceph.conf and keyring where it can see them.
            self.client = Client(self.conf, self.root)
            self.conf = self.client.conf
        return time.monotonic() - begin

    def make_disks(self):
        """Before `up` makes files for OSDs: who wants devices links them."""

    def make_place(self, n):
        """Of an OSD that `up` is to make."""
        os.mkdir("%s/osd.%d" % (self.outside, n))

    def pids(self):
        return read_pids(self.outside)

    def stop(self):
        subprocess.run([self.bin, "down", "--dir", self.outside], stdout=subprocess.DEVNULL)
        if self.client:
            self.client.close()
        shutil.rmtree(self.outside, ignore_errors=True)

def tool(cluster, name, *args):
    """Runs a stock tool of the peer's generation against a cluster: the same for both."""
    inside = ["chroot", cluster.root] if cluster.root else []
    return subprocess.run([*inside, name, "-c", cluster.conf, *args], capture_output=True, text=True)

def cpu_of(pid):
    """Seconds of CPU a process has used."""
    fields = open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK

def cpu_seconds(pids):
    return sum(map(cpu_of, pids.values()))

def rss_mb(pids, field="VmRSS"):
    """Largest resident set of an OSD, MB; with VmHWM the largest it ever was."""
    sizes = [0]
    for name, pid in pids.items():
        if name.startswith("osd"):
            sizes.append(int(re.search(field + r":\s+(\d+)", open("/proc/%d/status" % pid).read()).group(1)) * 1024 / 1e6)
    return max(sizes)

def idle_percent(clusters, seconds):
    """Share of a core that all daemons of each cluster use together while nobody asks for anything."""
    before = {name: cpu_seconds(c.pids()) for name, c in clusters.items()}
    time.sleep(seconds)
    return {name: (cpu_seconds(c.pids()) - before[name]) / seconds * 100 for name, c in clusters.items()}

def bench(cluster, pool, mode, size, depth, seconds):
    """One run of rados bench; a dict of its figures."""
    args = ["-p", pool, "bench", str(seconds), mode, "-t", str(depth)]
    if mode == "write":
        args += ["-b", str(size), "--no-cleanup", "--run-name", "d%d" % size]
    else:
        args += ["--run-name", "d%d" % size]
    pids = cluster.pids()
    before = cpu_seconds(pids)
    p = tool(cluster, "rados", *args)
    cpu = cpu_seconds(pids) - before
    if p.returncode:
        raise RuntimeError(p.stdout[-500:] + p.stderr[-500:])
    get = lambda pattern: float(re.search(pattern, p.stdout).group(1))
    ops = get(r"Total (?:writes|reads) made: +(\d+)")
    took = get(r"Total time run: +([\d.]+)")
    return {"IOPS": ops / took, "MB/s": ops * size / took / 1e6, "mean ms": get(r"Average Latency\(s\): +([\d.]+)") * 1e3,
            "max ms": get(r"Max latency\(s\): +([\d.]+)") * 1e3, "CPU us/op": cpu / ops * 1e6}

def percentile(cluster, pool, size, depth, mode, seconds):
    """p99 latency in ms, from the bindings: rados bench does not print one."""
    op = "write" if mode == "write" else "read"
    argv = ["python3" if cluster.root else sys.executable, "-", cluster.conf, pool, op, str(size), str(depth), str(seconds)]
    inside = ["chroot", cluster.root] if cluster.root else []
    p = subprocess.run(inside + argv, input=open(HERE + "/percentiles.py").read(), capture_output=True, text=True)
    return float(p.stdout) if p.returncode == 0 else float("nan")

def arguments(doc):
    """The options of every comparison; each adds its own."""
    # Whoever is told to end stops its clusters first: what they leave fills the disk.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    ap = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("--peer", default="pacific", choices=["pacific", "reef", "tentacle", "none"])
    ap.add_argument("--dir", default=tempfile.gettempdir())
    ap.add_argument("--only", help="loads or scenarios whose name contains this")
    return ap

def peer_root(peer):
    """The root directory that a newer peer runs from, made if need be; None for Debian's own."""
    if peer not in ("reef", "tentacle"):
        return None
    root = os.path.expanduser("~/.cache/cuttlebone/root-%s" % peer)
    subprocess.run([HERE + "/../scripts/client-root", peer, root, "--daemons"], check=True)
    return root

def both(a, base):
    """The clusters to compare, not started yet."""
    root = peer_root(a.peer)
    clusters = {"cuttlebone": Ours(os.path.realpath(a.bin), base + "/ours", 16300, root)}
    if a.peer != "none":
        clusters["stock"] = StockCluster("/tmp/" + os.path.basename(base) if root else base + "/stock", root)
    return clusters

def start(clusters, *commands):
    """Starts each, and makes what these commands of `ceph` make."""
    for name, cluster in clusters.items():
        print("%s: up after %.1f s" % (name, cluster.start()), flush=True)
        for cmd in commands:
            p = tool(cluster, "ceph", *cmd)
            if p.returncode:
                raise RuntimeError("%s: %s" % (" ".join(cmd), p.stderr[-500:]))
    time.sleep(5)

def in_turns(a, clusters, pool, loads, measure):
    """Measures every load on every cluster, `a.rounds` times; figures by load and cluster."""
    results = {}
    for round in range(a.rounds):
        for load, mode, size, depth in loads:
            if a.only and not any(part in load for part in a.only.split(",")):
                continue
            order = list(clusters.items())
            for name, cluster in order if round % 2 == 0 else order[::-1]:
                r = measure(cluster, mode, size, depth)
                results.setdefault(load, {}).setdefault(name, []).append(r)
                print("round %d  %-36s %-10s %s" % (round + 1, load, name, "  ".join("%s %.4g" % kv for kv in r.items())), flush=True)
        for cluster in clusters.values():
            tool(cluster, "rados", "-p", pool, "cleanup", "--run-name", "d%d" % (4 << 20))
    return results

def main():
    ap = arguments(__doc__)
    ap.add_argument("--seconds", type=int, default=6)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--quick", action="store_true", help="one round of four seconds a run")
    ap.add_argument("--secure", action="store_true", help="everything on the wire is encrypted, between daemons, too")
    a = ap.parse_args()
    if a.quick:
        a.seconds, a.rounds = 4, 1
    os.makedirs(a.dir, exist_ok=True)
    base = tempfile.mkdtemp(prefix="cuttlebone-bench.", dir=a.dir)
    clusters = both(a, base)
    # Files of OSDs grow to what they may at most, and a full disk stops more than this.
    room = shutil.disk_usage(base).free * 0.8 / sum(cluster.osds for cluster in clusters.values())
    for cluster in clusters.values():
        cluster.size = min(cluster.size, int(room))
        cluster.settings = SECURE if a.secure else cluster.settings
    def measure(cluster, mode, size, depth):
        r = bench(cluster, "bench", mode, size, depth, a.seconds)
        return {**r, "p99 ms": percentile(cluster, "bench", size, depth, mode, max(3, a.seconds // 3))}
    try:
        start(clusters, ["osd", "pool", "create", "bench", "64", "64"], ["osd", "pool", "application", "enable", "bench", "rados"],
              ["osd", "pool", "set", "bench", "pg_autoscale_mode", "off"])
        results = in_turns(a, clusters, "bench", LOADS, measure)
        report(results)
        resident = {name: (rss_mb(c.pids()), rss_mb(c.pids(), "VmHWM")) for name, c in clusters.items()}
        time.sleep(5)
        idle = idle_percent(clusters, 5 if a.quick else 30)
        for name in clusters:
            print("%s: %.0f MB resident per OSD (the largest; %.0f at its height), %.2f%% of a core when idle" % (name, *resident[name], idle[name]))
    finally:
        for cluster in clusters.values():
            cluster.stop()
        shutil.rmtree(base, ignore_errors=True)

def report(results):
    print("\n| load | who | IOPS | MB/s | mean ms | p99 ms | max ms | CPU us/op |\n| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    columns = ["IOPS", "MB/s", "mean ms", "p99 ms", "max ms", "CPU us/op"]
    for load, by_name in results.items():
        medians = {n: {c: statistics.median(r[c] for r in rs) for c in columns} for n, rs in by_name.items()}
        for name, m in medians.items():
            print("| %s | %s | %s |" % (load, name, " | ".join("%.4g" % m[c] for c in columns)))
        if len(medians) == 2:
            ours, stock = medians["cuttlebone"], medians["stock"]
            print("| | ratio | %s |" % " | ".join("%.2f" % (ours[c] / stock[c]) if stock[c] else "-" for c in columns))

if __name__ == "__main__":
    main()
