//! What `ceph osd metadata` tells of an OSD's devices, under Ceph's names; and what it has no names for, under `cuttlebone_`.
//!
//! Upstream: BlueStore::collect_metadata, KernelDevice::collect_metadata, OSD::_collect_metadata.

use super::Home;
use super::devices::{self, Device};
use super::place::{BLOCK, DB, DB_DEVICE, WAL};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

type Facts = BTreeMap<String, String>;

/// `class`: what the OSD is by its data device, `hdd` or `ssd`.
pub fn of_devices(home: &Home, class: &str, data_size: u64) -> Facts {
    let mut out = Facts::new();
    let (db, wal) = (home.has_db_apart(), home.has_wal_apart());
    let flag = |yes: bool| if yes { "1" } else { "0" }.to_owned();
    let block = home.path(BLOCK);
    put_device(&mut out, ("bluestore_bdev_", "cuttlebone_bdev_"), &block, Some(data_size));
    // What the OSD goes by: of a file, it may have been told.
    out.insert("bluestore_bdev_type".into(), class.into());
    out.insert("bluestore_bdev_rotational".into(), flag(class == "hdd"));
    let db_path = if db { home.link(DB_DEVICE).unwrap_or_else(|| home.path(DB)) } else { block.clone() };
    if db {
        put_device(&mut out, ("bluefs_db_", "cuttlebone_db_"), &db_path, None);
    }
    if wal {
        put_device(&mut out, ("bluefs_wal_", "cuttlebone_wal_"), &home.path(WAL), None);
    }
    let journal = if wal { home.path(WAL) } else { home.path(DB) };
    let journal_turns = Device::beneath(&journal).map_or(class == "hdd", |d| turns(&d));
    out.extend([
        ("bluefs".into(), "1".into()),
        ("bluestore_min_alloc_size".into(), store::BLOCK.to_string()),
        ("bluefs_dedicated_db".into(), flag(db)),
        ("bluefs_dedicated_wal".into(), flag(wal)),
        ("bluefs_single_shared_device".into(), flag(!db && !wal)),
        ("rotational".into(), flag(class == "hdd")),
        ("journal_rotational".into(), flag(journal_turns)),
        ("default_device_class".into(), class.into()),
    ]);
    put_disks(&mut out, &[block, home.path(DB), journal]);
    out
}

/// Does anything it is made of turn?
fn turns(device: &Device) -> bool {
    device.rotational() || device.disks().iter().any(Device::rotational)
}

/// One device, or the file that stands for it. `names`: the beginnings of Ceph's keys, and of ours.
fn put_device(out: &mut Facts, names: (&str, &str), path: &Path, size: Option<u64>) {
    let is_device = devices::is_device(path);
    let mut put = |key: &str, value: Option<String>| {
        out.extend(value.map(|value| (format!("{}{key}", names.0), value)));
    };
    let device = Device::beneath(path);
    let own_size = || if is_device { device.as_ref().and_then(Device::size) } else { size_of_place(path) };
    put("access_mode", Some(if is_device { "blk" } else { "file" }.into()));
    put("driver", Some("KernelDevice".into()));
    put("block_size", Some("4096".into()));
    put("size", size.or_else(own_size).map(|n| n.to_string()));
    let real = fs::canonicalize(path).map(|p| p.display().to_string());
    put("path", real.ok());
    let Some(device) = device else { return };
    let rotational = turns(&device);
    put("rotational", Some(if rotational { "1" } else { "0" }.into()));
    put("type", Some(if rotational { "hdd" } else { "ssd" }.into()));
    put("support_discard", Some(if device.can_discard() { "1" } else { "0" }.into()));
    if is_device {
        put("dev_node", Some(device.node()));
        put("partition_path", Some(device.node()));
    }
    let disks = device.disks();
    let names_of = disks.iter().map(|d| d.name.clone()).collect::<Vec<_>>().join(",");
    put("devices", Some(names_of).filter(|n| !n.is_empty()));
    let one = match disks.as_slice() {
        [one] => one,
        _ => &device,
    };
    put("model", one.model());
    put("serial", one.serial());
    let attached = one.attached();
    let ours = [("bus", attached.bus), ("controller", attached.controller), ("usb_product", attached.usb_product), ("usb_mbps", attached.usb_mbps)];
    out.extend(ours.into_iter().filter_map(|(key, value)| Some((format!("{}{key}", names.1), value?))));
}

/// A file's length, or what a directory's file system has in all.
fn size_of_place(path: &Path) -> Option<u64> {
    let meta = fs::metadata(path).ok()?;
    if meta.is_file() {
        return Some(meta.len());
    }
    let fs = rustix::fs::statvfs(path).ok()?;
    Some(fs.f_blocks.saturating_mul(fs.f_frsize))
}

/// All disks of an OSD: their names, ids, and where they are plugged in.
fn put_disks(out: &mut Facts, places: &[PathBuf]) {
    let mut disks: Vec<Device> = places.iter().filter_map(|p| Device::beneath(p)).flat_map(|d| d.disks()).collect();
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    disks.dedup_by(|a, b| a.name == b.name);
    let list = |of: &dyn Fn(&Device) -> Option<String>| disks.iter().filter_map(of).collect::<Vec<_>>().join(",");
    out.insert("devices".into(), list(&|d| Some(d.name.clone())));
    out.insert("device_ids".into(), list(&|d| Some(format!("{}={}", d.name, d.id()?))));
    out.insert("device_paths".into(), list(&|d| Some(format!("{}={}", d.name, d.by_path()?.display()))));
}
