//! How much memory caches may use: a part of the process's target, and less while the process has too much.
//!
//! Why: what PG logs, requests and copies on their way take comes and goes; what they take too much, caches give.
//! Upstream: osd_memory_target, osd_memory_cache_min; BlueStore::MempoolThread in src/os/bluestore/BlueStore.cc.

/// With less a process cannot do its work: there is code, an engine, PG logs, and requests under way.
pub const MEMORY_LEAST: u64 = 96 << 20;
/// What does not shrink with the target.
const FIXED: u64 = 64 << 20;

/// What an operator wants the process to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// Bytes of the process (`osd_memory_target`); less than `MEMORY_LEAST` is taken for that.
    pub target: u64,
    /// Bytes that caches keep, however short memory is (`osd_memory_cache_min`); 0 for a part of what they have.
    pub cache_min: u64,
}

/// Bytes for everything that can be bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budgets {
    /// All of the process.
    pub target: u64,
    pub onodes: u64,
    pub data: u64,
    /// The engine's blocks, and what is not in its tables yet.
    pub kv_cache: u64,
    pub memtables: u64,
    /// Deferred writes that have to reach their place.
    pub deferred: u64,
}

impl Memory {
    /// How much each may have. With a target of 128 MiB it is what `StoreConfig` and the engine have by themselves.
    pub fn budgets(self, defaults: &crate::StoreConfig) -> Budgets {
        const MEMTABLES: u64 = 48 << 20;
        const KV_CACHE: u64 = 8 << 20;
        let usual = crate::StoreConfig::default().memory_target;
        let target = self.target.max(MEMORY_LEAST);
        let part = |bytes: u64| if target < usual { bytes / 1024 * ((target - FIXED) * 1024 / (usual - FIXED)) } else { bytes };
        // Of what is more, a half for objects and their data alike, an eighth for the engine; the rest is what fragments take.
        let more = target.saturating_sub(usual);
        Budgets {
            target,
            onodes: part(defaults.onode_cache_bytes) + more / 8 * 3,
            data: part(defaults.data_cache_bytes) + more / 8 * 3,
            kv_cache: part(KV_CACHE) + more / 8,
            memtables: part(MEMTABLES),
            deferred: part(defaults.deferred_bytes_max),
        }
    }
}

/// Of their configured budgets caches keep at least so much, thousandths. So they begin: who starts has logs to read and objects to take in.
const LEAST: u64 = 250;
/// By how much the share falls at a time, and grows again.
const LESS: u64 = 250;
const MORE: u64 = 25;
/// So far below the target caches may grow again, bytes.
const MARGIN: u64 = 4 << 20;
/// This part of the target beyond it is much too much.
const MUCH: u64 = 8;

/// What is lent leaves so much of the target free, bytes: for what comes before the next look.
const UNLENT: u64 = 8 << 20;

/// The caches' part of their budgets, thousandths, and what they are lent beyond that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    share: u64,
    /// It does not become less than this.
    least: u64,
    /// Bytes that nobody else wants. All of them are back before a cache gives of its own.
    lent: u64,
}

/// How the process's memory is, beside its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Pressure {
    #[default]
    None,
    /// It has more than it should: caches shrink.
    Some,
    /// It has much more, and caches have given all they can: nothing new should be begun.
    Much,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { share: LEAST, least: LEAST, lent: 0 }
    }
}

impl Budget {
    /// Of so many bytes for all caches, so many stay whatever happens.
    pub fn keep(&mut self, least: u64, all: u64) {
        self.least = (least.min(all) * 1000).checked_div(all).unwrap_or(0).clamp(LEAST, 1000);
        self.share = self.share.max(self.least);
    }

    /// The process has so many bytes, and should have no more than `target`.
    pub fn fit(&mut self, resident: u64, target: u64) -> Pressure {
        let much = resident > target + target / MUCH;
        if much {
            self.share = self.least;
        } else if resident > target && self.lent == 0 {
            self.share = self.share.saturating_sub(LESS).max(self.least);
        } else if resident + MARGIN < target {
            self.share = (self.share + MORE).min(1000);
        }
        match (much, resident > target) {
            (true, _) => Pressure::Much,
            (_, true) => Pressure::Some,
            _ => Pressure::None,
        }
    }

    /// As `fit`, for what is lent; more often, for that can be back at once. `borrowed`: what the caches have beyond their own budgets, of the process's bytes.
    pub fn lend(&mut self, resident: u64, target: u64, borrowed: u64) {
        let lent = (target + borrowed).saturating_sub(UNLENT + resident);
        // What caches have not got back of their own goes first.
        self.lent = if self.share == 1000 { lent } else { lent.min(self.lent) };
    }

    /// What is left of a cache's configured budget.
    pub fn of(self, bytes: u64) -> u64 {
        bytes / 1000 * self.share
    }

    /// The same of the onodes', and what is lent: who looks for one that is not there asks the database, while data may be in the page cache.
    pub fn of_onodes(self, bytes: u64) -> u64 {
        self.of(bytes) + self.lent
    }

    /// The same of data's, and what onodes leave of what is lent.
    pub fn of_data(self, bytes: u64, onodes_borrowed: u64) -> u64 {
        self.of(bytes) + self.lent.saturating_sub(onodes_borrowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_shrink_while_memory_is_short_and_grow_slowly_again() {
        let mut budget = Budget::default();
        assert_eq!(budget.of(40_000), 10_000);
        (0..40).for_each(|_| assert_eq!(budget.fit(100 << 20, 200 << 20), Pressure::None));
        assert_eq!(budget.of(40_000), 40_000);
        assert_eq!(budget.fit(201 << 20, 200 << 20), Pressure::Some);
        assert_eq!(budget.of(40_000), 30_000);
        assert_eq!(budget.fit(300 << 20, 200 << 20), Pressure::Much);
        assert_eq!(budget.of(40_000), 10_000, "at once, and never nothing");
        assert_eq!(budget.fit(197 << 20, 200 << 20), Pressure::None);
        assert_eq!(budget.of(40_000), 10_000, "not as soon as it fits");
        (0..40).for_each(|_| assert_eq!(budget.fit(150 << 20, 200 << 20), Pressure::None));
        assert_eq!(budget.of(40_000), 40_000);
    }

    #[test]
    fn caches_are_lent_what_is_left_and_give_it_back_before_any_gives_of_its_own() {
        const MB: u64 = 1 << 20;
        let mut budget = Budget::default();
        budget.lend(50 * MB, 128 * MB, 0);
        assert_eq!(budget.of_data(8000, 0), 2000, "nothing while caches have not got their own");
        (0..30).for_each(|_| assert_eq!(budget.fit(80 * MB, 128 * MB), Pressure::None));
        budget.lend(80 * MB, 128 * MB, 0);
        assert_eq!(budget.of_data(8000, 0), 8000 + 40 * MB);
        assert_eq!(budget.of_onodes(8000), 8000 + 40 * MB);
        assert_eq!(budget.of_data(8000, 30 * MB), 8000 + 10 * MB, "what onodes leave");
        assert_eq!(budget.of_data(8000, 50 * MB), 8000, "no less than its own");
        budget.lend(110 * MB, 128 * MB, 30 * MB);
        assert_eq!(budget.of_data(8000, 0), 8000 + 40 * MB, "the process has grown by what was lent, which changes nothing");
        budget.lend(140 * MB, 128 * MB, 40 * MB);
        assert_eq!(budget.of_data(8000, 0), 8000 + 20 * MB, "somebody else wants memory");
        assert_eq!(budget.fit(130 * MB, 128 * MB), Pressure::Some);
        assert_eq!(budget.of_data(8000, 0), 8000 + 20 * MB, "data is about to give, so that nobody else has to");
        budget.lend(160 * MB, 128 * MB, 20 * MB);
        assert_eq!(budget.of_data(8000, 0), 8000);
        budget.fit(140 * MB, 128 * MB);
        assert_eq!(budget.of(8000), 6000, "now all give");
        budget.lend(100 * MB, 128 * MB, 0);
        assert_eq!(budget.of_data(8000, 0), 6000);
    }

    #[test]
    fn what_an_operator_wants_kept_is_kept() {
        let mut budget = Budget::default();
        budget.keep(30_000, 40_000);
        budget.fit(300 << 20, 200 << 20);
        assert_eq!(budget.of(40_000), 30_000);
        budget.keep(1 << 40, 40_000);
        assert_eq!(budget.of(40_000), 40_000, "no more than there is");
        budget.keep(0, 0);
        budget.fit(300 << 20, 200 << 20);
        assert_eq!(budget.of(40_000), 10_000);
    }

    #[test]
    fn budgets_follow_the_target_and_all_of_them_fit_in() {
        let defaults = crate::StoreConfig::default();
        let at = |mb: u64| Memory { target: mb << 20, cache_min: 0 }.budgets(&defaults);
        let usual = at(128);
        assert_eq!((usual.onodes, usual.data, usual.deferred), (defaults.onode_cache_bytes, defaults.data_cache_bytes, defaults.deferred_bytes_max));
        let all = |b: Budgets| b.onodes + b.data + b.kv_cache + b.memtables + b.deferred;
        for mb in [96, 100, 127, 128, 129, 160, 512, 4096, 65_536] {
            let b = at(mb);
            assert!(all(b) + (32 << 20) <= b.target, "{mb}: {b:?}");
            assert!(b.onodes >= at(mb - 1).onodes, "{mb}");
        }
        assert_eq!(at(1), at(96), "with less it cannot be done");
        assert!(at(4096).onodes > 1 << 30 && at(4096).data > 1 << 30);
    }
}
