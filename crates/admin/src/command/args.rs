//! A command as it was sent, and its arguments once they are typed.

use super::{CommandError, Format};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use types::{OsdId, PgId};

/// A command as it was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// The literal words, one blank between them.
    pub prefix: String,
    pub format: Format,
    /// True if the caller named a format, even plain: `tell` prints JSON unless told otherwise.
    pub format_given: bool,
    pub(super) fields: Map<String, Value>,
}

impl Command {
    /// Reads the JSON text; its pieces are joined first.
    pub fn parse(cmd: &[String]) -> Result<Self, CommandError> {
        let text = cmd.concat();
        let unparseable = || CommandError::invalid(format!("unparseable JSON {text}"));
        let value: Value = serde_json::from_str(&text).map_err(|_| unparseable())?;
        let Value::Object(fields) = value else {
            return Err(CommandError::invalid(format!("not JSON object {text}")));
        };
        let field = |name: &str| fields.get(name).and_then(Value::as_str);
        let prefix = field("prefix").ok_or_else(|| CommandError::invalid("no prefix field in the command"))?;
        let prefix = prefix.split_whitespace().collect::<Vec<_>>().join(" ");
        let format = Format::parse(field("format").unwrap_or_default())?;
        Ok(Command { prefix, format, format_given: fields.contains_key("format"), fields })
    }

    /// A member as text, for what no signature declares.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str)
    }
}

/// A typed value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Arg {
    Str(String),
    Int(i64),
    Float(f64),
    Bool(bool),
    List(Vec<Arg>),
}

impl Arg {
    pub(super) fn as_f64(&self) -> Option<f64> {
        match self {
            Arg::Int(n) => Some(*n as f64),
            Arg::Float(f) => Some(*f),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            Arg::Str(s) => s.clone(),
            Arg::Int(n) => n.to_string(),
            Arg::Float(f) => f.to_string(),
            Arg::Bool(b) => b.to_string(),
            Arg::List(items) => items.iter().map(Arg::text).collect::<Vec<_>>().join(" "),
        }
    }

    fn as_str(&self) -> Option<&str> {
        match self {
            Arg::Str(s) => Some(s),
            _ => None,
        }
    }
}

/// A command's arguments, of the types its signature declares.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Args(BTreeMap<String, Arg>);

impl Args {
    pub(super) fn insert(&mut self, name: &str, arg: Arg) {
        self.0.insert(name.into(), arg);
    }

    /// Text of any kind: String, Choices, Poolname, Pgid, Name, ...
    pub fn str(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }

    /// Text that the signature says is there.
    pub fn require(&self, name: &str) -> Result<&str, CommandError> {
        self.str(name).ok_or_else(|| CommandError::invalid(format!("missing required parameter: '{name}'")))
    }

    /// An Int.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.0.get(name)? {
            Arg::Int(n) => Some(*n),
            _ => None,
        }
    }

    /// An Int that may not be missing.
    pub fn require_int(&self, name: &str) -> Result<i64, CommandError> {
        self.int(name).ok_or_else(|| CommandError::invalid(format!("missing required parameter: '{name}'")))
    }

    /// A Float or an Int.
    pub fn float(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    /// A Bool; false when it is missing.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(Arg::Bool(true)))
    }

    /// A Bool, if given.
    pub fn bool(&self, name: &str) -> Option<bool> {
        match self.0.get(name)? {
            Arg::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// An OsdName.
    pub fn osd(&self, name: &str) -> Option<OsdId> {
        self.int(name).and_then(|n| i32::try_from(n).ok()).map(OsdId)
    }

    /// A Pgid.
    pub fn pg(&self, name: &str) -> Option<PgId> {
        self.str(name)?.parse().ok()
    }

    /// Every argument as text, for capabilities that constrain arguments; a list's items are joined by blanks.
    pub fn texts(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, arg)| (name.clone(), arg.text())).collect()
    }

    /// A list of text; empty when it is missing.
    pub fn strings(&self, name: &str) -> Vec<&str> {
        match self.0.get(name) {
            Some(Arg::List(items)) => items.iter().filter_map(Arg::as_str).collect(),
            _ => vec![],
        }
    }

    /// A list of numbers; empty when it is missing.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        let int = |arg: &Arg| match arg {
            Arg::Int(n) => Some(*n),
            _ => None,
        };
        match self.0.get(name) {
            Some(Arg::List(items)) => items.iter().filter_map(int).collect(),
            _ => vec![],
        }
    }
}
