//! File systems as `fs dump` shows them.
//!
//! Upstream: FSMap::{dump,print}, Filesystem::{dump,print}, MDSMap::{dump,print}.

use super::fsmap::{Filesystem, FsMap, MirrorInfo};
use super::mdsmap::{CompatSet, FeatureSet, MdsInfo, MdsMap};
use crate::json::{array, Obj};
use serde_json::Value;
use std::fmt::Display;

impl FsMap {
    /// `fs dump -f json`.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("epoch", self.epoch.0).put("default_fscid", self.legacy_client_fscid);
        o.put("compat", self.compat.dump_json());
        let mut flags = Obj::new();
        flags.put("enable_multiple", self.enable_multiple).put("ever_enabled_multiple", self.ever_enabled_multiple);
        o.put("feature_flags", flags);
        o.put("standbys", array(self.standby_daemons.iter().map(|(gid, info)| {
            let mut standby = Obj::new();
            standby.extend(info.dump_json()).put("epoch", self.standby_epochs.get(gid).map_or(0, |e| e.0));
            standby
        })));
        o.put("filesystems", array(self.filesystems.values().map(Filesystem::dump_json)));
        o.done()
    }

    /// `fs dump` in plain text.
    pub fn print_plain(&self) -> String {
        let (multiple, ever) = (i32::from(self.enable_multiple), i32::from(self.ever_enabled_multiple));
        let mut s = format!("e{}\nenable_multiple, ever_enabled_multiple: {multiple},{ever}\n", self.epoch);
        s += &format!("default compat: {}\nlegacy client fscid: {}\n \n", self.compat.print_plain(), self.legacy_client_fscid);
        if self.filesystems.is_empty() {
            s += "No filesystems configured\n";
        }
        self.filesystems.values().for_each(|fs| s += &format!("{} \n \n", fs.print_plain()));
        if !self.standby_daemons.is_empty() {
            s += "Standby daemons:\n \n";
        }
        self.standby_daemons.values().for_each(|info| s += &format!("{}\n", info.print_plain()));
        s
    }
}

impl Filesystem {
    /// As `fs dump` shows it.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("mdsmap", self.mds_map.dump_json()).put("id", self.fscid);
        if self.mirror_info.mirrored {
            o.put("mirror_info", self.mirror_info.dump_json());
        }
        o.done()
    }

    fn print_plain(&self) -> String {
        let mut s = format!("Filesystem '{}' ({})\n{}", self.mds_map.fs_name, self.fscid, self.mds_map.print_plain());
        if self.mirror_info.mirrored {
            let peers: Vec<String> = (self.mirror_info.peers.iter())
                .map(|p| {
                    let r = &p.remote;
                    let remote = format!(
                        "{{client_name={}, cluster_name={}, fs_name={}}}",
                        r.client_name, r.cluster_name, r.fs_name
                    );
                    format!("{{uuid={}, remote_cluster={remote}}}", p.uuid)
                })
                .collect();
            s += &format!("[peers={}]\n", peers.join(","));
        }
        s
    }
}

impl MirrorInfo {
    fn dump_json(&self) -> Value {
        let peers = self.peers.iter().map(|peer| {
            let (mut fields, mut remote) = (Obj::new(), Obj::new());
            remote.put("client_name", peer.remote.client_name.as_str());
            remote.put("cluster_name", peer.remote.cluster_name.as_str());
            remote.put("fs_name", peer.remote.fs_name.as_str());
            fields.put("remote", remote);
            (peer.uuid.as_str(), fields)
        });
        let mut o = Obj::new();
        o.put("peers", peers.collect::<Obj>());
        o.done()
    }
}

impl MdsMap {
    /// The `mdsmap` of `fs dump`.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("epoch", self.epoch.0).put("flags", self.flags);
        o.put("ever_allowed_features", self.ever_allowed_features);
        o.put("explicitly_allowed_features", self.explicitly_allowed_features);
        o.show("created", self.created).show("modified", self.modified);
        o.put("tableserver", self.tableserver).put("root", self.root);
        o.put("session_timeout", self.session_timeout).put("session_autoclose", self.session_autoclose);
        let features = self.required_features().map(|bit| (format!("feature_{bit}"), feature_name(bit)));
        o.put("required_client_features", features.collect::<Obj>());
        o.put("max_file_size", self.max_file_size).put("last_failure", self.last_failure.0);
        o.put("last_failure_osd_epoch", self.last_failure_osd_epoch.0).put("compat", self.compat.dump_json());
        o.put("max_mds", self.max_mds).put("in", array(self.in_.iter().copied()));
        o.put("up", self.up.iter().map(|(rank, gid)| (format!("mds_{rank}"), *gid)).collect::<Obj>());
        o.put("failed", array(self.failed.iter().copied())).put("damaged", array(self.damaged.iter().copied()));
        o.put("stopped", array(self.stopped.iter().copied()));
        o.put("info", self.mds_info.iter().map(|(gid, i)| (format!("gid_{gid}"), i.dump_json())).collect::<Obj>());
        o.put("data_pools", array(self.data_pools.iter().copied())).put("metadata_pool", self.metadata_pool);
        o.put("enabled", self.enabled).put("fs_name", self.fs_name.as_str()).put("balancer", self.balancer.as_str());
        o.put("standby_count_wanted", self.standby_count_wanted.max(0));
        o.done()
    }

    /// The bits of `required_client_features`.
    fn required_features(&self) -> impl Iterator<Item = usize> {
        let bytes = self.required_client_features.iter().enumerate();
        bytes.flat_map(|(i, byte)| (0..8).filter(move |bit| byte >> bit & 1 != 0).map(move |bit| i * 8 + bit))
    }

    fn print_plain(&self) -> String {
        let mut s = String::new();
        let mut line = |name: &str, value: &dyn Display| s += &format!("{name}\t{value}\n");
        line("fs_name", &self.fs_name);
        line("epoch", &self.epoch);
        line("flags", &format!("{:x}", self.flags));
        line("created", &self.created);
        line("modified", &self.modified);
        line("tableserver", &self.tableserver);
        line("root", &self.root);
        line("session_timeout", &self.session_timeout);
        line("session_autoclose", &self.session_autoclose);
        line("max_file_size", &self.max_file_size);
        let features: Vec<String> = self.required_features().map(|b| format!("{b}={}", feature_name(b))).collect();
        line("required_client_features", &format!("{{{}}}", features.join(",")));
        line("last_failure", &self.last_failure);
        line("last_failure_osd_epoch", &self.last_failure_osd_epoch);
        line("compat", &self.compat.print_plain());
        line("max_mds", &self.max_mds);
        line("in", &joined(&self.in_));
        let up: Vec<String> = self.up.iter().map(|(rank, gid)| format!("{rank}={gid}")).collect();
        line("up", &format!("{{{}}}", up.join(",")));
        line("failed", &joined(&self.failed));
        line("damaged", &joined(&self.damaged));
        line("stopped", &joined(&self.stopped));
        line("data_pools", &format!("[{}]", joined(&self.data_pools)));
        line("metadata_pool", &self.metadata_pool);
        line("inline_data", &if self.inline_data_enabled { "enabled" } else { "disabled" });
        line("balancer", &self.balancer);
        line("standby_count_wanted", &self.standby_count_wanted.max(0));
        let mut infos: Vec<&MdsInfo> = self.mds_info.values().collect();
        infos.sort_by_key(|i| (i.rank, (i.inc as u32).wrapping_sub(1)));
        infos.iter().for_each(|info| s += &format!("{}\n", info.print_plain()));
        s
    }
}

/// `0,1,2`.
fn joined<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(",")
}

/// Names of the features clients of a file system can be required to have, by bit.
fn feature_name(bit: usize) -> &'static str {
    const NAMES: [&str; 15] = [
        "reserved", "reserved", "reserved", "reserved", "reserved", "jewel", "kraken", "luminous", "mimic",
        "reply_encoding", "reclaim_client", "lazy_caps_wanted", "multi_reconnect", "deleg_ino", "metric_collect",
    ];
    NAMES.get(bit).copied().unwrap_or("unknown")
}

/// `up:active`, ... (`ceph_mds_state_name`).
pub fn mds_state_name(state: i32) -> &'static str {
    match state {
        0 => "down:dne",
        -1 => "down:stopped",
        15 => "down:damaged",
        -4 => "up:boot",
        -5 => "up:standby",
        -8 => "up:standby-replay",
        -9 => "up:oneshot-replay",
        -6 => "up:creating",
        -7 => "up:starting",
        8 => "up:replay",
        9 => "up:resolve",
        10 => "up:reconnect",
        11 => "up:rejoin",
        12 => "up:clientreplay",
        13 => "up:active",
        14 => "up:stopping",
        -10 => "null",
        _ => "???",
    }
}

impl MdsInfo {
    /// As `fs dump` shows it.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("gid", self.global_id).put("name", self.name.as_str()).put("rank", self.rank);
        o.put("incarnation", self.inc).put("state", mds_state_name(self.state)).put("state_seq", self.state_seq);
        o.put("addr", self.addrs.legacy_string()).put("addrs", self.addrs.dump_json());
        o.put("join_fscid", self.join_fscid);
        if !self.laggy_since.is_zero() {
            o.show("laggy_since", self.laggy_since);
        }
        o.put("export_targets", array(self.export_targets.iter().copied()));
        o.put("features", self.mds_features).put("flags", self.flags);
        o.done()
    }

    fn print_plain(&self) -> String {
        let state = mds_state_name(self.state);
        let mut s = format!("[mds.{}{{{}:{}}} state {state} seq {}", self.name, self.rank, self.global_id, self.state_seq);
        if !self.laggy_since.is_zero() {
            s += &format!(" laggy since {}", self.laggy_since);
        }
        if !self.export_targets.is_empty() {
            s += &format!(" export targets {}", joined(&self.export_targets));
        }
        if self.flags & 1 != 0 {
            s += " frozen";
        }
        if self.join_fscid != -1 {
            s += &format!(" join_fscid={}", self.join_fscid);
        }
        s + &format!(" addr {}]", self.addrs)
    }
}

impl CompatSet {
    fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("compat", self.compat.dump_json()).put("ro_compat", self.ro_compat.dump_json());
        o.put("incompat", self.incompat.dump_json());
        o.done()
    }

    fn print_plain(&self) -> String {
        let set = |f: &FeatureSet| joined(f.names.iter().map(|(id, name)| format!("{id}={name}")));
        let (compat, ro, incompat) = (set(&self.compat), set(&self.ro_compat), set(&self.incompat));
        format!("compat={{{compat}}},rocompat={{{ro}}},incompat={{{incompat}}}")
    }
}

impl FeatureSet {
    fn dump_json(&self) -> Obj {
        self.names.iter().map(|(id, name)| (format!("feature_{id}"), name.as_str())).collect()
    }
}
