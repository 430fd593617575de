//! `cuttlebone osd`: one object storage daemon.
//!
//! The directory (`osd_data`): `block` the data file or a link to a device, `db/` the key-value store, `keyring`,
//! `fsid` the OSD's uuid, `ceph_fsid` the cluster's, `whoami`, and `ready` once it is formatted.

use crate::out::say;
use crate::network::{self, Places};
use crate::session::random_seed;
use crate::config::DaemonConfig;
use crate::daemon::{self, Daemon, stop_on_signals};
use crate::flags::DaemonFlags;
use anyhow::{Context, Result, bail, ensure};
use auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use io::block::{Backend, FileDev, create_sparse};
use io::kv::{Layout, RocksConfig, RocksKv};
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
        let uuid = wanted.unwrap_or_else(Uuid::new_v4);
        fs::create_dir_all(&home.dir).with_context(|| format!("making {}", home.dir.display()))?;
        let block = home.path("block");
        if !block.exists() {
            create_sparse(&block, config.size("bluestore_block_size")?).with_context(|| format!("making {}", block.display()))?;
        }
        let (mut dev, _) = home.open_device()?;
        let (nobody, _) = std::sync::mpsc::channel();
        let mut kv = home.open_kv(config, Some(dev.size()), nobody)?;
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
        let (dev, device_events) = home.open_device()?;
        events.watch_device(device_events)?;
        let kv = home.open_kv(config, None, events.completions())?;
        events.watch_flushes(kv.flusher());
        let store_config = if dev.rotational() { StoreConfig::rotational() } else { StoreConfig::default() };
        let class = if dev.rotational() { "hdd" } else { "ssd" };
        let store = Store::mount(dev, kv, store_config, fsid, home.id)?;
        let places = Places::of_osd(config)?;
        let mut listen = |at| events.listen(at).with_context(|| format!("listening on {at}"));
        let public = listen(places.public)?;
        let cluster = places.cluster.map(listen).transpose()?.unwrap_or(public);
        // A port that is configured, and a process that is always the first of its container, are those of an earlier life, too.
        let fixed = std::process::id() == 1 || [Some(places.public), places.cluster].iter().flatten().any(|at| at.port() != 0);
        let nonce = if fixed { ChaCha8Rng::from_seed(random_seed()).next_u32() } else { std::process::id() };
        let mut node = OsdNode::new(node_config(config, &home, Bound { public, cluster, nonce }, fsid, class)?, store, events.clock().now(), random_seed())?;
        stop_on_signals(vec![events.stopper()])?;
        ready()?;
        Ok(events.run(&mut node)?)
    }

    fn help() -> &'static str {
        "Runs an OSD. With --mkfs formats it (osd_data) and ends:

  --mkfs                 makes osd_data/block of bluestore_block_size unless it is there (a file or a link to a device)
  --mkkey                with --mkfs: makes a key too, unless the keyring has one
  --osd-uuid UUID        the uuid that `ceph osd new` was given
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

    fn of(config: &DaemonConfig) -> Result<Self> {
        let id = config.name.id.parse().ok().filter(|id| *id >= 0);
        let id = id.with_context(|| format!("{:?} is no OSD number", config.name.id))?;
        Ok(Home { dir: config.required_path("osd_data")?, id })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.path(name);
        Ok(fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?.trim().to_owned())
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

    fn open_device(&self) -> Result<(FileDev, io::block::DevEvents)> {
        Ok(io::block::open(&self.path("block"), Backend::Auto)?)
    }

    /// The OSD's key-value store; nobody else may have it open. Made for a device of so many bytes if `create` says so.
    pub fn open_kv(&self, config: &DaemonConfig, create: Option<u64>, sink: impl IoSink + 'static) -> Result<RocksKv> {
        let mut rocks = RocksConfig::new(self.path("db"), Layout::ObjectStore);
        rocks.create = create.is_some();
        rocks.journal_bytes = io::kv::journal_bytes(create.unwrap_or(0));
        rocks.options = config.get("bluestore_rocksdb_options").unwrap_or_default();
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

/// What the node is told.
fn node_config(config: &DaemonConfig, home: &Home, bound: Bound, fsid: Uuid, class: &str) -> Result<OsdNodeConfig> {
    let mut options = admin::option::ConfigValues::new(config.name.clone(), "ceph", config.host());
    for ignored in options.load_file(config.file())? {
        tracing::warn!("ceph.conf: {ignored}");
    }
    for (name, value) in config.overrides() {
        options.set(name, admin::option::Source::Override, value).map_err(|e| anyhow::anyhow!("--{name}: {}", e.status))?;
    }
    let mut mon = client::MonClientConfig::new(config.name.clone(), config.key()?, config.mon_addrs()?);
    mon.hostname = config.host().to_owned();
    let osd = OsdConfig {
        whoami: OsdId(home.id),
        fsid,
        uuid: home.read("fsid")?.parse().context("osd_data/fsid")?,
        addrs: bound.announced(bound.public),
        cluster_addrs: bound.announced(bound.cluster),
        metadata: metadata(config, home, class, bound),
        device_class: class.to_owned(),
        crush_location: crush_location(config),
        limits: osd::ops::Limits::default(),
        memory: crate::memory::of_host(),
        log_entries_max: 500,
        options: Some(options),
    };
    Ok(OsdNodeConfig { osd, mon })
}

fn metadata(config: &DaemonConfig, home: &Home, class: &str, bound: Bound) -> BTreeMap<String, String> {
    let mut out = crate::metadata::of_host(config.host());
    // Heartbeats go where everything else does.
    for (side, at) in [("front", bound.public), ("back", bound.cluster)] {
        out.insert(format!("{side}_addr"), format!("[{}]", bound.announced(at)));
        out.insert(format!("hb_{side}_addr"), format!("[{}]", bound.announced(at)));
        out.extend(network::interface_of(at.ip()).map(|name| (format!("{side}_iface"), name)));
    }
    let rotational = if class == "hdd" { "1" } else { "0" };
    let facts = [
        ("osd_data", home.dir.display().to_string()),
        ("osd_objectstore", "cuttlebone".into()),
        ("rotational", rotational.into()),
        ("journal_rotational", rotational.into()),
        ("default_device_class", class.into()),
        ("bluestore_bdev_type", class.into()),
        ("bluefs_dedicated_db", "0".into()),
        ("bluefs_dedicated_wal", "0".into()),
    ];
    out.extend(facts.map(|(k, v)| (k.to_owned(), v)));
    out
}

/// `crush location = root=default host=x`, or this host under the default root.
fn crush_location(config: &DaemonConfig) -> BTreeMap<String, String> {
    let text = config.get("crush_location").filter(|t| !t.is_empty()).unwrap_or_else(|| format!("root=default host={}", config.host()));
    text.split([' ', ',', ';']).filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
}
