//! crc32c (Castagnoli), the checksum of frames, blocks, maps and journals.
//!
//! Why this library: a 4 KiB write is summed a dozen times on its way to three disks, and this one does it several times
//! as fast as one that has the processor's crc instruction only (docs/benchmarks-log.md).

use crc_fast::{CrcAlgorithm, Digest};

/// The checksum as everybody writes it: inverted at the start and at the end.
pub fn crc32c(data: &[u8]) -> u32 {
    crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, data) as u32
}

/// The checksum of what `crc` is the checksum of, followed by `data`.
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(data);
    digest.finalize() as u32
}

/// The checksum of what `first` is the checksum of, followed by `len` bytes that have the checksum `second`.
pub fn crc32c_concat(first: u32, second: u32, len: u64) -> u32 {
    if len == 4096 {
        return times_4096_bytes(first) ^ second;
    }
    times_x_to(first, 8 * (len % ORDER)) ^ second
}

/// The checksum of what `crc` is the checksum of, followed by `n` zeros; or, if `n` is negative, without its last `-n`
/// bytes, which were zeros.
pub fn crc32c_zeros(crc: u32, n: i64) -> u32 {
    !times_x_to(!crc, 8 * n.rem_euclid(ORDER as i64) as u64)
}

/// Castagnoli's polynomial, the bits of a byte the other way round: bit 31 is 1, bit 30 is x, and so on.
const POLY: u32 = 0x82f6_3b78;
/// x to this power is 1: the polynomial is x + 1 times a primitive one of degree 31.
const ORDER: u64 = (1 << 31) - 1;
/// x to the powers 1, 2, 4, 8 and so on.
#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const POWERS: [u32; 31] = {
    let mut powers = [1 << 30; 31];
    let mut i = 1;
    while i < powers.len() {
        powers[i] = times(powers[i - 1], powers[i - 1]);
        i += 1;
    }
    powers
};

/// Blocks of 4 KiB come by the thousand: for each byte of a checksum, what 4096 bytes behind it make of it.
#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const BEFORE_4096_BYTES: [[u32; 256]; 4] = {
    let mut table = [[0; 256]; 4];
    let mut i = 0;
    while i < 1024 {
        table[i / 256][i % 256] = times(POWERS[15], ((i % 256) as u32) << (8 * (i / 256)));
        i += 1;
    }
    table
};

fn times_4096_bytes(crc: u32) -> u32 {
    BEFORE_4096_BYTES.iter().zip(crc.to_le_bytes()).fold(0, |sum, (row, byte)| sum ^ row.get(usize::from(byte)).copied().unwrap_or_default())
}

fn times_x_to(crc: u32, power: u64) -> u32 {
    let power = power % ORDER;
    POWERS.iter().enumerate().filter(|(i, _)| power >> i & 1 == 1).fold(crc, |crc, (_, p)| times(crc, *p))
}

/// The product of two polynomials, modulo Castagnoli's.
const fn times(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while b != 0 {
        product ^= a & (b >> 31).wrapping_neg();
        a = (a >> 1) ^ (POLY & (a & 1).wrapping_neg());
        b <<= 1;
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit by bit, as the polynomial says.
    fn slow(crc: u32, data: &[u8]) -> u32 {
        let bit = |c: u32| (c >> 1) ^ (0x82f6_3b78 & (c & 1).wrapping_neg());
        !data.iter().fold(!crc, |c, b| (0..8).fold(c ^ u32::from(*b), |c, _| bit(c)))
    }

    #[test]
    fn it_is_crc32c_of_any_length_in_any_pieces() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let data: Vec<u8> = (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for len in (0..600).chain([1000, 4095, 4096, 4097, 8192, 20_000]) {
            let (data, at) = (&data[..len], len * 2 / 3);
            let sum = slow(0, data);
            assert_eq!(crc32c(data), sum, "{len}");
            assert_eq!(crc32c_append(crc32c(&data[..at]), &data[at..]), sum, "{len}");
        }
        assert_eq!(crc32c_append(0x1234_5678, b""), 0x1234_5678);
    }

    #[test]
    fn checksums_of_pieces_make_the_checksum_of_all() {
        let data: Vec<u8> = (0..20_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let zeros = vec![0; 20_000];
        for len in (0..70).chain([4095, 4096, 4097, 8192, 20_000]) {
            for at in [0, len / 3, len / 2, len] {
                let (a, b) = data[..len].split_at(at);
                assert_eq!(crc32c_concat(crc32c(a), crc32c(b), b.len() as u64), crc32c(&data[..len]), "{at} of {len}");
            }
            let (short, long) = (crc32c(&data[..100]), crc32c_append(crc32c(&data[..100]), &zeros[..len]));
            assert_eq!(crc32c_zeros(short, len as i64), long, "{len}");
            assert_eq!(crc32c_zeros(long, -(len as i64)), short, "{len}");
        }
        for crc in (0..32).map(|bit| 1 << bit).chain([0, u32::MAX, 0x1234_5678]) {
            assert_eq!(crc32c_concat(crc, 9, 4096), times_x_to(crc, 8 * 4096) ^ 9, "{crc:x}");
        }
        // Longer than the order of x.
        let far = crc32c_zeros(crc32c_zeros(7, 5 << 30), 5 << 30);
        assert_eq!((crc32c_zeros(7, 10 << 30), crc32c_zeros(far, -(10 << 30))), (far, 7));
    }
}
