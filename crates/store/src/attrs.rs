//! An object's attributes as one piece of memory, laid out as the onode's record has them: most objects have one or two,
//! and a map would take several times the room of what it holds.
//!
//! Format: for each attribute, by name: varint length, name, varint length, value.

use bytes::Bytes;
use denc::{BString, DecodeError, Decoder, put_varint, varint};
use std::collections::BTreeMap;

/// Attributes by name.
///
/// Holds: `packed` decodes, names ascend.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attrs {
    count: u32,
    packed: Bytes,
}

impl Attrs {
    /// `count` attributes out of a record, whose memory they share.
    pub fn decode(record: &Bytes, d: &mut Decoder<'_>, count: u64) -> Result<Self, DecodeError> {
        let from = record.len() - d.remaining();
        let mut last: Option<&[u8]> = None;
        for _ in 0..count {
            let name = field(d)?;
            if last.is_some_and(|last| last >= name) {
                return Err(DecodeError::Invalid("attributes out of order"));
            }
            last = Some(name);
            field(d)?;
        }
        let count = u32::try_from(count).map_err(|_| DecodeError::Invalid("attributes: count"))?;
        Ok(Attrs { count, packed: record.slice(from..record.len() - d.remaining()) })
    }

    /// Appends them as `decode` reads them, without their count.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.packed);
    }

    pub fn get(&self, name: &[u8]) -> Option<Bytes> {
        let value = self.iter().find(|(n, _)| *n == name)?.1;
        Some(self.packed.slice_ref(value))
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut d = Decoder::new(&self.packed);
        std::iter::from_fn(move || Some((field(&mut d).ok()?, field(&mut d).ok()?)))
    }

    pub fn to_map(&self) -> BTreeMap<BString, Bytes> {
        self.iter().map(|(n, v)| (BString::from(n), self.packed.slice_ref(v))).collect()
    }

    /// Adds them, or replaces those of the same name. Copies: what comes from the network is cut out of large chunks.
    pub fn set(&mut self, attrs: &[(BString, Bytes)]) {
        let mut all: BTreeMap<&[u8], &[u8]> = self.iter().collect();
        all.extend(attrs.iter().map(|(n, v)| (&n[..], &v[..])));
        *self = Self::pack(all);
    }

    /// False if there is none of that name.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let mut all: BTreeMap<&[u8], &[u8]> = self.iter().collect();
        let found = all.remove(name).is_some();
        if found {
            *self = Self::pack(all);
        }
        found
    }

    pub fn clear(&mut self) {
        *self = Attrs::default();
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn len(&self) -> u32 {
        self.count
    }

    /// Bytes of the encoding.
    pub fn encoded_len(&self) -> usize {
        self.packed.len()
    }

    fn pack(all: BTreeMap<&[u8], &[u8]>) -> Self {
        let fields = || all.iter().flat_map(|(name, value)| [*name, *value]);
        // Exact, so that nothing is moved or wasted.
        let mut packed = Vec::with_capacity(fields().map(|f| varint_len(f.len() as u64) + f.len()).sum());
        for field in fields() {
            put_varint(&mut packed, field.len() as u64);
            packed.extend_from_slice(field);
        }
        Attrs { count: all.len() as u32, packed: packed.into() }
    }
}

fn varint_len(v: u64) -> usize {
    (u64::BITS - (v | 1).leading_zeros()).div_ceil(7) as usize
}

fn field<'a>(d: &mut Decoder<'a>) -> Result<&'a [u8], DecodeError> {
    let n = varint(d)? as usize;
    d.raw(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attrs(list: &[(&str, &str)]) -> Attrs {
        let list: Vec<(BString, Bytes)> = list.iter().map(|(n, v)| ((*n).into(), Bytes::copy_from_slice(v.as_bytes()))).collect();
        let mut out = Attrs::default();
        out.set(&list);
        out
    }

    #[test]
    fn attributes_are_set_replaced_and_removed() {
        let mut a = attrs(&[("b", "1"), ("_", "info"), ("a", "")]);
        assert_eq!((a.len(), a.get(b"_"), a.get(b"a")), (3, Some("info".into()), Some(Bytes::new())));
        a.set(&[("_".into(), Bytes::from(vec![7; 300]))]);
        assert_eq!((a.len(), a.get(b"_").map(|v| v.len()), a.get(b"b")), (3, Some(300), Some("1".into())));
        assert!(a.remove(b"a") && !a.remove(b"a") && a.get(b"a").is_none());
        assert_eq!(a.to_map().into_keys().collect::<Vec<_>>(), ["_".into(), BString::from("b")]);
        a.clear();
        assert!(a.is_empty() && a == Attrs::default());
    }

    #[test]
    fn lengths_of_varints_are_exact() {
        for v in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, v);
            assert_eq!(varint_len(v), out.len(), "{v}");
        }
    }

    #[test]
    fn a_record_gives_back_what_was_put_in() {
        let a = attrs(&[("_", "info"), ("user", "x")]);
        let mut record = b"head".to_vec();
        a.encode(&mut record);
        record.extend_from_slice(b"tail");
        let record = Bytes::from(record);
        let mut d = Decoder::shared(&record);
        d.raw(4).unwrap();
        assert_eq!(Attrs::decode(&record, &mut d, 2).unwrap(), a);
        assert_eq!(d.rest(), b"tail");
    }

    #[test]
    fn names_that_do_not_ascend_are_refused() {
        for raw in [&b"\x01b\0\x01a\0"[..], b"\x01a\0\x01a\0"] {
            let record = Bytes::copy_from_slice(raw);
            assert!(Attrs::decode(&record, &mut Decoder::shared(&record), 2).is_err());
        }
    }
}
