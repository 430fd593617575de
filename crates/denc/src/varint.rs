//! Numbers in as many bytes as they need: seven bits in each, the lowest first, the highest bit set where more follow.
//!
//! Upstream: denc_varint in src/include/denc.h.

use crate::{DecodeError, Decoder};

/// Appends a number: one byte below 128, ten at most.
pub fn put_varint(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

/// Takes a number. `Invalid` if it has more than ten bytes.
pub fn varint(d: &mut Decoder<'_>) -> Result<u64, DecodeError> {
    let mut v = 0u64;
    for shift in (0..64).step_by(7) {
        let b: u8 = d.get()?;
        v |= u64::from(b & 0x7f) << shift;
        if b & 0x80 == 0 {
            return Ok(v);
        }
    }
    Err(DecodeError::Invalid("varint: too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_back() {
        for v in (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, (1 << bit) + 1]).chain([u64::MAX]) {
            let mut out = Vec::new();
            put_varint(&mut out, v);
            assert_eq!(out.len(), (64 - v.leading_zeros() as usize).div_ceil(7).max(1), "{v}");
            assert_eq!(varint(&mut Decoder::new(&out)), Ok(v));
            assert!(varint(&mut Decoder::new(&out[..out.len() - 1])).is_err());
        }
        assert!(varint(&mut Decoder::new(&[0xff; 20])).is_err());
    }
}
