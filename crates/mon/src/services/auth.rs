//! Who exists, their keys and capabilities; the services' rotating secrets; global ids.
//!
//! Holds: a global id is given out only below a limit that is already in the log, so that no restart gives it twice.
//! Upstream: src/mon/AuthMonitor.cc.

use crate::txn::{self, StateError, Txn};
use auth::cephx::{KeyStore, RotatingSecrets, TicketPolicy};
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind, Keyring};
use std::collections::BTreeMap;
use std::time::Duration;
use store::Kv;
use types::{EntityKind, EntityName, Utime};

const NAME: &str = "auth";

/// Global ids reserved in one step.
const ID_RANGE: u64 = 10_000;
/// Left in the range when the next one is reserved.
const ID_LOW_WATER: u64 = 1_000;
/// Left out when the database was restored from a copy: two clients of one id would take each other's requests for done.
const ID_GAP: u64 = 1 << 32;
/// Where global ids start, as upstream's first client has it.
const FIRST_ID: u64 = 4_100;

/// Services that have rotating secrets.
const SERVICES: [EntityKind; 5] = [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MDS, EntityKind::MGR];

/// The key database.
pub struct AuthService {
    pub entities: BTreeMap<EntityName, EntityAuth>,
    secrets: BTreeMap<u32, RotatingSecrets>,
    pub policy: TicketPolicy,
    next_id: u64,
    /// Ids below this may be given out once the log has it.
    id_limit: u64,
}

/// The caps that a daemon of this kind is given; of clients, the administrator's.
pub fn caps_of(name: &EntityName) -> BTreeMap<String, String> {
    let caps: &[(&str, &str)] = match name.kind {
        EntityKind::MON => &[("mon", "allow *")],
        EntityKind::OSD => &[("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")],
        EntityKind::MGR => &[("mon", "allow profile mgr"), ("osd", "allow *"), ("mds", "allow *")],
        _ if name.id == "admin" => &[("mds", "allow *"), ("mgr", "allow *"), ("mon", "allow *"), ("osd", "allow *")],
        _ => &[],
    };
    caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

impl AuthService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let mut entities = BTreeMap::new();
        for (key, raw) in txn::scan(kv, NAME, b"e/")? {
            let what = || format!("auth entity {}", String::from_utf8_lossy(&key));
            let name = std::str::from_utf8(&key[2..]).ok().and_then(|s| s.parse().ok());
            let name: EntityName = name.ok_or(StateError::Missing("an entity's name"))?;
            let entity = denc::from_bytes(&raw).map_err(|source| StateError::Corrupt { what: what(), source })?;
            entities.insert(name, entity);
        }
        let secrets = txn::get(kv, NAME, "secrets")?.unwrap_or_default();
        // Ids of the range's used part are not known any more: go on behind it.
        let id_limit = txn::get(kv, NAME, "id_limit")?.unwrap_or(FIRST_ID);
        Ok(AuthService { entities, secrets, policy: TicketPolicy::default(), next_id: id_limit, id_limit })
    }

    /// Publishes the first database: what the keyring brings.
    pub fn create(keyring: &Keyring, txn: &mut Txn) -> Self {
        let mut service = AuthService {
            entities: BTreeMap::new(),
            secrets: BTreeMap::new(),
            policy: TicketPolicy::default(),
            next_id: FIRST_ID,
            id_limit: FIRST_ID,
        };
        for (name, entity) in &keyring.entries {
            service.put(name.clone(), entity.clone(), txn);
        }
        service
    }

    pub fn put(&mut self, name: EntityName, entity: EntityAuth, txn: &mut Txn) {
        txn.put_encoded(NAME, format!("e/{name}"), &entity);
        self.entities.insert(name, entity);
    }

    /// Removes an entity; false if it was not there.
    pub fn remove(&mut self, name: &EntityName, txn: &mut Txn) -> bool {
        txn.delete(NAME, format!("e/{name}"));
        self.entities.remove(name).is_some()
    }

    pub fn get(&self, name: &EntityName) -> Option<&EntityAuth> {
        self.entities.get(name)
    }

    /// A new key of the kind every client can use.
    pub fn generate_key(now: Utime, rng: &mut ChaCha8Rng) -> CryptoKey {
        CryptoKey::generate(KeyKind::Aes, now, rng)
    }

    /// Makes secrets that are missing or due. Each service's first three are made at once.
    pub fn rotate(&mut self, now: Utime, rng: &mut ChaCha8Rng, txn: &mut Txn) {
        let mut changed = false;
        for service in SERVICES {
            let ttl = self.ttl(service);
            let secrets = self.secrets.entry(service.0.into()).or_default();
            changed |= secrets.rotate(now, ttl, KeyKind::Aes, rng);
        }
        if changed {
            txn.put_encoded(NAME, "secrets", &self.secrets);
        }
    }

    /// Throws all secrets of a service away for new ones (`auth wipe-rotating-service-keys`).
    pub fn wipe_secrets(&mut self, now: Utime, rng: &mut ChaCha8Rng, txn: &mut Txn) {
        for secrets in self.secrets.values_mut() {
            secrets.secrets.clear();
        }
        self.rotate(now, rng, txn);
    }

    /// Reserves more global ids when few are left.
    pub fn reserve_ids(&mut self, txn: &mut Txn) {
        if self.id_limit - self.next_id < ID_LOW_WATER {
            self.id_limit += ID_RANGE;
            txn.put_encoded(NAME, "id_limit", &self.id_limit);
        }
    }

    /// Begins again far behind every id that may have been given since the database was copied.
    pub fn skip_ids(&mut self, txn: &mut Txn) {
        self.id_limit += ID_GAP;
        self.next_id = self.id_limit;
        txn.put_encoded(NAME, "id_limit", &self.id_limit);
    }

    /// A global id nobody had; none when the reserved range is used up.
    pub fn allocate_id(&mut self) -> Option<u64> {
        let id = self.next_id;
        (id < self.id_limit).then(|| self.next_id += 1)?;
        Some(id)
    }

    /// The keyring text of an entity as `auth get` prints it.
    pub fn keyring_text(name: &EntityName, entity: &EntityAuth) -> String {
        let mut out = format!("[{name}]\n\tkey = {}\n", entity.key);
        for (service, caps) in &entity.caps {
            out += &format!("\tcaps {service} = \"{}\"\n", caps.replace('\\', "\\\\").replace('"', "\\\""));
        }
        out
    }

    /// Entities as listings order them: by kind's number, then id.
    pub fn listed(&self) -> impl Iterator<Item = (&EntityName, &EntityAuth)> {
        self.entities.iter().filter(|(name, _)| name.kind != EntityKind::MON)
    }

    fn ttl(&self, service: EntityKind) -> Duration {
        if service == EntityKind::AUTH { self.policy.auth_ttl } else { self.policy.service_ttl }
    }
}

impl KeyStore for AuthService {
    fn entity(&self, name: &EntityName) -> Option<EntityAuth> {
        self.entities.get(name).cloned()
    }

    fn secrets(&self, service: EntityKind) -> Option<&RotatingSecrets> {
        self.secrets.get(&service.0.into())
    }
}
