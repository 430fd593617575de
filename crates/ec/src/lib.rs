//! Erasure coding: k data chunks, m parity chunks, any k of them are enough.
//!
//! Room: ground floor. Bytes in, bytes out; no clock, no chance, no I/O, no idea of pools or objects.
//! Owns: [`Code`], a systematic code over GF(2^8) for one k + m, and [`Profile`], what an erasure-code profile asks for.
//! Holds: what [`Code`] makes of the same data is the same in every build, for it is on disks (`docs/formats/erasure.md`).
//! `unsafe` is in `isal.rs` only, the calls into ISA-L, whose slices are checked there.
//! Upstream: src/erasure-code/{isa,jerasure}/ for names, defaults and limits; ISA-L's include/erasure_code.h.
#![deny(unsafe_code)]

mod code;
mod gf;
mod isal;
mod matrix;
mod profile;

pub use code::{Code, TooFew};
pub use matrix::{Technique, is_mds};
pub use profile::{Profile, ProfileError};

/// The most chunks of one object, data and parity together.
pub const MAX_CHUNKS: usize = 32;
