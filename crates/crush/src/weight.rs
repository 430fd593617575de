//! Weights, from an item up to its roots, in the buckets themselves and in weight sets.
//!
//! Holds: after each function here, what a bucket weighs in its parent is the sum of its own items' weights; the same
//! goes for every position of every weight set.
//! Upstream: adjust_item_weight*, choose_args_* of src/crush/CrushWrapper.{h,cc}.

use crate::location::Location;
use crate::{Alg, ChooseArg, ChooseArgs, CrushError, CrushMap};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, CrushError>;

impl CrushMap {
    /// Gives an item (usually an OSD) a weight wherever it is. Weight sets follow with `weight_sets`, otherwise their
    /// owner keeps what it tuned. (`osd crush reweight`.)
    pub fn reweight_item(&mut self, item: i32, weight: u32, weight_sets: bool) -> Result<()> {
        self.atomically(|map| match map.set_weight_everywhere(item, weight, weight_sets)? {
            true => Ok(()),
            false => Err(CrushError::NoItem(item.to_string())),
        })
    }

    /// Gives all OSDs below a bucket a weight; the number of OSDs. (`osd crush reweight-subtree`.)
    pub fn reweight_subtree(&mut self, id: i32, weight: u32, weight_sets: bool) -> Result<usize> {
        self.atomically(|map| {
            map.bucket(id).ok_or_else(|| CrushError::NotABucket(id.to_string()))?;
            let mut buckets = map.below(id);
            buckets.insert(id);
            let mut changed = 0;
            for bucket in buckets.into_iter().filter(|&bucket| bucket < 0) {
                let items = map.bucket(bucket).map(|b| b.items.clone()).unwrap_or_default();
                for osd in items.into_iter().filter(|&item| item >= 0) {
                    map.set_weight_in(bucket, osd, weight, weight_sets)?;
                    changed += 1;
                }
            }
            map.rebuild_classes()?;
            Ok(changed)
        })
    }

    /// Works all bucket weights out anew from the OSDs up. (`osd crush reweight-all`.)
    pub fn reweight_all(&mut self) -> Result<()> {
        self.atomically(|map| {
            for root in map.nonshadow_roots() {
                map.reweight_bucket(root)?;
            }
            map.settle_weight_sets();
            map.rebuild_classes()
        })
    }

    fn reweight_bucket(&mut self, id: i32) -> Result<u32> {
        let items = self.bucket(id).map(|b| b.items.clone()).unwrap_or_default();
        for (pos, item) in items.into_iter().enumerate().filter(|&(_, item)| item < 0) {
            let weight = self.reweight_bucket(item)?;
            if let Some(bucket) = self.bucket_mut(id) {
                bucket.set_item_weight(pos, weight)?;
            }
        }
        let version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(id) else { return Ok(0) };
        bucket.measure_straws(version);
        let mut weights = (0..bucket.items.len()).map(|pos| bucket.item_weight(pos));
        bucket.weight = weights.try_fold(0u32, u32::checked_add).ok_or(CrushError::Weight)?;
        Ok(bucket.weight)
    }

    /// A bucket's weights in a weight set, by position, after its children's were worked out the same way.
    fn sum_weight_set(&self, args: &mut ChooseArgs, id: i32) -> Vec<u32> {
        let Some(bucket) = self.bucket(id) else { return Vec::new() };
        for (i, &item) in bucket.items.iter().enumerate().filter(|&(_, &item)| item < 0) {
            let sums = self.sum_weight_set(args, item);
            if let Some(arg) = args.get_mut(&(!id as u32)) {
                set_column(arg, i, &sums);
            }
        }
        args.get(&(!id as u32)).map(sums_of).unwrap_or_default()
    }

    /// Sets the weight of an item in every bucket that holds it; false if none does.
    pub(crate) fn set_weight_everywhere(&mut self, item: i32, weight: u32, sets: bool) -> Result<bool> {
        let holders: Vec<i32> = self.iter_buckets().filter(|b| b.items.contains(&item)).map(|b| b.id).collect();
        for &bucket in &holders {
            self.set_weight_in(bucket, item, weight, sets)?;
        }
        Ok(!holders.is_empty())
    }

    /// Sets the weight of an item in the buckets a location names; false if none holds it.
    pub(crate) fn set_weight_at(&mut self, item: i32, weight: u32, loc: &Location, sets: bool) -> Result<bool> {
        let mut found = false;
        for name in loc.values() {
            let Some(bucket) = self.item(name).filter(|&id| id < 0) else { continue };
            found |= self.set_weight_in(bucket, item, weight, sets)?;
        }
        Ok(found)
    }

    /// Sets the weight of an item in one bucket, and of that bucket in what holds it, up to the roots; false if the item
    /// is not there. Weight sets add up afterwards, whether or not the item's own weights in them change.
    pub(crate) fn set_weight_in(&mut self, id: i32, item: i32, weight: u32, sets: bool) -> Result<bool> {
        let Some(pos) = self.bucket(id).and_then(|b| b.position(item)) else { return Ok(false) };
        for arg in self.choose_args.values_mut().filter_map(|args| args.get_mut(&(!id as u32))).filter(|_| sets) {
            let positions = arg.weight_set.len();
            set_column(arg, pos, &vec![weight; positions]);
        }
        self.set_own_weight(id, item, weight)?;
        self.settle_weight_sets();
        Ok(true)
    }

    fn set_own_weight(&mut self, id: i32, item: i32, weight: u32) -> Result<()> {
        let version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(id) else { return Ok(()) };
        let Some(pos) = bucket.position(item) else { return Ok(()) };
        bucket.set_item_weight(pos, weight)?;
        bucket.measure_straws(version);
        let total = bucket.weight;
        let holders: Vec<i32> = self.iter_buckets().filter(|b| b.items.contains(&id)).map(|b| b.id).collect();
        holders.into_iter().try_for_each(|holder| self.set_own_weight(holder, id, total))
    }

    /// Makes every weight set add up from the OSDs to the roots, shadows' included. Straw2 buckets without one get their
    /// own weights as one.
    fn settle_weight_sets(&mut self) {
        let mut all = std::mem::take(&mut self.choose_args);
        for args in all.values_mut() {
            let Some(positions) = args.values().map(|arg| arg.weight_set.len()).find(|&n| n > 0) else { continue };
            for bucket in self.iter_buckets() {
                let Alg::Straw2 { item_weights } = &bucket.alg else { continue };
                let arg = args.entry(!bucket.id as u32).or_default();
                if arg.weight_set.is_empty() {
                    arg.weight_set = vec![item_weights.clone(); positions];
                }
            }
            for root in self.roots() {
                self.sum_weight_set(args, root);
            }
        }
        self.choose_args = all;
    }

    /// Sets an item's weights, one per position, wherever a weight set has it, and sums them up to the roots; straw2
    /// buckets without a weight set get their own weights as one. The number of buckets changed.
    fn set_in_weight_set(&self, args: &mut ChooseArgs, item: i32, weights: &[u32]) -> usize {
        let positions = args.values().map(|arg| arg.weight_set.len()).find(|&n| n > 0).unwrap_or(1);
        let mut changed = 0;
        for bucket in self.iter_buckets() {
            let Alg::Straw2 { item_weights } = &bucket.alg else { continue };
            let arg = args.entry(!bucket.id as u32).or_default();
            let is_new = arg.weight_set.is_empty();
            if is_new {
                arg.weight_set = vec![item_weights.clone(); positions];
            }
            if arg.weight_set.len() != weights.len() {
                continue;
            }
            let place = bucket.position(item);
            if let Some(i) = place {
                set_column(arg, i, weights);
            }
            if place.is_some() || is_new {
                changed += 1;
                let sums = sums_of(arg);
                self.set_in_weight_set(args, bucket.id, &sums);
            }
        }
        changed
    }

    /// Makes a weight set for a pool, or the compat one (-1), that starts as the buckets' own weights.
    /// (`osd crush weight-set create`.)
    pub fn create_weight_set(&mut self, set: i64, positions: usize) -> Result<()> {
        if self.choose_args.contains_key(&set) {
            return Err(CrushError::WeightSetExists(set));
        }
        let mut args = ChooseArgs::new();
        for bucket in self.iter_buckets() {
            if let Alg::Straw2 { item_weights } = &bucket.alg {
                let weight_set = vec![item_weights.clone(); positions.max(1)];
                args.insert(!bucket.id as u32, ChooseArg { weight_set, ids: Vec::new() });
            }
        }
        self.choose_args.insert(set, args);
        Ok(())
    }

    /// Removes a weight set; false if there was none. (`osd crush weight-set rm`.)
    pub fn remove_weight_set(&mut self, set: i64) -> bool {
        self.choose_args.remove(&set).is_some()
    }

    /// An item's weight in a weight set, the first one where positions have their own; none if the set says nothing of it.
    pub fn weight_in_weight_set(&self, set: i64, item: i32) -> Option<u32> {
        let args = self.choose_args.get(&set)?;
        self.iter_buckets().find_map(|bucket| {
            let pos = bucket.position(item)?;
            args.get(&(!bucket.id as u32))?.weight_set.first()?.get(pos).copied()
        })
    }

    /// Sets an item's weights in a weight set, one per position. (`osd crush weight-set reweight`.)
    pub fn reweight_in_weight_set(&mut self, set: i64, item: i32, weights: &[u32]) -> Result<()> {
        self.atomically(|map| {
            let mut args = map.choose_args.remove(&set).ok_or(CrushError::NoWeightSet(set))?;
            let changed = map.set_in_weight_set(&mut args, item, weights);
            map.choose_args.insert(set, args);
            match changed {
                0 => Err(CrushError::NoItem(item.to_string())),
                _ => Ok(()),
            }
        })
    }

    /// Appends an item to a bucket and its weight sets.
    pub(crate) fn push_item(&mut self, id: i32, item: i32, weight: u32) -> Result<()> {
        let version = self.tunables.straw_calc_version;
        let bucket = self.bucket_mut(id).ok_or_else(|| CrushError::NotABucket(id.to_string()))?;
        bucket.push(item, weight)?;
        bucket.measure_straws(version);
        for arg in self.choose_args.values_mut().filter_map(|args| args.get_mut(&(!id as u32))) {
            arg.weight_set.iter_mut().for_each(|weights| weights.push(weight));
            if !arg.ids.is_empty() {
                arg.ids.push(item);
            }
        }
        Ok(())
    }

    /// Takes an item out of a bucket and its weight sets.
    pub(crate) fn drop_item(&mut self, id: i32, item: i32) {
        let version = self.tunables.straw_calc_version;
        let Some(bucket) = self.bucket_mut(id) else { return };
        let Some(pos) = bucket.position(item) else { return };
        bucket.remove(pos);
        bucket.measure_straws(version);
        if !matches!(bucket.alg, Alg::Straw2 { .. }) {
            return;
        }
        for arg in self.choose_args.values_mut().filter_map(|args| args.get_mut(&(!id as u32))) {
            arg.weight_set.iter_mut().filter(|weights| pos < weights.len()).for_each(|weights| {
                weights.remove(pos);
            });
            if pos < arg.ids.len() {
                arg.ids.remove(pos);
            }
        }
    }

    /// Weights of a shadow bucket in each weight set: its OSDs' are the original's, its buckets' the sums of theirs.
    /// `kept` has the positions in the original.
    pub(crate) fn shadow_weight_sets(&mut self, original: i32, shadow: i32, kept: &[usize], sums: &mut ShadowSums) {
        let Some(bucket) = self.bucket(shadow) else { return };
        let own = (0..).map(|pos| bucket.item_weight(pos));
        let items: Vec<(i32, usize, u32)> =
            bucket.items.iter().zip(kept).zip(own).map(|((&item, &pos), own)| (item, pos, own)).collect();
        for (&set, args) in &mut self.choose_args {
            let Some(from) = args.get(&(!original as u32)).filter(|arg| !arg.weight_set.is_empty()) else { continue };
            let mut weight_set = Vec::new();
            for (position, weights) in from.weight_set.iter().enumerate() {
                let weight_of = |&(item, pos, own): &(i32, usize, u32)| match item {
                    0.. => weights.get(pos).copied().unwrap_or(0),
                    // A bucket of an algorithm without weight sets keeps its weight; upstream gives it none at all.
                    _ => sums.get(&(set, item)).and_then(|sum| sum.get(position)).copied().unwrap_or(own),
                };
                weight_set.push(items.iter().map(weight_of).collect());
            }
            let arg = ChooseArg { weight_set, ids: Vec::new() };
            sums.insert((set, shadow), sums_of(&arg));
            args.insert(!shadow as u32, arg);
        }
    }
}

/// What shadow buckets weigh: by weight set and bucket, one weight per position.
pub(crate) type ShadowSums = BTreeMap<(i64, i32), Vec<u32>>;

/// Sum of a bucket's weights at each position.
fn sums_of(arg: &ChooseArg) -> Vec<u32> {
    arg.weight_set.iter().map(|weights| weights.iter().fold(0u32, |sum, &w| sum.wrapping_add(w))).collect()
}

/// Sets the weights of the item at `i`, one per position.
fn set_column(arg: &mut ChooseArg, i: usize, weights: &[u32]) {
    for (list, &weight) in arg.weight_set.iter_mut().zip(weights) {
        if let Some(slot) = list.get_mut(i) {
            *slot = weight;
        }
    }
}
