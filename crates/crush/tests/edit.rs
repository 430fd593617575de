//! Edits against crushtool's: the same random history on both sides gives the same map after every step.

mod common;
mod stock;

use common::{Rng, Taste, random_map};
use crush::{CrushError, CrushMap, Location, ONE, RuleKind, SimpleRule, features};
use std::path::Path;
use stock::{crushtool, maps_wanted, temp};

const HOSTS: [&str; 5] = ["h0", "h1", "h2", "h3", "default"];
const RACKS: [&str; 3] = ["r0", "r1", "h2"];
const ROOTS: [&str; 3] = ["default", "other", "r1"];

/// One edit in both languages: what crushtool is told, and how we do it.
struct Edit {
    words: Vec<String>,
    #[allow(clippy::type_complexity)]
    ours: Box<dyn Fn(&mut CrushMap) -> Result<bool, CrushError>>,
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn random_location(rng: &mut Rng) -> (String, Location) {
    let mut loc = Location::new();
    for (kind, names) in [("host", &HOSTS[..]), ("rack", &RACKS), ("root", &ROOTS)] {
        if !rng.one_in(3) {
            loc.insert(kind.to_owned(), rng.pick(names).to_owned());
        }
    }
    if loc.is_empty() {
        loc.insert("root".to_owned(), "default".to_owned());
    }
    let text = loc.iter().map(|(kind, name)| format!(" --loc {kind} {name}")).collect();
    (text, loc)
}

/// 16.16 fixed point with few enough digits for the 32-bit floats upstream passes weights through.
fn random_weight(rng: &mut Rng) -> (f64, u32) {
    let fixed = rng.below(0x800) as u32 * 0x100;
    (f64::from(fixed) / f64::from(ONE), fixed)
}

fn known(map: &CrushMap, name: &str) -> Result<i32, CrushError> {
    map.item(name).ok_or_else(|| CrushError::NoItem(name.to_owned()))
}

fn random_edit(rng: &mut Rng) -> Edit {
    let osd = rng.below(14) as i32;
    let osd_name = format!("osd.{osd}");
    let (weight, fixed) = random_weight(rng);
    let (at, loc) = random_location(rng);
    let item = if rng.one_in(2) { osd_name.clone() } else { rng.pick(&["h0", "h1", "h2", "r0", "r1", "other"]).to_owned() };
    match rng.below(9) {
        0 => Edit {
            words: words(&format!("--add-item {osd} {weight} {osd_name}{at}")),
            ours: Box::new(move |map| map.insert_item(osd, fixed, &osd_name, &loc, true).map(|()| true)),
        },
        1 => Edit {
            words: words(&format!("--update-item {osd} {weight} {osd_name}{at}")),
            ours: Box::new(move |map| map.update_item(osd, fixed, &osd_name, &loc).map(|_| true)),
        },
        2 => Edit {
            words: words(&format!("--remove-item {item}")),
            ours: Box::new(move |map| map.remove_item(known(map, &item)?, false).map(|()| true)),
        },
        3 => Edit {
            words: words(&format!("--reweight-item {item} {weight}")),
            ours: Box::new(move |map| map.reweight_item(known(map, &item)?, fixed, true).map(|()| true)),
        },
        4 => {
            let (name, kind, number) = rng.pick(&[("h3", "host", 1), ("r1", "rack", 3), ("other", "root", 11)]);
            Edit {
                words: words(&format!("--add-bucket {name} {kind}{at}")),
                ours: Box::new(move |map| {
                    let id = map.add_bucket(None, name, None, number, &[])?;
                    map.move_bucket(id, &loc).map(|()| true)
                }),
            }
        }
        5 | 6 => Edit {
            words: words(&format!("--move {item}{at}")),
            ours: Box::new(move |map| match known(map, &item)? {
                id if map.weight_at(id, &loc).is_some() => Ok(false),
                osd @ 0.. => map.create_or_move_item(osd, 0, &item, &loc),
                bucket => map.move_bucket(bucket, &loc).map(|()| true),
            }),
        },
        7 => Edit { words: words("--reweight"), ours: Box::new(|map| map.reweight_all().map(|()| true)) },
        _ => {
            let (name, root) = (rng.pick(&["a", "b"]), rng.pick(&["default", "other"]));
            let (class, domain) = (rng.pick(&["ssd", "hdd", "none", ""]), rng.pick(&["host", "osd", "rack", "bad"]));
            let class_words = if class.is_empty() { String::new() } else { format!(" --device-class {class}") };
            if rng.one_in(3) {
                return Edit {
                    words: words(&format!("--remove-rule {name}")),
                    ours: Box::new(move |map| match map.rule_id(name) {
                        Some(rule) => map.remove_rule(rule).map(|()| true),
                        None => Ok(false),
                    }),
                };
            }
            Edit {
                words: words(&format!("--create-replicated-rule {name} {root} {domain}{class_words}")),
                ours: Box::new(move |map| {
                    let class = Some(class).filter(|class| !class.is_empty());
                    let kind = RuleKind::Replicated;
                    map.add_simple_rule(SimpleRule { name, root, failure_domain: domain, class, kind }).map(|_| true)
                }),
            }
        }
    }
}

fn read(path: &Path) -> CrushMap {
    denc::from_bytes(&std::fs::read(path).unwrap().into()).unwrap()
}

fn first_difference(ours: &CrushMap, theirs: &CrushMap) -> Option<String> {
    let (ours, theirs) = (format!("{ours:#?}"), format!("{theirs:#?}"));
    let (line, (a, b)) = ours.lines().zip(theirs.lines()).enumerate().find(|(_, (a, b))| a != b)?;
    std::fs::write(temp("ours.txt"), &ours).unwrap();
    std::fs::write(temp("theirs.txt"), &theirs).unwrap();
    Some(format!("line {} of {:?}: ours {a}, theirs {b}", line + 1, temp("ours.txt")))
}

#[test]
fn the_same_history_gives_the_same_map() {
    let mut refused = 0;
    let mut done = 0;
    for i in 0..maps_wanted(20) {
        let mut rng = Rng(0xed17 << 32 | i);
        let osds: Vec<(i32, &str, u32)> =
            (0..8).map(|osd| (osd, HOSTS[rng.below(3)], random_weight(&mut rng).1)).collect();
        let mut map = CrushMap::build_default(&osds, "host").unwrap();
        for osd in 0..8 {
            if !rng.one_in(3) {
                map.set_device_class(osd, rng.pick(&["ssd", "hdd"])).unwrap();
            }
        }
        if rng.one_in(2) {
            map.create_weight_set(-1, 1).unwrap();
        }
        let (before, after) = (temp(&format!("edit{i}.a")), temp(&format!("edit{i}.b")));
        let mut history = Vec::new();
        for _ in 0..12 {
            let edit = random_edit(&mut rng);
            history.push(edit.words.join(" "));
            std::fs::write(&before, denc::to_bytes(&map, features::ALL)).unwrap();
            let _ = std::fs::remove_file(&after);
            let mut args = vec!["-i", before.to_str().unwrap(), "-o", after.to_str().unwrap()];
            args.extend(edit.words.iter().map(String::as_str));
            let Some(output) = crushtool(&args) else { return };
            let mut ours = map.clone();
            let result = (edit.ours)(&mut ours);
            if !after.exists() {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(!matches!(result, Ok(true)), "{i}: {history:?}: stock refuses: {said}");
                refused += 1;
                continue;
            }
            assert!(result.is_ok(), "{i}: {history:?}: {result:?}");
            let theirs = read(&after);
            if let Some(difference) = first_difference(&ours, &theirs) {
                panic!("{i}: {history:?}: {difference}");
            }
            map = ours;
            done += 1;
        }
        let _ = std::fs::remove_file(before);
        let _ = std::fs::remove_file(after);
    }
    eprintln!("{done} edits equal, {refused} refused by both");
}

#[test]
fn shadow_trees_are_rebuilt_to_the_same_bytes() {
    for i in 0..maps_wanted(30) {
        let mut rng = Rng(0x5bad << 32 | i);
        let with_sets = rng.one_in(2);
        let algs: &[u8] = if with_sets { &[5] } else { &[2, 4, 5] };
        let mut map = random_map(&mut rng, Taste { algs, classes: true, weight_sets: false });
        if with_sets {
            map.create_weight_set(-1, 1).unwrap();
        }
        let (before, after) = (temp(&format!("shadow{i}.a")), temp(&format!("shadow{i}.b")));
        std::fs::write(&before, denc::to_bytes(&map, features::ALL)).unwrap();
        let args = ["-i", before.to_str().unwrap(), "-o", after.to_str().unwrap(), "--rebuild-class-roots"];
        let Some(output) = crushtool(&args) else { return };
        assert!(output.status.success(), "{before:?}: {}", String::from_utf8_lossy(&output.stderr));
        map.rebuild_classes().unwrap();
        if let Some(difference) = first_difference(&map, &read(&after)) {
            panic!("{before:?}: {difference}");
        }
        for path in [before, after] {
            std::fs::remove_file(path).unwrap();
        }
    }
}

/// JSON with its floats rounded: they are written with different numbers of digits, and read inexactly.
fn rounded(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Number(n) => format!("{:.9}", n.as_f64().unwrap()),
        serde_json::Value::Array(items) => format!("{:?}", items.iter().map(rounded).collect::<Vec<_>>()),
        serde_json::Value::Object(fields) => {
            format!("{:?}", fields.iter().map(|(key, value)| (key, rounded(value))).collect::<Vec<_>>())
        }
        other => other.to_string(),
    }
}

#[test]
fn dumps_are_what_crushtool_dumps() {
    for i in 0..maps_wanted(30) {
        let mut rng = Rng(0xd0b9 << 32 | i);
        let taste = Taste { algs: &[1, 2, 3, 4, 5], classes: rng.one_in(2), weight_sets: rng.one_in(3) };
        let map = random_map(&mut rng, taste);
        let path = temp(&format!("dump{i}"));
        std::fs::write(&path, denc::to_bytes(&map, features::ALL)).unwrap();
        let Some(output) = crushtool(&["-i", path.to_str().unwrap(), "--dump", "-f", "json"]) else { return };
        let theirs: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let ours: serde_json::Value = serde_json::from_str(&map.dump_json().to_string()).unwrap();
        assert!(ours.as_object().unwrap().keys().eq(theirs.as_object().unwrap().keys()), "{path:?}");
        for (key, value) in theirs.as_object().unwrap() {
            assert_eq!(rounded(&ours[key]), rounded(value), "{path:?}: {key}");
        }
        std::fs::remove_file(path).unwrap();
    }
}
