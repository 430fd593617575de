//! Items in and out of one bucket, with the sums and lengths each algorithm keeps.
//!
//! Holds: `weight` is the sum of the items' weights; a bucket that returned an error is unchanged.
//! Upstream: src/crush/builder.c. Two of its slips are not repeated: memory of grown trees starts as 0, and reweighing
//! also corrects the inner sums of `list` and `tree` buckets.

use crate::{Alg, Bucket, CrushError};

/// `tree` counts its nodes in a byte.
const TREE_ITEMS_MAX: usize = 64;

impl Alg {
    /// The algorithm of that number, for an empty bucket.
    pub fn from_number(number: u8) -> Option<Alg> {
        Some(match number {
            1 => Alg::Uniform { item_weight: 0 },
            2 => Alg::List { item_weights: Vec::new(), sum_weights: Vec::new() },
            3 => Alg::Tree { node_weights: Vec::new() },
            4 => Alg::Straw { item_weights: Vec::new(), straws: Vec::new() },
            5 => Alg::Straw2 { item_weights: Vec::new() },
            _ => return None,
        })
    }

    /// The algorithm of that name, for an empty bucket.
    pub fn parse(name: &str) -> Option<Alg> {
        (1..=5).filter_map(Alg::from_number).find(|alg| alg.name() == name)
    }
}

impl Bucket {
    /// A bucket with these items and weights (16.16 fixed point). `alg` only says which algorithm.
    ///
    /// Errors: unequal weights in a `uniform` bucket, over 64 items in a `tree`, a sum over 32 bits.
    pub fn new(id: i32, kind: u16, alg: &Alg, items: &[(i32, u32)], straw_calc: u8) -> Result<Bucket, CrushError> {
        let empty = Alg::from_number(alg.number()).ok_or(CrushError::Algorithm)?;
        let mut bucket = Bucket { id, kind, hash: 0, weight: 0, items: Vec::new(), alg: empty };
        if let (Alg::Uniform { item_weight }, Some(&(_, weight))) = (&mut bucket.alg, items.first()) {
            *item_weight = weight;
        }
        for &(item, weight) in items {
            bucket.push(item, weight)?;
        }
        bucket.measure_straws(straw_calc);
        Ok(bucket)
    }

    /// Appends an item; the caller measures straws afterwards.
    pub(crate) fn push(&mut self, item: i32, weight: u32) -> Result<(), CrushError> {
        let total = self.weight.checked_add(weight).ok_or(CrushError::Weight)?;
        match &mut self.alg {
            Alg::Uniform { item_weight } if *item_weight != weight => return Err(CrushError::Algorithm),
            Alg::Uniform { .. } => {}
            Alg::List { item_weights, sum_weights } => {
                item_weights.push(weight);
                sum_weights.push(total);
            }
            Alg::Tree { .. } if self.items.len() >= TREE_ITEMS_MAX => return Err(CrushError::Algorithm),
            Alg::Tree { node_weights } => {
                let mut leaves = tree_leaves(node_weights, self.items.len());
                leaves.push(weight);
                *node_weights = tree_nodes(&leaves);
            }
            Alg::Straw { item_weights, straws } => {
                item_weights.push(weight);
                straws.push(0);
            }
            Alg::Straw2 { item_weights } => item_weights.push(weight),
        }
        self.items.push(item);
        self.weight = total;
        Ok(())
    }

    /// Takes the item at `pos` out; the caller measures straws afterwards. A `tree` keeps a hole (item 0 of weight 0)
    /// so that the others stay where they are, unless the hole is at its end.
    pub(crate) fn remove(&mut self, pos: usize) {
        if pos >= self.items.len() {
            return;
        }
        let weight = self.item_weight(pos);
        self.weight = self.weight.saturating_sub(weight);
        match &mut self.alg {
            Alg::Uniform { .. } => {}
            Alg::List { item_weights, sum_weights } => {
                item_weights.remove(pos);
                sum_weights.remove(pos);
                sum_weights.iter_mut().skip(pos).for_each(|sum| *sum = sum.saturating_sub(weight));
            }
            Alg::Tree { node_weights } => {
                let mut leaves = tree_leaves(node_weights, self.items.len());
                leaves.iter_mut().skip(pos).take(1).for_each(|leaf| *leaf = 0);
                while leaves.last() == Some(&0) {
                    leaves.pop();
                }
                *node_weights = tree_nodes(&leaves);
                self.items.iter_mut().skip(pos).take(1).for_each(|item| *item = 0);
                self.items.truncate(leaves.len());
                return;
            }
            Alg::Straw { item_weights, straws } => {
                item_weights.remove(pos);
                straws.remove(pos);
            }
            Alg::Straw2 { item_weights } => {
                item_weights.remove(pos);
            }
        }
        self.items.remove(pos);
    }

    /// Gives the item at `pos` another weight, in a `uniform` bucket all of them. The caller measures straws afterwards.
    pub(crate) fn set_item_weight(&mut self, pos: usize, weight: u32) -> Result<(), CrushError> {
        let size = self.items.len();
        if pos >= size {
            return Ok(());
        }
        let old = self.item_weight(pos);
        let total = match self.alg {
            Alg::Uniform { .. } => u32::try_from(size).ok().and_then(|n| weight.checked_mul(n)),
            _ => self.weight.saturating_sub(old).checked_add(weight),
        };
        self.weight = total.ok_or(CrushError::Weight)?;
        match &mut self.alg {
            Alg::Uniform { item_weight } => *item_weight = weight,
            Alg::List { item_weights, sum_weights } => {
                replace(item_weights, pos, weight);
                *sum_weights = running_sums(item_weights);
            }
            Alg::Tree { node_weights } => {
                let mut leaves = tree_leaves(node_weights, size);
                replace(&mut leaves, pos, weight);
                *node_weights = tree_nodes(&leaves);
            }
            Alg::Straw { item_weights, .. } | Alg::Straw2 { item_weights } => replace(item_weights, pos, weight),
        }
        Ok(())
    }

    /// Works the straw lengths of a `straw` bucket out anew, by version 0 or 1 of the tunable; others have none.
    pub(crate) fn measure_straws(&mut self, version: u8) {
        if let Alg::Straw { item_weights, straws } = &mut self.alg {
            *straws = straw_lengths(item_weights, version);
        }
    }
}

fn replace(weights: &mut [u32], pos: usize, weight: u32) {
    if let Some(slot) = weights.get_mut(pos) {
        *slot = weight;
    }
}

fn running_sums(weights: &[u32]) -> Vec<u32> {
    let sum = |total: &mut u32, &w: &u32| {
        *total = total.wrapping_add(w);
        Some(*total)
    };
    weights.iter().scan(0, sum).collect()
}

fn tree_leaves(nodes: &[u32], size: usize) -> Vec<u32> {
    (0..size).map(|i| nodes.get(2 * i + 1).copied().unwrap_or(0)).collect()
}

/// All nodes of a tree over these leaves. Node n at height h (its trailing zeros) sums the nodes n ± 2^(h-1).
fn tree_nodes(leaves: &[u32]) -> Vec<u32> {
    if leaves.is_empty() {
        return Vec::new();
    }
    let count = 2 * leaves.len().next_power_of_two();
    let mut nodes = vec![0u32; count];
    for (i, &weight) in leaves.iter().enumerate() {
        let mut node = 2 * i + 1;
        while node < count {
            if let Some(sum) = nodes.get_mut(node) {
                *sum = sum.wrapping_add(weight);
            }
            if node == count / 2 {
                break;
            }
            let step = 1 << node.trailing_zeros();
            node = if node & (step << 1) != 0 { node - step } else { node + step };
        }
    }
    nodes
}

/// The lengths by which `straw` draws are scaled: each weight's share worked out level by level, lightest first. Both
/// versions are known to be unfair; what counts is that they are what the map's other readers expect.
fn straw_lengths(weights: &[u32], version: u8) -> Vec<u32> {
    let mut lengths = vec![0u32; weights.len()];
    let mut order: Vec<(usize, u32)> = weights.iter().copied().enumerate().collect();
    order.sort_by_key(|&(_, weight)| weight);
    let mut straw = 1.0f64;
    let mut below = 0.0f64;
    let mut level = 0.0f64;
    let mut left = weights.len() as u32;
    for (rank, &(i, weight)) in order.iter().enumerate() {
        if weight == 0 {
            if version >= 1 {
                left -= 1;
            }
            continue;
        }
        replace(&mut lengths, i, low_half(straw * 65536.0));
        let Some(&(_, next)) = order.get(rank + 1) else { break };
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - level) * f64::from(left);
        left -= match version {
            0 => order.iter().filter(|&&(_, w)| w == next).count() as u32,
            _ => 1,
        };
        // Upstream multiplies in 32 bits.
        let above = f64::from(left.wrapping_mul(next - weight));
        straw *= (1.0 / (below / (below + above))).powf(1.0 / f64::from(left));
        level = f64::from(weight);
    }
    lengths
}

/// A length as x86-64 builds of stock store one that is too large for 32 bits: its low half, or 0 beyond 63 bits.
fn low_half(length: f64) -> u32 {
    if length < 9.0e18 { length as i64 as u32 } else { 0 }
}
