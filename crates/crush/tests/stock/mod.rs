//! The stock `crushtool` as judge.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs `crushtool`; `None`, with a word to whoever reads the test's output, where it is not installed. Its crash
/// handler can hang on memory it has ruined, hence `timeout`.
pub fn crushtool(args: &[&str]) -> Option<Output> {
    let output = Command::new("timeout").args(["60", "crushtool"]).args(args).output().unwrap();
    if output.status.code() == Some(127) {
        eprintln!("skipped: crushtool is not installed");
        return None;
    }
    Some(output)
}

/// A path in the test's own directory.
pub fn temp(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("crush");
    std::fs::create_dir_all(&dir).unwrap();
    dir.join(name)
}

/// How many maps a test tries: by default so many that all tests take less than a minute; `CUTTLEBONE_CRUSH_MAPS` of them else.
pub fn maps_wanted(default: u64) -> u64 {
    std::env::var("CUTTLEBONE_CRUSH_MAPS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}
