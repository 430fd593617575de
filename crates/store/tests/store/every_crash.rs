//! Short sequences of transactions, and nothing left to chance: I/O completes in every order, power fails after everything that happens,
//! every medium that this may leave is looked at, and power fails again while a store starts there. `crash` tries long sequences at random.

use crate::harness::*;
use bytes::Bytes;
use std::collections::HashMap;
use std::mem::take;
use store::mem::MemDisk;
use store::*;
use types::HObject;

/// Orders of one sequence, and media that one failure may leave: a sequence has to be so short that nothing is left out.
const RUNS_MAX: usize = 10_000;
const CRASHES_MAX: usize = 20_000;

/// Of each collection the number of its newest transaction.
type Versions = [usize; 2];

struct Script {
    name: &'static str,
    /// Done when it begins, but for what is deferred.
    before: Vec<Transaction>,
    /// What is submitted in one turn each, at any time after the turn before.
    turns: Vec<Vec<Transaction>>,
}

struct Explorer {
    name: &'static str,
    config: StoreConfig,
    /// See `Driver`.
    bulk_every: u64,
    /// What a collection holds after each of its transactions.
    history: [Vec<Model>; 2],
    /// Media that were looked at, by digest, and what they hold.
    known: HashMap<u64, Versions>,
    /// Those with deferred writes that the next life has to bring to their place, and how it came to them.
    unfinished: Vec<(MemDisk, Versions, Vec<String>)>,
    /// What has happened so far.
    trail: Vec<String>,
    runs: usize,
    crashes: usize,
}

impl Explorer {
    fn new(name: &'static str, config: StoreConfig, bulk_every: u64) -> Self {
        let history = [vec![Model::default()], vec![Model::default()]];
        Explorer { name, config, bulk_every, history, known: HashMap::new(), unfinished: Vec::new(), trail: Vec::new(), runs: 0, crashes: 0 }
    }

    /// A transaction as its collection's next one.
    fn number(&mut self, mut t: Transaction) -> Transaction {
        let versions = &mut self.history[which(&t)];
        t.coll_set("version", versions.len().to_string());
        let mut next = versions[versions.len() - 1].clone();
        next.apply(&t);
        versions.push(next);
        t
    }

    fn newest(&self) -> Versions {
        [0, 1].map(|i| self.history[i].len() - 1)
    }

    /// A medium with the objects that all sequences begin with, and what comes before this one.
    fn prepare(&mut self, before: Vec<Transaction>) -> MemDisk {
        // As large as the allocator's regions are: the rest of one costs time whenever a store is mounted.
        let disk = Driver::format(128 << 20);
        let mut d = Driver::mount(&disk, lazy());
        create_colls(&mut d, &mut rng(0));
        for t in objects() {
            let t = self.number(t);
            d.commit(&mut rng(0), t);
            d.store.write_deferred();
            d.run(&mut rng(0));
        }
        // Blocks are looked for from the front again.
        let mut d = Driver::mount(&disk, lazy());
        for t in before {
            let t = self.number(t);
            d.commit(&mut rng(0), t);
        }
        disk.promised()
    }

    fn run(&mut self, script: Script) {
        let medium = self.prepare(script.before);
        let held = self.newest();
        let turns: Vec<Vec<_>> = script.turns.into_iter().map(|turn| turn.into_iter().map(|t| self.number(t)).collect()).collect();
        self.explore(&medium, &turns, held);
        while let Some((medium, held, trail)) = self.unfinished.pop() {
            self.trail = trail;
            self.explore(&medium, &[], held);
        }
    }

    /// Lives of a store on a medium, one for each order in which turns come and I/O completes. Power may fail at every step.
    fn explore(&mut self, medium: &MemDisk, turns: &[Vec<Transaction>], held: Versions) {
        let before = take(&mut self.trail);
        let mut paths = vec![Vec::new()];
        let mut runs = 0;
        while let Some(mut path) = paths.pop() {
            runs += 1;
            assert!(runs <= RUNS_MAX, "{}: too long", self.name);
            self.trail = before.clone();
            let disk = medium.promised();
            let mut d = Driver::mount(&disk, self.config.clone());
            d.bulk_every = self.bulk_every;
            let (mut acked, mut sent) = (held, held);
            let mut submitted: Vec<(TxcId, usize, usize)> = Vec::new();
            let mut turns = turns.iter();
            for step in 0.. {
                d.settle();
                for (txc, which, version) in &submitted {
                    if d.committed.contains(txc) {
                        acked[*which] = acked[*which].max(*version);
                    }
                }
                if step >= path.len() {
                    self.power_fails(&disk, acked, sent);
                }
                let pending = disk.pending();
                let ways = pending.len() + turns.len().min(1);
                if ways == 0 {
                    break;
                }
                if step >= path.len() {
                    paths.extend((1..ways).map(|way| [&path[..], &[way]].concat()));
                    path.push(0);
                }
                if let Some((id, io)) = pending.get(path[step]) {
                    self.trail.push(format!("{io:?}"));
                    d.complete(*id);
                    continue;
                }
                self.trail.push(format!("the next of {} turns", turns.len()));
                for t in turns.next().into_iter().flatten() {
                    let which = which(t);
                    sent[which] += 1;
                    submitted.push((d.submit(t.clone()).unwrap(), which, sent[which]));
                }
            }
            assert_eq!((acked, d.store.is_idle()), (sent, true));
            self.check(&mut d, sent);
        }
        self.runs += runs;
    }

    /// Every medium that may be left holds what was acknowledged, and nothing that was never submitted.
    fn power_fails(&mut self, disk: &MemDisk, acked: Versions, sent: Versions) {
        let left = disk.crashes();
        assert!(left.len() <= CRASHES_MAX, "{}: {} media may be left", self.name, left.len());
        self.crashes += left.len();
        for medium in left {
            let digest = medium.digest();
            let held = match self.known.get(&digest) {
                Some(held) => *held,
                None => self.judge(medium),
            };
            self.known.insert(digest, held);
            let whole = (0..2).all(|i| (acked[i]..=sent[i]).contains(&held[i]));
            assert!(whole, "acknowledged {acked:?}, submitted {sent:?}, there are {held:?}");
        }
    }

    /// What a medium holds: of each collection what it held after one of its transactions.
    fn judge(&mut self, medium: MemDisk) -> Versions {
        let report = fsck(&mut medium.dev(), &medium.kv(), true).unwrap();
        assert_eq!(report.errors, []);
        let mut d = Driver::mount(&medium, lazy());
        let held = COLLS.map(|coll| {
            let row = d.store.coll_get(coll, b"version").unwrap().unwrap();
            std::str::from_utf8(&row).unwrap().parse().unwrap()
        });
        self.check(&mut d, held);
        self.go_on(medium.promised(), held);
        if report.deferred_records > 0 {
            let trail = [&self.trail[..], &["power".into()]].concat();
            self.unfinished.push((medium, held, trail));
        }
        held
    }

    /// What a store writes in its next life lands on nothing that somebody needs.
    fn go_on(&self, medium: MemDisk, held: Versions) {
        let mut d = Driver::mount(&medium, lazy());
        let t = txn(0, |t| {
            t.write(&names()[1], 20, bytes(99, 50));
            t.write(&object(COLLS[0], 9), 0, blocks(99, 9));
        });
        let mut model = self.history[0][held[0]].clone();
        model.apply(&t);
        d.commit(&mut rng(0), t);
        d.store.write_deferred();
        d.run(&mut rng(0));
        model.check_all(&mut d, &mut rng(0), COLLS[0]);
        self.history[1][held[1]].check_all(&mut d, &mut rng(0), COLLS[1]);
        assert_eq!(d.fsck().errors, []);
    }

    fn check(&self, d: &mut Driver, held: Versions) {
        for (i, coll) in COLLS.into_iter().enumerate() {
            self.history[i][held[i]].check_all(d, &mut rng(0), coll);
        }
        assert_eq!(d.checksum_errors, 0);
    }
}

/// Whoever fails tells how it came to that.
impl Drop for Explorer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}, {:?}:", self.name, self.config);
            self.trail.iter().for_each(|what| eprintln!("  {what}"));
        }
    }
}

/// Brings nothing deferred to its place by itself.
fn lazy() -> StoreConfig {
    StoreConfig { prefer_deferred_size: 4096, verified_regions: 9, ..StoreConfig::default() }
}

fn which(t: &Transaction) -> usize {
    COLLS.iter().position(|coll| *coll == t.coll).unwrap()
}

fn txn(coll: usize, build: impl FnOnce(&mut Transaction)) -> Transaction {
    let mut t = Transaction::new(COLLS[coll]);
    build(&mut t);
    t
}

/// Blocks that are zeros but for their first and their last sector: there are two ways to tear one, not 254.
fn blocks(mark: u8, n: usize) -> Bytes {
    let mut data = vec![0; n * 4096];
    for block in data.chunks_mut(4096) {
        (block[0], block[4095]) = (mark, mark);
    }
    data.into()
}

fn bytes(mark: u8, n: usize) -> Bytes {
    vec![mark; n].into()
}

/// Three of the first collection, one of the other one.
fn names() -> [HObject; 4] {
    [(0, 1), (0, 2), (0, 3), (1, 1)].map(|(coll, n)| object(COLLS[coll], n))
}

/// They are in blocks 1 and 2; 3, 4 and, in part, 5; 6 and 7. The third comes to be later.
fn objects() -> Vec<Transaction> {
    let [x, a, _, b] = &names();
    vec![
        txn(0, |t| t.write(x, 0, blocks(1, 2))),
        txn(0, |t| t.write(a, 0, Bytes::from([&blocks(2, 2)[..], &[3; 300]].concat()))),
        txn(1, |t| t.write(b, 0, blocks(4, 2))),
        txn(0, |t| {
            t.set_attr(a, "k", "v");
            t.omap_set(a, vec![("a".into(), "1".into()), ("b".into(), "2".into())]);
        }),
    ]
}

fn scripts() -> Vec<Script> {
    let [x, a, c, b] = &names();
    let script = |name, before, turns| Script { name, before, turns };
    let small = |obj, off, mark| txn(0, |t| t.write(obj, off, bytes(mark, 100)));
    let large = |obj, mark| txn(0, |t| t.write(obj, 0, blocks(mark, 2)));
    let remove = |obj| txn(0, |t| t.remove(obj));
    let other = |off, data| txn(1, |t| t.write(b, off, data));
    vec![
        script("a block is written three times", vec![], vec![
            vec![small(a, 10, 11)],
            vec![small(a, 60, 12)],
            vec![txn(0, |t| t.write(a, 0, blocks(13, 1)))],
        ]),
        script("what an overwrite frees is written by the next", vec![remove(x)], vec![
            vec![large(a, 11)],
            vec![txn(0, |t| t.write(c, 0, blocks(12, 3)))],
            vec![small(c, 10, 13)],
        ]),
        script("what a removal frees is written past the log", vec![small(a, 10, 10)], vec![
            vec![small(a, 60, 11)],
            vec![remove(a)],
            vec![large(c, 12)],
        ]),
        script("what a removal frees is written through the log", vec![small(a, 10, 10)], vec![
            vec![small(a, 60, 11)],
            vec![remove(a)],
            vec![small(c, 0, 12)],
        ]),
        script("what a removed object left in the log goes before its blocks are written", vec![small(a, 10, 10), remove(a)], vec![
            vec![large(c, 11)],
            vec![small(x, 10, 12)],
        ]),
        script("what may be compressed is written in part", vec![], vec![
            vec![txn(0, |t| t.write(c, 0, blocks(11, 3)))],
            vec![small(c, 4100, 12)],
            vec![small(c, 8200, 13)],
        ]),
        script("what may be compressed is cloned, and written", vec![], vec![
            vec![txn(0, |t| {
                t.write(c, 0, blocks(11, 2));
                t.clone_range(c, x, 4096, 4096, 0);
            })],
            vec![txn(0, |t| t.write(c, 0, blocks(12, 2)))],
            vec![small(x, 10, 13)],
        ]),
        script("appended in parts of blocks", vec![], vec![
            vec![small(a, 8492, 11)],
            vec![txn(0, |t| t.write(a, 8592, blocks(12, 2)))],
            vec![small(a, 16_784, 13)],
        ]),
        script("a clone, and its original is written", vec![small(a, 10, 10)], vec![
            vec![txn(0, |t| t.clone_obj(a, c))],
            vec![small(a, 60, 11)],
            vec![remove(c)],
        ]),
        script("part of an object in two places", vec![], vec![
            vec![txn(0, |t| t.clone_range(a, c, 0, 8192, 4096))],
            vec![small(c, 4100, 11)],
            vec![large(a, 12)],
        ]),
        script("attributes, omap and rows", vec![], vec![
            vec![txn(0, |t| {
                t.set_attr(a, "k", "w");
                t.omap_set(a, vec![("c".into(), "3".into())]);
                t.omap_set_header(a, "h");
            })],
            vec![txn(0, |t| {
                t.omap_rm_range(a, "a", "b");
                t.clone_obj(a, c);
            })],
            vec![txn(0, |t| {
                t.omap_clear(a);
                t.rm_attr(a, "k");
                t.coll_set("row", "1");
            }), txn(1, |t| t.coll_set("row", "2"))],
        ]),
        script("two at once in one collection", vec![], vec![
            vec![large(a, 11), small(x, 10, 12)],
            vec![txn(0, |t| t.set_attr(x, "k", "v")), small(a, 10, 13)],
        ]),
        script("two at once in two collections", vec![], vec![
            vec![txn(0, |t| t.write(a, 0, blocks(11, 3))), other(0, blocks(12, 3))],
        ]),
        script("past the log in one collection, through it in another", vec![], vec![
            vec![large(a, 11), other(10, bytes(12, 100))],
            vec![small(a, 10, 13)],
        ]),
        script("rows of the log go while others come", vec![small(a, 10, 10), other(10, bytes(10, 100))], vec![
            vec![small(a, 60, 11)],
            vec![other(4100, bytes(12, 100))],
        ]),
        script("cut and zeroed", vec![], vec![
            vec![txn(0, |t| t.truncate(a, 5000))],
            vec![txn(0, |t| t.zero(a, 0, 4096)), txn(0, |t| t.truncate(a, 9000))],
            vec![small(c, 0, 11)],
        ]),
        script("renamed over another one", vec![], vec![
            vec![txn(0, |t| t.rename(a, x))],
            vec![large(c, 11)],
            vec![small(x, 10, 12)],
        ]),
        script("replaced by something shorter", vec![], vec![
            vec![txn(0, |t| {
                t.truncate(a, 600);
                t.write(a, 0, bytes(11, 600));
            })],
            vec![small(a, 600, 12)],
        ]),
    ]
}

#[test]
fn whatever_a_power_failure_leaves_of_a_short_sequence_holds_what_was_acknowledged() {
    let tight = StoreConfig { deferred_window_bytes: 1, deferred_bytes_max: 1, data_cache_bytes: 0, onode_cache_bytes: 0, ..lazy() };
    let (mut runs, mut crashes, mut media) = (0, 0, 0);
    let compression = Compression { mode: CompressionMode::Force, algorithm: Algorithm::Lz4, ..Compression::default() };
    let packing = StoreConfig { policy: Policy { csum: Csum::Xxhash64, compression }, ..tight.clone() };
    for config in [lazy(), tight, packing] {
        // Nothing is bulk, every other transaction is, and all.
        for bulk_every in if config.policy == Policy::default() { &[u64::MAX, 2, 1][..] } else { &[u64::MAX, 1] } {
            for script in scripts() {
                // Deferred writes go to their place at once; the log grows while they are on their way.
                let mut e = Explorer::new(script.name, StoreConfig { deferred_batch_bytes: 1, ..config.clone() }, *bulk_every);
                e.run(script);
                eprintln!("{}: {} runs, {} media left, {} of them different", e.name, e.runs, e.crashes, e.known.len());
                crashes += e.crashes;
                media += e.known.len();
                runs += e.runs;
            }
        }
    }
    eprintln!("{runs} runs, {crashes} media left, {media} of them different");
    assert!(media > 5_000);
}
