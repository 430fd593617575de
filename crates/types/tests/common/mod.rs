//! What the judges from outside share.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The releases whose objects there are, oldest first.
pub const RELEASES: [&str; 3] = ["16.2.0", "18.2.0", "20.3.0"];

/// Where the corpus lies, unpacked on first use: the whole one (CUTTLEBONE_CORPUS, or beside the repository), or else
/// the maps of it that we keep.
pub fn corpus() -> PathBuf {
    let whole = std::env::var_os("CUTTLEBONE_CORPUS").map_or_else(|| PathBuf::from("../../../shared/corpus"), PathBuf::from);
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    if whole.is_dir() {
        println!("corpus: {}", whole.display());
        return unpacked(&tmp.join("corpus"), RELEASES.map(|r| whole.join(format!("{r}.tar.xz"))));
    }
    println!("corpus: only the maps in testdata (CUTTLEBONE_CORPUS may name the whole)");
    unpacked(&tmp.join("corpus-maps"), ["testdata/corpus/maps.tar.gz".into()])
}

/// `dir` with the archives unpacked in it. Several test processes may do so at once: each works in a directory of its
/// own, and the first rename decides.
fn unpacked<const N: usize>(dir: &Path, archives: [PathBuf; N]) -> PathBuf {
    if dir.is_dir() {
        return dir.to_owned();
    }
    let scratch = dir.with_extension(std::process::id().to_string());
    std::fs::create_dir_all(&scratch).expect("scratch directory");
    for archive in archives {
        let tar = Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&scratch).status();
        assert!(tar.is_ok_and(|status| status.success()), "cannot unpack {}", archive.display());
    }
    if std::fs::rename(&scratch, dir).is_err() {
        std::fs::remove_dir_all(&scratch).expect("scratch directory");
    }
    dir.to_owned()
}
