//! Walking over bytes in pieces without copying them.

use bytes::Bytes;
use types::msg::{BLOCK_BYTES, BufList, Summing};

use crate::onode::BLOCK;

const _: () = assert!(BLOCK as usize == BLOCK_BYTES, "checksums that come with data are those of blocks");

static ZERO_BLOCK: [u8; BLOCK as usize] = [0; BLOCK as usize];

/// `n` zero bytes, at most a block, shared.
pub(crate) fn zeros(n: usize) -> Bytes {
    Bytes::from_static(&ZERO_BLOCK[..n])
}

/// A cursor that cuts a list of pieces into others.
pub(crate) struct Cutter {
    pieces: std::vec::IntoIter<Bytes>,
    head: Bytes,
    /// Length and checksum of what was not cut yet.
    whole: Option<(usize, u32)>,
    /// Of blocks from the beginning on; bytes that were cut off.
    block_crcs: Vec<u32>,
    at: usize,
}

impl Cutter {
    pub fn new(list: BufList) -> Self {
        let whole = list.crc().map(|crc| (list.len(), crc));
        let block_crcs = list.block_crcs().to_vec();
        Cutter { whole, pieces: list.into_pieces().into_iter(), head: Bytes::new(), block_crcs, at: 0 }
    }

    /// The next `n` bytes. Panics if there are fewer.
    pub fn take(&mut self, mut n: usize) -> BufList {
        let whole = self.whole.take().filter(|(len, _)| *len == n);
        let (from, to) = (self.at, self.at + n);
        self.at = to;
        let mut out = BufList::default();
        while n > 0 {
            if self.head.is_empty() {
                self.head = self.pieces.next().expect("a list as long as it said");
            }
            let piece = self.head.split_to(n.min(self.head.len()));
            n -= piece.len();
            out.push(piece);
        }
        if let Some((_, crc)) = whole {
            out.set_crc(crc);
        }
        if from.is_multiple_of(BLOCK_BYTES) {
            let blocks = from / BLOCK_BYTES..(to / BLOCK_BYTES).min(self.block_crcs.len());
            out.set_block_crcs(self.block_crcs.get(blocks).unwrap_or_default().to_vec());
        }
        out
    }
}

/// crc32c of each block of a list whose length is a multiple of the block.
pub(crate) fn block_crcs(list: &BufList, mut each: impl FnMut(u32)) {
    if let Some(crc) = list.crc().filter(|_| list.len() as u64 == BLOCK) {
        return each(crc);
    }
    if list.block_crcs().len() as u64 * BLOCK == list.len() as u64 {
        return list.block_crcs().iter().copied().for_each(each);
    }
    let mut sum = Summing::default();
    list.pieces().iter().for_each(|piece| sum.add(piece, BLOCK_BYTES, &mut each));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cutting_and_checksums_do_not_depend_on_the_pieces() {
        let all: Vec<u8> = (0..3 * BLOCK).map(|i| (i * 7 % 251) as u8).collect();
        let mut list = BufList::default();
        for piece in all.chunks(1000) {
            list.push(Bytes::copy_from_slice(piece));
        }
        let mut crcs = Vec::new();
        block_crcs(&list, |c| crcs.push(c));
        let want: Vec<u32> = all.chunks(BLOCK as usize).map(denc::crc32c).collect();
        assert_eq!(crcs, want);
        let mut cutter = Cutter::new(list);
        assert_eq!(cutter.take(1500).contiguous(), all[..1500]);
        assert_eq!(cutter.take(10_788).contiguous(), all[1500..]);
    }

    #[test]
    fn what_is_not_cut_keeps_its_checksum_and_a_block_is_not_summed_again() {
        let with = |crc, data: &[u8]| {
            let mut list = BufList::from(Bytes::copy_from_slice(data));
            list.set_crc(crc);
            list
        };
        let (block, more) = (zeros(BLOCK as usize), [7; 5000]);
        assert_eq!(Cutter::new(with(5, &more)).take(5000).crc(), Some(5));
        let mut cutter = Cutter::new(with(5, &more));
        assert_eq!((cutter.take(2000).crc(), cutter.take(3000).crc()), (None, None));
        let mut crcs = Vec::new();
        block_crcs(&with(9, &block), |c| crcs.push(c));
        block_crcs(&with(9, &[&block[..], &block].concat()), |c| crcs.push(c));
        assert_eq!(crcs, [9, denc::crc32c(&block), denc::crc32c(&block)]);
    }

    #[test]
    fn what_is_cut_between_blocks_keeps_their_checksums() {
        let block = |n: usize| n * BLOCK as usize;
        let mut list = BufList::from(vec![Bytes::from(vec![1; block(2) + 9]), Bytes::from(vec![2; block(2) + 100])]);
        list.set_block_crcs(vec![5, 6, 7, 8]);
        let cut = |lens: &[usize]| {
            let mut cutter = Cutter::new(list.clone());
            lens.iter().map(|len| cutter.take(*len).block_crcs().to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(cut(&[block(1), block(2), block(1), 109]), [vec![5], vec![6, 7], vec![8], vec![]]);
        assert_eq!(cut(&[1, block(1) - 1, block(1) + 1, block(1)]), [vec![], vec![], vec![6], vec![]]);
        let mut crcs = Vec::new();
        block_crcs(&Cutter::new(list).take(block(3)), |c| crcs.push(c));
        assert_eq!(crcs, [5, 6, 7], "not summed again");
    }
}
