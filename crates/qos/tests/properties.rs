//! What the mClock paper promises, on a device that is simulated: one job after the other, each for as long as it takes.

use qos::{Class, Mclock, Profile, Share};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

type Job = (u32, u64);

/// A device, and who keeps how many jobs waiting for it.
struct Bench {
    queue: Mclock<u32, Job>,
    now: u64,
    /// How much longer a job takes than it is expected to, thousandths.
    slower: u64,
    /// Class: jobs it keeps waiting while it is busy, and what they cost.
    loads: BTreeMap<u32, (usize, u64)>,
    busy: BTreeMap<u32, bool>,
    serial: u64,
    /// Device time each class had, as costs say.
    served: BTreeMap<u32, u64>,
    order: BTreeMap<u32, u64>,
}

impl Bench {
    fn new(loads: &[(u32, Share, u64)]) -> Self {
        let mut bench = Bench {
            queue: Mclock::default(),
            now: SECOND,
            slower: 1000,
            loads: BTreeMap::new(),
            busy: BTreeMap::new(),
            serial: 0,
            served: BTreeMap::new(),
            order: BTreeMap::new(),
        };
        for (class, share, cost) in loads {
            bench.queue.set_share(SECOND, *class, *share);
            bench.loads.insert(*class, (4, *cost));
            bench.busy.insert(*class, true);
        }
        bench
    }

    /// Runs for so long; what each class was served, in thousandths of that time.
    fn run(&mut self, time: u64) -> BTreeMap<u32, u64> {
        self.served = self.loads.keys().map(|c| (*c, 0)).collect();
        let (begin, end) = (self.now, self.now + time);
        while self.now < end {
            for (class, (depth, cost)) in self.loads.clone() {
                while self.busy[&class] && self.queue.waiting(class).0 < depth {
                    self.serial += 1;
                    self.queue.push(self.now, class, cost, (class, self.serial)).unwrap();
                }
            }
            let Some(started) = self.queue.pop(self.now) else {
                self.now = self.queue.next_at().unwrap_or(end).clamp(self.now + 1, end);
                continue;
            };
            let (class, serial) = started.job;
            assert!(self.order.insert(class, serial) < Some(serial), "{class} is served out of order");
            *self.served.get_mut(&class).unwrap() += started.cost;
            self.now += started.cost * self.slower / 1000;
        }
        let took = self.now - begin;
        self.served.iter().map(|(c, s)| (*c, s * self.slower / took)).collect()
    }
}

fn share(reservation: u16, weight: u16, limit: Option<u16>) -> Share {
    Share { reservation, weight, limit }
}

/// What a class should get: its part by weight, but no less than its reservation and no more than its limit.
fn fair(shares: &[Share]) -> Vec<f64> {
    let get = |level: f64| -> Vec<f64> {
        let one = |s: &Share| (level * f64::from(s.weight)).clamp(s.reservation.into(), s.limit.unwrap_or(1000).max(s.reservation).into());
        shares.iter().map(one).collect()
    };
    let (mut low, mut high) = (0.0, 1000.0);
    for _ in 0..60 {
        let mid = (low + high) / 2.0;
        if get(mid).iter().sum::<f64>() > 1000.0 { high = mid } else { low = mid }
    }
    get(low)
}

#[track_caller]
fn near(got: u64, want: f64, by: f64, what: &str) {
    assert!((got as f64 - want).abs() <= by, "{what}: {got} thousandths instead of {want:.0}");
}

/// Section 3 of the paper: proportional shares within reservation and limit.
#[test]
fn everybody_gets_its_part_by_weight_within_reservation_and_limit() {
    for seed in 0..300 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let classes = rng.random_range(1..6);
        let mut left: u16 = 940;
        let mut loads = Vec::new();
        for class in 0..classes {
            let reservation = if rng.random_bool(0.5) { rng.random_range(0..=left.min(500)) } else { 0 };
            left -= reservation;
            let limit = rng.random_bool(0.3).then(|| rng.random_range(reservation.max(50)..=1000));
            loads.push((class, share(reservation, rng.random_range(1..9), limit), rng.random_range(MS / 10..4 * MS)));
        }
        let want = fair(&loads.iter().map(|l| l.1).collect::<Vec<_>>());
        let mut bench = Bench::new(&loads);
        bench.run(SECOND);
        let got = bench.run(20 * SECOND);
        for (class, want) in want.into_iter().enumerate() {
            near(got[&(class as u32)], want, 15.0, &format!("seed {seed}, class {class} of {loads:?}"));
        }
    }
}

#[test]
fn a_reservation_is_kept_whatever_others_weigh_and_cost() {
    let mut bench = Bench::new(&[(0, share(300, 1, None), MS), (1, share(0, 1000, None), 8 * MS), (2, share(0, 1000, None), MS / 8)]);
    bench.run(SECOND);
    near(bench.run(10 * SECOND)[&0], 300.0, 10.0, "the reserved third");
}

#[test]
fn a_limit_holds_on_an_idle_device() {
    let mut bench = Bench::new(&[(0, share(0, 1, Some(250)), 3 * MS)]);
    near(bench.run(10 * SECOND)[&0], 250.0, 2.0, "the only class");
    assert_eq!(bench.queue.next_at().map(|at| at > bench.now), Some(true));
}

#[test]
fn what_is_limited_waits_without_holding_up_others() {
    let mut bench = Bench::new(&[(0, share(500, 10, Some(100)), MS), (1, share(0, 1, None), MS)]);
    bench.run(SECOND);
    let got = bench.run(10 * SECOND);
    near(got[&0], 100.0, 3.0, "the limited");
    near(got[&1], 900.0, 5.0, "the other");
}

#[test]
fn who_is_alone_gets_everything() {
    for class in Class::ALL {
        let shares = Profile::HighClientOps.share(class).unwrap();
        let got = Bench::new(&[(0, shares, MS)]).run(5 * SECOND)[&0];
        near(got, shares.limit.unwrap_or(1000).into(), 9.0, class.name());
    }
}

/// As profiles promise, though reservations of two classes are all there is: the rest is fed from what they take.
#[test]
fn nobody_starves_when_everything_is_reserved() {
    for profile in [Profile::Balanced, Profile::HighClientOps, Profile::HighRecoveryOps] {
        // Costs are true, four times too low, four times too high.
        for slower in [1000, 4000, 250] {
            let loads: Vec<_> = Class::ALL.iter().enumerate().map(|(i, c)| (i as u32, profile.share(*c).unwrap(), MS)).collect();
            let mut bench = Bench::new(&loads);
            bench.slower = slower;
            bench.run(2 * SECOND);
            let got = bench.run(20 * SECOND);
            assert!(got[&2] >= 40, "{profile:?}, {slower}: best effort got {got:?}");
            if slower >= 1000 {
                for (class, part, _) in &loads {
                    let reserved = f64::from(part.reservation);
                    assert!(got[class] as f64 >= reserved * 0.94, "{profile:?}, {slower}, class {class}: {got:?}");
                }
            }
        }
    }
}

#[test]
fn idleness_earns_nothing_and_use_of_what_was_spare_costs_nothing() {
    let mut bench = Bench::new(&[(0, share(200, 1, None), MS), (1, share(200, 1, None), MS), (2, share(0, 2, None), MS)]);
    for idle in 0..3 {
        bench.busy.insert(idle, false);
        bench.run(30 * SECOND);
        bench.busy.insert(idle, true);
        let got = bench.run(200 * MS);
        for (class, want) in [(0, 250.0), (1, 250.0), (2, 500.0)] {
            near(got[&class], want, 30.0, &format!("class {class} after {idle} was idle"));
        }
    }
}

/// Of a device that is slower than costs say, while both wait: who has nothing left for a moment has what was reserved for it afterwards.
#[test]
fn a_queue_that_runs_empty_loses_nothing_to_one_that_does_not() {
    for profile in [Profile::Balanced, Profile::HighClientOps, Profile::HighRecoveryOps] {
        for slower in [1000, 1100, 1300, 2000] {
            let mut queue = Mclock::default();
            let [client, recovery] = [Class::Client, Class::Recovery].map(|c| profile.share(c).unwrap());
            queue.set_share(0, 0, client);
            queue.set_share(0, 1, recovery);
            let (mut now, mut had) = (0, [0, 0]);
            for n in 0..20_000 {
                queue.push(now, 0, 13 * MS, n).unwrap();
                let both = queue.waiting(1).0 > 0;
                let started = queue.pop(now).unwrap();
                now += started.cost * slower / 1000;
                match both {
                    true => had[started.class.unwrap()] += started.cost,
                    // A batch comes when the last of the one before is done.
                    false => (0..40).for_each(|n| queue.push(now, 1, 13 * MS, n).unwrap()),
                }
            }
            near(1000 * had[0] / (had[0] + had[1]), client.reservation.into(), 15.0, &format!("{profile:?}, {slower}: clients"));
        }
    }
}

/// One that is behind with its reservation, but held by its limit, is nobody's measure: who comes has no credit beside a third.
#[test]
fn who_is_held_by_a_limit_lends_nobody_his_arrears() {
    let mut queue = Mclock::default();
    let shares = [share(100, 1, Some(200)), share(100, 1, None), share(100, 1, None)];
    (0..3).for_each(|class| queue.set_share(SECOND, class, shares[class]));
    for class in [0, 1] {
        (0..100).for_each(|n| queue.push(SECOND, class, MS, n).unwrap());
    }
    let now = 2 * SECOND;
    (0..60).for_each(|_| assert!(queue.pop(now).is_some()));
    assert!([0, 1].iter().all(|class| queue.waiting(*class).0 > 30), "one held by its limit, one that takes the rest");
    (0..100).for_each(|n| queue.push(now, 2, MS, n).unwrap());
    let started: Vec<_> = (0..8).filter_map(|_| queue.pop(now)?.class).collect();
    let of = |class| started.iter().filter(|c| **c == class).count();
    assert!(of(1) >= 3 && of(2) >= 3, "{started:?}");
}

/// One that always has one job waiting, or none, gets its part all the same: it comes late, but not from idleness.
#[test]
fn a_shallow_queue_is_worth_as_much_as_a_deep_one() {
    let mut bench = Bench::new(&[(0, share(0, 1, None), MS), (1, share(0, 1, None), MS)]);
    bench.loads.insert(0, (1, MS));
    bench.loads.insert(1, (200, MS));
    near(bench.run(5 * SECOND)[&0], 500.0, 10.0, "the shallow one");
}

#[test]
fn who_was_denied_for_long_does_not_have_the_device_alone_afterwards() {
    let mut bench = Bench::new(&[(0, share(100, 1, None), MS), (1, share(800, 1, None), MS)]);
    bench.run(SECOND);
    // It stands still for a minute: both reservations are a minute behind, and catch up with two tenths of a second.
    bench.now += 60 * SECOND;
    bench.run(4 * SECOND);
    let got = bench.run(SECOND);
    near(got[&1], 800.0, 20.0, "the large reservation");
    near(got[&0], 200.0, 20.0, "the small one and the rest");
}

#[test]
fn a_new_share_counts_from_the_next_job_on() {
    let mut bench = Bench::new(&[(0, share(0, 1, None), MS), (1, share(0, 1, Some(10)), MS)]);
    bench.run(10 * SECOND);
    bench.queue.set_share(bench.now, 1, share(700, 1, None));
    near(bench.run(SECOND)[&1], 700.0, 20.0, "the raised");
    bench.queue.set_share(bench.now, 1, share(0, 1, None));
    near(bench.run(SECOND)[&1], 500.0, 20.0, "the lowered");
}

#[test]
fn what_is_urgent_goes_first_but_does_not_take_over() {
    let mut bench = Bench::new(&[(0, share(0, 1, None), MS), (7, share(0, 1, None), MS)]);
    bench.busy.insert(7, false);
    bench.run(SECOND);
    bench.queue.push_urgent(MS, (7, 1_000_000));
    let first = bench.queue.pop(bench.now).unwrap();
    assert_eq!((first.class, first.job), (None, (7, 1_000_000)));
    for n in 0..10_000 {
        bench.queue.push_urgent(MS, (7, 1_000_001 + n));
    }
    let got = bench.run(4 * SECOND);
    near(got[&7], 250.0, 5.0, "what is urgent");
    // With nobody else there it has everything.
    bench.busy.insert(0, false);
    bench.run(100 * MS);
    near(bench.run(SECOND)[&7], 1000.0, 5.0, "what is urgent, alone");
}

#[test]
fn what_can_wait_goes_last_until_somebody_waits_for_it() {
    let mut queue: Mclock<u32, &str> = Mclock::default();
    queue.set_share(0, 1, share(0, 1, None));
    queue.set_share(0, 2, share(0, 1, Some(100)));
    queue.push_idle(1, MS, "can wait");
    for _ in 0..2 {
        queue.push(0, 2, SECOND, "limited").unwrap();
    }
    assert_eq!(queue.pop(SECOND).unwrap().job, "limited");
    // The device would idle: a limit keeps nobody else from it.
    assert_eq!((queue.pop(SECOND), queue.len()), (None, 2));
    assert_eq!(queue.pop_idle().unwrap().job, "can wait");
    queue.push_idle(1, MS, "cannot any more");
    queue.hurry(SECOND);
    assert_eq!((queue.pop(SECOND).unwrap().job, queue.pop_idle()), ("cannot any more", None));
    // A class that is gone has nobody who waits.
    queue.push_idle(3, MS, "nobody's");
    queue.hurry(SECOND);
    assert_eq!((queue.pop(SECOND), queue.pop_idle().map(|s| s.job)), (None, Some("nobody's")));
}

#[test]
fn a_class_without_a_share_is_refused_and_one_that_goes_gives_back_what_waits() {
    let mut queue: Mclock<u32, &str> = Mclock::default();
    assert_eq!(queue.push(0, 1, MS, "lost?"), Err("lost?"));
    queue.set_share(0, 1, share(0, 1, None));
    queue.push(0, 1, MS, "a").unwrap();
    queue.push(0, 1, MS, "b").unwrap();
    queue.retain(|job| *job != "a");
    assert_eq!((queue.len(), queue.waiting(1)), (1, (1, MS)));
    assert_eq!(queue.remove_class(1), ["b"]);
    assert!(queue.is_empty());
}

#[test]
fn what_waits_is_counted_by_class_and_what_is_urgent_apart() {
    let mut queue: Mclock<u32, &str> = Mclock::default();
    queue.set_share(0, 1, share(0, 1, None));
    queue.push(0, 1, MS, "now").unwrap();
    queue.push_idle(1, MS, "later");
    queue.push_idle(2, MS, "another's");
    queue.push_urgent(MS, "urgent");
    assert_eq!((queue.class_len(1), queue.class_len(2), queue.urgent_len(), queue.len()), (2, 1, 1, 4));
}

#[test]
fn a_limit_binds_only_where_the_device_is_about_as_busy_as_it_allows() {
    let served = |busy: u16| {
        let mut queue = Mclock::default();
        queue.set_share(0, 'a', Share { reservation: 0, weight: 1, limit: Some(500) });
        queue.set_busy(busy);
        (0..1000).for_each(|n| queue.push(0, 'a', 1_000_000, n).unwrap());
        // A millisecond each: half of them are allowed in that time.
        (0..400).filter(|ms| queue.pop(ms * 1_000_000).is_some()).count()
    };
    assert_eq!(served(399), 400);
    assert!((200..=251).contains(&served(401)), "{}", served(401));
    assert!((200..=251).contains(&served(1000)), "{}", served(1000));
}
