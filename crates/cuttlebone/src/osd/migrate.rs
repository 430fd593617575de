//! `cuttlebone osd migrate`: moves the database or the journal of an OSD that is stopped.
//!
//! Holds: whenever it is interrupted, the OSD has all of it in one place or all of it in the other. Everything is copied and on disk before
//! one link changes; what it was copied from goes then. What an interrupted move left is taken away by the next one; a target that one left half filled is known by the file `migrating`.

use super::devices::{self, Content};
use super::list;
use super::place::{DB, DB_DEVICE, DB_MOUNT, DB_SIZE, DB_SLOW, DbPlace, WAL, WalPlace, is_mounted, make_file_system, mount, stable, unmount};
use super::Home;
use crate::config::{DaemonConfig, parse_bytes};
use crate::out::say;
use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use io::kv::{RocksKv, Slow, bytes_in, copy_database, copy_journal, sync_dir};
use store::Kv;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Names what is being filled.
const MIGRATING: &str = "migrating";
/// Where a new device is mounted until it is the database's.
const MOUNT_NEW: &str = "db.mount.new";
const DB_NEW: &str = "db.new";
const SLOW_NEW: &str = "db.slow.new";
const JOURNAL: &str = "journal";

/// Move the database or the journal of an OSD that is stopped to another place
#[derive(Parser, Debug)]
#[command(name = "cuttlebone osd migrate", max_term_width = 100)]
#[command(group = clap::ArgGroup::new("where").required(true).multiple(true).args(["db", "wal", "to_data"]))]
struct MigrateArgs {
    /// The OSD's number
    #[arg(short, long)]
    id: i32,
    /// Where its database is to go: as for `osd create`
    #[arg(long)]
    db: Option<String>,
    /// Bytes that the database may take there [default: all there are]
    #[arg(long, requires = "db", value_parser = |t: &str| parse_bytes(t).map_err(|e| e.to_string()))]
    db_size: Option<u64>,
    /// Where its journal is to go: as for `osd create`. It keeps its size
    #[arg(long)]
    wal: Option<String>,
    /// Both back to the OSD's directory
    #[arg(long, conflicts_with_all = ["db", "wal"])]
    to_data: bool,
    /// The device may have something on it: take it away
    #[arg(long)]
    yes: bool,
    /// ceph.conf [default: /etc/ceph/ceph.conf]
    #[arg(short, long)]
    conf: Option<PathBuf>,
}

/// Runs `cuttlebone osd migrate`.
pub fn main(words: &[String]) -> Result<ExitCode> {
    let args = MigrateArgs::parse_from([&["cuttlebone osd migrate".to_owned()], words].concat());
    let found = list::one(args.conf.as_deref(), args.id)?;
    let (home, config) = (found.home, found.config);
    ensure!(home.path("ready").exists(), "osd.{} is not formatted: nothing to move", home.id);
    // Held to the end: nobody starts it meanwhile.
    let _device = home.open_device().with_context(|| format!("osd.{} has to be stopped first", home.id))?;
    let _turn = home.turn()?;
    home.mount_db()?;
    clean_up(&home)?;
    if let Some(db) = &args.db {
        move_db(&home, &config, &DbPlace::of(db)?, args.db_size, args.yes)?;
    }
    if let Some(wal) = &args.wal {
        move_journal(&home, &WalPlace::of(wal, home.id)?, args.yes)?;
    }
    if args.to_data {
        db_to_data(&home, &config)?;
        journal_to_data(&home)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Takes away what an interrupted move left behind.
fn clean_up(home: &Home) -> Result<()> {
    if is_mounted(&home.path(MOUNT_NEW))? {
        unmount(&home.path(MOUNT_NEW))?;
    }
    for (name, is_left) in [(DB_NEW, home.path(DB_NEW).is_dir()), (DB_SLOW, !home.has_db_apart()), (SLOW_NEW, true), (MOUNT_NEW, true)] {
        let dir = home.path(name);
        if is_left && dir.is_dir() && !dir.is_symlink() {
            fs::remove_dir_all(&dir).with_context(|| format!("removing {}", dir.display()))?;
        }
    }
    if home.has_wal_apart() {
        remove_file(&home.path(DB).join(JOURNAL))?;
    }
    let on_device = home.link(DB).is_some_and(|link| link == Path::new(DB_MOUNT).join(DB));
    if !on_device && home.link(DB_DEVICE).is_some() {
        leave_device(home)?;
    }
    Ok(())
}

/// Is this the place that an interrupted move was filling?
fn was_being_filled(home: &Home, place: &Path) -> bool {
    fs::read_to_string(home.path(MIGRATING)).is_ok_and(|text| Path::new(text.trim()) == place)
}

fn begin_filling(home: &Home, place: &Path) -> Result<()> {
    fs::write(home.path(MIGRATING), format!("{}\n", place.display()))?;
    Ok(sync_dir(&home.dir)?)
}

/// That nothing is lost there.
fn check_target(home: &Home, place: &Path, yes: bool) -> Result<()> {
    devices::check_free(place)?;
    if devices::content(place)? == Content::Nothing || was_being_filled(home, place) {
        return Ok(());
    }
    ensure!(yes, "{} has something on it: --yes takes it away", place.display());
    devices::wipe(place)
}

fn move_db(home: &Home, config: &DaemonConfig, place: &DbPlace, size: Option<u64>, yes: bool) -> Result<()> {
    let old = fs::canonicalize(home.path(DB)).with_context(|| home.path(DB).display().to_string())?;
    let bytes = bytes_in(&old)?;
    let new = match place {
        DbPlace::Under(dir) => {
            let new = home.db_under(dir);
            ensure!(fs::canonicalize(&new).map_or(true, |n| n != old), "the database of osd.{} is in {} already", home.id, new.display());
            let is_empty = fs::read_dir(&new).map_or(true, |mut d| d.next().is_none());
            ensure!(is_empty || was_being_filled(home, &new), "{} is not empty: another OSD's database?", new.display());
            begin_filling(home, &new)?;
            fs::create_dir_all(&new).with_context(|| format!("making {}", new.display()))?;
            new
        }
        DbPlace::Device(device) => {
            check_target(home, device, yes)?;
            begin_filling(home, device)?;
            make_file_system(device, home.id)?;
            mount(device, &home.path(MOUNT_NEW))?;
            home.path(MOUNT_NEW).join(DB)
        }
    };
    check_room(new.parent().unwrap_or(&new), bytes, size)?;
    // What has spilled already stays where it is.
    copy_database(&old, &new).with_context(|| format!("copying {} to {}", old.display(), new.display()))?;
    let old_device = home.link(DB_DEVICE);
    set_size(home, size)?;
    match place {
        DbPlace::Under(_) => home.set_link(DB, &home.relative(&new))?,
        DbPlace::Device(device) => {
            // Where the database was on a device before, this link is the moment; else it is the next one.
            home.set_link(DB_DEVICE, &stable(device))?;
            unmount(&home.path(MOUNT_NEW))?;
            home.mount_db()?;
            home.set_link(DB, &Path::new(DB_MOUNT).join(DB))?;
        }
    }
    remove_file(&home.path(MIGRATING))?;
    match (old_device, place) {
        (Some(_), DbPlace::Under(_)) => leave_device(home)?,
        (Some(device), DbPlace::Device(_)) => devices::wipe(&device)?,
        // One in the OSD's own directory has changed names with the link, and is left to `clean_up`.
        (None, _) if old.starts_with(fs::canonicalize(&home.dir)?) => {}
        (None, _) => fs::remove_dir_all(&old).with_context(|| format!("removing {}", old.display()))?,
    }
    clean_up(home)?;
    fit(home, config)?;
    say!("osd.{}: the database is in {} now ({bytes} bytes)", home.id, fs::canonicalize(home.path(DB))?.display());
    Ok(())
}

/// Cuts the database's levels to their new place, where it has room for both.
fn fit(home: &Home, config: &DaemonConfig) -> Result<()> {
    let (nobody, _) = std::sync::mpsc::channel();
    let kv = home.open_kv(config, nobody)?;
    let space = kv.space().unwrap_or_default();
    if 2 * (space.used + space.spilled) > space.total {
        return Ok(());
    }
    kv.fit_levels(space.spilled > 0).context("the database has moved, but not fitted its levels to the new place")
}

/// That so many bytes find room there, a tenth more included.
fn check_room(dir: &Path, bytes: u64, size: Option<u64>) -> Result<()> {
    let fs = rustix::fs::statvfs(dir).with_context(|| dir.display().to_string())?;
    let free = fs.f_bavail.saturating_mul(fs.f_frsize);
    let room = size.map_or(free, |size| free.min(size));
    ensure!(bytes + bytes / 10 <= room, "{} has room for {room} bytes, and the database has {bytes}: a tenth more is needed", dir.display());
    Ok(())
}

fn set_size(home: &Home, size: Option<u64>) -> Result<()> {
    match size {
        Some(size) => Ok(fs::write(home.path(DB_SIZE), format!("{size}\n"))?),
        None => remove_file(&home.path(DB_SIZE)),
    }
}

fn db_to_data(home: &Home, config: &DaemonConfig) -> Result<()> {
    if !home.has_db_apart() {
        return Ok(());
    }
    let old = fs::canonicalize(home.path(DB))?;
    let bytes = bytes_in(&old)? + bytes_in(&home.path(DB_SLOW)).unwrap_or(0);
    check_room(&home.dir, bytes, None)?;
    let new = home.path(DB_NEW);
    if new.is_symlink() {
        fs::remove_file(&new)?;
    }
    copy_database(&old, &new).with_context(|| format!("copying {} to {}", old.display(), new.display()))?;
    if bytes_in(&home.path(DB_SLOW)).unwrap_or(0) > 0 {
        gather(home, config, &new)?;
    }
    rustix::fs::renameat_with(rustix::fs::CWD, &new, rustix::fs::CWD, home.path(DB), rustix::fs::RenameFlags::EXCHANGE)
        .with_context(|| format!("exchanging {} and {}", new.display(), home.path(DB).display()))?;
    sync_dir(&home.dir)?;
    fs::remove_file(&new)?;
    set_size(home, None)?;
    match home.link(DB_DEVICE) {
        Some(_) => leave_device(home)?,
        None => fs::remove_dir_all(&old).with_context(|| format!("removing {}", old.display()))?,
    }
    clean_up(home)?;
    say!("osd.{}: the database is in {} again ({bytes} bytes)", home.id, home.path(DB).display());
    Ok(())
}

/// Has the copy of a database in `new` take everything that has spilled: into a copy, so that the original stays what it is.
fn gather(home: &Home, config: &DaemonConfig, new: &Path) -> Result<()> {
    let rest = home.path(SLOW_NEW);
    check_room(&home.dir, 2 * bytes_in(&home.path(DB_SLOW))?, None)?;
    copy_database(&home.path(DB_SLOW), &rest).with_context(|| format!("copying to {}", rest.display()))?;
    let mut rocks = home.rocks_config(config, home.uuid()?)?;
    rocks.create = false;
    rocks.dir = new.to_owned();
    // Room for whatever there is.
    rocks.slow = Some(Slow { dir: rest.clone(), room: u64::MAX / 4 });
    let (nobody, _) = std::sync::mpsc::channel();
    // The journal is written, too: where it is apart, what it gets is also right for the original.
    let kv = RocksKv::open(&rocks, nobody)?;
    kv.fit_levels(true)?;
    drop(kv);
    ensure!(bytes_in(&rest)? == 0, "{} is not empty: the database is where it was", rest.display());
    Ok(fs::remove_dir_all(&rest)?)
}

/// The database is not on its device any more: nobody is to take that for one.
fn leave_device(home: &Home) -> Result<()> {
    if is_mounted(&home.path(DB_MOUNT))? {
        unmount(&home.path(DB_MOUNT))?;
    }
    if let Some(device) = home.link(DB_DEVICE) {
        remove_file(&home.path(DB_DEVICE))?;
        if device.exists() {
            devices::wipe(&device)?;
        }
    }
    Ok(())
}

/// Where the journal is.
fn journal_path(home: &Home) -> PathBuf {
    if home.has_wal_apart() { home.path(WAL) } else { home.path(DB).join(JOURNAL) }
}

fn move_journal(home: &Home, place: &WalPlace, yes: bool) -> Result<()> {
    let (old, target) = (fs::canonicalize(journal_path(home))?, place.path());
    ensure!(fs::canonicalize(target).map_or(true, |t| t != old), "the journal of osd.{} is in {} already", home.id, target.display());
    if target.is_dir() {
        bail!("{} is a directory", target.display());
    }
    if target.exists() {
        check_target(home, target, yes)?;
    }
    begin_filling(home, target)?;
    let bytes = copy_journal(&old, target, *home.uuid()?.as_bytes()).with_context(|| format!("copying the journal to {}", target.display()))?;
    home.adopt_wal(place)?;
    forget_journal(&old)?;
    remove_file(&home.path(MIGRATING))?;
    say!("osd.{}: the journal is in {} now ({bytes} bytes)", home.id, target.display());
    Ok(())
}

fn journal_to_data(home: &Home) -> Result<()> {
    let Some(old) = home.link(WAL) else { return Ok(()) };
    let new = home.path(DB).join(JOURNAL);
    copy_journal(&old, &new, *home.uuid()?.as_bytes()).with_context(|| format!("copying the journal to {}", new.display()))?;
    fs::remove_file(home.path(WAL))?;
    sync_dir(&home.dir)?;
    forget_journal(&old)?;
    say!("osd.{}: the journal is beside the database again", home.id);
    Ok(())
}

/// What was the journal is none any more.
fn forget_journal(old: &Path) -> Result<()> {
    if devices::is_device(old) { devices::wipe(old) } else { remove_file(old) }
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.with_context(|| format!("removing {}", path.display())),
    }
}
