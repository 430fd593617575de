#!/usr/bin/python3
"""Follows "Replace a disk" and "Replace a node" of docs/operations.md, command by command, while a stock client writes: a disk where
there is no other place for its copies, one that still works, one that is dead, two by one command, then a whole node for another. At the end every object reads as it was written, and nothing of
the old node is left in the map.

    replace.py -c DIR/ceph.conf --bin BINARY
"""
import json, os, re, shutil, signal, subprocess, threading, time, uuid
from harness import Client, arguments, check, equal, until
from kill_one import bench, clean, finish
from stock_cluster import read_pids

NEW_HOST = "the-new-node"

class Operator:
    def __init__(self, client, args):
        self.client, self.bin, self.conf = client, args.bin, args.conf
        self.dir = os.path.dirname(os.path.realpath(args.conf))

    def ceph(self, text, **kw):
        return self.client.ceph(*text.split(), **kw)[0].strip()

    def home(self, osd):
        return "%s/osd.%s" % (self.dir, osd)

    def stop(self, osd, how=signal.SIGTERM):
        """kill $(cat DIR/run/osd.N.pid)"""
        pid, said = read_pids(self.dir)["osd.%s" % osd], "osd.%s marked itself down" % osd
        times = lambda: self.ceph("log last 1000").count(said)
        before = times()
        os.kill(pid, how)
        if how == signal.SIGTERM:
            # It says so itself: nobody has to miss it first.
            until(lambda: not self.osds()[osd]["up"], "osd.%s down in the map, for it was stopped" % osd, 2)
            until(lambda: times() == before + 1, said, 10)
        until(lambda: not os.path.exists("/proc/%d" % pid), "osd.%s ended" % osd, 30)

    def is_safe(self, *osds):
        return "safe to destroy" in self.client.ceph("osd", "safe-to-destroy", *osds, rc=None)[1]

    def await_safe(self, *osds):
        until(lambda: self.is_safe(*osds), "safe to destroy %s" % (osds,), 120)

    def await_clean(self):
        until(lambda: clean(self.client), "every placement group active and clean", 180)

    def new_disk(self, osd):
        """rm -r; mkdir; cuttlebone up"""
        shutil.rmtree(self.home(osd))
        os.mkdir(self.home(osd))
        subprocess.run([self.bin, "up", "--dir", self.dir], check=True, stdout=subprocess.DEVNULL)
        self.await_clean()

    def new_osd(self, host=None, number=None):
        """ceph osd new, a keyring, --mkfs, start: as on any machine. With a number an OSD that was destroyed gets it back."""
        run = lambda *argv: subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
        ident, key = str(uuid.uuid4()), run("ceph-authtool", "--gen-print-key")
        osd = self.ceph("osd new %s %s -i -" % (ident, "" if number is None else number), input=json.dumps({"cephx_secret": key}))
        if host:
            with open(self.conf, "a") as f:
                f.write("[osd.%s]\ncrush location = root=default host=%s\n" % (osd, host))
        os.mkdir(self.home(osd))
        run("ceph-authtool", "--create-keyring", self.home(osd) + "/keyring", "--name", "osd." + osd, "--add-key", key)
        run(self.bin, "osd", "-i", osd, "-c", self.conf, "--mkfs", "--osd-uuid", ident)
        run(self.bin, "osd", "-i", osd, "-c", self.conf)
        return osd

    def osds(self):
        return {o["osd"]: o for o in self.client.json("osd", "dump")["osds"]}

class Writer(threading.Thread):
    """Puts one object after the other, and reads them all at the end."""

    def __init__(self, conf):
        super().__init__(daemon=True)
        self.argv = ["rados", "-c", conf, "-p", "kill"]
        self.wrote, self.failed, self.longest, self.over = {}, [], 0, False

    def rados(self, *words, **kw):
        return subprocess.run([*self.argv, *words], capture_output=True, timeout=120, **kw)

    def run(self):
        while not self.over and not self.failed:
            name, content, at = "put.%d" % len(self.wrote), os.urandom(20000), time.monotonic()
            p = self.rados("put", name, "-", input=content)
            self.longest = max(self.longest, time.monotonic() - at)
            if p.returncode:
                self.failed.append("%s: %s" % (name, p.stderr.decode()))
            self.wrote[name] = content

    def finish(self):
        self.over = True
        self.join(130)
        check(not self.failed, self.failed)
        for name, content in self.wrote.items():
            check(self.rados("get", name, "-").stdout == content, name + " is not what was written")
        return len(self.wrote)

def replace_in_place(o):
    """Three copies on three OSDs."""
    before = o.osds()[2]
    o.ceph("osd ok-to-stop 2")
    o.ceph("osd set noout")
    o.stop(2)
    o.ceph("osd destroy 2 --yes-i-really-mean-it")
    # What the old one left is not formatted again for another.
    p = subprocess.run([o.bin, "osd", "-i", "2", "-c", o.conf, "--mkfs", "--osd-uuid", str(uuid.uuid4())], capture_output=True, text=True)
    check(p.returncode and before["uuid"] in p.stderr, p)
    shutil.rmtree(o.home(2))
    equal(o.new_osd(number=2), "2", "number")
    o.ceph("osd unset noout")
    o.await_clean()
    now = o.osds()[2]
    check(now["up"] and now["in"] and now["uuid"] != before["uuid"], now)

def replace_by_command(o, osd, how, size):
    """cuttlebone osd replace"""
    before, weight = o.osds()[osd], lambda: next(n for n in o.client.json("osd", "tree")["nodes"] if n["id"] == osd)
    new = "%s/new.%d.%s" % (o.dir, osd, how)
    run = lambda *words: subprocess.run([o.bin, "osd", "replace", str(osd), "--data", new, "--size", size, "-c", o.conf, *words], capture_output=True, text=True)
    p = run()
    check(p.returncode and "pgs currently mapped" in p.stderr and "--drain" in p.stderr, p)
    equal(o.osds()[osd]["uuid"], before["uuid"], "uuid after a refusal")
    was = weight()
    p = run("--" + how)
    check(p.returncode == 0, p)
    now = o.osds()[osd]
    check(now["up"] and now["in"] and now["uuid"] != before["uuid"], now)
    equal(os.path.realpath(o.home(osd) + "/block"), os.path.realpath(new), "where its data is")
    equal(weight()["device_class"], was["device_class"], "class")
    equal(round(weight()["crush_weight"], 3), round(int(size[:-1]) / 1024, 3), "weight by its new size")
    o.await_clean()

def replace_disks(o):
    before = o.osds()
    check(not o.is_safe(2), "safe to destroy while it has data")
    # It still works.
    o.ceph("osd ok-to-stop 2")
    o.ceph("osd out 2")
    o.await_safe(2)
    o.stop(2)
    o.ceph("osd destroy 2 --yes-i-really-mean-it")
    check("destroyed" in o.osds()[2]["state"], o.osds()[2])
    o.new_disk(2)
    # It is dead already.
    o.stop(1, signal.SIGKILL)
    os.unlink(o.home(1) + "/block")
    o.ceph("osd out 1")
    o.await_safe(1)
    o.ceph("osd destroy 1 --yes-i-really-mean-it")
    o.new_disk(1)
    for osd, old in before.items():
        now = o.osds()[osd]
        check(now["up"] and now["in"] and (now["uuid"] != old["uuid"]) == (osd > 0), now)

def without_a_disk(o):
    """A disk is not mounted, and then only its mount point is there: the others start all the same, and nothing is made in its place."""
    up = lambda: subprocess.run([o.bin, "up", "--dir", o.dir], capture_output=True, text=True)
    for mount_point in (False, True):
        o.stop(0)
        o.stop(1)
        os.rename(o.home(0), o.home("away"))
        if mount_point:
            os.mkdir(o.home(0))
        p = up()
        if mount_point:
            check(p.returncode != 0 and "osd.0 holds no OSD" in p.stderr, p)
            until(lambda: o.osds()[1]["up"], "osd.1 up")
            equal(os.listdir(o.home(0)), [], "what was left there")
            os.rmdir(o.home(0))
        else:
            equal(p.returncode, 0, p.stderr)
            check(o.osds()[1]["up"] and not os.path.exists(o.home(0)), "osd.1 alone is started")
        os.rename(o.home("away"), o.home(0))
        equal(up().returncode, 0, "all are there again")
        o.await_clean()

def replace_node(o):
    old = sorted(o.osds())
    old_host = next(n["name"] for n in o.client.json("osd", "tree")["nodes"] if n["type"] == "host")
    new = [int(o.new_osd(NEW_HOST)) for _ in old]
    until(lambda: all(o.osds()[osd]["up"] for osd in new), "the new node's OSDs up", 30)
    o.await_clean()
    o.ceph("osd out " + " ".join(map(str, old)))
    o.await_safe(*old)
    for osd in old:
        o.stop(osd)
        o.ceph("osd purge %d --yes-i-really-mean-it" % osd)
    o.ceph("osd crush rm " + old_host)
    o.await_clean()
    equal(sorted(o.osds()), new, "OSDs")
    equal([n["name"] for n in o.client.json("osd", "tree")["nodes"] if n["type"] == "host"], [NEW_HOST], "hosts")
    check(not re.search(r"\bosd\.[012]\b", o.ceph("auth ls -f json")), "keys of the old OSDs are left")

def main():
    a = arguments(__doc__).parse_args()
    client = Client(a.conf)
    o = Operator(client, a)
    o.ceph("osd pool create kill 16")
    o.await_clean()
    wrote = finish(bench(client, "4", "write", "-b", "16384", "-t", "16", "--no-cleanup"), "rados bench write")
    writer = Writer(a.conf)
    writer.start()
    without_a_disk(o)
    replace_in_place(o)
    replace_by_command(o, 0, "now", "12G")
    # Two copies, so that two of three OSDs are enough for them.
    o.ceph("osd pool set kill size 2")
    o.await_clean()
    replace_disks(o)
    replace_by_command(o, 2, "drain", "8G")
    replace_node(o)
    puts = writer.finish()
    read = finish(bench(client, "600", "seq", "-t", "16"), "rados bench seq")
    equal(read["Total reads made"], wrote["Total writes made"], "objects read")
    print("five disks and a node replaced: %s objects and %d written meanwhile read as they were written; the longest write took %.1f s" % (
        wrote["Total writes made"], puts, writer.longest))
    client.close()

if __name__ == "__main__":
    main()
