//! The writing half: an `Encoder` is a growing buffer that knows its reader's features.

use bytes::Bytes;

/// A value with a Ceph encoding.
pub trait Encode {
    /// Appends the encoding of `self`.
    fn encode(&self, e: &mut Encoder);
}

/// Room that an encoder starts with: most messages and records fit, and growing to this from nothing is five moves.
const FIRST_BYTES: usize = 256;

/// A growing buffer and the features of whoever will read it.
#[derive(Debug, Default)]
pub struct Encoder {
    buf: Vec<u8>,
    features: u64,
}

impl Encoder {
    /// An empty buffer for a reader with `features` (64-bit cluster feature mask).
    pub fn new(features: u64) -> Self {
        Encoder::with_capacity(features, FIRST_BYTES)
    }

    /// An empty buffer with room for `capacity` bytes.
    pub fn with_capacity(features: u64, capacity: usize) -> Self {
        Encoder { buf: Vec::with_capacity(capacity), features }
    }

    /// Appends `value`; the same as `value.encode(self)`, for chains.
    pub fn put<T: Encode + ?Sized>(&mut self, value: &T) -> &mut Self {
        value.encode(self);
        self
    }

    /// Appends bytes as they are, without a length.
    pub fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.buf.extend_from_slice(bytes);
        self
    }

    /// Appends a u32 length and the bytes (`bufferlist` and `string` upstream).
    pub fn blob(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.raw(bytes)
    }

    /// Appends a u32 length and what `body` writes.
    pub fn nested(&mut self, body: impl FnOnce(&mut Encoder)) {
        let at = self.buf.len();
        self.raw(&[0; 4]);
        body(self);
        self.patch_len(at, at + 4);
    }

    /// Appends a versioned envelope around what `body` writes.
    pub fn envelope(&mut self, version: u8, compat: u8, body: impl FnOnce(&mut Encoder)) {
        self.raw(&[version, compat]);
        self.nested(body);
    }

    /// Appends a container's element count. Panics above u32::MAX elements, which no map of ours can reach.
    pub fn count(&mut self, n: usize) -> &mut Self {
        let n = u32::try_from(n).expect("more than 2^32 elements");
        self.raw(&n.to_le_bytes())
    }

    /// Overwrites four bytes at `at` with `value`: for checksums and lengths known only at the end.
    pub fn patch_u32(&mut self, at: usize, value: u32) {
        if let Some(slot) = self.buf.get_mut(at..at + 4) {
            slot.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// The cluster features of the reader.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// True if the reader has every bit of `mask`.
    pub fn has(&self, mask: u64) -> bool {
        self.features & mask == mask
    }

    /// What was written so far.
    pub fn as_slice(&self) -> &[u8] {
        &self.buf
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.buf.len()
    }

    /// True before the first byte.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// The finished buffer.
    pub fn finish(self) -> Bytes {
        Bytes::from(self.buf)
    }

    fn patch_len(&mut self, at: usize, start: usize) {
        let len = u32::try_from(self.buf.len() - start).expect("an encoding over 4 GiB");
        self.patch_u32(at, len);
    }
}
