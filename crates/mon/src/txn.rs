//! Changes of the replicated state on their way to the log.
//!
//! A key is `m`, the service's name, 0, and the service's own key; numbers in keys are big-endian, so that scans go
//! through versions in order.

use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::ops::Bound;
use store::{Kv, KvBatch, KvError, KvOp};

/// First byte of every key of the replicated state.
pub const STATE_PREFIX: u8 = b'm';

/// Why the state cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("the store cannot be read: {0}")]
    Kv(#[from] KvError),
    #[error("{what} cannot be decoded: {source}")]
    Corrupt { what: String, source: DecodeError },
    #[error("{0} is missing from the store")]
    Missing(&'static str),
}

/// The key `key` of `service`.
pub fn state_key(service: &str, key: impl AsRef<[u8]>) -> Vec<u8> {
    let mut out = Vec::with_capacity(service.len() + key.as_ref().len() + 2);
    out.push(STATE_PREFIX);
    out.extend_from_slice(service.as_bytes());
    out.push(0);
    out.extend_from_slice(key.as_ref());
    out
}

/// Changes not yet proposed.
#[derive(Debug, Default)]
pub struct Txn {
    batch: KvBatch,
}

impl Txn {
    /// Sets `key` of `service`.
    pub fn put(&mut self, service: &str, key: impl AsRef<[u8]>, value: impl Into<Bytes>) {
        self.batch.put(state_key(service, key), value);
    }

    /// Sets `key` of `service` to an encoded value.
    pub fn put_encoded(&mut self, service: &str, key: impl AsRef<[u8]>, value: &(impl Encode + ?Sized)) {
        self.put(service, key, denc::to_bytes(value, u64::MAX));
    }

    /// Removes `key` of `service`.
    pub fn delete(&mut self, service: &str, key: impl AsRef<[u8]>) {
        self.batch.delete(state_key(service, key));
    }

    /// Removes the keys of `service` from `from` to before `to`.
    pub fn delete_range(&mut self, service: &str, from: impl AsRef<[u8]>, to: impl AsRef<[u8]>) {
        self.batch.delete_range(state_key(service, from), state_key(service, to));
    }

    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Takes the changes out.
    pub fn take(&mut self) -> KvBatch {
        std::mem::take(&mut self.batch)
    }
}

/// Reads one value of the state.
pub fn get<T: Decode>(kv: &impl Kv, service: &str, key: impl AsRef<[u8]>) -> Result<Option<T>, StateError> {
    let Some(raw) = kv.get(&state_key(service, &key))? else { return Ok(None) };
    let what = || format!("{service}/{}", String::from_utf8_lossy(key.as_ref()));
    denc::from_bytes(&raw).map(Some).map_err(|source| StateError::Corrupt { what: what(), source })
}

/// All of a service's raw keys (without prefix) and values whose key starts with `prefix`.
pub fn scan(kv: &impl Kv, service: &str, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>, StateError> {
    let from = state_key(service, prefix);
    let mut to = from.clone();
    to.extend_from_slice(&[0xff; 8]);
    let skip = service.len() + 2;
    let all = kv.scan(Bound::Included(&from[..]), Bound::Excluded(&to[..]), usize::MAX)?;
    Ok(all.into_iter().map(|(k, v)| (k.slice(skip..), v)).collect())
}

/// Encodes a batch as a proposal carries it: who made it, which of his it is, and its changes.
pub fn encode_proposal(origin: u64, seq: u64, batch: &KvBatch) -> Bytes {
    let mut e = Encoder::new(0);
    e.put(&1u8).put(&origin).put(&seq).count(batch.ops.len());
    for op in &batch.ops {
        match op {
            KvOp::Put(k, v) => e.put(&1u8).put(k).put(v),
            KvOp::Delete(k) => e.put(&2u8).put(k),
            KvOp::DeleteRange(a, b) => e.put(&3u8).put(a).put(b),
        };
    }
    e.finish()
}

/// Reads what `encode_proposal` wrote.
pub fn decode_proposal(raw: &Bytes) -> Result<(u64, u64, KvBatch), DecodeError> {
    let mut d = Decoder::shared(raw);
    let version: u8 = d.get()?;
    if version != 1 {
        return Err(DecodeError::BadTag { what: "proposal", tag: version.into() });
    }
    let (origin, seq) = (d.get()?, d.get()?);
    let mut batch = KvBatch::default();
    for _ in 0..d.count()? {
        match d.get::<u8>()? {
            1 => batch.put(d.get::<Bytes>()?, d.get::<Bytes>()?),
            2 => batch.delete(d.get::<Bytes>()?),
            3 => batch.delete_range(d.get::<Bytes>()?, d.get::<Bytes>()?),
            tag => return Err(DecodeError::BadTag { what: "proposal", tag: tag.into() }),
        }
    }
    d.finish()?;
    Ok((origin, seq, batch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_reads_back_and_every_truncation_is_an_error() {
        let mut batch = KvBatch::default();
        batch.put("a", "1");
        batch.delete("b");
        batch.delete_range("c", "d");
        let raw = encode_proposal(7, 9, &batch);
        assert_eq!(decode_proposal(&raw).unwrap(), (7, 9, batch));
        for n in 0..raw.len() {
            assert!(decode_proposal(&raw.slice(..n)).is_err());
        }
    }
}
