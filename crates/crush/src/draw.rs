//! Drawing one item from one bucket: the five algorithms.
//!
//! Room: called by `mapper` only.   Owns: `Scratch`, the permutations of one mapping and its allowance of work.
//! Holds: a bucket that a decoder let through never panics here, whatever its weights say.
//! Upstream: bucket_*_choose in src/crush/mapper.c.

use crate::hash::{RJENKINS1, rjenkins1_3, rjenkins1_4};
use crate::ln::log2_44;
use crate::{Alg, Bucket, ChooseArg};
use std::collections::BTreeMap;

/// How much one mapping may cost, in item draws, before it gives up on the positions still open. The most expensive sane
/// mappings are those that cannot succeed: 20 shards for 19 hosts of 60 OSDs at 100 tries each take a hundredth of this,
/// a bucket of 1,000 OSDs that are all out under the oldest tunables a half. Without a limit a hostile map of 2^32 tries
/// would keep a monitor busy for hours.
const COST_MAX: u64 = 1 << 24;
/// What a step down the hierarchy costs beside the draws of its items.
const STEP_COST: u64 = 64;

/// What one mapping remembers between draws.
#[derive(Debug)]
pub(crate) struct Scratch {
    permutations: BTreeMap<i32, Permutation>,
    cost_left: u64,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        Scratch { permutations: BTreeMap::new(), cost_left: COST_MAX }
    }

    /// True once the allowance of work is used up.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.cost_left == 0
    }

    fn spend(&mut self, item_draws: usize) {
        self.cost_left = self.cost_left.saturating_sub(item_draws as u64 + STEP_COST);
    }

    /// Draws an item of `bucket` for input `x`, try `r` and replica `position`; `None` for an empty bucket.
    pub(crate) fn draw(
        &mut self,
        bucket: &Bucket,
        x: u32,
        r: u32,
        replaced: Option<&ChooseArg>,
        position: usize,
    ) -> Option<i32> {
        self.spend(bucket.items.len());
        match &bucket.alg {
            Alg::Uniform { .. } => self.draw_permuted(bucket, x, r),
            Alg::List { item_weights, sum_weights } => draw_list(bucket, item_weights, sum_weights, x, r),
            Alg::Tree { node_weights } => draw_tree(bucket, node_weights, x, r),
            Alg::Straw { straws, .. } => draw_straw(bucket, straws, x, r),
            Alg::Straw2 { item_weights } => draw_straw2(bucket, item_weights, x, r, replaced, position),
        }
    }

    /// Draws by permutation whatever the bucket's algorithm is: the fallback of the oldest tunables.
    pub(crate) fn draw_permuted(&mut self, bucket: &Bucket, x: u32, r: u32) -> Option<i32> {
        let size = u32::try_from(bucket.items.len()).ok().filter(|&n| n > 0)?;
        self.spend(0);
        let permutation = self.permutations.entry(bucket.id).or_default();
        let place = permutation.place(bucket, size, x, r % size)?;
        bucket.items.get(place as usize).copied()
    }
}

/// A permutation of one bucket's items for one input, worked out as far as it was asked for.
#[derive(Debug, Default)]
struct Permutation {
    x: u32,
    known: u32,
    order: Vec<u32>,
}

/// `known` when only the first place was asked for and `order` holds nothing else. Stock uses this value too, and an
/// honest count can reach it in buckets of over 65,535 items: the permutation starts over then, there as here.
const FIRST_ONLY: u32 = 0xffff;

impl Permutation {
    fn place(&mut self, bucket: &Bucket, size: u32, x: u32, wanted: u32) -> Option<u32> {
        if self.x != x || self.known == 0 {
            self.x = x;
            if wanted == 0 {
                let first = hash3(bucket, x, bucket.id as u32, 0) % size;
                self.order = vec![first];
                self.known = FIRST_ONLY;
                return Some(first);
            }
            self.order = (0..size).collect();
            self.known = 0;
        } else if self.known == FIRST_ONLY {
            let first = *self.order.first()?;
            self.order = (0..size).collect();
            self.order.swap(0, first as usize);
            self.known = 1;
        }
        while self.known <= wanted {
            let at = self.known;
            if at + 1 < size {
                let step = hash3(bucket, x, bucket.id as u32, at) % (size - at);
                self.order.swap(at as usize, (at + step) as usize);
            }
            self.known += 1;
        }
        self.order.get(wanted as usize).copied()
    }
}

fn hash3(bucket: &Bucket, a: u32, b: u32, c: u32) -> u32 {
    if bucket.hash == RJENKINS1 { rjenkins1_3(a, b, c) } else { 0 }
}

fn hash4(bucket: &Bucket, a: u32, b: u32, c: u32, d: u32) -> u32 {
    if bucket.hash == RJENKINS1 { rjenkins1_4(a, b, c, d) } else { 0 }
}

fn draw_list(bucket: &Bucket, weights: &[u32], sums: &[u32], x: u32, r: u32) -> Option<i32> {
    let tail_first = bucket.items.iter().zip(weights).zip(sums).rev();
    for ((&item, &weight), &sum) in tail_first {
        let point = (u64::from(hash4(bucket, x, item as u32, r, bucket.id as u32) & 0xffff) * u64::from(sum)) >> 16;
        if point < u64::from(weight) {
            return Some(item);
        }
    }
    bucket.items.first().copied()
}

fn draw_tree(bucket: &Bucket, nodes: &[u32], x: u32, r: u32) -> Option<i32> {
    let weight_of = |node: usize| nodes.get(node).copied().unwrap_or(0);
    let mut node = nodes.len() >> 1;
    while node & 1 == 0 && node != 0 {
        let hash = hash4(bucket, x, node as u32, r, bucket.id as u32);
        let point = (u64::from(hash) * u64::from(weight_of(node))) >> 32;
        let half = 1usize << (node.trailing_zeros() - 1);
        node = if point < u64::from(weight_of(node - half)) { node - half } else { node + half };
    }
    bucket.items.get(node >> 1).copied()
}

fn draw_straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> Option<i32> {
    let mut best: Option<(u64, i32)> = None;
    for (&item, &straw) in bucket.items.iter().zip(straws) {
        let length = u64::from(hash3(bucket, x, item as u32, r) & 0xffff) * u64::from(straw);
        if best.is_none_or(|(longest, _)| length > longest) {
            best = Some((length, item));
        }
    }
    best.map(|(_, item)| item)
}

fn draw_straw2(
    bucket: &Bucket,
    own_weights: &[u32],
    x: u32,
    r: u32,
    replaced: Option<&ChooseArg>,
    position: usize,
) -> Option<i32> {
    let set = replaced.and_then(|arg| arg.weight_set.get(position).or(arg.weight_set.last()));
    let weights = set.map_or(own_weights, Vec::as_slice);
    let ids = replaced.map(|arg| arg.ids.as_slice()).filter(|ids| !ids.is_empty()).unwrap_or(&bucket.items);
    let mut best: Option<(i64, i32)> = None;
    for (i, &item) in bucket.items.iter().enumerate() {
        let weight = weights.get(i).copied().unwrap_or(0);
        let id = ids.get(i).copied().unwrap_or(item);
        let length = match weight {
            0 => i64::MIN,
            // Upstream hands the weight on as a signed int: from 2^31 it divides as a negative one.
            w => straw2_length(hash3(bucket, x, id as u32, r) as u16) / i64::from(w as i32),
        };
        if best.is_none_or(|(longest, _)| length > longest) {
            best = Some((length, item));
        }
    }
    best.map(|(_, item)| item)
}

/// An exponentially distributed draw: 2^44 * log2((u + 1) / 2^16), never above 0.
fn straw2_length(u: u16) -> i64 {
    log2_44(u) as i64 - (1 << 48)
}
