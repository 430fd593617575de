//! What an option is.

use super::value;
use crate::command::CommandError;
use serde_json::{Value, json};
use types::Errno;

/// What an option's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptType {
    Str,
    Int,
    Uint,
    Float,
    Bool,
    Addr,
    AddrVec,
    Uuid,
    /// Bytes; `10G` is 10 GiB.
    Size,
    /// Seconds; `10m` is ten minutes.
    Secs,
    Millisecs,
}

impl OptType {
    /// As `config help` names it.
    pub fn name(self) -> &'static str {
        match self {
            OptType::Str => "str",
            OptType::Int => "int",
            OptType::Uint => "uint",
            OptType::Float => "float",
            OptType::Bool => "bool",
            OptType::Addr => "addr",
            OptType::AddrVec => "addrvec",
            OptType::Uuid => "uuid",
            OptType::Size => "size",
            OptType::Secs => "secs",
            OptType::Millisecs => "millisecs",
        }
    }
}

/// Whom an option is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    Basic,
    Advanced,
    Dev,
}

impl Level {
    /// As `config dump` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Level::Basic => "basic",
            Level::Advanced => "advanced",
            Level::Dev => "dev",
        }
    }
}

/// Looks at an option's text; an error says what is wrong with it.
type Check = fn(&str) -> Result<(), String>;

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct OptionSpec {
    pub name: &'static str,
    pub kind: OptType,
    pub level: Level,
    pub default: &'static str,
    /// Where daemons have another default than clients.
    pub daemon_default: Option<&'static str>,
    pub description: &'static str,
    pub min: Option<&'static str>,
    pub max: Option<&'static str>,
    /// Empty: anything goes.
    pub choices: &'static [&'static str],
    /// `startup`, `create`, `cluster_create`, `no_mon_update`.
    pub flags: &'static [&'static str],
    pub services: &'static [&'static str],
    /// A change takes effect while the daemon runs.
    pub runtime: bool,
    /// It changes something here.
    pub effective: bool,
    /// What its text has to be beside what its type says.
    pub(super) check: Option<Check>,
}

/// An option without limits that changes nothing.
pub(super) const fn opt(
    name: &'static str,
    kind: OptType,
    level: Level,
    default: &'static str,
    description: &'static str,
) -> OptionSpec {
    OptionSpec {
        name,
        kind,
        level,
        default,
        daemon_default: None,
        description,
        min: None,
        max: None,
        choices: &[],
        flags: &[],
        services: &[],
        runtime: false,
        effective: false,
        check: None,
    }
}

impl OptionSpec {
    pub(super) const fn daemon(self, default: &'static str) -> Self {
        OptionSpec { daemon_default: Some(default), ..self }
    }

    pub(super) const fn range(self, min: &'static str, max: &'static str) -> Self {
        OptionSpec { min: Some(min), max: Some(max), ..self }
    }

    pub(super) const fn one_of(self, choices: &'static [&'static str]) -> Self {
        OptionSpec { choices, ..self }
    }

    pub(super) const fn flags(self, flags: &'static [&'static str]) -> Self {
        OptionSpec { flags, ..self }
    }

    pub(super) const fn of(self, services: &'static [&'static str]) -> Self {
        OptionSpec { services, ..self }
    }

    pub(super) const fn runtime(self) -> Self {
        OptionSpec { runtime: true, ..self }
    }

    pub(super) const fn checked(self, check: Check) -> Self {
        OptionSpec { check: Some(check), ..self }
    }

    pub(super) const fn effective(self) -> Self {
        OptionSpec { effective: true, ..self }
    }

    /// The value as daemons hold it: sizes in bytes, floats with six decimals, `true` and `false`.
    pub fn normalize(&self, raw: &str) -> Result<String, CommandError> {
        let text = value::normalize(self.kind, raw).map_err(refuse)?;
        if !self.choices.is_empty() && !self.choices.contains(&text.as_str()) {
            return Err(refuse(format!("'{text}' is not one of the permitted values: {}", self.choices.join(", "))));
        }
        if let Some(check) = self.check {
            check(&text).map_err(refuse)?;
        }
        let beyond = |bound: Option<&str>, outside: fn(f64, f64) -> bool| {
            let (bound, value) = (bound?.parse().ok()?, text.parse().ok()?);
            outside(value, bound).then_some(bound)
        };
        if let Some(min) = beyond(self.min, |v, b| v < b) {
            return Err(refuse(format!("Value '{raw}' is below minimum {min}")));
        }
        if let Some(max) = beyond(self.max, |v, b| v > b) {
            return Err(refuse(format!("Value '{raw}' exceeds maximum {max}")));
        }
        Ok(text)
    }

    /// The default as daemons, or clients, hold it.
    pub fn default_for(&self, daemon: bool) -> String {
        let raw = self.daemon_default.filter(|_| daemon).unwrap_or(self.default);
        self.normalize(raw).unwrap_or_else(|_| raw.to_owned())
    }

    /// True if the monitor cannot set it.
    pub fn no_mon_update(&self) -> bool {
        self.flags.contains(&"no_mon_update")
    }

    /// What to tell who sets it: that nothing will change, or only after a restart.
    pub fn notice(&self) -> Option<String> {
        match (self.effective, self.runtime) {
            (false, _) => Some(format!("{} is accepted but changes nothing in Cuttlebone", self.name)),
            (true, false) => Some(format!("{} takes effect when the daemon is restarted", self.name)),
            (true, true) => None,
        }
    }

    /// What there is to say of it besides.
    fn remark(&self) -> Option<String> {
        let scheduler = || {
            let why = "With osd_op_queue=mclock_scheduler, the default, this is ignored unless osd_mclock_override_recovery_settings is true.";
            super::SCHEDULERS.contains(&self.name).then(|| why.to_owned())
        };
        self.notice().or_else(scheduler)
    }

    /// `config help -f json`.
    pub fn json(&self) -> Value {
        let typed = |text: &str| match self.kind {
            OptType::Bool => (text == "true").into(),
            OptType::Int | OptType::Uint => text.parse::<i64>().map_or(text.into(), Value::from),
            OptType::Float => text.parse::<f64>().map_or(text.into(), Value::from),
            _ => Value::from(text),
        };
        let mut flags: Vec<&str> = self.flags.to_vec();
        if self.runtime {
            flags.push("runtime");
        }
        json!({
            "name": self.name, "type": self.kind.name(), "level": self.level.name(), "desc": self.description,
            "long_desc": self.remark().unwrap_or_default(), "default": typed(self.default),
            "daemon_default": self.daemon_default.map_or("".into(), typed), "tags": [], "services": self.services,
            "see_also": [], "enum_values": self.choices, "min": self.min.map_or("".into(), typed),
            "max": self.max.map_or("".into(), typed), "can_update_at_runtime": self.runtime, "flags": flags,
        })
    }

    /// `config help`.
    pub fn text(&self) -> String {
        let mut out = format!("{} - {}\n  ({}, {})\n", self.name, self.description, self.kind.name(), self.level.name());
        match self.daemon_default {
            Some(daemon) => out += &format!("  Default (non-daemon): {}\n  Default (daemon): {daemon}\n", self.default),
            None => out += &format!("  Default: {}\n", self.default),
        }
        if !self.choices.is_empty() {
            out += &format!("  Possible values: {}\n", self.choices.join(", "));
        }
        if let (Some(min), Some(max)) = (self.min.filter(|m| !m.is_empty()), self.max) {
            out += &format!("  Minimum: {min}\n  Maximum: {max}\n");
        }
        out += &format!("  Can update at runtime: {}\n", self.runtime);
        if !self.services.is_empty() {
            out += &format!("  Services: [{}]\n", self.services.join(","));
        }
        if let Some(remark) = self.remark() {
            out += &format!("\n{remark}\n");
        }
        out
    }
}

fn refuse(why: String) -> CommandError {
    CommandError::new(Errno::EINVAL, format!("error parsing value: {why}"))
}

#[cfg(test)]
mod tests {
    use crate::option::find;

    #[test]
    fn values_out_of_bounds_are_refused() {
        let size = find("osd_pool_default_size").unwrap();
        assert_eq!(size.normalize("3").unwrap(), "3");
        assert_eq!(size.normalize("11").unwrap_err().status, "error parsing value: Value '11' exceeds maximum 10");
        assert!(find("osd_op_queue").unwrap().normalize("fifo").is_err());
        let rocksdb = find("bluestore_rocksdb_options").unwrap();
        assert_eq!(rocksdb.normalize("write_buffer_size=64M,max_open_files=-1").unwrap(), "write_buffer_size=64M,max_open_files=-1");
        assert!(rocksdb.normalize("write_buffer_size=64M,bogus=1").unwrap_err().status.contains("\"bogus\""));
    }

    #[test]
    fn help_says_when_an_option_changes_nothing() {
        assert!(find("osd_max_backfills").unwrap().text().contains("ignored unless osd_mclock_override_recovery_settings"));
        assert!(find("osd_memory_base").unwrap().text().contains("changes nothing in Cuttlebone"));
        assert_eq!(find("osd_pool_default_size").unwrap().notice(), None);
        assert_eq!(find("osd_heartbeat_grace").unwrap().json()["default"], 20);
    }
}
