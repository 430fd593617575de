//! Where things are: parents, children, roots, subtrees, and what a rule may reach.
//!
//! Holds: every walk ends, for every map that passes `check_shape`.
//! Upstream: the queries of src/crush/CrushWrapper.cc.

use crate::{Bucket, CrushMap, Op};
use std::collections::{BTreeMap, BTreeSet};

/// A place in the hierarchy: bucket type name to bucket name, as in `root=default host=a`.
pub type Location = BTreeMap<String, String>;

/// Reads `type=name` words; `None` if one is not of that form.
pub fn parse_location<S: AsRef<str>>(words: impl IntoIterator<Item = S>) -> Option<Location> {
    let pair = |word: S| match word.as_ref().split_once('=') {
        Some((kind, name)) if !name.is_empty() => Some((kind.to_owned(), name.to_owned())),
        _ => None,
    };
    words.into_iter().map(pair).collect()
}

/// Whether operators may use a name: `[-_.0-9a-zA-Z]+`. Shadow buckets have a `~` in theirs, so that they may not.
pub fn is_valid_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

impl CrushMap {
    /// Whether an item is known by name: `crush add` and its like go by names.
    pub fn item_exists(&self, id: i32) -> bool {
        self.names.contains_key(&id)
    }

    /// Whether a bucket is the shadow of another, holding only OSDs of one device class.
    pub fn is_shadow(&self, id: i32) -> bool {
        self.name(id).is_some_and(|name| !is_valid_name(name))
    }

    /// Whether any bucket, shadows included, holds the item.
    pub fn is_linked(&self, id: i32) -> bool {
        self.iter_buckets().any(|b| b.items.contains(&id))
    }

    /// The first bucket that holds the item, shadows aside.
    pub fn parent(&self, id: i32) -> Option<&Bucket> {
        self.iter_buckets().find(|b| b.items.contains(&id) && !self.is_shadow(b.id))
    }

    /// Type and name of every bucket above an item, nearest first.
    pub fn full_location(&self, id: i32) -> Vec<(String, String)> {
        let mut path = Vec::new();
        let mut at = id;
        while let Some(parent) = self.parent(at).filter(|_| path.len() < self.buckets.len()) {
            let kind = self.type_name(i32::from(parent.kind)).unwrap_or_default();
            let name = self.name(parent.id).unwrap_or_default();
            path.push((kind.to_owned(), name.to_owned()));
            at = parent.id;
        }
        path
    }

    /// Whether `item` is `root` or anywhere below it.
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        root == item || self.below(root).contains(&item)
    }

    /// Everything below a bucket, shadows' OSDs as often as they appear once.
    pub fn below(&self, root: i32) -> BTreeSet<i32> {
        let mut seen = BTreeSet::new();
        let mut open = vec![root];
        while let Some(bucket) = open.pop().and_then(|id| self.bucket(id)) {
            for &item in &bucket.items {
                if seen.insert(item) && self.bucket(item).is_some() {
                    open.push(item);
                }
            }
        }
        seen
    }

    /// The OSDs below an item, or itself.
    pub fn leaves(&self, id: i32) -> BTreeSet<i32> {
        match id {
            0.. => BTreeSet::from([id]),
            _ => self.below(id).into_iter().filter(|&item| item >= 0).collect(),
        }
    }

    /// Buckets that nothing holds, by id ascending.
    pub fn roots(&self) -> Vec<i32> {
        let held: BTreeSet<i32> = self.iter_buckets().flat_map(|b| b.items.iter().copied()).collect();
        self.iter_buckets().rev().map(|b| b.id).filter(|id| !held.contains(id)).collect()
    }

    /// Roots that operators made.
    pub fn nonshadow_roots(&self) -> Vec<i32> {
        self.roots().into_iter().filter(|&id| !self.is_shadow(id)).collect()
    }

    /// Items of one type in a subtree, in the order of the hierarchy; type 0 gives OSDs.
    pub fn children_of_type(&self, root: i32, kind: i32, with_shadows: bool) -> Vec<i32> {
        let mut found = Vec::new();
        self.collect_of_type(root, kind, with_shadows, 0, &mut found);
        found
    }

    fn collect_of_type(&self, id: i32, kind: i32, with_shadows: bool, depth: usize, found: &mut Vec<i32>) {
        match self.bucket(id) {
            _ if id >= 0 => found.extend((kind == 0).then_some(id)),
            Some(b) if i32::from(b.kind) == kind => found.extend((with_shadows || !self.is_shadow(id)).then_some(id)),
            Some(b) if i32::from(b.kind) > kind && depth < self.buckets.len() => {
                b.items.iter().for_each(|&item| self.collect_of_type(item, kind, with_shadows, depth + 1, found));
            }
            _ => {}
        }
    }

    /// The bucket of a type that holds an OSD as a rule sees it (in its own trees), or anywhere without a rule.
    pub fn parent_of_type(&self, item: i32, kind: i32, rule: Option<u32>) -> Option<i32> {
        let Some(rule) = rule else {
            let mut at = item;
            for _ in 0..self.buckets.len() {
                let parent = self.parent(at)?;
                if i32::from(parent.kind) == kind {
                    return Some(parent.id);
                }
                at = parent.id;
            }
            return None;
        };
        let takes = self.takes(rule);
        let mut candidates = takes.iter().flat_map(|&root| self.children_of_type(root, kind, true));
        candidates.find(|&bucket| self.subtree_contains(bucket, item))
    }

    /// The items a rule starts from.
    pub fn takes(&self, rule: u32) -> BTreeSet<i32> {
        let steps = self.rule(rule).map(|rule| rule.steps.as_slice()).unwrap_or_default();
        steps.iter().filter(|step| step.op() == Some(Op::Take)).map(|step| step.arg1).collect()
    }

    /// A take's bucket and, if that is a shadow, the device class it is for.
    pub fn split_class(&self, id: i32) -> Option<(i32, Option<i32>)> {
        match self.name(id)?.split_once('~') {
            None => Some((id, None)),
            Some((name, class)) => Some((self.item(name)?, Some(self.class_id(class)?))),
        }
    }

    /// What share of a rule's data each OSD gets by weight; the shares of one take step sum to 1.
    pub fn rule_shares(&self, rule: u32) -> BTreeMap<i32, f32> {
        let mut shares = BTreeMap::new();
        let steps = self.rule(rule).map(|rule| rule.steps.as_slice()).unwrap_or_default();
        for root in steps.iter().filter(|step| step.op() == Some(Op::Take)).map(|step| step.arg1) {
            let mut weights = BTreeMap::new();
            match root {
                0.. => {
                    weights.insert(root, 1.0);
                }
                _ => self.add_leaf_weights(root, 0, &mut weights),
            }
            let sum: f32 = weights.values().sum();
            for (osd, weight) in weights.into_iter().filter(|_| sum > 0.0) {
                *shares.entry(osd).or_insert(0.0) += weight / sum;
            }
        }
        shares
    }

    fn add_leaf_weights(&self, id: i32, depth: usize, weights: &mut BTreeMap<i32, f32>) {
        let Some(bucket) = self.bucket(id).filter(|_| depth <= self.buckets.len()) else { return };
        for (pos, &item) in bucket.items.iter().enumerate() {
            match item {
                0.. => *weights.entry(item).or_insert(0.0) += bucket.item_weight(pos) as f32 / 65536.0,
                _ => self.add_leaf_weights(item, depth + 1, weights),
            }
        }
    }

    /// Weight of an item where it first appears: a bucket's own, an OSD's in its bucket.
    pub fn item_weight(&self, id: i32) -> Option<u32> {
        self.iter_buckets().find_map(|b| match b.position(id) {
            _ if b.id == id => Some(b.weight),
            Some(pos) => Some(b.item_weight(pos)),
            None => None,
        })
    }

    /// Weight of an item at a location, if it is there: in the bucket of the lowest type that the location names.
    pub fn weight_at(&self, item: i32, loc: &Location) -> Option<u32> {
        let nearest = self.type_names.iter().filter(|&(&kind, _)| kind != 0).find_map(|(_, name)| loc.get(name))?;
        let bucket = self.bucket(self.item(nearest)?)?;
        bucket.position(item).map(|pos| bucket.item_weight(pos))
    }

    /// OSDs of a device class.
    pub fn osds_of_class(&self, class: &str) -> BTreeSet<i32> {
        let Some(class) = self.class_id(class) else { return BTreeSet::new() };
        self.class_of.iter().filter(|&(&id, &c)| id >= 0 && c == class).map(|(&id, _)| id).collect()
    }
}
