//! The first start: what `--mkfs` leaves behind, and the state the first leader makes of it.

use crate::env::Env;
use crate::services::{
    State, auth::AuthService, config::ConfigService, config_key::ConfigKeyService, fsmap::FsMapService,
    health::HealthService, log::LogService, mgr::MgrService, monmap::MonMapService, osdmap::OsdMapService,
};
use crate::txn::{StateError, Txn};
use crate::raft;
use denc::{Decode, Encode};
use auth::{ChaCha8Rng, EntityAuth, Keyring};
use store::{Kv, KvBatch, KvError};
use types::map::{MonMap, OsdMap};
use types::{EntityKind, EntityName, Now, features};

const MONMAP: &[u8] = b"bmonmap";
const KEYRING: &[u8] = b"bkeyring";
const SEAT: &[u8] = b"bseat";

/// Which member of consensus a store is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct Seat {
    pub id: u64,
    /// The ids the group began with.
    pub founders: Vec<u64>,
}

/// Why a directory could not be formatted.
#[derive(Debug, thiserror::Error)]
pub enum MkfsError {
    #[error("the directory already holds a monitor of cluster {0}")]
    AlreadyFormatted(uuid::Uuid),
    #[error("the keyring has no key for mon.")]
    NoMonKey,
    #[error(transparent)]
    Kv(#[from] KvError),
    #[error(transparent)]
    State(#[from] StateError),
}

/// Formats an empty store: keeps the monmap and the keyring for the first start. The same monmap twice is no error, so
/// that scripts may repeat it. A monitor that the map does not name will ask those it names to be let in.
pub fn mkfs(kv: &mut impl Kv, monmap: &MonMap, keyring: &Keyring) -> Result<(), MkfsError> {
    if let Some(old) = read_monmap(kv)? {
        return if old.fsid == monmap.fsid { Ok(()) } else { Err(MkfsError::AlreadyFormatted(old.fsid)) };
    }
    if keyring.get(&EntityName::monitors()).is_none() {
        return Err(MkfsError::NoMonKey);
    }
    let mut batch = KvBatch::default();
    batch.put(MONMAP, denc::to_bytes(monmap, features::SUPPORTED));
    let entries: Vec<(EntityName, EntityAuth)> = keyring.entries.clone().into_iter().collect();
    batch.put(KEYRING, denc::to_bytes(&entries, 0));
    kv.apply(batch)?;
    Ok(kv.flush_sync()?)
}

/// The monmap that `mkfs` was given; none in an empty store.
pub fn read_monmap(kv: &impl Kv) -> Result<Option<MonMap>, StateError> {
    let source = |source| StateError::Corrupt { what: "the monmap of mkfs".into(), source };
    kv.get(MONMAP)?.map(|raw| denc::from_bytes(&raw).map_err(source)).transpose()
}

/// The newest monmap that a store has; none in an empty one.
pub fn newest_monmap(kv: &impl Kv) -> Result<Option<MonMap>, StateError> {
    match MonMapService::load(kv)? {
        Some(service) => Ok(Some(service.map)),
        None => read_monmap(kv),
    }
}

/// Which member the store is; none while it has only been formatted.
pub(crate) fn read_seat(kv: &impl Kv, name: &str) -> Result<Option<Seat>, StateError> {
    let source = |source| StateError::Corrupt { what: "the seat".into(), source };
    if let Some(raw) = kv.get(SEAT)? {
        return denc::from_bytes(&raw).map(Some).map_err(source);
    }
    // Before seats were kept, everybody was a founder.
    match raft::has_log(kv)? {
        true => Ok(read_monmap(kv)?.and_then(|monmap| founding_seat(&monmap, name))),
        false => Ok(None),
    }
}

/// The seat of a founder.
pub(crate) fn founding_seat(monmap: &MonMap, name: &str) -> Option<Seat> {
    let rank = monmap.rank_of(name)?;
    Some(Seat { id: rank as u64 + 1, founders: (1..=monmap.ranks.len() as u64).collect() })
}

/// Keeps it: the first flush of consensus carries it.
pub(crate) fn take_seat(kv: &mut impl Kv, seat: &Seat) -> Result<(), StateError> {
    let mut batch = KvBatch::default();
    batch.put(SEAT, denc::to_bytes(seat, 0));
    Ok(kv.apply(batch)?)
}

/// The keys of managers that live with this monitor, as `mkfs` was given or made them.
pub(crate) fn own_managers(kv: &impl Kv) -> Result<Keyring, StateError> {
    let mut keyring = read_keyring(kv)?;
    keyring.entries.retain(|name, _| name.kind == EntityKind::MGR);
    Ok(keyring)
}

/// The keyring that `mkfs` was given.
pub(crate) fn read_keyring(kv: &impl Kv) -> Result<Keyring, StateError> {
    let source = |source| StateError::Corrupt { what: "the keyring of mkfs".into(), source };
    let raw = kv.get(KEYRING)?.ok_or(StateError::Missing("the keyring of mkfs"))?;
    let entries: Vec<(EntityName, EntityAuth)> = denc::from_bytes(&raw).map_err(source)?;
    Ok(Keyring { entries: entries.into_iter().collect() })
}

/// The state of a new cluster.
pub fn create(kv: &impl Kv, env: &Env, now: Now, rng: &mut ChaCha8Rng, txn: &mut Txn) -> Result<State, StateError> {
    let monmap = read_monmap(kv)?.ok_or(StateError::Missing("the monmap of mkfs"))?;
    let keyring = read_keyring(kv)?;
    let mut osdmap = OsdMap::new(monmap.fsid, now.wall);
    crate::placement::first_crush(env, &mut osdmap);
    let mut auth = AuthService::create(&keyring, txn);
    add_bootstrap_keys(&mut auth, now, rng, txn);
    Ok(State {
        monmap: MonMapService::create(monmap, txn),
        osdmap: OsdMapService::create(osdmap, txn),
        mgr: MgrService::create(txn),
        fsmap: FsMapService::create(txn),
        auth,
        config: ConfigService::empty(),
        config_key: ConfigKeyService::empty(),
        log: LogService::empty(),
        health: HealthService::default(),
    })
}

/// The keys that deployment tools expect to find.
pub(crate) fn add_bootstrap_keys(auth: &mut AuthService, now: Now, rng: &mut ChaCha8Rng, txn: &mut Txn) {
    for what in ["mds", "mgr", "osd", "rbd", "rbd-mirror", "rgw"] {
        let name = EntityName::new(EntityKind::CLIENT, format!("bootstrap-{what}"));
        if auth.get(&name).is_none() {
            let key = AuthService::generate_key(now.wall, rng);
            let caps = [("mon".to_owned(), format!("allow profile bootstrap-{what}"))].into();
            auth.put(name, EntityAuth { key, caps }, txn);
        }
    }
}
