//! Maps as stock releases wrote them (`testdata/corpus/RELEASE/HASH`, from the public ceph-object-corpus) are read and
//! written again to the same bytes.

use crush::{CrushMap, features};

#[test]
fn stock_maps_are_written_again_to_the_same_bytes() {
    let mut seen = 0;
    for release in ["16.2.0", "18.2.0", "20.3.0"] {
        let dir = format!("testdata/corpus/{release}");
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let bytes = denc::Bytes::from(std::fs::read(&path).unwrap());
            let map: CrushMap = denc::from_bytes(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert_eq!(denc::to_bytes(&map, features::ALL), bytes, "{}", path.display());
            seen += 1;
        }
    }
    assert_eq!(seen, 30);
}
