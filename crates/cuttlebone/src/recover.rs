//! `cuttlebone mon recover`: a monitor again, when all are lost, from what the OSDs of this machine kept.
//!
//! Holds: nothing is written before everything was read, and the store appears whole or not at all.

use crate::out::say;
use crate::config::{DaemonConfig, parse_mon_host};
use crate::osd::Home as OsdHome;
use crate::process::read_pid;
use crate::session::random_seed;
use anyhow::{Context, Result, bail, ensure};
use auth::Keyring;
use clap::Parser;
use mon::recover::{Keys, NewMon, Recovered, Remains};
use osd::keep::Kept;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use types::map::MonMap;
use types::{AddrKind, AddrVec, EntityKind, EntityName};
use uuid::Uuid;

/// Rebuild a monitor's store from what OSDs kept: maps, keys, options. For the day every monitor is lost
#[derive(Parser)]
#[command(name = "cuttlebone mon recover", max_term_width = 100)]
struct RecoverArgs {
    /// A directory made by `cuttlebone up`, with all its OSDs
    #[arg(long, conflicts_with_all = ["conf", "osd_data"])]
    dir: Option<PathBuf>,
    /// ceph.conf of a cluster that was set up otherwise [default: /etc/ceph/ceph.conf]
    #[arg(short, long)]
    conf: Option<PathBuf>,
    /// Directory of an OSD (osd_data) of this machine; repeat it for each
    #[arg(long = "osd-data", required_unless_present = "dir")]
    osd_data: Vec<PathBuf>,
    /// The monitor to make [default: the first that the OSDs remember]
    #[arg(short, long)]
    id: Option<String>,
    /// Where it listens, if not where it did before: IP:PORT
    #[arg(long)]
    public_addr: Option<String>,
    /// A keyring; the one with the key of mon. opens the keys that OSDs kept. Those of the directory are tried anyway
    #[arg(short, long)]
    keyring: Vec<PathBuf>,
    /// An OSD whose disk cannot be read, to do without: its number
    #[arg(long)]
    without: Vec<i32>,
    /// Say what the OSDs kept, and do nothing
    #[arg(long)]
    dry_run: bool,
}

/// Runs `cuttlebone mon recover` with the words behind it.
pub fn main(words: &[String]) -> Result<()> {
    let args = RecoverArgs::parse_from([&["cuttlebone mon recover".to_owned()], words].concat());
    let conf = args.dir.as_ref().map(|dir| dir.join("ceph.conf")).or_else(|| args.conf.clone());
    let found = look(&args, conf.as_deref())?;
    let id = match (&args.id, &found.known) {
        (Some(id), _) => id.clone(),
        (None, Some(map)) if !map.ranks.is_empty() => map.ranks[0].clone(),
        _ => bail!("the OSDs do not remember the monitors' names: give -i with the one to make"),
    };
    let config = DaemonConfig::load(EntityKind::MON, &id, conf.as_deref(), &[])?;
    if let Some(fsid) = config.fsid()?.filter(|fsid| *fsid != found.remains.fsid) {
        bail!("the OSDs belong to cluster {}, ceph.conf says {fsid}", found.remains.fsid);
    }
    let addrs = addrs_of(&args, &config, found.known.as_ref())?;
    if args.dry_run {
        return Ok(());
    }
    let home = config.required_path("mon_data")?;
    for dir in args.dir.iter().flat_map(|dir| monitor_dirs(dir)).chain([home.clone()]) {
        ensure!(
            !dir.join("kv").exists(),
            "{} holds a monitor's store: monitors are recovered from OSDs only when all are lost. Start it; or, if it is broken, move {} away first",
            dir.display(),
            dir.join("kv").display()
        );
    }
    let made = write(&home, &found.remains, &NewMon { name: id.clone(), addrs })?;
    tell(&args, &id, &home, &found, &made)
}

/// What was found.
struct Found {
    remains: Remains,
    /// The monitors of before.
    known: Option<MonMap>,
    osds: usize,
    /// Keyring files that were read.
    files: Vec<PathBuf>,
}

fn look(args: &RecoverArgs, conf: Option<&Path>) -> Result<Found> {
    let mut dirs = args.osd_data.clone();
    if let Some(dir) = &args.dir {
        ensure!(dir.join("ceph.conf").exists(), "{} holds no cluster (no ceph.conf in it)", dir.display());
        dirs = subdirs(dir, "osd.");
        ensure!(!dirs.is_empty(), "{} has no OSD's directory: there is nothing to recover from", dir.display());
    }
    let (mut fsid, mut best, mut copy) = (None::<Uuid>, None::<Kept>, None);
    let (mut osd_keys, mut count) = (Keyring::default(), 0);
    for dir in &dirs {
        let home = OsdHome::at(dir)?;
        if args.without.contains(&home.id) {
            continue;
        }
        let config = DaemonConfig::load(EntityKind::OSD, &home.id.to_string(), conf, &[])?;
        let (cluster, kept) = read_osd(&home, &config)?;
        ensure!(*fsid.get_or_insert(cluster) == cluster, "{} belongs to cluster {cluster}, another OSD to {}", dir.display(), fsid.unwrap_or_default());
        let name = EntityName::new(EntityKind::OSD, home.id.to_string());
        osd_keys.entries.extend(read_keyring(&dir.join("keyring")).into_iter().flat_map(|k| k.entries).filter(|(n, _)| *n == name));
        say!("{name}: {}", text_of(&kept));
        count += 1;
        if kept.copy.as_ref().is_some_and(|c| copy.as_ref().is_none_or(|have| c.is_newer_than(have))) {
            copy = kept.copy.clone();
        }
        let rank = |k: &Kept| (k.maps.keys().next_back().copied(), k.maps.len());
        if best.as_ref().is_none_or(|b| rank(&kept) > rank(b)) {
            best = Some(kept);
        }
    }
    let (Some(fsid), Some(best)) = (fsid, best) else { bail!("no OSD is left to recover from") };
    let mut files = args.keyring.clone();
    for file in &files {
        ensure!(file.exists(), "{} is not there", file.display());
    }
    if let Some(dir) = &args.dir {
        files.extend([dir.join("keyring")].into_iter().chain(monitor_dirs(dir).into_iter().map(|d| d.join("keyring"))).filter(|f| f.exists()));
    }
    let mut keyrings = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        keyrings.push(text.parse().with_context(|| file.display().to_string())?);
    }
    let mut known = copy.as_ref().map(mon::recover::monitors_of).transpose()?.flatten();
    if let Some(first) = args.dir.as_ref().and_then(|dir| fs::read(dir.join("monmap")).ok()) {
        known = known.or_else(|| denc::from_slice(&first).ok());
    }
    Ok(Found { remains: Remains { fsid, maps: best.maps, kept: copy, keyrings, osd_keys }, known, osds: count, files })
}

fn read_osd(home: &OsdHome, config: &DaemonConfig) -> Result<(Uuid, Kept)> {
    let (id, dir) = (home.id, home.dir.display());
    if let Some(pid) = config.path("pid_file")?.and_then(|file| read_pid(&file)) {
        bail!("osd.{id} runs (process {pid}): stop all OSDs first, they start again when there is a monitor");
    }
    let (nobody, _) = std::sync::mpsc::channel();
    let hint = || format!("{dir} cannot be read. Does osd.{id} run? Stop it first. Is its disk broken? --without {id} does without it");
    let _turn = home.turn().with_context(hint)?;
    let kv = home.open_kv(config, nobody).with_context(hint)?;
    let info = store::probe(&kv).with_context(hint)?.with_context(|| format!("{dir} is not formatted: --without {id} does without it"))?;
    Ok((info.fsid, osd::keep::read(&kv).with_context(hint)?))
}

fn text_of(kept: &Kept) -> String {
    let maps = match (kept.maps.keys().next(), kept.maps.keys().next_back()) {
        (Some(first), Some(last)) => format!("osdmaps {first} to {last}"),
        _ => "no osdmap".into(),
    };
    let copy = match &kept.copy {
        Some(copy) => format!("the monitors' state {}.{}", copy.generation, copy.index),
        None => "nothing of the monitors".into(),
    };
    format!("{maps}, {copy}")
}

fn addrs_of(args: &RecoverArgs, config: &DaemonConfig, known: Option<&MonMap>) -> Result<AddrVec> {
    let msgr2 = |addrs: AddrVec| AddrVec(addrs.0.into_iter().filter(|a| a.kind == AddrKind::MSGR2).collect());
    if let Some(text) = &args.public_addr {
        let all = parse_mon_host(text).with_context(|| format!("--public-addr {text}"))?;
        return Ok(msgr2(all.into_iter().next().context("--public-addr is empty")?));
    }
    if let Some(info) = known.and_then(|map| map.mon_info.get(&config.name.id)) {
        return Ok(info.public_addrs.clone());
    }
    match config.mon_addrs()?.as_slice() {
        [one] => Ok(msgr2(one.clone())),
        _ => bail!("where {} listens is not known: give --public-addr IP:PORT", config.name),
    }
}

fn write(home: &Path, remains: &Remains, mon: &NewMon) -> Result<Recovered> {
    fs::create_dir_all(home).with_context(|| format!("making {}", home.display()))?;
    let unfinished = home.join("kv.recovering");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    let mut rng = ChaCha8Rng::from_seed(random_seed());
    let mut kv = crate::mon::new_kv(&unfinished)?;
    let made = mon::recover::recover(&mut kv, remains, mon, io::Clock::new().now(), &mut rng)?;
    drop(kv);
    for (file, name) in [("keyring", EntityName::monitors()), ("mgr.keyring", EntityName::new(EntityKind::MGR, mon.name.clone()))] {
        write_keyring(&home.join(file), &crate::mon::only(&made.keyring, &name))?;
    }
    let _ = fs::remove_file(home.join("removed"));
    fs::rename(&unfinished, home.join("kv"))?;
    fs::File::open(home)?.sync_all()?;
    Ok(made)
}

fn tell(args: &RecoverArgs, id: &str, home: &Path, found: &Found, made: &Recovered) -> Result<()> {
    let shown: Vec<String> = found.files.iter().map(|f| f.display().to_string()).collect();
    let lost = "users' keys are lost: create them again (ceph auth get-or-create), and give the clients the new ones";
    match made.keys {
        Keys::Kept => {}
        Keys::NoCopy => say!("these OSDs kept no copy of keys and options; {lost}"),
        Keys::Locked => say!(
            "the keys that OSDs kept are sealed, and the key of mon. that opens them is in none of [{}]; {lost}.\n\
             If there is a keyring with that key, move {} away and say --keyring FILE",
            shown.join(", "),
            home.join("kv").display()
        ),
    }
    for osd in &made.keyless {
        say!("the key of osd.{osd} is not known: where it lives, ceph auth add osd.{osd} osd 'allow *' mon 'allow profile osd' mgr 'allow profile osd' -i KEYRING");
    }
    let names = [EntityName::monitors(), EntityName::new(EntityKind::CLIENT, "admin")];
    let missing = names.iter().any(|name| !found.remains.keyrings.iter().any(|k| k.get(name) == made.keyring.get(name)));
    if missing {
        let file = args.dir.as_ref().map_or_else(|| home.join("client.admin.keyring"), |dir| dir.join("keyring"));
        let mut all = read_keyring(&file).unwrap_or_default();
        all.entries.extend(made.keyring.entries.iter().filter(|(name, _)| names.contains(name)).map(|(n, e)| (n.clone(), e.clone())));
        write_keyring(&file, &all)?;
        say!("the keys of mon. and client.admin are in {}", file.display());
    }
    say!(
        "mon.{id} recovered from {} OSDs: osdmaps {} to {}, {} keys, {} options",
        found.osds, made.first, made.last, made.entities, made.options
    );
    match &args.dir {
        Some(dir) => say!("next: cuttlebone up --dir {}", dir.display()),
        None => say!("next: start mon.{id}, then the OSDs; other monitors join with empty stores. Never start a monitor of before again"),
    }
    Ok(())
}

fn read_keyring(file: &Path) -> Option<Keyring> {
    fs::read_to_string(file).ok()?.parse().ok()
}

fn write_keyring(file: &Path, keyring: &Keyring) -> Result<()> {
    let writing = || format!("writing {}", file.display());
    let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(file).with_context(writing)?;
    out.write_all(keyring.to_string().as_bytes()).with_context(writing)?;
    out.sync_all().with_context(writing)
}

fn monitor_dirs(dir: &Path) -> Vec<PathBuf> {
    subdirs(dir, "mon.")
}

fn subdirs(dir: &Path, kind: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let ours = |path: &PathBuf| path.is_dir() && path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(kind));
    let mut out: Vec<PathBuf> = all.filter(ours).collect();
    out.sort_unstable();
    out
}
