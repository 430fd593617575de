//! The text form against `crushtool -d` and `-c`, and our reading of what each wrote.

mod common;
mod stock;

use common::{Rng, Taste, random_map};
use crush::{CrushMap, features};
use stock::{crushtool, maps_wanted, temp};

/// A random map whose weights survive three decimals and whose every item has a name, as text maps demand.
fn textual_map(rng: &mut Rng) -> CrushMap {
    let classes = rng.one_in(2);
    // No trees with classes: stock leaves memory it never wrote in their shadows.
    let algs: &[u8] = if classes { &[2, 4, 5, 5] } else { &[2, 3, 4, 5] };
    let taste = Taste { algs, classes, weight_sets: rng.one_in(3) };
    random_map(rng, taste)
}

/// The first line in which two maps' debug prints differ, so that a failure can be read.
fn differing_line(ours: &CrushMap, theirs: &CrushMap) -> Option<(String, String)> {
    let (ours, theirs) = (format!("{ours:#?}"), format!("{theirs:#?}"));
    let both = ours.lines().zip(theirs.lines()).find(|(a, b)| a != b)?;
    Some((both.0.to_owned(), both.1.to_owned()))
}

#[test]
fn we_print_maps_as_crushtool_does_and_read_them_as_it_does() {
    for i in 0..maps_wanted(60) {
        let mut rng = Rng(0x7e87 << 32 | i);
        let map = textual_map(&mut rng);
        let (bin, txt, back) = (temp(&format!("t{i}.bin")), temp(&format!("t{i}.txt")), temp(&format!("t{i}.back")));
        std::fs::write(&bin, denc::to_bytes(&map, features::ALL)).unwrap();
        let Some(stock) = crushtool(&["-d", bin.to_str().unwrap()]) else { return };
        let ours = map.decompile().to_string();
        assert_eq!(ours, String::from_utf8(stock.stdout).unwrap(), "{bin:?}");

        std::fs::write(&txt, &ours).unwrap();
        let compiled = crushtool(&["-c", txt.to_str().unwrap(), "-o", back.to_str().unwrap()]).unwrap();
        assert!(compiled.status.success(), "{txt:?}: {}", String::from_utf8_lossy(&compiled.stderr));
        let stock = std::fs::read(&back).unwrap();
        let again = CrushMap::compile(&ours).unwrap_or_else(|e| panic!("{txt:?}: {e}"));
        let again_bytes = denc::to_bytes(&again, features::ALL);
        let theirs: CrushMap = denc::from_bytes(&stock.clone().into()).unwrap();
        let first_difference = differing_line(&again, &theirs);
        assert_eq!(first_difference, None, "{txt:?}");
        assert_eq!(again_bytes, stock, "{txt:?}");
        for path in [bin, txt, back] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

#[test]
fn uniform_buckets_survive_text_too() {
    let mut rng = Rng(77);
    for _ in 0..50 {
        let map = random_map(&mut rng, Taste { algs: &[1, 5], classes: false, weight_sets: false });
        let rounded = CrushMap::compile(&map.decompile().to_string()).unwrap();
        assert_eq!(CrushMap::compile(&rounded.decompile().to_string()).unwrap(), rounded);
    }
}

#[test]
fn errors_name_their_line() {
    for (text, wanted) in [
        ("type 0 osd\nhost a {\n}\n", "line 2: 'host' is not defined"),
        ("type 0 osd\ntype 1 host\nhost a {\n id -1\n alg straw2\n item osd.0\n}\n", "line 6: 'osd.0' is not defined"),
        ("tunable nonsense 1\n", "line 1: tunable nonsense not recognized"),
        ("device 0 osd.0\n\ndevice 1 osd.0\n", "line 3: 'osd.0' is defined twice"),
        ("device x osd.0", "line 1: a number expected, 'x' found"),
        ("type 1 host\nhost a {\n alg straw2\n item a\n}", "line 2: that would make a bucket contain itself"),
        ("rule r {", "line 1: id expected, 'the end' found"),
    ] {
        assert_eq!(CrushMap::compile(text).unwrap_err().to_string(), wanted);
    }
}
