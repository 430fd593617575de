//! Maps as stock releases wrote them are read and written again to the same bytes.
//!
//! Needs the object corpus: `CUTTLEBONE_CORPUS`, or `shared/corpus` beside or above the checkout. Skips without it.

use crush::{CrushMap, features};
use std::path::{Path, PathBuf};
use std::process::Command;

fn corpus() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("CUTTLEBONE_CORPUS") {
        return Some(dir.into());
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().map(|dir| dir.join("shared/corpus")).find(|dir| dir.is_dir())
}

#[test]
fn stock_maps_are_written_again_to_the_same_bytes() {
    let Some(corpus) = corpus() else {
        eprintln!("skipped: no object corpus (set CUTTLEBONE_CORPUS)");
        return;
    };
    let mut seen = 0;
    for release in ["16.2.0", "18.2.0", "20.3.0"] {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("corpus").join(release);
        std::fs::create_dir_all(&dir).unwrap();
        let archive = corpus.join(format!("{release}.tar.xz"));
        let objects = format!("{release}/objects/CrushWrapper");
        let status = Command::new("tar").arg("xf").arg(&archive).arg("-C").arg(&dir).arg(&objects).status().unwrap();
        assert!(status.success(), "tar of {}", archive.display());
        for entry in std::fs::read_dir(dir.join(objects)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = denc::Bytes::from(std::fs::read(&path).unwrap());
            let map: CrushMap = denc::from_bytes(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let again = denc::to_bytes(&map, features::ALL);
            assert_eq!(again, bytes, "{}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 30);
}
