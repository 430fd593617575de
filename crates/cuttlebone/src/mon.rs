//! `cuttlebone mon`: the monitor and, on a thread of its own, the manager role.
//!
//! The directory (`mon_data`): `kv/` the store, `keyring` the monitors' key, `mgr.keyring` the manager's.

use crate::out::say;
use crate::room;
use crate::session::random_seed;
use crate::config::DaemonConfig;
use crate::daemon::{self, Daemon, stop_on_signals};
use crate::flags::DaemonFlags;
use anyhow::{Context, Result, anyhow, bail};
use auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use io::kv::{Layout, RocksConfig, RocksKv};
use io::{Clock, Completions, EventLoop, EventLoopConfig};
use node::MonNode;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use types::map::MonMap;
use types::{AddrVec, EntityKind, EntityName};
use uuid::Uuid;

/// Runs `cuttlebone mon` or `ceph-mon` with these flags.
pub fn main(called: &str, args: &[String]) -> Result<ExitCode> {
    daemon::run::<MonDaemon>(called, EntityKind::MON, args)
}

struct MonDaemon;

impl Daemon for MonDaemon {
    fn mkfs(config: &DaemonConfig, flags: &DaemonFlags) -> Result<()> {
        let dir = config.required_path("mon_data")?;
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let monmap = first_monmap(config, flags)?;
        let keyring = first_keyring(config, flags)?;
        fs::write(dir.join("keyring"), only(&keyring, &EntityName::monitors()).to_string())?;
        fs::write(dir.join("mgr.keyring"), only(&keyring, &mgr_name(config)).to_string())?;
        let mut kv = new_kv(&dir.join("kv"))?;
        mon::mkfs(&mut kv, &monmap, &keyring)?;
        say!("{}: formatted {} for cluster {}", config.name, dir.display(), monmap.fsid);
        Ok(())
    }

    fn run(config: &DaemonConfig, _flags: &DaemonFlags, ready: impl FnOnce() -> Result<()>) -> Result<i32> {
        let dir = config.required_path("mon_data")?;
        refuse_without_room(config, &dir)?;
        let mut events = EventLoop::new(EventLoopConfig { admin_socket: config.path("admin_socket")? }).context("admin socket")?;
        let kv = open_kv(&dir, events.completions())?;
        let monmap = mon::boot::newest_monmap(&kv)?.with_context(|| format!("{} is not a monitor's directory; run --mkfs first", dir.display()))?;
        check_fsid(config, monmap.fsid, &dir)?;
        let addrs = own_addrs(config, &monmap)?;
        for addr in addrs.0.iter().filter(|a| a.kind == types::AddrKind::MSGR2).filter_map(|a| a.sock) {
            events.listen(addr).with_context(|| format!("listening on {addr} (is another daemon using the port?)"))?;
        }
        let ip = addrs.msgr2().and_then(|a| a.sock).context("the monitor map has no msgr2 address for us")?.ip();
        let mut node = match MonNode::new(env_of(config, addrs.clone()), kv, events.clock().now(), seed64()) {
            Err(removed @ mon::OpenError::Removed(_)) => {
                mark_removed(&dir)?;
                return Err(removed.into());
            }
            opened => opened?,
        };
        let store = dir.join("kv");
        node.watch_room(move || Some((room::available_percent(&store).ok()?, room::bytes_in(&store).ok()?)));
        let mgr = crate::mgr::start(config, mgr_name(config), &dir, addrs, ip)?;
        stop_on_signals(vec![events.stopper()])?;
        ready()?;
        let code = events.run(&mut node)?;
        mgr.end();
        if node.mon().has_left() {
            mark_removed(&dir)?;
        }
        Ok(code)
    }

    fn help() -> &'static str {
        "Runs a monitor, with the manager role. With --mkfs makes its store (mon_data) and ends:

  --mkfs                 needs --keyring (with the key of mon.) and a monitor map or mon_host and fsid in ceph.conf
  --monmap FILE          the first monitor map
  --fsid UUID            the cluster's id, if ceph.conf does not say

A monitor that the map does not name is let in by those it names, if its keyring has their key; --public-addr IP[:PORT]
says where it listens.
When every monitor is lost: cuttlebone mon recover --help.
"
    }
}

/// A monitor whose file system is nearly full does not begin: it would end in the middle of something.
fn refuse_without_room(config: &DaemonConfig, dir: &Path) -> Result<()> {
    let store = dir.join("kv");
    let available = room::available_percent(&store).with_context(|| match store.try_exists() {
        Ok(false) => format!("{} is not a monitor's directory; run --mkfs first", dir.display()),
        _ => format!("looking at the file system of {}", store.display()),
    })?;
    let option = admin::option::find("mon_data_avail_crit").expect("an option of the table");
    let text = config.get(option.name).unwrap_or_else(|| option.default_for(true));
    let critical: i64 = option.normalize(&text).map_err(|e| anyhow!("{} = {text:?}: {}", option.name, e.status))?.parse()?;
    if i64::from(available) <= critical {
        bail!("{}: {available}% of the file system are available; with {critical}% (mon_data_avail_crit) or less no monitor begins", dir.display());
    }
    Ok(())
}

/// For scripts: this directory is no monitor's any more.
fn mark_removed(dir: &Path) -> Result<()> {
    Ok(fs::write(dir.join("removed"), "")?)
}

/// Where this monitor listens: as the map says, or, for one that is not in it yet, as its configuration does.
fn own_addrs(config: &DaemonConfig, monmap: &MonMap) -> Result<AddrVec> {
    let name = &config.name;
    if let Some(info) = monmap.mon_info.get(&name.id) {
        return Ok(info.public_addrs.clone());
    }
    let text = config.get("mon_addr").or_else(|| config.get("public_addr")).filter(|t| !t.is_empty());
    let text = text.with_context(|| {
        format!("no public_addr specified, and {name} not present in the monitor map, which has {}", monmap.ranks.join(", "))
    })?;
    let mut all = crate::config::parse_mon_host(&text).with_context(|| format!("public addr = {text:?}"))?;
    let msgr2 = all.swap_remove(0).0.into_iter().filter(|a| a.kind == types::AddrKind::MSGR2);
    Ok(AddrVec(msgr2.collect()))
}

/// The name of the manager that lives with a monitor.
pub fn mgr_name(config: &DaemonConfig) -> EntityName {
    EntityName::new(EntityKind::MGR, config.name.id.clone())
}

fn seed64() -> u64 {
    let seed = random_seed();
    u64::from_le_bytes([seed[0], seed[1], seed[2], seed[3], seed[4], seed[5], seed[6], seed[7]])
}

fn open_kv(dir: &Path, completions: Completions) -> Result<RocksKv> {
    let path = dir.join("kv");
    if !path.exists() {
        bail!("{} is not a monitor's directory (no kv in it); run --mkfs first", dir.display());
    }
    Ok(RocksKv::open(&RocksConfig { create: false, ..RocksConfig::new(path, Layout::Plain) }, completions)?)
}

/// The map of `--monmap`, or one made of `mon_host` and `fsid`.
fn first_monmap(config: &DaemonConfig, flags: &DaemonFlags) -> Result<MonMap> {
    if let Some(path) = &flags.monmap {
        let raw = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        return denc::from_slice(&raw).with_context(|| format!("{} is no monitor map", path.display()));
    }
    let fsid: Option<Uuid> = flags.fsid.as_deref().map(str::parse).transpose().context("--fsid")?;
    let fsid = fsid.or(config.fsid()?).context("no fsid: give --monmap or --fsid, or set it in ceph.conf")?;
    let mut map = MonMap::new(fsid, Clock::new().now().wall);
    let mut addrs = config.mon_addrs()?;
    if addrs.len() > 1 {
        bail!("mon host names {} monitors: which one is {} only a --monmap can say", addrs.len(), config.name);
    }
    map.add(&config.name.id, addrs.swap_remove(0));
    Ok(map)
}

/// The keys a cluster starts with: those of the file, and the manager's.
fn first_keyring(config: &DaemonConfig, flags: &DaemonFlags) -> Result<Keyring> {
    let files = flags.keyring.iter().map(|p| p.display().to_string()).chain(config.keyrings());
    let file = files.into_iter().find(|f| Path::new(f).exists()).context("no keyring: give --keyring FILE with the key of mon.")?;
    let mut keyring: Keyring = fs::read_to_string(&file)?.parse().with_context(|| file.clone())?;
    let name = mgr_name(config);
    let caps = mon::services::auth::caps_of(&name);
    let new_key = || CryptoKey::generate(KeyKind::Aes, Clock::new().now().wall, &mut ChaCha8Rng::from_seed(random_seed()));
    keyring.entries.entry(name).or_insert_with(|| EntityAuth { key: new_key(), caps });
    Ok(keyring)
}

/// A store that is not there yet.
pub fn new_kv(path: &Path) -> Result<RocksKv> {
    let (nobody, _) = std::sync::mpsc::channel();
    Ok(RocksKv::open(&RocksConfig::new(path.to_owned(), Layout::Plain), nobody)?)
}

/// A keyring's entry of this name alone.
pub fn only(keyring: &Keyring, name: &EntityName) -> Keyring {
    Keyring { entries: keyring.entries.iter().filter(|(n, _)| *n == name).map(|(n, e)| (n.clone(), e.clone())).collect() }
}

fn check_fsid(config: &DaemonConfig, fsid: Uuid, dir: &Path) -> Result<()> {
    match config.fsid()? {
        Some(wanted) if wanted != fsid => bail!("{} belongs to cluster {fsid}, ceph.conf says {wanted}", dir.display()),
        _ => Ok(()),
    }
}

fn env_of(config: &DaemonConfig, addrs: AddrVec) -> mon::Env {
    mon::Env {
        name: config.name.id.clone(),
        addrs,
        hostname: config.host().to_owned(),
        options: config.options(),
        metadata: crate::metadata::of_host(config.host()),
        boot: seed64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_monitor_without_room_does_not_begin() {
        let dir = std::env::temp_dir().join(format!("cuttlebone-mon-room-{}", std::process::id()));
        fs::create_dir_all(dir.join("kv")).unwrap();
        let begin = |critical: &str, store: &Path| {
            let conf = dir.join("ceph.conf");
            fs::write(&conf, format!("[mon]\nmon data avail crit = {critical}\n")).unwrap();
            refuse_without_room(&DaemonConfig::load(EntityKind::MON, "a", Some(&conf), &[]).unwrap(), store)
        };
        let (full, well, gone) = (begin("100", &dir), begin("-1", &dir), begin("-1", &dir.join("none")));
        fs::remove_dir_all(&dir).unwrap();
        assert!(full.unwrap_err().to_string().contains("mon_data_avail_crit"));
        assert!(well.is_ok() && gone.unwrap_err().to_string().contains("--mkfs"));
    }
}
