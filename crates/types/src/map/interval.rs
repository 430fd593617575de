//! Sets of snapshot ids as runs (`interval_set<snapid_t>` upstream).

use denc::{Decode, Encode};
use std::collections::BTreeMap;
use std::fmt;

/// Runs of snapshot ids: first id to length. Holds: runs neither touch nor overlap.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
pub struct SnapIntervals(pub BTreeMap<u64, u64>);

impl SnapIntervals {
    /// True if no id is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if `snap` is in the set.
    pub fn contains(&self, snap: u64) -> bool {
        self.0.range(..=snap).next_back().is_some_and(|(start, len)| snap - start < *len)
    }

    /// Adds `len` ids from `start`; ids already there stay.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let mut from = start;
        let mut to = start.saturating_add(len);
        // Runs that touch the new one melt into it.
        let touching: Vec<u64> = (self.0.range(..=to).rev())
            .take_while(|(s, l)| s.saturating_add(**l) >= start)
            .map(|(s, _)| *s)
            .collect();
        for s in touching {
            let end = s.saturating_add(self.0.remove(&s).unwrap_or_default());
            from = from.min(s);
            to = to.max(end);
        }
        self.0.insert(from, to - from);
    }

    /// Removes `len` ids from `start`; ids that are not there are no error.
    pub fn remove(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        let hit: Vec<(u64, u64)> = (self.0.range(..end).rev())
            .map(|(s, l)| (*s, s.saturating_add(*l)))
            .take_while(|(_, e)| *e > start)
            .collect();
        for (s, e) in hit {
            self.0.remove(&s);
            if s < start {
                self.0.insert(s, start - s);
            }
            if e > end {
                self.0.insert(end, e - end);
            }
        }
    }

    /// Adds every id of `other`.
    pub fn union(&mut self, other: &SnapIntervals) {
        other.0.iter().for_each(|(start, len)| self.insert(*start, *len));
    }

    /// Removes every id of `other`.
    pub fn subtract(&mut self, other: &SnapIntervals) {
        other.0.iter().for_each(|(start, len)| self.remove(*start, *len));
    }

    /// What is in both.
    pub fn intersection(&self, other: &SnapIntervals) -> SnapIntervals {
        let (mut only, mut both) = (self.clone(), self.clone());
        only.subtract(other);
        both.subtract(&only);
        both
    }

    /// How many are in the set.
    pub fn len(&self) -> u64 {
        self.0.values().sum()
    }
}

impl fmt::Display for SnapIntervals {
    /// `[1~2,7~1]`, hexadecimal as upstream prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<String> = self.0.iter().map(|(s, l)| format!("{s:x}~{l:x}")).collect();
        write!(f, "[{}]", runs.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn ids(s: &SnapIntervals) -> BTreeSet<u64> {
        s.0.iter().flat_map(|(a, l)| *a..a + l).collect()
    }

    #[test]
    fn insert_and_remove_agree_with_a_plain_set() {
        let mut runs = SnapIntervals::default();
        let mut plain = BTreeSet::new();
        let mut seed = 7u64;
        for _ in 0..2000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, len) = (seed >> 33 & 63, seed >> 40 & 7);
            if seed >> 60 & 1 == 0 {
                runs.insert(start, len);
                plain.extend(start..start + len);
            } else {
                runs.remove(start, len);
                plain.retain(|i| !(start..start + len).contains(i));
            }
            assert_eq!(ids(&runs), plain);
            assert!((0..80).all(|i| runs.contains(i) == plain.contains(&i)));
            let spans: Vec<_> = runs.0.iter().map(|(a, l)| (*a, a + l)).collect();
            assert!(spans.windows(2).all(|w| w[0].1 < w[1].0), "runs touch: {spans:?}");
        }
    }

    #[test]
    fn runs_print_in_hexadecimal() {
        let mut s = SnapIntervals::default();
        s.insert(10, 17);
        assert_eq!(s.to_string(), "[a~11]");
    }
}
