//! What OSDs keep for the day every monitor is lost: maps they have anyway; keys, options and the other small services
//! they are given here.
//!
//! Hears: changes that were applied, time. Says: `MonCopy` to every OSD, soon after a change and when it comes.
//! Holds: a copy is of committed state only. Keys leave sealed with a key derived from that of `mon.`, so that a disk
//! that is thrown away gives away no more than stock's: its own OSD's key.
//! Tests: `recover`; tests/clients/recover_monitors.py.

use crate::mon::Mon;
use crate::session::SessionId;
use crate::txn::{self, StateError};
use auth::{ChaCha8Rng, CryptoKey};
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{Kv, KvBatch, KvOp};
use types::msg::internal::{KeptState, MonCopy};
use types::{EntityKind, EntityName, Mono, Now};

/// Services whose state anybody may read.
const OPEN: [&str; 5] = ["config", "fsmap", "health", "mgr", "monmap"];
/// Services with secrets.
const SEALED: [&str; 2] = ["auth", "config-key"];
/// Where `recover` notes how often it was needed.
pub(crate) const NAME: &str = "kept";
/// Between two copies: what changes often is not sent each time.
const PAUSE: Duration = Duration::from_secs(5);
const PURPOSE: &str = "what OSDs keep of the monitors";

/// What the OSDs were given.
#[derive(Default)]
pub(crate) struct Keep {
    /// There were no changes since.
    clean: bool,
    next: Mono,
    copy: Option<KeptState>,
    /// The index of what each session was sent.
    told: BTreeMap<SessionId, u64>,
}

impl Keep {
    /// Notes whether applied changes concern what OSDs keep.
    pub fn follow(&mut self, batch: &KvBatch) {
        self.clean &= !batch.ops.iter().any(concerns);
    }
}

impl<K: Kv> Mon<K> {
    /// Once a second, at the leader.
    pub(crate) fn tick_keep(&mut self, now: Now) {
        if !self.keep.clean && now.mono >= self.keep.next && self.is_settled() {
            self.keep.next = now.mono + PAUSE;
            match copy(&self.kv, self.raft.log_range().1, &mut self.rng) {
                Ok(copy) => {
                    self.keep.clean = true;
                    self.keep.copy = copy;
                }
                Err(e) => return self.fail(e.to_string()),
            }
        }
        let Some(copy) = self.keep.copy.clone() else { return };
        self.keep.told.retain(|id, _| self.sessions.contains_key(id));
        let lacks = |id: &SessionId| self.keep.told.get(id) != Some(&copy.index);
        let osds = self.sessions.iter().filter(|(id, s)| s.peer.name.kind == EntityKind::OSD && s.may("osd", "rwx") && lacks(id));
        let osds: Vec<SessionId> = osds.map(|(id, _)| *id).collect();
        for id in osds {
            self.keep.told.insert(id, copy.index);
            self.send(id, 0, MonCopy { copy: copy.clone() });
        }
    }
}

/// The state that OSDs keep; none before there is any.
fn copy(kv: &impl Kv, index: u64, rng: &mut ChaCha8Rng) -> Result<Option<KeptState>, StateError> {
    let mon = EntityName::monitors();
    let entity: Option<auth::EntityAuth> = txn::get(kv, "auth", format!("e/{mon}"))?;
    let Some(entity) = entity else { return Ok(None) };
    let generation = txn::get(kv, NAME, "generation")?.unwrap_or(0);
    let sealed = sealing_key(&entity.key).encrypt(0, &pairs(kv, &SEALED)?, rng);
    Ok(Some(KeptState { generation, index, open: pairs(kv, &OPEN)?, sealed: sealed.into() }))
}

fn pairs(kv: &impl Kv, services: &[&str]) -> Result<Bytes, StateError> {
    let mut all: Vec<(Bytes, Bytes)> = Vec::new();
    for service in services {
        let rows = txn::scan(kv, service, b"")?;
        all.extend(rows.into_iter().map(|(k, v)| (txn::state_key(service, k).into(), v)));
    }
    Ok(denc::to_bytes(&all, 0))
}

/// What anybody may read of a copy, as changes of an empty store.
pub(crate) fn open_part(kept: &KeptState) -> Result<KvBatch, StateError> {
    batch(&kept.open, &OPEN)
}

/// What is sealed, if this is the key of `mon.` that it was sealed with.
pub(crate) fn sealed_part(kept: &KeptState, mon_key: &CryptoKey) -> Result<Option<KvBatch>, StateError> {
    match sealing_key(mon_key).decrypt(0, &kept.sealed) {
        Ok(raw) => batch(&raw.into(), &SEALED).map(Some),
        Err(_) => Ok(None),
    }
}

fn batch(raw: &Bytes, services: &[&str]) -> Result<KvBatch, StateError> {
    let source = |source| StateError::Corrupt { what: "what an OSD kept of the monitors".into(), source };
    let all: Vec<(Bytes, Bytes)> = denc::from_bytes(raw).map_err(source)?;
    let mut batch = KvBatch::default();
    let known = |key: &Bytes| services.iter().any(|s| key.starts_with(&txn::state_key(s, "")));
    all.into_iter().filter(|(k, _)| known(k)).for_each(|(k, v)| batch.put(k, v));
    Ok(batch)
}

fn sealing_key(mon_key: &CryptoKey) -> CryptoKey {
    mon_key.derive(PURPOSE)
}

fn concerns(op: &KvOp) -> bool {
    OPEN.iter().chain(&SEALED).any(|service| op.key().starts_with(&txn::state_key(service, "")))
}
