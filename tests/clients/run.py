#!/usr/bin/python3
"""Drives a running cluster with stock clients.

    run.py -c DIR/ceph.conf [--root DIR] [--only NAME]...     DIR: a root directory with another generation's clients
"""
import argparse, sys
import harness
import ceph_commands, rados_commands

def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("-c", dest="conf", required=True)
    ap.add_argument("--root")
    ap.add_argument("--only", action="append")
    a = ap.parse_args()
    client = harness.Client(a.conf, a.root)
    try:
        return 1 if harness.run_all(client, a.only) else 0
    finally:
        client.close()

sys.exit(main())
