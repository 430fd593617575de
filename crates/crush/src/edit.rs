//! Edits of the hierarchy: items in, out, elsewhere, and under other names and weights.
//!
//! Holds: an edit that returns an error leaves the map as it was. After an edit that returns `Ok`, weights add up
//! towards the roots, weight sets fit their buckets, and every device class has its shadow trees.
//! Upstream: the edits of src/crush/CrushWrapper.cc. Weights are 16.16 fixed point throughout; upstream rounds some of
//! them through 32-bit floats.

use crate::codec::BUCKETS_MAX;
use crate::location::{Location, is_valid_name};
use crate::map::bucket_index;
use crate::{Alg, Bucket, CrushError, CrushMap};
use std::collections::BTreeMap;

type Result<T> = std::result::Result<T, CrushError>;

impl CrushMap {
    /// Runs an edit on a copy and keeps it if it went well. Maps are small and edits rare; half an edit is the worst.
    pub(crate) fn atomically<T>(&mut self, edit: impl FnOnce(&mut CrushMap) -> Result<T>) -> Result<T> {
        self.check_shape().map_err(|_| CrushError::Loop)?;
        let mut draft = self.clone();
        let done = edit(&mut draft)?;
        *self = draft;
        Ok(done)
    }

    pub(crate) fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        self.buckets.get_mut(bucket_index(id)?)?.as_mut()
    }

    /// The algorithm that new buckets get: the best one the tunables allow.
    pub fn default_alg(&self) -> Option<Alg> {
        let allowed = self.tunables.allowed_bucket_algs;
        [5, 4, 3, 2, 1].into_iter().find(|alg| allowed & 1 << alg != 0).and_then(Alg::from_number)
    }

    /// Adds a bucket that nothing holds yet; `id` or else the free one nearest to 0, `alg` or else the default.
    /// Gives its id.
    pub fn add_bucket(
        &mut self,
        id: Option<i32>,
        name: &str,
        alg: Option<&Alg>,
        kind: u16,
        items: &[(i32, u32)],
    ) -> Result<i32> {
        self.atomically(|map| {
            map.check_new_name(name)?;
            let id = map.place_bucket(id, alg, kind, items)?;
            map.names.insert(id, name.to_owned());
            map.finalize();
            map.check_shape().map_err(|_| CrushError::Loop)?;
            Ok(id)
        })
    }

    fn check_new_name(&self, name: &str) -> Result<()> {
        match self.item(name) {
            _ if !is_valid_name(name) => Err(CrushError::BadName(name.to_owned())),
            Some(_) => Err(CrushError::ItemExists(name.to_owned())),
            None => Ok(()),
        }
    }

    /// Makes a nameless bucket, with weight sets of its own weights where the map has any.
    fn place_bucket(&mut self, id: Option<i32>, alg: Option<&Alg>, kind: u16, items: &[(i32, u32)]) -> Result<i32> {
        let alg = alg.cloned().or_else(|| self.default_alg()).ok_or(CrushError::Algorithm)?;
        let id = id.unwrap_or_else(|| self.free_bucket_id(|_| false));
        self.put_bucket(Bucket::new(id, kind, &alg, items, self.tunables.straw_calc_version)?)?;
        for args in self.choose_args.values_mut().filter(|_| !items.is_empty() && alg.number() == 5) {
            let positions = args.values().map(|arg| arg.weight_set.len()).find(|&n| n > 0).unwrap_or(1);
            let weights: Vec<u32> = items.iter().map(|&(_, weight)| weight).collect();
            args.entry(!id as u32).or_default().weight_set = vec![weights; positions];
        }
        Ok(id)
    }

    /// The id nearest to 0 that no bucket has and that `reserved` does not claim.
    pub(crate) fn free_bucket_id(&self, reserved: impl Fn(i32) -> bool) -> i32 {
        (1..).map(|n: i32| -n).find(|&id| self.bucket(id).is_none() && !reserved(id)).unwrap_or(i32::MIN)
    }

    /// Puts a bucket in its place; the table of buckets grows by doubling from 8, as stock's does.
    pub(crate) fn put_bucket(&mut self, bucket: Bucket) -> Result<()> {
        let in_range = |&i: &usize| i < BUCKETS_MAX as usize;
        let index = bucket_index(bucket.id).filter(in_range).ok_or(CrushError::BucketId(bucket.id))?;
        while self.buckets.len() <= index {
            let doubled = (self.buckets.len() * 2).max(8);
            self.buckets.resize(doubled, None);
        }
        match self.buckets.get_mut(index) {
            Some(slot @ None) => *slot = Some(bucket),
            _ => return Err(CrushError::ItemExists(bucket.id.to_string())),
        }
        Ok(())
    }

    /// Adds an item (an OSD, or a bucket that has no place) at a location, with weight. Buckets of the location that do
    /// not exist are made, from the lowest type up to the first that does. With `weight_sets` an OSD gets its
    /// weight in weight sets too.
    pub fn insert_item(&mut self, item: i32, weight: u32, name: &str, loc: &Location, weight_sets: bool) -> Result<()> {
        self.atomically(|map| map.insert(item, weight, name, loc, weight_sets))
    }

    pub(crate) fn insert(&mut self, item: i32, weight: u32, name: &str, loc: &Location, sets: bool) -> Result<()> {
        check_location(name, loc)?;
        match self.item(name) {
            Some(other) if other != item => return Err(CrushError::ItemExists(name.to_owned())),
            Some(_) => {}
            None => {
                self.names.insert(item, name.to_owned());
            }
        }
        self.hang(item, loc)?;
        if !self.set_weight_at(item, weight, loc, sets && item >= 0)? {
            return Err(CrushError::NoPlace);
        }
        self.finalize();
        self.rebuild_classes()
    }

    /// Hangs an item with weight 0 where the location says, below new buckets as needed.
    fn hang(&mut self, item: i32, loc: &Location) -> Result<()> {
        let mut at = item;
        let kinds: Vec<(i32, String)> = self.type_names.iter().map(|(&kind, name)| (kind, name.clone())).collect();
        for (kind, kind_name) in kinds.into_iter().filter(|&(kind, _)| kind != 0) {
            let Some(bucket_name) = loc.get(&kind_name) else { continue };
            let kind = u16::try_from(kind).map_err(|_| CrushError::UnknownType(kind_name))?;
            let Some(id) = self.item(bucket_name) else {
                at = self.place_bucket(None, None, kind, &[(at, 0)])?;
                self.names.insert(at, bucket_name.clone());
                continue;
            };
            let bucket = self.bucket(id).ok_or_else(|| CrushError::NotABucket(bucket_name.clone()))?;
            if bucket.kind != kind {
                return Err(CrushError::WrongType(bucket_name.clone()));
            } else if self.subtree_contains(id, at) {
                return Err(CrushError::AlreadyThere);
            } else if self.subtree_contains(at, id) {
                return Err(CrushError::Loop);
            }
            return self.push_item(id, at, 0);
        }
        Ok(())
    }

    /// Puts an OSD at a location, keeping the weight it has somewhere else, unless it is there already. True if the map
    /// changed. (`osd crush create-or-move`, `osd crush move` of an OSD.)
    pub fn create_or_move_item(&mut self, item: i32, weight: u32, name: &str, loc: &Location) -> Result<bool> {
        if !is_valid_name(name) {
            return Err(CrushError::BadName(name.to_owned()));
        }
        if self.weight_at(item, loc).is_some() {
            return Ok(false);
        }
        self.atomically(|map| {
            let mut weight = weight;
            if map.is_linked(item) {
                weight = map.item_weight(item).unwrap_or(weight);
                map.remove(item, true)?;
            }
            map.insert(item, weight, name, loc, true)?;
            Ok(true)
        })
    }

    /// Puts an OSD at a location with that weight and name, wherever it was. True if the map changed.
    /// (`osd crush set`.)
    pub fn update_item(&mut self, item: i32, weight: u32, name: &str, loc: &Location) -> Result<bool> {
        check_location(name, loc)?;
        let old = self.weight_at(item, loc);
        if old == Some(weight) && self.name(item) == Some(name) {
            return Ok(false);
        }
        self.atomically(|map| {
            if old.is_some() {
                map.set_weight_at(item, weight, loc, true)?;
                map.names.insert(item, name.to_owned());
                return map.rebuild_classes().map(|()| true);
            }
            if map.item_exists(item) {
                match map.remove(item, true) {
                    Ok(()) | Err(CrushError::NotThere(_)) => {}
                    Err(e) => return Err(e),
                }
            }
            map.insert(item, weight, name, loc, true).map(|()| true)
        })
    }

    /// Moves a bucket with all below it to a location. (`osd crush move` of a bucket.)
    pub fn move_bucket(&mut self, id: i32, loc: &Location) -> Result<()> {
        let name = self.name(id).ok_or_else(|| CrushError::NoItem(id.to_string()))?.to_owned();
        let weight = self.bucket(id).ok_or_else(|| CrushError::NotABucket(name.clone()))?.weight;
        self.atomically(|map| {
            if let Some(parent) = map.parent(id).map(|b| b.id) {
                map.set_weight_in(parent, id, 0, true)?;
                map.drop_item(parent, id);
            }
            map.insert(id, weight, &name, loc, false)
        })
    }

    /// Hangs a bucket at one more place. (`osd crush link`.)
    pub fn link_bucket(&mut self, id: i32, loc: &Location) -> Result<()> {
        let name = self.name(id).ok_or_else(|| CrushError::NoItem(id.to_string()))?.to_owned();
        let weight = self.bucket(id).ok_or_else(|| CrushError::NotABucket(name.clone()))?.weight;
        self.insert_item(id, weight, &name, loc, true)
    }

    /// Exchanges the contents, weights and names of two buckets. (`osd crush swap-bucket`.)
    pub fn swap_buckets(&mut self, a: i32, b: i32) -> Result<()> {
        self.atomically(|map| {
            for (id, other) in [(a, b), (b, a)] {
                if map.bucket(id).is_none() || map.subtree_contains(id, other) {
                    return Err(CrushError::Loop);
                }
            }
            let contents = |map: &CrushMap, id| {
                map.bucket(id).map(|b| (b.weight, b.items.iter().copied().zip((0..).map(|i| b.item_weight(i))).collect()))
            };
            let (aw, a_items): (u32, Vec<(i32, u32)>) = contents(map, a).ok_or(CrushError::Loop)?;
            let (bw, b_items): (u32, BTreeMap<i32, u32>) =
                contents(map, b).map(|(w, items): (u32, Vec<_>)| (w, items.into_iter().collect())).ok_or(CrushError::Loop)?;
            map.set_weight_everywhere(a, bw, true)?;
            map.set_weight_everywhere(b, aw, true)?;
            let b_order: Vec<i32> = map.bucket(b).map(|b| b.items.clone()).unwrap_or_default();
            a_items.iter().for_each(|&(item, _)| map.drop_item(a, item));
            for item in b_order {
                map.drop_item(b, item);
                map.push_item(a, item, b_items.get(&item).copied().unwrap_or(0))?;
            }
            // Upstream hands them over by number, not in their old order.
            for (item, weight) in a_items.into_iter().collect::<BTreeMap<_, _>>() {
                map.push_item(b, item, weight)?;
            }
            let (a_name, b_name) = (map.names.remove(&a), map.names.remove(&b));
            map.names.extend(a_name.map(|name| (b, name)));
            map.names.extend(b_name.map(|name| (a, name)));
            map.rebuild_classes()
        })
    }

    /// Removes an item from everywhere; with `unlink_only` a bucket keeps existing and an OSD its name's class.
    ///
    /// Errors: a bucket that is not empty or that a rule takes.
    pub fn remove_item(&mut self, item: i32, unlink_only: bool) -> Result<()> {
        self.atomically(|map| map.remove(item, unlink_only))
    }

    pub(crate) fn remove(&mut self, item: i32, unlink_only: bool) -> Result<()> {
        self.check_removable(item, unlink_only)?;
        let holders: Vec<i32> = self.iter_buckets().filter(|b| b.items.contains(&item)).map(|b| b.id).collect();
        for &bucket in &holders {
            self.set_weight_in(bucket, item, 0, true)?;
            self.drop_item(bucket, item);
        }
        let forgotten = self.forget_if_unlinked(item, unlink_only)?;
        match holders.is_empty() && !forgotten {
            true => Err(CrushError::NotThere(item.to_string())),
            false => Ok(()),
        }
    }

    fn check_removable(&self, item: i32, unlink_only: bool) -> Result<()> {
        if item >= 0 || unlink_only {
            return Ok(());
        }
        let bucket = self.bucket(item).ok_or_else(|| CrushError::NoItem(item.to_string()))?;
        match bucket.items.is_empty() {
            false => Err(CrushError::NotEmpty(item)),
            true if self.is_bucket_in_use(item) => Err(CrushError::InUse(item)),
            true => Ok(()),
        }
    }

    /// Removes an item from a subtree only. (`osd crush rm NAME ANCESTOR`, `osd crush unlink`.)
    pub fn remove_item_under(&mut self, item: i32, ancestor: i32, unlink_only: bool) -> Result<()> {
        self.atomically(|map| {
            map.check_removable(item, unlink_only)?;
            map.bucket(ancestor).ok_or_else(|| CrushError::NotABucket(ancestor.to_string()))?;
            let mut holders = map.below(ancestor);
            holders.insert(ancestor);
            holders.retain(|&id| map.bucket(id).is_some_and(|b| b.items.contains(&item)));
            if holders.is_empty() {
                return Err(CrushError::NotThere(item.to_string()));
            }
            for bucket in holders {
                map.set_weight_in(bucket, item, 0, true)?;
                map.drop_item(bucket, item);
            }
            map.forget_if_unlinked(item, unlink_only)?;
            Ok(())
        })
    }

    /// Whether a rule takes a bucket or its shadow, or it is a shadow itself.
    pub fn is_bucket_in_use(&self, id: i32) -> bool {
        let is_shadow = self.class_bucket.values().any(|shadows| shadows.values().any(|&shadow| shadow == id));
        let mut takes = self.iter_rules().flat_map(|(number, _)| self.takes(number));
        is_shadow || takes.any(|take| take == id || self.split_class(take).is_some_and(|(original, _)| original == id))
    }

    /// Forgets name, class and bucket of an item that nothing holds any more; true if it was so.
    fn forget_if_unlinked(&mut self, item: i32, unlink_only: bool) -> Result<bool> {
        if self.is_linked(item) || (item < 0 && self.is_bucket_in_use(item)) {
            return Ok(false);
        }
        if item < 0 && !unlink_only {
            self.erase_bucket(item);
        }
        if item >= 0 {
            self.names.remove(&item);
            if !unlink_only {
                self.class_of.remove(&item);
            }
        }
        self.finalize();
        self.rebuild_classes()?;
        Ok(true)
    }

    /// Takes a bucket off the map with name, class, shadows' record and weight sets.
    pub(crate) fn erase_bucket(&mut self, id: i32) {
        if let Some(slot) = bucket_index(id).and_then(|i| self.buckets.get_mut(i)) {
            *slot = None;
        }
        self.names.remove(&id);
        self.class_bucket.remove(&id);
        self.class_of.remove(&id);
        self.repair_choose_args();
    }

    /// Gives a bucket, OSD or root another name.
    pub fn rename_item(&mut self, from: &str, to: &str) -> Result<()> {
        let id = self.item(from).ok_or_else(|| CrushError::NoItem(from.to_owned()))?;
        self.check_new_name(to)?;
        self.names.insert(id, to.to_owned());
        Ok(())
    }
}

/// Names an operator may use.
fn check_location(name: &str, loc: &Location) -> Result<()> {
    let all = loc.iter().flat_map(|(kind, name)| [kind.as_str(), name.as_str()]);
    match std::iter::once(name).chain(all).find(|name| !is_valid_name(name)) {
        Some(bad) => Err(CrushError::BadName(bad.to_owned())),
        None => Ok(()),
    }
}
