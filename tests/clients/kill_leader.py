#!/usr/bin/python3
"""Of three monitors the one that leads is killed with -9, again and again, while the stock `rados bench` writes, a Python
client stores objects and another gives commands that change something. No write and no command fails; how long
both pause is measured. The manager follows the lead, health names who is missing; started again, all three agree.

    kill_leader.py -c DIR/ceph.conf --bin BINARY [--rounds 3]
"""
import json, os, signal, subprocess, sys, threading, time
import rados
from harness import Client, arguments, check, equal, match, until
from kill_one import bench, clean, finish
from stock_cluster import read_pids

class Worker(threading.Thread):
    """Does `step` over and over on a session of its own; `done` holds when each was acknowledged."""

    def __init__(self, conf, step):
        super().__init__(daemon=True)
        self.cluster = rados.Rados(conffile=conf)
        self.cluster.connect(timeout=30)
        self.step, self.done, self.failed, self.stop = step, [], None, False

    def run(self):
        n = 0
        try:
            while not self.stop:
                self.step(self.cluster, n)
                n += 1
                self.done.append(time.monotonic())
        except Exception as e:
            self.failed = "%s: %s" % (type(e).__name__, e)

    def pause_at(self, at):
        """The longest time between two answers around `at`."""
        until(lambda: self.failed or self.done and self.done[-1] > at + 1.5, "answers after the leader's death", 30)
        near = [t for t in self.done if at - 1 < t < at + 30]
        return max(b - a for a, b in zip(near, near[1:]) if b > at)

    def end(self):
        self.stop = True
        self.join(30)
        check(not self.is_alive() and not self.failed, self.failed or "it hangs")

def command(cluster, n):
    """Something that has to be agreed on; the answer is read back through the same session."""
    value = str(n)
    set_, get = ({"prefix": "config-key set", "key": "kill", "val": value}, {"prefix": "config-key get", "key": "kill"})
    for cmd in (set_, get):
        rc, out, err = cluster.mon_command(json.dumps(cmd), b"", timeout=30)
        if rc:
            raise RuntimeError("%s: %d %s" % (cmd, rc, err))
    if out.decode() != value:
        raise RuntimeError("%r was set, %r is read" % (value, out))

def main():
    ap = arguments(__doc__)
    ap.add_argument("--rounds", type=int, default=3)
    a = ap.parse_args()
    directory = os.path.dirname(os.path.realpath(a.conf))
    client = Client(a.conf)
    client.ceph("osd", "pool", "create", "kill", "16")
    until(lambda: clean(client), "every placement group active and clean", 60)
    writer = bench(a.conf, str(6 * a.rounds), "write", "-b", "16384", "-t", "16", "--no-cleanup")
    commands = Worker(a.conf, command)
    ioctx = []
    def write(cluster, n):
        if not ioctx:
            ioctx.append(cluster.open_ioctx("kill"))
        ioctx[0].write_full("w%d" % (n % 50), b"%d" % n)
    writes = Worker(a.conf, write)
    for w in (commands, writes):
        w.start()
    waits = []
    for _ in range(a.rounds):
        time.sleep(2)
        leader = client.json("quorum_status")["quorum_leader_name"]
        at = time.monotonic()
        os.kill(read_pids(directory)["mon." + leader], signal.SIGKILL)
        waits.append((commands.pause_at(at), writes.pause_at(at)))
        left = sorted(set("abc") - {leader})
        status = client.json("quorum_status")
        equal(status["quorum_names"], left, "the quorum")
        check(status["quorum_leader_name"] in left, status["quorum_leader_name"])
        led = lambda: client.json("mgr", "stat")["active_name"] == client.json("quorum_status")["quorum_leader_name"]
        until(led, "a manager beside the leader", 30)
        health = client.ceph("health", "detail")[0]
        match(r"MON_DOWN: 1/3 mons down, quorum %s" % ",".join(left), health, "health")
        match(r"mon\.%s \(rank \d\) addr \S+ is down \(out of quorum\)" % leader, health, "health")
        match(r"mon: +3 daemons, quorum %s \(age .*\), out of quorum: %s" % (",".join(left), leader), client.ceph("-s")[0], "status")
        subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
        equal(client.json("quorum_status")["quorum_names"], ["a", "b", "c"], "the quorum")
        client.ceph("tell", "mon." + leader, "version")
    for w in (commands, writes):
        w.end()
    finish(writer, "rados bench write")
    finish(bench(a.conf, "600", "seq", "-t", "16"), "rados bench seq")
    until(lambda: clean(client), "every placement group active and clean", 60)
    # Two of three: nobody may promise anything, and no old answer is given.
    status = client.json("quorum_status")
    for name in [status["quorum_leader_name"]] + [n for n in status["quorum_names"] if n != status["quorum_leader_name"]][:1]:
        os.kill(read_pids(directory)["mon." + name], signal.SIGKILL)
    time.sleep(3)
    out = subprocess.run(["ceph", "-c", a.conf, "--connect-timeout", "4", "-s"], capture_output=True, text=True)
    check(out.returncode != 0 and not out.stdout, "one of three answers: %s" % out.stdout)
    subprocess.run([a.bin, "up", "--dir", directory], check=True, stdout=subprocess.DEVNULL)
    equal(client.json("quorum_status")["quorum_names"], ["a", "b", "c"], "the quorum")
    print("%d leaders killed: commands paused for %s s, writes for %s s; %d commands, %d writes, none failed" % (
        a.rounds, ", ".join("%.2f" % c for c, _ in waits), ", ".join("%.2f" % w for _, w in waits), len(commands.done), len(writes.done)))
    client.close()

if __name__ == "__main__":
    main()
