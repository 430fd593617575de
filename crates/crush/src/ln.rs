//! The fixed-point logarithm behind straw2 draws.
//!
//! Holds: `log2_44` equals stock's for all 65,536 inputs. Its tables are computed here when the crate is compiled, with
//! the two places where stock's published tables differ from the mathematics written out: they are part of the
//! placement function now.
//! Upstream: crush_ln in src/crush/mapper.c, src/crush/crush_ln_table.h.

/// 2^48 / (1 + k/128), rounded up.
const RECIPROCAL: [u64; 129] = reciprocals();
/// 2^48 * log2(1 + k/128), rounded down, but for the last.
const COARSE: [u64; 129] = coarse();
/// 2^48 * log2(1 + k/2^15), rounded down, plus the error stock has shipped since straw2's first day.
const FINE: [u64; 256] = fine();

/// What stock's fine table is too high by, nearly everywhere.
const FINE_ERROR: u64 = 0x1_4770_0000;
/// Where that error is another one: (index, error).
const FINE_ERRORS: [(usize, u64); 44] = [
    (0, 0),
    (1, 0),
    (56, 5_349_423_536),
    (127, 978_272_901),
    (134, 3_588_789_669),
    (181, 4_007_963_589),
    (184, 5_423_282_367),
    (188, 2_201_924_427),
    (193, 3_829_329_171),
    (198, 2_511_158_322),
    (199, 2_670_353_280),
    (200, 3_807_665_765),
    (203, 0),
    (207, 5_045_407_031),
    (210, 4_635_559_696),
    (212, 3_670_382_108),
    (216, 0),
    (222, 0),
    (225, 3_209_098_745),
    (227, 1_514_328_394),
    (228, 2_662_093_655),
    (229, 561_838_844),
    (231, 3_537_203_772),
    (233, 0),
    (235, 4_861_921_003),
    (236, 5_281_046_906),
    (237, 0),
    (238, 0),
    (239, 0),
    (240, 2_650_193_885),
    (241, 4_203_558_265),
    (243, 0),
    (244, 0),
    (245, 0),
    (246, 0),
    (247, 362_109_528),
    (248, 0),
    (249, 0),
    (250, 0),
    (251, 0),
    (252, 0),
    (253, 0),
    (254, 0),
    (255, 0),
];

/// 2^44 * log2(u + 1), in the table precision that decides every straw2 draw.
#[allow(clippy::indexing_slicing)] // every index is masked or bounded by the line above it
pub(crate) fn log2_44(u: u16) -> u64 {
    let x = u64::from(u) + 1;
    // Move the leading one to bit 15; only u = 0xffff has it above.
    let up = (x as u16).leading_zeros() % 16;
    let x = x << up;
    let coarse = ((x >> 8) - 128) as usize;
    let fine = ((x * RECIPROCAL[coarse]) >> 48 & 0xff) as usize;
    (u64::from(15 - up) << 44) + ((COARSE[coarse] + FINE[fine]) >> 4)
}

/// The first 48 binary digits of log2(numerator / denominator), for a quotient in [1, 2).
const fn log2_48(numerator: u128, denominator: u128) -> u64 {
    let mut m = (numerator << 63) / denominator;
    let (mut digits, mut n) = (0u64, 0);
    while n < 48 {
        m *= m;
        let carry = (m >> 127) as u64;
        digits = digits << 1 | carry;
        m >>= 63 + carry;
        n += 1;
    }
    digits
}

#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const fn reciprocals() -> [u64; 129] {
    let mut out = [0; 129];
    let mut k = 0;
    while k < 129 {
        out[k] = (1u64 << 55).div_ceil(128 + k as u64);
        k += 1;
    }
    out
}

#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const fn coarse() -> [u64; 129] {
    let mut out = [0; 129];
    let mut k = 0;
    while k < 128 {
        out[k] = log2_48(128 + k as u128, 128);
        k += 1;
    }
    // log2(2) is a little less than 1 in stock's table.
    out[128] = 0xffff_0000_0000;
    out
}

#[allow(clippy::indexing_slicing)] // evaluated by the compiler
const fn fine() -> [u64; 256] {
    let mut out = [0; 256];
    let mut k = 0;
    while k < 256 {
        out[k] = log2_48((1 << 15) + k as u128, 1 << 15) + FINE_ERROR;
        k += 1;
    }
    let mut i = 0;
    while i < FINE_ERRORS.len() {
        let (k, error) = FINE_ERRORS[i];
        out[k] = out[k] - FINE_ERROR + error;
        i += 1;
    }
    out
}
