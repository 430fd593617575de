//! What is in force in one process: values of every source, and the one that wins.
//!
//! Later sources win: default, monitor, file, environment, command line, runtime override. An option that stands in the
//! file is not changed by the monitor; that is upstream's order.

use super::{OptType, OptionSpec, all, find, known};
use crate::command::CommandError;
use crate::conf::Conf;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::internal::ConfigInForce;
use types::{EntityKind, EntityName};

/// Where a value comes from; a later one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    Default,
    Mon,
    File,
    Env,
    Cmdline,
    Override,
}

impl Source {
    /// As `config show` and `config diff` name it.
    pub fn name(self) -> &'static str {
        match self {
            Source::Default => "default",
            Source::Mon => "mon",
            Source::File => "file",
            Source::Env => "env",
            Source::Cmdline => "cmdline",
            Source::Override => "override",
        }
    }
}

/// The options of one process.
#[derive(Debug, Clone)]
pub struct ConfigValues {
    name: EntityName,
    cluster: String,
    host: String,
    /// Only what is set somewhere; `Source::Default` never stands here.
    set: BTreeMap<&'static str, BTreeMap<Source, String>>,
}

impl ConfigValues {
    /// All at their defaults, for the process `name` of `cluster` on `host`.
    pub fn new(name: EntityName, cluster: &str, host: &str) -> Self {
        ConfigValues { name, cluster: cluster.into(), host: host.into(), set: BTreeMap::new() }
    }

    /// Takes what a configuration file says to this process. Unknown options are returned, for a warning; a value that
    /// does not fit is an error that names option and section.
    pub fn load_file(&mut self, file: &Conf) -> Result<Vec<String>, CommandError> {
        let mut unknown = vec![];
        for (name, value) in file.options(&self.name) {
            match find(name) {
                Some(_) => self.set(name, Source::File, value)?,
                None => unknown.push(name.to_owned()),
            }
        }
        Ok(unknown)
    }

    /// Sets an option at a source.
    pub fn set(&mut self, name: &str, source: Source, raw: &str) -> Result<(), CommandError> {
        let spec = known(name)?;
        let value = match raw.contains('$') {
            // Variables are replaced when it is read.
            true => raw.to_owned(),
            false => spec.normalize(raw)?,
        };
        self.set.entry(spec.name).or_default().insert(source, value);
        Ok(())
    }

    /// Takes a source's value away.
    pub fn unset(&mut self, name: &str, source: Source) -> Result<(), CommandError> {
        let spec = known(name)?;
        if let Some(values) = self.set.get_mut(spec.name) {
            values.remove(&source);
        }
        self.set.retain(|_, values| !values.is_empty());
        Ok(())
    }

    /// Replaces everything the monitor said; returns the names of options whose value in force changed. What the
    /// monitor may not set or what does not parse is left out.
    pub fn replace_mon(&mut self, config: &BTreeMap<String, String>) -> Vec<&'static str> {
        let before = self.clone();
        self.set.values_mut().for_each(|values| {
            values.remove(&Source::Mon);
        });
        self.set.retain(|_, values| !values.is_empty());
        for (name, value) in config {
            if find(name).is_some_and(|o| !o.no_mon_update()) {
                let _ = self.set(name, Source::Mon, value);
            }
        }
        all().into_iter().map(|o| o.name).filter(|name| self.raw(name) != before.raw(name)).collect()
    }

    /// The value in force as text, variables replaced. Panics for an option that is not in the table.
    pub fn str(&self, name: &str) -> String {
        self.expand(&self.raw(name))
    }

    /// A whole number; 0 where it is not one. Panics for an option that is not in the table.
    pub fn u64(&self, name: &str) -> u64 {
        self.str(name).parse().unwrap_or(0)
    }

    /// A whole number with a sign.
    pub fn i64(&self, name: &str) -> i64 {
        self.str(name).parse().unwrap_or(0)
    }

    /// A number.
    pub fn f64(&self, name: &str) -> f64 {
        self.str(name).parse().unwrap_or(0.0)
    }

    /// Truth.
    pub fn bool(&self, name: &str) -> bool {
        self.str(name) == "true"
    }

    /// A time: of an option in seconds (whole or not) or milliseconds. Negative is zero.
    pub fn duration(&self, name: &str) -> Duration {
        let value = self.f64(name).max(0.0);
        let seconds = if spec(name).kind == OptType::Millisecs { value / 1000.0 } else { value };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The source of the value in force.
    pub fn source(&self, name: &str) -> Source {
        self.set.get(spec(name).name).and_then(|v| v.last_key_value()).map_or(Source::Default, |(s, _)| *s)
    }

    /// True if someone set it.
    pub fn is_set(&self, name: &str) -> bool {
        self.source(name) != Source::Default
    }

    /// Every option that is not at its default, as daemons tell the manager.
    pub fn in_force(&self) -> BTreeMap<String, ConfigInForce> {
        let entry = |(name, values): (&&'static str, &BTreeMap<Source, String>)| {
            let (source, value) = values.last_key_value()?;
            let overrides = values.iter().rev().skip(1).map(|(s, v)| (s.name().into(), v.clone())).collect();
            Some((name.to_string(), ConfigInForce { value: value.clone(), source: source.name().into(), overrides }))
        };
        self.set.iter().filter_map(entry).collect()
    }

    /// `config show` of the admin socket: every option with its value in force.
    pub fn show(&self) -> Value {
        let mut out = Map::new();
        out.insert("name".into(), self.name.to_string().into());
        out.insert("cluster".into(), self.cluster.as_str().into());
        out.extend(all().into_iter().map(|o| (o.name.to_string(), self.str(o.name).into())));
        Value::Object(out)
    }

    /// `config diff`: what differs from the default, and who said what.
    pub fn diff(&self) -> Value {
        json!({"diff": self.set.keys().map(|name| (name.to_string(), self.diff_of(name))).collect::<Map<_, _>>()})
    }

    /// `config diff get`: one option.
    pub fn diff_get(&self, name: &str) -> Result<Value, CommandError> {
        let spec = known(name)?;
        Ok(json!({"diff": {spec.name: self.diff_of(spec.name)}}))
    }

    fn diff_of(&self, name: &str) -> Value {
        let mut out = Map::new();
        out.insert("default".into(), self.default(name).into());
        for (source, value) in self.set.get(name).into_iter().flatten() {
            out.insert(source.name().into(), value.as_str().into());
        }
        out.insert("final".into(), self.str(name).into());
        Value::Object(out)
    }

    fn raw(&self, name: &str) -> String {
        let set = self.set.get(spec(name).name).and_then(|v| v.last_key_value());
        set.map_or_else(|| self.default(name), |(_, value)| value.clone())
    }

    fn default(&self, name: &str) -> String {
        spec(name).default_for(self.name.kind != EntityKind::CLIENT)
    }

    /// Replaces `$cluster`, `$type`, `$id`, `$name`, `$host` and names of options, braces or not; an unknown name stays.
    fn expand(&self, text: &str) -> String {
        self.expand_within(text, 0)
    }

    fn expand_within(&self, text: &str, depth: u32) -> String {
        let (mut out, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let (name, after) = variable(after);
            rest = after;
            let value = match name {
                "cluster" => Some(self.cluster.clone()),
                "type" => Some(self.name.kind.name().into()),
                "id" => Some(self.name.id.clone()),
                "name" => Some(self.name.to_string()),
                "host" => Some(self.host.clone()),
                // An option that names itself, by whatever way, ends here.
                option if depth < 8 && find(option).is_some() => Some(self.expand_within(&self.raw(option), depth + 1)),
                _ => None,
            };
            out.push_str(&value.unwrap_or_else(|| format!("${name}")));
        }
        out + rest
    }
}

/// The variable's name at the front of `text`, and what follows it.
fn variable(text: &str) -> (&str, &str) {
    if let Some((name, rest)) = text.strip_prefix('{').and_then(|t| t.split_once('}')) {
        return (name, rest);
    }
    text.split_at(text.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(text.len()))
}

fn spec(name: &str) -> &'static OptionSpec {
    find(name).unwrap_or_else(|| panic!("option {name} is not in the table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> ConfigValues {
        ConfigValues::new("osd.3".parse().unwrap(), "ceph", "a")
    }

    #[test]
    fn the_file_wins_over_the_monitor_and_an_override_over_both() {
        let mut v = values();
        let file = Conf::parse("[global]\nosd max backfills = 2\n[osd.3]\nosd_max_backfills=4\n[osd]\nbogus = 1").unwrap();
        assert_eq!(v.load_file(&file).unwrap(), ["bogus"]);
        let mon = BTreeMap::from([("osd_max_backfills".into(), "9".into()), ("osd_op_complaint_time".into(), "5".into())]);
        assert_eq!(v.replace_mon(&mon), ["osd_op_complaint_time"]);
        assert_eq!((v.u64("osd_max_backfills"), v.source("osd_max_backfills")), (4, Source::File));
        assert_eq!(v.duration("osd_op_complaint_time"), Duration::from_secs(5));
        v.set("osd_max_backfills", Source::Override, "7").unwrap();
        let told = &v.in_force()["osd_max_backfills"];
        assert_eq!((told.value.as_str(), told.source.as_str(), &told.overrides), ("7", "override", &vec![("file".into(), "4".into()), ("mon".into(), "9".into())]));
        assert_eq!(v.replace_mon(&BTreeMap::new()), ["osd_op_complaint_time"]);
        v.unset("osd_max_backfills", Source::Override).unwrap();
        assert_eq!(v.u64("osd_max_backfills"), 4);
    }

    #[test]
    fn variables_are_replaced_when_read() {
        let mut v = values();
        v.set("osd_data", Source::File, "/srv/$cluster/${type}.$id").unwrap();
        v.set("keyring", Source::File, "$osd_data/keyring on $host, $nonsense").unwrap();
        assert_eq!(v.str("keyring"), "/srv/ceph/osd.3/keyring on a, $nonsense");
        v.set("osd_data", Source::File, "$osd_data").unwrap();
        assert_eq!(v.str("osd_data"), "$osd_data");
    }

    #[test]
    fn a_diff_shows_who_said_what() {
        let mut v = values();
        v.set("osd_max_backfills", Source::Mon, "2").unwrap();
        v.set("osd_max_backfills", Source::Cmdline, "3").unwrap();
        let wanted = json!({"diff": {"osd_max_backfills": {"default": "1", "mon": "2", "cmdline": "3", "final": "3"}}});
        assert_eq!(v.diff(), wanted);
        assert_eq!(v.show()["osd_max_backfills"], "3");
    }
}
