//! The map as `osd dump` shows it.
//!
//! Upstream: OSDMap::dump, OSDMap::print in src/osd/OSDMap.cc.

use super::{osd_state_names, OsdInfo, OsdMap, OsdXInfo};
use crate::json::{array, float, general, Obj};
use crate::map::{PgPool, Release, SnapIntervals};
use crate::{OsdId, PoolId};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

impl OsdMap {
    /// `osd dump -f json`.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("epoch", self.epoch.0).show("fsid", self.fsid);
        o.show("created", self.created).show("modified", self.modified);
        o.show("last_up_change", self.last_up_change).show("last_in_change", self.last_in_change);
        let flags: BTreeSet<&str> = super::CLUSTER_FLAGS.iter().filter(|(f, _)| self.has_flag(*f)).map(|f| f.1).collect();
        o.put("flags", self.flags_string()).put("flags_num", self.flags).put("flags_set", array(flags));
        o.put("crush_version", self.crush_version).put("full_ratio", float(self.full_ratio.into()));
        o.put("backfillfull_ratio", float(self.backfillfull_ratio.into()));
        o.put("nearfull_ratio", float(self.nearfull_ratio.into()));
        o.put("cluster_snapshot", self.cluster_snapshot.as_str());
        o.put("pool_max", self.pool_max).put("max_osd", self.max_osd);
        o.show("require_min_compat_client", self.require_min_compat_client);
        o.show("min_compat_client", self.min_compat_client());
        o.show("require_osd_release", self.require_osd_release);
        o.put("pools", array(self.pools.iter().map(|(id, pool)| self.dump_pool(*id, pool))));
        o.put("osds", self.dump_osds());
        o.put("osd_xinfo", array(self.osds().filter_map(|osd| Some(dump_xinfo(osd, self.xinfo(osd)?)))));
        self.dump_overrides(&mut o);
        self.dump_rest(&mut o);
        o.done()
    }

    /// A pool as `osd dump` and `osd pool ls detail` show it.
    pub fn dump_pool(&self, id: PoolId, pool: &PgPool) -> Value {
        let mut o = Obj::new();
        o.put("pool", id.0).put("pool_name", self.pool_name_or_unknown(id)).extend(pool.dump_json());
        o.done()
    }

    fn pool_name_or_unknown(&self, id: PoolId) -> &str {
        self.pool_name.get(&id).map_or("<unknown>", String::as_str)
    }

    /// The `osds` of `osd dump`.
    pub fn dump_osds(&self) -> Value {
        array(self.osds().map(|osd| self.dump_osd(osd)))
    }

    /// One OSD of `osd dump`.
    pub fn dump_osd(&self, osd: OsdId) -> Value {
        let mut o = Obj::new();
        o.put("osd", osd.0).show("uuid", self.uuid(osd));
        o.put("up", i32::from(self.is_up(osd))).put("in", i32::from(self.is_in(osd)));
        o.put("weight", float(fixed(self.weight(osd)).into()));
        o.put("primary_affinity", float(fixed(self.primary_affinity(osd)).into()));
        o.extend(self.info(osd).copied().unwrap_or_default().dump_json());
        let addrs = [
            ("public", self.addrs(osd)),
            ("cluster", self.cluster_addrs(osd)),
            ("heartbeat_back", self.hb_back_addrs(osd)),
            ("heartbeat_front", self.hb_front_addrs(osd)),
        ];
        let addrs = addrs.map(|(name, addrs)| (name, addrs.cloned().unwrap_or_default()));
        for (name, addrs) in &addrs {
            o.put(format!("{name}_addrs"), addrs.dump_json());
        }
        for (name, addrs) in &addrs {
            o.put(format!("{name}_addr"), addrs.legacy_string());
        }
        o.put("state", array(sorted_states(self.state(osd))));
        o.done()
    }

    fn dump_overrides(&self, o: &mut Obj) {
        o.put("pg_upmap", array(self.pg_upmap.iter().map(|(pg, osds)| {
            let mut m = Obj::new();
            m.show("pgid", pg).put("osds", array(osds.iter().map(|osd| osd.0)));
            m
        })));
        o.put("pg_upmap_items", array(self.pg_upmap_items.iter().map(|(pg, pairs)| {
            let mut m = Obj::new();
            m.show("pgid", pg).put("mappings", array(pairs.iter().map(|(from, to)| {
                let mut pair = Obj::new();
                pair.put("from", from.0).put("to", to.0);
                pair
            })));
            m
        })));
        o.put("pg_temp", array(self.pg_temp.iter().map(|(pg, osds)| {
            let mut m = Obj::new();
            m.show("pgid", pg).put("osds", array(osds.iter().map(|osd| osd.0)));
            m
        })));
        // Names and numbers in turn: upstream forgot the objects around them.
        let primaries = self.primary_temp.iter();
        o.put("primary_temp", array(primaries.flat_map(|(pg, osd)| [Value::from(pg.to_string()), osd.0.into()])));
    }

    fn dump_rest(&self, o: &mut Obj) {
        for (name, list) in [("blocklist", &self.blocklist), ("range_blocklist", &self.range_blocklist)] {
            let list = list.iter().map(|(addr, until)| (addr.to_string(), until.to_string()));
            o.put(name, list.collect::<Obj>());
        }
        let profiles = self.erasure_code_profiles.iter().map(|(name, p)| (name.as_str(), settings(p)));
        o.put("erasure_code_profiles", profiles.collect::<Obj>());
        o.put("removed_snaps_queue", dump_snaps(&self.removed_snaps_queue));
        o.put("new_removed_snaps", dump_snaps(&self.new_removed_snaps));
        o.put("new_purged_snaps", dump_snaps(&self.new_purged_snaps));
        let nodes = self.crush_node_flags.iter().map(|(id, flags)| {
            let name = self.crush.name(*id).map_or_else(|| id.to_string(), str::to_owned);
            (name, array(sorted_states(*flags)))
        });
        let classes = self.device_class_flags.iter().map(|(id, flags)| {
            let name = self.crush.class_names.get(id).cloned().unwrap_or_else(|| id.to_string());
            (name, array(sorted_states(*flags)))
        });
        o.put("crush_node_flags", nodes.collect::<Obj>()).put("device_class_flags", classes.collect::<Obj>());
        let mut stretch = Obj::new();
        stretch.put("stretch_mode_enabled", self.stretch_mode_enabled);
        stretch.put("stretch_bucket_count", self.stretch_bucket_count);
        stretch.put("degraded_stretch_mode", self.degraded_stretch_mode);
        stretch.put("recovering_stretch_mode", self.recovering_stretch_mode);
        stretch.put("stretch_mode_bucket", self.stretch_mode_bucket);
        o.put("stretch_mode", stretch);
    }

    /// `osd dump` in plain text. osdmaptool prints the same with empty lines between its parts.
    pub fn print_plain(&self) -> String {
        let mut s = format!("epoch {}\nfsid {}\n", self.epoch, self.fsid);
        let mut line = |name: &str, value: &dyn std::fmt::Display| s += &format!("{name} {value}\n");
        line("created", &self.created);
        line("modified", &self.modified);
        line("flags", &self.flags_string());
        line("crush_version", &self.crush_version);
        line("full_ratio", &general(self.full_ratio.into(), 6));
        line("backfillfull_ratio", &general(self.backfillfull_ratio.into(), 6));
        line("nearfull_ratio", &general(self.nearfull_ratio.into(), 6));
        if self.require_min_compat_client != Release::UNKNOWN {
            line("require_min_compat_client", &self.require_min_compat_client);
        }
        line("min_compat_client", &self.min_compat_client());
        if self.require_osd_release > Release::UNKNOWN {
            line("require_osd_release", &self.require_osd_release);
        }
        line("stretch_mode_enabled", &self.stretch_mode_enabled);
        if self.stretch_mode_enabled {
            line("stretch_bucket_count", &self.stretch_bucket_count);
            line("degraded_stretch_mode", &self.degraded_stretch_mode);
            line("recovering_stretch_mode", &self.recovering_stretch_mode);
            line("stretch_mode_bucket", &self.stretch_mode_bucket);
        }
        if !self.cluster_snapshot.is_empty() {
            line("cluster_snapshot", &self.cluster_snapshot);
        }
        s += &self.print_pools();
        s += &format!("max_osd {}\n{}", self.max_osd, self.print_osds());
        s + &self.print_overrides()
    }

    /// The pools of `osd dump`; also `osd pool ls detail`, which has an empty line behind them.
    pub fn print_pools(&self) -> String {
        let mut s = String::new();
        for (id, pool) in &self.pools {
            s += &format!("pool {id} '{}' {}\n", self.pool_name_or_unknown(*id), pool.print_plain());
            for snap in pool.snaps.values() {
                s += &format!("\tsnap {} '{}' {}\n", snap.snapid.0, snap.name, snap.stamp);
            }
            if !pool.removed_snaps.is_empty() {
                s += &format!("\tremoved_snaps {}\n", pool.removed_snaps);
            }
            if let Some(queue) = self.removed_snaps_queue.get(id) {
                s += &format!("\tremoved_snaps_queue {queue}\n");
            }
        }
        s
    }

    /// The OSDs of `osd dump`.
    pub fn print_osds(&self) -> String {
        self.osds().map(|osd| self.print_osd(osd)).collect()
    }

    fn print_osd(&self, osd: OsdId) -> String {
        let up = if self.is_up(osd) { "up  " } else { "down" };
        let in_ = if self.is_in(osd) { "in " } else { "out" };
        let mut s = format!("osd.{osd} {up} {in_} weight {}", general(fixed(self.weight(osd)).into(), 6));
        if self.primary_affinity(osd) != Self::AFFINITY_DEFAULT {
            s += &format!(" primary_affinity {}", general(fixed(self.primary_affinity(osd)).into(), 6));
        }
        let info = self.info(osd).copied().unwrap_or_default();
        s += &format!(" up_from {} up_thru {} down_at {}", info.up_from, info.up_thru, info.down_at);
        s += &format!(" last_clean_interval [{},{})", info.last_clean_begin, info.last_clean_end);
        if info.lost_at.0 != 0 {
            s += &format!(" lost_at {}", info.lost_at);
        }
        let addrs = |a: Option<&crate::AddrVec>| a.map_or_else(String::new, |a| a.to_string());
        s += &format!(" {} {}", addrs(self.addrs(osd)), addrs(self.cluster_addrs(osd)));
        s += &format!(" {}", sorted_states(self.state(osd)).into_iter().collect::<Vec<_>>().join(","));
        if !self.uuid(osd).is_nil() {
            s += &format!(" {}", self.uuid(osd));
        }
        s + "\n"
    }

    fn print_overrides(&self) -> String {
        let mut s = String::new();
        self.pg_upmap.iter().for_each(|(pg, osds)| s += &format!("pg_upmap {pg} {}\n", print_osds(osds)));
        for (pg, pairs) in &self.pg_upmap_items {
            let flat: Vec<OsdId> = pairs.iter().flat_map(|(from, to)| [*from, *to]).collect();
            s += &format!("pg_upmap_items {pg} {}\n", print_osds(&flat));
        }
        self.pg_temp.iter().for_each(|(pg, osds)| s += &format!("pg_temp {pg} {}\n", print_osds(osds)));
        self.primary_temp.iter().for_each(|(pg, osd)| s += &format!("primary_temp {pg} {osd}\n"));
        self.blocklist.iter().for_each(|(addr, until)| s += &format!("blocklist {addr} expires {until}\n"));
        for (addr, until) in &self.range_blocklist {
            s += &format!("range blocklist {addr} expires {until}\n");
        }
        s
    }
}

impl OsdInfo {
    /// The fields as `osd dump` shows them among an OSD's others.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("last_clean_begin", self.last_clean_begin.0).put("last_clean_end", self.last_clean_end.0);
        o.put("up_from", self.up_from.0).put("up_thru", self.up_thru.0);
        o.put("down_at", self.down_at.0).put("lost_at", self.lost_at.0);
        o.done()
    }
}

fn dump_xinfo(osd: OsdId, x: &OsdXInfo) -> Value {
    let mut o = Obj::new();
    let laggy = x.laggy_probability as f32 / u32::MAX as f32;
    o.put("osd", osd.0).show("down_stamp", x.down_stamp).put("laggy_probability", float(laggy.into()));
    o.put("laggy_interval", x.laggy_interval).put("features", x.features as i64).put("old_weight", x.old_weight);
    o.show("last_purged_snaps_scrub", x.last_purged_snaps_scrub).put("dead_epoch", x.dead_epoch.0);
    o.done()
}

/// `[0,1,2]`.
pub fn print_osds(osds: &[OsdId]) -> String {
    let list: Vec<String> = osds.iter().map(|osd| osd.to_string()).collect();
    format!("[{}]", list.join(","))
}

/// `[0,NONE,2]`: the set of a placement group, whose places may be empty (`pg_vector_string`).
pub fn print_pg_osds(osds: &[OsdId]) -> String {
    let one = |osd: &OsdId| if *osd == OsdId::HOLE { "NONE".to_owned() } else { osd.to_string() };
    format!("[{}]", osds.iter().map(one).collect::<Vec<_>>().join(","))
}

/// 16.16 as the single-precision number upstream computes.
fn fixed(x: u32) -> f32 {
    x as f32 / 65536.0
}

fn sorted_states(state: u32) -> BTreeSet<&'static str> {
    osd_state_names(state).into_iter().collect()
}

/// An object of strings.
pub(crate) fn settings(map: &BTreeMap<String, String>) -> Obj {
    map.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

fn dump_snaps(snaps: &BTreeMap<PoolId, SnapIntervals>) -> Value {
    array(snaps.iter().map(|(pool, runs)| {
        let mut o = Obj::new();
        o.put("pool", pool.0).put("snaps", array(runs.0.iter().map(|(begin, length)| {
            let mut run = Obj::new();
            run.put("begin", *begin).put("length", *length);
            run
        })));
        o
    }))
}
