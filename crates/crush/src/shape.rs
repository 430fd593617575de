//! Whether a map's buckets form a hierarchy at all.
//!
//! Holds: a map that passed `check_shape` can be walked by recursion: no bucket contains itself, and neither the depth
//! nor the number of paths from roots to items is one that a person could have meant. Decoding lets no other map in.

use crate::map::bucket_index;
use crate::{Bucket, CrushMap};

/// Levels of buckets. Stock stops at 10 (`CRUSH_MAX_DEPTH`) where it looks at all.
const DEPTH_MAX: usize = 64;
/// Lines a tree of the whole map may have: buckets hung in several places count each time.
const PATHS_MAX: u64 = 1 << 22;

/// What is wrong with a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    #[error("a bucket contains itself")]
    Cycle,
    #[error("the hierarchy has too many levels, or too many ways down")]
    TooLarge,
    #[error("a bucket holds a bucket that does not exist")]
    Dangling,
}

impl CrushMap {
    /// Checks that the buckets form a hierarchy of sane size. A monitor must not take any other map from anyone;
    /// decoding tolerates dangling items only.
    pub fn check_shape(&self) -> Result<(), ShapeError> {
        let index = |id: i32| bucket_index(id).filter(|_| self.bucket(id).is_some());
        let mut holders = vec![0u64; self.buckets.len()];
        for i in self.iter_buckets().flat_map(|b| &b.items).filter_map(|&item| index(item)) {
            add(&mut holders, i, 1);
        }
        // Kahn's way: take away buckets that nobody holds any more, roots first; a cycle is never taken away.
        let is_free = |b: &&Bucket, holders: &[u64]| index(b.id).and_then(|i| holders.get(i)) == Some(&0);
        let mut free: Vec<&Bucket> = self.iter_buckets().filter(|b| is_free(b, &holders)).collect();
        let (mut paths, mut depths) = (vec![0u64; self.buckets.len()], vec![0usize; self.buckets.len()]);
        free.iter().filter_map(|b| index(b.id)).for_each(|i| add(&mut paths, i, 1));
        let (mut taken, mut lines) = (0, 0u64);
        let mut dangling = false;
        while let Some(bucket) = free.pop() {
            taken += 1;
            let at = index(bucket.id).unwrap_or(0);
            let (ways, depth) = (paths.get(at).copied().unwrap_or(0), depths.get(at).copied().unwrap_or(0));
            lines = lines.saturating_add(ways.saturating_mul(bucket.items.len() as u64));
            if depth >= DEPTH_MAX || lines > PATHS_MAX {
                return Err(ShapeError::TooLarge);
            }
            for &item in bucket.items.iter().filter(|&&item| item < 0) {
                let Some((i, child)) = index(item).zip(self.bucket(item)) else {
                    dangling = true;
                    continue;
                };
                add(&mut paths, i, ways);
                if let Some(deepest) = depths.get_mut(i) {
                    *deepest = (*deepest).max(depth + 1);
                }
                if let Some(left) = holders.get_mut(i) {
                    *left -= 1;
                }
                if is_free(&child, &holders) {
                    free.push(child);
                }
            }
        }
        match (taken == self.iter_buckets().count(), dangling) {
            (false, _) => Err(ShapeError::Cycle),
            (true, true) => Err(ShapeError::Dangling),
            (true, false) => Ok(()),
        }
    }
}

fn add(counts: &mut [u64], i: usize, n: u64) {
    if let Some(count) = counts.get_mut(i) {
        *count = count.saturating_add(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alg;

    fn map(buckets: &[&[i32]]) -> CrushMap {
        let bucket = |(i, items): (usize, &&[i32])| {
            let items: Vec<(i32, u32)> = items.iter().map(|&item| (item, 0x10000)).collect();
            Some(Bucket::new(-1 - i as i32, 1, &Alg::from_number(2).unwrap(), &items, 1).unwrap())
        };
        CrushMap { buckets: buckets.iter().enumerate().map(bucket).collect(), ..CrushMap::default() }
    }

    #[test]
    fn a_bucket_may_hang_in_two_places() {
        assert_eq!(map(&[&[-2, -3], &[-4, 1], &[-4, 2], &[3]]).check_shape(), Ok(()));
    }

    #[test]
    fn cycles_are_found_wherever_they_are() {
        assert_eq!(map(&[&[-1]]).check_shape(), Err(ShapeError::Cycle));
        assert_eq!(map(&[&[-2], &[-3], &[-2]]).check_shape(), Err(ShapeError::Cycle));
    }

    #[test]
    fn absent_buckets_are_named_apart() {
        assert_eq!(map(&[&[-2, 0]]).check_shape(), Err(ShapeError::Dangling));
    }

    #[test]
    fn ways_down_that_double_at_every_level_are_too_many() {
        let levels: Vec<[i32; 2]> = (0..40).map(|i| [-2 - i, -2 - i]).chain([[0, 1]]).collect();
        let levels: Vec<&[i32]> = levels.iter().map(|l| l.as_slice()).collect();
        assert_eq!(map(&levels).check_shape(), Err(ShapeError::TooLarge));
    }
}
