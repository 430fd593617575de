//! The reading half: a `Decoder` is a cursor over a stranger's bytes.

use bytes::Bytes;

/// A value that can be read from Ceph's encoding.
pub trait Decode: Sized {
    /// Reads one value and moves past it.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError>;
}

/// What is wrong with the bytes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The buffer ends inside a value.
    #[error("{wanted} bytes wanted, {left} left")]
    Short { wanted: usize, left: usize },
    /// The frame can only be read by newer software (`struct_compat` upstream).
    #[error("{what}: needs a reader of version {compat}, this one is {supported}")]
    TooNew { what: &'static str, compat: u8, supported: u8 },
    /// A tag or enumeration value nobody knows.
    #[error("{what}: unknown value {tag}")]
    BadTag { what: &'static str, tag: u64 },
    /// A field holds what it must not.
    #[error("{0}")]
    Invalid(&'static str),
    /// Bytes remain after the value.
    #[error("{0} bytes after the end")]
    Trailing(usize),
}

/// A cursor over bytes; over a shared `Bytes` it hands out slices without copying.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    buf: &'a [u8],
    source: Option<&'a Bytes>,
}

impl<'a> Decoder<'a> {
    /// A cursor over borrowed bytes; `bytes()` will copy.
    pub fn new(buf: &'a [u8]) -> Self {
        Decoder { buf, source: None }
    }

    /// A cursor over a shared buffer; `bytes()` shares it.
    pub fn shared(source: &'a Bytes) -> Self {
        Decoder { buf: source, source: Some(source) }
    }

    /// Reads one value.
    pub fn get<T: Decode>(&mut self) -> Result<T, DecodeError> {
        T::decode(self)
    }

    /// The next `n` bytes.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        match (self.buf.get(..n), self.buf.get(n..)) {
            (Some(head), Some(rest)) => {
                self.buf = rest;
                Ok(head)
            }
            _ => Err(DecodeError::Short { wanted: n, left: self.buf.len() }),
        }
    }

    /// The next `n` bytes, shared with the source buffer where there is one.
    pub fn bytes(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        let raw = self.raw(n)?;
        Ok(match self.source {
            Some(source) if n > 0 => source.slice_ref(raw),
            _ => Bytes::copy_from_slice(raw),
        })
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let raw = self.raw(N)?;
        raw.try_into().map_err(|_| DecodeError::Invalid("array length"))
    }

    /// A u32 length and that many bytes.
    pub fn blob(&mut self) -> Result<Bytes, DecodeError> {
        let n = self.count()?;
        self.bytes(n)
    }

    /// A container's element count. Never reserve that much: use `capacity_for`.
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        Ok(u32::decode(self)? as usize)
    }

    /// How many elements of at least `size` bytes can still follow: a bound for reservations.
    pub fn capacity_for(&self, count: usize, size: usize) -> usize {
        count.min(self.buf.len() / size.max(1))
    }

    /// A u32 length and a value that must lie within it; what the value leaves unread is skipped.
    pub fn nested<T>(&mut self, body: impl FnOnce(&mut Decoder<'a>) -> Result<T, DecodeError>) -> Result<T, DecodeError> {
        let n = self.count()?;
        let mut inner = Decoder { buf: self.raw(n)?, source: self.source };
        body(&mut inner)
    }

    /// A versioned envelope: `body` gets the frame's version and a cursor that ends with the frame; fields it does
    /// not read are skipped. `supported` is the newest version this reader understands.
    pub fn envelope<T>(
        &mut self,
        what: &'static str,
        supported: u8,
        body: impl FnOnce(u8, &mut Decoder<'a>) -> Result<T, DecodeError>,
    ) -> Result<T, DecodeError> {
        let [version, compat] = self.array()?;
        if compat > supported {
            return Err(DecodeError::TooNew { what, compat, supported });
        }
        self.nested(|d| body(version, d))
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.buf)
    }

    /// Bytes left.
    pub fn remaining(&self) -> usize {
        self.buf.len()
    }

    /// True at the end.
    pub fn is_empty(&self) -> bool {
        self.buf.is_empty()
    }

    /// Asserts that nothing is left.
    pub fn finish(&self) -> Result<(), DecodeError> {
        match self.buf.len() {
            0 => Ok(()),
            n => Err(DecodeError::Trailing(n)),
        }
    }
}
