//! `cuttlebone osd create`: a new OSD of a running cluster.
//!
//! Holds: nothing is written before every place was looked at; what failed later is undone, so that no number is left without an OSD.

use super::devices::{self, Content};
use super::place::{BLOCK, DB_MOUNT, DB_SIZE, DbPlace, WalPlace, absolute, is_mounted, stable, unmount};
use super::{Home, OsdDaemon};
use crate::admin_client::AdminClient;
use crate::config::{DaemonConfig, parse_bytes};
use crate::daemon::Daemon;
use crate::flags::DaemonFlags;
use crate::out::say;
use crate::session::random_seed;
use anyhow::{Context, Result, bail, ensure};
use auth::{CryptoKey, KeyKind};
use clap::Parser;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::json;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use types::EntityKind;
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(30);

/// Make a new OSD of a running cluster: its number, its directory (osd_data), its key, and its store
#[derive(Parser, Debug, Clone)]
#[command(name = "cuttlebone osd create", max_term_width = 100)]
pub struct CreateArgs {
    /// Where objects go: a disk, a partition, a logical volume (VG/LV), or a file, which is made
    #[arg(long)]
    pub data: String,
    /// Where the database goes, if not beside the data: a directory (osd.N.db is made in it), or a device or an existing file, which is given a file
    /// system and mounted
    #[arg(long)]
    pub db: Option<String>,
    /// Bytes that the database may take there [default: all there are]
    #[arg(long, value_parser = size)]
    pub db_size: Option<u64>,
    /// Where the journal goes, if not beside the database: a device, which is used as it is, a directory, or a file, which is made
    #[arg(long)]
    pub wal: Option<String>,
    /// Bytes of the journal [default: a 32nd of the data, 64M to 256M; of a device, all of it up to 256M]
    #[arg(long, value_parser = size)]
    pub wal_size: Option<u64>,
    /// hdd, ssd, nvme or a class of your own [default: what the kernel says of the device]
    #[arg(long)]
    pub device_class: Option<String>,
    /// The number of an OSD that was destroyed [default: the first that is free]
    #[arg(long)]
    pub osd_id: Option<i32>,
    /// The OSD's uuid [default: a new one]
    #[arg(long)]
    pub osd_fsid: Option<Uuid>,
    /// Size of the data file that is made [default: bluestore_block_size, 100G]; takes space as it is written
    #[arg(long, value_parser = size)]
    pub size: Option<u64>,
    /// Devices and files may have something on them: take it away
    #[arg(long)]
    pub yes: bool,
    /// ceph.conf [default: /etc/ceph/ceph.conf]
    #[arg(short, long)]
    pub conf: Option<PathBuf>,
    /// A keyring with the key of client.bootstrap-osd or client.admin [default: where they are looked for]
    #[arg(short, long)]
    pub keyring: Option<PathBuf>,
}

fn size(text: &str) -> Result<u64, String> {
    parse_bytes(text).map_err(|e| e.to_string())
}

/// Runs `cuttlebone osd create` with the words behind it.
pub fn main(words: &[String]) -> Result<ExitCode> {
    let args = CreateArgs::parse_from([&["cuttlebone osd create".to_owned()], words].concat());
    let id = create(&args)?;
    let conf = args.conf.as_ref().map(|c| format!(" -c {}", c.display())).unwrap_or_default();
    say!("osd.{id} is made; start it: cuttlebone osd -i {id}{conf}");
    Ok(ExitCode::SUCCESS)
}

/// Where everything goes.
pub struct Places {
    data: PathBuf,
    db: Option<DbPlace>,
    /// The journal's, once the number is known.
    wal: Option<String>,
}

/// Makes an OSD, and returns its number.
pub fn create(args: &CreateArgs) -> Result<i32> {
    let places = look(args, &[])?;
    let admin = AdminClient::connect_with(&registrar(args)?, PATIENCE)?;
    let uuid = args.osd_fsid.unwrap_or_else(Uuid::new_v4);
    let key = CryptoKey::generate(KeyKind::Aes, io::Clock::new().now().wall, &mut ChaCha8Rng::from_seed(random_seed())).to_string();
    let id = register(args, &admin, uuid, &key)?;
    let made = build(args, &places, id, uuid, &key);
    if let Err(error) = made {
        let undone = undo(args, &admin, id);
        return Err(error.context(match undone {
            Ok(()) => format!("osd.{id} was not made, and its number is free again"),
            Err(e) => format!("osd.{id} was not made, and could not be undone ({e:#}): ceph osd purge {id} --yes-i-really-mean-it"),
        }));
    }
    Ok(id)
}

/// That everything is there, is free, and has nothing on it that would be lost. `given_up`: what an OSD has that is to go; that may be in use.
pub fn look(args: &CreateArgs, given_up: &[PathBuf]) -> Result<Places> {
    let data = absolute(&devices::named(&args.data))?;
    ensure!(!data.is_dir(), "{} is a directory: --data wants a device, or a file, which is made", data.display());
    ensure!(args.size.is_none() || !devices::is_device(&data), "--size is for a file; {} is a device", data.display());
    let db = args.db.as_deref().map(DbPlace::of).transpose()?;
    let wal = args.wal.as_deref().map(devices::named);
    let used: Vec<&Path> = [Some(data.as_path()), db.as_ref().and_then(DbPlace::device), wal.as_deref()].into_iter().flatten().collect();
    for path in used.iter().filter(|p| p.exists() && !p.is_dir() && !is_one_of(p, given_up)) {
        devices::check_free(path)?;
        let what = match devices::content(path)? {
            Content::Nothing => continue,
            Content::Data(uuid) => format!("the data of an OSD with uuid {uuid}"),
            Content::Journal(uuid) => format!("the journal of an OSD with uuid {uuid}"),
            Content::Something => "something".into(),
        };
        ensure!(args.yes, "{} has {what} on it: --yes takes it away, as `cuttlebone osd zap {0}` does", path.display());
    }
    let real: Vec<_> = used.iter().filter_map(|p| fs::canonicalize(p).ok()).filter(|p| !p.is_dir()).collect();
    ensure!((1..real.len()).all(|i| !real[..i].contains(&real[i])), "the same device or file is named twice");
    Ok(Places { data, db, wal: args.wal.clone() })
}

/// The same file or device, whatever it is called.
fn is_one_of(path: &Path, others: &[PathBuf]) -> bool {
    fs::canonicalize(path).is_ok_and(|real| others.iter().any(|other| fs::canonicalize(other).is_ok_and(|o| o == real)))
}

/// Who may register OSDs: client.bootstrap-osd, or client.admin.
fn registrar(args: &CreateArgs) -> Result<DaemonConfig> {
    const BOOTSTRAP: &str = "/var/lib/ceph/bootstrap-osd/ceph.keyring";
    let given = args.keyring.as_ref().map(|k| k.display().to_string());
    let load = |id: &str, keyring: Option<String>| {
        let flags: Vec<(String, String)> = keyring.map(|k| ("keyring".to_owned(), k)).into_iter().collect();
        DaemonConfig::load(EntityKind::CLIENT, id, args.conf.as_deref(), &flags)
    };
    let mut tried = Vec::new();
    for (id, keyring) in [("bootstrap-osd", given.clone()), ("bootstrap-osd", Some(BOOTSTRAP.into())), ("admin", given)] {
        let config = load(id, keyring)?;
        if config.key().is_ok() {
            return Ok(config);
        }
        tried.extend(config.keyrings());
    }
    tried.dedup();
    bail!("no key of client.bootstrap-osd or client.admin in {}", tried.join(", "))
}

fn register(args: &CreateArgs, admin: &AdminClient, uuid: Uuid, key: &str) -> Result<i32> {
    let mut request = json!({"prefix": "osd new", "uuid": uuid.to_string()});
    let mut secrets = json!({"cephx_secret": key});
    if let Some(id) = args.osd_id {
        request["id"] = id.into();
        // A number that was used before may have another class. One that is new gets its class as the OSD first boots.
        if let Some(class) = &args.device_class {
            secrets["crush_device_class"] = class.as_str().into();
        }
    }
    let given = admin.command(request, secrets.to_string().as_bytes()).context("registering the OSD")?;
    let text = String::from_utf8_lossy(&given).trim().to_owned();
    text.parse().with_context(|| format!("registering the OSD: {text:?} is no number"))
}

/// The configuration of the OSD that is made.
fn config_of(args: &CreateArgs, id: i32) -> Result<DaemonConfig> {
    let mut flags = Vec::new();
    for (option, value) in [("bluestore_block_size", args.size), ("bluestore_block_wal_size", args.wal_size)] {
        flags.extend(value.map(|v| (option.to_owned(), v.to_string())));
    }
    DaemonConfig::load(EntityKind::OSD, &id.to_string(), args.conf.as_deref(), &flags)
}

fn build(args: &CreateArgs, places: &Places, id: i32, uuid: Uuid, key: &str) -> Result<()> {
    let config = config_of(args, id)?;
    let home = Home::of(&config)?;
    let is_new = fs::read_dir(&home.dir).map_or(true, |mut d| d.next().is_none());
    ensure!(is_new, "{} is not empty: `cuttlebone osd zap --osd-id {id} --destroy` takes it away", home.dir.display());
    fs::create_dir_all(&home.dir).with_context(|| format!("making {}", home.dir.display()))?;
    let wal = places.wal.as_deref().map(|w| WalPlace::of(w, id)).transpose()?;
    let all = [Some(places.data.as_path()), places.db.as_ref().and_then(DbPlace::device), wal.as_ref().map(WalPlace::path)];
    for path in all.into_iter().flatten().filter(|p| p.exists()) {
        if devices::content(path)? != Content::Nothing {
            devices::wipe(path)?;
        }
    }
    if !places.data.exists() {
        io::block::create_sparse(&places.data, config.size("bluestore_block_size")?).with_context(|| format!("making {}", places.data.display()))?;
    }
    home.set_link(BLOCK, &stable(&places.data))?;
    if let Some(size) = args.db_size {
        fs::write(home.path(DB_SIZE), format!("{size}\n"))?;
    }
    if let Some(db) = &places.db {
        home.adopt_db(db)?;
        if let Some(device) = db.device() {
            say!("{} has a file system now, mounted at {}", device.display(), home.path(DB_MOUNT).display());
        }
    }
    if let Some(wal) = &wal {
        home.adopt_wal(wal)?;
    }
    if let Some(class) = &args.device_class {
        fs::write(home.path("crush_device_class"), format!("{class}\n"))?;
    }
    let mut keyring = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(home.path("keyring"))?;
    keyring.write_all(format!("[osd.{id}]\n\tkey = {key}\n").as_bytes())?;
    OsdDaemon::mkfs(&config, &DaemonFlags { osd_uuid: Some(uuid.to_string()), ..DaemonFlags::default() })
}

/// Gives the number back, and takes away what was made of the directory. Devices keep what is on them: nothing that anybody would miss.
fn undo(args: &CreateArgs, admin: &AdminClient, id: i32) -> Result<()> {
    let home = Home::of(&config_of(args, id)?)?;
    admin.command(json!({"prefix": "osd purge-new", "id": id, "yes_i_really_mean_it": true}), b"")?;
    if home.path("ready").exists() || !home.path(BLOCK).is_symlink() {
        return Ok(());
    }
    if is_mounted(&home.path(DB_MOUNT))? {
        unmount(&home.path(DB_MOUNT))?;
    }
    super::zap::remove_parts(&home, false)?;
    Ok(fs::remove_dir_all(&home.dir)?)
}
