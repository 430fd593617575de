//! The monitors' configuration database: who is told what.
//!
//! A section is `global`, a type, or a name, and may be narrowed by a mask: `osd/class:ssd`, `osd/host:a`,
//! `osd/rack:r1`. For one daemon the narrower section wins; a name beats a type, a type beats `global`, and within one
//! of them a mask beats none.
//! Upstream: src/mon/ConfigMap.{h,cc}, src/mon/ConfigMonitor.cc.

use super::{OptionSpec, find};
use crate::command::CommandError;
use crate::table::TextTable;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use types::{EntityKind, EntityName};

/// Whom a section is for; wider ones sort first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Who {
    Global,
    Kind(EntityKind),
    Name(EntityName),
}

/// Whom, and which of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Section {
    pub who: Who,
    /// `class` or a CRUSH type, and its name.
    pub mask: Option<(String, String)>,
}

impl FromStr for Section {
    type Err = CommandError;
    fn from_str(text: &str) -> Result<Self, CommandError> {
        let bad = || CommandError::invalid(format!("unrecognized config target '{text}'"));
        let (who, mask) = text.split_once('/').map_or((text, None), |(w, m)| (w, Some(m)));
        let who = match who {
            "global" | "" => Who::Global,
            kind if !kind.contains('.') => Who::Kind(EntityKind::from_name(kind).ok_or_else(bad)?),
            name => Who::Name(name.parse().map_err(|_| bad())?),
        };
        let mask = match mask {
            None => None,
            Some(m) => Some(m.split_once(':').map(|(k, v)| (k.to_string(), v.to_string())).ok_or_else(bad)?),
        };
        Ok(Section { who, mask })
    }
}
impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.who_text())?;
        self.mask.iter().try_for_each(|(k, v)| write!(f, "/{k}:{v}"))
    }
}
impl Section {
    fn who_text(&self) -> String {
        match &self.who {
            Who::Global => "global".into(),
            Who::Kind(kind) => kind.name().into(),
            Who::Name(name) => name.to_string(),
        }
    }

    fn mask_text(&self) -> String {
        self.mask.as_ref().map_or(String::new(), |(k, v)| format!("{k}:{v}"))
    }

    fn covers(&self, t: &Target) -> bool {
        let who = match &self.who {
            Who::Global => true,
            Who::Kind(kind) => *kind == t.name.kind,
            Who::Name(name) => *name == t.name,
        };
        who && self.mask.as_ref().is_none_or(|(k, v)| match k.as_str() {
            "class" => t.device_class.as_deref() == Some(v),
            place => t.location.get(place) == Some(v),
        })
    }
}

/// A daemon or client as masks see it.
#[derive(Debug, Clone)]
pub struct Target {
    pub name: EntityName,
    pub device_class: Option<String>,
    /// CRUSH type to bucket: `host` to `a`. Clients have their host only.
    pub location: BTreeMap<String, String>,
}

/// Every value, by section and option.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigDb {
    entries: BTreeMap<Section, BTreeMap<String, String>>,
}

impl ConfigDb {
    /// Sets a value, checked and normalized; returns what there was before.
    pub fn set(&mut self, section: Section, name: &str, raw: &str) -> Result<Option<String>, CommandError> {
        let spec = super::known(name)?;
        if spec.no_mon_update() {
            return Err(CommandError::invalid(format!("{} is special and cannot be stored by the mon", spec.name)));
        }
        let value = spec.normalize(raw)?;
        Ok(self.entries.entry(section).or_default().insert(spec.name.to_string(), value))
    }

    /// Puts a value back as it was stored, whatever it is.
    pub fn restore(&mut self, section: Section, name: &str, value: &str) {
        self.entries.entry(section).or_default().insert(name.into(), value.into());
    }

    /// Takes a value away; returns what there was.
    pub fn remove(&mut self, section: &Section, name: &str) -> Option<String> {
        let name = super::canonical(name);
        let gone = self.entries.get_mut(section)?.remove(&name);
        self.entries.retain(|_, values| !values.is_empty());
        gone
    }

    /// One value of one section.
    pub fn get(&self, section: &Section, name: &str) -> Option<&str> {
        self.entries.get(section)?.get(&super::canonical(name)).map(String::as_str)
    }

    /// Every value: section, option, text.
    pub fn iter(&self) -> impl Iterator<Item = (&Section, &str, &str)> {
        self.entries.iter().flat_map(|(s, values)| values.iter().map(move |(n, v)| (s, n.as_str(), v.as_str())))
    }

    /// What one daemon or client is told, and by which section.
    pub fn for_target(&self, target: &Target) -> BTreeMap<String, (String, Section)> {
        let mut out = BTreeMap::new();
        // Sections sort from wide to narrow: what comes later replaces what came before.
        for (section, values) in self.entries.iter().filter(|(s, _)| s.covers(target)) {
            for (name, value) in values {
                out.insert(name.clone(), (value.clone(), section.clone()));
            }
        }
        out
    }

    /// The same without the sections: what a CONFIG message carries.
    pub fn message_for(&self, target: &Target) -> BTreeMap<String, String> {
        self.for_target(target).into_iter().map(|(name, (value, _))| (name, value)).collect()
    }

    /// `config dump`.
    pub fn dump_text(&self) -> String {
        let mut table = TextTable::new().left("WHO").left("MASK").left("LEVEL").left("OPTION").left("VALUE").left("RO");
        for (section, name, value) in self.iter() {
            let indent = match section.who {
                Who::Global => "",
                Who::Kind(_) => "  ",
                Who::Name(_) => "    ",
            };
            let ro = if find(name).is_some_and(|o| o.runtime) { "" } else { "*" };
            table.row([&format!("{indent}{}", section.who_text()), &section.mask_text(), level(name), name, value, ro]);
        }
        table.render()
    }

    /// `config dump -f json`.
    pub fn dump_json(&self) -> Value {
        let entry = |(section, name, value): (&Section, &str, &str)| {
            json!({
                "section": section.who_text(), "name": name, "value": value, "level": level(name),
                "can_update_at_runtime": find(name).is_some_and(|o| o.runtime), "mask": section.mask_text(),
                "location_type": section.mask.as_ref().filter(|(k, _)| k != "class").map_or("", |(k, _)| k),
                "location_value": section.mask.as_ref().filter(|(k, _)| k != "class").map_or("", |(_, v)| v),
            })
        };
        self.iter().map(entry).collect()
    }

    /// `config get WHO`: what it is told, as a table.
    pub fn get_text(&self, target: &Target) -> String {
        let mut table = TextTable::new().left("WHO").left("MASK").left("LEVEL").left("OPTION").left("VALUE").left("RO");
        for (name, (value, section)) in self.for_target(target) {
            let ro = if find(&name).is_some_and(|o| o.runtime) { "" } else { "*" };
            table.row([section.who_text().as_str(), &section.mask_text(), level(&name), &name, &value, ro]);
        }
        table.render()
    }
}

fn level(name: &str) -> &'static str {
    find(name).map_or("unknown", |o: &OptionSpec| o.level.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(s: &str) -> Section {
        s.parse().unwrap()
    }

    fn db() -> ConfigDb {
        let mut db = ConfigDb::default();
        for (who, value) in [("osd.1", "5"), ("global", "2"), ("osd", "3"), ("osd/class:ssd", "4")] {
            db.set(section(who), "osd_max_backfills", value).unwrap();
        }
        db
    }

    #[test]
    fn the_narrowest_section_wins() {
        let told = |name: &str, class: Option<&str>| {
            let target = Target { name: name.parse().unwrap(), device_class: class.map(Into::into), location: BTreeMap::new() };
            db().message_for(&target)["osd_max_backfills"].clone()
        };
        assert_eq!([told("osd.1", Some("ssd")), told("osd.2", Some("ssd")), told("osd.2", None)], ["5", "4", "3"]);
        assert_eq!(told("mon.a", None), "2");
    }

    #[test]
    fn the_dump_has_upstreams_columns() {
        let mut db = ConfigDb::default();
        db.set(section("osd"), "osd_max_backfills", "2").unwrap();
        let wanted = "WHO    MASK  LEVEL     OPTION             VALUE  RO\n  osd        advanced  osd_max_backfills  2        \n";
        assert_eq!(db.dump_text(), wanted);
    }

    #[test]
    fn unknown_targets_and_options_are_refused() {
        assert!("rack.1".parse::<Section>().is_err());
        assert!("osd/nonsense".parse::<Section>().is_err());
        let mut db = ConfigDb::default();
        assert!(db.set(section("osd"), "bogus", "1").is_err());
        assert!(db.set(section("global"), "fsid", "x").unwrap_err().status.contains("cannot be stored"));
        assert_eq!(db.remove(&section("osd"), "osd_max_backfills"), None);
    }
}
