//! Block devices as the kernel describes them (sysfs), and what lies on them.
//!
//! Upstream: src/common/blkdev.cc and src/blk/kernel/KernelDevice.cc for what is told of a device, and how ids are put together.

use anyhow::{Context, Result, bail, ensure};
use io::kv::JournalLabel;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// Looked at to see whether there is anything, and wiped, at both ends.
const ENDS: u64 = 1 << 20;
/// Wiped at the beginning, as stock does.
const WIPED: u64 = 10 << 20;

/// What a file or device is to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Nothing,
    /// An OSD's data.
    Data(Uuid),
    /// An OSD's journal.
    Journal(Uuid),
    Something,
}

/// A device, or the one beneath a file's file system.
#[derive(Debug, Clone)]
pub struct Device {
    /// `sda1`.
    pub name: String,
    /// Its directory in sysfs, links resolved.
    sys: PathBuf,
    dev: u64,
}

impl Device {
    /// The device that `path` is, or that its file system is on. `None` for file systems without one.
    pub fn beneath(path: &Path) -> Option<Device> {
        let meta = fs::metadata(path).ok()?;
        Device::numbered(if meta.file_type().is_block_device() { meta.rdev() } else { meta.dev() })
    }

    fn numbered(dev: u64) -> Option<Device> {
        let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
        let sys = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        let name = sys.file_name()?.to_str()?.replace('!', "/");
        Some(Device { name, sys, dev })
    }

    /// `/dev/sda1`.
    pub fn node(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// The whole disk: itself unless it is a partition.
    fn disk(&self) -> &Path {
        match self.sys.join("partition").exists() {
            true => self.sys.parent().unwrap_or(&self.sys),
            false => &self.sys,
        }
    }

    fn said(&self, file: &str) -> Option<String> {
        said(&self.disk().join(file))
    }

    /// Does a head move? False if nobody says.
    pub fn rotational(&self) -> bool {
        self.said("queue/rotational").is_some_and(|s| s == "1")
    }

    pub fn can_discard(&self) -> bool {
        self.said("queue/discard_max_bytes").is_some_and(|s| s != "0")
    }

    pub fn size(&self) -> Option<u64> {
        Some(said(&self.sys.join("size"))?.parse::<u64>().ok()? * 512)
    }

    /// Disks that it is made of: those beneath a volume, or the one that it is part of.
    pub fn disks(&self) -> Vec<Device> {
        let mut out = Vec::new();
        self.gather_disks(&mut out, 0);
        out.sort_by(|a, b| a.name.cmp(&b.name));
        out.dedup_by(|a, b| a.name == b.name);
        out
    }

    fn gather_disks(&self, out: &mut Vec<Device>, depth: u32) {
        let slaves = fs::read_dir(self.sys.join("slaves")).into_iter().flatten().flatten();
        let beneath: Vec<Device> = slaves.filter_map(|s| Device::in_sys(&s.path())).collect();
        match beneath.is_empty() || depth > 8 {
            true => out.extend(Device::in_sys(self.disk())),
            false => beneath.iter().for_each(|d| d.gather_disks(out, depth + 1)),
        }
    }

    fn in_sys(dir: &Path) -> Option<Device> {
        let numbers = said(&dir.join("dev"))?;
        let (major, minor) = numbers.split_once(':')?;
        Device::numbered(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    pub fn model(&self) -> Option<String> {
        self.said("device/model")
    }

    pub fn serial(&self) -> Option<String> {
        self.said("device/serial").or_else(|| self.said("serial"))
    }

    /// How it is attached.
    pub fn attached(&self) -> Attached {
        attached(self.disk())
    }

    /// Name and serial number, as Ceph puts them together; `None` if the device has none.
    pub fn id(&self) -> Option<String> {
        let udev = fs::read_to_string(format!("/run/udev/data/b{}:{}", rustix::fs::major(self.dev), rustix::fs::minor(self.dev)));
        device_id(&udev.unwrap_or_default(), self.model(), self.serial(), self.said("device/vendor"))
    }

    /// Of a loop device, the file.
    pub fn backing_file(&self) -> Option<PathBuf> {
        said(&self.sys.join("loop/backing_file")).map(PathBuf::from)
    }

    /// A link that names it by where it is plugged in.
    pub fn by_path(&self) -> Option<PathBuf> {
        link_to(Path::new("/dev/disk/by-path"), self)
    }

    /// A name that stays when devices are found in another order; its node if there is none.
    pub fn stable_name(&self) -> PathBuf {
        let stable = ["/dev/disk/by-partuuid", "/dev/disk/by-id", "/dev/mapper"].iter().find_map(|dir| link_to(Path::new(dir), self));
        stable.unwrap_or_else(|| self.node().into())
    }
}

fn said(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    Some(text.trim().to_owned()).filter(|t| !t.is_empty())
}

/// The first link in a directory that leads to this device.
fn link_to(dir: &Path, device: &Device) -> Option<PathBuf> {
    let mut links: Vec<PathBuf> = fs::read_dir(dir).ok()?.flatten().map(|e| e.path()).collect();
    links.sort();
    links.into_iter().find(|l| fs::metadata(l).is_ok_and(|m| m.file_type().is_block_device() && m.rdev() == device.dev))
}

/// The way from the processor to a disk.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Attached {
    /// `usb`, `nvme`, `ata`, `sas`, `scsi`, `virtio`, `mmc`.
    pub bus: Option<String>,
    /// The last PCI device on the way: disks behind the same one share what it can do.
    pub controller: Option<String>,
    /// What a USB bridge calls itself, and megabits per second of its connection.
    pub usb_product: Option<String>,
    pub usb_mbps: Option<String>,
}

fn attached(disk: &Path) -> Attached {
    let mut out = Attached::default();
    let parts: Vec<&str> = disk.iter().filter_map(|p| p.to_str()).collect();
    let has = |start: &str| parts.iter().any(|p| p.strip_prefix(start).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    let kinds = [("usb", "usb"), ("nvme", "nvme"), ("ata", "ata"), ("end_device-", "sas"), ("virtio", "virtio"), ("mmc", "mmc"), ("host", "scsi")];
    out.bus = kinds.iter().find(|(start, _)| has(start)).map(|(_, bus)| (*bus).into());
    out.controller = parts.iter().rev().find(|p| is_pci(p)).map(|p| (*p).into());
    if out.bus.as_deref() == Some("usb") {
        let bridge = disk.ancestors().find(|dir| dir.join("idVendor").exists());
        let of = |file: &str| bridge.and_then(|dir| said(&dir.join(file)));
        out.usb_product = match (of("manufacturer"), of("product")) {
            (Some(maker), Some(product)) => Some(format!("{maker} {product}")),
            (maker, product) => product.or(maker).or_else(|| Some(format!("{}:{}", of("idVendor")?, of("idProduct")?))),
        };
        out.usb_mbps = of("speed");
    }
    out
}

/// `0000:00:14.0`.
fn is_pci(part: &str) -> bool {
    part.len() == 12 && part.char_indices().all(|(at, c)| match at {
        4 | 7 => c == ':',
        10 => c == '.',
        _ => c.is_ascii_hexdigit(),
    })
}

/// An id from udev's properties (`E:ID_MODEL=...`), or from what the kernel says.
fn device_id(udev: &str, model: Option<String>, serial: Option<String>, vendor: Option<String>) -> Option<String> {
    let props: BTreeMap<&str, &str> = udev.lines().filter_map(|l| l.strip_prefix("E:")?.split_once('=')).collect();
    let prop = |name: &str| props.get(name).map(|v| (*v).to_owned()).filter(|v| !v.is_empty());
    let model = prop("ID_MODEL").filter(|m| !m.starts_with("LVM PV ")).or(model);
    let serial = prop("ID_SCSI_SERIAL").or_else(|| prop("ID_SERIAL_SHORT")).or(serial);
    // Vendors "ATA" and the like are of the bus, not of the disk.
    let vendor = prop("ID_VENDOR").or(vendor).map(|v| v.trim().to_owned()).filter(|v| !matches!(v.as_str(), "ATA" | "0x1af4"));
    let id = match (vendor, model, serial) {
        (Some(v), Some(m), Some(s)) if !m.starts_with(&v) => format!("{v}_{m}_{s}"),
        (_, Some(m), Some(s)) => format!("{m}_{s}"),
        _ => prop("ID_SERIAL")?,
    };
    Some(id.split_whitespace().collect::<Vec<_>>().join("_"))
}

/// Is it a block device?
pub fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

/// `vg/lv` for a logical volume, or a path as it is.
pub fn named(text: &str) -> PathBuf {
    let path = PathBuf::from(text);
    let volume = Path::new("/dev").join(text);
    match text.starts_with('/') || path.exists() || !volume.exists() {
        true => path,
        false => volume,
    }
}

/// What is on a device, or in a file. Errors: it cannot be read.
pub fn content(path: &Path) -> Result<Content> {
    let mut file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    let size = file.seek(SeekFrom::End(0))?;
    let mut start = read_at(&mut file, 0, ENDS.min(size))?;
    if let Some(label) = JournalLabel::parse(&start) {
        return Ok(Content::Journal(Uuid::from_bytes(label.owner)));
    }
    if start.starts_with(b"cuttlebn")
        && let Some(uuid) = start.get(12..28).and_then(|u| Uuid::from_slice(u).ok())
    {
        return Ok(Content::Data(uuid));
    }
    start.extend(read_at(&mut file, size.saturating_sub(ENDS), ENDS.min(size))?);
    Ok(if start.iter().any(|b| *b != 0) { Content::Something } else { Content::Nothing })
}

fn read_at(file: &mut File, at: u64, len: u64) -> Result<Vec<u8>> {
    let mut out = vec![0; len as usize];
    file.seek(SeekFrom::Start(at))?;
    file.read_exact(&mut out)?;
    Ok(out)
}

/// Errors: somebody has it mounted, or a daemon has it open. Where it is not known it is taken as free.
pub fn check_free(path: &Path) -> Result<()> {
    const O_EXCL: i32 = 0o200;
    if !path.exists() {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    options.read(true);
    if is_device(path) {
        options.custom_flags(O_EXCL);
    }
    let file = match options.open(path) {
        Err(e) if e.raw_os_error() == Some(16) => bail!("{} is in use: mounted, or part of a volume group or an array", path.display()),
        other => other.with_context(|| format!("opening {}", path.display()))?,
    };
    let locked = rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive);
    ensure!(locked.is_ok(), "{} is in use: a daemon has it open", path.display());
    Ok(())
}

/// Takes away everything by which anybody would know what was there. Errors: it is in use.
pub fn wipe(path: &Path) -> Result<()> {
    check_free(path)?;
    let mut file = OpenOptions::new().write(true).open(path).with_context(|| format!("opening {}", path.display()))?;
    let size = file.seek(SeekFrom::End(0))?;
    if !is_device(path) {
        file.set_len(0)?;
        file.set_len(size)?;
        return Ok(file.sync_all()?);
    }
    let zeros = vec![0; ENDS as usize];
    let start = (0..WIPED.min(size)).step_by(ENDS as usize);
    for at in start.chain([size.saturating_sub(ENDS)]) {
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&zeros[..ENDS.min(size - at) as usize])?;
    }
    file.sync_all().with_context(|| format!("wiping {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_a_disk_tells_its_bus_and_controller() {
        let of = |path: &str| {
            let a = attached(Path::new(path));
            (a.bus.unwrap_or_default(), a.controller.unwrap_or_default())
        };
        let usb = "/sys/devices/pci0000:00/0000:00:14.0/usb2/2-3/2-3:1.0/host6/target6:0:0/6:0:0:0/block/sdb";
        assert_eq!(of(usb), ("usb".into(), "0000:00:14.0".into()));
        assert_eq!(of("/sys/devices/pci0000:00/0000:00:1d.0/0000:03:00.0/nvme/nvme0/nvme0n1"), ("nvme".into(), "0000:03:00.0".into()));
        assert_eq!(of("/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/target0:0:0/0:0:0:0/block/sda"), ("ata".into(), "0000:00:17.0".into()));
        assert_eq!(of("/sys/devices/virtual/block/loop0"), (String::new(), String::new()));
    }

    #[test]
    fn ids_are_put_together_as_stock_does() {
        let udev = "S:disk/by-id/x\nE:ID_MODEL=HUH728080ALE600\nE:ID_SERIAL_SHORT=VKKH0T5X\nE:ID_VENDOR=ATA\n";
        assert_eq!(device_id(udev, None, None, None).unwrap(), "HUH728080ALE600_VKKH0T5X");
        assert_eq!(device_id("", Some("Ultra Fit".into()), Some("4C5".into()), Some("SanDisk ".into())).unwrap(), "SanDisk_Ultra_Fit_4C5");
        assert_eq!(device_id("E:ID_SERIAL=abc", None, None, None).unwrap(), "abc");
        assert_eq!(device_id("", Some("m".into()), None, None), None);
    }

    #[test]
    fn what_is_on_a_disk_is_seen_and_wiped() {
        let path = std::env::temp_dir().join(format!("cuttlebone-content-{}", std::process::id()));
        let put = |at: u64, bytes: &[u8]| {
            let mut f = OpenOptions::new().write(true).create(true).truncate(false).open(&path).unwrap();
            f.set_len(16 << 20).unwrap();
            f.seek(SeekFrom::Start(at)).unwrap();
            f.write_all(bytes).unwrap();
        };
        put(0, b"");
        let empty = content(&path).unwrap();
        put((16 << 20) - 5, b"x");
        let last = content(&path).unwrap();
        put(0, b"cuttlebn\x01\0\0\0abcdefghijklmnop");
        let data = content(&path).unwrap();
        wipe(&path).unwrap();
        let wiped = content(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!((empty, last, wiped), (Content::Nothing, Content::Something, Content::Nothing));
        assert_eq!(data, Content::Data(Uuid::from_bytes(*b"abcdefghijklmnop")));
    }
}
