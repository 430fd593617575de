//! The envelope around everything encrypted: a version byte, a magic number, the value.

use crate::key::{CryptoKey, KeyError, KeyKind};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use rand_chacha::ChaCha8Rng;

const MAGIC: u64 = 0xff00_9cad_8826_aa55;

/// What a key encrypts; `aes256k` derives a pair of keys for each (`CEPHX_KEY_USAGE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Usage {
    /// The purposeless kind, of `aes` proofs.
    Plain = 0,
    AuthConnectionSecret = 0x03,
    TicketSessionKey = 0x04,
    TicketBlob = 0x05,
    Authorize = 0x10,
    AuthorizeChallenge = 0x11,
    AuthorizeReply = 0x12,
    RotatingSecret = 0x20,
    TicketInfo = 0x30,
}

/// Encrypts `value` in its envelope.
pub fn seal<T: Encode + ?Sized>(key: &CryptoKey, usage: Usage, value: &T, rng: &mut ChaCha8Rng) -> Bytes {
    let mut e = Encoder::new(0);
    e.put(&1u8).put(&MAGIC).put(value);
    key.encrypt(usage as u32, e.as_slice(), rng).into()
}

/// Decrypts an envelope. A wrong key shows as `Sealed`, whether by padding, HMAC or magic.
pub fn open<T: Decode>(key: &CryptoKey, usage: Usage, sealed: &[u8]) -> Result<T, KeyError> {
    let plain = key.decrypt(usage as u32, sealed)?;
    let mut d = Decoder::new(&plain);
    let _version: u8 = d.get()?;
    let magic: u64 = d.get()?;
    if magic != MAGIC {
        return Err(KeyError::Sealed);
    }
    Ok(d.get()?)
}

/// The number that proves a key to whoever sent `server_challenge` (`cephx_calc_client_server_challenge`).
pub fn proof(key: &CryptoKey, server_challenge: u64, client_challenge: u64, rng: &mut ChaCha8Rng) -> u64 {
    let blob = denc::to_bytes(&(server_challenge, client_challenge), 0);
    let bytes = match key.kind() {
        KeyKind::Aes => denc::to_bytes(&seal(key, Usage::Plain, &(server_challenge, client_challenge), rng), 0),
        // Its ciphertexts begin with a random block, so a keyed hash stands in.
        KeyKind::Aes256k => key.hmac_sha256(&blob).to_vec().into(),
    };
    bytes.chunks_exact(8).map(|w| u64::from_le_bytes(w.try_into().unwrap_or_default())).fold(0, |a, b| a ^ b)
}

/// Reads a length-prefixed sealed value.
pub fn open_next<T: Decode>(key: &CryptoKey, usage: Usage, d: &mut Decoder<'_>) -> Result<T, KeyError> {
    let sealed = d.blob().map_err(|e: DecodeError| KeyError::Malformed(e))?;
    open(key, usage, &sealed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use types::Utime;

    #[test]
    fn a_wrong_key_never_opens() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for kind in [KeyKind::Aes, KeyKind::Aes256k] {
            let right = CryptoKey::generate(kind, Utime::ZERO, &mut rng);
            let sealed = seal(&right, Usage::TicketInfo, &7u64, &mut rng);
            assert_eq!(open::<u64>(&right, Usage::TicketInfo, &sealed).unwrap(), 7);
            for _ in 0..500 {
                let wrong = CryptoKey::generate(kind, Utime::ZERO, &mut rng);
                assert!(open::<u64>(&wrong, Usage::TicketInfo, &sealed).is_err());
            }
        }
    }

    #[test]
    fn a_proof_depends_on_key_and_both_challenges_and_nothing_else() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for kind in [KeyKind::Aes, KeyKind::Aes256k] {
            let key = CryptoKey::generate(kind, Utime::ZERO, &mut rng);
            let p = proof(&key, 1, 2, &mut rng);
            assert_eq!(p, proof(&key, 1, 2, &mut rng));
            assert_ne!(p, proof(&key, 2, 1, &mut rng));
        }
    }
}
