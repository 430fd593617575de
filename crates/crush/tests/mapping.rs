//! The mapping function against stock's: thousands of random hierarchies, rules, weights and weight sets.

mod common;
mod stock;

use common::{Rng, Taste, random_map};
use crush::{CrushMap, ONE, features};
use std::collections::BTreeMap;
use stock::{crushtool, maps_wanted, temp};

/// Maps per test; each has up to 4 hierarchies and 15 rules.
const MAPS: u64 = 120;

/// Mappings by rule and input, as `crushtool --test --show-mappings` prints them.
type Mappings = BTreeMap<(u32, u32), String>;

fn stock_mappings(map: &CrushMap, name: &str, replicas: usize, xs: (u32, u32), weights: &[u32]) -> Option<Mappings> {
    let path = temp(name);
    std::fs::write(&path, denc::to_bytes(map, features::ALL)).unwrap();
    let (min, max, replicas) = (xs.0.to_string(), xs.1.to_string(), replicas.to_string());
    let mut args = vec!["-i", path.to_str().unwrap(), "--test", "--show-mappings"];
    args.extend(["--min-x", &min, "--max-x", &max, "--num-rep", &replicas]);
    let words: Vec<String> = weights
        .iter()
        .enumerate()
        .flat_map(|(osd, &w)| ["--weight".into(), osd.to_string(), (f64::from(w) / 65536.0).to_string()])
        .collect();
    args.extend(words.iter().map(String::as_str));
    let output = crushtool(&args)?;
    assert!(output.status.success(), "{path:?}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let parse = |line: &str| {
        let mut words = line.strip_prefix("CRUSH rule ")?.split(' ');
        let rule = words.next()?.parse().ok()?;
        let x = words.nth(1)?.parse().ok()?;
        Some(((rule, x), words.next()?.to_owned()))
    };
    Some(text.lines().filter_map(parse).collect())
}

fn our_mappings(map: &CrushMap, replicas: usize, xs: (u32, u32), weights: &[u32]) -> Mappings {
    let mut all = Mappings::new();
    for (rule, _) in map.iter_rules() {
        for x in xs.0..=xs.1 {
            let osds = map.do_rule(rule, x, replicas, weights, map.choose_args_for(0));
            let words: Vec<String> = osds.iter().map(i32::to_string).collect();
            all.insert((rule, x), format!("[{}]", words.join(",")));
        }
    }
    all
}

fn compare(taste: Taste, seed: u64) {
    let mut compared = 0;
    let maps = maps_wanted(MAPS);
    for i in 0..maps {
        let mut rng = Rng(seed << 32 | i);
        let map = random_map(&mut rng, taste);
        let held = |osd: i32| map.is_linked(osd);
        let mut weights: Vec<u32> = (0..map.max_devices)
            .map(|osd| match rng.below(6) {
                _ if !held(osd) => 0,
                0 => 0,
                1 => rng.below(0x10000) as u32,
                _ => ONE,
            })
            .collect();
        if weights.iter().all(|&w| w == 0) {
            // crushtool maps nothing at all when no OSD has weight.
            weights[0] = ONE;
        }
        let first = rng.below(1 << 30) as u32;
        let (replicas, xs) = (1 + rng.below(8), (first, first + 40));
        let name = format!("mapping-{seed}-{i}");
        let Some(stock) = stock_mappings(&map, &name, replicas, xs, &weights) else { return };
        let ours = our_mappings(&map, replicas, xs, &weights);
        for (at, wanted) in &stock {
            assert_eq!(ours.get(at), Some(wanted), "{:?}: rule {} x {} of {replicas}", temp(&name), at.0, at.1);
        }
        assert_eq!(ours.len(), stock.len(), "{name}");
        compared += stock.len();
        std::fs::remove_file(temp(&name)).unwrap();
    }
    eprintln!("{maps} maps, {compared} mappings equal");
}

#[test]
fn straw2_maps_place_as_stock_does() {
    compare(Taste { algs: &[5], classes: false, weight_sets: false }, 1);
}

#[test]
fn maps_of_all_algorithms_place_as_stock_does() {
    compare(Taste { algs: &[1, 2, 3, 4, 5, 5], classes: false, weight_sets: false }, 2);
}

#[test]
fn classes_and_weight_sets_place_as_stock_does() {
    compare(Taste { algs: &[4, 5, 5, 5], classes: true, weight_sets: true }, 3);
}
