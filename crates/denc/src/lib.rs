//! Ceph's versioned little-endian encoding.
//!
//! Room: ground floor. Values in, values out; bytes from a stranger end in `Err`, never in a panic or a large
//! allocation. An envelope (`ENCODE_START` upstream) is u8 version, u8 oldest version whose reader can still make
//! sense of it, u32 length: a reader skips what it does not know and refuses a frame whose compat is newer than it.
//! Upstream: src/include/encoding.h, src/include/denc.h.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

extern crate self as denc;

mod crc;
mod decode;
mod encode;
mod std_types;
mod varint;

pub use bstr::{BStr, BString, ByteSlice};
pub use bytes::Bytes;
pub use crc::{crc32c, crc32c_append, crc32c_concat, crc32c_zeros};
pub use decode::{Decode, DecodeError, Decoder};
pub use denc_derive::{Decode, Encode};
pub use encode::{Encode, Encoder};
pub use varint::{put_varint, varint};

/// The encoding of `value` for a peer with `features` (cluster feature mask).
pub fn to_bytes<T: Encode + ?Sized>(value: &T, features: u64) -> Bytes {
    let mut e = Encoder::new(features);
    value.encode(&mut e);
    e.finish()
}

/// Decodes a whole buffer; bytes left over are an error, for a format that ends where its value ends.
pub fn from_bytes<T: Decode>(bytes: &Bytes) -> Result<T, DecodeError> {
    let mut d = Decoder::shared(bytes);
    let value = T::decode(&mut d)?;
    d.finish()?;
    Ok(value)
}

/// Decodes a value from the front of a slice and ignores what follows it.
pub fn from_slice<T: Decode>(bytes: &[u8]) -> Result<T, DecodeError> {
    T::decode(&mut Decoder::new(bytes))
}
