//! `cuttlebone up|down|status`: a whole cluster on this machine, in one directory.
//!
//! Every step looks at what is there first, so `up` after a crash, a reboot or half an `up` just goes on.
//! Daemons are started as a script would start stock ones: `mon --mkfs`, `mon`, `osd new`, `osd --mkfs`, `osd`.

use crate::admin_client::AdminClient;
use crate::config::parse_bytes;
use crate::process::{read_pid, spawn_daemon, stop_pid};
use anyhow::{Context, Result, anyhow, bail, ensure};
use crate::session::random_seed;
use auth::{CryptoKey, KeyKind};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
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
    /// Size of each new OSD's data file, sparse until written [default: 10G]
    #[arg(long, value_parser = parse_size)]
    pub size: Option<u64>,
    /// The monitor's port; daemons take the ports after it as the kernel gives them [default: 3300]
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
    home.start_mon()?;
    let admin = AdminClient::connect(&home.conf(), PATIENCE)?;
    let osds = home.osd_count(args);
    for id in 0..osds {
        home.make_osd(id, &admin)?;
    }
    home.start_osds(osds)?;
    home.await_whole(osds, &admin, stop)?;
    println!("cluster in {}: 1 monitor, {osds} OSDs, up after {:.1} s", home.dir.display(), begin.elapsed().as_secs_f32());
    println!("  clients need: {} (keyring beside it)", home.conf().display());
    println!("  try:  ceph -c {} -s", home.conf().display());
    Ok(())
}

/// Until a signal comes, or every daemon has been stopped by someone else; says who dies meanwhile.
fn stay(home: &Home, stop: &AtomicBool) -> Result<()> {
    println!("Ctrl-C stops it");
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
            Some(pid) => println!("{name}: running, process {pid}"),
            None => println!("{name}: not running; `cuttlebone up --dir {}` starts it", home.dir.display()),
        }
    }
    status_of_conf(&home.conf())
}

/// What `ceph -s` prints, through our own client.
pub fn status_of_conf(conf: &Path) -> Result<()> {
    let admin = AdminClient::connect(conf, Duration::from_secs(10))?;
    print!("{}", String::from_utf8_lossy(&admin.command(json!({"prefix": "status"}), b"")?));
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
        let foreign: Vec<_> = fs::read_dir(&home.dir)?.flatten().map(|e| e.file_name()).filter(|n| !OURS.iter().any(|o| n == o)).collect();
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
        for sub in ["mon.a", "run", "log"] {
            fs::create_dir_all(self.dir.join(sub))?;
        }
        fs::write(self.dir.join("keyring"), new_keyring())?;
        let conf = conf_text(&self.dir, Uuid::new_v4(), args.port.unwrap_or(3300), args.size.unwrap_or(10 << 30));
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

    /// `mon.a` and an `osd.N` for each OSD directory.
    fn daemon_names(&self) -> Vec<String> {
        let mut ids: Vec<u32> = fs::read_dir(&self.dir)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("osd.")?.parse().ok())
            .collect();
        ids.sort_unstable();
        std::iter::once("mon.a".to_owned()).chain(ids.into_iter().map(|id| format!("osd.{id}"))).collect()
    }

    fn running(&self) -> Vec<String> {
        self.daemon_names().into_iter().filter(|name| read_pid(&self.pid_file(name)).is_some()).collect()
    }

    fn osd_count(&self, args: &UpArgs) -> u32 {
        let there = self.daemon_names().len() as u32 - 1;
        args.osds.unwrap_or(if there == 0 { 3 } else { there }).max(there)
    }

    fn daemon_args(&self, kind: &str, id: &str, more: &[&str]) -> Vec<String> {
        let conf = self.conf().display().to_string();
        [kind, "-i", id, "-c", &conf].iter().chain(more).map(|s| s.to_string()).collect()
    }

    fn start_mon(&self) -> Result<()> {
        if read_pid(&self.pid_file("mon.a")).is_some() {
            return Ok(());
        }
        if !self.dir.join("mon.a/kv").exists() {
            let keyring = self.dir.join("keyring").display().to_string();
            run_to_end(&self.daemon_args("mon", "a", &["--mkfs", "--keyring", &keyring])).context("making the monitor's store")?;
        }
        spawn_daemon("cuttlebone", &self.daemon_args("mon", "a", &[])).context("starting mon.a")
    }

    /// Registers and formats an OSD unless that is done.
    fn make_osd(&self, id: u32, admin: &AdminClient) -> Result<()> {
        let dir = self.dir.join(format!("osd.{id}"));
        if dir.join("ready").exists() {
            return Ok(());
        }
        fs::create_dir_all(&dir)?;
        // A half-made OSD keeps its uuid and key: registering it again is then the same registration.
        let uuid = kept(&dir.join("fsid"), || Uuid::new_v4().to_string())?;
        let key = kept(&dir.join("key"), new_key)?;
        let request = json!({"prefix": "osd new", "uuid": uuid, "id": id});
        let secrets = json!({"cephx_secret": key}).to_string();
        let given = admin.command(request, secrets.as_bytes()).with_context(|| format!("registering osd.{id}"))?;
        let given = String::from_utf8_lossy(&given).trim().to_owned();
        ensure!(given == id.to_string(), "asked for osd.{id}, was given {given:?}");
        fs::write(dir.join("keyring"), format!("[osd.{id}]\n\tkey = {key}\n"))?;
        run_to_end(&self.daemon_args("osd", &id.to_string(), &["--mkfs", "--osd-uuid", &uuid])).with_context(|| format!("formatting osd.{id}"))?;
        ensure!(dir.join("ready").exists(), "osd.{id}: formatting left no `ready` file");
        let _ = fs::remove_file(dir.join("key"));
        Ok(())
    }

    fn start_osds(&self, osds: u32) -> Result<()> {
        std::thread::scope(|scope| {
            let starts: Vec<_> = (0..osds)
                .filter(|id| read_pid(&self.pid_file(&format!("osd.{id}"))).is_none())
                .map(|id| {
                    scope.spawn(move || {
                        spawn_daemon("cuttlebone", &self.daemon_args("osd", &id.to_string(), &[])).with_context(|| format!("starting osd.{id}"))
                    })
                })
                .collect();
            starts.into_iter().try_for_each(|s| s.join().map_err(|_| anyhow!("starting failed"))?)
        })
    }

    /// Until every OSD is up, the manager serves, and every placement group takes requests.
    fn await_whole(&self, osds: u32, admin: &AdminClient, stop: &AtomicBool) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        loop {
            let missing = self.missing(osds, admin)?;
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
    fn missing(&self, osds: u32, admin: &AdminClient) -> Result<Vec<String>> {
        let ask = |prefix: &str| -> Result<Value> {
            Ok(serde_json::from_slice(&admin.command(json!({"prefix": prefix, "format": "json"}), b"")?)?)
        };
        let (status, dump) = (ask("status")?, ask("osd dump")?);
        let mut missing = Vec::new();
        for id in 0..osds {
            let name = format!("osd.{id}");
            let Some(pid) = read_pid(&self.pid_file(&name)) else {
                bail!("{name} has ended; see {}/log/{name}.log", self.dir.display());
            };
            let up = dump["osds"].as_array().into_iter().flatten().any(|o| {
                o["osd"] == id && o["up"] == 1 && o["public_addrs"]["addrvec"][0]["nonce"] == pid
            });
            if !up {
                missing.push(format!("{name} is not up"));
            }
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
        println!("{name} stopped");
        Ok(())
    }
}

/// What may lie in a directory whose first `up` was interrupted.
const OURS: [&str; 5] = ["mon.a", "run", "log", "keyring", "ceph.conf.new"];

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

fn conf_text(dir: &Path, fsid: Uuid, port: u16, size: u64) -> String {
    let dir = dir.display();
    format!(
        "\
[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{port}]
public addr = 127.0.0.1
auth cluster required = cephx
auth service required = cephx
auth client required = cephx
keyring = {dir}/keyring
run dir = {dir}/run
pid file = {dir}/run/$name.pid
log file = {dir}/log/$name.log
# One machine: copies go to different OSDs, not to different hosts.
osd crush chooseleaf type = 0
[mon.a]
mon data = {dir}/mon.a
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
    use super::parse_size;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("10G"), Ok(10 << 30));
        assert_eq!(parse_size("512MiB"), Ok(512 << 20));
        assert!(parse_size("1K").is_err());
        assert!(parse_size("ten").is_err());
    }
}
