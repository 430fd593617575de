#!/usr/bin/python3
"""How fast one core makes parity: crates/ec beside ISA-L called straight from C, the same library, in turns. Prints the table of docs/benchmarks-log.md.

    cargo build --release -p ec --example speed
    bench/ec_code.py --target TARGET/release [--rounds 3] [--hot]
"""
import argparse, glob, os, statistics, subprocess, tempfile

def run(argv):
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines()

def plain(program, hot):
    rows = [line.split() for line in run([program, "0.3"] + hot)]
    return {(code, int(size)): {"encode": float(encode), "update": float(update)} for code, size, encode, update in rows}

def ours(program, hot):
    found = {}
    for line in run([program, "0.3"] + hot)[1:]:
        technique, code, size, _, encode, one, most, update = line.split()
        if technique == "Vandermonde":
            found[code, int(size) << 10] = {"encode": float(encode), "one": float(one), "most": float(most), "update": float(update)}
    return found

def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hot", action="store_true", help="one stripe over and over, from cache")
    args = parser.parse_args()
    hot = ["hot"] if args.hot else []
    made = max(glob.glob(args.target + "/build/isal-sys-*/out/lib/libisal.a"), key=os.path.getmtime)
    with tempfile.TemporaryDirectory() as directory:
        program = directory + "/plain"
        source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ec_plain.c")
        subprocess.run(["cc", "-O2", "-I", os.path.dirname(made) + "/../isa-l/include", "-o", program, source, made], check=True)
        rounds = [(plain(program, hot), ours(args.target + "/examples/speed", hot)) for _ in range(args.rounds)]
    print("| k+m | chunk | ISA-L: encode | encode | ISA-L: update | update | rebuild 1 | rebuild m |")
    print("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for code, size in rounds[0][0]:
        of = lambda side, what: "%.1f" % statistics.median(r[side][code, size][what] for r in rounds)
        figures = [of(0, "encode"), of(1, "encode"), of(0, "update"), of(1, "update"), of(1, "one"), of(1, "most")]
        print("| %s | %d KiB | %s |" % (code, size >> 10, " | ".join(figures)))

if __name__ == "__main__":
    main()
