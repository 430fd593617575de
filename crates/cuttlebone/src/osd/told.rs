//! What the monitors said of options that count when the database is opened or the store is mounted, for then nobody has spoken to a monitor yet.
//!
//! An OSD keeps them in its directory (`told.json`) when it hears of them; its next start goes by them. ceph.conf and flags come first, as everywhere.

use super::Home;
use super::place::tuning;
use crate::config::DaemonConfig;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const FILE: &str = "told.json";
const OPTIONS: [&str; 7] = [
    "bluestore_rocksdb_options",
    "bluestore_rocksdb_options_annex",
    "bluestore_rocksdb_cf",
    "bluestore_rocksdb_cfs",
    "bluestore_block_db_size",
    "bluestore_fsck_on_mount",
    "bluestore_fsck_on_mount_deep",
];

/// Keeps what is said from now on.
pub struct Listener {
    path: PathBuf,
    last: BTreeMap<String, String>,
}

impl Listener {
    pub fn of(home: &Home) -> Self {
        Listener { path: home.path(FILE), last: read(home) }
    }

    /// The monitors say what is set for this OSD.
    pub fn hear(&mut self, config: &BTreeMap<String, String>) {
        let now: BTreeMap<String, String> = OPTIONS.iter().filter_map(|o| Some((o.to_string(), config.get(*o)?.clone()))).collect();
        if now == self.last {
            return;
        }
        let changed: Vec<&str> = OPTIONS.into_iter().filter(|o| now.get(*o) != self.last.get(*o)).collect();
        tracing::info!("{}: counts from the next start on", changed.join(", "));
        let new = self.path.with_extension("new");
        let text = serde_json::to_string_pretty(&now).unwrap_or_default();
        if let Err(error) = fs::write(&new, text + "\n").and_then(|()| fs::rename(&new, &self.path)) {
            tracing::error!("{}: {error}", self.path.display());
        }
        self.last = now;
    }
}

fn read(home: &Home) -> BTreeMap<String, String> {
    fs::read_to_string(home.path(FILE)).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// The configuration with what the monitors said last. What cannot be understood is left out and told of: the OSD has to start for anybody to change it.
pub fn with_told(config: &DaemonConfig, home: &Home) -> DaemonConfig {
    let told = config.clone().with_told(read(home));
    match tuning(config).is_err() || tuning(&told).is_ok() {
        true => told,
        false => {
            let error = tuning(&told).err().map(|e| format!("{e:#}")).unwrap_or_default();
            tracing::error!("what the monitors say of the database is left out: {error}");
            config.clone()
        }
    }
}
