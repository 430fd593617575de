//! cephx and capabilities: keys, keyrings, tickets, authorizers, and who may do what.
//!
//! Room: engine. Bytes in, bytes out; time, chance and the key database are arguments.
//! Holds: nothing a stranger sends reaches a decision before it was decrypted with a key only its claimed owner (or
//! the monitors) can have; every wrong step ends in an errno, never in a panic.
//! Upstream: src/auth/, src/mon/MonCap.cc, src/osd/OSDCap.cc, src/mgr/MgrCap.cc, doc/dev/cephx_protocol.rst.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::indexing_slicing))]

pub mod caps;
pub mod cephx;
mod key;
mod keyring;
mod krb5;

pub use caps::{MgrCaps, MonCaps, OsdCaps, Rwx};
pub use key::{CryptoKey, KeyError, KeyKind};
pub use keyring::{EntityAuth, Keyring, KeyringError};
pub use rand_chacha::ChaCha8Rng;

/// Authentication methods of AUTH_REQUEST (`CEPH_AUTH_*`).
pub mod method {
    pub const NONE: u32 = 1;
    pub const CEPHX: u32 = 2;
}

/// Connection modes of AUTH_REQUEST and AUTH_DONE (`CEPH_CON_MODE_*`).
pub mod mode {
    pub const CRC: u32 = 1;
    pub const SECURE: u32 = 2;

    /// An option's text, as `secure crc`: modes in order of preference. `Err` is the word that is none.
    pub fn parse(text: &str) -> Result<Vec<u32>, &str> {
        let mode = |word| match word {
            "crc" => Ok(CRC),
            "secure" => Ok(SECURE),
            other => Err(other),
        };
        text.split([' ', ',']).filter(|word| !word.is_empty()).map(mode).collect()
    }

    /// Bytes of connection secret a mode needs.
    pub fn secret_len(mode: u32) -> usize {
        if mode == SECURE { 64 } else { 0 }
    }
}
