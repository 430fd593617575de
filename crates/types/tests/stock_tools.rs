//! What we encode, stock's own tools read: the same text, the same JSON, the same placement.
//!
//! CUTTLEBONE_MAPS sets how many random maps are asked about (default 40). CUTTLEBONE_TOOLS_ROOT may name a root
//! directory with another generation's tools (`scripts/client-root tentacle DIR --daemons`): they judge placement, for
//! what they print is another generation's too.

mod common;
#[path = "common/random.rs"]
mod random;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::PathBuf;
use std::process::Command;
use types::map::osdmap::print_osds;
use types::map::{MonMap, OsdMap};
use types::{AddrVec, EntityAddr, ObjectLocator, OsdId, PgId, Utime};
use uuid::Uuid;

/// A file that goes with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let dir = tools_root().map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), |root| root.join("tmp"));
        let path = dir.join(format!("cuttlebone-{name}.{}", std::process::id()));
        std::fs::write(&path, bytes).expect("scratch file");
        Scratch(path)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn tools_root() -> Option<PathBuf> {
    std::env::var_os("CUTTLEBONE_TOOLS_ROOT").map(PathBuf::from)
}

/// `tool` of this system, or of the other root.
fn command(tool: &str) -> Command {
    let Some(root) = tools_root() else { return Command::new(tool) };
    let mut command = Command::new("chroot");
    command.arg(root).arg(tool);
    command
}

/// True if `tool` is there and its output is of our generation.
fn prints_like_us(tool: &str) -> bool {
    tools_root().is_none() && have(tool)
}

/// True if `tool` is there; says so when it is not.
fn have(tool: &str) -> bool {
    let there = command(tool).arg("--version").output().is_ok_and(|out| out.status.success());
    if !there {
        println!("skipped: no {tool} (Debian package ceph-base)");
    }
    there
}

/// What `tool FILE ARGS` prints, with the line about the file taken off.
fn ask(tool: &str, file: &Scratch, args: &[&str]) -> String {
    let file = match tools_root() {
        Some(_) => PathBuf::from("/tmp").join(file.0.file_name().expect("a file")),
        None => file.0.clone(),
    };
    let out = command(tool).env("TZ", "UTC").arg(file).args(args).output().expect(tool);
    let text = String::from_utf8(out.stdout).expect("text");
    let about = format!("{tool}: ");
    text.lines().filter(|line| !line.starts_with(&about)).map(|line| format!("{line}\n")).collect()
}

/// What osdmaptool prints without the empty lines, which the monitor leaves out, and so do we.
fn print(file: &Scratch) -> String {
    ask("osdmaptool", file, &["--print"]).lines().filter(|l| !l.is_empty()).map(|line| format!("{line}\n")).collect()
}

fn maps() -> u64 {
    std::env::var("CUTTLEBONE_MAPS").ok().and_then(|n| n.parse().ok()).unwrap_or(40)
}

/// Shows the first difference of two texts.
fn assert_same_text(what: &str, stock: &str, ours: &str) {
    let (stock, ours) = (stock.trim_end(), ours.trim_end());
    let same = stock.bytes().zip(ours.bytes()).take_while(|(a, b)| a == b).count();
    if stock.len() != ours.len() || same < stock.len() {
        let around = |text: &str| String::from_utf8_lossy(&text.as_bytes()[same.saturating_sub(80)..]).chars().take(160).collect::<String>();
        panic!("{what}\nstock: {}\nours:  {}", around(stock), around(ours));
    }
}

#[test]
fn osdmaptool_prints_our_maps_as_we_do() {
    if !prints_like_us("osdmaptool") {
        return;
    }
    for seed in 0..maps() {
        let map = random::osdmap(&mut ChaCha8Rng::seed_from_u64(seed));
        let file = Scratch::new("print", &map.clone().publish());
        let stock = print(&file);
        assert_same_text(&format!("seed {seed}: --print"), &stock, &map.print_plain());
        for (format, ours) in
            [("json", admin::json::compact(&map.dump_json())), ("json-pretty", admin::json::pretty(&map.dump_json()))]
        {
            let stock = ask("osdmaptool", &file, &["--dump", format]);
            assert_same_text(&format!("seed {seed}: --dump {format}"), &stock, &ours);
        }
    }
}

/// `raw ([1,0], p1) up ([1,0], p1) acting ([1,0], p1)`.
fn placement(map: &OsdMap, pg: PgId) -> String {
    let raw = map.pg_to_raw(&map.pools[&pg.pool], pg);
    let raw_primary = raw.iter().copied().find(|osd| *osd != OsdId::HOLE).unwrap_or(OsdId::NONE);
    let sets = map.pg_to_up_acting(pg);
    let part = |name: &str, osds: &[OsdId], primary: OsdId| format!("{name} ({}, p{primary})", print_osds(osds));
    [
        part("raw", &raw, raw_primary),
        part("up", &sets.up, sets.up_primary),
        part("acting", &sets.acting, sets.acting_primary),
    ]
    .join(" ")
}

/// What stock says of every group of the pool. osdmaptool crashes on holes in an acting set, when it counts them:
/// groups of such pools are asked about one by one, some of them.
fn stock_placements(map: &OsdMap, file: &Scratch, pool: types::PoolId) -> Vec<(PgId, String)> {
    let pgs: Vec<PgId> = map.pgs(pool).collect();
    let holes = pgs.iter().any(|pg| map.pg_to_up_acting(*pg).acting.contains(&OsdId::HOLE));
    let line = |text: &str| {
        let (pg, rest) = text.split_once(' ')?;
        rest.starts_with("raw (").then_some((pg.parse().ok()?, rest.to_owned()))
    };
    if !holes {
        let text = ask("osdmaptool", file, &["--test-map-pgs-dump-all", "--pool", &pool.to_string()]);
        let found: Vec<_> = text.lines().filter_map(line).collect();
        assert_eq!(found.len(), pgs.len(), "groups in stock's answer");
        return found;
    }
    let some = pgs.into_iter().step_by(5);
    some.flat_map(|pg| {
        let text = ask("osdmaptool", file, &["--test-map-pg", &pg.to_string()]);
        text.lines().filter_map(line).collect::<Vec<_>>()
    })
    .collect()
}

/// What 18.2 added.
fn choose_primaries(rng: &mut ChaCha8Rng, map: &mut OsdMap) {
    let pgs: Vec<PgId> = map.pools.keys().flat_map(|pool| map.pgs(*pool)).collect();
    for pg in pgs {
        let osds = map.pg_to_raw_upmap(&map.pools[&pg.pool], pg);
        let osd = osds.get(rng.random_range(0..osds.len() + 1)).copied().unwrap_or(OsdId(0));
        if osd != OsdId::HOLE && rng.random_bool(0.4) {
            map.pg_upmap_primaries.insert(pg, osd);
        }
    }
}

#[test]
fn osdmaptool_places_groups_where_we_do() {
    if !have("osdmaptool") {
        return;
    }
    let mut asked = 0;
    for seed in 0..maps() {
        let mut rng = ChaCha8Rng::seed_from_u64(1_000_000 + seed);
        let mut map = random::osdmap(&mut rng);
        if tools_root().is_some() {
            choose_primaries(&mut rng, &mut map);
        }
        let file = Scratch::new("place", &map.clone().publish());
        for pool in map.pools.keys() {
            for (pg, stock) in stock_placements(&map, &file, *pool) {
                assert_eq!(stock, placement(&map, pg), "seed {seed}, {pg}: stock left, ours right");
                asked += 1;
            }
        }
    }
    println!("{asked} groups of {} maps placed alike", maps());
}

#[test]
fn osdmaptool_places_and_prints_recorded_maps_as_we_do() {
    if !have("osdmaptool") {
        return;
    }
    let corpus = common::corpus();
    let mut asked = 0;
    for release in common::RELEASES {
        for path in std::fs::read_dir(corpus.join(release).join("objects/OSDMap")).expect("maps") {
            let bytes = std::fs::read(path.expect("a map").path()).expect("a map");
            let file = Scratch::new("corpus", &bytes);
            let map: OsdMap = denc::from_bytes(&bytes.into()).expect("a map");
            if tools_root().is_none() && release == common::RELEASES[0] && map.blocklist.len() < 2 {
                // Stock prints the blocklist in no order.
                let stock = print(&file);
                assert_same_text(release, &stock, &map.print_plain());
            }
            if print(&file).is_empty() {
                println!("{release}: this osdmaptool cannot read epoch {}", map.epoch);
                continue;
            }
            for pool in map.pools.keys() {
                for (pg, stock) in stock_placements(&map, &file, *pool) {
                    assert_eq!(stock, placement(&map, pg), "{release}, {pg}: stock left, ours right");
                    asked += 1;
                }
            }
        }
    }
    println!("{asked} groups of recorded maps placed alike");
}

#[test]
fn osdmaptool_places_objects_where_we_do() {
    if !have("osdmaptool") {
        return;
    }
    for seed in 0..maps() / 2 {
        let mut rng = ChaCha8Rng::seed_from_u64(2_000_000 + seed);
        let map = random::osdmap(&mut rng);
        let file = Scratch::new("object", &map.clone().publish());
        let pool = *map.pools.keys().next().expect("a pool");
        let name: String = (0..rng.random_range(1..40)).map(|_| rng.random_range('!'..'~')).collect();
        let text = ask("osdmaptool", &file, &["--test-map-object", &name, "--pool", &pool.to_string()]);
        let pg = map.object_to_pg(&ObjectLocator::pool(pool), name.as_bytes()).and_then(|raw| map.raw_pg_to_pg(raw));
        let pg = pg.expect("the pool is there");
        let ours = format!(" object '{name}' -> {pg} -> {}\n", print_osds(&map.pg_to_up_acting(pg).acting));
        assert_eq!(text, ours, "seed {seed}");
    }
}

#[test]
fn monmaptool_prints_our_maps_as_we_do() {
    if !prints_like_us("monmaptool") {
        return;
    }
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let mut map = MonMap::new(Uuid::from_u128(rng.random()), Utime { sec: 1_700_000_000, nsec: 5_000 });
    let v2 = |port: u16| EntityAddr::msgr2(([127, 0, 0, 1], port).into(), 0);
    let v1 = |port: u16| EntityAddr { kind: types::AddrKind::LEGACY, ..v2(port) };
    map.add("a", AddrVec(vec![v2(3300), v1(6789)]));
    map.add("b", AddrVec(vec![v2(3301)]));
    map.add("c", AddrVec(vec![v1(6790)]));
    map.mon_info.get_mut("b").expect("b").crush_loc.insert("host".into(), "x".into());
    let file = Scratch::new("mon", &denc::to_bytes(&map, types::features::SUPPORTED));
    assert_same_text("monmaptool", &ask("monmaptool", &file, &["--print"]), &map.print_plain());
}
