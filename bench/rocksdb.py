#!/usr/bin/python3
"""What RocksDB's options do to an object store: 4 KiB random overwrites, and writes of omap pairs, with the option strings that people use. Prints
the table of docs/rocksdb.md. Each string is tried `--rounds` times, in turns; medians are told.

    cargo build --release -p io --example store-bench
    bench/rocksdb.py --bench TARGET/release/examples/store-bench [--dir DIR] [--rounds 2] [--only 'NAME;NAME'] [--keep FILE]
"""
import argparse, json, os, re, statistics, subprocess

STOCK = ("compression=kNoCompression,max_write_buffer_number=4,min_write_buffer_number_to_merge=1,recycle_log_file_num=4,write_buffer_size=268435456,"
         "writable_file_max_buffer_size=0,compaction_readahead_size=2097152,max_background_compactions=2,max_total_wal_size=1073741824")
ALTERNATE = ("compression=kNoCompression,max_write_buffer_number=64,min_write_buffer_number_to_merge=32,recycle_log_file_num=64,"
             "compaction_style=kCompactionStyleLevel,write_buffer_size=4MB,target_file_size_base=4MB,max_background_compactions=64,"
             "level0_file_num_compaction_trigger=64,level0_slowdown_writes_trigger=128,level0_stop_writes_trigger=256,"
             "max_bytes_for_level_base=6GB,compaction_threads=32,flusher_threads=8,compaction_readahead_size=2MB")

def merged(size, compression):
    """128 MiB in buffers of `size` MiB."""
    return "compression=k%sCompression,write_buffer_size=%dM,min_write_buffer_number_to_merge=%d,max_write_buffer_number=64" % (compression, size, 128 // size)

# Name, options, MiB of journal.
VARIANTS = [("default (24 MiB, LZ4)", "", 256), ("default, none", "compression=kNoCompression", 256), ("default, Snappy", "compression=kSnappyCompression", 256),
            ("stock's string", STOCK, 1024), ("the alternate one", ALTERNATE, 1024)]
VARIANTS += [("%d MiB x %d, %s" % (size, 128 // size, word), merged(size, name), 1024)
             for size, name, word in [(64, "No", "none"), (32, "No", "none"), (16, "No", "none"), (8, "No", "none"), (64, "LZ4", "LZ4"), (64, "Snappy", "Snappy")]]

def measure(args, options, journal):
    argv = [args.bench, args.dir, "only=overwrites,omap", "count=1", "objects=%d" % args.objects, "seconds=%d" % args.seconds, "journal=%d" % journal]
    out = subprocess.run(argv + (["rocksdb=" + options] if options else []), check=True, capture_output=True, text=True).stdout
    found = {}
    for name in ("overwrites", "omap"):
        m = re.search(r"^%s +(\d+) op/s +mean +\d+ us +p99 +(\d+) us .*?cpu +([\d.]+) us/op.*?rss (\d+) MB\n.*\n +rocksdb: (\d+) bytes written per op, ([\d.]+) s of compaction, memtables ([\d.]+)%%" % name, out, re.M)
        found[name] = [float(v) for v in m.groups()]
    return found

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--bench", required=True)
    ap.add_argument("--dir", default="/tmp/cuttlebone-rocksdb-bench")
    ap.add_argument("--rounds", type=int, default=2)
    ap.add_argument("--seconds", type=int, default=8)
    ap.add_argument("--objects", type=int, default=20000)
    ap.add_argument("--only", help="variants whose names contain one of these words")
    ap.add_argument("--keep", help="a file to which every run is added: for measuring in pieces")
    args = ap.parse_args()
    chosen = [v for v in VARIANTS if not args.only or any(word in v[0] for word in args.only.split(";"))]
    results = {name: [] for name, _, _ in chosen}
    if args.keep and os.path.exists(args.keep):
        with open(args.keep) as f:
            results.update(json.load(f))
    for _ in range(args.rounds):
        for name, options, journal in chosen:
            results[name].append(measure(args, options, journal))
            if args.keep:
                with open(args.keep, "w") as f:
                    json.dump(results, f)
    for load, size in (("overwrites", 4096), ("omap", 200)):
        print("\n%s\n| options | op/s | p99 ms | CPU us/op | DB bytes per client byte | compaction s | memtables, %% of commit CPU | RSS MB |\n|---|---|---|---|---|---|---|---|" % load)
        for name, runs in results.items():
            median = [statistics.median(r[load][i] for r in runs) for i in range(7)]
            iops, p99, cpu, rss, written, compaction, memtables = median
            print("| %s | %.0f | %.1f | %.0f | %.2f | %.2f | %.1f | %.0f |" % (name, iops, p99 / 1e3, cpu, written / size, compaction, memtables, rss))

if __name__ == "__main__":
    main()
