//! Data that is brought to its place before the transaction that speaks of it is submitted.
//!
//! Owns: [`Placed`].   Hears: data, the device.   Says: `StoreEvent::Placed`, when a flush of the device has covered it.
//! Holds: a placed block is whoever's who placed it, until a transaction takes it over or it is given back. No database knows of it before, so a
//! crash gives it back.
//! Why: transactions of a collection become durable in their order. One that waits for a slow device keeps back all behind it, and a client's small
//! write needs nothing of the device but its log.

use crate::buf::zeros;
use crate::onode::BLOCK;
use crate::queue::Job;
use crate::store::{FlushFor, IoKind};
use crate::*;
use qos::Class;
use std::collections::VecDeque;
use types::{Now, PoolId};
use types::msg::BufList;

/// Something to be placed, numbered by the owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaceId(pub u64);

/// Blocks of the device that hold data nobody refers to yet. Who drops it loses them until the next mount: `Store::give_back`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placed {
    /// (first, count), in the order of the data.
    runs: VecDeque<(u64, u64)>,
}

impl Placed {
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Blocks in all.
    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|(_, n)| n).sum()
    }

    /// The runs, in the order of the data.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().copied()
    }

    /// Takes what the first `bytes` lie in; of the last block that is all of it. Nothing if there is less.
    pub fn split_to(&mut self, bytes: u64) -> Placed {
        let mut left = bytes.div_ceil(BLOCK);
        let mut out = Placed::default();
        if left > self.blocks() {
            return out;
        }
        while left > 0
            && let Some((first, n)) = self.runs.pop_front()
        {
            let now = n.min(left);
            out.runs.push_back((first, now));
            if now < n {
                self.runs.push_front((first + now, n - now));
            }
            left -= now;
        }
        out
    }
}

/// Something on its way to its place.
pub(crate) struct Placing {
    placed: Placed,
    /// Device writes not answered.
    ios: u32,
}

impl<D: BlockDev, K: Kv> Store<D, K> {
    /// Writes pieces to free space, each from the beginning of a block on; answered by `StoreEvent::Placed`. False, with nothing done, where the data had
    /// better go with its transaction: the log is what is slow (see `submit_bulk`), the pool compresses, or there is little room.
    pub fn place(&mut self, now: Now, id: PlaceId, class: Class, pool: PoolId, pieces: Vec<BufList>) -> bool {
        self.now = now.mono;
        let blocks: u64 = pieces.iter().map(|piece| (piece.len() as u64).div_ceil(BLOCK)).sum();
        let packs = self.policy_of(pool).compression.mode != CompressionMode::None;
        if self.poisoned.is_some() || packs || !self.is_log_quick() || blocks == 0 || blocks > self.alloc.free().saturating_sub(self.reserve()) {
            return false;
        }
        let mut all = BufList::default();
        for piece in pieces {
            let rest = (piece.len() as u64).next_multiple_of(BLOCK) as usize - piece.len();
            all.append(piece);
            if rest > 0 {
                all.push(zeros(rest));
            }
        }
        let runs = self.alloc.allocate(blocks);
        let mut cutter = buf::Cutter::new(all);
        for (first, n) in &runs {
            let io = self.io(IoKind::Place(id));
            self.want(class, io, Job::Write { off: first * BLOCK, data: cutter.take((n * BLOCK) as usize) });
        }
        let ios = runs.len() as u32;
        self.placing.insert(id, Placing { placed: Placed { runs: runs.into() }, ios });
        true
    }

    /// What was placed is not wanted any more.
    pub fn give_back(&mut self, placed: Placed) {
        let blocks = placed.runs.into_iter().flat_map(|(first, n)| first..first + n).collect();
        self.release(blocks);
    }

    pub(crate) fn handle_place_written(&mut self, id: PlaceId) {
        let Some(placing) = self.placing.get_mut(&id) else { return };
        placing.ios -= 1;
        if placing.ios == 0 {
            self.dev_waiting.push(FlushFor::Place(id));
        }
    }

    pub(crate) fn handle_place_flushed(&mut self, id: PlaceId) {
        if let Some(Placing { placed, .. }) = self.placing.remove(&id) {
            self.events.push_back(StoreEvent::Placed { id, placed });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_taken_in_order_and_never_in_part() {
        let mut placed = Placed { runs: [(10, 3), (20, 2)].into() };
        assert_eq!(placed.split_to(1).runs, [(10, 1)]);
        assert_eq!(placed.split_to(3 * BLOCK).runs, [(11, 2), (20, 1)]);
        // There is one block left.
        assert!(placed.split_to(BLOCK + 1).is_empty() && placed.split_to(0).is_empty());
        assert_eq!((placed.split_to(BLOCK).runs, placed.is_empty()), ([(21, 1)].into(), true));
    }
}
