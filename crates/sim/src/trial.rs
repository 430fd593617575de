//! One run of a scenario: the cluster is made and hurt, and then everything it promised is looked at.
//!
//! Holds: within what redundancy promises, every fault in the outcome is a bug. Beyond it operations may fail or hang, but what is
//! answered is right.

use crate::checks;
use crate::cluster::Cluster;
use crate::history::History;
use crate::model::Lost;
use crate::host::HostId;
use crate::scenario::{Fault, Planned, Scenario};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use store::mem::MemIo;

const SECOND: u64 = 1_000_000_000;
/// What OSDs are asked when objects are given up, and how often their answers are looked for.
const LIST: u64 = 2;
const MARK: u64 = 3;
const STEP_NS: u64 = 50_000;
/// Lines of what OSDs found wrong that are told.
const COMPLAINTS_TOLD: usize = 10;

/// How a run ended.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    pub hash: u64,
    pub events: u64,
    pub seconds: u64,
    pub writes: u64,
    pub reads: u64,
    /// Operations that failed where they may.
    pub failed: u64,
    /// Writes that found no room.
    pub refused: u64,
    /// Objects that the operator gave up, reads that found such an object absent or older, and objects that nobody could read in the end.
    pub lost: u64,
    pub absent: u64,
    pub older: u64,
    pub blocked: u64,
    /// What was wrong.
    pub faults: Vec<String>,
    /// How many faults of each kind there were.
    pub kinds: BTreeMap<&'static str, u64>,
    /// What racing clients saw, for the checker of linearizability.
    pub history: String,
    pub history_ops: usize,
}

/// A run under way.
pub struct Trial {
    scenario: Scenario,
    cluster: Cluster,
    history: Rc<RefCell<History>>,
    /// When what ends; the number keeps two apart.
    ends: BTreeMap<(u64, usize), Fault>,
    /// Who is down for a reason that ends.
    down: BTreeSet<HostId>,
    /// OSDs that never come back, by number, and whether they were declared lost.
    gone: BTreeMap<usize, bool>,
    kinds: BTreeMap<&'static str, u64>,
    latency: (std::ops::Range<u64>, std::ops::Range<u64>),
    hosts: Vec<HostId>,
    clients: Vec<HostId>,
    meddled: bool,
    /// Monitors that the map should have in the end.
    mons: usize,
    tell: bool,
    blocked: u64,
    /// What was stored may be wrong by our doing from here on.
    damaged_at: Option<u64>,
}

impl Trial {
    /// Makes the cluster; `tell`: faults and what clients do is printed, with the time.
    pub fn new(scenario: Scenario, tell: bool) -> Self {
        let cluster = Cluster::new(scenario.seed, scenario.tunables.clone(), &scenario.plan);
        if tell {
            cluster.model.borrow_mut().told_at = Some(cluster.sim.time());
        }
        let net = &scenario.tunables.net;
        Trial {
            latency: (net.latency_ns.clone(), net.delay_ns.clone()),
            hosts: cluster.osds.iter().chain(&cluster.mons).copied().collect(),
            clients: Vec::new(),
            mons: scenario.plan.mons,
            history: Rc::default(),
            ends: BTreeMap::new(),
            down: BTreeSet::new(),
            gone: BTreeMap::new(),
            kinds: BTreeMap::new(),
            meddled: false,
            blocked: 0,
            damaged_at: None,
            scenario,
            cluster,
            tell,
        }
    }

    /// The simulated time, for logs.
    pub fn time(&self) -> std::sync::Arc<std::sync::atomic::AtomicU64> {
        self.cluster.sim.time()
    }

    /// Runs it to its end.
    pub fn run(mut self) -> Outcome {
        if self.cluster.run_until_finished(1, Duration::from_secs(120)) {
            self.cluster.model.borrow_mut().lenient = self.scenario.beyond;
            let clients = self.start_clients();
            self.hurt();
            self.end_all();
            match self.scenario.beyond {
                false => self.look(clients),
                true => {
                    self.look_beyond();
                    self.look_for_complaints();
                }
            }
        } else {
            self.fault("the cluster does not come up");
        }
        self.outcome()
    }

    fn outcome(self) -> Outcome {
        let (model, history) = (self.cluster.model.borrow(), self.history.borrow());
        Outcome {
            hash: self.cluster.sim.log.hash(),
            events: self.cluster.sim.log.events(),
            seconds: self.cluster.sim.now_ns() / SECOND,
            writes: model.writes,
            reads: model.reads,
            failed: model.failed,
            refused: model.refused,
            lost: model.lost,
            absent: model.absent,
            older: model.older,
            blocked: self.blocked,
            faults: model.faults.clone(),
            history: history.lines(),
            history_ops: history.len(),
            kinds: self.kinds,
        }
    }

    /// Returns how many tasks there will have been.
    fn start_clients(&mut self) -> usize {
        for n in 0..self.scenario.writers {
            self.cluster.add_workload(&format!("writer-{n}"), self.scenario.work.clone());
        }
        for n in 0..self.scenario.snappers {
            self.cluster.add_snapper(&format!("snapper-{n}"), self.scenario.work.clone());
        }
        let tasks = 2;
        for n in 0..self.scenario.sharers {
            self.cluster.add_sharer(n, tasks, &self.history);
        }
        let clients = self.scenario.writers + self.scenario.snappers + self.scenario.sharers;
        let programs = &self.cluster.programs;
        self.clients = programs[programs.len() - clients..].to_vec();
        1 + (self.scenario.writers + self.scenario.snappers) * self.scenario.work.tasks + self.scenario.sharers * (tasks + 1)
    }

    fn fault(&mut self, what: &str) {
        self.cluster.model.borrow_mut().fault(what.to_owned());
    }

    fn say(&self, what: impl FnOnce() -> String) {
        if self.tell {
            let at = Duration::from_nanos(self.cluster.sim.now_ns());
            eprintln!("{:>11.6}  FAULT   {}", at.as_secs_f64(), what());
        }
    }

    // --- faults

    fn hurt(&mut self) {
        for (n, planned) in self.scenario.faults.clone().into_iter().enumerate() {
            self.advance(planned.pause);
            if !self.cluster.model.borrow().faults.is_empty() {
                return;
            }
            self.say(|| format!("{n}: {:?} for {:.3} s", planned.fault, Duration::from_nanos(planned.lasts).as_secs_f64()));
            *self.kinds.entry(planned.fault.kind()).or_default() += 1;
            if planned.fault.damages() {
                self.damaged_at.get_or_insert(self.cluster.sim.now_ns());
            }
            if self.begin(&planned) {
                self.ends.insert((self.cluster.sim.now_ns() + planned.lasts, n), planned.fault);
            }
        }
        self.advance(SECOND);
    }

    /// Lets time pass; faults end when they should, and who ended by himself is started again.
    fn advance(&mut self, ns: u64) {
        let until = self.cluster.sim.now_ns() + ns;
        while let Some(entry) = self.ends.first_entry().filter(|e| e.key().0 <= until) {
            let ((at, _), fault) = entry.remove_entry();
            self.cluster.sim.run_until(at);
            self.end(fault);
        }
        self.cluster.sim.run_until(until);
    }

    /// Begins a fault; true if it has an end.
    fn begin(&mut self, planned: &Planned) -> bool {
        let (until, sim) = (self.cluster.sim.now_ns() + planned.lasts, &mut self.cluster.sim);
        let (hosts, clients) = (&self.hosts, &self.clients);
        let host = |n: &usize| host_of(hosts, clients, *n);
        match &planned.fault {
            Fault::Crash { host: n, power } => {
                let host = host(n);
                if !sim.is_running(host) {
                    return false;
                }
                sim.crash(host, *power);
                self.down.insert(host);
            }
            Fault::Room { .. } => {
                for host in self.hosts.iter().filter(|h| sim.is_running(**h)).copied().collect::<Vec<_>>() {
                    sim.crash(host, true);
                    self.down.insert(host);
                }
            }
            Fault::KillClient { client } => {
                if !sim.is_running(host(client)) {
                    return false;
                }
                sim.crash(host(client), false);
                self.down.insert(host(client));
            }
            Fault::Cut { one_in } => {
                sim.cut_connections(*one_in);
                return false;
            }
            Fault::Partition { a, b } => sim.partition(host(a), host(b)),
            Fault::OneWay { from, to } => sim.silence(host(from), host(to)),
            Fault::CutOff { osd, client } => {
                let (osd, client) = (host(osd), host(client));
                for other in hosts.iter().filter(|h| **h != osd) {
                    sim.partition(osd, *other);
                    sim.partition(client, *other);
                }
            }
            Fault::NetworkLost { osd, way } => sim.lose_network(host(osd), *way),
            Fault::Pause { host: n } => {
                sim.pause(host(n), until);
                return false;
            }
            Fault::SlowNet { factor } => self.slow_net(*factor),
            Fault::SlowDisk { host: n, factor } => sim.slow_disk(host(n), *factor),
            Fault::DiskError { host: n, io } => {
                if !sim.is_running(host(n)) {
                    return false;
                }
                sim.fail_io(host(n), *io);
            }
            Fault::Clock { host: n, by_s } => {
                sim.set_clock(host(n), *by_s);
                return false;
            }
            Fault::Operator { command } => {
                self.meddled = true;
                self.cluster.command(command);
                return false;
            }
            Fault::PgNum { pg_num, pgp_num } => {
                self.cluster.set_pgs(*pg_num, *pgp_num);
                return false;
            }
            Fault::ReplaceDisks { osds, late, by } => return self.in_peace(|t| t.replace_disks(osds, late, *by)),
            Fault::Rot { osd, pages } => return self.in_peace(|t| checks::rot(&mut t.cluster, t.hosts[*osd], *pages)),
            Fault::ReadErrors { osd, reads } => return self.in_peace(|t| t.fail_reads(*osd, *reads)),
            Fault::RotAnyway { osd, pages } => {
                checks::rot(&mut self.cluster, self.hosts[*osd], *pages);
                return false;
            }
            Fault::ReadErrorAnyway { osd } => {
                sim.fail_io(host(osd), MemIo::Read(0));
                return false;
            }
            Fault::RotWhole { osds } => {
                for host in osds.iter().map(|osd| self.hosts[*osd]).collect::<Vec<_>>() {
                    checks::rot_whole(&mut self.cluster, host);
                    if self.cluster.sim.is_running(host) {
                        self.cluster.sim.crash(host, false);
                        self.cluster.sim.start(host);
                    }
                }
                return false;
            }
            Fault::Gone { osds } => {
                for osd in osds {
                    sim.crash(host(osd), true);
                    self.down.remove(&host(osd));
                    self.gone.entry(*osd).or_insert(false);
                }
                return false;
            }
            Fault::GiveUp { revert, replace } => {
                self.give_up(*revert, *replace);
                return false;
            }
            Fault::MonJoins => {
                self.cluster.add_mon();
                self.mons += 1;
                return false;
            }
            Fault::MonLosesDisk { mon } => {
                let host = self.hosts[self.scenario.plan.osds + mon];
                self.down.remove(&host);
                self.cluster.lose_mon_disk(host);
                return false;
            }
            Fault::MonLeaves { mon } => {
                self.mons -= 1;
                self.cluster.command(&format!(r#"{{"prefix": "mon rm", "name": "{}"}}"#, ["a", "b", "c"][*mon]));
                return false;
            }
        }
        true
    }

    fn end(&mut self, fault: Fault) {
        self.say(|| format!("ends: {fault:?}"));
        let (hosts, clients) = (self.hosts.clone(), self.clients.clone());
        let host = |n: usize| host_of(&hosts, &clients, n);
        match fault {
            Fault::Crash { host: n, .. } | Fault::KillClient { client: n } => self.start(host(n)),
            Fault::Room { late, by } => {
                let late: Vec<HostId> = late.iter().map(|n| host(*n)).collect();
                self.down.clone().into_iter().filter(|h| !late.contains(h)).for_each(|host| self.start(host));
                if !late.is_empty() {
                    self.ends.insert((self.cluster.sim.now_ns() + by, usize::MAX), Fault::Room { late: Vec::new(), by });
                }
            }
            Fault::Partition { a, b } => {
                self.cluster.sim.rejoin(host(a), host(b));
                self.cluster.sim.rejoin(host(b), host(a));
            }
            Fault::OneWay { from, to } => self.cluster.sim.rejoin(host(from), host(to)),
            Fault::CutOff { osd, client } => {
                let (osd, client, sim) = (host(osd), host(client), &mut self.cluster.sim);
                for other in hosts.iter().filter(|h| **h != osd) {
                    for cut in [osd, client] {
                        sim.rejoin(cut, *other);
                        sim.rejoin(*other, cut);
                    }
                }
            }
            Fault::NetworkLost { osd, way } => self.cluster.sim.regain_network(host(osd), way),
            Fault::SlowNet { .. } => self.slow_net(1),
            Fault::SlowDisk { host: n, .. } => self.cluster.sim.slow_disk(host(n), 1),
            // Whoever ended of it is started again; whoever met none is, too, and meets none later.
            Fault::DiskError { host: n, .. } if !self.down.contains(&host(n)) && !self.is_gone(host(n)) => {
                let host = host(n);
                self.cluster.sim.crash(host, false);
                self.cluster.sim.start(host);
            }
            _ => {}
        }
    }

    fn start(&mut self, host: HostId) {
        if self.down.remove(&host) && !self.cluster.sim.is_running(host) && !self.is_gone(host) {
            self.cluster.sim.start(host);
        }
    }

    fn slow_net(&mut self, factor: u64) {
        let times = |r: &std::ops::Range<u64>| r.start * factor..r.end * factor;
        let net = &mut self.cluster.sim.tunables.net;
        (net.latency_ns, net.delay_ns) = (times(&self.latency.0), times(&self.latency.1));
    }

    /// Ends everything that is wrong.
    fn end_all(&mut self) {
        for (_, fault) in std::mem::take(&mut self.ends) {
            self.end(fault);
        }
        self.down.clone().into_iter().for_each(|host| self.start(host));
        self.cluster.sim.heal();
        // A monitor that has left ends again.
        for host in self.hosts.clone() {
            if !self.cluster.sim.is_running(host) && !self.is_gone(host) {
                self.cluster.sim.start(host);
            }
        }
        self.cluster.await_commands();
        if std::mem::take(&mut self.meddled) {
            for osd in 0..self.scenario.plan.osds {
                self.cluster.command(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#));
                self.cluster.command(&format!(r#"{{"prefix": "osd reweight", "id": {osd}, "weight": 1.0}}"#));
            }
            self.cluster.await_commands();
        }
    }

    /// Does something to a cluster that is whole, and makes it whole again. A write that only one disk has, and that no client was
    /// told of, would be lost with that disk, and missed.
    fn in_peace(&mut self, hurt: impl FnOnce(&mut Self)) -> bool {
        self.end_all();
        checks::wait_for_clean(&mut self.cluster);
        hurt(self);
        self.advance(10 * SECOND);
        checks::wait_for_scrubs(&mut self.cluster, &self.scenario.plan);
        checks::wait_for_clean(&mut self.cluster);
        false
    }

    /// Nobody has served without the OSDs when they come back empty, and those who could may not be there yet.
    fn replace_disks(&mut self, osds: &[usize], late: &[usize], by: u64) {
        osds.iter().chain(late).for_each(|osd| self.cluster.sim.crash(self.hosts[*osd], true));
        for osd in osds {
            self.cluster.replace_disk(*osd);
            self.cluster.sim.start(self.hosts[*osd]);
        }
        self.advance(by);
        late.iter().for_each(|osd| self.cluster.sim.start(self.hosts[*osd]));
    }

    fn fail_reads(&mut self, osd: usize, reads: usize) {
        for _ in 0..reads {
            self.cluster.sim.fail_io(self.hosts[osd], MemIo::Read(0));
            self.advance(SECOND / 2);
        }
        // None is left over.
        self.cluster.sim.crash(self.hosts[osd], false);
        self.cluster.sim.start(self.hosts[osd]);
    }

    fn is_gone(&self, host: HostId) -> bool {
        self.gone.keys().any(|osd| self.hosts[*osd] == host)
    }

    /// The operator writes off what will not come back: OSDs that are gone, and what nobody who is left has. From then on what was
    /// written before may be as it was at any time.
    fn give_up(&mut self, revert: bool, replace: bool) {
        self.declare_lost();
        if replace && self.cluster.open_commands() == 0 {
            for osd in std::mem::take(&mut self.gone).into_keys() {
                self.cluster.replace_disk(osd);
                self.cluster.sim.start(self.hosts[osd]);
            }
        }
        for pg in 0..self.cluster.pgs {
            self.mark_unfound_lost(&format!("1.{pg:x}"), revert);
        }
    }

    fn declare_lost(&mut self) {
        let gone: Vec<usize> = self.gone.iter().filter(|(_, declared)| !**declared).map(|(osd, _)| *osd).collect();
        if gone.is_empty() {
            return;
        }
        // A placement group that waits for one of them may go on with what others have.
        self.cluster.model.borrow_mut().lose_all();
        self.history.borrow_mut().lose_all(self.cluster.sim.now_ns());
        for osd in gone {
            self.cluster.command(&format!(r#"{{"prefix": "osd down", "ids": ["{osd}"]}}"#));
            self.cluster.command(&format!(r#"{{"prefix": "osd lost", "id": {osd}, "yes_i_really_mean_it": true}}"#));
            self.gone.insert(osd, true);
        }
        for _ in 0..60 {
            self.advance(SECOND);
            if self.cluster.open_commands() == 0 {
                break;
            }
        }
    }

    /// Every OSD is told; the primary obeys, or says why not. Returns how many objects are given up.
    fn mark_unfound_lost(&mut self, pg: &str, revert: bool) -> usize {
        let began = self.cluster.sim.now_ns();
        let how = if revert { "revert" } else { "delete" };
        self.cluster.sim.admin_replies();
        let mut asked: BTreeSet<HostId> = self.cluster.osds.iter().copied().filter(|osd| self.cluster.sim.is_running(*osd)).collect();
        for osd in &asked {
            self.cluster.sim.admin(*osd, LIST, &format!(r#"{{"prefix": "pg", "pgid": "{pg}", "cmd": "list_unfound", "format": "json"}}"#));
            self.cluster.sim.admin(*osd, MARK, &format!(r#"{{"prefix": "pg", "pgid": "{pg}", "cmd": "mark_unfound_lost", "mulcmd": "{how}"}}"#));
        }
        let mut given_up = 0;
        while !asked.is_empty() {
            // Nobody is answered by what is given up before a disk has flushed that.
            self.cluster.sim.run_until(self.cluster.sim.now_ns() + STEP_NS);
            let replies = self.cluster.sim.admin_replies();
            for (osd, _, reply) in replies.iter().filter(|(_, what, _)| *what == LIST) {
                asked.remove(osd);
                // Who obeys answers later.
                let refused = replies.iter().find(|(whom, what, _)| whom == osd && *what == MARK);
                let (names, more) = unfound_in(reply);
                if let Some((_, _, why)) = refused.filter(|_| !names.is_empty()) {
                    self.say(|| format!("{pg} keeps {} unfound objects: {}", names.len(), String::from_utf8_lossy(why)));
                    continue;
                }
                if !names.is_empty() {
                    self.say(|| format!("{pg} gives up, {how}: {}", names.join(" ")));
                }
                if more {
                    self.cluster.model.borrow_mut().lose_all();
                    self.history.borrow_mut().lose_all(began);
                }
                given_up += names.len();
                for name in names {
                    let lost = if revert { Lost::Older } else { Lost::Deleted };
                    self.cluster.model.borrow_mut().lose(&name, lost);
                    self.history.borrow_mut().lose(&name, began);
                }
            }
            asked.retain(|osd| self.cluster.sim.is_running(*osd));
        }
        given_up
    }

    // --- checks

    /// As long as we have not damaged what is stored, nobody may find it damaged: what a scrub or a read repairs is equal when copies
    /// are compared, but it was our mistake.
    fn look_for_complaints(&mut self) {
        let until = self.damaged_at.unwrap_or(u64::MAX);
        let sim = &self.cluster.sim;
        let early = sim.complaints().iter().filter(|c| c.ns < until);
        let said: Vec<String> = early.map(|c| format!("{} at {:.3} s: {}", sim.name(c.of), Duration::from_nanos(c.ns).as_secs_f64(), c.what)).collect();
        for what in said.iter().take(COMPLAINTS_TOLD) {
            self.fault(&format!("nothing was damaged, but {what}"));
        }
    }

    /// Everything that redundancy promises.
    fn look(&mut self, clients: usize) {
        self.say(|| "everything is over; what follows are checks".into());
        self.cluster.model.borrow_mut().stop = true;
        if self.scenario.work.full_try {
            self.cluster.set_full(1000);
            self.cluster.await_commands();
        }
        if self.cluster.run_until_finished(clients, Duration::from_secs(900)) {
            self.cluster.add_reader();
            if !self.cluster.run_until_finished(clients + 1, Duration::from_secs(300)) {
                self.fault("the reader does not end");
            }
        } else {
            let finished = self.cluster.model.borrow().finished;
            self.fault(&format!("{finished} of {clients} tasks have ended, the others hang"));
        }
        let plan = self.scenario.plan.clone();
        checks::wait_for_clean(&mut self.cluster);
        checks::wait_for_scrubs(&mut self.cluster, &plan);
        if self.scenario.plan.mons > 1 {
            checks::wait_for_quorum(&mut self.cluster, self.mons);
        }
        if self.tell && !self.cluster.model.borrow().faults.is_empty() {
            // Before everybody is started anew.
            checks::examine(&mut self.cluster);
        }
        if self.scenario.snappers > 0 {
            if self.scenario.seed.is_multiple_of(2) {
                self.cluster.remove_snapshots();
                self.cluster.await_commands();
                self.advance(10 * SECOND);
            }
            checks::wait_for_trimming(&mut self.cluster);
            // To trim is to write: what was overwritten is kept for a moment.
            self.advance(10 * SECOND);
        }
        let acting = checks::acting(&mut self.cluster);
        checks::check_stores(&mut self.cluster);
        checks::compare_copies(&mut self.cluster, &acting);
        self.look_for_complaints();
        if self.cluster.model.borrow().faults.is_empty() {
            checks::rot_one_disk(&mut self.cluster, clients + 1, &plan);
        }
    }

    /// What is read is right, as far as anything can be read.
    fn look_beyond(&mut self) {
        self.cluster.model.borrow_mut().stop = true;
        self.say(|| "everything is over; what can be saved is".into());
        self.advance(60 * SECOND);
        self.declare_lost();
        for round in 0..10 {
            let given_up: usize = (0..self.cluster.pgs).map(|pg| self.mark_unfound_lost(&format!("1.{pg:x}"), round % 2 == 0)).sum();
            self.advance(15 * SECOND);
            if given_up == 0 && round > 1 {
                break;
            }
        }
        // Nobody gives anything up any more: what is found stays, whoever starts anew.
        self.cluster.model.borrow_mut().settled = self.cluster.open_commands() == 0;
        self.read_what_is_left();
        let left: Vec<HostId> = self.cluster.osds.iter().copied().filter(|osd| !self.is_gone(*osd)).collect();
        for osd in left {
            self.cluster.sim.crash(osd, true);
            self.cluster.sim.start(osd);
        }
        self.advance(60 * SECOND);
        self.read_what_is_left();
    }

    /// Notes how many objects nobody can be told of.
    fn read_what_is_left(&mut self) {
        let objects = self.cluster.model.borrow().names().len();
        self.cluster.model.borrow_mut().answered = 0;
        self.cluster.add_readers();
        let (model, until) = (self.cluster.model.clone(), self.cluster.sim.now_ns() + 120 * SECOND);
        self.cluster.sim.run_until_done(until, || model.borrow().answered >= objects || !model.borrow().faults.is_empty());
        self.blocked = objects.saturating_sub(self.cluster.model.borrow().answered) as u64;
    }
}

/// Names in the answer to `list_unfound`, and whether there are more.
fn unfound_in(reply: &[u8]) -> (Vec<String>, bool) {
    let json = reply.iter().position(|b| *b == b'{').and_then(|at| serde_json::from_slice::<serde_json::Value>(reply.get(at..)?).ok());
    let objects = json.as_ref().and_then(|list| list.get("objects")?.as_array());
    let names = objects.into_iter().flatten().filter_map(|o| Some(o.get("oid")?.get("oid")?.as_str()?.to_owned())).collect();
    (names, json.as_ref().and_then(|list| list.get("more")?.as_bool()).unwrap_or_default())
}

/// Who has that number. A run with fewer clients than were drawn has others in their place.
fn host_of(daemons: &[HostId], clients: &[HostId], n: usize) -> HostId {
    daemons.get(n).copied().unwrap_or_else(|| clients[(n - daemons.len()) % clients.len()])
}
