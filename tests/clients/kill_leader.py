#!/usr/bin/python3
"""Of three monitors the one that leads is killed with -9, again and again, while the stock `rados bench` writes, a Python
client stores objects and another gives commands that change something. No write and no command fails, no client has to connect
anew, and both go on within a second (the median; at most three). The manager follows the lead, health names
who is missing; started again, all three agree. Then the leader stands still (SIGSTOP), which nobody is told of: the other two go on
without it, writes too; whoever talked to it goes on when it wakes, and hears nothing old.

    kill_leader.py -c DIR/ceph.conf --bin BINARY [--rounds 3] [--root DIR]     DIR: a root directory with another generation's clients
"""
import os, signal, statistics, subprocess, time
from harness import Client, arguments, check, equal, match, until
from kill_one import bench, clean, finish
from steady import Steady
from stock_cluster import read_pids

MONS = ["a", "b", "c"]
# How long the leader stands still.
ASLEEP = 10

def nobody_answers(client):
    p = subprocess.run(client.argv("ceph", "--connect-timeout", "4", "-s"), capture_output=True, text=True, timeout=60)
    check(p.returncode != 0 and not p.stdout, "too few monitors answer: %s" % p.stdout)

class Test:
    def __init__(self, a):
        self.bin, self.dir = a.bin, os.path.dirname(os.path.realpath(a.conf))
        self.client = Client(a.conf, a.root)
        self.client.ceph("osd", "pool", "create", "kill", "16")
        until(lambda: clean(self.client), "every placement group active and clean", 60)
        self.steady = [Steady(self.client.conf, what, "kill", root=self.client.root) for what in ("commands", "writes")]

    def status(self):
        return self.client.json("quorum_status")

    def leader(self):
        return self.status()["quorum_leader_name"]

    def hurt(self, name, how):
        at = time.monotonic()
        os.kill(read_pids(self.dir)["mon." + name], how)
        return at

    def up(self):
        subprocess.run([self.bin, "up", "--dir", self.dir], check=True, stdout=subprocess.DEVNULL)
        equal(self.status()["quorum_names"], MONS, "the quorum")

    def longest(self, begin, end):
        return [s.longest(begin, end) for s in self.steady]

    def two_go_on(self, leader):
        """Everything that tells of monitors tells of the two that are left."""
        left = sorted(set(MONS) - {leader})
        status = self.status()
        equal(status["quorum_names"], left, "the quorum")
        check(status["quorum_leader_name"] in left, status["quorum_leader_name"])
        health = self.client.ceph("health", "detail")[0]
        match(r"MON_DOWN: 1/3 mons down, quorum %s" % ",".join(left), health, "health")
        match(r"mon\.%s \(rank \d\) addr \S+ is down \(out of quorum\)" % leader, health, "health")
        match(r"mon: +3 daemons, quorum %s \(age .*\), out of quorum: %s" % (",".join(left), leader), self.client.ceph("-s")[0], "status")

    def kill(self):
        """Pauses of commands and of writes, until the dead one is started again and while it comes back."""
        leader = self.leader()
        at = self.hurt(leader, signal.SIGKILL)
        for s in self.steady:
            s.await_answer(at + 1.5)
        self.two_go_on(leader)
        led = lambda: self.client.json("mgr", "stat")["active_name"] == self.leader()
        until(led, "a manager beside the leader", 30)
        back = time.monotonic()
        self.up()
        self.client.ceph("tell", "mon." + leader, "version")
        # What a client asked for since the kill was done, by the same session.
        for s in self.steady:
            s.await_answer(time.monotonic())
        return self.longest(at, back), self.longest(back, time.monotonic())

    def stand_still(self):
        """Pauses of commands and of writes while the leader stands still, and how long it takes until there is another."""
        leader = self.leader()
        at = self.hurt(leader, signal.SIGSTOP)
        try:
            until(lambda: leader not in self.status()["quorum_names"], "a quorum without the one that stands still", 30)
            elected = time.monotonic() - at
            self.two_go_on(leader)
            time.sleep(max(0, at + ASLEEP - time.monotonic()))
        finally:
            woke = self.hurt(leader, signal.SIGCONT)
        until(lambda: self.status()["quorum_names"] == MONS, "a quorum of three", 30)
        for s in self.steady:
            s.await_answer(time.monotonic())
        return elected, self.longest(at, time.monotonic())

    def one_is_not_enough(self):
        """Of one that is left nobody gets a promise, and no old answer."""
        status = self.status()
        others = [n for n in status["quorum_names"] if n != status["quorum_leader_name"]]
        for name in [status["quorum_leader_name"]] + others[:1]:
            self.hurt(name, signal.SIGKILL)
        time.sleep(3)
        nobody_answers(self.client)
        self.up()

def main():
    ap = arguments(__doc__)
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--root")
    a = ap.parse_args()
    t = Test(a)
    writer = bench(t.client, str(6 * a.rounds), "write", "-b", "16384", "-t", "16", "--no-cleanup")
    died, came = [], []
    for _ in range(a.rounds):
        time.sleep(2)
        pauses = t.kill()
        died.append(pauses[0])
        came.append(pauses[1])
    finish(writer, "rados bench write")
    elected, still = t.stand_still()
    done = [s.end() for s in t.steady]
    finish(bench(t.client, "600", "seq", "-t", "16"), "rados bench seq")
    until(lambda: clean(t.client), "every placement group active and clean", 60)
    t.one_is_not_enough()
    words = lambda pauses: "commands paused for %s s, writes for %s s" % tuple(", ".join("%.2f" % p for p in which) for which in zip(*pauses))
    print("%d leaders killed: %s; when they came back, %s; %d commands, %d writes, none failed" % (a.rounds, words(died), words(came), *done))
    print("one that stood still for %d s: two went on after %.1f s; %s" % (ASLEEP, elected, words([still])))
    for what, pauses in zip(("commands", "writes"), zip(*died)):
        check(statistics.median(pauses) < 1 and max(pauses) < 3, "%s pause for too long when a leader dies: %s" % (what, pauses))
    # Who talked to the one that stands still waits for it, or for mon_client_ping_timeout: longer than that takes.
    check(elected < 10 and still[0] < ASLEEP + 3 and still[1] < 3, "pauses for too long when a leader stands still: %s, %s" % (elected, still))
    t.client.close()

if __name__ == "__main__":
    main()
