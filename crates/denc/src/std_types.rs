//! Encodings of the standard library's types, and of the few foreign ones every format uses.

use crate::{Decode, DecodeError, Decoder, Encode, Encoder};
use bstr::BString;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

macro_rules! le_numbers {
    ($($t:ty),*) => {$(
        impl Encode for $t {
            fn encode(&self, e: &mut Encoder) {
                e.raw(&self.to_le_bytes());
            }
        }
        impl Decode for $t {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(<$t>::from_le_bytes(d.array()?))
            }
        }
    )*};
}
le_numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, f32, f64);

impl Encode for bool {
    fn encode(&self, e: &mut Encoder) {
        u8::from(*self).encode(e);
    }
}
impl Decode for bool {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(u8::decode(d)? != 0)
    }
}

impl Encode for str {
    fn encode(&self, e: &mut Encoder) {
        e.blob(self.as_bytes());
    }
}
impl Encode for String {
    fn encode(&self, e: &mut Encoder) {
        self.as_str().encode(e);
    }
}
impl Decode for String {
    /// Text of ours and of operators; names of objects and keys are `BString`, for they may be any bytes.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        let raw = d.raw(n)?;
        std::str::from_utf8(raw).map(str::to_owned).map_err(|_| DecodeError::Invalid("a string that is not UTF-8"))
    }
}

impl Encode for BString {
    fn encode(&self, e: &mut Encoder) {
        e.blob(self);
    }
}
impl Decode for BString {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        Ok(BString::from(d.raw(n)?))
    }
}

impl Encode for Bytes {
    fn encode(&self, e: &mut Encoder) {
        e.blob(self);
    }
}
impl Decode for Bytes {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.blob()
    }
}

impl Encode for Uuid {
    fn encode(&self, e: &mut Encoder) {
        e.raw(self.as_bytes());
    }
}
impl Decode for Uuid {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Uuid::from_bytes(d.array()?))
    }
}

impl<T: Encode + ?Sized> Encode for &T {
    fn encode(&self, e: &mut Encoder) {
        (**self).encode(e);
    }
}
impl<T: Encode + ?Sized> Encode for Box<T> {
    fn encode(&self, e: &mut Encoder) {
        (**self).encode(e);
    }
}
impl<T: Decode> Decode for Box<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Box::new(T::decode(d)?))
    }
}
impl<T: Encode + ?Sized> Encode for Arc<T> {
    fn encode(&self, e: &mut Encoder) {
        (**self).encode(e);
    }
}
impl<T: Decode> Decode for Arc<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(Arc::new(T::decode(d)?))
    }
}

impl<T: Encode> Encode for Option<T> {
    /// A presence byte, then the value (`std::optional` upstream).
    fn encode(&self, e: &mut Encoder) {
        self.is_some().encode(e);
        if let Some(value) = self {
            value.encode(e);
        }
    }
}
impl<T: Decode> Decode for Option<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(if bool::decode(d)? { Some(T::decode(d)?) } else { None })
    }
}

impl<T: Encode> Encode for [T] {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.len());
        self.iter().for_each(|item| item.encode(e));
    }
}

macro_rules! sequences {
    ($($c:ident $push:ident),*) => {$(
        impl<T: Encode> Encode for $c<T> {
            fn encode(&self, e: &mut Encoder) {
                e.count(self.len());
                self.iter().for_each(|item| item.encode(e));
            }
        }
        impl<T: Decode> Decode for $c<T> {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                let n = d.count()?;
                // No reservation from a stranger's count: it grows with what is really there.
                let mut out = $c::new();
                for _ in 0..n {
                    out.$push(nonempty(d)?);
                }
                Ok(out)
            }
        }
    )*};
}
sequences!(Vec push, VecDeque push_back);

impl<T: Encode> Encode for BTreeSet<T> {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.len());
        self.iter().for_each(|item| item.encode(e));
    }
}
impl<T: Decode + Ord> Decode for BTreeSet<T> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        (0..n).map(|_| nonempty(d)).collect()
    }
}

impl<K: Encode, V: Encode> Encode for BTreeMap<K, V> {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.len());
        for (key, value) in self {
            key.encode(e);
            value.encode(e);
        }
    }
}
impl<K: Decode + Ord, V: Decode> Decode for BTreeMap<K, V> {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let n = d.count()?;
        (0..n).map(|_| Ok((nonempty(d)?, V::decode(d)?))).collect()
    }
}

/// An element of a container: one that takes no bytes would let a count of 2^32 spin or fill memory.
fn nonempty<T: Decode>(d: &mut Decoder<'_>) -> Result<T, DecodeError> {
    let before = d.remaining();
    let value = T::decode(d)?;
    match d.remaining() < before {
        true => Ok(value),
        false => Err(DecodeError::Invalid("a container of empty elements")),
    }
}

macro_rules! tuples {
    ($($($t:ident $i:tt)+;)*) => {$(
        impl<$($t: Encode),+> Encode for ($($t,)+) {
            fn encode(&self, e: &mut Encoder) {
                $(self.$i.encode(e);)+
            }
        }
        impl<$($t: Decode),+> Decode for ($($t,)+) {
            fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
                Ok(($($t::decode(d)?,)+))
            }
        }
    )*};
}
tuples! { A 0 B 1; A 0 B 1 C 2; A 0 B 1 C 2 D 3; }

impl Encode for () {
    fn encode(&self, _: &mut Encoder) {}
}
impl Decode for () {
    fn decode(_: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::*;

    #[derive(Debug, PartialEq, Default, Encode, Decode)]
    #[denc(v = 2, compat = 1)]
    struct Now {
        a: u32,
        #[denc(since = 2)]
        b: String,
    }

    #[derive(Debug, PartialEq, Default, Encode, Decode)]
    #[denc(v = 1, compat = 1)]
    struct Before {
        a: u32,
    }

    #[derive(Debug, PartialEq, Encode, Decode)]
    enum Either {
        #[denc(tag = 4)]
        Left(u8, u16),
        #[denc(tag = 9)]
        Right { name: String },
    }

    #[test]
    fn a_newer_frame_is_read_up_to_what_is_known() {
        let new = to_bytes(&Now { a: 7, b: "x".into() }, 0);
        assert_eq!(from_bytes::<Before>(&new).unwrap(), Before { a: 7 });
    }

    #[test]
    fn an_older_frame_leaves_newer_fields_at_their_default() {
        let old = to_bytes(&Before { a: 7 }, 0);
        assert_eq!(from_bytes::<Now>(&old).unwrap(), Now { a: 7, b: String::new() });
    }

    #[test]
    fn a_frame_for_newer_readers_only_is_refused() {
        let mut e = Encoder::new(0);
        e.envelope(9, 3, |e| 1u32.encode(e));
        let err = from_bytes::<Now>(&e.finish()).unwrap_err();
        assert_eq!(err, DecodeError::TooNew { what: "Now", compat: 3, supported: 2 });
    }

    #[test]
    fn enums_carry_their_named_tag() {
        for value in [Either::Left(1, 2), Either::Right { name: "n".into() }] {
            assert_eq!(from_bytes::<Either>(&to_bytes(&value, 0)).unwrap(), value);
        }
        assert_eq!(to_bytes(&Either::Left(1, 2), 0)[..], [4, 1, 2, 0]);
        assert!(from_slice::<Either>(&[5]).is_err());
    }

    #[test]
    fn a_huge_count_reserves_nothing() {
        assert!(from_slice::<Vec<u64>>(&u32::MAX.to_le_bytes()).is_err());
        assert!(from_slice::<Vec<()>>(&u32::MAX.to_le_bytes()).is_err());
    }

    #[test]
    fn every_truncation_is_an_error() {
        let full = to_bytes(&Now { a: 7, b: "hello".into() }, 0);
        for n in 0..full.len() {
            assert!(from_slice::<Now>(&full[..n]).is_err(), "{n}");
        }
    }
}
