//! The command line of a daemon, as scripts written for stock daemons use it.
//!
//! `-i 0 --mkfs -c FILE --osd-uuid U -f`: known flags by name; any other `--option value` or `--option=value` is a
//! configuration option and must be one we know. Upstream: src/global/global_init.cc, src/common/ceph_argparse.cc.

use std::path::PathBuf;

/// What was asked of a daemon.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct DaemonFlags {
    /// `-i`/`--id`: `a`, `0`.
    pub id: Option<String>,
    /// `-c`/`--conf`.
    pub conf: Option<PathBuf>,
    /// `--cluster`, "ceph" unless told.
    pub cluster: Option<String>,
    /// `-k`/`--keyring`.
    pub keyring: Option<PathBuf>,
    /// Make the daemon's store instead of running it.
    pub mkfs: bool,
    /// With mkfs: make a key too if there is none.
    pub mkkey: bool,
    /// The monitor map to start a monitor from.
    pub monmap: Option<PathBuf>,
    pub osd_uuid: Option<String>,
    pub fsid: Option<String>,
    /// `-f` or `-d`: stay in the foreground.
    pub foreground: bool,
    /// `-d`: the log goes to standard error.
    pub log_to_stderr: bool,
    pub version: bool,
    pub help: bool,
    /// Options given as flags, in our spelling (`osd_max_backfills`).
    pub overrides: Vec<(String, String)>,
}

/// A flag that cannot be understood; the text names it.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum FlagError {
    #[error("{0} needs a value")]
    NoValue(String),
    #[error("unrecognized argument {0:?}; --help lists the flags")]
    Unknown(String),
}

impl DaemonFlags {
    /// Parses everything after the daemon's name.
    pub fn parse(args: &[String]) -> Result<Self, FlagError> {
        let mut out = DaemonFlags::default();
        let mut rest = args.iter().cloned();
        while let Some(arg) = rest.next() {
            let (flag, inline) = match arg.split_once('=') {
                Some((flag, value)) if flag.starts_with("--") => (flag.to_owned(), Some(value.to_owned())),
                _ => (arg.clone(), None),
            };
            let mut value = || inline.clone().or_else(|| rest.next()).ok_or(FlagError::NoValue(flag.clone()));
            match canonical(&flag).as_str() {
                "-i" | "--id" => out.id = Some(value()?),
                "-n" | "--name" => out.id = value()?.split_once('.').map(|(_, id)| id.to_owned()),
                "-c" | "--conf" => out.conf = Some(value()?.into()),
                "-k" | "--keyring" => out.keyring = Some(value()?.into()),
                "--cluster" => out.cluster = Some(value()?),
                "--monmap" => out.monmap = Some(value()?.into()),
                "--osd-uuid" => out.osd_uuid = Some(value()?),
                "--fsid" => out.fsid = Some(value()?),
                "--mkfs" => out.mkfs = true,
                "--mkkey" => out.mkkey = true,
                "-f" | "--foreground" => out.foreground = true,
                "-d" => (out.foreground, out.log_to_stderr) = (true, true),
                "-v" | "--version" => out.version = true,
                "-h" | "--help" => out.help = true,
                // Read by stock daemons before they have a monitor; we never need the hint.
                "--no-mon-config" => {}
                flag if flag.starts_with("--") => out.overrides.push((flag[2..].replace('-', "_"), value()?)),
                _ => return Err(FlagError::Unknown(arg)),
            }
        }
        Ok(out)
    }
}

/// `--osd_uuid` and `--osd-uuid` are the same flag.
fn canonical(flag: &str) -> String {
    if flag.starts_with("--") { flag.replace('_', "-") } else { flag.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<DaemonFlags, FlagError> {
        DaemonFlags::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_plain_deployment_is_understood() {
        let f = parse("-c /x/ceph.conf -i 0 --mkfs --osd-uuid 7c0a --keyring /x/k").unwrap();
        assert_eq!((f.id.as_deref(), f.mkfs, f.osd_uuid.as_deref()), (Some("0"), true, Some("7c0a")));
        assert_eq!(f.keyring, Some("/x/k".into()));
        assert!(!f.foreground);
        assert!(parse("-d").unwrap().log_to_stderr);
    }

    #[test]
    fn options_are_taken_in_either_spelling() {
        let f = parse("--osd-max-backfills=3 --debug_ms 1").unwrap();
        assert_eq!(f.overrides, [("osd_max_backfills".into(), "3".into()), ("debug_ms".into(), "1".into())]);
    }

    #[test]
    fn what_is_no_flag_is_named() {
        assert_eq!(parse("-i"), Err(FlagError::NoValue("-i".into())));
        assert_eq!(parse("stray"), Err(FlagError::Unknown("stray".into())));
    }
}
