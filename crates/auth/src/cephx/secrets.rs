//! The secrets a service shares with the monitors: three at a time, the oldest replaced as time passes.
//!
//! Tickets are sealed with the middle one, so that a service that has not heard of the newest, and a ticket under the
//! one before, both still work. Upstream: src/auth/Auth.h (RotatingSecrets), src/auth/cephx/CephxKeyServer.cc.

use crate::key::{CryptoKey, KeyKind};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::time::Duration;
use types::Utime;

/// Previous, current, next.
const KEPT: usize = 3;

/// A secret and when it stops being used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiringKey {
    pub key: CryptoKey,
    pub expires: Utime,
}

impl Encode for ExpiringKey {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8).put(&self.key).put(&self.expires);
    }
}
impl Decode for ExpiringKey {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let _version: u8 = d.get()?;
        Ok(ExpiringKey { key: d.get()?, expires: d.get()? })
    }
}

/// A service's secrets by id; ids only grow.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RotatingSecrets {
    pub secrets: BTreeMap<u64, ExpiringKey>,
    pub newest: u64,
}

impl Encode for RotatingSecrets {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8).put(&self.secrets).put(&self.newest);
    }
}
impl Decode for RotatingSecrets {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let _version: u8 = d.get()?;
        Ok(RotatingSecrets { secrets: d.get()?, newest: d.get()? })
    }
}

impl RotatingSecrets {
    /// True if `rotate` would add a secret: fewer than three, or the current one expired.
    pub fn must_rotate(&self, now: Utime) -> bool {
        self.secrets.len() < KEPT || self.current().is_some_and(|c| c.expires <= now)
    }

    /// Adds secrets until the current one is fresh; true if any was added. `ttl` is a ticket's life.
    pub fn rotate(&mut self, now: Utime, ttl: Duration, kind: KeyKind, rng: &mut ChaCha8Rng) -> bool {
        let mut added = false;
        while self.must_rotate(now) {
            let from = match self.secrets.values().next_back() {
                None => now,
                Some(newest) => newest.expires.max(later(now, ttl)),
            };
            self.newest += 1;
            let key = CryptoKey::generate(kind, now, rng);
            self.secrets.insert(self.newest, ExpiringKey { key, expires: later(from, ttl) });
            while self.secrets.len() > KEPT {
                self.secrets.pop_first();
            }
            added = true;
        }
        added
    }

    /// The secret new tickets are sealed with: the middle one, the next if that has expired.
    pub fn for_sealing(&self, now: Utime) -> Option<(u64, &CryptoKey)> {
        let skip = usize::from(self.secrets.len() > 1);
        let mut from_current = self.secrets.iter().skip(skip);
        let (id, current) = from_current.next()?;
        let (id, chosen) = match current.expires < now {
            true => from_current.next().unwrap_or((id, current)),
            false => (id, current),
        };
        Some((*id, &chosen.key))
    }

    /// The secret numbered `id`, if it is still kept.
    pub fn get(&self, id: u64) -> Option<&CryptoKey> {
        self.secrets.get(&id).map(|s| &s.key)
    }

    /// When a service should fetch again: half a life before the current one ends, in effect when it becomes previous.
    pub fn current(&self) -> Option<&ExpiringKey> {
        self.secrets.values().nth(usize::from(self.secrets.len() > 1))
    }
}

/// `at` plus `d`.
pub(crate) fn later(at: Utime, d: Duration) -> Utime {
    Utime::from_duration(at.to_duration().saturating_add(d))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn at(sec: u32) -> Utime {
        Utime { sec, nsec: 0 }
    }

    #[test]
    fn the_first_rotation_makes_three_and_later_ones_replace_the_oldest() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut r = RotatingSecrets::default();
        let ttl = Duration::from_secs(3600);
        assert!(r.rotate(at(1000), ttl, KeyKind::Aes, &mut rng));
        assert_eq!(r.secrets.values().map(|s| s.expires.sec).collect::<Vec<_>>(), [4600, 8200, 11800]);
        assert!(!r.rotate(at(8199), ttl, KeyKind::Aes, &mut rng));
        assert_eq!(r.for_sealing(at(8199)).unwrap().0, 2);
        assert_eq!(r.for_sealing(at(8201)).unwrap().0, 3, "an expired current secret is not used");
        assert!(r.rotate(at(8200), ttl, KeyKind::Aes, &mut rng));
        assert_eq!(r.secrets.keys().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert!(r.get(1).is_none());
    }

    #[test]
    fn secrets_round_trip() {
        let mut rng = ChaCha8Rng::seed_from_u64(0);
        let mut r = RotatingSecrets::default();
        r.rotate(at(1), Duration::from_secs(60), KeyKind::Aes256k, &mut rng);
        assert_eq!(denc::from_bytes::<RotatingSecrets>(&denc::to_bytes(&r, 0)).unwrap(), r);
    }
}
