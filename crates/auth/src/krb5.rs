//! aes256-cts-hmac-sha384-192 (RFC 8009), the cipher of `aes256k` keys.
//!
//! A ciphertext is a confounder and the plaintext under AES-256-CBC with ciphertext stealing, then 24 bytes of HMAC
//! over a zero cipher state and the ciphertext. Each use derives its own pair of keys from the secret and a number.
//! Upstream: CryptoAES256KRB5 in src/auth/Crypto.cc (Tentacle).

use aes::Aes256;
use cts::{CbcCs3, Decrypt, Encrypt, KeyIvInit};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha384;

/// Bytes of random at the front of every plaintext.
pub const CONFOUNDER_LEN: usize = 16;
const MAC_LEN: usize = 24;
const CIPHER_STATE: [u8; 16] = [0; 16];
/// Bytes of a secret.
pub const SECRET_LEN: usize = 32;

/// The kinds of derived keys, the last byte of the label.
const ENCRYPTION: u8 = 0xaa;
const INTEGRITY: u8 = 0x55;

fn hmac384(key: &[u8], parts: &[&[u8]]) -> Option<[u8; 48]> {
    let mut mac = <Hmac<Sha384> as KeyInit>::new_from_slice(key).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac.finalize().into_bytes().into())
}

/// KDF-HMAC-SHA2 of RFC 8009 section 3; `bits` is part of what is hashed, the caller truncates.
fn derive(secret: &[u8], usage: u32, kind: u8, bits: u32) -> Option<[u8; 48]> {
    hmac384(secret, &[&1u32.to_be_bytes(), &usage.to_be_bytes(), &[kind], &[0], &bits.to_be_bytes()])
}

fn mac(secret: &[u8], usage: u32, ciphertext: &[u8]) -> Option<[u8; MAC_LEN]> {
    let key = derive(secret, usage, INTEGRITY, 192)?;
    let full = hmac384(key.get(..24)?, &[&CIPHER_STATE, ciphertext])?;
    full.get(..MAC_LEN)?.try_into().ok()
}

fn cipher(secret: &[u8], usage: u32) -> Option<CbcCs3<Aes256>> {
    let key = derive(secret, usage, ENCRYPTION, 256)?;
    CbcCs3::<Aes256>::new_from_slices(key.get(..32)?, &CIPHER_STATE).ok()
}

/// Seals `plaintext`; `None` only if the secret has the wrong length or there is nothing to seal (the `cts` crate
/// encrypts a single block twice, and every plaintext of ours is an envelope of at least nine bytes).
pub fn encrypt(secret: &[u8], usage: u32, confounder: [u8; CONFOUNDER_LEN], plaintext: &[u8]) -> Option<Vec<u8>> {
    if plaintext.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(CONFOUNDER_LEN + plaintext.len() + MAC_LEN);
    out.extend_from_slice(&confounder);
    out.extend_from_slice(plaintext);
    cipher(secret, usage)?.encrypt(&mut out).ok()?;
    let mac = mac(secret, usage, &out)?;
    out.extend_from_slice(&mac);
    Some(out)
}

/// Opens a sealed box; `None` if it is too short or its HMAC is wrong.
pub fn decrypt(secret: &[u8], usage: u32, sealed: &[u8]) -> Option<Vec<u8>> {
    let len = sealed.len().checked_sub(MAC_LEN).filter(|len| *len > CONFOUNDER_LEN)?;
    let (ciphertext, tag) = sealed.split_at(len);
    let expected = mac(secret, usage, ciphertext)?;
    // Equal length, every byte looked at: the time does not tell where they differ.
    if expected.iter().zip(tag).fold(0, |diff, (a, b)| diff | (a ^ b)) != 0 {
        return None;
    }
    let mut out = ciphertext.to_vec();
    cipher(secret, usage)?.decrypt(&mut out).ok()?;
    out.drain(..CONFOUNDER_LEN);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(s: &str) -> Vec<u8> {
        (0..s.len() / 2).map(|i| u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap()).collect()
    }

    #[test]
    fn rfc8009_appendix_a_vectors_for_aes256() {
        let secret = hex("6D404D37FAF79F9DF0D33568D320669800EB4836472EA8A026D16B7182460C52");
        let cases = [
            ("B80D3251C1F6471494256FFE712D0B9A", "000102030405", "4ED7B37C2BCAC8F74F23C1CF07E62BC7B75FB3F637B9F559C7F664F69EAB7B6092237526EA0D1F61CB20D69D10F2"),
            (
                "53BF8A0D105265D4E276428624CE5E63",
                "000102030405060708090A0B0C0D0E0F",
                "BC47FFEC7998EB91E8115CF8D19DAC4BBBE2E163E87DD37F49BECA92027764F68CF51F14D798C2273F35DF574D1F932E40C4FF255B36A266",
            ),
            (
                "763E65367E864F02F55153C7E3B58AF1",
                "000102030405060708090A0B0C0D0E0F1011121314",
                "40013E2DF58E8751957D2878BCD2D6FE101CCFD556CB1EAE79DB3C3EE86429F2B2A602AC86FEF6ECB647D6295FAE077A1FEB517508D2C16B4192E01F62",
            ),
        ];
        for (confounder, plain, sealed) in cases {
            let confounder: [u8; 16] = hex(confounder).try_into().unwrap();
            assert_eq!(encrypt(&secret, 2, confounder, &hex(plain)).unwrap(), hex(sealed), "{plain:?}");
            assert_eq!(decrypt(&secret, 2, &hex(sealed)).unwrap(), hex(plain));
        }
    }

    #[test]
    fn a_flipped_bit_another_usage_and_short_input_do_not_open() {
        let secret = [7u8; 32];
        let sealed = encrypt(&secret, 4, [1; 16], b"ticket").unwrap();
        assert!(decrypt(&secret, 4, &sealed).is_some());
        assert!(decrypt(&secret, 5, &sealed).is_none());
        for i in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[i] ^= 1;
            assert!(decrypt(&secret, 4, &bad).is_none());
            assert!(decrypt(&secret, 4, &sealed[..i]).is_none());
        }
    }
}
