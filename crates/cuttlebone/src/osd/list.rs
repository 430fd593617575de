//! `cuttlebone osd list`: the OSDs of this machine, and where their parts lie.

use super::Home;
use super::devices::{self, Device};
use super::place::{BLOCK, DB, DB_DEVICE, WAL};
use crate::config::DaemonConfig;
use crate::out::say;
use anyhow::{Context, Result};
use clap::Parser;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use types::EntityKind;

/// Which OSDs this machine has, and where their parts lie
#[derive(Parser)]
#[command(name = "cuttlebone osd list", max_term_width = 100)]
struct ListArgs {
    /// ceph.conf [default: /etc/ceph/ceph.conf]
    #[arg(short, long)]
    conf: Option<PathBuf>,
    /// plain or json
    #[arg(short, long, default_value = "plain", value_parser = ["plain", "json"])]
    format: String,
}

/// A part of an OSD: `block`, `db` or `wal`.
#[derive(Debug, Clone)]
pub struct Part {
    pub kind: &'static str,
    /// Where it is: a device, a file or a directory.
    pub path: PathBuf,
}

/// An OSD's directory, and its configuration.
pub struct Found {
    pub home: Home,
    pub config: DaemonConfig,
}

impl Found {
    pub fn is_running(&self) -> bool {
        devices::check_free(&self.home.path(BLOCK)).is_err()
    }

    pub fn device_class(&self) -> String {
        self.home.read("crush_device_class").unwrap_or_default()
    }

    /// Its parts that have places of their own.
    pub fn parts(&self) -> Vec<Part> {
        let db = self.home.link(DB_DEVICE).or_else(|| self.home.link(DB).map(|l| self.home.dir.join(l)));
        let block = self.home.link(BLOCK).unwrap_or_else(|| self.home.path(BLOCK));
        let all = [("block", Some(block)), ("db", db), ("wal", self.home.link(WAL))];
        all.into_iter().filter_map(|(kind, path)| Some(Part { kind, path: path? })).collect()
    }
}

/// Every OSD whose directory is where this ceph.conf puts them.
pub fn found(conf: Option<&Path>) -> Result<Vec<Found>> {
    // Two numbers that no OSD has show where the number stands.
    let pattern = |id: &str| DaemonConfig::load(EntityKind::OSD, id, conf, &[])?.required_path("osd_data");
    let (a, b) = (pattern("98989898")?, pattern("89898989")?);
    let mut out = Vec::new();
    for id in ids(&a, &b) {
        let config = DaemonConfig::load(EntityKind::OSD, &id.to_string(), conf, &[])?;
        let home = Home::of(&config)?;
        if home.path("whoami").exists() || home.path(BLOCK).is_symlink() {
            out.push(Found { home, config });
        }
    }
    Ok(out)
}

/// Numbers for which there is a directory, given the paths of two that do not exist. `a` and `b` differ where the number stands.
fn ids(a: &Path, b: &Path) -> Vec<i32> {
    let depth = a.iter().zip(b.iter()).take_while(|(x, y)| x == y).count();
    let parent: PathBuf = a.iter().take(depth).collect();
    let Some(name) = a.iter().nth(depth).and_then(|n| n.to_str()) else { return Vec::new() };
    let Some((before, after)) = name.split_once("98989898") else { return Vec::new() };
    let names = fs::read_dir(parent).into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut out: Vec<i32> = names.filter_map(|n| n.strip_prefix(before)?.strip_suffix(after)?.parse().ok()).collect();
    out.sort_unstable();
    out
}

/// Runs `cuttlebone osd list`.
pub fn main(words: &[String]) -> Result<ExitCode> {
    let args = ListArgs::parse_from([&["cuttlebone osd list".to_owned()], words].concat());
    let all = found(args.conf.as_deref())?;
    if args.format == "json" {
        say!("{}", serde_json::to_string_pretty(&all.iter().map(shown).collect::<Vec<_>>())?);
        return Ok(ExitCode::SUCCESS);
    }
    for osd in &all {
        let state = if osd.is_running() { "running" } else { "not running" };
        say!("osd.{}: {state}, {}", osd.home.id, osd.home.dir.display());
        for part in osd.parts() {
            say!("  {:<6} {}{}", part.kind, part.path.display(), disk_of(&part.path));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The disk beneath, in words.
fn disk_of(path: &Path) -> String {
    let Some(device) = Device::beneath(path) else { return String::new() };
    let disks: Vec<String> = device.disks().iter().map(|d| format!("{}{}", d.name, d.model().map(|m| format!(" {m}")).unwrap_or_default())).collect();
    let turns = device.rotational() || device.disks().iter().any(Device::rotational);
    format!(" ({}{}, {})", if devices::is_device(path) { "" } else { "on " }, disks.join(", "), if turns { "hdd" } else { "ssd" })
}

fn shown(osd: &Found) -> Value {
    let part = |p: Part| {
        let device = Device::beneath(&p.path);
        let disks: Vec<String> = device.iter().flat_map(Device::disks).map(|d| d.node()).collect();
        json!({"type": p.kind, "path": p.path, "devices": disks})
    };
    json!({
        "osd_id": osd.home.id, "osd_fsid": osd.home.read("fsid").unwrap_or_default(), "osd_data": osd.home.dir, "running": osd.is_running(),
        "crush_device_class": osd.device_class(), "parts": osd.parts().into_iter().map(part).collect::<Vec<_>>(),
    })
}

/// The OSD with this number. Errors: this machine has none.
pub fn one(conf: Option<&Path>, id: i32) -> Result<Found> {
    found(conf)?.into_iter().find(|f| f.home.id == id).with_context(|| format!("this machine has no directory of osd.{id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_wherever_they_stand_in_the_path() {
        let dir = std::env::temp_dir().join(format!("cuttlebone-ids-{}", std::process::id()));
        for name in ["ceph-3", "ceph-11", "ceph-x", "osd.4"] {
            fs::create_dir_all(dir.join(name).join("data")).unwrap();
        }
        let of = |pattern: &str| ids(&dir.join(pattern.replace('N', "98989898")), &dir.join(pattern.replace('N', "89898989")));
        let seen = (of("ceph-N"), of("osd.N/data"), of("none-N"));
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(seen, (vec![3, 11], vec![4], vec![]));
    }
}
