//! `cuttlebone osd`: one object storage daemon.
//!
//! The directory (`osd_data`): `block` the data file or a link to a device, `db` the key-value store (see `place`), `keyring`,
//! `fsid` the OSD's uuid, `ceph_fsid` the cluster's, `whoami`, `crush_device_class` if one was asked for, and `ready` once it is formatted.

pub mod create;
pub mod devices;
mod facts;
mod fsck;
pub mod list;
mod migrate;
pub mod place;
mod replace;
mod told;
pub mod zap;

use crate::out::say;
use crate::network::{self, Places};
use crate::session::random_seed;
use crate::config::DaemonConfig;
use crate::daemon::{self, Daemon, stop_on_signals};
use crate::flags::DaemonFlags;
use anyhow::{Context, Result, bail, ensure};
use auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use io::block::{Backend, FileDev, create_sparse};
use io::kv::RocksKv;
use io::{EventLoop, EventLoopConfig, IoSink};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use node::{OsdNode, OsdNodeConfig};
use osd::OsdConfig;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use store::{BlockDev, Store, StoreConfig};
use types::{AddrVec, EntityAddr, EntityKind, OsdId};
use uuid::Uuid;

/// Runs `cuttlebone osd` or `ceph-osd` with these flags.
pub fn main(called: &str, args: &[String]) -> Result<ExitCode> {
    if let Some((verb, rest)) = args.split_first() {
        match verb.as_str() {
            "create" => return create::main(rest),
            "list" => return list::main(rest),
            "zap" => return zap::main(rest),
            "fsck" => return fsck::main(rest),
            "migrate" => return migrate::main(rest),
            "replace" => return replace::main(rest),
            _ => {}
        }
    }
    daemon::run::<OsdDaemon>(called, EntityKind::OSD, args)
}

struct OsdDaemon;

impl Daemon for OsdDaemon {
    fn mkfs(config: &DaemonConfig, flags: &DaemonFlags) -> Result<()> {
        let home = Home::of(config)?;
        let fsid = config.fsid()?.context("fsid is not set in ceph.conf: which cluster is this OSD of?")?;
        let wanted: Option<Uuid> = flags.osd_uuid.as_deref().map(str::parse).transpose().context("--osd-uuid")?;
        if home.path("ready").exists() {
            home.check(fsid)?;
            let (dir, has) = (home.dir.display(), home.read("fsid")?);
            ensure!(wanted.is_none_or(|w| w.to_string() == has), "{dir} has an OSD with uuid {has} already: empty it to make another");
            return Ok(());
        }
        fs::create_dir_all(&home.dir).with_context(|| format!("making {}", home.dir.display()))?;
        // An mkfs that was interrupted goes on with its uuid: a journal's device may have it by now.
        let uuid = wanted.or_else(|| home.read("fsid").ok()?.parse().ok()).unwrap_or_else(Uuid::new_v4);
        fs::write(home.path("fsid"), format!("{uuid}\n"))?;
        home.link_parts(config)?;
        let _turn = home.turn()?;
        home.mount_db()?;
        let block = home.path("block");
        if !block.exists() {
            create_sparse(&block, config.size("bluestore_block_size")?).with_context(|| format!("making {}", block.display()))?;
        }
        let (mut dev, _) = home.open_device()?;
        let (nobody, _) = std::sync::mpsc::channel();
        let mut kv = home.make_kv(config, dev.size(), uuid, nobody)?;
        let uuid = match store::probe(&kv)? {
            // An mkfs that was interrupted on its last steps.
            Some(made) if (made.fsid, made.whoami) == (fsid, home.id) && wanted.is_none_or(|w| made.osd_uuid == w) => made.osd_uuid,
            _ => {
                Store::mkfs(&mut dev, &mut kv, fsid, uuid, home.id)?;
                uuid
            }
        };
        for (name, text) in [("fsid", uuid.to_string()), ("ceph_fsid", fsid.to_string()), ("whoami", home.id.to_string())] {
            fs::write(home.path(name), text + "\n")?;
        }
        if flags.mkkey {
            make_key(config)?;
        }
        // Last: what is not ready is formatted again.
        fs::write(home.path("ready"), "ready\n")?;
        say!("{}: formatted {} for cluster {fsid}", config.name, home.dir.display());
        Ok(())
    }

    fn run(config: &DaemonConfig, _flags: &DaemonFlags, ready: impl FnOnce() -> Result<()>) -> Result<i32> {
        let home = Home::of(config)?;
        ensure!(home.path("ready").exists(), "{} is not formatted; run --mkfs first", home.dir.display());
        let fsid: Uuid = home.read("ceph_fsid")?.parse()?;
        home.check(config.fsid()?.unwrap_or(fsid))?;
        let mut events = EventLoop::new(EventLoopConfig { admin_socket: config.path("admin_socket")? }).context("admin socket")?;
        let (mut dev, device_events) = home.open_device()?;
        events.watch_device(device_events)?;
        let turn = home.turn()?;
        let kv = home.open_kv(config, events.completions())?;
        drop(turn);
        events.watch_flushes(kv.flusher());
        let class = if dev.rotational() { "hdd" } else { "ssd" };
        fsck::on_mount(&told::with_told(config, &home), &mut dev, &kv)?;
        let mut store = Store::mount(dev, kv, StoreConfig::default(), fsid, home.id)?;
        let options = options(config)?;
        let size = store.dev_mut().size();
        let mut facts = facts::of_devices(&home, class, size);
        facts.extend(crate::measure::metadata(&crate::measure::devices(&mut store, &options, &home.device_name())));
        let places = Places::of_osd(config)?;
        let mut listen = |at| events.listen(at).with_context(|| format!("listening on {at}"));
        let public = listen(places.public)?;
        let cluster = places.cluster.map(listen).transpose()?.unwrap_or(public);
        // A port that is configured, and a process that is always the first of its container, are those of an earlier life, too.
        let fixed = std::process::id() == 1 || [Some(places.public), places.cluster].iter().flatten().any(|at| at.port() != 0);
        let nonce = if fixed { ChaCha8Rng::from_seed(random_seed()).next_u32() } else { std::process::id() };
        let kind = Kind { class, facts };
        let mut node = OsdNode::new(node_config(config, &home, Bound { public, cluster, nonce }, fsid, kind, options)?, store, events.clock().now(), random_seed())?;
        let mut told = told::Listener::of(&home);
        node.on_config(Box::new(move |config| told.hear(config)));
        stop_on_signals(vec![events.stopper()])?;
        ready()?;
        Ok(events.run(&mut node)?)
    }

    fn help() -> &'static str {
        "Runs an OSD. With --mkfs formats it (osd_data) and ends:

  --mkfs                 makes osd_data/block of bluestore_block_size unless it is there (a file or a link to a device)
  --mkkey                with --mkfs: makes a key too, unless the keyring has one
  --osd-uuid UUID        the uuid that `ceph osd new` was given
  --bluestore-block-path, --bluestore-block-db-path, --bluestore-block-wal-path
                         with --mkfs: where data, database and journal lie, if not in osd_data

Other words instead of flags, each with --help:
  create                 makes a new OSD of a running cluster, on devices or files
  list, zap              which OSDs this machine has; takes away what is on a device
  fsck                   checks what an OSD that is stopped has stored
  migrate                moves the database or the journal of an OSD that is stopped
  replace                gives an OSD a new device, under its number
"
    }
}

/// A key of our own where we look for one first; `ceph auth add osd.N -i` tells the monitors of it.
fn make_key(config: &DaemonConfig) -> Result<()> {
    if config.key().is_ok() {
        return Ok(());
    }
    let file = config.keyrings().into_iter().next().context("keyring is set to nothing")?;
    let mut keyring: Keyring = match fs::read_to_string(&file) {
        Ok(text) => text.parse().with_context(|| file.clone())?,
        Err(_) => Keyring::default(),
    };
    let key = CryptoKey::generate(KeyKind::Aes, io::Clock::new().now().wall, &mut ChaCha8Rng::from_seed(random_seed()));
    keyring.entries.insert(config.name.clone(), EntityAuth { key, caps: BTreeMap::new() });
    let writing = || format!("writing {file}");
    let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file).with_context(writing)?;
    out.write_all(keyring.to_string().as_bytes()).with_context(writing)
}

/// An OSD's directory.
pub struct Home {
    pub dir: PathBuf,
    pub id: i32,
}

impl Home {
    /// The OSD whose directory this is.
    pub fn at(dir: &Path) -> Result<Self> {
        let mut home = Home { dir: dir.to_owned(), id: -1 };
        home.id = home.read("whoami").with_context(|| format!("{} is not an OSD's directory", dir.display()))?.parse()?;
        Ok(home)
    }

    pub fn of(config: &DaemonConfig) -> Result<Self> {
        let id = config.name.id.parse().ok().filter(|id| *id >= 0);
        let id = id.with_context(|| format!("{:?} is no OSD number", config.name.id))?;
        Ok(Home { dir: config.required_path("osd_data")?, id })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    pub fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        Ok(fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?.trim().to_owned())
    }

    /// The OSD's uuid.
    pub fn uuid(&self) -> Result<Uuid> {
        self.read("fsid")?.parse().with_context(|| format!("{}", self.path("fsid").display()))
    }

    /// That this directory is this OSD's, of this cluster.
    fn check(&self, fsid: Uuid) -> Result<()> {
        let (whose, cluster) = (self.read("whoami")?, self.read("ceph_fsid")?);
        if whose != self.id.to_string() {
            bail!("{} belongs to osd.{whose}, not to osd.{}", self.dir.display(), self.id);
        }
        ensure!(cluster == fsid.to_string(), "{} belongs to cluster {cluster}, ceph.conf says {fsid}", self.dir.display());
        Ok(())
    }

    /// What the data device is called: the file, or what a link refers to.
    fn device_name(&self) -> String {
        let path = self.path("block");
        fs::canonicalize(&path).unwrap_or(path).display().to_string()
    }

    fn open_device(&self) -> Result<(FileDev, io::block::DevEvents)> {
        Ok(io::block::open(&self.path("block"), Backend::Auto)?)
    }

    /// The OSD's key-value store; nobody else may have it open.
    pub fn open_kv(&self, config: &DaemonConfig, sink: impl IoSink + 'static) -> Result<RocksKv> {
        self.mount_db()?;
        let mut rocks = self.rocks_config(&told::with_told(config, self), self.uuid()?)?;
        rocks.create = false;
        let unused = rocks.tuning.unused();
        if !unused.is_empty() {
            tracing::info!("bluestore_rocksdb_cfs: without effect: {}", unused.join("; "));
        }
        Ok(RocksKv::open(&rocks, sink)?)
    }

    /// A new one, for data of so many bytes; or the one that an interrupted mkfs made.
    fn make_kv(&self, config: &DaemonConfig, data: u64, uuid: Uuid, sink: impl IoSink + 'static) -> Result<RocksKv> {
        if let Some(wal) = self.link(place::WAL).filter(|wal| devices::is_device(wal)) {
            let content = devices::content(&wal)?;
            let is_ours = matches!(content, devices::Content::Nothing) || content == devices::Content::Journal(uuid);
            ensure!(is_ours, "{} is not empty: `cuttlebone osd zap {0}` takes everything away", wal.display());
        }
        let mut rocks = self.rocks_config(config, uuid)?;
        rocks.create = true;
        rocks.journal_bytes = self.journal_bytes(config, data)?;
        Ok(RocksKv::open(&rocks, sink)?)
    }
}

/// Where we listen, for clients and for other OSDs; the same twice if it is one network.
#[derive(Clone, Copy)]
struct Bound {
    public: SocketAddr,
    cluster: SocketAddr,
    /// Of this boot: the process's number, which `up` looks for, unless that and the ports may be the same as in another one.
    nonce: u32,
}

impl Bound {
    /// Where others reach this boot of us.
    fn announced(&self, at: SocketAddr) -> AddrVec {
        AddrVec(vec![EntityAddr::msgr2(at, self.nonce)])
    }
}

/// Options as file and flags set them.
fn options(config: &DaemonConfig) -> Result<admin::option::ConfigValues> {
    let mut options = admin::option::ConfigValues::new(config.name.clone(), "ceph", config.host());
    for ignored in options.load_file(config.file())? {
        tracing::warn!("ceph.conf: {ignored}");
    }
    for (name, value) in config.overrides() {
        options.set(name, admin::option::Source::Override, value).map_err(|e| anyhow::anyhow!("--{name}: {}", e.status))?;
    }
    Ok(options)
}

/// What the devices are.
struct Kind {
    class: &'static str,
    /// For `osd metadata`.
    facts: BTreeMap<String, String>,
}

/// What the node is told.
fn node_config(
    config: &DaemonConfig,
    home: &Home,
    bound: Bound,
    fsid: Uuid,
    kind: Kind,
    options: admin::option::ConfigValues,
) -> Result<OsdNodeConfig> {
    let mut mon = client::MonClientConfig::new(config.name.clone(), config.key()?, config.mon_addrs()?);
    mon.hostname = config.host().to_owned();
    let osd = OsdConfig {
        whoami: OsdId(home.id),
        fsid,
        uuid: home.uuid()?,
        addrs: bound.announced(bound.public),
        cluster_addrs: bound.announced(bound.cluster),
        metadata: metadata(&told::with_told(config, home), home, kind.facts, bound),
        device_class: home.read("crush_device_class").unwrap_or_else(|_| kind.class.to_owned()),
        crush_location: crush_location(config),
        limits: osd::ops::Limits::default(),
        memory: crate::memory::of_host(),
        log_entries_max: 250,
        options: Some(options),
    };
    Ok(OsdNodeConfig { osd, mon })
}

fn metadata(config: &DaemonConfig, home: &Home, devices: BTreeMap<String, String>, bound: Bound) -> BTreeMap<String, String> {
    let mut out = crate::metadata::of_host(config.host());
    // Heartbeats go where everything else does.
    for (side, at) in [("front", bound.public), ("back", bound.cluster)] {
        out.insert(format!("{side}_addr"), format!("[{}]", bound.announced(at)));
        out.insert(format!("hb_{side}_addr"), format!("[{}]", bound.announced(at)));
        out.extend(network::interface_of(at.ip()).map(|name| (format!("{side}_iface"), name)));
    }
    out.insert("osd_data".into(), home.dir.display().to_string());
    out.insert("osd_objectstore".into(), "cuttlebone".into());
    for option in ["bluestore_rocksdb_options", "bluestore_rocksdb_options_annex", "bluestore_rocksdb_cfs"] {
        out.extend(config.get(option).filter(|v| !v.is_empty()).map(|v| (format!("cuttlebone_{}", option.trim_start_matches("bluestore_")), v)));
    }
    out.extend(devices);
    out
}

/// `crush location = root=default host=x`, or this host under the default root.
fn crush_location(config: &DaemonConfig) -> BTreeMap<String, String> {
    let text = config.get("crush_location").filter(|t| !t.is_empty()).unwrap_or_else(|| format!("root=default host={}", config.host()));
    text.split([' ', ',', ';']).filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}
