//! Checksums of blocks.
//!
//! Holds: a block is judged by the type it was written with, whatever is configured now.
//! Upstream: src/common/Checksummer.h, whose numbers and names these are.

use crate::onode::{BLOCK, Block};
use bytes::Bytes;
use types::msg::BufList;
use xxhash_rust::{xxh32::xxh32, xxh64::xxh64};

/// How blocks are checked (`csum_type`, `bluestore_csum_type`); the numbers are those of a pool's setting, and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Csum {
    /// Not at all: what the device returns is believed.
    None = 1,
    Xxhash32 = 2,
    /// Of which 48 bits are kept.
    Xxhash64 = 3,
    #[default]
    Crc32c = 4,
    /// The low 16 bits of it.
    Crc32c16 = 5,
    /// The low 8 bits of it.
    Crc32c8 = 6,
}

impl Csum {
    pub const ALL: [Csum; 6] = [Csum::None, Csum::Xxhash32, Csum::Xxhash64, Csum::Crc32c, Csum::Crc32c16, Csum::Crc32c8];

    /// As options name it.
    pub fn name(self) -> &'static str {
        match self {
            Csum::None => "none",
            Csum::Xxhash32 => "xxhash32",
            Csum::Xxhash64 => "xxhash64",
            Csum::Crc32c => "crc32c",
            Csum::Crc32c16 => "crc32c_16",
            Csum::Crc32c8 => "crc32c_8",
        }
    }

    /// The type of this number.
    pub fn from_number(n: i64) -> Option<Csum> {
        Csum::ALL.into_iter().find(|c| *c as i64 == n)
    }

    /// The type that options call so.
    pub fn from_name(name: &str) -> Option<Csum> {
        Csum::ALL.into_iter().find(|c| c.name() == name)
    }

    /// Bytes that a block's checksum takes on disk.
    pub(crate) fn len(self) -> usize {
        match self {
            Csum::None => 0,
            Csum::Xxhash64 => 6,
            Csum::Xxhash32 | Csum::Crc32c => 4,
            Csum::Crc32c16 => 2,
            Csum::Crc32c8 => 1,
        }
    }

    fn sum(self, data: &[u8]) -> u64 {
        match self {
            Csum::Crc32c => denc::crc32c(data).into(),
            Csum::None => 0,
            Csum::Xxhash32 => xxh32(data, u32::MAX).into(),
            Csum::Xxhash64 => xxh64(data, u64::MAX) & 0xffff_ffff_ffff,
            Csum::Crc32c16 => (denc::crc32c(data) & 0xffff).into(),
            Csum::Crc32c8 => (denc::crc32c(data) & 0xff).into(),
        }
    }
}

impl Block {
    /// A plain block that holds `data`.
    pub fn of(phys: u64, csum: Csum, data: &[u8]) -> Block {
        Block::with_sum(phys, csum, csum.sum(data))
    }

    /// One that never reads as what it holds, for that was made of something unreadable: whatever the type of others, its
    /// checksum is a crc32c, and the wrong one.
    pub fn spoilt(phys: u64, data: &[u8]) -> Block {
        Block { phys, crc: !denc::crc32c(data), ..Block::default() }
    }

    /// The whole checksum.
    pub fn sum(&self) -> u64 {
        u64::from(self.crc) | u64::from(self.high) << 32
    }

    pub fn with_sum(phys: u64, csum: Csum, sum: u64) -> Block {
        Block { phys, crc: sum as u32, high: (sum >> 32) as u16, csum, at: 0 }
    }

    /// True if that is what the block should hold, as far as its checksum tells.
    pub fn is(&self, data: &[u8]) -> bool {
        match self.csum {
            Csum::Crc32c => denc::crc32c(data) == self.crc,
            csum => csum.sum(data) == self.sum(),
        }
    }

    /// For reports: what its checksum would be if that were its content.
    pub fn sum_if(&self, data: &[u8]) -> u32 {
        self.csum.sum(data) as u32
    }
}

/// crc32c of what was read if it is what the blocks should hold, as far as that can be told of all at once: memory is read twice as quickly in one run as
/// block by block, and the checksum of all follows from theirs. `None`: each has to be asked.
pub(crate) fn sum_if_right(blocks: &[Block], data: &[u8]) -> Option<u32> {
    if !blocks.iter().all(|b| b.csum == Csum::Crc32c) || data.len() as u64 != blocks.len() as u64 * BLOCK {
        return None;
    }
    let sum = blocks.iter().fold(0, |crc, b| denc::crc32c_concat(crc, b.crc, BLOCK));
    (sum == denc::crc32c(data)).then_some(sum)
}

/// The blocks of a list whose length is a multiple of the block, checked so; their numbers begin with `first`.
pub(crate) fn blocks_of(list: &BufList, csum: Csum, first: u64, mut each: impl FnMut(Block)) {
    if csum == Csum::Crc32c {
        let mut phys = first;
        return crate::buf::block_crcs(list, |crc| {
            each(Block { phys, crc, ..Block::default() });
            phys += 1;
        });
    }
    let mut cutter = crate::buf::Cutter::new(list.clone());
    for i in 0..list.len() as u64 / BLOCK {
        let data: Bytes = cutter.take(BLOCK as usize).contiguous();
        each(Block::of(first + i, csum, &data));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_upstream_s_by_number_and_name() {
        for (number, name) in [(1, "none"), (2, "xxhash32"), (3, "xxhash64"), (4, "crc32c"), (5, "crc32c_16"), (6, "crc32c_8")] {
            let csum = Csum::from_number(number).unwrap();
            assert_eq!((csum.name(), Csum::from_name(name)), (name, Some(csum)));
        }
        assert_eq!((Csum::from_number(0), Csum::from_number(7), Csum::from_name("md5")), (None, None, None));
    }

    #[test]
    fn each_type_knows_its_content_and_none_knows_nothing() {
        let data = vec![7u8; BLOCK as usize];
        let mut other = data.clone();
        other[99] ^= 4;
        for csum in Csum::ALL {
            let block = Block::of(9, csum, &data);
            assert!(block.is(&data));
            assert_eq!(block.is(&other), csum == Csum::None, "{csum:?}");
            assert_eq!(block, Block::with_sum(9, csum, block.sum()));
            assert!(csum.len() == 8 || block.sum() >> (8 * csum.len()) == 0, "it fits on disk");
        }
        assert!(!Block::spoilt(9, &data).is(&data));
    }

    #[test]
    fn a_run_is_what_it_should_be_if_each_of_its_blocks_is() {
        let all: Vec<u8> = (0..5 * BLOCK).map(|i| (i * 7 % 251) as u8).collect();
        let blocks_as = |csum| all.chunks(BLOCK as usize).zip(5..).map(|(data, phys)| Block::of(phys, csum, data)).collect::<Vec<_>>();
        let blocks = blocks_as(Csum::Crc32c);
        let part = |from: u64, to: u64| &all[(from * BLOCK) as usize..(to * BLOCK) as usize];
        assert_eq!(sum_if_right(&blocks, &all), Some(denc::crc32c(&all)));
        assert_eq!(sum_if_right(&blocks[1..3], part(1, 3)), Some(denc::crc32c(part(1, 3))));
        assert_eq!((sum_if_right(&blocks, part(1, 5)), sum_if_right(&blocks[1..], &all)), (None, None), "of another length");
        assert_eq!(sum_if_right(&blocks[1..3], part(0, 2)), None, "of another place");
        for at in (0..all.len()).step_by(617) {
            let mut other = all.clone();
            other[at] ^= 0x10;
            assert_eq!(sum_if_right(&blocks, &other), None, "{at}");
        }
        let mut swapped = all.clone();
        swapped.rotate_left(BLOCK as usize);
        assert_eq!(sum_if_right(&blocks, &swapped), None);
        // Others are asked one by one.
        assert_eq!((sum_if_right(&blocks_as(Csum::Xxhash64), &all), sum_if_right(&blocks_as(Csum::None), &all)), (None, None));
    }

    #[test]
    fn lists_are_checked_block_by_block_whatever_their_pieces() {
        let all: Vec<u8> = (0..3 * BLOCK).map(|i| (i * 7 % 251) as u8).collect();
        let mut list = BufList::default();
        all.chunks(1000).for_each(|piece| list.push(Bytes::copy_from_slice(piece)));
        for csum in Csum::ALL {
            let mut found = Vec::new();
            blocks_of(&list, csum, 5, |block| found.push(block));
            let expected = all.chunks(BLOCK as usize).zip(5..).map(|(data, phys)| Block::of(phys, csum, data));
            assert!(found.into_iter().eq(expected));
        }
    }
}
