//! A database, or its journal, copied to another place: the first half of moving it.
//!
//! Holds: what is returned from is on disk, whole. The source is only read; whoever moves something points to the copy once it is there,
//! and removes the source then. A copy that was interrupted is begun anew.

use super::journal::{self, Label, PAGE};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

const CHUNK: usize = 1 << 20;

/// Copies every file of a database's directory into `to`, which is made. What an earlier attempt left there is replaced. Returns
/// the bytes. Errors: those of the disks; then the source is as it was.
pub fn copy_database(from: &Path, to: &Path) -> io::Result<u64> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // Directories in it are a file system's own.
        if entry.file_type()?.is_file() {
            bytes += copy_file(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    sync_dir(to)?;
    sync_dir(to.parent().unwrap_or(to))?;
    Ok(bytes)
}

/// Copies the ring of a journal that nobody writes to a file or a device. Returns the ring's bytes. Errors: a device that is too small, or in use.
pub fn copy_journal(from: &Path, to: &Path, owner: [u8; 16]) -> io::Result<u64> {
    let mut source = File::open(from)?;
    let (start, size) = match source.metadata()?.file_type().is_block_device() {
        false => (0, source.metadata()?.len()),
        true => {
            let mut page = vec![0; PAGE as usize];
            source.read_exact(&mut page)?;
            let label = Label::parse(&page).filter(|l| l.owner == owner);
            let label = label.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the device is not this OSD's journal"))?;
            (page.len() as u64, label.size)
        }
    };
    source.seek(SeekFrom::Start(start))?;
    // Made as a new journal would be, so that it has all its space.
    journal::make(to, size, owner)?;
    let is_device = journal::device_room(to)?.is_some();
    let mut options = OpenOptions::new();
    options.write(true);
    if is_device {
        options.custom_flags(libc::O_EXCL);
    }
    let mut out = options.open(to)?;
    out.seek(SeekFrom::Start(if is_device { PAGE } else { 0 }))?;
    let copied = pour(&mut source.take(size), &mut out)?;
    out.sync_all()?;
    match copied == size {
        true => Ok(size),
        false => Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("the journal has {copied} bytes instead of {size}"))),
    }
}

fn copy_file(from: &Path, to: &Path) -> io::Result<u64> {
    let mut out = OpenOptions::new().write(true).create_new(true).open(to)?;
    let n = pour(&mut File::open(from)?, &mut out)?;
    out.sync_all()?;
    Ok(n)
}

fn pour(from: &mut impl Read, to: &mut impl Write) -> io::Result<u64> {
    let mut chunk = vec![0; CHUNK];
    let mut bytes = 0;
    loop {
        let n = from.read(&mut chunk)?;
        if n == 0 {
            return Ok(bytes);
        }
        to.write_all(chunk.get(..n).unwrap_or_default())?;
        bytes += n as u64;
    }
}

/// Makes names in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
