//! Commands: the table a client fetches, and the JSON it sends back.
//!
//! A signature is one line: literal words and arguments. An argument is `name:Type`, then any of `?` (optional),
//! `*` (a list), `[lo|hi]` (range), `{chars}` (characters allowed) and `=a|b|c` (choices), in this order:
//!
//! ```text
//! osd pool create pool:Poolname pg_num:Int?[0] pool_type:Choices?=replicated|erasure
//! ```
//! The types are upstream's without `Ceph`. Arguments nobody declared are ignored, numbers may come as strings and
//! strings as numbers: clients of all ages send both.
//! Upstream: src/common/cmdparse.cc, src/mon/MonCommands.h, src/pybind/ceph_argparse.py.

mod args;
mod mgr_table;
mod signature;

pub use args::{Args, Command};
pub use mgr_table::MGR_COMMANDS;
pub use signature::{ArgSpec, ArgType, Signature, Word};

use crate::json;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::Errno;

/// Bits of `CommandSpec::flags`.
pub mod flag {
    pub const NONE: u32 = 0;
    /// Not to be passed to the leader.
    pub const NOFORWARD: u32 = 1;
    pub const OBSOLETE: u32 = 2;
    pub const DEPRECATED: u32 = 4;
    /// For the active manager.
    pub const MGR: u32 = 8;
    /// The client repeats it every second.
    pub const POLL: u32 = 16;
    pub const HIDDEN: u32 = 32;
    /// Only by `ceph tell`: hidden, and not passed on.
    pub const TELL: u32 = NOFORWARD | HIDDEN;
}

/// One command of a daemon.
#[derive(Debug, Clone, Copy)]
pub struct CommandSpec {
    /// See the module's text.
    pub sig: &'static str,
    pub help: &'static str,
    /// `mon`, `osd`, `auth`, `pg`, `config`, `mgr`, ...: what capabilities name.
    pub module: &'static str,
    /// `r`, `rw`, `rx`, ...: what a caller must be allowed.
    pub perm: &'static str,
    pub flags: u32,
}

/// Why a command is refused: an errno and the text for standard error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{status}")]
pub struct CommandError {
    pub errno: Errno,
    pub status: String,
}

impl CommandError {
    /// With a text.
    pub fn new(errno: Errno, status: impl Into<String>) -> Self {
        CommandError { errno, status: status.into() }
    }

    /// EINVAL with a text.
    pub fn invalid(status: impl Into<String>) -> Self {
        CommandError::new(Errno::EINVAL, status)
    }
}

/// What a command answers: output for standard output, status for standard error, result 0 or a negative errno.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    pub result: i32,
    pub status: String,
    pub output: Vec<u8>,
}

impl Reply {
    /// Success with output.
    pub fn output(output: impl Into<Vec<u8>>) -> Self {
        Reply { output: output.into(), ..Reply::default() }
    }

    /// Success with a sentence and no output.
    pub fn status(status: impl Into<String>) -> Self {
        Reply { status: status.into(), ..Reply::default() }
    }

    /// The same with a sentence besides.
    pub fn with_status(self, status: impl Into<String>) -> Self {
        Reply { status: status.into(), ..self }
    }
}
impl From<CommandError> for Reply {
    fn from(e: CommandError) -> Self {
        Reply { result: e.errno.wire(), status: e.status, output: vec![] }
    }
}
impl From<Result<Reply, CommandError>> for Reply {
    fn from(r: Result<Reply, CommandError>) -> Self {
        r.unwrap_or_else(Reply::from)
    }
}

/// How output is to be rendered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    #[default]
    Plain,
    Json,
    JsonPretty,
}

impl Format {
    /// The format of that name. Upstream also knows `xml`, `xml-pretty`, `table` and `html`: refused, not ignored.
    pub fn parse(name: &str) -> Result<Self, CommandError> {
        match name {
            "" | "plain" => Ok(Format::Plain),
            "json" => Ok(Format::Json),
            "json-pretty" => Ok(Format::JsonPretty),
            other => Err(CommandError::invalid(format!(
                "format '{other}' is not supported here: use plain, json or json-pretty"
            ))),
        }
    }

    /// True for both kinds of JSON.
    pub fn is_json(self) -> bool {
        self != Format::Plain
    }

    /// `value` in this format; plain stands for pretty JSON, for commands without a text form.
    pub fn render(self, value: &Value) -> String {
        match self {
            Format::Json => json::compact(value),
            Format::Plain | Format::JsonPretty => json::pretty(value),
        }
    }
}

/// A command of a table with its signature parsed.
#[derive(Debug, Clone)]
struct Entry {
    spec: CommandSpec,
    signature: Signature,
}

/// The commands of a daemon, in the order in which they are matched.
#[derive(Debug, Clone, Default)]
pub struct CommandTable {
    entries: Vec<Entry>,
}

impl CommandTable {
    /// Parses the signatures. Panics on one that is malformed: tables are constants, and every one has a test.
    pub fn new(specs: &[CommandSpec]) -> Self {
        let parse = |spec: &CommandSpec| Entry {
            spec: *spec,
            signature: Signature::parse(spec.sig).unwrap_or_else(|e| panic!("signature {:?}: {e}", spec.sig)),
        };
        CommandTable { entries: specs.iter().map(parse).collect() }
    }

    /// The table as `get_command_descriptions` gives it, with `extra` tables' commands after this one's.
    pub fn describe(&self, extra: &[&CommandTable]) -> String {
        let all = self.entries.iter().chain(extra.iter().flat_map(|t| &t.entries));
        let entries = all.enumerate().map(|(n, entry)| {
            let spec = &entry.spec;
            let text = json!({
                "sig": entry.signature.describe(), "help": spec.help, "module": spec.module, "perm": spec.perm,
                "flags": spec.flags,
            });
            (format!("cmd{n:03}"), text)
        });
        json::compact(&Value::Object(entries.collect()))
    }

    /// What `help` shows: each command's words with what they do.
    pub fn help(&self) -> Value {
        let all: BTreeMap<&str, &str> = self.entries.iter().map(|e| (e.signature.prefix(), e.spec.help)).collect();
        all.into_iter().map(|(prefix, help)| (prefix.to_owned(), Value::from(help))).collect::<serde_json::Map<_, _>>().into()
    }

    /// The specification that `command` fits, and its arguments; the errors are those clients of Ceph get.
    pub fn check(&self, command: &Command) -> Result<(&CommandSpec, Args), CommandError> {
        let mut refusal = CommandError::invalid("command not known");
        let mut candidates = self.entries.iter().filter(|e| e.signature.prefix() == command.prefix);
        if let Some(entry) = candidates.next() {
            match entry.signature.check(command) {
                Ok(args) => return Ok((&entry.spec, args)),
                Err(e) => refusal = e,
            }
        }
        for entry in candidates {
            if let Ok(args) = entry.signature.check(command) {
                return Ok((&entry.spec, args));
            }
        }
        Err(refusal)
    }

    /// True if some command has this prefix.
    pub fn knows(&self, prefix: &str) -> bool {
        self.entries.iter().any(|e| e.signature.prefix() == prefix)
    }

    /// Every specification.
    pub fn specs(&self) -> impl Iterator<Item = &CommandSpec> {
        self.entries.iter().map(|e| &e.spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[CommandSpec] = &[
        CommandSpec {
            sig: "osd tree epoch:Int?[0] states:Choices?*=up|down",
            help: "show the tree",
            module: "osd",
            perm: "r",
            flags: flag::NONE,
        },
        CommandSpec { sig: "pg pgid:Pgid cmd:Choices=query", help: "ask a PG", module: "pg", perm: "r", flags: 0 },
        CommandSpec { sig: "osd reweight id:OsdName weight:Float[0|1]", help: "", module: "osd", perm: "rw", flags: 0 },
    ];

    fn check(json: &str) -> Result<Args, CommandError> {
        let table = CommandTable::new(TABLE);
        let command = Command::parse(&[json.to_string()])?;
        table.check(&command).map(|(_, args)| args)
    }

    #[test]
    fn descriptions_have_sorted_keys_and_req_as_a_string() {
        let text = CommandTable::new(&TABLE[..1]).describe(&[]);
        let wanted = concat!(
            r#"{"cmd000":{"sig":["osd","tree",{"name":"epoch","range":"0","req":"false","type":"CephInt"},"#,
            r#"{"n":"N","name":"states","req":"false","strings":"up|down","type":"CephChoices"}],"#,
            r#""help":"show the tree","module":"osd","perm":"r","flags":0}}"#
        );
        assert_eq!(text, wanted);
    }

    #[test]
    fn arguments_come_typed_whatever_they_were_sent_as() {
        let args = check(r#"{"prefix":"osd tree","epoch":"7","states":["up"],"target":["mon-mgr",""]}"#).unwrap();
        assert_eq!((args.int("epoch"), args.strings("states")), (Some(7), vec!["up"]));
        let args = check(r#"{"prefix":"osd reweight","id":"osd.3","weight":"0.5"}"#).unwrap();
        assert_eq!((args.osd("id"), args.float("weight")), (Some(types::OsdId(3)), Some(0.5)));
        let args = check(r#"{"prefix":"osd reweight","id":3,"weight":1}"#).unwrap();
        assert_eq!((args.osd("id"), args.float("weight")), (Some(types::OsdId(3)), Some(1.0)));
    }

    #[test]
    fn refusals_read_as_stock_ones() {
        let text = |json: &str| check(json).unwrap_err().status;
        assert_eq!(text(r#"{"prefix":"nonsense"}"#), "command not known");
        assert_eq!(text(r#"{"prefix":"osd tree","epoch":"abc"}"#), "bad or missing field 'epoch'");
        assert_eq!(text(r#"{"prefix":"osd reweight","id":0}"#), "missing required parameter: 'weight'");
        assert_eq!(text(r#"{"prefix":"osd reweight","id":0,"weight":7}"#), "'7' out of range: 0|1");
        assert_eq!(text(r#"{"prefix":"osd tree","states":["sideways"]}"#), "'sideways' not belong to 'up|down'");
        assert_eq!(text("{nonsense"), "unparseable JSON {nonsense");
        assert!(text(r#"{"prefix":"osd tree","format":"xml"}"#).contains("not supported"));
    }

    #[test]
    fn words_after_the_first_argument_are_not_part_of_the_prefix() {
        let args = check(r#"{"prefix":"pg","pgid":"1.0","cmd":"query"}"#).unwrap();
        assert_eq!(args.str("pgid"), Some("1.0"));
    }
}
