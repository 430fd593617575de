//! Batches as they stand in a frame.
//!
//! On the medium: each change a tag (1 put, 2 delete, 3 delete range), then its one or two byte strings, each behind its
//! length as u32; 0 ends a batch.

use bytes::Bytes;
use denc::{DecodeError, Decoder};
use store::{KvBatch, KvOp};

/// Adds a batch.
pub fn put(out: &mut Vec<u8>, ops: &[KvOp]) {
    for op in ops {
        let (tag, key, value) = match op {
            KvOp::Put(k, v) => (1, k, Some(v)),
            KvOp::Delete(k) => (2, k, None),
            KvOp::DeleteRange(from, to) => (3, from, Some(to)),
        };
        out.push(tag);
        for part in [Some(key), value].into_iter().flatten() {
            out.extend_from_slice(&(part.len() as u32).to_le_bytes());
            out.extend_from_slice(part);
        }
    }
    out.push(0);
}

/// Bytes that `put` would add.
pub fn size(ops: &[KvOp]) -> usize {
    1 + ops.iter().map(size_of).sum::<usize>()
}

/// Those of one change.
pub fn size_of(op: &KvOp) -> usize {
    match op {
        KvOp::Put(a, b) | KvOp::DeleteRange(a, b) => 9 + a.len() + b.len(),
        KvOp::Delete(k) => 5 + k.len(),
    }
}

/// The batches of a frame. What is kept of them is copied: it would keep the whole frame.
pub fn parse(payload: &[u8]) -> Result<Vec<KvBatch>, DecodeError> {
    let mut d = Decoder::new(payload);
    let mut out = Vec::new();
    let mut batch = KvBatch::default();
    while d.remaining() > 0 {
        match d.get::<u8>()? {
            0 => out.push(std::mem::take(&mut batch)),
            1 => batch.ops.push(KvOp::Put(string(&mut d)?, string(&mut d)?)),
            2 => batch.ops.push(KvOp::Delete(string(&mut d)?)),
            3 => batch.ops.push(KvOp::DeleteRange(string(&mut d)?, string(&mut d)?)),
            _ => return Err(DecodeError::Invalid("a change in the journal")),
        }
    }
    if batch.is_empty() { Ok(out) } else { Err(DecodeError::Invalid("a batch without its end")) }
}

fn string(d: &mut Decoder<'_>) -> Result<Bytes, DecodeError> {
    let len = d.get::<u32>()? as usize;
    d.bytes(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_read_back_and_anything_else_is_refused() {
        let mut b = KvBatch::default();
        b.put(&b"Oa"[..], &b"value"[..]);
        b.delete(&b"P"[..]);
        b.delete_range(&b"D1"[..], &b"D2"[..]);
        let mut out = Vec::new();
        put(&mut out, &b.ops);
        assert_eq!(out.len(), size(&b.ops));
        put(&mut out, &[]);
        assert_eq!(parse(&out).unwrap(), [b.clone(), KvBatch::default()]);
        put(&mut out, &b.ops);
        for n in 0..out.len() {
            // Whatever is cut off, what is left is whole batches or refused.
            assert!(n == 0 || out[n - 1] == 0 || parse(&out[..n]).is_err());
        }
        assert!(parse(&out[..out.len() - 1]).is_err());
        assert!(parse(&[9]).is_err());
        assert!(parse(&[1, 255, 255, 255, 255]).is_err());
    }
}
