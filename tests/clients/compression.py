#!/usr/bin/python3
"""A pool compresses, as `ceph osd pool set` says: stock `rados` writes what can be compressed, `ceph df detail` and `pg dump` tell of it,
and what was written is what is read, in parts, over it, and after all OSDs were killed and started again.

    compression.py -c DIR/ceph.conf --bin CUTTLEBONE
"""
import os, signal, subprocess
from harness import Client, arguments, check, equal, match, until
from stock_cluster import read_pids

POOL = "squeeze"
SIZE = 1 << 20
ALGORITHMS = ["snappy", "lz4", "zstd", "zlib"]

def text(n):
    """Half of it is noise."""
    return b"".join(os.urandom(2048) + bytes([n + i & 0xff]) * 2048 for i in range(SIZE // 4096))

def stats(client, pool):
    return next(p["stats"] for p in client.json("df", "detail")["pools"] if p["name"] == pool)

def main():
    a = arguments(__doc__).parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    for pool in [POOL, "plain"]:
        client.ceph("osd", "pool", "create", pool, "4", "4")
        client.ceph("osd", "pool", "application", "enable", pool, "test")
    for var, val in [("compression_mode", "always"), ("compression_algorithm", "brotli"), ("csum_type", "md5")]:
        _, err = client.ceph("osd", "pool", "set", POOL, var, val, rc=22)
        match("Error EINVAL: .*'%s'" % val, err, "what there is not")
    client.ceph("osd", "pool", "set", POOL, "compression_mode", "force")
    client.ceph("osd", "pool", "set", POOL, "compression_required_ratio", ".7")
    client.ceph("osd", "pool", "set", POOL, "compression_min_blob_size", "65536")
    equal(client.json("osd", "pool", "get", POOL, "compression_mode")["compression_mode"], "force")

    contents = {}
    for n, (algorithm, csum) in enumerate(zip(ALGORITHMS, ["crc32c", "xxhash32", "xxhash64", "none"])):
        client.ceph("osd", "pool", "set", POOL, "compression_algorithm", algorithm)
        client.ceph("osd", "pool", "set", POOL, "csum_type", csum)
        for i in range(4):
            contents["%s%d" % (algorithm, i)] = text(n)
            client.rados("-p", POOL, "put", "%s%d" % (algorithm, i), "-", input=contents["%s%d" % (algorithm, i)])
    noise = os.urandom(SIZE)
    client.rados("-p", POOL, "put", "noise", "-", input=noise)
    client.rados("-p", "plain", "put", "plain", "-", input=text(0))

    copies, packed = 3, len(contents) * SIZE
    def counted():
        s = stats(client, POOL)
        return s if s["compress_under_bytes"] == copies * packed and s["stored"] == packed + SIZE else None
    s = until(counted, "df that tells what is compressed", 60)
    ratio = s["compress_bytes_used"] / s["compress_under_bytes"]
    check(0.5 < ratio < 0.65, "half is noise: compressed to %.3f" % ratio)
    equal(s["bytes_used"], copies * SIZE + s["compress_bytes_used"], "USED is what is used")
    equal(stats(client, "plain")["compress_under_bytes"], 0, "another pool compresses nothing")
    match(r"USED COMPR +UNDER COMPR", client.ceph("df", "detail")[0], "the columns")
    sums = client.json("pg", "dump")["pg_map"]["osd_stats_sum"]["statfs"]
    equal((sums["data_compressed_original"], sums["data_compressed_allocated"]), (s["compress_under_bytes"], s["compress_bytes_used"]))
    check(0 < sums["data_compressed"] <= sums["data_compressed_allocated"], "compressed bytes %d" % sums["data_compressed"])

    def read_back(when):
        for name, content in list(contents.items()) + [("noise", noise)]:
            client.rados("-p", POOL, "get", name, client.path("got"))
            with open(client.work + "/got", "rb") as f:
                check(f.read() == content, "%s is what was written, %s" % (name, when))
    read_back("at once")
    # Parts of it, in the middle of a run and of a block.
    for name in ["lz40", "zstd1", "zlib2", "snappy3"]:
        client.rados("-p", POOL, "put", name, "-", "--offset", "300001", input=b"new" * 5000)
        contents[name] = contents[name][:300001] + b"new" * 5000 + contents[name][315001:]
    client.rados("-p", POOL, "cp", "zstd0", "copy")
    contents["copy"] = contents["zstd0"]
    read_back("and in part written over")

    for name, pid in read_pids(directory).items():
        if name.startswith("osd."):
            os.kill(pid, signal.SIGKILL)
    subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    until(lambda: all(p["state"] == "active+clean" for p in client.json("pg", "ls")["pg_stats"]), "clean PGs", 120)
    read_back("after a crash")
    for pg in [p["pgid"] for p in client.json("pg", "ls-by-pool", POOL)["pg_stats"]]:
        client.ceph("pg", "deep-scrub", pg)
    def scrubbed():
        pgs = client.json("pg", "ls-by-pool", POOL)["pg_stats"]
        return all(p["last_deep_scrub"] == p["version"] or p["last_deep_scrub"] != "0'0" for p in pgs)
    until(scrubbed, "deep scrubs", 120)
    pgs = client.json("pg", "ls-by-pool", POOL)["pg_stats"]
    equal([p["stat_sum"]["num_scrub_errors"] for p in pgs], [0] * len(pgs), "scrub errors")
    for name in list(contents) + ["noise"]:
        client.rados("-p", POOL, "rm", name)
    until(lambda: stats(client, POOL)["compress_under_bytes"] == 0, "nothing compressed any more", 60)

    for osd in client.json("osd", "metadata"):
        check(osd["cuttlebone_device_profile"] in ["hdd", "ssd"] and int(osd["cuttlebone_flush_us"]) > 0, "osd metadata tells of the device")
    device = client.json("tell", "osd.0", "perf", "dump", "device")["device"]
    check(device["flush_at_start_us"] > 0, "and so does perf dump")
    client.ceph("config", "set", "osd", "bluestore_prefer_deferred_size", "16384")
    until(lambda: client.json("tell", "osd.0", "perf", "dump", "device")["device"]["prefer_deferred_bytes"] == 16384, "an option in effect", 10)

if __name__ == "__main__":
    main()
