//! How much room a directory's file system has, and how much of it the directory takes.

use std::io;
use std::path::Path;

/// Percent of the file system that are available to us, rounded down as stock does. Some network file systems do not say how large they are, and count
/// as empty.
pub fn available_percent(dir: &Path) -> io::Result<u8> {
    let fs = rustix::fs::statvfs(dir)?;
    Ok((u128::from(fs.f_bavail) * 100).checked_div(u128::from(fs.f_blocks)).unwrap_or(100) as u8)
}

/// Bytes of the files in a directory. One that goes away meanwhile, as a database's do, counts for nothing.
pub fn bytes_in(dir: &Path) -> io::Result<u64> {
    let files = std::fs::read_dir(dir)?;
    Ok(files.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_as_large_as_its_files() {
        let dir = std::env::temp_dir().join(format!("cuttlebone-room-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("a"), [0; 5]).unwrap();
        std::fs::write(dir.join("b"), [0; 7]).unwrap();
        let found = bytes_in(&dir).unwrap();
        assert!(available_percent(&dir).unwrap() <= 100);
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, 12);
        assert!(bytes_in(&dir).is_err() && available_percent(&dir).is_err(), "it is gone");
    }
}
