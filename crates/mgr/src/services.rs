//! Service daemons (radosgw and its like): who they are and what they say of themselves.
//!
//! Upstream: src/mgr/ServiceMap.{h,cc}, src/mgr/DaemonServer.cc.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use types::msg::{MMgrClose, MMgrOpen, MMgrReport};
use types::{EntityInst, Now, Utime};

/// One daemon.
#[derive(Debug, Clone)]
pub struct Daemon {
    pub gid: i64,
    pub addr: String,
    pub started: Utime,
    pub metadata: BTreeMap<String, String>,
    pub status: BTreeMap<String, String>,
}

/// Service name, daemon name, daemon (`ServiceMap`).
#[derive(Debug, Clone, Default)]
pub struct Services {
    pub epoch: u32,
    pub modified: Utime,
    pub daemons: BTreeMap<String, BTreeMap<String, Daemon>>,
}

impl Services {
    /// A daemon introduces itself; others than service daemons are let in and forgotten.
    pub fn open(&mut self, now: Now, from: EntityInst, addr: String, open: MMgrOpen) {
        let Some(service) = open.service else { return };
        let daemon =
            Daemon { gid: from.num, addr, started: now.wall, metadata: service.metadata, status: service.status };
        self.daemons.entry(open.service_name).or_default().insert(open.daemon_name, daemon);
        self.changed(now);
    }

    /// It reports.
    pub fn report(&mut self, now: Now, report: MMgrReport) {
        let daemon = self.daemons.get_mut(&report.service_name).and_then(|s| s.get_mut(&report.daemon_name));
        if let (Some(daemon), Some(status)) = (daemon, report.status) {
            daemon.status = status;
            self.changed(now);
        }
    }

    /// It leaves.
    pub fn close(&mut self, now: Now, close: &MMgrClose) {
        if let Some(daemons) = self.daemons.get_mut(&close.service_name) {
            daemons.remove(&close.daemon_name);
        }
        self.daemons.retain(|_, daemons| !daemons.is_empty());
        self.changed(now);
    }

    /// Its session is gone.
    pub fn lost(&mut self, now: Now, gid: i64) {
        self.daemons.values_mut().for_each(|daemons| daemons.retain(|_, d| d.gid != gid));
        self.daemons.retain(|_, daemons| !daemons.is_empty());
        self.changed(now);
    }

    /// `service dump`.
    pub fn dump(&self) -> Value {
        let daemon = |(name, d): (&String, &Daemon)| {
            let text = json!({
                "start_epoch": self.epoch, "start_stamp": admin::human::timestamp(d.started), "gid": d.gid,
                "addr": d.addr, "metadata": d.metadata, "task_status": {},
            });
            (name.clone(), text)
        };
        let service = |(name, daemons): (&String, &BTreeMap<String, Daemon>)| {
            let mut out = Map::from_iter([("summary".to_string(), Value::from(""))]);
            out.extend(daemons.iter().map(daemon));
            (name.clone(), json!({"daemons": out}))
        };
        json!({
            "epoch": self.epoch,
            "modified": admin::human::timestamp(self.modified),
            "services": self.daemons.iter().map(service).collect::<Map<_, _>>(),
        })
    }

    /// `service status`.
    pub fn status(&self) -> Value {
        let daemons = |daemons: &BTreeMap<String, Daemon>| {
            daemons.iter().map(|(n, d)| (n.clone(), json!({"status": d.status}))).collect::<Map<_, _>>()
        };
        Value::Object(self.daemons.iter().map(|(n, d)| (n.clone(), Value::Object(daemons(d)))).collect())
    }

    fn changed(&mut self, now: Now) {
        self.epoch += 1;
        self.modified = now.wall;
    }
}
