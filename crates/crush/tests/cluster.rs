//! Edits that crushtool cannot make, against those of a stock Pacific cluster: `testdata/cluster/N.bin` is its map
//! (`ceph osd getcrushmap`) before the Nth of these commands and after the one before it.

use crush::{CrushError, CrushMap, Location, Profile, features, parse_location};

fn stored(n: usize) -> CrushMap {
    let path = format!("testdata/cluster/{n}.bin");
    denc::from_bytes(&std::fs::read(path).unwrap().into()).unwrap()
}

fn loc(words: &[&str]) -> Location {
    parse_location(words).unwrap()
}

type Edit = fn(&mut CrushMap) -> Result<(), CrushError>;

#[test]
fn a_stock_cluster_makes_the_same_edits() {
    let edits: [(&str, Edit); 11] = [
        ("osd crush swap-bucket vm other-host", |m| m.swap_buckets(m.item("vm").unwrap(), m.item("other-host").unwrap())),
        ("osd crush link vm rack=r1", |m| match m.link_bucket(m.item("vm").unwrap(), &loc(&["rack=r1"])) {
            Err(CrushError::AlreadyThere) => Ok(()),
            other => panic!("{other:?}"),
        }),
        ("osd crush unlink vm r1", |m| m.remove_item_under(m.item("vm").unwrap(), m.item("r1").unwrap(), true)),
        ("osd crush class rename nvme fast", |m| m.rename_class("nvme", "fast")),
        ("osd crush rename-bucket r1 r9", |m| m.rename_item("r1", "r9")),
        ("osd crush reweight-subtree default 0.5", |m| {
            m.reweight_subtree(m.item("default").unwrap(), 0x8000, true).map(|_| ())
        }),
        ("osd crush weight-set reweight p osd.2 0.75", |m| m.reweight_in_weight_set(2, 2, &[0xc000])),
        ("osd crush set osd.2 1.5 root=default host=vm", |m| {
            m.update_item(2, 0x1_8000, "osd.2", &loc(&["root=default", "host=vm"])).map(|_| ())
        }),
        ("osd crush rm-device-class osd.2", |m| m.remove_device_class(2).map(|_| ())),
        ("osd crush rm osd.1", |m| m.remove_item(1, false)),
        ("osd crush tunables bobtail", |m| {
            m.tunables.set_profile(Profile::Bobtail);
            Ok(())
        }),
    ];
    for (n, (command, edit)) in edits.into_iter().enumerate() {
        let (mut map, after) = (stored(n), stored(n + 1));
        edit(&mut map).unwrap_or_else(|e| panic!("{command}: {e}"));
        assert_eq!(map, after, "{command}");
        assert_eq!(denc::to_bytes(&map, features::ALL), denc::to_bytes(&after, features::ALL), "{command}");
    }
}
