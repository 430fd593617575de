//! Looks at a whole cluster: what it says of itself, and what is on its disks.

use crate::cluster::{Cluster, Plan};
use crate::host::HostId;
use osd::object::{SHARD_ATTR, undo};
use rand::Rng;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;
use store::{ReadFlags, ReadId, Store, StoreConfig, StoreEvent};
use types::HObject;

const SECOND: u64 = 1_000_000_000;

/// Every PG has to become active+clean: somebody's primary says so.
pub fn wait_for_clean(cluster: &mut Cluster) {
    wait_for(cluster, is_clean_state);
}

fn wait_for(cluster: &mut Cluster, good: fn(&Value) -> bool) {
    let until = cluster.sim.now_ns() + 900 * SECOND;
    let mut unclean = Vec::new();
    while cluster.sim.now_ns() < until && cluster.model.borrow().faults.is_empty() {
        unclean = (0..cluster.pgs).map(|pg| format!("1.{pg:x}")).filter(|pg| !states(cluster, pg).any(|query| good(&query["state"]))).collect();
        if unclean.is_empty() {
            // Copies that nobody needs any more are being removed.
            return cluster.sim.run_until(cluster.sim.now_ns() + 10 * SECOND);
        }
        cluster.sim.run_until(cluster.sim.now_ns() + 10 * SECOND);
    }
    cluster.model.borrow_mut().fault(format!("PGs {unclean:?} do not become active+clean"));
}

/// Removed snapshots are trimmed.
pub fn wait_for_trimming(cluster: &mut Cluster) {
    wait_for(cluster, |state| is_clean_state(state) && !state.as_str().is_some_and(|s| s.contains("snaptrim")));
}

/// Where scrubs repair what they find, every PG has time for a scrub, a repair, and a look whether it helped; and nothing may be left.
pub fn wait_for_scrubs(cluster: &mut Cluster, plan: &Plan) {
    if plan.scrub_s > 0 {
        cluster.sim.run_until(cluster.sim.now_ns() + u64::from(6 * plan.scrub_s) * SECOND);
        wait_for(cluster, |state| is_clean_state(state) && !state.as_str().is_some_and(|s| s.contains("inconsistent")));
    }
}

/// True if something becomes true within a minute or two.
pub fn soon(cluster: &mut Cluster, mut holds: impl FnMut(&mut Cluster) -> bool) -> bool {
    let until = cluster.sim.now_ns() + 120 * SECOND;
    while cluster.sim.now_ns() < until {
        if holds(cluster) {
            return true;
        }
        cluster.sim.run_until(cluster.sim.now_ns() + SECOND);
    }
    false
}

/// A scrub may be under way, or something bad have been found that none repairs.
fn is_clean_state(state: &Value) -> bool {
    state.as_str().is_some_and(|s| s.starts_with("active+clean"))
}

/// True if a PG's primary has it clean.
pub fn is_clean(cluster: &mut Cluster, pg: &str) -> bool {
    states(cluster, pg).any(|query| is_clean_state(&query["state"]))
}

/// What every OSD says of a PG, as far as it can be read.
fn states(cluster: &mut Cluster, pg: &str) -> impl Iterator<Item = Value> + use<> {
    let parsed = |reply: Vec<u8>| serde_json::from_slice(reply.get(reply.iter().position(|b| *b == b'{')?..)?).ok();
    ask_about(cluster, pg).into_iter().filter_map(parsed)
}

/// Who acts for each PG, by the word of a primary that has it clean.
pub fn acting(cluster: &mut Cluster) -> BTreeMap<String, Vec<usize>> {
    let osds = |query: Value| query["acting"].as_array().into_iter().flatten().filter_map(Value::as_u64).map(|o| o as usize).collect();
    let pgs: Vec<String> = (0..cluster.pgs).map(|pg| format!("1.{pg:x}")).collect();
    let mut clean = |pg: &str| states(cluster, pg).find(|query| is_clean_state(&query["state"]));
    pgs.into_iter().filter_map(|pg| clean(&pg).map(|query| (pg, osds(query)))).collect()
}

/// True if somebody answers that of a PG.
pub fn is_said(cluster: &mut Cluster, pg: &str, what: &str) -> bool {
    ask_about(cluster, pg).iter().any(|reply| String::from_utf8_lossy(reply).contains(what))
}

/// True if a PG's primary serves, with an acting set without that OSD.
pub fn serves_without(cluster: &mut Cluster, pg: &str, osd: i64) -> bool {
    let said = |query: Value| -> Option<bool> {
        let acting = query["acting"].as_array()?;
        Some(query["state"].as_str()?.starts_with("active") && acting.iter().all(|o| o.as_i64() != Some(osd)))
    };
    states(cluster, pg).any(|query| said(query) == Some(true))
}

/// What every OSD says of a PG.
pub fn ask_about(cluster: &mut Cluster, pg: &str) -> Vec<Vec<u8>> {
    cluster.sim.admin_replies();
    for osd in cluster.osds.clone() {
        cluster.sim.admin(osd, 1, &format!(r#"{{"prefix": "pg", "pgid": "{pg}", "cmd": "query"}}"#));
    }
    cluster.sim.run_until(cluster.sim.now_ns() + SECOND / 10);
    cluster.sim.admin_replies().into_iter().map(|(_, _, reply)| reply.to_vec()).collect()
}

/// Some blocks of a disk go bad; the first is the label, without which it would not start.
pub fn rot(cluster: &mut Cluster, osd: HostId, pages: usize) {
    let disk = cluster.sim.disk(osd);
    let used: Vec<u64> = disk.pages_in_use().into_iter().filter(|page| *page > 0).collect();
    for _ in 0..pages.min(used.len()) {
        let rng = cluster.sim.rng();
        disk.rot(used[rng.random_range(0..used.len())], rng.random_range(0..4096));
    }
}

/// Everything on a disk goes bad, but the label.
pub fn rot_whole(cluster: &mut Cluster, osd: HostId) {
    let disk = cluster.sim.disk(osd);
    disk.pages_in_use().into_iter().filter(|page| *page > 0).for_each(|page| disk.rot(page, 100));
}

/// Everything that one OSD has goes bad, with all OSDs down; then clients read everything.
pub fn rot_one_disk(cluster: &mut Cluster, readers_before: usize, plan: &Plan) {
    let rotten = cluster.sim.rng().random_range(0..cluster.osds.len());
    rot_whole(cluster, cluster.osds[rotten]);
    cluster.osds.clone().into_iter().for_each(|osd| cluster.sim.start(osd));
    wait_for_clean(cluster);
    cluster.add_reader();
    if !cluster.run_until_finished(readers_before + 1, Duration::from_secs(300)) {
        cluster.model.borrow_mut().fault("with one rotten disk the reader does not end".into());
    }
    if plan.scrub_s > 0 {
        wait_for_scrubs(cluster, plan);
        check_stores(cluster);
    }
}

/// Takes the power from every OSD and looks at what is on the disks.
pub fn check_stores(cluster: &mut Cluster) {
    for (n, osd) in cluster.osds.clone().into_iter().enumerate() {
        cluster.sim.crash(osd, true);
        let disk = cluster.sim.disk(osd);
        match store::fsck(&mut disk.dev(), &disk.kv(), true) {
            Ok(report) if report.errors.is_empty() => {}
            bad => cluster.model.borrow_mut().fault(format!("the disk of osd.{n}: {bad:?}")),
        }
        cluster.sim.start(osd);
    }
}

/// A copy of an object: a sum of each block, attribute and omap row.
type Sums = BTreeMap<String, u32>;

/// Copies of an object that differ, on whatever disk they are, those that are not there, and clones that should have been trimmed. It ends
/// every OSD.
pub fn compare_copies(cluster: &mut Cluster, acting: &BTreeMap<String, Vec<usize>>) {
    let coded = cluster.coded();
    let mut shards: BTreeMap<HObject, BTreeMap<usize, Vec<u8>>> = BTreeMap::new();
    let mut found: BTreeMap<(String, HObject), BTreeMap<usize, Sums>> = BTreeMap::new();
    for (n, osd) in cluster.osds.clone().into_iter().enumerate() {
        cluster.sim.crash(osd, false);
        let disk = cluster.sim.disk(osd);
        let info = store::probe(&disk.kv()).expect("readable").expect("formatted");
        let mut s = Store::mount(disk.dev(), disk.kv(), StoreConfig::default(), info.fsid, info.whoami).expect("mounts");
        for (coll, _) in s.collections() {
            for object in s.list(coll, &HObject::min(), &HObject::max(), usize::MAX).expect("a list").0 {
                if coded.is_some() && undo::is(&object) {
                    let name = &object.name;
                    cluster.model.borrow_mut().fault(format!("what was kept of {name} in {} is left on osd.{n} though nobody writes", coll.pg));
                    continue;
                }
                let size = s.stat(coll, &object).expect("an object").size;
                s.read(ReadId(1), coll, &object, 0, size, ReadFlags::default());
                let data = loop {
                    match s.poll_event() {
                        Some(StoreEvent::ReadDone { result, .. }) => break result,
                        Some(_) => {}
                        None => disk.pending().into_iter().for_each(|(id, _)| s.handle_io(Default::default(), id, disk.complete(id))),
                    }
                };
                let data = data.map(|d| d.data.contiguous().to_vec()).unwrap_or_default();
                let blocks = data.chunks(4096).enumerate().map(|(block, data)| (format!("block {block}"), sum(data)));
                let mut attrs = s.getattrs(coll, &object).expect("attributes");
                if let Some(shard) = attrs.remove(&denc::BString::from(SHARD_ATTR)) {
                    shards.entry(object.clone()).or_default().insert(shard[0].into(), data.clone());
                }
                let blocks = blocks.filter(|_| coded.is_none() || coll == store::META_COLL);
                let attrs = attrs.into_iter().map(|(name, value)| (format!("attribute {name}"), sum(&value)));
                let omap = s.omap_list(coll, &object, Bound::Unbounded, usize::MAX).expect("an omap").into_iter();
                let omap = omap.map(|(key, value)| (format!("omap {key}"), sum(&value)));
                let header = s.omap_get_header(coll, &object).map(|h| ("omap header".to_owned(), sum(&h))).expect("a header");
                let sums = blocks.chain(attrs).chain(omap).chain([header]).collect();
                found.entry((coll.pg.to_string(), object)).or_default().insert(n, sums);
            }
        }
    }
    if let Some(code) = coded {
        for (object, shards) in shards {
            if let Err(why) = check_shards(&code, &shards) {
                cluster.model.borrow_mut().fault(format!("shards of {object}: {why}"));
            }
        }
    }
    for ((pg, object), copies) in found {
        if cluster.model.borrow().trimmed && (object.snap < types::Snap::HEAD && object.pool.0 > 0) {
            cluster.model.borrow_mut().fault(format!("{object} is left in {pg} though its snapshots are removed"));
        }
        let (name, mut all) = (&object.name, copies.values());
        let first = all.next();
        if all.any(|c| Some(c) != first) {
            cluster.model.borrow_mut().fault(format!("copies of {name} in {pg} differ: {copies:x?}"));
        }
        let without: Vec<&usize> = acting.get(&pg).into_iter().flatten().filter(|osd| !copies.contains_key(osd)).collect();
        if !without.is_empty() {
            cluster.model.borrow_mut().fault(format!("{name} is in {pg}, but not on {without:?}"));
        }
    }
}

/// All shards of an object are there, and what is not data is what the data says.
fn check_shards(code: &ec::Code, shards: &BTreeMap<usize, Vec<u8>>) -> Result<(), String> {
    let (k, all) = (code.k(), code.k() + code.m());
    let lens: Vec<usize> = shards.values().map(Vec::len).collect();
    if shards.len() != all || lens.iter().any(|len| *len != lens[0]) {
        return Err(format!("{:?} of {all}, of lengths {lens:?}", shards.keys().collect::<Vec<_>>()));
    }
    let have: Vec<(usize, &[u8])> = shards.iter().take(k).map(|(shard, data)| (*shard, data.as_slice())).collect();
    let coding: Vec<usize> = (k..all).collect();
    let computed = code.rebuild(&have, &coding).map_err(|_| "too few".to_owned())?;
    match coding.iter().zip(&computed).find(|(shard, data)| shards[*shard] != **data) {
        Some((shard, _)) => Err(format!("shard {shard} does not fit the data")),
        None => Ok(()),
    }
}

fn sum(data: &[u8]) -> u32 {
    data.iter().fold(0u32, |h, b| h.rotate_left(5) ^ u32::from(*b).wrapping_mul(0x9e37_79b9))
}

/// Asks around, for whoever replays a seed that failed.
pub fn examine(cluster: &mut Cluster) {
    cluster.sim.log.verbose = false;
    for prefix in ["osd dump", "health"] {
        eprintln!("{}", cluster.ask(&format!(r#"{{"prefix": "{prefix}", "format": "json-pretty"}}"#)));
    }
    for osd in cluster.osds.clone() {
        let asked = ["status", "dump_ops_in_flight", "perf dump"].map(|prefix| format!(r#"{{"prefix": "{prefix}"}}"#));
        let queries = (0..cluster.pgs).map(|pg| format!(r#"{{"prefix": "query", "pgid": "1.{pg:x}"}}"#));
        for command in asked.into_iter().chain(queries) {
            cluster.sim.admin(osd, 1, &command);
            let until = cluster.sim.now_ns() + SECOND;
            cluster.sim.run_until(until);
            for (host, _, reply) in cluster.sim.admin_replies() {
                eprintln!("{host:?} {command}: {}", String::from_utf8_lossy(&reply));
            }
        }
    }
}

/// Those of the map agree, once nothing hurts them any more.
pub fn wait_for_quorum(cluster: &mut Cluster, mons: usize) {
    let until = cluster.sim.now_ns() + 300 * SECOND;
    let mut said = String::new();
    while cluster.sim.now_ns() < until {
        said = cluster.ask(r#"{"prefix": "quorum_status", "format": "json"}"#);
        let all: Vec<String> = (0..mons).map(|n| n.to_string()).collect();
        if said.contains(&format!(r#""quorum":[{}],"#, all.join(","))) && said.matches(r#""rank":"#).count() == mons {
            return;
        }
        cluster.sim.run_until(cluster.sim.now_ns() + 5 * SECOND);
    }
    cluster.model.borrow_mut().fault(format!("not all {mons} monitors agree: {said}"));
}
