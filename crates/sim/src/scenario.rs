//! What a seed makes of a run: the cluster's shape, its clients, and every fault, with all that is drawn by chance. A list, so that
//! a run that fails can be tried again with less of it (`shrink`).

use crate::cluster::{POOL, Plan};
use crate::net::Way;
use crate::sim::Tunables;
use crate::workload::Workload;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use store::mem::MemIo;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const HOUR_S: i64 = 3600;
const YEAR_S: i64 = 365 * 86_400;
/// PGs are split until there are so many.
const PGS_MAX: u32 = 24;

/// What may go wrong. Numbers of hosts count OSDs first, then the first monitors, then clients.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// A process is killed, or its machine loses power; it starts again afterwards.
    Crash { host: usize, power: bool },
    /// The power of the whole room; some come back later than the others, by so many nanoseconds.
    Room { late: Vec<usize>, by: u64 },
    /// A client is killed, and starts again: nobody sends again what it had not been answered.
    KillClient { client: usize },
    /// One connection in so many breaks.
    Cut { one_in: u32 },
    Partition { a: usize, b: usize },
    /// `to` hears nothing of `from`.
    OneWay { from: usize, to: usize },
    /// An OSD and a client hear each other and no other daemon.
    CutOff { osd: usize, client: usize },
    /// An OSD is without one of its networks, with everybody.
    NetworkLost { osd: usize, way: Way },
    /// A process stands still.
    Pause { host: usize },
    /// Every packet takes so many times as long.
    SlowNet { factor: u64 },
    SlowDisk { host: usize, factor: u64 },
    /// The next write, flush or read of the database fails.
    DiskError { host: usize, io: MemIo },
    /// A wall clock is set.
    Clock { host: usize, by_s: i64 },
    /// An operator's command: data moves.
    Operator { command: String },
    /// The pool gets more placement groups or fewer, and so many of them places of their own.
    PgNum { pg_num: u32, pgp_num: u32 },
    /// With everything clean and well disks of OSDs, of one fewer than there are copies at most, are replaced by empty ones, and they come
    /// back under their old names; the others may come later than they do, by so many nanoseconds.
    ReplaceDisks { osds: Vec<usize>, late: Vec<usize>, by: u64 },
    /// With everything clean and well blocks of a disk go bad, and scrubs repair them.
    Rot { osd: usize, pages: usize },
    /// With everything clean and well reads of one disk fail.
    ReadErrors { osd: usize, reads: usize },
    MonJoins,
    MonLosesDisk { mon: usize },
    MonLeaves { mon: usize },
    /// Beyond what redundancy promises: blocks of a disk go bad whatever else is wrong.
    RotAnyway { osd: usize, pages: usize },
    /// Beyond what redundancy promises: the next read fails whatever else is wrong.
    ReadErrorAnyway { osd: usize },
    /// Beyond what redundancy promises: everything on some disks goes bad at once, and nothing of it is in memory any more.
    RotWhole { osds: Vec<usize> },
    /// Beyond what redundancy promises: OSDs die at once and never come back, with whatever only they had.
    Gone { osds: Vec<usize> },
    /// The operator declares OSDs lost that are gone, gives up objects that are unfound, and may get new disks.
    GiveUp { revert: bool, replace: bool },
}

impl Fault {
    /// True if what is stored may become wrong, or unreadable: scrubs may find something.
    pub fn damages(&self) -> bool {
        use Fault::{ReadErrorAnyway, ReadErrors, Rot, RotAnyway, RotWhole};
        matches!(self, Rot { .. } | ReadErrors { .. } | RotAnyway { .. } | ReadErrorAnyway { .. } | RotWhole { .. })
    }

    /// Its kind, for counting.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Crash { power: false, .. } => "kill",
            Fault::Crash { .. } => "power cut",
            Fault::Room { .. } => "power cut of all",
            Fault::KillClient { .. } => "client killed",
            Fault::Cut { .. } => "connections cut",
            Fault::Partition { .. } => "partition",
            Fault::OneWay { .. } => "one-way partition",
            Fault::CutOff { .. } => "OSD and client cut off",
            Fault::NetworkLost { way: Way::Cluster, .. } => "cluster network lost",
            Fault::NetworkLost { .. } => "public network lost",
            Fault::Pause { .. } => "pause",
            Fault::SlowNet { .. } => "slow network",
            Fault::SlowDisk { .. } => "slow disk",
            Fault::DiskError { io: MemIo::KvRead, .. } => "database read error",
            Fault::DiskError { .. } => "write or flush error",
            Fault::Clock { by_s, .. } if by_s.abs() > HOUR_S => "clock jump by years",
            Fault::Clock { .. } => "clock jump",
            Fault::Operator { .. } => "out, in, reweight",
            Fault::PgNum { .. } => "PGs split or merged",
            Fault::ReplaceDisks { .. } => "disks replaced",
            Fault::Rot { .. } => "rot",
            Fault::ReadErrors { .. } => "read errors",
            Fault::MonJoins => "monitor joins",
            Fault::MonLosesDisk { .. } => "monitor loses disk",
            Fault::MonLeaves { .. } => "monitor leaves",
            Fault::RotAnyway { .. } => "rot beyond redundancy",
            Fault::ReadErrorAnyway { .. } => "read errors beyond redundancy",
            Fault::RotWhole { .. } => "whole disks rotten",
            Fault::Gone { .. } => "OSDs gone for good",
            Fault::GiveUp { .. } => "given up what is lost",
        }
    }
}

/// A fault, how long after the last one it begins, and how long it lasts, in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    pub pause: u64,
    pub lasts: u64,
    pub fault: Fault,
}

/// A whole run.
#[derive(Debug, Clone)]
pub struct Scenario {
    pub seed: u64,
    pub plan: Plan,
    pub tunables: Tunables,
    pub work: Workload,
    /// Programs that write objects of their own.
    pub writers: usize,
    /// Programs that race for objects.
    pub sharers: usize,
    /// Programs that take snapshots of objects of their own.
    pub snappers: usize,
    /// More breaks than redundancy promises to survive: whatever is answered still has to be right.
    pub beyond: bool,
    pub faults: Vec<Planned>,
}

impl Scenario {
    /// Everything is drawn from the seed.
    pub fn of_seed(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x000f_a017);
        let rng = &mut rng;
        let beyond = rng.random_ratio(1, 6);
        let fills = !beyond && rng.random_ratio(1, 6);
        let mut plan = plan(rng, fills);
        // Drawn apart, so that seeds remain what they were.
        let mut apart = ChaCha8Rng::seed_from_u64(seed ^ 0x5702_e5ee);
        // Not where disks become full: who compresses holds what the next one has no room for.
        plan.storing = (apart.random::<bool>() && !fills).then(|| apart.random::<u32>().into());
        let mut tunables = Tunables::default();
        let slow = rng.random();
        if slow {
            tunables.disk.flush_ns = 5 * MS..200 * MS;
        }
        let (objects_per_task, bytes_max) = match (fills, plan.osds as u32 == plan.size) {
            (false, _) => ([4, 16][rng.random_range(0..2)], [2_000, 40_000, 150_000][rng.random_range(0..3)]),
            // What is on its way when a disk becomes full has to fit between the ratios and what the store keeps back.
            (_, true) => (120, 250_000),
            (_, false) => (60, 100_000),
        };
        let pause_ms_max = if fills { 50 } else if slow { 100 } else { 500 };
        let work = Workload { pool: POOL.into(), tasks: 3, objects_per_task, ops_per_task: 1000, bytes_max, pause_ms_max, full_try: fills, omaps: true };
        let (writers, sharers) = (2, if fills { 0 } else { 2 });
        let faults = faults(rng, &plan, writers + sharers, beyond);
        let snappers = usize::from(!beyond && !fills && apart.random_ratio(2, 3));
        let mut s = Scenario { seed, plan, tunables, work, writers, sharers, snappers, beyond, faults };
        if apart.random_ratio(1, 3) {
            s.encode(&mut apart);
        }
        s
    }

    /// The pool becomes one of shards, and faults what those survive.
    fn encode(&mut self, rng: &mut ChaCha8Rng) {
        let shapes: &[(u32, u32)] = match self.plan.osds {
            3 => &[(2, 1)],
            4 => &[(2, 2), (3, 1), (2, 1)],
            _ => &[(3, 2), (4, 1), (2, 2), (2, 1)],
        };
        let (mut k, mut m) = shapes[rng.random_range(0..shapes.len())];
        let chunk = [4096, 1024, 256][rng.random_range(0..3)];
        let is_wide = rng.random_ratio(1, 6) && !self.work.full_try;
        if is_wide {
            (k, m) = [(8, 3), (6, 3), (4, 4), (5, 2), (4, 2)][rng.random_range(0..5)];
            self.plan.osds = (k + m) as usize + rng.random_range(0..2);
        }
        self.plan.coded = Some((k, chunk));
        (self.plan.size, self.plan.min_size) = (k + m, k + 1.min(m - 1));
        self.work.omaps = false;
        if self.work.full_try {
            // As much for each disk as of whole copies.
            self.work.bytes_max *= k as usize;
        }
        if is_wide {
            // The hosts that they are about have other numbers now.
            self.faults = faults(rng, &self.plan, self.writers + self.sharers, self.beyond);
        }
        // Whoever has too few shards left has nothing that could be given up: nothing brings these placement groups back.
        let mut gone = std::collections::BTreeSet::new();
        for planned in &mut self.faults {
            match &mut planned.fault {
                Fault::ReplaceDisks { osds, .. } => osds.truncate(m as usize),
                Fault::Gone { osds } => osds.retain(|osd| gone.contains(osd) || gone.len() < m as usize && gone.insert(*osd)),
                Fault::GiveUp { revert, .. } => *revert = false,
                _ => {}
            }
        }
    }

    /// Name of a host by the number that faults have for it.
    pub fn host(&self, n: usize) -> String {
        match n.checked_sub(self.plan.osds) {
            None => format!("osd.{n}"),
            Some(mon) if mon < self.plan.mons => format!("mon.{}", char::from(b'a' + mon as u8)),
            Some(client) => format!("client {}", client - self.plan.mons),
        }
    }
}

fn plan(rng: &mut ChaCha8Rng, fills: bool) -> Plan {
    let (osds, size, min_size, pgs) = [(3, 3, 2, 4), (4, 3, 2, 8), (3, 2, 1, 4), (5, 3, 2, 8)][rng.random_range(0..4)];
    // One copy may be all there is: nothing repairs it.
    let scrub_s = if min_size > 1 && !fills && rng.random_ratio(2, 3) { 30 } else { 0 };
    // Where every OSD has everything, disks are filled until what the store keeps back is needed; elsewhere copies move, and need
    // room at two places.
    let (disk_bytes, full_per_mille) = match (fills, osds as u32 == size) {
        (false, _) => (1 << 30, 970),
        (_, true) => (56 << 20, 970),
        (_, false) => (64 << 20, [110, 130, 150][rng.random_range(0..3)]),
    };
    Plan {
        disk_bytes,
        full_per_mille,
        mons: [1, 1, 1, 3, 3, 5][rng.random_range(0..6)],
        osds,
        size,
        min_size,
        pgs,
        log_entries_max: [500, 60, 40, 5][rng.random_range(0..4)],
        // Few, yet more than a PG is written while a client is held up: to forget those is no fault.
        log_dups_tracked: [3000, 3000, 1000][rng.random_range(0..3)],
        out_after_s: [20, 600][rng.random_range(0..2)],
        map_epochs: [500, 3][rng.random_range(0..2)],
        recovery_max: [1, 0][rng.random_range(0..2)],
        max_backfills: [1, 3][rng.random_range(0..2)],
        client_messages: [256, 1, 3][rng.random_range(0..3)],
        storing: None,
        coded: None,
        scrub_s,
        scan_min: [1, 2, 64][rng.random_range(0..3)],
        two_networks: rng.random(),
    }
}

/// Which kinds there are is drawn first: runs of a few kinds go deeper than runs of all.
fn faults(rng: &mut ChaCha8Rng, plan: &Plan, clients: usize, beyond: bool) -> Vec<Planned> {
    let daemons = plan.osds + plan.mons;
    let everyone = daemons + clients;
    let kinds: Vec<usize> = (0..14).filter(|_| rng.random_ratio(1, 2)).collect();
    let kinds = if kinds.is_empty() { vec![0, 4] } else { kinds };
    let peace = rng.random_ratio(1, 2);
    let mut peaceful = 0;
    let (mut pgs, mut pgps) = (plan.pgs, plan.pgs);
    // Mostly enough OSDs are left to serve, and always one to be asked.
    let may_go = if beyond && rng.random_ratio(3, 4) { plan.osds - plan.min_size as usize } else { plan.osds - 1 };
    let count = rng.random_range(4..24);
    let mut out: Vec<Planned> = Vec::new();
    for _ in 0..count {
        let host = rng.random_range(0..daemons);
        let any = rng.random_range(0..everyone);
        let other = (any + rng.random_range(1..everyone)) % everyone;
        let osd = rng.random_range(0..plan.osds);
        let fault = match kinds.choose(rng).copied().unwrap_or_default() {
            _ if beyond && rng.random_ratio(1, 2) => beyond_redundancy(rng, plan, may_go),
            _ if peace && !beyond && peaceful < 2 && plan.scrub_s > 0 && rng.random_ratio(1, 8) => {
                peaceful += 1;
                match rng.random_range(0..3) {
                    0 => replace_disks(rng, plan),
                    1 => Fault::Rot { osd, pages: rng.random_range(1..40) },
                    _ => Fault::ReadErrors { osd, reads: rng.random_range(1..20) },
                }
            }
            0 => Fault::Crash { host, power: true },
            1 => Fault::Crash { host, power: false },
            2 => Fault::Cut { one_in: rng.random_range(1..5) },
            3 => Fault::Partition { a: any, b: other },
            4 => Fault::OneWay { from: any, to: other },
            5 => Fault::Pause { host: any },
            6 => Fault::SlowNet { factor: rng.random_range(2..200) },
            7 => Fault::SlowDisk { host, factor: rng.random_range(2..300) },
            8 => Fault::DiskError { host, io: io_to_fail(rng, host < plan.osds) },
            9 => Fault::Clock { host, by_s: clock_jump(rng) },
            10 => Fault::Operator { command: operator(rng, osd) },
            13 if plan.two_networks => Fault::NetworkLost { osd, way: Way::BOTH[rng.random_range(0..2)] },
            11 | 13 => Fault::CutOff { osd, client: rng.random_range(daemons..everyone) },
            _ => {
                (pgs, pgps) = other_pgs(rng, pgs, pgps);
                Fault::PgNum { pg_num: pgs, pgp_num: pgps }
            }
        };
        // Everybody at once, now and then.
        let fault = if matches!(fault, Fault::Crash { .. }) && rng.random_ratio(1, 5) { room(rng, daemons) } else { fault };
        out.push(Planned { pause: how_long(rng), lasts: how_long(rng), fault });
    }
    if plan.mons >= 3 && rng.random() {
        change_mons(rng, &mut out);
    }
    if rng.random() {
        for _ in 0..rng.random_range(1..6) {
            let fault = Fault::KillClient { client: rng.random_range(daemons..everyone) };
            let at = rng.random_range(0..=out.len());
            out.insert(at, Planned { pause: how_long(rng), lasts: how_long(rng), fault });
        }
    }
    out
}

/// Those that are late are mostly so late that the others go on without them: with what is on their disks, and nothing else.
fn room(rng: &mut ChaCha8Rng, daemons: usize) -> Fault {
    let late = if rng.random() { some(rng, daemons) } else { Vec::new() };
    Fault::Room { late, by: rng.random_range(10 * SECOND..60 * SECOND) }
}

/// What monitors read of their database is not made to fail.
fn io_to_fail(rng: &mut ChaCha8Rng, osd: bool) -> MemIo {
    let kinds = [MemIo::Write(0), MemIo::DevFlush, MemIo::KvFlush, MemIo::KvRead];
    kinds[rng.random_range(0..if osd { 4 } else { 3 })]
}

/// Mostly an hour or less; else years, or to 1970.
fn clock_jump(rng: &mut ChaCha8Rng) -> i64 {
    match rng.random_range(0..8) {
        0 => -60 * YEAR_S,
        1 => rng.random_range(-20 * YEAR_S..20 * YEAR_S),
        _ => rng.random_range(-HOUR_S..HOUR_S),
    }
}

fn replace_disks(rng: &mut ChaCha8Rng, plan: &Plan) -> Fault {
    let mut osds = some(rng, plan.osds);
    osds.truncate(plan.size as usize - 1);
    let late = if rng.random() { (0..plan.osds).filter(|osd| !osds.contains(osd)).collect() } else { Vec::new() };
    Fault::ReplaceDisks { osds, late, by: rng.random_range(10 * SECOND..60 * SECOND) }
}

fn beyond_redundancy(rng: &mut ChaCha8Rng, plan: &Plan, may_go: usize) -> Fault {
    let osd = rng.random_range(0..plan.osds);
    match rng.random_range(0..10) {
        0 | 1 => Fault::RotAnyway { osd, pages: rng.random_range(1..200) },
        2 => Fault::ReadErrorAnyway { osd },
        3 | 4 => Fault::RotWhole { osds: some(rng, plan.osds) },
        5 | 6 => Fault::Gone { osds: some(rng, may_go) },
        _ => Fault::GiveUp { revert: rng.random_ratio(2, 3), replace: rng.random() },
    }
}

/// One of the first `of`, or some.
fn some(rng: &mut ChaCha8Rng, of: usize) -> Vec<usize> {
    let count = if rng.random() { 1 } else { rng.random_range(1..=of) };
    rand::seq::index::sample(rng, of, count).into_vec()
}

/// From a moment to half a minute: every order of magnitude as often as any other.
fn how_long(rng: &mut ChaCha8Rng) -> u64 {
    let magnitude = [MS, 10 * MS, 100 * MS, SECOND, SECOND, 10 * SECOND].choose(rng).copied().unwrap_or(SECOND);
    rng.random_range(magnitude / 3..3 * magnitude)
}

/// How many placement groups there are next, powers of two or not, and how many have places of their own.
pub fn other_pgs(rng: &mut impl Rng, pgs: u32, pgps: u32) -> (u32, u32) {
    if rng.random() {
        let pgs = rng.random_range(1..=pgs);
        return (pgs, rng.random_range(1..=pgs));
    }
    let pgs = (pgs + rng.random_range(0..=pgs)).min(PGS_MAX);
    (pgs, rng.random_range(pgps..=pgs))
}

fn operator(rng: &mut ChaCha8Rng, osd: usize) -> String {
    let weight = rng.random_range(1..10);
    match rng.random_range(0..4) {
        0 => format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#),
        1 | 2 => format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#),
        _ => format!(r#"{{"prefix": "osd reweight", "id": {osd}, "weight": 0.{weight}}}"#),
    }
}

/// One more monitor comes, one of the first three loses its disk, another one leaves; in this order. (One that left before it is
/// back with an empty disk would be let in as a newcomer.)
fn change_mons(rng: &mut ChaCha8Rng, out: &mut Vec<Planned>) {
    let mon = rng.random_range(0..3);
    let steps = [Fault::MonJoins, Fault::MonLosesDisk { mon }, Fault::MonLeaves { mon: (mon + rng.random_range(1..3)) % 3 }];
    let mut at: Vec<usize> = steps.iter().map(|_| rng.random_range(0..=out.len())).collect();
    at.sort_unstable();
    for (n, (at, fault)) in at.into_iter().zip(steps).enumerate() {
        out.insert(at + n, Planned { pause: how_long(rng), lasts: 0, fault });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_scenario_and_seeds_give_all_kinds_of_faults() {
        assert_eq!(Scenario::of_seed(7).faults, Scenario::of_seed(7).faults);
        let kinds: std::collections::BTreeSet<_> = (0..200).flat_map(|s| Scenario::of_seed(s).faults).map(|f| f.fault.kind()).collect();
        assert_eq!(kinds.len(), 30, "{kinds:?}");
    }
}
