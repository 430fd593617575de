//! Options kept by the monitors: who they are for, their values, and every change ever made.
//!
//! Upstream: src/mon/ConfigMonitor.cc, src/mon/ConfigMap.cc.

use crate::txn::{self, StateError, Txn};
use denc::{Decode, Encode};
use std::collections::BTreeMap;
use store::Kv;
use types::{EntityKind, EntityName, Utime};

const NAME: &str = "config";

/// Changes kept for `config log`.
const HISTORY_KEPT: u64 = 1000;

/// Whom a value is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Target {
    /// `global`, a kind of daemon, or one entity.
    pub section: String,
    /// Only where the OSD is at this place: (bucket type, name).
    pub location: Option<(String, String)>,
    /// Only for OSDs of this device class.
    pub class: Option<String>,
}

impl Target {
    /// Reads `osd`, `osd.3`, `osd/class:ssd`, `osd/host:a/class:ssd`.
    pub fn parse(text: &str) -> Option<Target> {
        let mut parts = text.split('/');
        let section = parts.next().unwrap_or("");
        let known = section == "global" || section == "*" || is_section(section);
        let mut target = Target { section: section.to_owned(), ..Target::default() };
        for part in parts {
            let (kind, value) = part.split_once(':')?;
            match kind {
                "class" => target.class = Some(value.to_owned()),
                _ => target.location = Some((kind.to_owned(), value.to_owned())),
            }
        }
        if target.section == "*" {
            target.section = "global".into();
        }
        known.then_some(target)
    }

    /// The mask as tables show it: `class:hdd`, `host:a`.
    pub fn mask(&self) -> String {
        let location = self.location.as_ref().map(|(kind, name)| format!("{kind}:{name}"));
        let class = self.class.as_ref().map(|class| format!("class:{class}"));
        location.into_iter().chain(class).collect::<Vec<_>>().join("/")
    }

    /// The key of option `name` for this target.
    pub fn key(&self, name: &str) -> String {
        let mask = self.mask();
        let mask = if mask.is_empty() { mask } else { format!("{mask}/") };
        format!("{}/{mask}{name}", self.section)
    }

    /// What `key` made: a section, masks, which alone have a colon, and the name, which may have slashes (`mgr/balancer/mode`).
    fn from_key(key: &str) -> Option<(Target, String)> {
        let mut name = key.split_once('/')?.1;
        while let Some((_, rest)) = name.split_once('/').filter(|(mask, _)| mask.contains(':')) {
            name = rest;
        }
        let target = key.strip_suffix(name)?.strip_suffix('/')?;
        Some((Target::parse(target)?, name.to_owned()))
    }

    /// How special the target is; `None` if `who` is not meant. Higher wins.
    fn rank(&self, who: &Subject) -> Option<Rank> {
        let kind = who.name.kind.name();
        let section = match self.section.as_str() {
            "global" => 0,
            s if s == kind => 1,
            s if s == who.name.to_string() => usize::MAX,
            // `client.a` is for `client.a.b` too.
            s if s.starts_with(kind) && who.name.to_string().starts_with(&format!("{s}.")) => 1 + s.len(),
            _ => return None,
        };
        let here = self.location.as_ref().is_none_or(|(kind, name)| who.location.get(kind) == Some(name));
        let class = self.class.as_ref().is_none_or(|class| who.class.as_ref() == Some(class));
        (here && class).then_some((section, self.location.is_some(), self.class.is_some()))
    }
}

/// How special a target is: its section, whether it names a place, whether it names a device class.
type Rank = (usize, bool, bool);

fn is_section(text: &str) -> bool {
    let kind = text.split_once('.').map_or(text, |(kind, _)| kind);
    ["mon", "mgr", "osd", "mds", "client"].contains(&kind) && !text.ends_with('.')
}

/// Who asks for its options.
#[derive(Debug, Clone)]
pub struct Subject {
    pub name: EntityName,
    /// Bucket type to name, for OSDs.
    pub location: BTreeMap<String, String>,
    pub class: Option<String>,
}

impl Subject {
    /// An entity without a place.
    pub fn of(name: EntityName) -> Self {
        Subject { name, location: BTreeMap::new(), class: None }
    }

    /// A monitor, whose own options are asked for.
    pub fn mon(name: &str) -> Self {
        Self::of(EntityName::new(EntityKind::MON, name))
    }
}

/// One value of one key changed: key, value before, value after.
pub type Diff = (String, Option<String>, Option<String>);

/// A set of changes made together (`ConfigChangeSet`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ChangeSet {
    pub version: u64,
    pub stamp: Utime,
    /// What `config reset` and the like call themselves; empty for plain changes.
    pub name: String,
    pub diffs: Vec<Diff>,
}

/// The options and their history.
pub struct ConfigService {
    entries: BTreeMap<String, (Target, String, String)>,
    pub history: Vec<ChangeSet>,
}

impl ConfigService {
    pub fn load(kv: &impl Kv) -> Result<Self, StateError> {
        let mut config = ConfigService::empty();
        for (key, raw) in txn::scan(kv, NAME, b"v/")? {
            let key = String::from_utf8_lossy(&key[2..]).into_owned();
            config.set_entry(&key, Some(String::from_utf8_lossy(&raw).into_owned()));
        }
        for (_, raw) in txn::scan(kv, NAME, b"h/")? {
            let source = |source| StateError::Corrupt { what: "config history".into(), source };
            config.history.push(denc::from_bytes(&raw).map_err(source)?);
        }
        Ok(config)
    }

    /// No options; the history begins with version 1, which changed nothing.
    pub fn empty() -> Self {
        ConfigService { entries: BTreeMap::new(), history: Vec::new() }
    }

    /// The newest version.
    pub fn version(&self) -> u64 {
        self.history.last().map_or(1, |h| h.version)
    }

    /// Makes changes (key to value, `None` removes) as one set; what changes nothing is left out. True if anything did.
    pub fn change(&mut self, stamp: Utime, name: &str, changes: Vec<(String, Option<String>)>, txn: &mut Txn) -> bool {
        let mut diffs = Vec::new();
        for (key, value) in changes {
            let before = self.entries.get(&key).map(|e| e.2.clone());
            if before == value {
                continue;
            }
            match &value {
                Some(value) => txn.put(NAME, format!("v/{key}"), value.clone()),
                None => txn.delete(NAME, format!("v/{key}")),
            }
            self.set_entry(&key, value.clone());
            diffs.push((key, before, value));
        }
        if diffs.is_empty() {
            return false;
        }
        let set = ChangeSet { version: self.version() + 1, stamp, name: name.to_owned(), diffs };
        txn.put_encoded(NAME, [b"h/", &set.version.to_be_bytes()[..]].concat(), &set);
        if set.version > HISTORY_KEPT {
            txn.delete(NAME, [b"h/", &(set.version - HISTORY_KEPT).to_be_bytes()[..]].concat());
            self.history.remove(0);
        }
        self.history.push(set);
        true
    }

    /// True if a key has its value by a change of that name; one that is older than what `config log` remembers has not.
    pub fn was_set_by(&self, key: &str, name: &str) -> bool {
        let last = self.history.iter().rev().find(|set| set.diffs.iter().any(|(changed, ..)| changed == key));
        self.entries.contains_key(key) && last.is_some_and(|set| set.name == name)
    }

    /// The changes that lead back to the state of `version`.
    pub fn changes_back_to(&self, version: u64) -> Vec<(String, Option<String>)> {
        let mut back = BTreeMap::new();
        for set in self.history.iter().rev().take_while(|h| h.version > version) {
            for (key, before, _) in &set.diffs {
                back.insert(key.clone(), before.clone());
            }
        }
        back.into_iter().collect()
    }

    /// Every value with its target and option name, in the order tables list them.
    pub fn entries(&self) -> impl Iterator<Item = &(Target, String, String)> {
        let mut all: Vec<_> = self.entries.values().collect();
        all.sort_by(|a, b| {
            let global = |t: &Target| t.section != "global";
            let key = |e: &&(Target, String, String)| (global(&e.0), e.0.section.clone(), e.1.clone());
            // A masked value stands before the plain one it overrules.
            key(a).cmp(&key(b)).then_with(|| (a.0.mask().is_empty()).cmp(&b.0.mask().is_empty()))
        });
        all.into_iter()
    }

    /// The options in force for `who`: name to value and where it comes from.
    pub fn resolve(&self, who: &Subject) -> BTreeMap<String, (String, Target)> {
        let mut best: BTreeMap<String, (Rank, String, Target)> = BTreeMap::new();
        for (target, name, value) in self.entries.values() {
            let Some(rank) = target.rank(who) else { continue };
            if best.get(name).is_none_or(|old| old.0 <= rank) {
                best.insert(name.clone(), (rank, value.clone(), target.clone()));
            }
        }
        best.into_iter().map(|(name, (_, value, target))| (name, (value, target))).collect()
    }

    /// The value of one option for `who`.
    pub fn get(&self, who: &Subject, name: &str) -> Option<String> {
        Some(self.resolve(who).remove(name)?.0)
    }

    fn set_entry(&mut self, key: &str, value: Option<String>) {
        match (value, Target::from_key(key)) {
            (Some(value), Some((target, name))) => {
                self.entries.insert(key.to_owned(), (target, name, value));
            }
            _ => {
                self.entries.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[(&str, &str, &str)]) -> ConfigService {
        let mut config = ConfigService::empty();
        let key = |who: &str, name: &str| Target::parse(who).unwrap().key(name);
        let changes = values.iter().map(|(who, name, v)| (key(who, name), Some((*v).to_owned()))).collect();
        config.change(Utime::ZERO, "", changes, &mut Txn::default());
        config
    }

    fn osd(id: &str, class: &str) -> Subject {
        let location = BTreeMap::from([("host".to_owned(), "h1".to_owned())]);
        Subject { name: EntityName::new(EntityKind::OSD, id), location, class: Some(class.into()) }
    }

    #[test]
    fn the_most_special_value_wins() {
        let c = with(&[("global", "a", "1"), ("osd", "a", "2"), ("osd/class:hdd", "a", "3"), ("osd.0", "a", "4")]);
        assert_eq!(c.get(&osd("0", "hdd"), "a").unwrap(), "4");
        assert_eq!(c.get(&osd("1", "hdd"), "a").unwrap(), "3");
        assert_eq!(c.get(&osd("1", "ssd"), "a").unwrap(), "2");
        assert_eq!(c.get(&Subject::mon("a"), "a").unwrap(), "1");
        let nested = with(&[("client", "a", "1"), ("client.x", "a", "2")]);
        assert_eq!(nested.get(&Subject::of("client.x.y".parse().unwrap()), "a").unwrap(), "2");
    }

    #[test]
    fn names_of_options_may_have_slashes() {
        let c = with(&[("mgr", "mgr/balancer/mode", "upmap"), ("osd/host:h1/class:ssd", "a", "1")]);
        assert_eq!(c.get(&Subject::of("mgr.x".parse().unwrap()), "mgr/balancer/mode").unwrap(), "upmap");
        assert_eq!(c.get(&osd("0", "ssd"), "a").unwrap(), "1");
        assert_eq!(c.entries().map(|(t, name, _)| (t.mask(), name.as_str())).collect::<Vec<_>>(), [("".into(), "mgr/balancer/mode"), ("host:h1/class:ssd".into(), "a")]);
    }

    #[test]
    fn targets_that_mean_nobody_are_refused() {
        assert!(Target::parse("wat").is_none() && Target::parse("osd.").is_none() && Target::parse("osd/x").is_none());
        assert_eq!(Target::parse("osd/host:h1").unwrap().key("x"), "osd/host:h1/x");
    }

    #[test]
    fn going_back_undoes_every_later_change() {
        let mut c = with(&[("osd", "a", "1")]);
        let version = c.version();
        c.change(Utime::ZERO, "", vec![("osd/a".into(), Some("2".into()))], &mut Txn::default());
        c.change(Utime::ZERO, "", vec![("osd/a".into(), None), ("mon/b".into(), Some("x".into()))], &mut Txn::default());
        assert_eq!(c.changes_back_to(version), [("mon/b".into(), None), ("osd/a".into(), Some("1".into()))]);
        let back = c.changes_back_to(version);
        assert!(c.change(Utime::ZERO, "reset", back, &mut Txn::default()));
        assert_eq!(c.get(&osd("0", ""), "a").unwrap(), "1");
    }

    #[test]
    fn a_change_to_the_same_value_is_none() {
        let mut c = with(&[("osd", "a", "1")]);
        assert!(!c.change(Utime::ZERO, "", vec![("osd/a".into(), Some("1".into()))], &mut Txn::default()));
    }
}
