#!/usr/bin/python3
"""Drives a running cluster with stock clients.

    run.py -c DIR/ceph.conf [--root DIR] [--only NAME]...     DIR: a root directory with another generation's clients
"""
import sys
import harness
import ceph_commands, rados_commands

def main():
    ap = harness.arguments(__doc__, bin=False)
    ap.add_argument("--root")
    ap.add_argument("--only", action="append")
    a = ap.parse_args()
    client = harness.Client(a.conf, a.root)
    try:
        return 1 if harness.run_all(client, a.only) else 0
    finally:
        client.close()

sys.exit(main())
