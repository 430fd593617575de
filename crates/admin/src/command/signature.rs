//! Signatures: what a command's words and arguments are.

use super::args::{Arg, Args, Command};
use super::CommandError;
use serde_json::{Map, Value};
use types::PgId;

/// What an argument may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgType {
    String,
    Bool,
    Choices,
    Int,
    Float,
    Poolname,
    OsdName,
    Pgid,
    IpAddr,
    EntityAddr,
    Uuid,
    Name,
    Objectname,
}

impl ArgType {
    const NAMES: &'static [(&'static str, ArgType)] = &[
        ("String", ArgType::String),
        ("Bool", ArgType::Bool),
        ("Choices", ArgType::Choices),
        ("Int", ArgType::Int),
        ("Float", ArgType::Float),
        ("Poolname", ArgType::Poolname),
        ("OsdName", ArgType::OsdName),
        ("Pgid", ArgType::Pgid),
        ("IPAddr", ArgType::IpAddr),
        ("EntityAddr", ArgType::EntityAddr),
        ("UUID", ArgType::Uuid),
        ("Name", ArgType::Name),
        ("Objectname", ArgType::Objectname),
    ];

    fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, t)| *t == self).map_or("", |(name, _)| name)
    }
}

/// An argument.
#[derive(Debug, Clone)]
pub struct ArgSpec {
    pub name: String,
    pub kind: ArgType,
    pub required: bool,
    pub list: bool,
    /// `lo` or `lo|hi`.
    pub range: Option<String>,
    /// A character class.
    pub goodchars: Option<String>,
    /// Separated by `|`.
    pub choices: Option<String>,
}

/// A literal word or an argument.
#[derive(Debug, Clone)]
pub enum Word {
    Literal(String),
    Arg(ArgSpec),
}

/// A whole signature.
#[derive(Debug, Clone)]
pub struct Signature {
    words: Vec<Word>,
    prefix: String,
}

impl Signature {
    /// Reads the one-line form; see the parent module.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let words: Vec<Word> = text.split_whitespace().map(word).collect::<Result<_, _>>()?;
        let literals = words.iter().map_while(|w| match w {
            Word::Literal(s) => Some(s.as_str()),
            Word::Arg(_) => None,
        });
        let prefix = literals.collect::<Vec<_>>().join(" ");
        match prefix.is_empty() {
            true => Err("no word before the first argument"),
            false => Ok(Signature { prefix, words }),
        }
    }

    /// The words before the first argument.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The `sig` array of the command table.
    pub fn describe(&self) -> Value {
        let word = |w: &Word| match w {
            Word::Literal(s) => Value::from(s.as_str()),
            Word::Arg(arg) => arg.describe(),
        };
        self.words.iter().map(word).collect()
    }

    /// The arguments of `command`, typed by this signature.
    pub fn check(&self, command: &Command) -> Result<Args, CommandError> {
        let mut args = Args::default();
        for word in &self.words {
            let Word::Arg(spec) = word else { continue };
            match command.fields.get(&spec.name).filter(|v| !v.is_null()) {
                Some(value) => args.insert(&spec.name, spec.read(value)?),
                // An empty list is as good as none.
                None if spec.required && !spec.list => {
                    return Err(CommandError::invalid(format!("missing required parameter: '{}'", spec.name)));
                }
                None => {}
            }
        }
        Ok(args)
    }
}

impl ArgSpec {
    /// Keys in alphabetical order, all values strings.
    fn describe(&self) -> Value {
        let pairs = [
            ("goodchars", self.goodchars.clone()),
            ("n", self.list.then(|| "N".to_string())),
            ("name", Some(self.name.clone())),
            ("range", self.range.clone()),
            ("req", (!self.required).then(|| "false".to_string())),
            ("strings", self.choices.clone()),
            ("type", Some(format!("Ceph{}", self.kind.name()))),
        ];
        let present = pairs.into_iter().filter_map(|(k, v)| Some((k.to_string(), Value::from(v?))));
        Value::Object(present.collect::<Map<_, _>>())
    }

    fn read(&self, value: &Value) -> Result<Arg, CommandError> {
        match (self.list, value) {
            (true, Value::Array(items)) => Ok(Arg::List(items.iter().map(|v| self.read_one(v)).collect::<Result<_, _>>()?)),
            // A single value where a list may stand; many callers by hand do that.
            (true, one) => Ok(Arg::List(vec![self.read_one(one)?])),
            (false, one) => self.read_one(one),
        }
    }

    fn read_one(&self, value: &Value) -> Result<Arg, CommandError> {
        let arg = self.typed(value).ok_or_else(|| CommandError::invalid(format!("bad or missing field '{}'", self.name)))?;
        self.check_range(&arg)?;
        match (&self.choices, &arg) {
            (Some(choices), Arg::Str(s)) if !choices.split('|').any(|c| c == s) => {
                Err(CommandError::invalid(format!("'{s}' not belong to '{choices}'")))
            }
            _ => Ok(arg),
        }
    }

    fn typed(&self, value: &Value) -> Option<Arg> {
        let text = || match value {
            Value::String(s) => Some(s.clone()),
            Value::Number(n) => Some(n.to_string()),
            Value::Bool(b) => Some(b.to_string()),
            _ => None,
        };
        Some(match self.kind {
            ArgType::Int => Arg::Int(value.as_i64().or_else(|| text()?.trim().parse().ok())?),
            ArgType::Float => Arg::Float(value.as_f64().or_else(|| text()?.trim().parse().ok())?),
            ArgType::Bool => Arg::Bool(value.as_bool().or_else(|| boolean(&text()?))?),
            ArgType::OsdName => {
                let s = text()?;
                Arg::Int(s.strip_prefix("osd.").unwrap_or(&s).parse().ok()?)
            }
            ArgType::Pgid => Arg::Str(text().filter(|s| s.parse::<PgId>().is_ok())?),
            _ => Arg::Str(text()?),
        })
    }

    fn check_range(&self, arg: &Arg) -> Result<(), CommandError> {
        let (Some(range), Some(value)) = (&self.range, arg.as_f64()) else { return Ok(()) };
        let bound = |s: Option<&str>, open: f64| s.and_then(|s| s.parse().ok()).unwrap_or(open);
        let mut ends = range.split('|');
        let (low, high) = (bound(ends.next(), f64::NEG_INFINITY), bound(ends.next(), f64::INFINITY));
        match value >= low && value <= high {
            true => Ok(()),
            false => Err(CommandError::invalid(format!("'{value}' out of range: {range}"))),
        }
    }
}

/// Truth as command lines spell it. A text that begins with dashes is a flag that was given by an older client.
fn boolean(s: &str) -> Option<bool> {
    match s.to_ascii_lowercase().as_str() {
        "true" | "yes" | "1" => Some(true),
        "false" | "no" | "0" | "" => Some(false),
        flag if flag.starts_with("--") => Some(true),
        _ => None,
    }
}

fn word(text: &str) -> Result<Word, &'static str> {
    let Some((name, rest)) = text.split_once(':') else { return Ok(Word::Literal(text.into())) };
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (kind, mut rest) = rest.split_at(end);
    let kind = ArgType::NAMES.iter().find(|(n, _)| *n == kind).ok_or("unknown type")?.1;
    let optional = take(&mut rest, "?");
    let list = take(&mut rest, "*");
    let range = bracketed(&mut rest, '[', ']')?;
    let goodchars = bracketed(&mut rest, '{', '}')?;
    let choices = rest.strip_prefix('=').map(str::to_string);
    match choices.is_none() && !rest.is_empty() {
        true => Err("text after an argument"),
        false => Ok(Word::Arg(ArgSpec { name: name.into(), kind, required: !optional, list, range, goodchars, choices })),
    }
}

fn take(rest: &mut &str, mark: &str) -> bool {
    let found = rest.strip_prefix(mark);
    *rest = found.unwrap_or(rest);
    found.is_some()
}

fn bracketed(rest: &mut &str, open: char, close: char) -> Result<Option<String>, &'static str> {
    let Some(inside) = rest.strip_prefix(open) else { return Ok(None) };
    // The last one: a character class may hold the closing mark.
    let (inside, after) = inside.rsplit_once(close).ok_or("a bracket that is not closed")?;
    *rest = after;
    Ok(Some(inside.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_signatures_are_refused() {
        for bad in ["name:String", "a b:Nonsense", "a b:Int[0", "a b:Int!", ""] {
            assert!(Signature::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_character_class_may_hold_brackets() {
        let s = Signature::parse("a b:String?{[A-Za-z0-9-_.]}").unwrap();
        assert_eq!(s.describe()[1]["goodchars"], "[A-Za-z0-9-_.]");
    }
}
