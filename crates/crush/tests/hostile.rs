//! Bytes and text from strangers: whatever they are, decoding ends with a map or an error, and a map so decoded can be
//! placed by, printed and edited without a panic and without end.

mod common;

use common::{KINDS, Rng, Taste, random_map};
use crush::{CrushMap, Location, features};

const TASTE: Taste = Taste { algs: &[1, 2, 3, 4, 5], classes: true, weight_sets: true };

/// Everything one can do with a map.
fn exercise(map: &CrushMap, rng: &mut Rng) {
    // Mappings that try for as long as they may are let through one at a time.
    let rules = if map.tunables.choose_total_tries > 1000 { 1 } else { 8 };
    for (rule, _) in map.iter_rules().take(rules) {
        let mapped = map.do_rule(rule, rng.next() as u32, 1 + rng.below(6), &[0x10000; 64], map.choose_args_for(0));
        assert!(mapped.len() <= 6);
        map.rule_shares(rule);
        map.parent_of_type(0, 1, Some(rule));
    }
    let text = map.decompile().to_string();
    let _ = CrushMap::compile(&text);
    map.dump_json();
    map.tree(&map.roots(), true, &|osd| osd % 2 == 0);
    map.full_location(3);
    let mut edited = map.clone();
    let loc: Location = [("root", "root0.0"), ("host", "somewhere")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    let _ = edited.insert_item(99, 0x10000, "osd.99", &loc, true);
    let _ = edited.reweight_item(1, 77, true);
    let _ = edited.remove_item(2, false);
    let _ = edited.reweight_all();
    let _ = edited.move_bucket(-2, &loc);
    assert_eq!(denc::to_bytes(map, features::ALL), denc::to_bytes(&map.clone(), features::ALL));
}

#[test]
fn changed_maps_are_refused_or_lived_with() {
    let (mut refused, mut read) = (0, 0);
    for i in 0..15 {
        let mut rng = Rng(0x4057 << 32 | i);
        let whole = denc::to_bytes(&random_map(&mut rng, TASTE), features::ALL).to_vec();
        for _ in 0..20 {
            let mut bytes = whole.clone();
            for _ in 0..1 + rng.below(4) {
                let at = rng.below(bytes.len());
                match rng.below(4) {
                    0 => bytes[at] = rng.next() as u8,
                    1 => bytes[at] ^= 1 << rng.below(8),
                    2 if at + 4 <= bytes.len() => {
                        let odd = rng.pick(&[u32::MAX, i32::MAX as u32, i32::MIN as u32, 0, 1, 65536]);
                        bytes[at / 4 * 4..][..4.min(whole.len() - at / 4 * 4)].copy_from_slice(&odd.to_le_bytes());
                    }
                    _ => bytes.truncate(at.max(1)),
                }
            }
            match denc::from_bytes::<CrushMap>(&bytes.into()) {
                Ok(map) => {
                    exercise(&map, &mut rng);
                    read += 1;
                }
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 50 && read > 50, "{refused} refused, {read} read");
}

#[test]
fn every_truncation_is_a_map_with_fewer_tails_or_an_error() {
    let mut rng = Rng(5);
    let whole = denc::to_bytes(&random_map(&mut rng, TASTE), features::ALL);
    for n in 0..whole.len() {
        let _ = denc::from_bytes::<CrushMap>(&whole.slice(..n));
    }
}

#[test]
fn absurd_tries_end() {
    let mut rng = Rng(6);
    let mut map = random_map(&mut rng, Taste { algs: &[5], classes: false, weight_sets: false });
    map.tunables.choose_total_tries = u32::MAX - 1;
    map.tunables.choose_local_fallback_tries = u32::MAX;
    map.tunables.choose_local_tries = u32::MAX;
    for (rule, _) in map.iter_rules().take(2) {
        // No OSD is in: every try fails.
        map.do_rule(rule, 1, 4, &[], None);
    }
}

#[test]
fn changed_texts_are_refused_or_compiled() {
    let mut rng = Rng(7);
    for _ in 0..20 {
        let text = random_map(&mut rng, TASTE).decompile().to_string();
        let words: Vec<&str> = text.split(' ').collect();
        for _ in 0..20 {
            let mut words = words.clone();
            let at = rng.below(words.len());
            words[at] = rng.pick(&["", "{", "}", "[", "-1", "99999999999999999999", "class", "id -7", KINDS[1].1, "é"]);
            let _ = CrushMap::compile(&words.join(" "));
        }
    }
}
