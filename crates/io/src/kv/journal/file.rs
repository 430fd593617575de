//! The ring in a file that has its space from the beginning, or on a device.
//!
//! Why zeros are written ahead of a file's first lap: space that is only reserved has to be marked as written with each flush,
//! which is a commit of the file system's own log. And not all at once: a new store is to be there at once.
//!
//! A device has a label in its first page, which says whose journal it is (docs/formats/store.md), and the ring behind it. What the
//! device held before needs no zeros: a frame of another journal has another run's number.

use super::ring::{Medium, PAGE};
use crate::block::{BufferPool, lock, open_direct};
use denc::Decoder;
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Zeros written ahead at a time.
const AHEAD_BYTES: u64 = 1 << 20;
const LABEL_MAGIC: &[u8; 8] = b"cuttlebw";
const LABEL_VERSION: u32 = 1;

/// What a device that is a journal says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Label {
    /// The uuid of the OSD.
    pub owner: [u8; 16],
    /// Bytes of the ring.
    pub size: u64,
}

impl Label {
    /// The first bytes of a device.
    pub fn parse(page: &[u8]) -> Option<Label> {
        let mut d = Decoder::new(page);
        let magic: [u8; 8] = d.array().ok()?;
        let version: u32 = d.get().ok()?;
        let label = Label { owner: d.array().ok()?, size: d.get().ok()? };
        let sum: u32 = d.get().ok()?;
        (magic == *LABEL_MAGIC && version == LABEL_VERSION && sum == denc::crc32c(page.get(..36)?)).then_some(label)
    }

    fn to_page(self) -> Vec<u8> {
        let mut page = LABEL_MAGIC.to_vec();
        page.extend_from_slice(&LABEL_VERSION.to_le_bytes());
        page.extend_from_slice(&self.owner);
        page.extend_from_slice(&self.size.to_le_bytes());
        page.extend_from_slice(&denc::crc32c(&page).to_le_bytes());
        page.resize(PAGE as usize, 0);
        page
    }
}

pub struct RingFile {
    file: File,
    /// Where the ring begins.
    base: u64,
    size: u64,
    /// In the first lap: zeros have been written up to here.
    ahead: u64,
    pool: BufferPool,
}

/// Bytes that a device has for a ring; `None` if it is no device.
pub fn device_room(path: &Path) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    match file.metadata()?.file_type().is_block_device() {
        true => Ok(Some((file.seek(SeekFrom::End(0))?.saturating_sub(PAGE)) / PAGE * PAGE)),
        false => Ok(None),
    }
}

impl RingFile {
    /// Makes the file, or makes it anew; or labels the device. Errors: no space; then there is no file.
    pub fn create(path: &Path, size: u64, owner: [u8; 16]) -> io::Result<Self> {
        match path.exists().then(|| device_room(path)).transpose()?.flatten() {
            Some(room) if room < size => {
                return Err(io::Error::new(io::ErrorKind::StorageFull, format!("the device has room for {room} bytes, the journal takes {size}")));
            }
            Some(_) => {
                // Nobody else may use it, nor have it mounted.
                let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path)?;
                lock(&file)?;
                file.write_all_at(&Label { owner, size }.to_page(), 0)?;
                file.sync_all()?;
            }
            None => create_file(path, size)?,
        }
        Self::open(path, size, owner)
    }

    /// For writing, past the page cache where the file system has that. Errors: a device that is another OSD's, or in use.
    pub fn open(path: &Path, size: u64, owner: [u8; 16]) -> io::Result<Self> {
        let file = open_direct(path)?.0;
        let base = check_label(&file, size, owner)?;
        if base > 0 {
            lock(&file)?;
        }
        Ok(RingFile { file, base, size, ahead: 0, pool: BufferPool::default() })
    }

    /// For reading at opening. Errors: it is missing, not as long as the ring, or another OSD's.
    pub fn open_to_read(path: &Path, size: u64, owner: [u8; 16]) -> io::Result<Self> {
        let file = File::open(path)?;
        // All of it that was ever written will be read: the disk may begin. Without an end, that is all of it.
        let end = file_offset(&file, 0, libc::SEEK_HOLE).unwrap_or(0);
        // SAFETY: no pointers are passed; the descriptor is ours. A hint: whatever comes of it.
        let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, end as i64, libc::POSIX_FADV_WILLNEED) };
        let base = check_label(&file, size, owner)?;
        match file.metadata()?.len() {
            len if base == 0 && len != size => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{len} bytes long instead of {size}"))),
            _ => Ok(RingFile { file, base, size, ahead: 0, pool: BufferPool::default() }),
        }
    }

    /// Writes zeros from `off` to `end` and beyond, unless it has been done.
    fn write_ahead(&mut self, off: u64, end: u64) -> io::Result<()> {
        if self.base > 0 || end <= self.ahead {
            return Ok(());
        }
        let from = self.ahead.max(off);
        let to = (from + AHEAD_BYTES).max(end).min(self.size);
        let mut zeros = self.pool.get((to - from) as usize);
        zeros.as_mut().fill(0);
        self.file.write_all_at(zeros.as_ref(), from)?;
        self.ahead = to;
        Ok(())
    }
}

/// Where the ring begins: behind the label of a device, which has to be ours.
fn check_label(file: &File, size: u64, owner: [u8; 16]) -> io::Result<u64> {
    if !file.metadata()?.file_type().is_block_device() {
        return Ok(0);
    }
    // The descriptor may be one for direct I/O.
    let mut page = BufferPool::default().get(PAGE as usize);
    file.read_exact_at(page.as_mut(), 0)?;
    let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
    match Label::parse(page.as_ref()) {
        None => wrong("the device is no OSD's journal: is it the right one?".into()),
        Some(label) if label.owner != owner => wrong(format!("the device is the journal of the OSD with uuid {}, not ours", shown(label.owner))),
        Some(label) if label.size != size => wrong(format!("the device has a journal of {} bytes instead of {size}", label.size)),
        Some(_) => Ok(PAGE),
    }
}

/// As uuids are written.
fn shown(owner: [u8; 16]) -> String {
    let hex: String = owner.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// Where the next data or the next hole is, from `off` on. Errors: ENXIO if there is no more data, or what the file system says.
fn file_offset(file: &File, off: u64, whence: i32) -> io::Result<u64> {
    // SAFETY: no pointers are passed; the descriptor is ours.
    let found = unsafe { libc::lseek(file.as_raw_fd(), off as i64, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

fn create_file(path: &Path, size: u64) -> io::Result<()> {
    let make = || {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        reserve(&file, size)?;
        file.sync_all()?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    make().inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

/// Space for the whole file, or where the file system cannot reserve, its length.
fn reserve(file: &File, size: u64) -> io::Result<()> {
    // SAFETY: no pointers are passed; the descriptor is ours.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, size as i64) } {
        0 => Ok(()),
        libc::EOPNOTSUPP | libc::EINVAL => file.set_len(size),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

impl Medium for RingFile {
    fn read(&self, off: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, self.base + off)
    }

    fn written_from(&self, off: u64) -> u64 {
        match file_offset(&self.file, self.base + off, libc::SEEK_DATA) {
            Ok(found) => found - self.base,
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => self.size,
            Err(_) => off,
        }
    }

    fn write(&mut self, off: u64, data: &[u8], behind_is_free: bool) -> io::Result<()> {
        if behind_is_free {
            self.write_ahead(off, off + data.len() as u64)?;
        }
        // Direct I/O wants aligned memory; what is copied here has been put together in small pieces.
        let mut aligned = self.pool.get(data.len());
        aligned.as_mut().copy_from_slice(data);
        self.file.write_all_at(aligned.as_ref(), self.base + off)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_again_and_a_damaged_one_is_none() {
        let label = Label { owner: [7; 16], size: 64 << 20 };
        let mut page = label.to_page();
        assert_eq!(Label::parse(&page), Some(label));
        page[20] ^= 1;
        assert_eq!(Label::parse(&page), None);
        assert_eq!(Label::parse(b"cuttlebw"), None);
        assert_eq!(shown([0xab; 16]), "abababab-abab-abab-abab-abababababab");
    }
}
