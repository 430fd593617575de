//! How much of their budget caches may use: less while the process has too much memory.
//!
//! Why: what PG logs, requests and copies on their way take comes and goes; what they take too much, caches give.

/// Of their configured budgets caches keep at least so much, thousandths. So they begin: who starts has logs to read and objects to take in.
const LEAST: u64 = 250;
/// By how much the share falls at a time, and grows again.
const LESS: u64 = 250;
const MORE: u64 = 25;
/// So far below the target caches may grow again, bytes.
const MARGIN: u64 = 16 << 20;

/// The caches' part of their budgets, thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Budget(LEAST)
    }
}

impl Budget {
    /// The process has so many bytes, and should have no more than `target`. True if it has.
    pub fn fit(&mut self, resident: u64, target: u64) -> bool {
        if resident > target {
            self.0 = self.0.saturating_sub(LESS).max(LEAST);
        } else if resident + MARGIN < target {
            self.0 = (self.0 + MORE).min(1000);
        }
        resident > target
    }

    /// What is left of a cache's configured budget.
    pub fn of(self, bytes: u64) -> u64 {
        bytes / 1000 * self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_shrink_while_memory_is_short_and_grow_slowly_again() {
        let mut budget = Budget::default();
        assert_eq!(budget.of(40_000), 10_000);
        (0..40).for_each(|_| assert!(!budget.fit(100 << 20, 200 << 20)));
        assert_eq!(budget.of(40_000), 40_000);
        assert!(budget.fit(201 << 20, 200 << 20));
        assert_eq!(budget.of(40_000), 30_000);
        (0..20).for_each(|_| assert!(budget.fit(300 << 20, 200 << 20)));
        assert_eq!(budget.of(40_000), 10_000, "never nothing");
        assert!(!budget.fit(190 << 20, 200 << 20));
        assert_eq!(budget.of(40_000), 10_000, "not as soon as it fits");
        (0..40).for_each(|_| assert!(!budget.fit(150 << 20, 200 << 20)));
        assert_eq!(budget.of(40_000), 40_000);
    }
}
