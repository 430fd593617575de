#!/usr/bin/python3
"""The checks of `cuttlebone rados check`, in crc mode and in secure mode, against a cluster.

    native_checks.py --bin BINARY -c DIR/ceph.conf            a running cluster
    native_checks.py --bin BINARY --peer pacific              a stock cluster started for it from this machine's packages
    native_checks.py --bin BINARY --peer reef|tentacle        the same from a root directory (scripts/client-root)
"""
import argparse, json, os, subprocess, sys, tempfile
import stock_cluster
from harness import until

HERE = os.path.dirname(os.path.abspath(__file__))

def checks(binary, conf, keyring):
    """Runs all checks in both modes; returns how many modes failed."""
    base = [binary, "rados", "-c", conf] + (["-k", keyring] if keyring else [])
    pools = subprocess.run(base + ["lspools"], check=True, capture_output=True, text=True).stdout.split()
    if "checks" not in pools:
        subprocess.run(base + ["mkpool", "checks"], check=True)
    # Monitors know of a pool's usage what the manager has told them: a moment later.
    df = ["ceph", "-c", conf, "df", "-f", "json"] + (["-k", keyring] if keyring else [])
    listed = lambda: any(p["name"] == "checks" for p in json.loads(subprocess.run(df, check=True, capture_output=True).stdout)["pools"])
    until(listed, "the pool's usage", 60)
    failed = 0
    for mode in ("crc", "secure"):
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as f:
            f.write(open(conf).read() + "\n[client]\nms client mode = %s\nms mon client mode = %s\n" % (mode, mode))
            f.flush()
            argv = [binary, "rados", "-c", f.name] + base[4:] + ["-p", "checks", "check"]
            p = subprocess.run(argv, capture_output=True, text=True, timeout=600)
        lines = p.stdout.splitlines()
        bad = [line for line in lines if not line.startswith("ok ")]
        print("%s mode: %d checks hold, %d fail" % (mode, len(lines) - len(bad), len(bad)), flush=True)
        if p.returncode or bad or not lines:
            print("\n".join(bad) + p.stderr)
            failed += 1
    return failed

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bin", required=True)
    ap.add_argument("-c", dest="conf")
    ap.add_argument("--peer", choices=["pacific", "reef", "tentacle"])
    ap.add_argument("--port", type=int, default=13500)
    a = ap.parse_args()
    if a.conf:
        subprocess.run(["ceph", "-c", a.conf, "config", "set", "mon", "mon_allow_pool_delete", "true"], check=True)
        return checks(a.bin, a.conf, None)
    root = None
    if a.peer != "pacific":
        root = os.environ.get("CACHE", os.path.expanduser("~/.cache/cuttlebone")) + "/root-" + a.peer
        subprocess.run([HERE + "/../../scripts/client-root", a.peer, root, "--daemons"], check=True)
    inside = tempfile.mktemp(prefix="cuttlebone-stock.", dir="/tmp")
    cluster = stock_cluster.StockCluster(inside, root, port=a.port)
    try:
        print("stock %s: up after %.0f s" % (a.peer, cluster.start()), flush=True)
        return checks(a.bin, cluster.outside + "/ceph.conf", cluster.outside + "/keyring")
    finally:
        cluster.stop()

sys.exit(main())
