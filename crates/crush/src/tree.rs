//! The hierarchy walked for people: each root, then what it holds, sorted by device class and name.
//!
//! Holds: every walk ends: what appears below itself is not entered again.
//! Upstream: src/crush/CrushTreeDumper.h.

use crate::{CrushMap, Location};
use std::collections::{BTreeMap, BTreeSet};

/// One line of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    pub id: i32,
    /// The bucket it is listed in; `None` for roots.
    pub parent: Option<i32>,
    /// Number of buckets above it.
    pub depth: usize,
    /// Its weight there, 16.16 fixed point.
    pub weight: u32,
    /// What it holds, as `children` of JSON trees lists it: in the reverse order of the lines.
    pub children: Vec<i32>,
}

impl CrushMap {
    /// The lines of the trees below `roots`. Only OSDs that `shows` lets through are listed; with `prune`, neither are
    /// buckets without such an OSD.
    pub fn tree(&self, roots: &[i32], prune: bool, shows: &dyn Fn(i32) -> bool) -> Vec<TreeNode> {
        let listed = |id: i32| match id {
            0.. => shows(id),
            _ => !prune || self.below(id).into_iter().any(|item| item >= 0 && shows(item)),
        };
        let mut lines: Vec<TreeNode> = Vec::new();
        for &root in roots.iter().filter(|&&root| listed(root)) {
            let weight = self.bucket(root).map_or(0, |b| b.weight);
            let mut open = vec![TreeNode { id: root, parent: None, depth: 0, weight, children: Vec::new() }];
            while let Some(mut node) = open.pop() {
                let depth = node.depth + 1;
                let mut below = BTreeMap::new();
                let bucket = self.bucket(node.id).filter(|_| depth <= self.buckets.len());
                for (pos, &item) in bucket.iter().flat_map(|b| b.items.iter().enumerate()) {
                    if listed(item) {
                        let weight = bucket.map_or(0, |b| b.item_weight(pos));
                        below.entry(self.sort_key(item)).or_insert((item, weight));
                    }
                }
                let children = below.into_values().rev().map(|(id, weight)| {
                    node.children.push(id);
                    TreeNode { id, parent: Some(node.id), depth, weight, children: Vec::new() }
                });
                open.extend(children.collect::<Vec<_>>());
                lines.push(node);
            }
        }
        lines
    }

    /// OSDs with a name that are in none of the trees of those lines.
    pub fn strays(&self, lines: &[TreeNode]) -> Vec<i32> {
        let seen: BTreeSet<i32> = lines.iter().map(|node| node.id).collect();
        self.names.range(0..).map(|(&id, _)| id).filter(|id| !seen.contains(id)).collect()
    }

    fn sort_key(&self, item: i32) -> String {
        match item {
            0.. => format!("{}_osd.{item:08}", self.item_class(item).unwrap_or_default()),
            _ => format!("_{}", self.name(item).unwrap_or_default()),
        }
    }

    /// The weights of a node in a weight set, one per position; `None` where the set has none for its bucket.
    pub fn weights_in_set(&self, set: i64, node: &TreeNode) -> Option<Vec<u32>> {
        let parent = node.parent?;
        let arg = self.choose_args.get(&set)?.get(&(!parent as u32)).filter(|arg| !arg.weight_set.is_empty())?;
        let pos = self.bucket(parent)?.position(node.id)?;
        Some(arg.weight_set.iter().map(|weights| weights.get(pos).copied().unwrap_or(0)).collect())
    }

    /// A place as `osd find` has it: type to name, for every bucket above an item.
    pub fn location_map(&self, id: i32) -> Location {
        self.full_location(id).into_iter().collect()
    }
}
