//! What the cluster owes its clients: every acknowledged write, and of every write under way all or nothing.
//!
//! Each object has one writer. So an object holds what was acknowledged last, or, while writes are under way, that or what the
//! first of them make of it, in the order in which they were begun; nothing else, ever.

use client::Omap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// All that an object holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Content {
    pub data: Vec<u8>,
    pub xattrs: Omap,
    pub omap: Omap,
}

/// What an object may hold.
#[derive(Debug, Clone, Default)]
struct Expected {
    /// `None`: the object is not there.
    acked: Option<Content>,
    /// What writes under way would make of it, one after the other, with their numbers.
    under_way: VecDeque<(u64, Option<Content>)>,
    /// Checksums of everything that was ever written, or tried to be, where that may matter.
    versions: BTreeSet<u64>,
    lost: Option<Lost>,
}

/// What may have become of an object that the operator has given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It is as it was, or absent.
    Deleted,
    /// It is as it was at some time, perhaps before it was written first.
    Older,
    /// It was being written, and nobody knows to what the change was applied.
    Unknown,
}

/// Everything the workload knows.
#[derive(Debug, Default)]
pub struct Model {
    objects: BTreeMap<String, Expected>,
    /// Writes begun.
    begun: u64,
    /// Writes acknowledged.
    pub writes: u64,
    /// Writes that found no room.
    pub refused: u64,
    /// Reads checked.
    pub reads: u64,
    /// Tasks that have come to their end.
    pub finished: usize,
    /// Writers are to come to their end.
    pub stop: bool,
    /// What went wrong; anything here fails the run.
    pub faults: Vec<String>,
    /// More breaks than redundancy promises to survive: operations may fail or never end, but nothing may be wrong.
    pub lenient: bool,
    /// Operations that failed, where they may.
    pub failed: u64,
    /// Readers of one object each that were answered.
    pub answered: usize,
    /// Objects that the operator gave up, and reads that found them absent, or something else than was acknowledged last.
    pub lost: u64,
    pub absent: u64,
    pub older: u64,
    /// How often everything there was may have been lost: writers make new objects then.
    pub era: u32,
    /// The operator has done what he could: what a lost object is read as now, it stays.
    pub settled: bool,
    /// Objects whose writer does not know what they hold.
    given_up: BTreeSet<String>,
    /// Writers that have come to their end.
    ended: BTreeSet<String>,
    /// What snapshots show: each of objects of its own, absent ones left out.
    snapshots: BTreeMap<u64, BTreeMap<String, Option<Content>>>,
    /// Snapshots that were ever taken.
    taken: BTreeSet<u64>,
    /// All of them are removed: no clone is to be left.
    pub trimmed: bool,
    /// Lives of clients that take snapshots.
    lives: u64,
    /// Tells what clients do, with the time, to whoever replays a run.
    pub told_at: Option<Arc<AtomicU64>>,
}

impl Expected {
    /// The first write under way of which that is true has been done, and all before it.
    fn is_done(&mut self, which: impl Fn(u64, Option<&Content>) -> bool) {
        if let Some(at) = self.under_way.iter().position(|(number, content)| which(*number, content.as_ref())) {
            self.acked = self.under_way.drain(..=at).next_back().and_then(|(_, content)| content);
        }
    }
}

impl Model {
    /// A write is about to make `content` of the object, when those that are under way have been done. Its number.
    pub fn begin(&mut self, name: &str, content: Option<Content>) -> u64 {
        let object = self.objects.entry(name.to_owned()).or_default();
        if self.lenient {
            object.versions.insert(checksum(content.as_ref()));
        }
        self.begun += 1;
        object.under_way.push_back((self.begun, content));
        self.begun
    }

    /// The write was acknowledged: those before it were done before it.
    pub fn acknowledged(&mut self, name: &str, write: u64) {
        self.writes += 1;
        if let Some(object) = self.objects.get_mut(name) {
            object.is_done(|number, _| number == write);
        }
    }

    /// There was no room for the write: nothing of it may be seen.
    pub fn refused(&mut self, name: &str) {
        if let Some(object) = self.objects.get_mut(name) {
            object.under_way.clear();
            self.refused += 1;
        }
    }

    /// An operation failed. Where that may be, its object is left alone: it holds what it held, or what was to be written.
    pub fn failed(&mut self, name: &str, what: String) {
        if !self.lenient {
            return self.fault(what);
        }
        self.failed += 1;
        if self.objects.get(name).is_some_and(|o| !o.under_way.is_empty()) {
            self.given_up.insert(name.to_owned());
        }
    }

    /// The operator gives an object up: nobody writes it any more.
    pub fn lose(&mut self, name: &str, lost: Lost) {
        let Some(object) = self.objects.get_mut(name) else { return };
        self.lost += 1;
        self.given_up.insert(name.to_owned());
        object.lost = match (object.lost, lost) {
            _ if !object.under_way.is_empty() => Some(Lost::Unknown),
            (None, lost) => Some(lost),
            // Of an older one nothing may be left now.
            (Some(Lost::Deleted), Lost::Older) => Some(Lost::Older),
            (before, _) => before,
        };
    }

    /// Whatever was written until now may be lost.
    pub fn lose_all(&mut self) {
        self.era += 1;
        self.names().iter().for_each(|name| self.lose(name, Lost::Older));
    }

    /// A writer has come to its end.
    pub fn ended(&mut self, name: &str) {
        self.ended.insert(name.to_owned());
        self.finished += 1;
    }

    /// Whoever writes objects of that name begins a new life: what an earlier one was writing is there, or not, or will be when the
    /// request arrives after all; so nobody writes there any more.
    pub fn abandon(&mut self, prefix: &str) {
        let before = self.ended.len();
        self.ended.retain(|name| !name.starts_with(prefix));
        self.finished -= before - self.ended.len();
        let abandoned = self.objects.iter().filter(|(name, o)| name.starts_with(prefix) && !o.under_way.is_empty());
        self.given_up.extend(abandoned.map(|(name, _)| name.clone()));
    }

    /// True if nobody may write the object any more.
    pub fn is_given_up(&self, name: &str) -> bool {
        self.given_up.contains(name)
    }

    /// Tells something, if anybody listens.
    pub fn tell(&self, what: impl FnOnce() -> String) {
        if let Some(at) = &self.told_at {
            let at = Duration::from_nanos(at.load(Ordering::Relaxed));
            eprintln!("{:>11.6}  client  {}", at.as_secs_f64(), what());
        }
    }

    /// What the object surely holds when nothing is under way.
    pub fn content(&self, name: &str) -> Option<Content> {
        self.objects.get(name).and_then(|o| o.acked.clone())
    }

    /// Names of all objects that were ever written.
    pub fn names(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }

    /// A read returned `found`.
    pub fn check(&mut self, name: &str, found: Option<&Content>) {
        self.reads += 1;
        self.tell(|| format!("read {name}: {}", told(found).map_or("absent".into(), |c| format!("{} bytes, crc {:08x}", c.0, c.1))));
        let object = self.objects.get(name).cloned().unwrap_or_default();
        let allowed = std::iter::once(&object.acked).chain(object.under_way.iter().map(|(_, content)| content));
        let may_be = match object.lost {
            None => false,
            Some(Lost::Unknown) => true,
            Some(Lost::Deleted) => found.is_none(),
            Some(Lost::Older) => found.is_none() || object.versions.contains(&checksum(found)),
        };
        if may_be {
            self.absent += u64::from(object.acked.is_some() && found.is_none());
            self.older += u64::from(object.acked.as_ref() != found && found.is_some());
            if let Some(object) = self.objects.get_mut(name).filter(|o| self.settled && o.under_way.is_empty()) {
                (object.acked, object.lost) = (found.cloned(), None);
            }
        } else if !allowed.into_iter().any(|content| content.as_ref() == found) {
            let none = Content::default();
            let (expected, got) = (object.acked.as_ref().unwrap_or(&none), found.unwrap_or(&none));
            let what = [
                difference(&expected.data, &got.data),
                keys_that_differ("xattrs", &expected.xattrs, &got.xattrs),
                keys_that_differ("omap keys", &expected.omap, &got.omap),
            ];
            let under_way: Vec<_> = object.under_way.iter().map(|(_, content)| told(content.as_ref())).collect();
            let acked = told(object.acked.as_ref());
            let (found, lost) = (told(found), object.lost);
            self.faults.push(format!(
                "{name} holds {found:?}, acknowledged {acked:?}, under way {under_way:?}, lost {lost:?}; {}",
                what.into_iter().flatten().collect::<Vec<_>>().join(", ")
            ));
        } else if object.acked.as_ref() != found
            && let Some(object) = self.objects.get_mut(name)
        {
            // Nobody was told that it is so; but who has seen it must not see it undone.
            object.is_done(|_, content| content == found);
        }
    }

    /// A number that no life of any client had.
    pub fn lives(&mut self) -> u64 {
        self.lives += 1;
        self.lives
    }

    /// A snapshot of objects whose names begin like that was taken; none of them is being written.
    pub fn snapshot(&mut self, snap: u64, prefix: &str) {
        self.tell(|| format!("snapshot {snap} of {prefix}*"));
        let of = self.objects.iter().filter(|(name, _)| name.starts_with(prefix));
        let shown = of.map(|(name, object)| (name.clone(), object.acked.clone())).collect();
        self.snapshots.insert(snap, shown);
        self.taken.insert(snap);
    }

    /// A snapshot is about to be removed.
    pub fn forget_snapshot(&mut self, snap: u64) {
        self.tell(|| format!("removes snapshot {snap}"));
        self.snapshots.remove(&snap);
    }

    /// Snapshots that were ever taken.
    pub fn taken(&self) -> Vec<u64> {
        self.taken.iter().copied().collect()
    }

    /// What a snapshot shows of an object.
    pub fn at(&self, name: &str, snap: u64) -> Option<Content> {
        self.snapshots.get(&snap)?.get(name)?.clone()
    }

    /// Every snapshot with every object it was taken of, present or not.
    pub fn snapshots(&self) -> Vec<(u64, String)> {
        self.snapshots.iter().flat_map(|(snap, of)| of.keys().map(|name| (*snap, name.clone()))).collect()
    }

    /// A read at a snapshot returned `found`.
    pub fn check_at(&mut self, name: &str, snap: u64, found: Option<&Content>) {
        self.reads += 1;
        let shown = self.at(name, snap);
        self.tell(|| format!("read {name} at {snap}: {:?}", told(found)));
        if shown.as_ref() != found && self.snapshots.contains_key(&snap) {
            let none = Content::default();
            let (expected, got) = (shown.as_ref().unwrap_or(&none), found.unwrap_or(&none));
            let what = difference(&expected.data, &got.data).unwrap_or_default();
            self.fault(format!("{name} at snapshot {snap} is {:?}, was {:?} {what}", told(found), told(shown.as_ref())));
        }
    }

    /// Something else that must not be.
    pub fn fault(&mut self, what: String) {
        self.faults.push(what);
    }
}

fn checksum(content: Option<&Content>) -> u64 {
    let mut hasher = DefaultHasher::new();
    content.hash(&mut hasher);
    hasher.finish()
}

/// Length, checksum and first byte of the data, numbers of xattrs and omap keys.
fn told(content: Option<&Content>) -> Option<(usize, u32, Option<u8>, usize, usize)> {
    content.map(|c| (c.data.len(), denc::crc32c(&c.data), c.data.first().copied(), c.xattrs.len(), c.omap.len()))
}

/// Where two contents differ, first to last byte, and whether the found one has zeros there.
fn difference(expected: &[u8], found: &[u8]) -> Option<String> {
    let differs = |i: &usize| expected.get(*i) != found.get(*i);
    let all = 0..expected.len().max(found.len());
    let (first, last) = (all.clone().find(differs)?, all.rev().find(differs)?);
    let there = found.get(first..=last.min(found.len().saturating_sub(1))).unwrap_or_default();
    let zeros = there.iter().filter(|b| **b == 0).count();
    Some(format!("bytes {first}..={last} differ, {zeros} of {} found are zero", there.len()))
}

fn keys_that_differ(what: &str, expected: &Omap, found: &Omap) -> Option<String> {
    let all = expected.keys().chain(found.keys());
    let differ: std::collections::BTreeSet<_> = all.filter(|k| expected.get(*k) != found.get(*k)).collect();
    (!differ.is_empty()).then(|| format!("{} {what} differ, of them {:?}", differ.len(), differ.first()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_acknowledged_write_is_a_fault_and_an_unfinished_one_is_not() {
        let holds = |b: u8| Content { data: vec![b], ..Content::default() };
        let mut m = Model::default();
        let n = m.begin("a", Some(holds(1)));
        m.check("a", None);
        m.check("a", Some(&holds(1)));
        m.acknowledged("a", n);
        assert!(m.faults.is_empty());
        m.begin("a", Some(holds(4)));
        m.refused("a");
        m.check("a", Some(&holds(1)));
        assert!(m.faults.is_empty());
        m.check("a", Some(&holds(4)));
        m.check("a", None);
        m.begin("a", Some(holds(2)));
        m.check("a", Some(&holds(3)));
        assert_eq!(m.faults.len(), 3);
    }

    #[test]
    fn of_writes_under_way_at_once_the_first_are_done_first() {
        let holds = |b: u8| Content { data: vec![b], ..Content::default() };
        let mut m = Model::default();
        let numbers: Vec<u64> = (1..5).map(|b| m.begin("a", Some(holds(b)))).collect();
        m.check("a", Some(&holds(2)));
        m.check("a", Some(&holds(4)));
        assert!(m.faults.is_empty(), "{:?}", m.faults);
        m.check("a", Some(&holds(3)));
        assert_eq!(m.faults.len(), 1, "what was seen is not undone");
        numbers.into_iter().for_each(|n| m.acknowledged("a", n));
        m.check("a", Some(&holds(4)));
        let [_, second] = [5, 6].map(|b| m.begin("a", Some(holds(b))));
        m.acknowledged("a", second);
        m.check("a", Some(&holds(5)));
        assert_eq!(m.faults.len(), 2, "the later was acknowledged");
    }

    #[test]
    fn what_a_killed_writer_was_writing_may_become_so_late_and_is_not_undone() {
        let holds = |b: u8| Content { data: vec![b], ..Content::default() };
        let mut m = Model::default();
        let n = m.begin("w.0.a", Some(holds(1)));
        m.acknowledged("w.0.a", n);
        m.begin("w.0.a", None);
        m.begin("v.0.a", Some(holds(1)));
        m.ended("w.1");
        m.ended("v.0");
        m.abandon("w.");
        assert_eq!((m.finished, m.is_given_up("w.0.a"), m.is_given_up("v.0.a")), (1, true, false));
        m.check("w.0.a", Some(&holds(1)));
        m.check("w.0.a", None);
        assert!(m.faults.is_empty(), "{:?}", m.faults);
        m.check("w.0.a", Some(&holds(1)));
        assert_eq!(m.faults.len(), 1);
    }

    #[test]
    fn what_was_given_up_may_be_older_and_nothing_that_was_never_written() {
        let holds = |b: u8| Content { data: vec![b], ..Content::default() };
        let faults = |lost: Lost, under_way: bool, found: Option<Content>| {
            let mut m = Model { lenient: true, ..Model::default() };
            for n in 1..4 {
                let n = m.begin("a", Some(holds(n)));
                m.acknowledged("a", n);
            }
            if under_way {
                m.begin("a", Some(holds(4)));
            }
            m.check("a", Some(&holds(2)));
            assert_eq!(m.faults.len(), 1, "nothing is lost yet");
            m.lose("a", lost);
            m.check("a", found.as_ref());
            assert!(m.is_given_up("a"));
            m.faults.len() - 1
        };
        assert_eq!([Some(1), Some(3), None, Some(4)].map(|n| faults(Lost::Older, false, n.map(holds))), [0, 0, 0, 1]);
        assert_eq!([Some(1), Some(3), None].map(|n| faults(Lost::Deleted, false, n.map(holds))), [1, 0, 0]);
        assert_eq!([Some(1), Some(9)].map(|n| faults(Lost::Older, true, n.map(holds))), [0, 0]);
    }

    #[test]
    fn what_was_given_up_does_not_change_any_more() {
        let holds = |b: u8| Content { data: vec![b], ..Content::default() };
        let mut m = Model { lenient: true, ..Model::default() };
        for n in 1..4 {
            let n = m.begin("a", Some(holds(n)));
            m.acknowledged("a", n);
        }
        m.lose_all();
        m.settled = true;
        m.check("a", Some(&holds(2)));
        m.check("a", Some(&holds(2)));
        assert_eq!((m.faults.len(), m.older, m.era), (0, 1, 1));
        m.check("a", Some(&holds(3)));
        m.check("a", None);
        assert_eq!(m.faults.len(), 2);
    }
}
