//! AES-128-GCM over frames, one nonce per sealed run.
//!
//! The connection secret is 16 bytes of key, 12 of the nonce the dialler opens with, 12 of the one it seals with.
//! A nonce is 4 fixed bytes and a 64-bit little-endian counter.
//! Holds: no nonce is used twice; when the counter has come round, the socket ends.
//! Upstream: src/msg/async/crypto_onwire.cc.

use crate::Fault;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// Bytes of an authentication tag.
pub(crate) const TAG: usize = 16;
const SECRET: usize = 16 + 12 + 12;

/// One direction of a secure connection.
#[derive(Debug)]
pub(crate) struct Cipher {
    key: LessSafeKey,
    fixed: [u8; 4],
    counter: u64,
    left: u64,
}

/// The ciphers (receive, transmit) of a dialler or an acceptor.
pub(crate) fn ciphers(secret: &[u8], dialled: bool) -> Result<(Cipher, Cipher), Fault> {
    let secret: &[u8; SECRET] = secret.first_chunk().ok_or(Fault::ShortSecret)?;
    let (key, nonces) = secret.split_at(16);
    let (first, second) = nonces.split_at(12);
    let (rx, tx) = if dialled { (first, second) } else { (second, first) };
    Ok((Cipher::new(key, rx)?, Cipher::new(key, tx)?))
}

impl Cipher {
    fn new(key: &[u8], nonce: &[u8]) -> Result<Self, Fault> {
        let key = UnboundKey::new(&AES_128_GCM, key).map_err(|_| Fault::ShortSecret)?;
        let (fixed, counter) = nonce.split_first_chunk().ok_or(Fault::ShortSecret)?;
        let counter = counter.first_chunk().ok_or(Fault::ShortSecret)?;
        let counter = u64::from_le_bytes(*counter);
        Ok(Cipher { key: LessSafeKey::new(key), fixed: *fixed, counter, left: u64::MAX })
    }

    fn nonce(&mut self) -> Result<Nonce, Fault> {
        self.left = self.left.checked_sub(1).ok_or(Fault::NoncesExhausted)?;
        let mut nonce = [0; 12];
        let (fixed, counter) = nonce.split_at_mut(4);
        fixed.copy_from_slice(&self.fixed);
        counter.copy_from_slice(&self.counter.to_le_bytes());
        self.counter = self.counter.wrapping_add(1);
        Ok(Nonce::assume_unique_for_key(nonce))
    }

    /// Encrypts in place and returns the tag that goes behind.
    pub fn seal(&mut self, plain: &mut [u8]) -> Result<[u8; TAG], Fault> {
        let nonce = self.nonce()?;
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::empty(), plain).map_err(|_| Fault::AuthTag)?;
        tag.as_ref().try_into().map_err(|_| Fault::AuthTag)
    }

    /// Checks the tag at the end of `sealed` and decrypts the rest in place; returns how many bytes are plain text.
    pub fn open(&mut self, sealed: &mut [u8]) -> Result<usize, Fault> {
        let nonce = self.nonce()?;
        let plain = self.key.open_in_place(nonce, Aad::empty(), sealed).map_err(|_| Fault::AuthTag)?;
        Ok(plain.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_opens_what_the_other_sealed_and_nothing_twice() {
        let secret: Vec<u8> = (0..40).collect();
        let (_, mut tx) = ciphers(&secret, true).unwrap();
        let (mut rx, _) = ciphers(&secret, false).unwrap();
        for text in [b"one".as_slice(), b"two"] {
            let mut buf = text.to_vec();
            let tag = tx.seal(&mut buf).unwrap();
            buf.extend_from_slice(&tag);
            let n = rx.open(&mut buf.clone()).unwrap();
            assert_eq!(n, text.len());
            assert_eq!(rx.open(&mut buf), Err(Fault::AuthTag), "a replay");
            rx.counter -= 1;
        }
    }

    #[test]
    fn a_short_secret_is_refused() {
        assert_eq!(ciphers(&[0; 39], true).unwrap_err(), Fault::ShortSecret);
    }
}
