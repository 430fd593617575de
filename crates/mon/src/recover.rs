//! A monitor's store made anew from what OSDs kept, when every monitor is lost.
//!
//! Holds: nothing that an OSD knows is forgotten: the osdmap goes on from the newest epoch, global ids from behind any
//! that were given, ids of consensus likewise, so that a monitor of before that turns up again is nobody. What is made
//! is a group of one, whose state stands before its log: whoever joins gets it as a snapshot.
//! Upstream: doc/rados/troubleshooting/troubleshooting-mon.rst (recovery using OSDs).

use crate::boot::{self, MkfsError, Seat};
use crate::services::State;
use crate::services::auth::{AuthService, caps_of};
use crate::services::fsmap::FsMapService;
use crate::services::mgr::MgrService;
use crate::services::monmap::{MemberIds, MonMapService};
use crate::services::osdmap;
use crate::txn::{self, StateError, Txn};
use crate::{keep, raft};
use auth::{ChaCha8Rng, EntityAuth, Keyring};
use bytes::Bytes;
use denc::DecodeError;
use std::collections::BTreeMap;
use store::{Kv, KvBatch, KvError};
use types::map::{MonMap, OsdMap};
use types::msg::internal::KeptState;
use types::{AddrVec, EntityKind, EntityName, Epoch, Now};
use uuid::Uuid;

/// What there is to rebuild from.
pub struct Remains {
    pub fsid: Uuid,
    /// Full maps, and the step that led to each where it is known.
    pub maps: BTreeMap<Epoch, (Bytes, Option<Bytes>)>,
    /// The newest copy of the monitors' state.
    pub kept: Option<KeptState>,
    /// Keyrings found beside it; one of them may have the key of `mon.` that opens the copy.
    pub keyrings: Vec<Keyring>,
    /// The OSDs' own.
    pub osd_keys: Keyring,
}

/// The monitor that is to begin again.
pub struct NewMon {
    pub name: String,
    pub addrs: AddrVec,
}

/// What became of the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keys {
    /// All are as they were.
    Kept,
    /// No OSD kept any.
    NoCopy,
    /// There is a copy that no key at hand opens.
    Locked,
}

/// What was made.
#[derive(Debug)]
pub struct Recovered {
    pub first: Epoch,
    pub last: Epoch,
    pub keys: Keys,
    pub entities: usize,
    /// Values of options.
    pub options: usize,
    /// The keys of `mon.`, of the manager beside it, and of `client.admin`.
    pub keyring: Keyring,
    /// OSDs that the map has, and whose keys are not known.
    pub keyless: Vec<types::OsdId>,
}

/// Why there can be no monitor from this.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    #[error("the OSDs have no osdmap: they never spoke to a monitor")]
    NoMap,
    #[error("the newest osdmap cannot be read: {0}")]
    BadMap(DecodeError),
    #[error(transparent)]
    Mkfs(#[from] MkfsError),
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<KvError> for RecoverError {
    fn from(e: KvError) -> Self {
        RecoverError::State(e.into())
    }
}

/// The monitors that a copy knows, in the order of their ranks.
pub fn monitors_of(kept: &KeptState) -> Result<Option<MonMap>, StateError> {
    let key = txn::state_key("monmap", "current");
    let raw = keep::open_part(kept)?.ops.into_iter().find_map(|op| match op {
        store::KvOp::Put(k, v) if k == key => Some(v),
        _ => None,
    });
    let source = |source| StateError::Corrupt { what: "the monmap that an OSD kept".into(), source };
    raw.map(|raw| denc::from_bytes(&raw).map_err(source)).transpose()
}

/// Fills an empty store.
pub fn recover(kv: &mut impl Kv, remains: &Remains, mon: &NewMon, now: Now, rng: &mut ChaCha8Rng) -> Result<Recovered, RecoverError> {
    let mut batch = KvBatch::default();
    let keys = copied(remains, &mut batch)?;
    kv.apply(batch)?;
    let mut txn = Txn::default();
    let (first, last) = write_maps(remains, &mut txn)?;
    let members = write_monmap(kv, remains, mon, now, &mut txn)?;
    if remains.kept.is_none() {
        MgrService::create(&mut txn);
        FsMapService::create(&mut txn);
    }
    let auth = write_auth(kv, remains, mon, keys, now, rng, &mut txn)?;
    let generation = remains.kept.as_ref().map_or(0, |k| k.generation) + 1;
    txn.put_encoded(keep::NAME, "generation", &generation);
    let mut batch = txn.take();
    raft::begin_with_state(&mut batch, members.last);
    kv.apply(batch)?;
    let keyring = keyring_of(&auth, mon);
    let mut monmap = MonMap::new(remains.fsid, now.wall);
    monmap.add(&mon.name, mon.addrs.clone());
    boot::mkfs(kv, &monmap, &keyring)?;
    boot::take_seat(kv, &Seat { id: members.last, founders: (1..=members.founders).collect() })?;
    kv.flush_sync()?;
    // What a monitor will do first.
    let state = State::load(kv)?.ok_or(StateError::Missing("the monmap"))?;
    let osds = state.osdmap.map.osds().collect::<Vec<_>>();
    let keyless = osds.into_iter().filter(|osd| state.auth.get(&EntityName::new(EntityKind::OSD, osd.to_string())).is_none()).collect();
    Ok(Recovered { first, last, keys, entities: auth.entities.len(), options: state.config.entries().count(), keyring, keyless })
}

/// What OSDs kept of the monitors.
fn copied(remains: &Remains, batch: &mut KvBatch) -> Result<Keys, StateError> {
    let Some(kept) = &remains.kept else { return Ok(Keys::NoCopy) };
    batch.append(keep::open_part(kept)?);
    let mon = EntityName::monitors();
    for key in remains.keyrings.iter().filter_map(|k| k.key(&mon)) {
        if let Some(sealed) = keep::sealed_part(kept, key)? {
            batch.append(sealed);
            return Ok(Keys::Kept);
        }
    }
    Ok(Keys::Locked)
}

/// The newest map and as many before it as can be had without a gap.
fn write_maps(remains: &Remains, txn: &mut Txn) -> Result<(Epoch, Epoch), RecoverError> {
    let (last, (newest, _)) = remains.maps.last_key_value().ok_or(RecoverError::NoMap)?;
    denc::from_bytes::<OsdMap>(newest).map_err(RecoverError::BadMap)?;
    let mut first = *last;
    osdmap::restore(first, newest, None, txn);
    for (epoch, (full, _)) in remains.maps.iter().rev().skip(1) {
        // A map is of use to whoever can go on from it.
        let Some((_, Some(step))) = remains.maps.get(&first).filter(|_| epoch.next() == first) else { break };
        osdmap::restore(first, &remains.maps[&first].0, Some(step), txn);
        osdmap::restore(*epoch, full, None, txn);
        first = *epoch;
    }
    osdmap::restore_range(first, *last, txn);
    Ok((first, *last))
}

/// The one monitor: its id is one that nobody had.
fn write_monmap(kv: &impl Kv, remains: &Remains, mon: &NewMon, now: Now, txn: &mut Txn) -> Result<MemberIds, StateError> {
    let (mut service, before) = match MonMapService::load(kv)? {
        Some(service) => {
            let members = service.members.clone();
            (service, members)
        }
        None => (MonMapService::create(MonMap::new(remains.fsid, now.wall), txn), MemberIds::default()),
    };
    let mut map = service.map.clone();
    map.ranks.clone().iter().for_each(|name| map.remove(name));
    map.removed_ranks.clear();
    map.add(&mon.name, mon.addrs.clone());
    service.replace(map, now.wall, txn);
    // Without a copy nobody knows how many there were.
    let last = before.last.max(if before.last == 0 { 1000 } else { 0 }) + 1;
    let members = MemberIds { ids: [(mon.name.clone(), last)].into(), last, founders: before.founders.max(1) };
    service.change_members(txn, |m| *m = members.clone());
    Ok(members)
}

fn write_auth(
    kv: &impl Kv, remains: &Remains, mon: &NewMon, keys: Keys, now: Now, rng: &mut ChaCha8Rng, txn: &mut Txn,
) -> Result<AuthService, StateError> {
    let mut auth = match keys {
        Keys::Kept => AuthService::load(kv)?,
        Keys::NoCopy | Keys::Locked => AuthService::create(&Keyring::default(), txn),
    };
    auth.skip_ids(txn);
    let given = remains.keyrings.iter().flat_map(|k| &k.entries).filter(|(name, _)| is_monitors(name, mon) || name.kind == EntityKind::CLIENT);
    let given: Vec<(EntityName, EntityAuth)> = given.map(|(n, e)| (n.clone(), e.clone())).collect();
    for (name, mut entity) in given {
        if auth.get(&name).is_none() {
            entity.caps = if entity.caps.is_empty() { caps_of(&name) } else { entity.caps };
            auth.put(name, entity, txn);
        }
    }
    for (name, entity) in &remains.osd_keys.entries {
        if auth.get(name).is_none() {
            auth.put(name.clone(), EntityAuth { key: entity.key.clone(), caps: caps_of(name) }, txn);
        }
    }
    for name in [EntityName::monitors(), EntityName::new(EntityKind::CLIENT, "admin"), mgr_of(mon)] {
        if auth.get(&name).is_none() {
            let key = AuthService::generate_key(now.wall, rng);
            auth.put(name.clone(), EntityAuth { key, caps: caps_of(&name) }, txn);
        }
    }
    boot::add_bootstrap_keys(&mut auth, now, rng, txn);
    Ok(auth)
}

fn mgr_of(mon: &NewMon) -> EntityName {
    EntityName::new(EntityKind::MGR, mon.name.clone())
}

fn is_monitors(name: &EntityName, mon: &NewMon) -> bool {
    *name == EntityName::monitors() || *name == mgr_of(mon)
}

fn keyring_of(auth: &AuthService, mon: &NewMon) -> Keyring {
    let names = [EntityName::monitors(), mgr_of(mon), EntityName::new(EntityKind::CLIENT, "admin")];
    Keyring { entries: names.into_iter().filter_map(|n| Some((n.clone(), auth.get(&n)?.clone()))).collect() }
}
