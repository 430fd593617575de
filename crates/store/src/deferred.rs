//! Deferred writes: blocks that are safe in the database and still have to reach their place.
//!
//! Holds: records leave from the front; a block is free again only when no record touches it any more.
//! Upstream: deferred_transaction_t, DeferredBatch in src/os/bluestore/BlueStore.h.

use crate::buf::zeros;
use crate::block_cache::BlockHasher;
use crate::onode::BLOCK;
use bytes::{Bytes, BytesMut};
use denc::{DecodeError, Decoder};
use qos::Class;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasherDefault;
use types::Mono;
use types::msg::BufList;

/// A record in the database.
pub(crate) struct Record {
    pub seq: u64,
    /// On whose account it is written to its place.
    pub class: Class,
    pub blocks: Vec<(u64, Bytes)>,
}

impl Record {
    pub fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK
    }

    /// The record and its value; its blocks share the value's memory.
    pub fn build<'a>(pieces: &mut Pieces, seq: u64, class: Class, blocks: impl ExactSizeIterator<Item = (u64, &'a Bytes)> + Clone) -> (Record, Bytes) {
        let n = blocks.len();
        let out = pieces.room(4 + n * (8 + BLOCK as usize));
        out.extend_from_slice(&(n as u32).to_le_bytes());
        blocks.clone().for_each(|(phys, _)| out.extend_from_slice(&phys.to_le_bytes()));
        for (_, data) in blocks.clone() {
            assert_eq!(data.len() as u64, BLOCK, "deferred content is whole blocks");
            out.extend_from_slice(data);
        }
        let value = out.split().freeze();
        let slice = |i: usize| value.slice(4 + 8 * n + i * BLOCK as usize..4 + 8 * n + (i + 1) * BLOCK as usize);
        let blocks = blocks.enumerate().map(|(i, (phys, _))| (phys, slice(i))).collect();
        (Record { seq, class, blocks }, value)
    }

    /// Of a record found at mount it is not known any more whose it was: nobody's account suffers from a client's.
    pub fn parse(seq: u64, value: &Bytes) -> Result<Record, DecodeError> {
        let mut d = Decoder::shared(value);
        let n = d.count()?;
        let mut at = Vec::with_capacity(d.capacity_for(n, 8));
        for _ in 0..n {
            at.push(d.get::<u64>()?);
        }
        let mut blocks = Vec::with_capacity(at.len());
        for phys in at {
            blocks.push((phys, d.bytes(BLOCK as usize)?));
        }
        d.finish()?;
        Ok(Record { seq, class: Class::Client, blocks })
    }
}

/// Memory for records, in pieces that the C library maps apart: among small things that last, each record would leave a hole. They come and go in the same order.
#[derive(Default)]
pub(crate) struct Pieces(VecDeque<BytesMut>);

const PIECE: usize = 256 << 10;

impl Pieces {
    /// Empty, with room for so many bytes.
    fn room(&mut self, len: usize) -> &mut BytesMut {
        if self.0.back().is_none_or(|newest| newest.capacity() < len) {
            let len = len.max(PIECE);
            let is_free = self.0.front_mut().is_some_and(|oldest| oldest.try_reclaim(len));
            let oldest = if is_free { self.0.pop_front() } else { None };
            self.0.push_back(oldest.unwrap_or_else(|| BytesMut::with_capacity(len)));
        }
        self.0.back_mut().expect("there is one")
    }

    /// Keeps no more than so many bytes of those that nobody uses any more.
    pub fn keep_free(&mut self, bytes: u64) {
        let free = self.0.iter_mut().map_while(|piece| piece.try_reclaim(PIECE).then_some(())).count();
        let kept = bytes as usize / PIECE;
        self.0.drain(..free.saturating_sub(kept));
    }
}

/// What is known of a block that some record touches, or will.
pub(crate) struct DeferredBlock {
    /// The newest content; `None` while it is pending.
    pub data: Option<Bytes>,
    /// The write that the content is of; a transaction may write a block twice.
    pub write: u64,
    /// Records that touch it, those not applied yet included.
    pub live: u32,
    /// No object refers to it any more: free it when `live` gets to 0.
    pub freed: bool,
}

/// Records being written to the device.
pub(crate) struct Batch {
    pub records: Vec<Record>,
    /// Bytes that have not reached their place.
    pub bytes: u64,
    /// What is still to be written where: sorted, newest content of each block, neighbours together.
    runs: VecDeque<(Class, u64, BufList)>,
    /// Bytes on their way to the device.
    in_flight: u64,
}

impl Batch {
    /// The next device write, if there may be one more beside those on their way.
    pub fn next_write(&mut self, window: u64) -> Option<(Class, u64, BufList)> {
        let len = self.runs.front()?.2.len() as u64;
        if self.in_flight > 0 && self.in_flight + len > window {
            return None;
        }
        self.in_flight += len;
        self.runs.pop_front()
    }

    /// A device write has been answered.
    pub fn written(&mut self, bytes: u64) {
        self.in_flight -= bytes;
        self.bytes -= bytes;
    }

    /// True if nothing is on its way and nothing is left.
    pub fn is_written(&self) -> bool {
        self.in_flight == 0 && self.runs.is_empty()
    }
}

#[derive(Default)]
pub(crate) struct Deferred {
    pub blocks: HashMap<u64, DeferredBlock, BuildHasherDefault<BlockHasher>>,
    /// Applied, not yet in a batch.
    pub records: VecDeque<Record>,
    /// Records up to this one are durable.
    pub committed: u64,
    pub next_seq: u64,
    pub next_write: u64,
    pub batch: Option<Batch>,
    pub pieces: Pieces,
    /// Bytes in `records`.
    pub bytes: u64,
    /// Blocks that no object refers to, and that are free when their records are gone.
    pub held: u64,
    /// When last something was written through the log.
    pub written_at: Option<Mono>,
    /// Somebody waits for room in it.
    pub waits: bool,
}

impl Deferred {
    /// The newest content of a block, if it is here.
    pub fn content(&self, phys: u64) -> Option<Bytes> {
        self.blocks.get(&phys)?.data.clone()
    }

    /// A transaction will write the block through the log. The number of the write.
    pub fn expect(&mut self, phys: u64, data: Option<Bytes>) -> u64 {
        self.next_write += 1;
        let write = self.next_write;
        let b = self.blocks.entry(phys).or_insert(DeferredBlock { data: None, write, live: 0, freed: false });
        assert!(!b.freed, "block {phys} is written after it was freed");
        b.data = data;
        b.write = write;
        b.live += 1;
        write
    }

    /// The content that a write gave a block has become known, or lives elsewhere in memory now. If the block has been written
    /// again meanwhile, that is of no interest.
    pub fn fill(&mut self, phys: u64, write: u64, data: &Bytes) {
        if let Some(b) = self.blocks.get_mut(&phys).filter(|b| b.write == write) {
            b.data = Some(data.clone());
        }
    }

    /// No object refers to a block any more. False if no record touches it, so that it is free now.
    pub fn free(&mut self, phys: u64) -> bool {
        let Some(b) = self.blocks.get_mut(&phys) else { return false };
        self.held += u64::from(!b.freed);
        b.freed = true;
        true
    }

    /// A record is in the database's current state.
    pub fn push(&mut self, record: Record) {
        self.bytes += record.bytes();
        self.records.push_back(record);
    }

    /// Bytes not in their place yet: with what a batch has written they are gone, though the log has it until the batch is done. Else who waits for room
    /// would wait for a whole batch, seconds on a slow disk.
    pub fn total_bytes(&self) -> u64 {
        self.bytes + self.batch.as_ref().map_or(0, |b| b.bytes)
    }

    /// True if a batch would have something to do.
    pub fn has_committed(&self) -> bool {
        self.records.front().is_some_and(|r| r.seq <= self.committed)
    }

    /// Takes durable records of `batch_bytes` as a batch, or what there is: all of it stays in memory until all of it is written. Its device writes are of up to
    /// `run_bytes_max` each.
    pub fn start_batch(&mut self, batch_bytes: u64, run_bytes_max: u64) {
        let mut taken = 0;
        let fits = |r: &&Record| {
            let fits = r.seq <= self.committed && taken < batch_bytes;
            taken += r.bytes();
            fits
        };
        let n = self.records.iter().take_while(fits).count();
        let records: Vec<Record> = self.records.drain(..n).collect();
        self.bytes -= records.iter().map(Record::bytes).sum::<u64>();
        let mut newest = BTreeMap::new();
        for (class, (phys, data)) in records.iter().flat_map(|r| r.blocks.iter().map(|b| (r.class, b))) {
            if !self.blocks.get(phys).is_some_and(|b| b.freed) {
                newest.insert(*phys, (class, data.clone()));
            }
        }
        let mut runs: VecDeque<(Class, u64, BufList)> = VecDeque::new();
        for (phys, (class, data)) in newest {
            let full = |list: &BufList| list.len() as u64 + BLOCK > run_bytes_max;
            match runs.back_mut() {
                Some((of, first, list)) if *first + list.pieces().len() as u64 == phys && !full(list) => {
                    // What a client's blocks travel with, travels on its account.
                    *of = class.min(*of);
                    list.push(data);
                }
                _ => runs.push_back((class, phys, data.into())),
            }
        }
        let bytes = runs.iter().map(|(.., list)| list.len() as u64).sum();
        self.batch = Some(Batch { records, bytes, runs, in_flight: 0 });
    }

    /// One record touches the block no more. `Some` when it was the last: the content, and whether the block is free.
    pub fn drop_one(&mut self, phys: u64) -> Option<(Bytes, bool)> {
        let b = self.blocks.get_mut(&phys).expect("a record's block is known");
        b.live -= 1;
        if b.live > 0 {
            return None;
        }
        let b = self.blocks.remove(&phys)?;
        self.held -= u64::from(b.freed);
        Some((b.data.unwrap_or_else(|| zeros(0)), b.freed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(b: u8) -> Bytes {
        vec![b; BLOCK as usize].into()
    }

    #[test]
    fn records_read_back() {
        let (a, b) = (block(1), block(2));
        let (_, value) = Record::build(&mut Pieces::default(), 7, Class::Recovery, [(5, &a), (9, &b)].into_iter());
        let r = Record::parse(7, &value).unwrap();
        assert_eq!(r.blocks, [(5, a), (9, b)]);
        for n in [0, 3, 4, 20, value.len() - 1] {
            assert!(Record::parse(7, &value.slice(..n)).is_err());
        }
    }

    #[test]
    fn memory_of_records_is_used_again_and_given_back() {
        let mut pieces = Pieces::default();
        let data = block(1);
        let build = |pieces: &mut Pieces, seq: u64, blocks: u64| Record::build(pieces, seq, Class::Client, (0..blocks).map(|b| (b, &data)).collect::<Vec<_>>().into_iter());
        let mut records = VecDeque::new();
        for seq in 0..5000 {
            records.push_back(build(&mut pieces, seq, 1 + seq % 3));
            if records.len() > 300 {
                records.pop_front();
            }
        }
        // 600 blocks, and what is left of the oldest and of the newest; then with one that takes a piece by itself.
        assert!(pieces.0.len() <= 600 / 63 + 3, "{}", pieces.0.len());
        let large = build(&mut pieces, 5000, 100);
        pieces.keep_free(0);
        assert!(records.iter().chain([&large]).all(|(record, _)| record.blocks.iter().all(|(_, content)| *content == data)));
        records.clear();
        pieces.keep_free(3 * PIECE as u64);
        assert_eq!(pieces.0.len(), 4, "the large one is the last");
        drop(large);
        pieces.keep_free(0);
        assert_eq!(pieces.0.len(), 0);
    }

    #[test]
    fn a_batch_takes_no_more_than_it_should() {
        let mut d = Deferred { committed: 8, ..Deferred::default() };
        for seq in 0..10 {
            d.expect(seq, None);
            d.push(Record { seq, class: Class::Client, blocks: vec![(seq, block(1))] });
        }
        let mut taken = || {
            d.start_batch(4 * BLOCK, 1 << 20);
            d.batch.take().unwrap().records.len()
        };
        assert_eq!([taken(), taken(), taken()], [4, 4, 1], "one is not durable");
    }

    #[test]
    fn a_batch_writes_the_newest_content_once_and_neighbours_together() {
        let mut d = Deferred { committed: 3, ..Deferred::default() };
        for (seq, phys) in [(1, 10), (2, 11), (3, 10), (4, 12)] {
            d.expect(phys, None);
            let class = if seq == 2 { Class::Recovery } else { Class::Client };
            d.push(Record { seq, class, blocks: vec![(phys, block(seq as u8))] });
        }
        d.start_batch(1 << 20, 1 << 20);
        assert_eq!(d.batch.unwrap().runs, [(Class::Client, 10, BufList::from(vec![block(3), block(2)]))]);
        assert_eq!(d.records.len(), 1);
    }

    #[test]
    fn a_batch_goes_to_the_device_little_by_little() {
        let mut d = Deferred { committed: 99, ..Deferred::default() };
        for phys in 0..10 {
            d.expect(phys, None);
            d.push(Record { seq: phys, class: Class::Recovery, blocks: vec![(phys, block(1))] });
        }
        d.start_batch(1 << 20, 2 * BLOCK);
        let batch = d.batch.as_mut().unwrap();
        let window = 4 * BLOCK;
        let firsts: Vec<u64> = std::iter::from_fn(|| batch.next_write(window)).map(|(_, first, _)| first).collect();
        assert_eq!(firsts, [0, 2]);
        batch.written(2 * BLOCK);
        assert_eq!(batch.next_write(window).map(|(_, first, list)| (first, list.len() as u64)), Some((4, 2 * BLOCK)));
        assert!(batch.next_write(window).is_none());
        batch.written(4 * BLOCK);
        // However small the window, something goes.
        assert!(batch.next_write(1).is_some() && batch.next_write(1).is_none() && !batch.is_written());
        batch.written(2 * BLOCK);
        assert!(batch.next_write(1).is_some());
        batch.written(2 * BLOCK);
        assert!(batch.is_written());
    }
}
