//! Whole clusters under faults: what was acknowledged is there, and a seed gives the same run.

use rand::Rng;
use sim::checks::*;
use sim::{Cluster, HostId, Plan, Tunables, Workload};
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|s| s.parse().ok())
}

/// The seeds a test runs: all of them, or the one that `SEED` names.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let first = env("FIRST").unwrap_or(0);
    env("SEED").map_or(first..first + env("SEEDS").unwrap_or(count), |s| s..s + 1)
}

fn work(seed: u64) -> Workload {
    let (ops_per_task, pause_ms_max) = (300, if slow(seed) { 100 } else { 500 });
    // Many objects are missing for long after a crash, few are written again and again. What is on its way when a disk becomes
    // full has to fit between the ratios and what the store keeps back.
    let (pause_ms_max, objects_per_task, bytes_max) = match (fills(seed), seed as usize / 2 % 4) {
        (true, 0) => (50, 120, 250_000),
        (true, _) => (50, 60, 100_000),
        _ => (pause_ms_max, [4, 16][seed as usize / 4 % 2], 40_000),
    };
    let (pool, tasks) = (sim::POOL.into(), 3);
    Workload { pool, tasks, objects_per_task, ops_per_task, bytes_max, pause_ms_max, full_try: fills(seed), omaps: true }
}

/// Half the seeds have disks that take long to promise anything: most of what is under way hangs in the air.
fn slow(seed: u64) -> bool {
    env("SLOW").map_or(seed % 2 == 1, |s| s > 0)
}

/// Clients fill the disks: writes are refused, and whatever else goes on, goes on.
fn fills(seed: u64) -> bool {
    env("FULL").map_or(seed % 6 == 4, |on| on > 0)
}

fn tunables(seed: u64) -> Tunables {
    let mut tunables = Tunables::default();
    if slow(seed) {
        tunables.disk.flush_ns = 5_000_000..200_000_000;
    }
    tunables
}

/// Clusters of several shapes. Where a copy alone may serve, peering must know who has been alone.
fn plan(seed: u64) -> Plan {
    let (osds, size, min_size, pgs) = [(3, 3, 2, 4), (4, 3, 2, 8), (3, 2, 1, 4), (5, 3, 2, 8)][seed as usize / 2 % 4];
    // A resent request is known longer than its log entry is kept. Where it was not, with 60 entries, a client that was
    // cut off for long had its append executed twice (seeds 117 and 165).
    let (log_entries_max, log_dups_tracked) = [(500, 3000), (60, 3000), (40, 400)][seed as usize % 3];
    let log_entries_max = env("LOG_MAX").map_or(log_entries_max, |n| n as usize);
    let log_dups_tracked = env("DUPS").unwrap_or(log_dups_tracked);
    let out_after_s = [20, 600][seed as usize / 8 % 2];
    let map_epochs = [3, 500][seed as usize / 2 % 2];
    let mons = env("MONS").map_or([1, 1, 3][seed as usize / 5 % 3], |n| n as usize);
    let recovery_max = [1, 0][(seed as usize / 4 % 2) ^ (seed as usize % 2)];
    // Clusters in which a disk rots are scrubbed.
    let scrub_s = if min_size > 1 && seed % 3 != 2 && !fills(seed) { 30 } else { 0 };
    let scan_min = [1, 2, 64][seed as usize / 3 % 3];
    // Where every OSD has everything, disks are filled until what the store keeps back is needed (a sixteenth, and that counts
    // as used); smaller ones would get no weight. Elsewhere copies move, and need room at two places.
    let to_the_brim = fills(seed) && osds as u32 == size;
    let (disk_bytes, full_per_mille) = match (fills(seed), to_the_brim) {
        (false, _) => (1 << 30, 970),
        (_, true) => (56 << 20, 970),
        (_, false) => (64 << 20, 110 + 20 * (seed / 6 % 3) as u32),
    };
    let max_backfills = [1, 3][seed as usize / 3 % 2];
    let two_networks = seed % 7 < 3;
    let client_messages = [256, 2][seed as usize / 4 % 2];
    // What two disks compress and a third one does not might not fit there.
    let storing = (seed.is_multiple_of(2) && !to_the_brim).then_some(seed);
    Plan { coded: None, storing, two_networks, max_backfills, client_messages, disk_bytes, full_per_mille, scan_min, mons, osds, size, min_size, pgs, log_entries_max, log_dups_tracked, out_after_s, map_epochs, recovery_max, scrub_s }
}

/// How a run ended.
struct Outcome {
    hash: u64,
    events: u64,
    seconds: u64,
    writes: u64,
    refused: u64,
    reads: u64,
    faults: Vec<String>,
}

/// What an operator does while the cluster is hurt, in every other seed: moves data by weights, and once replaces a disk.
fn meddle(cluster: &mut Cluster) {
    let n = cluster.osds.len();
    let (what, osd, weight) = (cluster.sim.rng().random_range(0..4), cluster.sim.rng().random_range(0..n), cluster.sim.rng().random_range(1..10));
    let command = match what {
        0 => format!(r#"{{"prefix": "osd out", "ids": ["{osd}"]}}"#),
        1 | 2 => format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#),
        _ => format!(r#"{{"prefix": "osd reweight", "id": {osd}, "weight": 0.{weight}}}"#),
    };
    cluster.command(&command);
}

/// Everybody counts again as the plan has it.
fn put_in_order(cluster: &mut Cluster) {
    cluster.await_commands();
    for osd in 0..cluster.osds.len() {
        cluster.command(&format!(r#"{{"prefix": "osd in", "ids": ["{osd}"]}}"#));
        cluster.command(&format!(r#"{{"prefix": "osd reweight", "id": {osd}, "weight": 1.0}}"#));
    }
    cluster.await_commands();
}

/// Replaces a disk as the manual says: with the cluster clean it stops an OSD, waits until every PG serves without it, and
/// starts it with an empty disk.
fn replace_disk(cluster: &mut Cluster, down: &mut Vec<HostId>) {
    cluster.sim.heal();
    std::mem::take(down).into_iter().for_each(|host| cluster.sim.start(host));
    put_in_order(cluster);
    let pgs = cluster.pgs;
    let all = |pgs: u32| (0..pgs).map(|pg| format!("1.{pg:x}"));
    if !soon(cluster, |c| all(pgs).all(|pg| is_clean(c, &pg))) {
        return;
    }
    let n = cluster.sim.rng().random_range(0..cluster.osds.len());
    let osd = cluster.osds[n];
    cluster.sim.crash(osd, true);
    if soon(cluster, |c| all(pgs).all(|pg| serves_without(c, &pg, n as i64))) {
        cluster.replace_disk(n);
    }
    cluster.sim.start(osd);
}

/// Placement groups are split and merged while the cluster is hurt, in two of three runs.
fn splits(seed: u64) -> bool {
    env("SPLITS").map_or(!(seed / 2).is_multiple_of(3), |on| on > 0)
}

/// Monitors come, go and lose a disk while the cluster is hurt, in half of the runs with three of them.
fn mons_change(seed: u64) -> bool {
    plan(seed).mons == 3 && env("MEMBERS").map_or((seed / 15).is_multiple_of(2), |on| on > 0)
}

/// A fourth monitor comes, the first three's number `lost` loses its disk, another one is removed; in this order, each under
/// whatever else happens. (One that is removed before it is back with an empty disk would be let in as a newcomer.)
fn change_mons(cluster: &mut Cluster, round: usize, lost: usize, down: &mut Vec<HostId>) {
    match round {
        1 => {
            cluster.add_mon();
        }
        3 => {
            let lost = cluster.mons[lost];
            down.retain(|host| *host != lost);
            cluster.lose_mon_disk(lost);
        }
        5 => {
            let other = (lost + cluster.sim.rng().random_range(1..3)) % 3;
            cluster.command(&format!(r#"{{"prefix": "mon rm", "name": "{}"}}"#, ["a", "b", "c"][other]));
        }
        _ => {}
    }
}

/// Hurts the cluster for a while.
fn hurt(cluster: &mut Cluster, rounds: usize, seed: u64, plan: &Plan) {
    let rots_in = cluster.sim.rng().random_range(0..rounds);
    let mut down: Vec<HostId> = Vec::new();
    let meddled = env("MEDDLE").map_or(seed % 4 >= 2, |m| m > 0);
    let mons_change = mons_change(seed);
    let lost = if mons_change { cluster.sim.rng().random_range(0..3) } else { 0 };
    for round in 0..rounds {
        if mons_change {
            change_mons(cluster, round, lost, &mut down);
        }
        if plan.scrub_s > 0 && round == rots_in {
            cluster.sim.heal();
            down.drain(..).for_each(|host| cluster.sim.start(host));
            if meddled {
                put_in_order(cluster);
            }
            rot_in_peace(cluster, plan);
        }
        if meddled && cluster.sim.rng().random_ratio(1, 3) {
            meddle(cluster);
        }
        if splits(seed) && cluster.sim.rng().random_ratio(1, 3) {
            cluster.change_pgs();
        }
        if meddled && round == rounds / 2 {
            replace_disk(cluster, &mut down);
        }
        let rng = cluster.sim.rng();
        let pause = match rng.random_range(0..4) {
            0 => rng.random_range(1..SECOND / 10),
            1 | 2 => rng.random_range(1..3 * SECOND),
            _ => rng.random_range(1..30 * SECOND),
        };
        let until = cluster.sim.now_ns() + pause;
        cluster.sim.run_until(until);
        let everyone: Vec<HostId> = cluster.osds.iter().chain(&cluster.mons).copied().collect();
        let rng = cluster.sim.rng();
        let (what, a, b) =
            (rng.random_range(0..10), rng.random_range(0..everyone.len()), rng.random_range(0..cluster.osds.len()));
        match what {
            0..=3 if !down.contains(&everyone[a]) => {
                let power = cluster.sim.rng().random();
                cluster.sim.crash(everyone[a], power);
                down.push(everyone[a]);
            }
            4 | 5 => cluster.sim.cut_connections(3),
            6 => {
                // From an OSD, or where there are several, sometimes from another monitor.
                let mons = cluster.mons.clone();
                let among_mons = mons.len() > 1 && cluster.sim.rng().random_ratio(1, 3);
                let (a, b) = if among_mons { (mons[a % mons.len()], mons[(a + 1) % mons.len()]) } else { (everyone[a], cluster.osds[b]) };
                cluster.sim.partition(a, b);
            }
            7 => cluster.sim.heal(),
            8 => {
                // The power of the whole room.
                for host in everyone.into_iter().filter(|h| !down.contains(h)).collect::<Vec<_>>() {
                    cluster.sim.crash(host, true);
                    down.push(host);
                }
            }
            _ => down.retain(|host| {
                let stays = cluster.sim.rng().random_ratio(1, 3);
                if !stays {
                    cluster.sim.start(*host);
                }
                stays
            }),
        }
    }
    cluster.sim.heal();
    down.into_iter().for_each(|host| cluster.sim.start(host));
    cluster.await_commands();
    if meddled {
        put_in_order(cluster);
    }
}

/// Blocks of one disk go bad while clients go on, until scrubs have repaired them. Everything is clean before, and nobody
/// dies meanwhile: a write that only the rotten disk has, and that no client was told of, would be lost and missed.
fn rot_in_peace(cluster: &mut Cluster, plan: &Plan) {
    wait_for_clean(cluster);
    let rotten = cluster.osds[cluster.sim.rng().random_range(0..cluster.osds.len())];
    for _ in 0..6 {
        let pages = cluster.sim.rng().random_range(1..40);
        rot(cluster, rotten, pages);
        cluster.sim.cut_connections(3);
        let pause = cluster.sim.rng().random_range(0..10 * SECOND);
        cluster.sim.run_until(cluster.sim.now_ns() + pause);
    }
    wait_for_scrubs(cluster, plan);
}

/// A replayed seed says what its daemons log, as `SIM_LOG` filters.
fn start_log() {
    if std::env::var("SEED").is_ok() {
        let filter = std::env::var("SIM_LOG").unwrap_or_else(|_| "info".into());
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).without_time().with_writer(std::io::stderr).try_init();
    }
}

fn run(seed: u64, rounds: usize) -> Outcome {
    start_log();
    let mut cluster = Cluster::new(seed, tunables(seed), &plan(seed));
    cluster.sim.log.verbose = std::env::var("SEED").is_ok();
    let work = work(seed);
    let (mut expected, tasks) = (1, work.tasks);
    assert!(cluster.run_until_finished(expected, Duration::from_secs(120)), "seed {seed}: the cluster does not come up");
    for name in ["writer-a", "writer-b"] {
        cluster.add_workload(name, work.clone());
        expected += tasks;
    }
    match rounds {
        0 => cluster.sim.run_until(cluster.sim.now_ns() + 30 * SECOND),
        _ => hurt(&mut cluster, rounds, seed, &plan(seed)),
    }
    cluster.model.borrow_mut().stop = true;
    if fills(seed) {
        cluster.set_full(1000);
        cluster.await_commands();
    }
    if cluster.run_until_finished(expected, Duration::from_secs(900)) {
        cluster.add_reader();
        if !cluster.run_until_finished(expected + 1, Duration::from_secs(300)) {
            cluster.model.borrow_mut().fault("the reader does not end".into());
        }
    } else {
        let finished = cluster.model.borrow().finished;
        cluster.model.borrow_mut().fault(format!("{finished} of {expected} tasks have ended, the others hang"));
    }
    wait_for_clean(&mut cluster);
    wait_for_scrubs(&mut cluster, &plan(seed));
    if rounds > 5 && mons_change(seed) {
        wait_for_quorum(&mut cluster, 3);
    }
    let acting = acting(&mut cluster);
    check_stores(&mut cluster);
    if std::env::var("SEED").is_ok() && !cluster.model.borrow().faults.is_empty() {
        examine(&mut cluster);
    }
    compare_copies(&mut cluster, &acting);
    if cluster.model.borrow().faults.is_empty() {
        rot_one_disk(&mut cluster, expected + 1, &plan(seed));
    }
    let model = cluster.model.borrow();
    Outcome {
        hash: cluster.sim.log.hash(),
        events: cluster.sim.log.events(),
        seconds: cluster.sim.now_ns() / SECOND,
        writes: model.writes,
        refused: model.refused,
        reads: model.reads,
        faults: model.faults.clone(),
    }
}

#[test]
fn a_calm_cluster_serves_what_it_was_given() {
    for seed in seeds(3) {
        let outcome = run(seed, 0);
        assert!(outcome.faults.is_empty(), "seed {seed}: {:#?}", outcome.faults);
        assert!(outcome.writes > 50 && outcome.reads > 50, "{} writes, {} reads", outcome.writes, outcome.reads);
    }
}

/// What a scenario that damages nothing relies on: nobody complains before, and whoever finds damage does.
#[test]
fn what_scrubs_find_and_repair_is_heard() {
    let plan = Plan { scrub_s: 30, ..Plan::default() };
    let mut cluster = Cluster::new(3, Tunables::default(), &plan);
    assert!(cluster.run_until_finished(1, Duration::from_secs(120)));
    cluster.add_workload("writer", Workload { tasks: 3, ops_per_task: 50, ..work(0) });
    assert!(cluster.run_until_finished(4, Duration::from_secs(300)));
    wait_for_clean(&mut cluster);
    wait_for_scrubs(&mut cluster, &plan);
    assert!(cluster.sim.complaints().is_empty(), "{:?}", cluster.sim.complaints());
    rot_whole(&mut cluster, HostId(1));
    wait_for_scrubs(&mut cluster, &plan);
    assert!(cluster.sim.complaints().iter().any(|c| c.what.contains("cannot be read")), "{:?}", cluster.sim.complaints());
    assert_eq!(cluster.model.borrow().faults, [""; 0]);
}

/// OSDs that take in one request at a time do not read what clients send meanwhile, and read all of it in the end.
#[test]
fn clients_that_ask_for_much_are_held_up_and_served() {
    let mut held_up = Vec::new();
    for client_messages in [256, 1] {
        let mut cluster = Cluster::new(5, Tunables::default(), &Plan { client_messages, ..Plan::default() });
        assert!(cluster.run_until_finished(1, Duration::from_secs(120)));
        for writer in ["a", "b", "c"] {
            cluster.add_workload(writer, Workload { tasks: 8, ops_per_task: 50, pause_ms_max: 1, ..work(0) });
        }
        assert!(cluster.run_until_finished(1 + 3 * 8, Duration::from_secs(300)), "{:?}", cluster.model.borrow().faults);
        cluster.add_reader();
        assert!(cluster.run_until_finished(2 + 3 * 8, Duration::from_secs(300)));
        assert_eq!(cluster.model.borrow().faults, [""; 0]);
        held_up.push(cluster.sim.held_up);
    }
    assert!(held_up[0] == 0 && held_up[1] > 100, "{held_up:?}");
}

#[test]
fn clients_do_not_wait_for_a_recovery_of_many_objects() {
    for seed in seeds(6) {
        let mut slow = Tunables::default();
        slow.disk.flush_ns = 20_000_000..100_000_000;
        let log_entries_max = [20, 10_000][seed as usize % 2];
        let plan = Plan { osds: 3, size: 3, min_size: 2, pgs: 1, log_entries_max, recovery_max: 1, ..Plan::default() };
        let mut cluster = Cluster::new(seed, slow, &plan);
        assert!(cluster.run_until_finished(1, Duration::from_secs(120)), "seed {seed}: the cluster does not come up");
        let many = Workload { pool: sim::POOL.into(), tasks: 4, objects_per_task: 60, ops_per_task: 150, bytes_max: 20_000, pause_ms_max: 1, full_try: false, omaps: true };
        let away = cluster.osds[seed as usize % 3];
        cluster.sim.crash(away, true);
        cluster.add_workload("writer-a", many.clone());
        assert!(cluster.run_until_finished(5, Duration::from_secs(900)), "seed {seed}: {:?}", cluster.model.borrow().faults);
        cluster.sim.start(away);
        let word = if seed % 2 == 0 { "backfilling" } else { "recovering" };
        let until = cluster.sim.now_ns() + 100 * SECOND;
        while !is_said(&mut cluster, "1.0", word) {
            assert!(cluster.sim.now_ns() < until, "seed {seed}: never {word}");
        }
        cluster.add_workload("writer-b", Workload { tasks: 1, ops_per_task: 10, ..many });
        assert!(cluster.run_until_finished(6, Duration::from_secs(60)), "seed {seed}: clients wait");
        assert!(is_said(&mut cluster, "1.0", word), "seed {seed}: recovery has ended before the clients have");
        wait_for_clean(&mut cluster);
        cluster.add_reader();
        assert!(cluster.run_until_finished(7, Duration::from_secs(300)), "seed {seed}");
        let acting = acting(&mut cluster);
        compare_copies(&mut cluster, &acting);
        assert!(cluster.model.borrow().faults.is_empty(), "seed {seed}: {:#?}", cluster.model.borrow().faults);
    }
}

#[test]
fn what_was_acknowledged_survives_crashes_cuts_and_partitions() {
    let (mut events, mut seconds, mut refused, mut bad) = (0, 0, 0, Vec::new());
    for seed in seeds(200) {
        let outcome = run(seed, 12);
        (events, seconds, refused) = (events + outcome.events, seconds + outcome.seconds, refused + outcome.refused);
        if !outcome.faults.is_empty() {
            eprintln!("seed {seed}: {:#?}", outcome.faults);
            bad.push(seed);
        }
    }
    eprintln!("{events} events in {seconds} simulated seconds, {refused} writes found no room");
    assert!(bad.is_empty(), "seeds {bad:?} fail; SEED=n replays one");
    assert!(refused > 0 || seeds(200).filter(|seed| fills(*seed)).count() < 5, "disks never became full");
}

#[test]
fn a_seed_gives_the_same_run_byte_for_byte() {
    for seed in seeds(4) {
        let (a, b) = (run(seed, 8), run(seed, 8));
        assert_eq!((a.hash, a.events, a.seconds), (b.hash, b.events, b.seconds), "seed {seed}");
    }
}

#[test]
fn a_scenario_gives_the_same_run_byte_for_byte() {
    for seed in 1..3 {
        let run = || sim::Trial::new(sim::Scenario::of_seed(seed), false).run();
        let (a, b) = (run(), run());
        assert!(a.faults.is_empty(), "seed {seed}: {:#?}", a.faults);
        assert_eq!((a.hash, a.events, a.history), (b.hash, b.events, b.history), "seed {seed}");
    }
}
