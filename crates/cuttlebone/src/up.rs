//! `cuttlebone up|down|status`: a whole cluster on this machine, in one directory.
//!
//! Every step looks at what is there first, so `up` after a crash, a reboot or half an `up` just goes on.
//! Daemons are started as a script would start stock ones: `mon --mkfs`, `mon`, `osd new`, `osd --mkfs`, `osd`.

use crate::out::say;
use crate::admin_client::{AdminClient, Refused};
use crate::config::parse_bytes;
use crate::process::{read_pid, spawn_daemon, stop_pid};
use anyhow::{Context, Result, anyhow, bail, ensure};
use crate::session::random_seed;
use auth::{CryptoKey, KeyKind};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use types::map::MonMap;
use types::{AddrVec, EntityAddr};
use uuid::Uuid;

/// How long daemons may take to serve, and the cluster to be whole; a healthy machine needs a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// What `up` was asked for; `None` takes what the directory already says, or the default.
#[derive(Debug, Clone, clap::Args)]
pub struct UpArgs {
    /// The cluster's directory; made if it does not exist
    #[arg(long)]
    pub dir: PathBuf,
    /// OSDs to have; more than there are adds some [default: what is there, or 3]
    #[arg(long)]
    pub osds: Option<u32>,
    /// Monitors to have; more than there are adds some. An odd number, of which a majority has to run [default: what is there, or 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=9))]
    pub mons: Option<u32>,
    /// Size of each new OSD's data file, sparse until written; several are given to OSDs in turn [default: 10G]
    #[arg(long, value_parser = parse_size, value_delimiter = ',')]
    pub size: Vec<u64>,
    /// CRUSH hosts that new OSDs are divided among as if each were a machine; with three or more, copies go to different hosts [default: this one]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub hosts: Option<u32>,
    /// Device class of each new OSD; several are given in turn: nvme,ssd [default: what the device is]
    #[arg(long, value_delimiter = ',')]
    pub device_class: Vec<String>,
    /// The first monitor's port; other monitors take those after it, daemons what the kernel gives them [default: 3300]
    #[arg(long)]
    pub port: Option<u16>,
    /// Stay, and stop everything on Ctrl-C
    #[arg(long)]
    pub foreground: bool,
}

/// A cluster's directory.
struct Home {
    dir: PathBuf,
}

/// Starts what is not running; makes what is not there.
pub fn up(args: &UpArgs) -> Result<()> {
    let home = Home::open_or_create(args)?;
    if !args.foreground {
        return start_all(&home, args, &AtomicBool::new(false));
    }
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    // What was started by half an `up` is stopped too.
    let done = start_all(&home, args, &stop).and_then(|()| stay(&home, &stop));
    let _lock = home.lock();
    stop_all(&home).and(done)
}

fn start_all(home: &Home, args: &UpArgs, stop: &AtomicBool) -> Result<()> {
    let begin = Instant::now();
    let _lock = home.lock()?;
    let mut mons = home.start_mons()?;
    let admin = AdminClient::connect(&home.conf(), PATIENCE)?;
    // One that was added later and has lost its store is in no first map: it is let in again.
    let wanted = args.mons.unwrap_or(0).max(home.mon_ids().len() as u32);
    while wanted > mons {
        home.add_mon(&admin)?;
        mons += 1;
        home.await_mons(mons, &admin)?;
    }
    let osds = with_new_osds(home.osd_ids(), args.osds);
    let mut failed = Ok(());
    for id in &osds {
        home.describe_osd(*id, osds.len() as u32, args)?;
        // One that cannot be made does not keep the others from starting.
        failed = failed.and(home.make_osd(*id, in_turn(&args.device_class, *id), &admin));
    }
    let made: Vec<String> = osds.iter().filter(|id| home.is_made(**id)).map(u32::to_string).collect();
    home.start_missing("osd", &made)?;
    failed?;
    home.await_whole(mons, &osds, &admin, stop)?;
    let plural = if mons > 1 { "s" } else { "" };
    say!("cluster in {}: {mons} monitor{plural}, {} OSDs, up after {:.1} s", home.dir.display(), osds.len(), begin.elapsed().as_secs_f32());
    say!("  clients need: {} (keyring beside it)", home.conf().display());
    say!("  try:  ceph -c {} -s", home.conf().display());
    Ok(())
}

/// Until a signal comes, or every daemon has been stopped by someone else; says who dies meanwhile.
fn stay(home: &Home, stop: &AtomicBool) -> Result<()> {
    say!("Ctrl-C stops it");
    let mut running = home.running();
    while !running.is_empty() && !stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(100));
        let now = home.running();
        for name in running.iter().filter(|name| !now.contains(name)) {
            eprintln!("{name} has ended; see {}/log", home.dir.display());
        }
        running = now;
    }
    Ok(())
}

/// Stops every daemon of a directory in order: OSDs first, so that the monitor hears their farewell.
pub fn down(dir: &Path) -> Result<()> {
    let home = Home::open(dir)?;
    let _lock = home.lock()?;
    stop_all(&home)
}

/// Which daemons run, and what the cluster says of itself.
pub fn status(dir: &Path) -> Result<()> {
    let home = Home::open(dir)?;
    for name in home.daemon_names() {
        match read_pid(&home.pid_file(&name)) {
            Some(pid) => say!("{name}: running, process {pid}"),
            None => say!("{name}: not running; `cuttlebone up --dir {}` starts it", home.dir.display()),
        }
    }
    status_of_conf(&home.conf())
}

/// What `ceph -s` prints, through our own client.
pub fn status_of_conf(conf: &Path) -> Result<()> {
    let admin = AdminClient::connect(conf, Duration::from_secs(10))?;
    crate::out::text(&String::from_utf8_lossy(&admin.command(json!({"prefix": "status"}), b"")?));
    Ok(())
}

fn stop_all(home: &Home) -> Result<()> {
    let mut names = home.daemon_names();
    names.sort_by_key(|n| n.starts_with("mon"));
    let (osds, mons): (Vec<_>, Vec<_>) = names.into_iter().partition(|n| n.starts_with("osd"));
    for group in [osds, mons] {
        std::thread::scope(|scope| {
            let stops: Vec<_> = group.iter().map(|name| scope.spawn(move || home.stop(name))).collect();
            stops.into_iter().try_for_each(|s| s.join().map_err(|_| anyhow!("stopping failed"))?)
        })?;
    }
    Ok(())
}

impl Home {
    fn open(dir: &Path) -> Result<Self> {
        let dir = fs::canonicalize(dir).with_context(|| format!("{} is not there; `cuttlebone up --dir` makes it", dir.display()))?;
        let home = Home { dir };
        ensure!(home.conf().exists(), "{} holds no cluster (no ceph.conf in it); `cuttlebone up --dir` makes one", home.dir.display());
        Ok(home)
    }

    fn open_or_create(args: &UpArgs) -> Result<Self> {
        fs::create_dir_all(&args.dir).with_context(|| format!("making {}", args.dir.display()))?;
        let home = Home { dir: fs::canonicalize(&args.dir)? };
        if home.conf().exists() {
            return Ok(home);
        }
        let ours = |name: &OsString| OURS.iter().any(|o| name == o) || name.to_str().is_some_and(|n| n.starts_with("mon."));
        let foreign: Vec<_> = fs::read_dir(&home.dir)?.flatten().map(|e| e.file_name()).filter(|n| !ours(n)).collect();
        ensure!(
            foreign.is_empty(),
            "{} is not empty and not a cluster's directory (it holds {:?}): choose another one",
            home.dir.display(),
            foreign
        );
        home.create(args)?;
        Ok(home)
    }

    /// Keys first, ceph.conf last: a directory with a ceph.conf is whole.
    fn create(&self, args: &UpArgs) -> Result<()> {
        // What an earlier attempt left may be of another number of monitors.
        for id in self.mon_ids() {
            fs::remove_dir_all(self.dir.join(format!("mon.{id}")))?;
        }
        let (fsid, port) = (Uuid::new_v4(), args.port.unwrap_or(3300));
        let mons = first_mons(args.mons.unwrap_or(1), port)?;
        for sub in mons.iter().map(|(id, _)| format!("mon.{id}")).chain(["run".into(), "log".into()]) {
            fs::create_dir_all(self.dir.join(sub))?;
        }
        let mut monmap = MonMap::new(fsid, io::Clock::new().now().wall);
        mons.iter().for_each(|(id, addr)| monmap.add(id, AddrVec(vec![EntityAddr::msgr2(*addr, 0)])));
        fs::write(self.dir.join("monmap"), denc::to_bytes(&monmap, types::features::SUPPORTED))?;
        fs::write(self.dir.join("keyring"), new_keyring())?;
        // Three hosts hold three copies; with fewer the copies of a cluster to try things with go to different OSDs.
        let chooseleaf = u32::from(args.hosts.is_some_and(|hosts| hosts >= 3));
        let conf = conf_text(&self.dir, fsid, &mons, args.size.first().copied().unwrap_or(10 << 30), chooseleaf);
        fs::write(self.dir.join("ceph.conf.new"), conf)?;
        fs::rename(self.dir.join("ceph.conf.new"), self.conf())?;
        Ok(())
    }

    fn conf(&self) -> PathBuf {
        self.dir.join("ceph.conf")
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.dir.join("run").join(format!("{name}.pid"))
    }

    /// One `up` or `down` at a time.
    fn lock(&self) -> Result<File> {
        let file = File::create(self.dir.join("run/lock"))?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| anyhow!("another `cuttlebone up` or `down` is at work in {}", self.dir.display()))?;
        Ok(file)
    }

    /// A `mon.X` for each monitor's directory and an `osd.N` for each OSD's.
    fn daemon_names(&self) -> Vec<String> {
        let mons = self.mon_ids().into_iter().map(|id| format!("mon.{id}"));
        mons.chain(self.osd_ids().into_iter().map(|id| format!("osd.{id}"))).collect()
    }

    /// Monitors of this directory; those that were removed leave a mark in theirs.
    fn mon_ids(&self) -> Vec<String> {
        let mut ids = self.ids("mon.");
        ids.retain(|id| !self.dir.join(format!("mon.{id}/removed")).exists());
        ids
    }

    /// What follows `kind` in the names of directories.
    fn ids(&self, kind: &str) -> Vec<String> {
        let all = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut ids: Vec<String> = all.filter_map(|e| Some(e.file_name().to_str()?.strip_prefix(kind)?.to_owned())).collect();
        ids.sort_unstable();
        ids
    }

    fn running(&self) -> Vec<String> {
        self.daemon_names().into_iter().filter(|name| read_pid(&self.pid_file(name)).is_some()).collect()
    }

    /// OSDs that have a directory, in their order.
    fn osd_ids(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = self.ids("osd.").iter().filter_map(|id| id.parse().ok()).collect();
        ids.sort_unstable();
        ids
    }

    fn is_made(&self, osd: u32) -> bool {
        self.dir.join(format!("osd.{osd}/ready")).exists()
    }

    fn daemon_args(&self, kind: &str, id: &str, more: &[&str]) -> Vec<String> {
        let conf = self.conf().display().to_string();
        [kind, "-i", id, "-c", &conf].iter().chain(more).map(|s| s.to_string()).collect()
    }

    fn has_store(&self, mon: &str) -> bool {
        self.dir.join(format!("mon.{mon}/kv")).exists()
    }

    /// Formats the monitors that the first map names, and starts all that have a store; returns how many those are.
    fn start_mons(&self) -> Result<u32> {
        let first: MonMap = denc::from_slice(&fs::read(self.dir.join("monmap"))?).context("the first monitor map")?;
        for id in self.mon_ids().iter().filter(|id| first.rank_of(id).is_some()) {
            if !self.has_store(id) {
                let file = |name: &str| self.dir.join(name).display().to_string();
                let (keyring, monmap) = (file("keyring"), file("monmap"));
                let args = self.daemon_args("mon", id, &["--mkfs", "--keyring", &keyring, "--monmap", &monmap]);
                run_to_end(&args).with_context(|| format!("making the store of mon.{id}"))?;
            }
        }
        let ids: Vec<String> = self.mon_ids().into_iter().filter(|id| self.has_store(id)).collect();
        self.start_missing("mon", &ids)?;
        Ok(ids.len() as u32)
    }

    /// Adds a monitor as stock documents it: the map and the key of the cluster, `--mkfs`, start. One whose directory was
    /// lost comes first.
    fn add_mon(&self, admin: &AdminClient) -> Result<()> {
        let map: MonMap = denc::from_slice(&admin.command(json!({"prefix": "mon getmap"}), b"")?).context("the monitor map")?;
        let lost = map.ranks.iter().find(|name| !self.has_store(name)).cloned();
        let id = lost.or_else(|| ('a'..='z').map(String::from).find(|id| !map.ranks.contains(id))).context("26 monitors are enough")?;
        let addr = match map.mon_info.get(&id).and_then(|info| info.public_addrs.msgr2()?.sock) {
            Some(addr) => addr,
            None => {
                let used = map.mon_info.values().filter_map(|m| m.public_addrs.msgr2()?.sock);
                let last = used.max_by_key(SocketAddr::port).context("a monitor map without addresses")?;
                SocketAddr::new(last.ip(), last.port().checked_add(1).context("there is no port left")?)
            }
        };
        let dir = self.dir.join(format!("mon.{id}"));
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir_all(&dir)?;
        let file = self.dir.join("monmap.now");
        fs::write(&file, denc::to_bytes(&map, types::features::SUPPORTED))?;
        let (keyring, monmap) = (self.dir.join("keyring").display().to_string(), file.display().to_string());
        let args = self.daemon_args("mon", &id, &["--mkfs", "--keyring", &keyring, "--monmap", &monmap]);
        run_to_end(&args).with_context(|| format!("making the store of mon.{id}"))?;
        fs::remove_file(&file)?;
        let addr = format!("v2:{addr}");
        self.add_mon_host(&addr)?;
        spawn_daemon("cuttlebone", &self.daemon_args("mon", &id, &["--public-addr", &addr])).with_context(|| format!("starting mon.{id}"))
    }

    /// Clients that start later find the new monitor, too.
    fn add_mon_host(&self, addr: &str) -> Result<()> {
        let text = fs::read_to_string(self.conf())?;
        let with = |line: &str| match line.strip_prefix("mon host = ").filter(|hosts| !hosts.contains(addr)) {
            Some(hosts) => format!("mon host = {hosts},[{addr}]\n"),
            None => format!("{line}\n"),
        };
        fs::write(self.dir.join("ceph.conf.new"), text.lines().map(with).collect::<String>())?;
        Ok(fs::rename(self.dir.join("ceph.conf.new"), self.conf())?)
    }

    /// Until so many monitors are in the quorum: the next one can be added then.
    fn await_mons(&self, mons: u32, admin: &AdminClient) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let status: Value = serde_json::from_slice(&admin.command(json!({"prefix": "status", "format": "json"}), b"")?)?;
            let agree = status["quorum"].as_array().map_or(0, Vec::len);
            if agree >= mons as usize {
                return Ok(());
            }
            ensure!(Instant::now() < end, "{agree} of {mons} monitors are in the quorum; see {}/log", self.dir.display());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Starts those daemons of a kind that do not run.
    fn start_missing(&self, kind: &str, ids: &[String]) -> Result<()> {
        std::thread::scope(|scope| {
            let starts: Vec<_> = (ids.iter())
                .filter(|id| read_pid(&self.pid_file(&format!("{kind}.{id}"))).is_none())
                .map(|id| {
                    scope.spawn(move || spawn_daemon("cuttlebone", &self.daemon_args(kind, id, &[])).with_context(|| format!("starting {kind}.{id}")))
                })
                .collect();
            starts.into_iter().try_for_each(|s| s.join().map_err(|_| anyhow!("starting failed"))?)
        })
    }

    /// Gives a new OSD a section of its own in ceph.conf, where it differs from others: its CRUSH host, its size.
    fn describe_osd(&self, id: u32, osds: u32, args: &UpArgs) -> Result<()> {
        let text = fs::read_to_string(self.conf())?;
        let heading = format!("[osd.{id}]");
        if self.is_made(id) || text.lines().any(|line| line == heading) {
            return Ok(());
        }
        let place = args.hosts.map(|hosts| format!("crush location = root=default host={}\n", host_with_room(&text, osds, hosts)));
        let size = in_turn(&args.size, id).filter(|_| args.size.len() > 1).map(|size| format!("bluestore block size = {size}\n"));
        let lines: String = place.into_iter().chain(size).collect();
        if !lines.is_empty() {
            fs::write(self.dir.join("ceph.conf.new"), format!("{text}{heading}\n{lines}"))?;
            fs::rename(self.dir.join("ceph.conf.new"), self.conf())?;
        }
        Ok(())
    }

    /// Registers and formats an OSD unless that is done; `class` is its device class, if it is not to be what its device is.
    fn make_osd(&self, id: u32, class: Option<&String>, admin: &AdminClient) -> Result<()> {
        let dir = self.dir.join(format!("osd.{id}"));
        if self.is_made(id) {
            return Ok(());
        }
        let (was_there, was_begun) = (dir.exists(), dir.join("fsid").exists());
        fs::create_dir_all(&dir)?;
        // A half-made OSD keeps its uuid and key: registering it again is then the same registration.
        let uuid = kept(&dir.join("fsid"), || Uuid::new_v4().to_string())?;
        let key = kept(&dir.join("key"), new_key)?;
        let request = json!({"prefix": "osd new", "uuid": uuid, "id": id});
        let mut secrets = json!({"cephx_secret": key});
        if let Some(class) = class {
            secrets["crush_device_class"] = class.as_str().into();
        }
        let secrets = secrets.to_string();
        let given = admin.command(request, secrets.as_bytes()).inspect_err(|e| {
            // Perhaps a mount point: it is left as it was. Who was not answered may have been registered, and needs them.
            if !was_begun && e.is::<Refused>() {
                ["fsid", "key"].iter().for_each(|name| drop(fs::remove_file(dir.join(name))));
                if !was_there {
                    drop(fs::remove_dir(&dir));
                }
            }
        });
        let given = given.with_context(|| {
            format!("registering osd.{id}: {} holds no OSD. Is its disk not mounted? To have it begin anew: 'ceph osd destroy {id}'", dir.display())
        })?;
        let given = String::from_utf8_lossy(&given).trim().to_owned();
        ensure!(given == id.to_string(), "asked for osd.{id}, was given {given:?}");
        fs::write(dir.join("keyring"), format!("[osd.{id}]\n\tkey = {key}\n"))?;
        run_to_end(&self.daemon_args("osd", &id.to_string(), &["--mkfs", "--osd-uuid", &uuid])).with_context(|| format!("formatting osd.{id}"))?;
        ensure!(dir.join("ready").exists(), "osd.{id}: formatting left no `ready` file");
        let _ = fs::remove_file(dir.join("key"));
        Ok(())
    }

    /// Until every monitor is in the quorum, every OSD is up, the manager serves, and every placement group takes requests.
    fn await_whole(&self, mons: u32, osds: &[u32], admin: &AdminClient, stop: &AtomicBool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let missing = self.missing(mons, osds, admin)?;
            if missing.is_empty() || stop.load(Ordering::Acquire) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!("after {} s: {}; see {}/log", PATIENCE.as_secs(), missing.join(", "), self.dir.display());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the cluster still lacks. A map may call daemons up that died since: only those of these processes count.
    fn missing(&self, mons: u32, osds: &[u32], admin: &AdminClient) -> Result<Vec<String>> {
        let ask = |prefix: &str| -> Result<Value> {
            Ok(serde_json::from_slice(&admin.command(json!({"prefix": prefix, "format": "json"}), b"")?)?)
        };
        let (status, dump) = (ask("status")?, ask("osd dump")?);
        let mut missing = Vec::new();
        for id in osds {
            let name = format!("osd.{id}");
            let Some(pid) = read_pid(&self.pid_file(&name)) else {
                bail!("{name} has ended; see {}/log/{name}.log", self.dir.display());
            };
            let up = dump["osds"].as_array().into_iter().flatten().any(|o| {
                o["osd"] == *id && o["up"] == 1 && o["public_addrs"]["addrvec"][0]["nonce"] == pid
            });
            if !up {
                missing.push(format!("{name} is not up"));
            }
        }
        let agree = status["quorum"].as_array().map_or(0, Vec::len);
        if agree != mons as usize {
            missing.push(format!("{agree} of {mons} monitors are in the quorum"));
        }
        if status["mgrmap"]["num_standbys"] != mons - 1 {
            missing.push("managers are missing".into());
        }
        if !status["mgrmap"]["available"].as_bool().unwrap_or(false) {
            missing.push("no manager is available".into());
        }
        let pgmap = &status["pgmap"];
        for (ratio, what) in [("unknown_pgs_ratio", "unknown"), ("inactive_pgs_ratio", "not active")] {
            if let Some(part) = pgmap[ratio].as_f64() {
                missing.push(format!("{:.0}% of the placement groups are {what}", part * 100.0));
            }
        }
        if missing.is_empty() {
            admin.mgr_command(json!({"prefix": "pg stat"}))?;
        }
        Ok(missing)
    }

    fn stop(&self, name: &str) -> Result<()> {
        let Some(pid) = read_pid(&self.pid_file(name)) else { return Ok(()) };
        ensure!(stop_pid(pid, Duration::from_secs(20)), "{name} (process {pid}) does not end");
        say!("{name} stopped");
        Ok(())
    }
}

/// OSDs that are there, and as many new ones, with the lowest numbers that are free, as are missing to the wanted number; three where there is none.
fn with_new_osds(mut ids: Vec<u32>, wanted: Option<u32>) -> Vec<u32> {
    let wanted = wanted.unwrap_or(if ids.is_empty() { 3 } else { 0 }) as usize;
    let free: Vec<u32> = (0..).filter(|id| !ids.contains(id)).take(wanted.saturating_sub(ids.len())).collect();
    ids.extend(free);
    ids.sort_unstable();
    ids
}

/// What OSD `id` gets of things that are given to OSDs in turn.
fn in_turn<T>(things: &[T], id: u32) -> Option<&T> {
    things.get(id as usize % things.len().max(1))
}

/// The first of so many CRUSH hosts that, by ceph.conf, has not its share of the OSDs yet.
fn host_with_room(conf: &str, osds: u32, hosts: u32) -> String {
    let share = osds.div_ceil(hosts) as usize;
    let has = |name: &str| conf.lines().filter(|line| line.split(' ').any(|word| word.strip_prefix("host=") == Some(name))).count();
    let mut names = (1..=hosts).map(|n| format!("host{n}"));
    names.find(|name| has(name) < share).unwrap_or_else(|| format!("host{hosts}"))
}

/// What may lie in a directory whose first `up` was interrupted.
const OURS: [&str; 5] = ["run", "log", "keyring", "monmap", "ceph.conf.new"];

/// Runs a daemon command that ends by itself (`--mkfs`) and passes on what it says.
fn run_to_end(args: &[String]) -> Result<()> {
    let out = std::process::Command::new(std::env::current_exe()?).args(args).output()?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(())
}

/// The text of a file, made once.
fn kept(path: &Path, make: impl FnOnce() -> String) -> Result<String> {
    if let Ok(text) = fs::read_to_string(path) {
        return Ok(text.trim().to_owned());
    }
    let text = make();
    fs::write(path, format!("{text}\n"))?;
    Ok(text)
}

fn new_key() -> String {
    CryptoKey::generate(KeyKind::Aes, io::Clock::new().now().wall, &mut ChaCha8Rng::from_seed(random_seed())).to_string()
}

fn new_keyring() -> String {
    let all = "\tcaps mds = \"allow *\"\n\tcaps mgr = \"allow *\"\n\tcaps mon = \"allow *\"\n\tcaps osd = \"allow *\"\n";
    format!("[mon.]\n\tkey = {}\n\tcaps mon = \"allow *\"\n[client.admin]\n\tkey = {}\n{all}", new_key(), new_key())
}

/// Names and addresses of a new cluster's monitors: a, b, c on consecutive ports.
fn first_mons(count: u32, port: u16) -> Result<Vec<(String, SocketAddr)>> {
    let last = u32::from(port) + count - 1;
    ensure!(last <= u32::from(u16::MAX), "{count} monitors from port {port} on: there is no port {last}");
    let mon = |(name, n): (char, u16)| (name.to_string(), SocketAddr::from(([127, 0, 0, 1], port + n)));
    Ok(('a'..='z').zip(0..count as u16).map(mon).collect())
}

fn conf_text(dir: &Path, fsid: Uuid, mons: &[(String, SocketAddr)], size: u64, chooseleaf: u32) -> String {
    let dir = dir.display();
    let spread = match chooseleaf {
        0 => "# One machine: copies go to different OSDs, not to different hosts.\nosd crush chooseleaf type = 0",
        _ => "# Copies go to different hosts of the CRUSH map, though all are this machine.\nosd crush chooseleaf type = 1",
    };
    let hosts: Vec<String> = mons.iter().map(|(_, addr)| format!("[v2:{addr}]")).collect();
    let hosts = hosts.join(",");
    format!(
        "\
[global]
fsid = {fsid}
mon host = {hosts}
public addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {dir}/keyring
run dir = {dir}/run
pid file = {dir}/run/$name.pid
log file = {dir}/log/$name.log
{spread}
[mon]
mon data = {dir}/mon.$id
# A cluster to try things with stands on a disk that others fill: that is no news.
mon data avail warn = 2
mon data avail crit = 1
admin socket = {dir}/run/$cluster-$name.asok
[osd]
admin socket = {dir}/run/$cluster-$name.asok
osd data = {dir}/osd.$id
keyring = {dir}/osd.$id/keyring
bluestore block size = {size}
"
    )
}

/// A size that an OSD can live on.
fn parse_size(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Ok(size) if size < 64 << 20 => Err("an OSD needs at least 64M".into()),
        Ok(size) => Ok(size),
        Err(_) => Err(format!("{text:?} is no size; 10G, 512M are")),
    }
}

#[cfg(test)]
mod tests {
    use super::{host_with_room, in_turn, parse_size, with_new_osds};

    #[test]
    fn osds_that_were_removed_are_not_made_again_and_those_behind_them_are_started() {
        assert_eq!(with_new_osds(vec![], None), [0, 1, 2]);
        assert!(with_new_osds(vec![], Some(0)).is_empty());
        assert_eq!(with_new_osds(vec![2, 1], None), [1, 2]);
        assert_eq!(with_new_osds(vec![1, 2], Some(4)), [0, 1, 2, 3]);
        assert_eq!(with_new_osds(vec![0, 1, 2, 3], Some(3)), [0, 1, 2, 3]);
    }

    #[test]
    fn new_osds_fill_one_host_after_the_other_and_take_classes_in_turn() {
        let mut conf = String::new();
        for _ in 0..9 {
            let host = host_with_room(&conf, 9, 3);
            conf += &format!("crush location = root=default host={host}\n");
        }
        let count = |name: &str| conf.matches(&format!("host={name}\n")).count();
        assert_eq!([count("host1"), count("host2"), count("host3")], [3, 3, 3]);
        assert!(conf.starts_with(&"crush location = root=default host=host1\n".repeat(3)));
        assert_eq!(host_with_room(&conf, 12, 3), "host1", "a tenth OSD");
        let classes = ["nvme", "ssd"];
        assert_eq!([0, 1, 2].map(|id| in_turn(&classes, id)), [Some(&"nvme"), Some(&"ssd"), Some(&"nvme")]);
        assert_eq!(in_turn::<u64>(&[], 3), None);
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert!(parse_size("1K").is_err());
        assert!(parse_size("ten").is_err());
    }
}
