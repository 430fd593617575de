//! Comparing and checksumming, without the object: pure functions on bytes.
//!
//! Upstream: src/common/Checksummer.h; PrimaryLogPG::do_xattr_cmp_*.

use bytes::Bytes;
use denc::{Decoder, Encoder};
use std::cmp::Ordering;
use types::Errno;

/// A checksum algorithm with its initial value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksummer {
    Xxhash32(u32),
    Xxhash64(u64),
    Crc32c(u32),
}

impl Checksummer {
    /// `kind` is `CEPH_OSD_CHECKSUM_OP_TYPE_*`; the initial value is at the front of `input`. EINVAL otherwise.
    pub fn new(kind: u8, input: &[u8]) -> Result<Self, Errno> {
        let mut d = Decoder::new(input);
        let sums = match kind {
            0 => d.get().map(Checksummer::Xxhash32),
            1 => d.get().map(Checksummer::Xxhash64),
            2 => d.get().map(Checksummer::Crc32c),
            _ => return Err(Errno::EINVAL),
        };
        sums.map_err(|_| Errno::EINVAL)
    }

    /// Count and values, one per chunk; `chunk` 0 is all in one. Nothing has no chunk.
    pub fn run(self, data: &[u8], chunk: usize) -> Bytes {
        let chunk = if chunk == 0 { data.len() } else { chunk };
        let count = data.len().checked_div(chunk).unwrap_or(0);
        let mut e = Encoder::with_capacity(0, 4 + count * 8);
        e.count(count);
        for piece in data.chunks_exact(chunk.max(1)).take(count) {
            match self {
                Checksummer::Xxhash32(seed) => e.put(&xxhash_rust::xxh32::xxh32(piece, seed)),
                Checksummer::Xxhash64(seed) => e.put(&xxhash_rust::xxh64::xxh64(piece, seed)),
                // Upstream's crc32c neither inverts its seed nor its result.
                Checksummer::Crc32c(seed) => e.put(&!denc::crc32c_append(!seed, piece)),
            };
        }
        e.finish()
    }
}

/// True if `left op right` holds; `op` is `CEPH_OSD_CMPXATTR_OP_*`, EINVAL if it is none.
pub fn holds(op: u8, order: Ordering) -> Result<bool, Errno> {
    Ok(match op {
        1 => order.is_eq(),
        2 => order.is_ne(),
        3 => order.is_gt(),
        4 => order.is_ge(),
        5 => order.is_lt(),
        6 => order.is_le(),
        _ => return Err(Errno::EINVAL),
    })
}

/// The decimal number at the front of an attribute, as `strtoull` reads it; 0 if there is none.
pub fn leading_u64(text: &[u8]) -> u64 {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let value = digits
        .iter()
        .take_while(|c| c.is_ascii_digit())
        .try_fold(0u64, |n, c| n.checked_mul(10)?.checked_add(u64::from(c - b'0')));
    match value {
        None => u64::MAX,
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_come_one_per_chunk_behind_their_count() {
        let sums = Checksummer::new(2, &u32::MAX.to_le_bytes()).unwrap();
        let whole = sums.run(b"123456789", 0);
        // The well-known crc32c check value, not inverted at the end.
        assert_eq!(whole[..], [&1u32.to_le_bytes()[..], &(!0xe306_9283u32).to_le_bytes()].concat());
        assert_eq!(sums.run(b"123456", 2).len(), 4 + 3 * 4);
        assert_eq!(Checksummer::new(1, &[0; 8]).unwrap().run(b"", 0)[..], [0; 4]);
    }

    #[test]
    fn a_checksum_without_initial_value_or_of_unknown_kind_is_refused() {
        assert_eq!(Checksummer::new(1, &[0; 4]), Err(Errno::EINVAL));
        assert_eq!(Checksummer::new(3, &[0; 8]), Err(Errno::EINVAL));
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let cases: [(&[u8], u64); 6] =
            [(b"", 0), (b"12", 12), (b" 7x", 7), (b"x", 0), (b"99999999999999999999", u64::MAX), (b"-1", u64::MAX)];
        for (text, value) in cases {
            assert_eq!(leading_u64(text), value);
        }
    }
}
