//! Secret keys: two ciphers, one encoding, base64 text.
//!
//! The encoding is u16 cipher, creation time, u16 length, secret; people see it in base64. `aes` encrypts with
//! AES-128-CBC under a fixed IV and PKCS#7 padding; `aes256k` is in `krb5`. The number of a key's use separates
//! purposes for `aes256k` and means nothing to `aes`.
//! Upstream: src/auth/Crypto.{h,cc}.

use crate::krb5;
use aes::Aes128;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, KeyIvInit};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use hmac::{Hmac, KeyInit, Mac};
use rand::RngCore;
use rand_chacha::ChaCha8Rng;
use sha2::Sha256;
use std::fmt;
use std::str::FromStr;
use types::Utime;

const AES_IV: &[u8; 16] = b"cephsageyudagreg";
const AES_SECRET_LEN: usize = 16;

/// A cipher (`CEPH_CRYPTO_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyKind {
    /// AES-128-CBC; every client generation.
    Aes,
    /// AES-256 with HMAC-SHA384 after RFC 8009; Tentacle and later.
    Aes256k,
}

impl KeyKind {
    fn secret_len(self) -> usize {
        match self {
            KeyKind::Aes => AES_SECRET_LEN,
            KeyKind::Aes256k => krb5::SECRET_LEN,
        }
    }

    fn code(self) -> u16 {
        match self {
            KeyKind::Aes => 1,
            KeyKind::Aes256k => 2,
        }
    }
}

/// What is wrong with a key or with what it should open.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    #[error("a key that is not base64")]
    Base64,
    #[error("malformed key: {0}")]
    Malformed(#[from] DecodeError),
    /// Not decryptable with this key.
    #[error("does not decrypt with this key")]
    Sealed,
}

/// A secret key. `Debug` hides the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct CryptoKey {
    kind: KeyKind,
    created: Utime,
    secret: Vec<u8>,
}

impl CryptoKey {
    /// A fresh key.
    pub fn generate(kind: KeyKind, now: Utime, rng: &mut ChaCha8Rng) -> Self {
        let mut secret = vec![0; kind.secret_len()];
        rng.fill_bytes(&mut secret);
        CryptoKey { kind, created: now, secret }
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The raw secret: 16 bytes for `aes`, 32 for `aes256k`. Signs a connection's handshake when it is a session key.
    pub fn secret(&self) -> &[u8] {
        &self.secret
    }

    /// Encrypts for purpose `usage`; `plaintext` is never empty.
    pub fn encrypt(&self, usage: u32, plaintext: &[u8], rng: &mut ChaCha8Rng) -> Vec<u8> {
        match self.kind {
            KeyKind::Aes => self.aes_encrypt(plaintext),
            KeyKind::Aes256k => {
                let mut confounder = [0; krb5::CONFOUNDER_LEN];
                rng.fill_bytes(&mut confounder);
                krb5::encrypt(&self.secret, usage, confounder, plaintext).expect("the length of a secret is checked, and there is a plaintext")
            }
        }
    }

    /// Decrypts what was encrypted for purpose `usage`.
    pub fn decrypt(&self, usage: u32, ciphertext: &[u8]) -> Result<Vec<u8>, KeyError> {
        match self.kind {
            KeyKind::Aes => cbc::Decryptor::<Aes128>::new_from_slices(&self.secret, AES_IV)
                .map_err(|_| KeyError::Sealed)?
                .decrypt_padded_vec::<Pkcs7>(ciphertext)
                .map_err(|_| KeyError::Sealed),
            KeyKind::Aes256k => krb5::decrypt(&self.secret, usage, ciphertext).ok_or(KeyError::Sealed),
        }
    }

    /// HMAC-SHA256 with the raw secret.
    pub fn hmac_sha256(&self, bytes: &[u8]) -> [u8; 32] {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(&self.secret).expect("HMAC takes any key length");
        mac.update(bytes);
        mac.finalize().into_bytes().into()
    }

    /// A key of the authenticating cipher for another purpose than this one's.
    pub fn derive(&self, purpose: &str) -> CryptoKey {
        CryptoKey { kind: KeyKind::Aes256k, created: self.created, secret: self.hmac_sha256(purpose.as_bytes()).to_vec() }
    }

    fn aes_encrypt(&self, plaintext: &[u8]) -> Vec<u8> {
        cbc::Encryptor::<Aes128>::new_from_slices(&self.secret, AES_IV)
            .expect("the length of a secret is checked")
            .encrypt_padded_vec::<Pkcs7>(plaintext)
    }
}

impl Encode for CryptoKey {
    fn encode(&self, e: &mut Encoder) {
        e.put(&self.kind.code()).put(&self.created).put(&(self.secret.len() as u16)).raw(&self.secret);
    }
}
impl Decode for CryptoKey {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let kind = match d.get::<u16>()? {
            1 => KeyKind::Aes,
            2 => KeyKind::Aes256k,
            other => return Err(DecodeError::BadTag { what: "key type", tag: other.into() }),
        };
        let created = d.get()?;
        let len: u16 = d.get()?;
        let raw = d.raw(len.into())?;
        // Stock takes longer secrets and uses their front; so do we, else a key that works there fails here.
        let secret = raw.get(..kind.secret_len()).ok_or(DecodeError::Invalid("a secret too short for its cipher"))?;
        Ok(CryptoKey { kind, created, secret: secret.to_vec() })
    }
}

impl fmt::Display for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(denc::to_bytes(self, 0)))
    }
}
impl fmt::Debug for CryptoKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CryptoKey({:?})", self.kind)
    }
}
impl FromStr for CryptoKey {
    type Err = KeyError;
    fn from_str(s: &str) -> Result<Self, KeyError> {
        let raw = STANDARD.decode(s.trim()).map_err(|_| KeyError::Base64)?;
        Ok(denc::from_slice(&raw)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn keys_of_stock_tools_round_trip() {
        // ceph-authtool --gen-print-key of Pacific and of Tentacle.
        for (text, kind, len) in [
            ("AQCoiQBr6K7mARAAo2Vn/C6GJPUEn22yFX0T/w==", KeyKind::Aes, 16),
            ("AgCoiQBrqj8iBCAAPSxj5EJLQzjNc/ZoY9G4VD34Qm0nvNf9OwkAZlbeoJk=", KeyKind::Aes256k, 32),
        ] {
            let key: CryptoKey = text.parse().unwrap();
            assert_eq!((key.kind(), key.secret().len()), (kind, len));
            assert_eq!(key.to_string(), text);
        }
    }

    #[test]
    fn malformed_keys_are_refused() {
        for bad in ["", "AQ", "AQ==", "AwCoiQBr6K7mARAAo2Vn/C6GJPUEn22yFX0T/w==", "not base64 at all", "AQCoiQBr6K7mARAAo2Vn"] {
            assert!(bad.parse::<CryptoKey>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_encrypted_decrypts_and_wrong_keys_do_not_panic() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for kind in [KeyKind::Aes, KeyKind::Aes256k] {
            let key = CryptoKey::generate(kind, Utime::ZERO, &mut rng);
            let other = CryptoKey::generate(kind, Utime::ZERO, &mut rng);
            for len in 1..70 {
                let plain = vec![len as u8; len];
                let sealed = key.encrypt(3, &plain, &mut rng);
                assert_eq!(key.decrypt(3, &sealed).unwrap(), plain);
                assert_ne!(other.decrypt(3, &sealed).unwrap_or_default(), [&plain[..], b"?"].concat());
                assert!(key.decrypt(3, &sealed[..sealed.len() - 1]).is_err());
            }
        }
    }
}
