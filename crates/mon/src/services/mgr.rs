//! The active manager, and what it last reported.
//!
//! Upstream: src/mon/MgrMonitor.cc, src/mon/MgrStatMonitor.cc.

use crate::txn::{self, StateError, Txn};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::Kv;
use types::map::{MgrMap, ModuleInfo, StandbyInfo};
use types::msg::internal::{MgrBeacon, MgrDigest};
use types::{Epoch, Mono, Now, features};

const NAME: &str = "mgr";

/// Silence after which a manager is gone (`mon_mgr_beacon_grace`).
const BEACON_GRACE: Duration = Duration::from_secs(30);

/// Functions that stock Pacific never turns off, and that ours answers for.
const ALWAYS_ON: [&str; 10] = [
    "balancer", "crash", "devicehealth", "orchestrator", "pg_autoscaler", "progress", "rbd_support", "status",
    "telemetry", "volumes",
];

/// The MgrMap, who is alive, and the digest.
pub struct MgrService {
    pub map: MgrMap,
    pub metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// The active manager's last report; none until it has sent one.
    pub digest: Option<MgrDigest>,
    last_beacon: BTreeMap<u64, Mono>,
}

impl MgrService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let map = txn::get(kv, NAME, "current")?.ok_or(StateError::Missing("mgrmap"))?;
        let metadata = txn::get(kv, NAME, "metadata")?.unwrap_or_default();
        Ok(MgrService { map, metadata, digest: None, last_beacon: BTreeMap::new() })
    }

    /// Publishes the first map: nobody yet.
    pub fn create(txn: &mut Txn) -> Self {
        let always_on: BTreeSet<String> = ALWAYS_ON.iter().map(|m| (*m).to_owned()).collect();
        let map = MgrMap {
            epoch: Epoch(0),
            modules: ["iostat", "restful"].map(str::to_owned).into(),
            always_on_modules: BTreeMap::from([(16, always_on)]),
            ..MgrMap::default()
        };
        let mut service =
            MgrService { map, metadata: BTreeMap::new(), digest: None, last_beacon: BTreeMap::new() };
        service.publish(txn);
        service
    }

    /// The map's encoding.
    pub fn encoded(&self) -> Bytes {
        denc::to_bytes(&self.map, features::SUPPORTED)
    }

    /// Someone would be, or is, active. `at_leader`: it lives with the monitor that leads, and is preferred, for the role
    /// goes where the lead goes. True if the map changed.
    pub fn handle_beacon(&mut self, now: Now, beacon: &MgrBeacon, at_leader: bool, txn: &mut Txn) -> bool {
        self.last_beacon.insert(beacon.gid, now.mono);
        let before = self.map.clone();
        let same_name = self.map.active_name == beacon.name;
        let takes_over = same_name || at_leader && beacon.available;
        if self.map.active_gid == 0 || (takes_over && self.map.active_gid != beacon.gid) {
            // A manager that restarted takes its own place again at once. Another one stands by, if it lives.
            if !same_name {
                self.digest = None;
                if self.last_beacon.contains_key(&self.map.active_gid) {
                    self.add_standby(self.map.active_gid, self.map.active_name.clone());
                }
            }
            self.activate(now, beacon);
        } else if self.map.active_gid == beacon.gid {
            self.map.available = beacon.available;
            self.map.active_addrs = beacon.addrs.clone();
        } else {
            self.add_standby(beacon.gid, beacon.name.clone());
        }
        if !beacon.metadata.is_empty() && self.metadata.get(&beacon.name) != Some(&beacon.metadata) {
            self.metadata.insert(beacon.name.clone(), beacon.metadata.clone());
            txn.put_encoded(NAME, "metadata", &self.metadata);
        }
        self.publish_if_changed(&before, txn)
    }

    /// Lets go of managers that have gone silent. True if the map changed.
    pub fn handle_tick(&mut self, now: Now, txn: &mut Txn) -> bool {
        let before = self.map.clone();
        let known: Vec<u64> = self.map.standbys.keys().copied().chain([self.map.active_gid]).filter(|g| *g != 0).collect();
        for gid in known {
            // After a restart of the monitor everyone gets a full grace.
            let last = *self.last_beacon.entry(gid).or_insert(now.mono);
            if now.mono - last > BEACON_GRACE {
                self.drop_gid(now, gid);
            }
        }
        self.publish_if_changed(&before, txn)
    }

    /// Takes the active manager's place away (`mgr fail`). True if the map changed.
    pub fn fail_active(&mut self, now: Now, txn: &mut Txn) -> bool {
        let before = self.map.clone();
        self.drop_gid(now, self.map.active_gid);
        self.publish_if_changed(&before, txn)
    }

    /// Stops waiting for a standby called `name`. True if the map changed.
    pub fn fail_standby(&mut self, name: &str, txn: &mut Txn) -> bool {
        let before = self.map.clone();
        self.map.standbys.retain(|_, s| s.name != name);
        self.publish_if_changed(&before, txn)
    }

    /// Turns a module's name on or off in the map. True if the map changed.
    pub fn set_module(&mut self, name: &str, enabled: bool, txn: &mut Txn) -> bool {
        let before = self.map.clone();
        match enabled {
            true => self.map.modules.insert(name.to_owned()),
            false => self.map.modules.remove(name),
        };
        self.publish_if_changed(&before, txn)
    }

    /// The names a module command may use.
    pub fn known_modules(&self) -> Vec<&ModuleInfo> {
        self.map.available_modules.iter().collect()
    }

    fn add_standby(&mut self, gid: u64, name: String) {
        self.map.standbys.retain(|other, s| *other == gid || s.name != name);
        let standby = StandbyInfo { gid, name, available_modules: Vec::new(), mgr_features: features::SUPPORTED };
        self.map.standbys.insert(gid, standby);
    }

    fn activate(&mut self, now: Now, beacon: &MgrBeacon) {
        self.map.active_gid = beacon.gid;
        self.map.active_name = beacon.name.clone();
        self.map.active_addrs = beacon.addrs.clone();
        self.map.available = beacon.available;
        self.map.active_mgr_features = features::SUPPORTED;
        self.map.active_change = now.wall;
        self.map.standbys.retain(|gid, s| *gid != beacon.gid && s.name != beacon.name);
    }

    fn drop_gid(&mut self, now: Now, gid: u64) {
        self.last_beacon.remove(&gid);
        if self.map.standbys.remove(&gid).is_some() || gid != self.map.active_gid || gid == 0 {
            return;
        }
        self.map.active_gid = 0;
        self.map.active_name.clear();
        self.map.active_addrs = Default::default();
        self.map.available = false;
        self.map.active_change = now.wall;
        self.map.services.clear();
        self.digest = None;
    }

    fn publish_if_changed(&mut self, before: &MgrMap, txn: &mut Txn) -> bool {
        let changed = *before != self.map;
        if changed {
            self.publish(txn);
        }
        changed
    }

    fn publish(&mut self, txn: &mut Txn) {
        self.map.epoch = self.map.epoch.next();
        txn.put(NAME, "current", self.encoded());
    }
}
