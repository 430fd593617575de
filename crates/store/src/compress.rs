//! Compression: what is compressed, how, and when it is worth it. Plain functions on bytes.
//!
//! Upstream: src/compressor/Compressor.h for numbers and names, BlueStore::_choose_write_options for what follows from options and hints.

use crate::onode::{BLOCK, SEG_BLOCKS};
use crate::txn::AllocHint;

/// How hard zlib and zstd try: upstream's defaults (`compressor_zlib_level`, `compressor_zstd_level`).
const ZLIB_LEVEL: u8 = 5;
const ZSTD_LEVEL: i32 = 1;

/// When to compress (`compression_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompressionMode {
    #[default]
    None,
    /// Objects that a client hints to be compressible.
    Passive,
    /// All but those that a client hints to be incompressible.
    Aggressive,
    /// All.
    Force,
}

impl CompressionMode {
    /// The mode that options call so.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "none" => Self::None,
            "passive" => Self::Passive,
            "aggressive" => Self::Aggressive,
            "force" => Self::Force,
            _ => return None,
        })
    }
}

/// How to compress (`compression_algorithm`); the numbers are upstream's, and on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum Algorithm {
    #[default]
    Snappy = 1,
    Zlib = 2,
    Zstd = 3,
    Lz4 = 4,
}

impl Algorithm {
    pub const ALL: [Algorithm; 4] = [Algorithm::Snappy, Algorithm::Zlib, Algorithm::Zstd, Algorithm::Lz4];

    /// The algorithm that options call so.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "snappy" => Self::Snappy,
            "zlib" => Self::Zlib,
            "zstd" => Self::Zstd,
            "lz4" => Self::Lz4,
            _ => return None,
        })
    }

    pub(crate) fn from_number(n: u8) -> Option<Self> {
        Algorithm::ALL.into_iter().find(|a| *a as u8 == n)
    }

    /// `None` if the library fails, which is no news: the data is stored as it is then.
    pub(crate) fn compress(self, data: &[u8]) -> Option<Vec<u8>> {
        match self {
            Algorithm::Snappy => snap::raw::Encoder::new().compress_vec(data).ok(),
            Algorithm::Zlib => Some(miniz_oxide::deflate::compress_to_vec_zlib(data, ZLIB_LEVEL)),
            Algorithm::Zstd => zstd::bulk::compress(data, ZSTD_LEVEL).ok(),
            Algorithm::Lz4 => Some(lz4_flex::block::compress(data)),
        }
    }

    /// The `len` bytes that were compressed to `data`; `None` if it was not that many, or no such data.
    pub(crate) fn decompress(self, data: &[u8], len: usize) -> Option<Vec<u8>> {
        let out = match self {
            Algorithm::Snappy => {
                if snap::raw::decompress_len(data).ok()? != len {
                    return None;
                }
                snap::raw::Decoder::new().decompress_vec(data).ok()?
            }
            Algorithm::Zlib => miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(data, len).ok()?,
            Algorithm::Zstd => zstd::bulk::decompress(data, len).ok()?,
            Algorithm::Lz4 => lz4_flex::block::decompress(data, len).ok()?,
        };
        (out.len() == len).then_some(out)
    }
}

/// What to do with data that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    pub mode: CompressionMode,
    pub algorithm: Algorithm,
    /// Millionths of its size to which data must shrink, rounded up to blocks (`compression_required_ratio`).
    pub required_ratio_ppm: u32,
    /// Bytes that are compressed together (`compression_min_blob_size`), and those of objects that are read from front to back
    /// and never written again (`compression_max_blob_size`). From two blocks to a segment of 256 KiB, whatever is said here.
    pub min_blob_size: u32,
    pub max_blob_size: u32,
}

impl Default for Compression {
    fn default() -> Self {
        Compression {
            mode: CompressionMode::None,
            algorithm: Algorithm::Snappy,
            required_ratio_ppm: 875_000,
            min_blob_size: 8 << 10,
            max_blob_size: 64 << 10,
        }
    }
}

impl Compression {
    /// True if an object with these hints is compressed.
    pub(crate) fn wants(&self, hint: &AllocHint) -> bool {
        match self.mode {
            CompressionMode::None => false,
            CompressionMode::Passive => hint.flags & AllocHint::COMPRESSIBLE != 0,
            CompressionMode::Aggressive => hint.flags & AllocHint::INCOMPRESSIBLE == 0,
            CompressionMode::Force => true,
        }
    }

    /// Blocks that are compressed together.
    pub(crate) fn run_blocks(&self, hint: &AllocHint) -> u64 {
        let has = |flag| hint.flags & flag != 0;
        let reads_on = has(AllocHint::SEQUENTIAL_READ) && !has(AllocHint::RANDOM_READ);
        let stays = has(AllocHint::IMMUTABLE | AllocHint::APPEND_ONLY) && !has(AllocHint::RANDOM_WRITE);
        let bytes = if reads_on && stays { self.max_blob_size } else { self.min_blob_size };
        match u64::from(bytes) / BLOCK {
            // Nothing said is no bound.
            0 if bytes == 0 => SEG_BLOCKS,
            blocks => blocks.clamp(2, SEG_BLOCKS),
        }
    }

    /// Whole blocks in fewer, if that is worth it.
    pub(crate) fn pack(&self, data: &[u8]) -> Option<Vec<u8>> {
        let blocks = data.len() as u64 / BLOCK;
        let most = (data.len() as u64 * u64::from(self.required_ratio_ppm)).div_ceil(1_000_000).div_ceil(BLOCK);
        let packed = self.algorithm.compress(data)?;
        let taken = (packed.len() as u64).div_ceil(BLOCK);
        (taken <= most && taken < blocks).then_some(packed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i / 7 % 50) as u8).collect()
    }

    #[test]
    fn every_algorithm_gives_back_what_it_was_given_and_no_other_length() {
        for (algorithm, number) in Algorithm::ALL.into_iter().zip(1..) {
            assert_eq!(Algorithm::from_number(number), Some(algorithm));
            let data = text(20_480);
            let packed = algorithm.compress(&data).unwrap();
            assert!(packed.len() < 10_000, "{algorithm:?}: {}", packed.len());
            assert_eq!(algorithm.decompress(&packed, data.len()).as_ref(), Some(&data));
            for len in [0, 4096, data.len() - 1, data.len() + 1] {
                assert_eq!(algorithm.decompress(&packed, len), None, "{algorithm:?} {len}");
            }
            assert_eq!(algorithm.decompress(&[], 4096), None);
        }
    }

    #[test]
    fn damaged_bytes_are_refused_or_wrong_but_never_a_panic() {
        for algorithm in Algorithm::ALL {
            let packed = algorithm.compress(&text(8192)).unwrap();
            for n in 0..packed.len() {
                let _ = algorithm.decompress(&packed[..n], 8192);
                let mut bad = packed.clone();
                bad[n] ^= 0x5a;
                let _ = algorithm.decompress(&bad, 8192);
            }
        }
    }

    #[test]
    fn what_does_not_become_small_enough_stays_as_it_is() {
        let noise: Vec<u8> = (0u32..32_768).map(|i| (i.wrapping_mul(2_654_435_761).rotate_left(7) ^ i) as u8).collect();
        let mixed: Vec<u8> = [&noise[..16_384], &[0; 16_384]].concat();
        let with = |required_ratio_ppm| Compression { required_ratio_ppm, algorithm: Algorithm::Lz4, ..Compression::default() };
        let incompressible: Vec<u8> = {
            use rand::{RngCore, SeedableRng};
            let mut v = vec![0; 32_768];
            rand_chacha::ChaCha8Rng::seed_from_u64(1).fill_bytes(&mut v);
            v
        };
        assert!(with(999_999).pack(&incompressible).is_none());
        assert!(with(875_000).pack(&text(32_768)).is_some());
        let half: Vec<u8> = [&incompressible[..16_384], &mixed[16_384..]].concat();
        assert!(with(700_000).pack(&half).is_some() && with(300_000).pack(&half).is_none());
        assert!(with(900_000).pack(&[0; 4096]).is_none(), "one block is one block");
    }

    #[test]
    fn modes_go_by_hints() {
        let hint = |flags| AllocHint { flags, ..AllocHint::default() };
        let with = |mode| Compression { mode, ..Compression::default() };
        let (plain, yes, no) = (hint(0), hint(AllocHint::COMPRESSIBLE), hint(AllocHint::INCOMPRESSIBLE));
        let of = |mode| [&plain, &yes, &no].map(|h| with(mode).wants(h));
        assert_eq!(of(CompressionMode::None), [false; 3]);
        assert_eq!(of(CompressionMode::Passive), [false, true, false]);
        assert_eq!(of(CompressionMode::Aggressive), [true, true, false]);
        assert_eq!(of(CompressionMode::Force), [true; 3]);
        let large = hint(AllocHint::SEQUENTIAL_READ | AllocHint::IMMUTABLE);
        let c = Compression { min_blob_size: 100, max_blob_size: 1 << 30, ..Compression::default() };
        assert_eq!((c.run_blocks(&plain), c.run_blocks(&large)), (2, 64));
    }
}
