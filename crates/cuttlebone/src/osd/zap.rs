//! `cuttlebone osd zap`: takes away what is on a device, or everything that an OSD has.

use super::devices;
use super::list::{self, Found};
use super::place::{BLOCK, DB, DB_DEVICE, DB_MOUNT, WAL, is_mounted, unmount};
use super::Home;
use crate::out::say;
use anyhow::{Context, Result, ensure};
use clap::Parser;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uuid::Uuid;

/// Take away what is on devices, or everything that an OSD has on this machine. It is gone then
#[derive(Parser, Debug, Clone, Default)]
#[command(name = "cuttlebone osd zap", max_term_width = 100)]
pub struct ZapArgs {
    /// Devices, logical volumes (VG/LV) or files
    #[arg(required_unless_present_any = ["osd_id", "osd_fsid"])]
    pub devices: Vec<String>,
    /// Everything of this OSD of this machine, which must not run
    #[arg(long, conflicts_with = "devices")]
    pub osd_id: Option<i32>,
    /// The same by its uuid
    #[arg(long, conflicts_with = "devices")]
    pub osd_fsid: Option<Uuid>,
    /// Take its directory away, too, with its key, and its data where that is a file
    #[arg(long)]
    pub destroy: bool,
    /// ceph.conf [default: /etc/ceph/ceph.conf]
    #[arg(short, long)]
    pub conf: Option<PathBuf>,
}

/// Runs `cuttlebone osd zap`.
pub fn main(words: &[String]) -> Result<ExitCode> {
    let args = ZapArgs::parse_from([&["cuttlebone osd zap".to_owned()], words].concat());
    for path in zap(&args)? {
        say!("{} is empty", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Wipes what was asked for, and returns what was wiped.
pub fn zap(args: &ZapArgs) -> Result<Vec<PathBuf>> {
    if args.osd_id.is_none() && args.osd_fsid.is_none() {
        let paths: Vec<PathBuf> = args.devices.iter().map(|d| devices::named(d)).collect();
        for path in &paths {
            ensure!(!path.is_dir(), "{} is a directory", path.display());
            devices::wipe(path)?;
        }
        return Ok(paths);
    }
    let osd = which(args)?;
    let (wiped, failed) = wipe_parts(&osd)?;
    if let Some(error) = failed.into_iter().next() {
        return Err(error);
    }
    remove_home(&osd, args.destroy)?;
    Ok(wiped)
}

/// Takes away all that an OSD has here, its directory too, and returns what could not be: a disk that is dead.
pub fn clear(osd: &Found) -> Result<Vec<anyhow::Error>> {
    let (_, failed) = wipe_parts(osd)?;
    remove_home(osd, true)?;
    Ok(failed)
}

/// Which of its parts are empty now, and which could not be emptied.
fn wipe_parts(osd: &Found) -> Result<(Vec<PathBuf>, Vec<anyhow::Error>)> {
    ensure!(!osd.is_running(), "osd.{} runs: stop it first", osd.home.id);
    let _turn = osd.home.turn()?;
    if is_mounted(&osd.home.path(DB_MOUNT))? {
        unmount(&osd.home.path(DB_MOUNT))?;
    }
    let (mut wiped, mut failed) = (Vec::new(), Vec::new());
    for part in osd.parts().into_iter().filter(|p| p.path.exists() && !p.path.is_dir()) {
        match devices::wipe(&part.path) {
            Ok(()) => wiped.push(part.path),
            Err(error) => failed.push(error),
        }
    }
    Ok((wiped, failed))
}

fn remove_home(osd: &Found, destroy: bool) -> Result<()> {
    let ready = osd.home.path("ready");
    if ready.exists() {
        fs::remove_file(ready)?;
    }
    remove_parts(&osd.home, destroy)?;
    if destroy {
        fs::remove_dir_all(&osd.home.dir).with_context(|| format!("removing {}", osd.home.dir.display()))?;
    }
    Ok(())
}

fn which(args: &ZapArgs) -> Result<Found> {
    let conf = args.conf.as_deref();
    let Some(uuid) = args.osd_fsid else { return list::one(conf, args.osd_id.unwrap_or(-1)) };
    let mut all = list::found(conf)?.into_iter();
    let osd = all.find(|f| f.home.read("fsid").is_ok_and(|u| u == uuid.to_string()));
    let osd = osd.with_context(|| format!("this machine has no OSD with uuid {uuid}"))?;
    ensure!(args.osd_id.is_none_or(|id| id == osd.home.id), "the OSD with uuid {uuid} is osd.{}", osd.home.id);
    Ok(osd)
}

/// Removes the database, the journal where it is a file, and all links; with `data` the data, too, where that is a file.
pub fn remove_parts(home: &Home, data: bool) -> Result<()> {
    let db = home.path(DB);
    let linked = home.link(DB).map(|l| home.dir.join(l));
    for dir in [linked, Some(home.path(super::place::DB_SLOW)), Some(db.clone()).filter(|d| !d.is_symlink())].into_iter().flatten() {
        if dir.is_dir() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
    }
    for name in [Some(BLOCK).filter(|_| data), Some(WAL)].into_iter().flatten() {
        if let Some(file) = home.link(name).filter(|f| f.is_file()) {
            fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))?;
        }
    }
    for name in [BLOCK, DB, DB_DEVICE, WAL] {
        if home.path(name).is_symlink() {
            remove_if_there(&home.path(name))?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("removing {}", path.display())),
    }
}
