//! Where an OSD's parts lie.
//!
//! In its directory: `block`, the data, a file or a link; `db`, the database, a directory or a link to one elsewhere; `block.db`, if the
//! database has a device: a link to it, and `db.mount`, where its file system is mounted, with the database in `db.mount/db`; `block.wal`,
//! if the journal is not in `db`: a link to a file or a device; `db.slow`, where tables go that have no room in a `db` elsewhere; `db.size`, if what
//! that may take is limited.

use super::Home;
use super::devices::{self, Device};
use crate::config::DaemonConfig;
use anyhow::{Context, Result, bail, ensure};
use io::kv::{JOURNAL_BYTES_MAX, JOURNAL_BYTES_MIN, Layout, RocksConfig, Slow, Tuning};
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use uuid::Uuid;

pub const BLOCK: &str = "block";
pub const DB: &str = "db";
pub const DB_DEVICE: &str = "block.db";
pub const DB_MOUNT: &str = "db.mount";
pub const DB_SLOW: &str = "db.slow";
pub const DB_SIZE: &str = "db.size";
pub const WAL: &str = "block.wal";

/// Where a database is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DbPlace {
    /// In a directory of this directory.
    Under(PathBuf),
    /// On a device, or a file that stands for one, with a file system of its own.
    Device(PathBuf),
}

/// Where a journal is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WalPlace {
    File(PathBuf),
    Device(PathBuf),
}

impl DbPlace {
    /// What was asked for by a path: a device or a file is given a file system; anything else is a directory.
    pub fn of(text: &str) -> Result<DbPlace> {
        let path = devices::named(text);
        if devices::is_device(&path) || path.is_file() {
            return Ok(DbPlace::Device(absolute(&path)?));
        }
        Ok(DbPlace::Under(absolute(&path)?))
    }

    /// The device.
    pub fn device(&self) -> Option<&Path> {
        match self {
            DbPlace::Under(_) => None,
            DbPlace::Device(path) => Some(path),
        }
    }
}

impl WalPlace {
    /// What was asked for by a path: a device is used as it is; in a directory a file is made, as where there is nothing yet.
    pub fn of(text: &str, osd: i32) -> Result<WalPlace> {
        let path = devices::named(text);
        if devices::is_device(&path) {
            return Ok(WalPlace::Device(absolute(&path)?));
        }
        Ok(WalPlace::File(if path.is_dir() { absolute(&path)?.join(format!("osd.{osd}.wal")) } else { absolute(&path)? }))
    }

    pub fn path(&self) -> &Path {
        match self {
            WalPlace::File(path) | WalPlace::Device(path) => path,
        }
    }

    /// What the link names.
    fn target(&self) -> PathBuf {
        match self {
            WalPlace::File(path) => path.clone(),
            WalPlace::Device(path) => stable(path),
        }
    }
}

/// The name of a device that is kept; of a file, itself.
pub fn stable(path: &Path) -> PathBuf {
    match devices::is_device(path) {
        true => Device::beneath(path).map_or_else(|| path.to_owned(), |d| d.stable_name()),
        false => path.to_owned(),
    }
}

pub fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{}", path.display()))
}

impl Home {
    /// Is the database elsewhere?
    pub fn has_db_apart(&self) -> bool {
        self.path(DB).is_symlink()
    }

    pub fn has_wal_apart(&self) -> bool {
        self.path(WAL).is_symlink()
    }

    /// What a link of ours leads to.
    pub fn link(&self, name: &str) -> Option<PathBuf> {
        fs::read_link(self.path(name)).ok()
    }

    /// Sets a link, whatever was there before; either is there after a crash.
    pub fn set_link(&self, name: &str, target: &Path) -> Result<()> {
        let new = self.path(&format!("{name}.new"));
        if new.is_symlink() || new.is_file() {
            fs::remove_file(&new)?;
        }
        symlink(target, &new)?;
        if self.path(name).is_dir() && !self.path(name).is_symlink() {
            // A directory cannot be replaced by a link, but they can change places. What was it is removed by whoever moved it.
            let exchange = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, &new, rustix::fs::CWD, self.path(name), exchange)
                .with_context(|| format!("exchanging {} and {}", new.display(), self.path(name).display()))?;
        } else {
            fs::rename(&new, self.path(name))?;
        }
        io::kv::sync_dir(&self.dir).with_context(|| self.dir.display().to_string())
    }

    /// Whoever holds it may have the database's file system made, mounted and unmounted. The tools that do that hold it too: one who was killed may
    /// have left one at work, and the next one waits until that has ended.
    pub fn turn(&self) -> Result<OwnedFd> {
        use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
        let opened = || format!("opening {}", self.dir.display());
        // Without `CLOEXEC`: that is how the tools hold it.
        let dir = open(&self.dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).with_context(opened)?;
        flock(&dir, FlockOperation::LockExclusive).with_context(|| format!("locking {}", self.dir.display()))?;
        Ok(dir)
    }

    /// Has the database's file system mounted, if it has one of its own; by whose turn it is.
    pub fn mount_db(&self) -> Result<()> {
        let Some(device) = self.link(DB_DEVICE) else { return Ok(()) };
        let at = self.path(DB_MOUNT);
        if is_mounted(&at)? {
            if is_mounted_from(&at, &device) {
                return Ok(());
            }
            // Whoever moved the database was interrupted: what is mounted is the old one.
            unmount(&at)?;
        }
        mount(&device, &at)
    }

    /// Gives a new database a place elsewhere, and returns its directory there. A device is given a file system.
    fn make_db_place(&self, place: &DbPlace) -> Result<PathBuf> {
        match place {
            DbPlace::Under(dir) => {
                let dir = self.db_under(dir);
                let is_empty = fs::read_dir(&dir).map_or(true, |mut d| d.next().is_none());
                ensure!(is_empty, "{} is not empty: another OSD's database? Remove it, or choose another place", dir.display());
                fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
                Ok(dir)
            }
            DbPlace::Device(device) => {
                let _turn = self.turn()?;
                ensure!(!is_mounted(&self.path(DB_MOUNT))?, "{} is mounted already", self.path(DB_MOUNT).display());
                make_file_system(device, self.id)?;
                self.set_link(DB_DEVICE, &stable(device))?;
                self.mount_db()?;
                let dir = self.path(DB_MOUNT).join(DB);
                fs::create_dir_all(&dir)?;
                Ok(dir)
            }
        }
    }

    /// The database's directory in one for several OSDs.
    pub fn db_under(&self, dir: &Path) -> PathBuf {
        dir.join(format!("osd.{}.db", self.id))
    }

    /// Links what `bluestore_block_path` and its relatives name, unless that was done.
    pub fn link_parts(&self, config: &DaemonConfig) -> Result<()> {
        let wanted = |option: &str| Ok::<_, anyhow::Error>(config.path(option)?.map(|p| p.display().to_string()));
        if let Some(path) = wanted("bluestore_block_path")?
            && fs::symlink_metadata(self.path(BLOCK)).is_err()
        {
            let path = absolute(&devices::named(&path))?;
            self.set_link(BLOCK, &stable(&path))?;
        }
        if let Some(path) = wanted("bluestore_block_db_path")?
            && fs::symlink_metadata(self.path(DB)).is_err()
        {
            let place = DbPlace::of(&path)?;
            if let Some(device) = place.device() {
                let content = devices::content(device)?;
                ensure!(content == devices::Content::Nothing, "{} is not empty: `cuttlebone osd zap {0}` takes everything away", device.display());
            }
            self.adopt_db(&place)?;
        }
        if let Some(path) = wanted("bluestore_block_wal_path")?
            && !self.has_wal_apart()
        {
            self.adopt_wal(&WalPlace::of(&path, self.id)?)?;
        }
        Ok(())
    }

    /// The database is to be made in this place.
    pub fn adopt_db(&self, place: &DbPlace) -> Result<()> {
        let dir = self.make_db_place(place)?;
        self.set_link(DB, &self.relative(&dir))
    }

    /// The journal is to be made, or has been made, in this place.
    pub fn adopt_wal(&self, place: &WalPlace) -> Result<()> {
        self.set_link(WAL, &place.target())
    }

    /// Links within the directory say so, so that the directory may be moved.
    pub fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.dir).unwrap_or(path).to_owned()
    }

    /// How to open the database: where its parts are, and what the operator has set. `owner`: the OSD's uuid.
    pub fn rocks_config(&self, config: &DaemonConfig, owner: Uuid) -> Result<RocksConfig> {
        let mut rocks = RocksConfig::new(self.path(DB), Layout::ObjectStore);
        rocks.owner = *owner.as_bytes();
        rocks.journal = self.has_wal_apart().then(|| self.path(WAL));
        rocks.tuning = tuning(config)?;
        if self.has_db_apart() {
            rocks.slow = Some(Slow { dir: self.path(DB_SLOW), room: self.db_room(config)? });
        }
        Ok(rocks)
    }

    /// Bytes that a database elsewhere may take: what its file system has for it, or as many as it was limited to.
    fn db_room(&self, config: &DaemonConfig) -> Result<u64> {
        let dir = self.path(DB);
        let fs = rustix::fs::statvfs(&dir).with_context(|| format!("{}: where the database should be", dir.display()))?;
        let free = fs.f_bavail.saturating_mul(fs.f_frsize).saturating_add(io::kv::bytes_in(&dir)?);
        let limit = match self.read(DB_SIZE) {
            Ok(text) => text.parse().with_context(|| format!("{}: {text:?}", self.path(DB_SIZE).display()))?,
            Err(_) if config.get("bluestore_block_db_size").is_some() => config.size("bluestore_block_db_size")?,
            Err(_) => 0,
        };
        Ok(if limit > 0 { free.min(limit) } else { free })
    }

    /// Bytes for a new journal beside data of so many: what was set, or by the devices.
    pub fn journal_bytes(&self, config: &DaemonConfig, data: u64) -> Result<u64> {
        let wal = self.path(WAL);
        let room = if self.has_wal_apart() && wal.exists() { io::kv::journal_room(&wal)? } else { None };
        let set = config.get("bluestore_block_wal_size").is_some().then(|| config.size("bluestore_block_wal_size")).transpose()?;
        let wanted = match (set, room) {
            (Some(set), _) => set / 4096 * 4096,
            (None, Some(room)) => room.min(JOURNAL_BYTES_MAX),
            (None, None) if self.has_db_apart() && !self.has_wal_apart() => io::kv::journal_bytes(data).min(self.db_room(config)? / 4).max(JOURNAL_BYTES_MIN) / 4096 * 4096,
            (None, None) => io::kv::journal_bytes(data),
        };
        if let Some(room) = room.filter(|room| wanted > *room) {
            bail!("{} has room for a journal of {room} bytes, and {wanted} are wanted", wal.display());
        }
        ensure!(wanted >= JOURNAL_BYTES_MIN, "a journal of {wanted} bytes is too small: {JOURNAL_BYTES_MIN} is the least");
        Ok(wanted)
    }
}

/// What ceph.conf and the flags say of the database.
pub fn tuning(config: &DaemonConfig) -> Result<Tuning> {
    let of = |option: &str| config.get(option).unwrap_or_default();
    let families = if of("bluestore_rocksdb_cf") == "false" { String::new() } else { of("bluestore_rocksdb_cfs") };
    Tuning::parse(&of("bluestore_rocksdb_options"), &of("bluestore_rocksdb_options_annex"), &families)
        .context("bluestore_rocksdb_options, _annex and bluestore_rocksdb_cfs")
}

/// A directory that is not on its parent's file system.
pub fn is_mounted(dir: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let Ok(meta) = fs::metadata(dir) else { return Ok(false) };
    let parent = fs::metadata(dir.parent().unwrap_or(dir))?;
    Ok(meta.dev() != parent.dev())
}

/// Is it this device, or file, that is mounted there?
fn is_mounted_from(at: &Path, device: &Path) -> bool {
    let Some(mounted) = Device::beneath(at) else { return false };
    match devices::is_device(device) {
        true => Device::beneath(device).is_some_and(|d| d.name == mounted.name),
        false => mounted.backing_file().is_some_and(|file| fs::canonicalize(device).is_ok_and(|d| d == file)),
    }
}

pub fn mount(device: &Path, at: &Path) -> Result<()> {
    fs::create_dir_all(at)?;
    let mut command = Command::new("mount");
    let options = if devices::is_device(device) { "noatime" } else { "noatime,loop" };
    run(command.args(["-o", options]).arg(device).arg(at))
}

pub fn unmount(at: &Path) -> Result<()> {
    run(Command::new("umount").arg(at))
}

/// RocksDB wants files: ext4, or where there is no such tool, XFS.
pub fn make_file_system(device: &Path, osd: i32) -> Result<()> {
    let label = format!("osd.{osd}.db");
    let mut ext4 = Command::new("mkfs.ext4");
    ext4.args(["-q", "-F", "-m", "0", "-L", &label]).arg(device);
    let mut xfs = Command::new("mkfs.xfs");
    xfs.args(["-q", "-f", "-L", &label]).arg(device);
    match run(&mut ext4) {
        Err(e) if e.downcast_ref::<std::io::Error>().is_some_and(|e| e.kind() == std::io::ErrorKind::NotFound) => run(&mut xfs),
        other => other,
    }
}

/// Runs a tool to its end. Errors: it is not there, or what it said.
pub fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().with_context(|| format!("running {name}"))?;
    ensure!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_left_at_work_by_one_who_was_killed_is_waited_for() {
        let dir = std::env::temp_dir().join(format!("cuttlebone-turn-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let home = Home { dir, id: 0 };
        let turn = home.turn().unwrap();
        let mut tool = Command::new("sh").args(["-c", "sleep 0.3; touch done"]).current_dir(&home.dir).spawn().unwrap();
        drop(turn);
        let _turn = home.turn().unwrap();
        // Not that it has ended: what it has open is closed a moment before that is known.
        assert!(home.path("done").exists(), "it is still at work");
        tool.wait().unwrap();
        fs::remove_dir_all(&home.dir).unwrap();
    }
}
