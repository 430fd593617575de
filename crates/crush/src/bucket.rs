//! Buckets: the inner nodes of the hierarchy, and the weights each algorithm keeps.
//!
//! Holds: every list of weights is as long as `items`; `tree` keeps node weights instead, items at its odd nodes.
//! Upstream: struct crush_bucket* in src/crush/crush.h.

/// An inner node (`crush_bucket`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Below zero; the bucket's place in `CrushMap::buckets` is -1 - id.
    pub id: i32,
    /// Number of its type (host, rack, ...), above zero; `CrushMap::type_names` has the names.
    pub kind: u16,
    /// Hash method; 0 (rjenkins1) in practice.
    pub hash: u8,
    /// Sum of the items' weights, 16.16 fixed point.
    pub weight: u32,
    /// Children: OSDs from 0 up, buckets below 0.
    pub items: Vec<i32>,
    /// Selection algorithm with its weights.
    pub alg: Alg,
}

/// The selection algorithm of a bucket and what it keeps per item (16.16 fixed point).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Alg {
    /// All items weigh the same; chosen by permutation.
    Uniform { item_weight: u32 },
    /// `sum_weights[i]` is the weight of the items up to and including `i`.
    List { item_weights: Vec<u32>, sum_weights: Vec<u32> },
    /// A binary tree laid out in order: item `i` is node `2i + 1`, inner nodes hold sums.
    Tree { node_weights: Vec<u32> },
    /// Draws scaled by precomputed lengths; flawed, kept for old maps.
    Straw { item_weights: Vec<u32>, straws: Vec<u32> },
    /// Independent draws: what everyone should use.
    Straw2 { item_weights: Vec<u32> },
}

impl Alg {
    /// Number on the wire (`crush_algorithm`).
    pub fn number(&self) -> u8 {
        match self {
            Alg::Uniform { .. } => 1,
            Alg::List { .. } => 2,
            Alg::Tree { .. } => 3,
            Alg::Straw { .. } => 4,
            Alg::Straw2 { .. } => 5,
        }
    }

    /// Name in text maps and dumps.
    pub fn name(&self) -> &'static str {
        match self {
            Alg::Uniform { .. } => "uniform",
            Alg::List { .. } => "list",
            Alg::Tree { .. } => "tree",
            Alg::Straw { .. } => "straw",
            Alg::Straw2 { .. } => "straw2",
        }
    }
}

impl Bucket {
    /// Number of items.
    pub fn size(&self) -> usize {
        self.items.len()
    }

    /// Weight of the item at position `pos`, 16.16 fixed point; 0 past the end.
    pub fn item_weight(&self, pos: usize) -> u32 {
        let weight = match &self.alg {
            Alg::Uniform { item_weight } => (pos < self.items.len()).then_some(item_weight),
            Alg::List { item_weights, .. } | Alg::Straw { item_weights, .. } | Alg::Straw2 { item_weights } => {
                item_weights.get(pos)
            }
            Alg::Tree { node_weights } => (pos < self.items.len()).then(|| node_weights.get(2 * pos + 1)).flatten(),
        };
        weight.copied().unwrap_or(0)
    }

    /// Position of `item`.
    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|&i| i == item)
    }
}
