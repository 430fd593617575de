//! A command as it arrives: a JSON object with a prefix and arguments.

use crate::reply::{Format, Reply};
use bytes::Bytes;
use serde_json::{Map, Value};
use types::Errno;

/// A parsed command. Members nobody asks for are ignored.
#[derive(Debug, Clone, Default)]
pub struct Cmd {
    pub prefix: String,
    pub format: Format,
    args: Map<String, Value>,
    /// What came on standard input.
    pub input: Bytes,
    /// The text it was parsed from, for the audit log.
    pub text: String,
}

impl Cmd {
    /// Reads the JSON text; `input` is the message's data.
    pub fn parse(parts: &[String], input: Bytes) -> Result<Cmd, Reply> {
        let text = parts.concat();
        let unreadable = || Reply::err(Errno::EINVAL, format!("unparseable JSON {text}"));
        let Ok(Value::Object(args)) = serde_json::from_str(&text) else { return Err(unreadable()) };
        let Some(prefix) = args.get("prefix").and_then(Value::as_str) else {
            return Err(Reply::err(Errno::EINVAL, "command prefix not found"));
        };
        let format = Format::from_name(args.get("format").and_then(Value::as_str).unwrap_or("plain"));
        Ok(Cmd { prefix: prefix.to_owned(), format, args, input, text })
    }

    /// A text argument.
    pub fn str(&self, name: &str) -> Result<Option<&str>, Reply> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(s)) => Ok(Some(s)),
            Some(_) => Err(bad_field(name)),
        }
    }

    /// A text argument, empty if absent.
    pub fn text(&self, name: &str) -> Result<&str, Reply> {
        Ok(self.str(name)?.unwrap_or(""))
    }

    /// An integer; whole floats and digits in a string are integers too, for clients written by hand.
    pub fn int(&self, name: &str) -> Result<Option<i64>, Reply> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) => n.as_i64().map(Some).ok_or_else(|| bad_field(name)),
            Some(Value::String(s)) => s.parse().map(Some).map_err(|_| bad_field(name)),
            Some(_) => Err(bad_field(name)),
        }
    }

    /// A number.
    pub fn float(&self, name: &str) -> Result<Option<f64>, Reply> {
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) => Ok(n.as_f64()),
            Some(Value::String(s)) => s.parse().map(Some).map_err(|_| bad_field(name)),
            Some(_) => Err(bad_field(name)),
        }
    }

    /// A flag: a JSON bool, or the flag's own text as old clients send it (`--yes-i-really-mean-it`).
    pub fn flag(&self, name: &str) -> bool {
        match self.args.get(name) {
            Some(Value::Bool(b)) => *b,
            Some(Value::String(s)) => s == "true" || s == &format!("--{}", name.replace('_', "-")),
            _ => false,
        }
    }

    /// A list of texts; a single value is a list of one.
    pub fn list(&self, name: &str) -> Result<Vec<String>, Reply> {
        let text = |v: &Value| match v {
            Value::String(s) => Ok(s.clone()),
            Value::Number(n) => Ok(n.to_string()),
            _ => Err(bad_field(name)),
        };
        match self.args.get(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(all)) => all.iter().map(text).collect(),
            Some(one) => Ok(vec![text(one)?]),
        }
    }

    /// Arguments by name as capabilities compare them (`allow command "x" with a=b`).
    pub fn named_texts(&self) -> Vec<(String, String)> {
        let text = |v: &Value| match v {
            Value::String(s) => s.clone(),
            Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
            other => other.to_string(),
        };
        self.args.iter().map(|(k, v)| (k.clone(), text(v))).collect()
    }
}

fn bad_field(name: &str) -> Reply {
    Reply::err(Errno::EINVAL, format!("bad or missing field '{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Cmd, Reply> {
        Cmd::parse(&[text.to_owned()], Bytes::new())
    }

    #[test]
    fn what_radosgw_sends_is_answered_and_not_dropped() {
        let bad = parse(r#"{"prefix": "osd pool set", "pool": "p", "var": "recovery_priority": "5"}"#).unwrap_err();
        assert_eq!(bad.result, -22);
        assert!(bad.status.starts_with("unparseable JSON {"));
        assert_eq!(parse(r#"{"foo":1}"#).unwrap_err().status, "command prefix not found");
    }

    #[test]
    fn arguments_have_types_and_unknown_ones_are_ignored() {
        let c = parse(r#"{"prefix":"x","n":5,"s":"t","b":true,"l":["a","b"],"f":0.5,"old":"--old"}"#).unwrap();
        assert_eq!((c.int("n").unwrap(), c.str("s").unwrap(), c.flag("b")), (Some(5), Some("t"), true));
        assert_eq!((c.list("l").unwrap().len(), c.float("f").unwrap(), c.flag("old")), (2, Some(0.5), true));
        assert_eq!(c.int("s").unwrap_err().status, "bad or missing field 's'");
        assert_eq!(c.int("none").unwrap(), None);
    }
}
