//! The manager daemons (`MgrMap`): who is active, and which modules there are.
//!
//! Upstream: src/mon/MgrMap.h.

use super::osdmap::settings;
use super::release::Release;
use crate::json::{Obj, array};
use crate::{AddrVec, Epoch, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// An option of a module (`MgrMap::ModuleOption`).
#[derive(Debug, Clone, PartialEq, Eq, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ModuleOption {
    pub name: String,
    /// `Option::type_t`: 0 uint, 1 int, 2 str, 3 float, 4 bool, 5 addr, 6 addrvec, 7 uuid, 8 size, 9 secs, 10 millisecs.
    pub kind: u8,
    /// 0 basic, 1 advanced, 2 dev.
    pub level: u8,
    pub flags: u32,
    pub default_value: String,
    pub min: String,
    pub max: String,
    pub enum_allowed: BTreeSet<String>,
    pub desc: String,
    pub long_desc: String,
    pub tags: BTreeSet<String>,
    pub see_also: BTreeSet<String>,
}

/// A module (`MgrMap::ModuleInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ModuleInfo {
    pub name: String,
    pub can_run: bool,
    /// Why it cannot run.
    pub error_string: String,
    #[denc(since = 2)]
    pub module_options: BTreeMap<String, ModuleOption>,
}

/// A manager in waiting (`MgrMap::StandbyInfo`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StandbyInfo {
    pub gid: u64,
    pub name: String,
    pub available_modules: Vec<ModuleInfo>,
    pub mgr_features: u64,
}

impl Encode for StandbyInfo {
    fn encode(&self, e: &mut Encoder) {
        let names: BTreeSet<&str> = self.available_modules.iter().map(|m| m.name.as_str()).collect();
        e.envelope(4, 1, |e| {
            e.put(&self.gid).put(&self.name).put(&names).put(&self.available_modules).put(&self.mgr_features);
        });
    }
}
impl Decode for StandbyInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("MgrMap::StandbyInfo", 4, |v, d| {
            let (gid, name) = d.get()?;
            let names: BTreeSet<String> = if v >= 2 { d.get()? } else { BTreeSet::new() };
            let available_modules = match v {
                3.. => d.get()?,
                _ => names.into_iter().map(|name| ModuleInfo { name, can_run: true, ..Default::default() }).collect(),
            };
            let mgr_features = if v >= 4 { d.get()? } else { 0 };
            Ok(StandbyInfo { gid, name, available_modules, mgr_features })
        })
    }
}

/// The managers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrMap {
    pub epoch: Epoch,
    pub active_addrs: AddrVec,
    /// Global id of the active manager; 0: none.
    pub active_gid: u64,
    /// The active manager serves (it is through with its start).
    pub available: bool,
    pub active_name: String,
    pub standbys: BTreeMap<u64, StandbyInfo>,
    /// Modules switched on.
    pub modules: BTreeSet<String>,
    /// Module name to its URI.
    pub services: BTreeMap<String, String>,
    pub available_modules: Vec<ModuleInfo>,
    /// When the active manager became active, or was lost.
    pub active_change: Utime,
    /// By release number.
    pub always_on_modules: BTreeMap<u32, BTreeSet<String>>,
    pub active_mgr_features: u64,
    pub last_failure_osd_epoch: Epoch,
    /// RADOS clients of the active manager, blocklisted when it fails: name (empty before 16.2.9) and addresses.
    pub clients: Vec<(String, AddrVec)>,
}

impl MgrMap {
    /// The module called `name`.
    pub fn module(&self, name: &str) -> Option<&ModuleInfo> {
        self.available_modules.iter().find(|m| m.name == name)
    }

    /// Names of the active manager and all standbys.
    pub fn all_names(&self) -> BTreeSet<&str> {
        let active = Some(self.active_name.as_str()).filter(|n| !n.is_empty());
        active.into_iter().chain(self.standbys.values().map(|s| s.name.as_str())).collect()
    }
}

impl Encode for MgrMap {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(12, 6, |e| {
            e.put(&self.epoch).put(&self.active_addrs).put(&self.active_gid).put(&self.available);
            e.put(&self.active_name).put(&self.standbys).put(&self.modules).put(&self.services);
            e.put(&self.available_modules).put(&self.active_change).put(&self.always_on_modules);
            e.put(&self.active_mgr_features).put(&self.last_failure_osd_epoch);
            e.count(self.clients.len());
            self.clients.iter().for_each(|(_, addrs)| addrs.encode(e));
            e.count(self.clients.len());
            self.clients.iter().for_each(|(name, _)| name.encode(e));
        });
    }
}
impl Decode for MgrMap {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("MgrMap", 12, |v, d| {
            if v < 6 {
                return Err(DecodeError::Invalid("MgrMap from before 14.2"));
            }
            let mut m = MgrMap::default();
            (m.epoch, m.active_addrs, m.active_gid, m.available) = d.get()?;
            (m.active_name, m.standbys, m.modules, m.services) = d.get()?;
            m.available_modules = d.get()?;
            if v >= 7 {
                m.active_change = d.get()?;
            }
            if v >= 8 {
                m.always_on_modules = d.get()?;
            }
            if v >= 9 {
                m.active_mgr_features = d.get()?;
            }
            if v >= 10 {
                m.last_failure_osd_epoch = d.get()?;
            }
            let addrs: Vec<AddrVec> = if v >= 11 { d.get()? } else { Vec::new() };
            let names: Vec<String> = if v >= 12 { d.get()? } else { vec![String::new(); addrs.len()] };
            if names.len() != addrs.len() {
                return Err(DecodeError::Invalid("MgrMap: clients without names"));
            }
            m.clients = names.into_iter().zip(addrs).collect();
            Ok(m)
        })
    }
}

impl MgrMap {
    /// `mgr dump -f json`.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("epoch", self.epoch.0).put("active_gid", self.active_gid).put("active_name", self.active_name.as_str());
        o.put("active_addrs", self.active_addrs.dump_json()).put("active_addr", self.active_addrs.legacy_string());
        o.show("active_change", self.active_change).put("active_mgr_features", self.active_mgr_features);
        o.put("available", self.available);
        o.put("standbys", array(self.standbys.values().map(StandbyInfo::dump_json)));
        o.put("modules", array(self.modules.iter().map(String::as_str)));
        o.put("available_modules", array(self.available_modules.iter().map(ModuleInfo::dump_json)));
        o.put("services", settings(&self.services));
        let always_on = self.always_on_modules.iter().map(|(release, modules)| {
            let release = Release(u8::try_from(*release).unwrap_or(0));
            (release.name(), array(modules.iter().map(String::as_str)))
        });
        o.put("always_on_modules", always_on.collect::<Obj>());
        o.put("last_failure_osd_epoch", self.last_failure_osd_epoch.0);
        o.put("active_clients", array(self.clients.iter().map(|(name, addrs)| dump_client(name, addrs))));
        o.done()
    }
}

fn dump_client(name: &str, addrs: &AddrVec) -> Value {
    let mut o = Obj::new();
    if !name.is_empty() {
        o.put("name", name);
    }
    o.extend(addrs.dump_json());
    o.done()
}

impl StandbyInfo {
    fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("gid", self.gid).put("name", self.name.as_str()).put("mgr_features", self.mgr_features);
        o.put("available_modules", array(self.available_modules.iter().map(ModuleInfo::dump_json)));
        o.done()
    }
}

impl ModuleInfo {
    /// As `mgr dump` shows it.
    pub fn dump_json(&self) -> Value {
        let mut o = Obj::new();
        o.put("name", self.name.as_str()).put("can_run", self.can_run).put("error_string", self.error_string.as_str());
        let options = self.module_options.iter().map(|(name, option)| (name.as_str(), option.dump_json()));
        o.put("module_options", options.collect::<Obj>());
        o.done()
    }
}

/// Names of option types and levels, by number.
const OPTION_KINDS: [&str; 11] =
    ["uint", "int", "str", "float", "bool", "addr", "addrvec", "uuid", "size", "secs", "millisecs"];
const OPTION_LEVELS: [&str; 3] = ["basic", "advanced", "dev"];

impl ModuleOption {
    fn dump_json(&self) -> Value {
        let name = |table: &[&'static str], i: u8| table.get(usize::from(i)).copied().unwrap_or("unknown");
        let list = |set: &BTreeSet<String>| array(set.iter().map(String::as_str));
        let mut o = Obj::new();
        o.put("name", self.name.as_str()).put("type", name(&OPTION_KINDS, self.kind));
        o.put("level", name(&OPTION_LEVELS, self.level)).put("flags", self.flags);
        o.put("default_value", self.default_value.as_str()).put("min", self.min.as_str()).put("max", self.max.as_str());
        o.put("enum_allowed", list(&self.enum_allowed)).put("desc", self.desc.as_str());
        o.put("long_desc", self.long_desc.as_str()).put("tags", list(&self.tags)).put("see_also", list(&self.see_also));
        o.done()
    }
}
