#!/usr/bin/python3
"""Monitors come and go while a Python client writes and another gives commands: four more by `cuttlebone up --mons 5`, one as
stock documents it (map, key, --mkfs, --public-addr), the leader and another killed at once, a third as well, the leader and another
removed, two with their disks lost (one made anew by `up`, one by hand as docs/operations.md says), one away for hundreds of changes.
Two of five are not missed; of two that are left nobody gets an answer. No write and no command fails, removed monitors end by themselves,
and what is stored stays.

    monitors.py -c DIR/ceph.conf --bin BINARY
"""
import os, shutil, signal, subprocess, time
from harness import Client, arguments, check, equal, match, until
from kill_leader import nobody_answers
from kill_one import clean
from steady import Steady
from stock_cluster import read_pids

def run(*argv):
    out = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    check(out.returncode == 0, "%s: %s%s" % (" ".join(argv), out.stdout, out.stderr))
    return out.stdout

def alive(pid):
    """A daemon that has ended may still be waiting for its parent."""
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False

def main():
    a = arguments(__doc__).parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    quorum = lambda: client.json("quorum_status")["quorum_names"]
    wait = lambda names: until(lambda: quorum() == names, "the quorum %s" % names, 30)
    def refused(*cmd):
        out = subprocess.run(["ceph", "-c", a.conf, *cmd], capture_output=True, text=True, timeout=60)
        check(out.returncode != 0, "%s is not refused" % (cmd,))
        return out.stderr
    client.ceph("osd", "pool", "create", "mons", "16")
    client.ceph("osd", "pool", "application", "enable", "mons", "rados")
    until(lambda: clean(client), "every placement group active and clean", 60)
    commands, writes = Steady(a.conf, "commands"), Steady(a.conf, "writes", "mons")
    def kill(*names):
        at = time.monotonic()
        for name in names:
            os.kill(read_pids(directory)["mon." + name], signal.SIGKILL)
        return at
    leads = lambda: client.json("quorum_status")["quorum_leader_name"]

    # One more as stock documents it: the first one alone is a majority of one.
    match("refusing removal of last monitor a", refused("mon", "rm", "a"), "the last one")
    at = int(client.json("mon", "dump")["mons"][0]["public_addr"].split(":")[1].split("/")[0])
    new = os.path.join(directory, "mon.x")
    os.mkdir(new)
    client.ceph("mon", "getmap", "-o", directory + "/map.x")
    client.ceph("auth", "get", "mon.", "-o", directory + "/key.x")
    run(a.bin, "mon", "-i", "x", "-c", a.conf, "--mkfs", "--monmap", directory + "/map.x", "--keyring", directory + "/key.x")
    run(a.bin, "mon", "-i", "x", "-c", a.conf, "--public-addr", "127.0.0.1:%d" % (at + 7))
    wait(["a", "x"])
    epoch = client.json("mon", "dump")["epoch"]
    match("already exists", refused("mon", "add", "x", "127.0.0.1:%d" % (at + 9)), "a name that is taken")
    match("already exists", refused("mon", "add", "y", "127.0.0.1:%d" % (at + 7)), "an address that is taken")
    pid = read_pids(directory)["mon.x"]
    text = client.ceph("mon", "rm", "x")[1]
    match("removing mon.x at .*, there will be 1 monitors", text, "what is said of a removal")
    until(lambda: not alive(pid), "the end of a removed monitor", 20)
    equal(client.json("mon", "dump")["epoch"], epoch + 1, "the epoch of the map")
    out = subprocess.run([a.bin, "mon", "-f", "-i", "x", "-c", a.conf, "--public-addr", "127.0.0.1:%d" % (at + 7)], capture_output=True, text=True, timeout=30)
    check(out.returncode != 0 and "has been removed" in out.stderr, "a removed monitor starts: %s" % out.stderr)
    shutil.rmtree(new)

    # Five, by one command.
    run(a.bin, "up", "--dir", directory, "--mons", "5")
    equal(quorum(), ["a", "b", "c", "d", "e"], "the quorum")
    match("^HEALTH_OK", client.ceph("health")[0], "health")

    # Two of five die at once, one of them the leader.
    leader = leads()
    two = [leader, [n for n in "abcde" if n != leader][0]]
    left = sorted(set("abcde") - set(two))
    at = kill(*two)
    for s in (commands, writes):
        s.await_answer(at + 1.5)
    pauses = [s.longest(at, at + 1.5) for s in (commands, writes)]
    print("two of five killed: commands paused for %.2f s, writes for %.2f s" % tuple(pauses))
    check(max(pauses) < 3, "a pause for too long")
    equal(quorum(), left, "the quorum")
    match("^HEALTH_WARN 2/5 mons down, quorum " + ",".join(left), client.ceph("health")[0], "health")
    # A third: those that are left must not promise anything, to whoever is connected neither.
    at = kill(leads())
    time.sleep(1)
    before = len(commands.done)
    nobody_answers(client)
    equal(len(commands.done), before, "commands that two of five answered")
    # OSDs and their clients can do without for a while.
    check(writes.longest(at, time.monotonic()) < 3, "writes wait for monitors")
    back = time.monotonic()
    run(a.bin, "up", "--dir", directory)
    equal(quorum(), ["a", "b", "c", "d", "e"], "the quorum")
    for s in (commands, writes):
        s.await_answer(back)

    # The leader goes.
    leader = leads()
    pid = read_pids(directory)["mon." + leader]
    client.ceph("mon", "remove", leader)
    until(lambda: not alive(pid), "the end of a leader that was removed", 20)
    left = sorted(set("abcde") - {leader})
    wait(left)

    # One loses its disk.
    lost = [n for n in left if n != leads()][0]
    kill(lost)
    time.sleep(0.5)
    shutil.rmtree(os.path.join(directory, "mon." + lost, "kv"))
    run(a.bin, "up", "--dir", directory)
    wait(left)

    # Another one, and everything in its directory: "Lose a monitor" of docs/operations.md by hand.
    lost = [n for n in left if n not in (lost, leads())][0]
    kill(lost)
    until(lambda: lost not in quorum(), "a dead monitor missed", 20)
    shutil.rmtree(os.path.join(directory, "mon." + lost))
    client.ceph("mon", "getmap", "-o", directory + "/map")
    client.ceph("auth", "get", "mon.", "-o", directory + "/key")
    run(a.bin, "mon", "-i", lost, "-c", a.conf, "--mkfs", "--monmap", directory + "/map", "--keyring", directory + "/key")
    run(a.bin, "mon", "-i", lost, "-c", a.conf)
    wait(left)
    client.ceph("tell", "mon." + lost, "version")

    # One is away while everything changes, for longer than logs are kept.
    away = [n for n in left if n != leads()][-1]
    kill(away)
    gone = [n for n in left if n not in (away, leads())][0]
    # Three of four agree; without this one two of three do.
    before = len(commands.done)
    client.ceph("mon", "rm", gone)
    until(lambda: len(commands.done) > before + 600, "600 changes", 60)
    run(a.bin, "up", "--dir", directory)
    left = [n for n in left if n != gone]
    wait(left)

    # What would leave too few is refused.
    dead = [n for n in left if n != leads()][0]
    kill(dead)
    until(lambda: dead not in quorum(), "a dead monitor missed", 20)
    other = [n for n in left if n not in (dead, leads())][0]
    match("EBUSY: removing mon.%s would break quorum" % other, refused("mon", "rm", other), "a removal that leaves too few")
    run(a.bin, "up", "--dir", directory)
    wait(left)
    done = [s.end() for s in (commands, writes)]
    until(lambda: client.ceph("health")[0].startswith("HEALTH_OK"), "HEALTH_OK", 30)
    print("%d commands and %d writes while monitors came and went, none failed" % tuple(done))
    client.close()

if __name__ == "__main__":
    main()
