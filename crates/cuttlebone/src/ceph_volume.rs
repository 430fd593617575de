//! `ceph-volume`, and `cuttlebone ceph-volume`: the words that deployment tools use, for what `cuttlebone osd` does.
//!
//! Devices are used as they are: no volume groups are made of them. What stock keeps in LVM's tags is in the OSD's directory here, so
//! `list` shows OSDs that have one. What is not built says so.
//! Upstream: src/ceph-volume/ceph_volume/devices/lvm.

use crate::osd::create::{CreateArgs, create};
use crate::osd::devices::{self, Device};
use crate::osd::list::{self, Found, Part};
use crate::osd::zap::{ZapArgs, zap};
use crate::out::say;
use crate::process::spawn_daemon;
use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use uuid::Uuid;

/// Deploy OSDs on devices or logical volumes, in the words of stock's ceph-volume
#[derive(Parser)]
#[command(name = "ceph-volume", max_term_width = 100)]
struct Cli {
    /// Name of the cluster: ceph, and nothing else
    #[arg(long, global = true)]
    cluster: Option<String>,
    /// ceph.conf [default: $CEPH_CONF, or /etc/ceph/ceph.conf]
    #[arg(long, global = true)]
    conf: Option<PathBuf>,
    #[command(subcommand)]
    part: Section,
}

#[derive(Subcommand)]
enum Section {
    /// OSDs on devices and logical volumes
    Lvm {
        #[command(subcommand)]
        deed: Lvm,
    },
    /// simple, raw, inventory: not built
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Subcommand)]
enum Lvm {
    /// Make an OSD and start it
    Create(Wanted),
    /// Make an OSD
    Prepare(Wanted),
    /// Start an OSD that was made
    Activate {
        /// Its number
        osd_id: Option<i32>,
        /// Its uuid
        osd_fsid: Option<Uuid>,
        /// Every OSD of this machine
        #[arg(long)]
        all: bool,
        #[arg(long)]
        bluestore: bool,
        /// Make it ready, and start nothing
        #[arg(long)]
        no_systemd: bool,
    },
    /// Which OSDs this machine has
    List {
        /// Only the one that is on this device
        device: Option<String>,
        #[arg(long, default_value = "pretty", value_parser = ["pretty", "json"])]
        format: String,
    },
    /// Take away what is on devices
    Zap {
        devices: Vec<String>,
        #[arg(long)]
        osd_id: Option<i32>,
        #[arg(long)]
        osd_fsid: Option<Uuid>,
        /// The OSD's directory, too
        #[arg(long)]
        destroy: bool,
        #[arg(long)]
        no_systemd: bool,
    },
    /// batch, migrate, new-db, new-wal, deactivate, trigger: not built
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(clap::Args)]
struct Wanted {
    #[arg(long)]
    data: String,
    #[arg(long = "block.db")]
    db: Option<String>,
    #[arg(long = "block.wal")]
    wal: Option<String>,
    #[arg(long)]
    osd_id: Option<i32>,
    #[arg(long)]
    osd_fsid: Option<Uuid>,
    #[arg(long)]
    crush_device_class: Option<String>,
    #[arg(long)]
    bluestore: bool,
    #[arg(long)]
    no_systemd: bool,
    #[arg(long)]
    filestore: bool,
    #[arg(long)]
    dmcrypt: bool,
    /// Only with LVM volumes that are made: 0
    #[arg(long)]
    data_size: Option<String>,
    /// How many OSDs share the device
    #[arg(long)]
    data_slots: Option<u32>,
    #[arg(long = "block.db-size")]
    db_size: Option<String>,
    #[arg(long = "block.wal-size")]
    wal_size: Option<String>,
    /// Whatever a deployment tool calls its group of OSDs; kept nowhere
    #[arg(long)]
    osdspec_affinity: Option<String>,
}

/// Runs `ceph-volume` with these words; `called` is how.
pub fn main(called: &str, words: &[String]) -> Result<ExitCode> {
    let cli = Cli::parse_from([&[called.to_owned()], words].concat());
    ensure!(cli.cluster.as_deref().is_none_or(|c| c == "ceph"), "--cluster: the cluster's name is ceph");
    let conf_file = cli.conf.or_else(|| std::env::var_os("CEPH_CONF").map(PathBuf::from));
    let conf = conf_file.as_deref();
    match cli.part {
        Section::Other(words) => bail!(not_built(&words, "lvm create|prepare|activate|list|zap")),
        Section::Lvm { deed: Lvm::Other(words) } => bail!(not_built(&words, "create, prepare, activate, list, zap; moving: cuttlebone osd migrate")),
        Section::Lvm { deed: Lvm::Prepare(wanted) } => {
            prepare(&wanted, conf)?;
            eprintln!("--> ceph-volume lvm prepare successful for: {}", wanted.data);
        }
        Section::Lvm { deed: Lvm::Create(wanted) } => {
            let id = prepare(&wanted, conf)?;
            activate(&list::one(conf, id)?, conf, wanted.no_systemd)?;
            eprintln!("--> ceph-volume lvm create successful for: {}", wanted.data);
        }
        Section::Lvm { deed: Lvm::Activate { osd_id, osd_fsid, all, no_systemd, .. } } => {
            for osd in chosen(conf, osd_id, osd_fsid, all)? {
                activate(&osd, conf, no_systemd)?;
                eprintln!("--> ceph-volume lvm activate successful for osd ID: {}", osd.home.id);
            }
        }
        Section::Lvm { deed: Lvm::List { device, format } } => return show(conf, device.as_deref(), &format),
        Section::Lvm { deed: Lvm::Zap { devices, osd_id, osd_fsid, destroy, .. } } => {
            ensure!(!devices.is_empty() || osd_id.is_some() || osd_fsid.is_some(), "zap wants devices, --osd-id or --osd-fsid");
            let what = if devices.is_empty() { format!("OSD: {}", osd_id.map_or_else(|| osd_fsid.unwrap_or_default().to_string(), |id| id.to_string())) } else { devices.join(", ") };
            zap(&ZapArgs { devices, osd_id, osd_fsid, destroy, conf: conf_file.clone() })?;
            eprintln!("--> Zapping successful for {}{what}", if what.starts_with("OSD: ") { "" } else { ": " });
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn not_built(words: &[String], built: &str) -> String {
    format!("{}: not built here (EOPNOTSUPP); what is: {built}", words.first().map_or("", String::as_str))
}

fn prepare(wanted: &Wanted, conf: Option<&Path>) -> Result<i32> {
    ensure!(!wanted.dmcrypt, "--dmcrypt: not built here (EOPNOTSUPP): encrypt the device first, and give its mapper as --data");
    ensure!(!wanted.filestore, "--filestore: not built here (EOPNOTSUPP)");
    let several = wanted.data_slots.is_some_and(|n| n > 1) || wanted.data_size.as_deref().is_some_and(|s| s != "0");
    ensure!(!several, "--data-slots, --data-size: not built here (EOPNOTSUPP): partition the device first, an OSD on each");
    let size = |text: &Option<String>| text.as_deref().map(crate::config::parse_bytes).transpose().map(|n| n.filter(|n| *n > 0));
    create(&CreateArgs {
        data: wanted.data.clone(),
        db: wanted.db.clone(),
        db_size: size(&wanted.db_size).context("--block.db-size")?,
        wal: wanted.wal.clone(),
        wal_size: size(&wanted.wal_size).context("--block.wal-size")?,
        device_class: wanted.crush_device_class.clone(),
        osd_id: wanted.osd_id,
        osd_fsid: wanted.osd_fsid,
        size: None,
        yes: false,
        conf: conf.map(Path::to_owned),
        keyring: None,
    })
}

fn chosen(conf: Option<&Path>, id: Option<i32>, uuid: Option<Uuid>, all: bool) -> Result<Vec<Found>> {
    if all {
        return list::found(conf);
    }
    let osd = list::one(conf, id.context("activate wants OSD_ID OSD_FSID, or --all")?)?;
    let has = osd.home.uuid()?;
    ensure!(uuid.is_none_or(|uuid| uuid == has), "osd.{} has uuid {has}", osd.home.id);
    Ok(vec![osd])
}

/// Mounts what it needs, and starts it: by systemd where that runs, else by ourselves.
fn activate(osd: &Found, conf: Option<&Path>, no_systemd: bool) -> Result<()> {
    let turn = osd.home.turn()?;
    osd.home.mount_db()?;
    drop(turn);
    if no_systemd || osd.is_running() {
        return Ok(());
    }
    let id = osd.home.id.to_string();
    if Path::new("/run/systemd/system").exists() {
        let unit = format!("ceph-osd@{id}");
        for verb in [&["enable", "--runtime"][..], &["start"]] {
            let done = Command::new("systemctl").args(verb).arg(&unit).status().context("running systemctl")?;
            ensure!(done.success(), "systemctl {} {unit}: {done}", verb.join(" "));
        }
        return Ok(());
    }
    let conf = conf.map(std::path::absolute).transpose()?.into_iter().flat_map(|c| ["-c".to_owned(), c.display().to_string()]);
    let args: Vec<String> = ["osd".to_owned(), "-i".into(), id.clone()].into_iter().chain(conf).collect();
    spawn_daemon("cuttlebone", &args).with_context(|| format!("starting osd.{id}"))
}

fn show(conf: Option<&Path>, device: Option<&str>, format: &str) -> Result<ExitCode> {
    let device = device.map(devices::named);
    let mut report: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for osd in list::found(conf)? {
        let parts = osd.parts();
        let is_meant = |p: &Part| device.as_deref().is_none_or(|d| is_on(&p.path, d));
        if parts.iter().any(is_meant) {
            let shown = parts.iter().filter(|p| is_meant(p)).map(|p| entry(&osd, &parts, p)).collect();
            report.insert(osd.home.id.to_string(), shown);
        }
    }
    if format == "json" {
        say!("{}", json_text(&report)?);
        return Ok(ExitCode::SUCCESS);
    }
    if report.is_empty() {
        eprintln!("No valid Ceph lvm devices found");
        return Ok(ExitCode::FAILURE);
    }
    crate::out::text(&pretty(&report));
    Ok(ExitCode::SUCCESS)
}

/// As stock's: four blanks.
fn json_text(report: &BTreeMap<String, Vec<Value>>) -> Result<String> {
    use serde::Serialize;
    let mut out = Vec::new();
    let mut writer = serde_json::Serializer::with_formatter(&mut out, serde_json::ser::PrettyFormatter::with_indent(b"    "));
    report.serialize(&mut writer)?;
    Ok(String::from_utf8(out)?)
}

/// The same device, or one of the disks beneath.
fn is_on(part: &Path, device: &Path) -> bool {
    let real = |p: &Path| std::fs::canonicalize(p).ok();
    let disks = || Device::beneath(part).filter(|_| devices::is_device(part)).map(|d| d.disks()).unwrap_or_default();
    real(part).is_some_and(|p| real(device) == Some(p)) || disks().iter().any(|d| real(device) == Some(d.node().into()))
}

/// A part of an OSD with the keys of a logical volume; those of LVM are empty where it is none.
fn entry(osd: &Found, parts: &[Part], part: &Part) -> Value {
    let (tags, path) = (tags(osd, parts, part), part.path.display().to_string());
    let disks: Vec<String> = Device::beneath(&part.path).iter().flat_map(Device::disks).map(|d| d.node()).collect();
    let volume = volume(&part.path);
    let of = |key: &str| volume.get(key).cloned().unwrap_or_default();
    let text: Vec<String> = tags.iter().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    json!({
        "devices": disks, "lv_name": of("lv_name"), "lv_path": volume.get("lv_path").cloned().unwrap_or_else(|| path.clone()),
        "lv_size": volume.get("lv_size").cloned().unwrap_or_else(|| size(&part.path).to_string()), "lv_tags": text.join(","),
        "lv_uuid": of("lv_uuid"), "name": of("lv_name"), "path": path, "tags": tags, "type": part.kind, "vg_name": of("vg_name"),
    })
}

fn tags(osd: &Found, parts: &[Part], part: &Part) -> Map<String, Value> {
    let read = |name: &str| osd.home.read(name).unwrap_or_default();
    let mut tags = Map::new();
    let mut put = |key: String, value: String| {
        tags.insert(key, value.into());
    };
    for other in parts {
        put(format!("ceph.{}_device", other.kind), other.path.display().to_string());
        put(format!("ceph.{}_uuid", other.kind), uuid_of(&other.path));
    }
    put("ceph.cephx_lockbox_secret".into(), String::new());
    put("ceph.cluster_fsid".into(), read("ceph_fsid"));
    put("ceph.cluster_name".into(), "ceph".into());
    put("ceph.crush_device_class".into(), match osd.device_class() {
        class if class.is_empty() => "None".into(),
        class => class,
    });
    put("ceph.encrypted".into(), "0".into());
    put("ceph.osd_fsid".into(), read("fsid"));
    put("ceph.osd_id".into(), osd.home.id.to_string());
    put("ceph.osdspec_affinity".into(), String::new());
    put("ceph.type".into(), part.kind.into());
    put("ceph.vdo".into(), "0".into());
    tags
}

/// A partition's or a logical volume's.
fn uuid_of(path: &Path) -> String {
    let of_volume = volume(path).get("lv_uuid").cloned();
    let links = std::fs::read_dir("/dev/disk/by-partuuid").into_iter().flatten().flatten();
    let of_partition = || {
        let real = std::fs::canonicalize(path).ok()?;
        let link = links.map(|l| l.path()).find(|l| std::fs::canonicalize(l).is_ok_and(|l| l == real))?;
        Some(link.file_name()?.to_string_lossy().into_owned())
    };
    of_volume.or_else(of_partition).unwrap_or_default()
}

/// What LVM says of a volume; nothing if it is none, or there is no LVM.
fn volume(path: &Path) -> BTreeMap<String, String> {
    let is_mapped = devices::is_device(path) && Device::beneath(path).is_some_and(|d| d.name.starts_with("dm-"));
    if !is_mapped {
        return BTreeMap::new();
    }
    let fields = "lv_name,vg_name,lv_path,lv_uuid,lv_size";
    let asked = Command::new("lvs").args(["--reportformat", "json", "--units", "b", "--nosuffix", "-o", fields]).arg(path).output();
    let Ok(answer) = asked.map(|out| serde_json::from_slice::<Value>(&out.stdout).unwrap_or_default()) else { return BTreeMap::new() };
    let found = answer["report"][0]["lv"][0].as_object().cloned().unwrap_or_default();
    found.into_iter().map(|(k, v)| (k, v.as_str().unwrap_or_default().to_owned())).collect()
}

fn size(path: &Path) -> u64 {
    match devices::is_device(path) {
        true => Device::beneath(path).and_then(|d| d.size()).unwrap_or(0),
        false => std::fs::metadata(path).map_or(0, |m| m.len()),
    }
}

/// The table for people.
fn pretty(report: &BTreeMap<String, Vec<Value>>) -> String {
    let mut out = String::new();
    for (id, parts) in report {
        out += &format!("\n\n{:=^20}\n", format!(" osd.{id} "));
        for part in parts {
            out += &format!("\n  {: <13} {}\n", format!("[{}]", part["type"].as_str().unwrap_or_default()), part["path"].as_str().unwrap_or_default());
            for (tag, value) in part["tags"].as_object().into_iter().flatten() {
                let name = tag.rsplit('.').next().unwrap_or_default().replace('_', " ");
                out += &format!("\n      {name: <25} {}", value.as_str().unwrap_or_default());
            }
            let disks: Vec<&str> = part["devices"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if !disks.is_empty() {
                out += &format!("\n      {: <25} {}", "devices", disks.join(","));
            }
            out.push('\n');
        }
    }
    out
}
