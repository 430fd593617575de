//! What the judges from outside share.

use std::path::PathBuf;
use std::process::Command;

/// Where the corpus lies, unpacked on first use; `None` (and a word about it) without one.
pub fn corpus() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let packed = std::env::var_os("CUTTLEBONE_CORPUS").map_or_else(|| root.join("../shared/corpus"), PathBuf::from);
    if !packed.is_dir() {
        println!("skipped: no corpus at {} (set CUTTLEBONE_CORPUS)", packed.display());
        return None;
    }
    let out = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("corpus");
    for release in RELEASES {
        let marker = out.join(release).join("objects");
        if marker.is_dir() {
            continue;
        }
        // Another test process may be unpacking too: each works in its own directory, the rename decides.
        let scratch = out.join(format!(".{release}.{}", std::process::id()));
        std::fs::create_dir_all(&scratch).expect("scratch directory");
        let archive = packed.join(format!("{release}.tar.xz"));
        let ok = Command::new("tar").arg("xJf").arg(&archive).arg("-C").arg(&scratch).status().is_ok_and(|s| s.success());
        assert!(ok, "cannot unpack {}", archive.display());
        let _lost_the_race = std::fs::rename(scratch.join(release), out.join(release));
        let _ = std::fs::remove_dir_all(&scratch);
    }
    Some(out)
}

/// The releases whose objects there are, oldest first.
pub const RELEASES: [&str; 3] = ["16.2.0", "18.2.0", "20.3.0"];
