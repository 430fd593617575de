//! Random maps: hierarchies, rules, pools, OSDs in every state, and every override there is.

use crush::{Alg, Bucket, ChooseArg, ChooseArgs, CrushMap, Op, Rule, Step};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::map::{AutoscaleMode, OsdMap, PgPool, PoolOptKey, PoolOptValue, PoolSnap, PoolType};
use types::{AddrKind, AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, Snap, Utime};
use uuid::Uuid;

const HOST: u16 = 1;
const RACK: u16 = 3;
const ROOT: u16 = 11;

/// A map with everything in it.
pub fn osdmap(rng: &mut ChaCha8Rng) -> OsdMap {
    let mut map = OsdMap::new(Uuid::from_u128(rng.random()), stamp(rng));
    map.epoch = Epoch(rng.random_range(1..1000));
    map.modified = stamp(rng);
    let osds = rng.random_range(3..24);
    map.set_max_osd(osds + rng.random_range(0..3));
    map.crush = Arc::new(crush(rng, osds));
    for osd in 0..osds {
        add_osd(rng, &mut map, osd);
    }
    for id in 1..=rng.random_range(1..4) {
        let pool = pool(rng);
        map.pools.insert(PoolId(id), pool);
        map.pool_name.insert(PoolId(id), format!("pool-{id}"));
        map.pool_max = id as i32;
    }
    if rng.random_bool(0.5) {
        for osd in 0..osds {
            let affinity = *pick(rng, &[0, 0x4000, 0x8000, 0x1_0000, 0x1_0000]);
            map.set_primary_affinity(OsdId(osd), affinity);
        }
    }
    let profile = [("k", "2"), ("m", "1"), ("plugin", "jerasure")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    map.erasure_code_profiles.insert("default".to_owned(), BTreeMap::from(profile));
    map.blocklist.insert(addr(rng, AddrKind::ANY), stamp(rng));
    map.flags |= if rng.random_bool(0.3) { OsdMap::FLAG_NOOUT } else { 0 };
    for (id, pool) in map.pools.clone() {
        overrides(rng, &mut map, id, &pool, osds);
    }
    map
}

fn add_osd(rng: &mut ChaCha8Rng, map: &mut OsdMap, osd: i32) {
    let i = osd as usize;
    if rng.random_bool(0.05) {
        return;
    }
    map.osd_state[i] = OsdMap::STATE_EXISTS;
    if rng.random_bool(0.9) {
        map.osd_state[i] |= OsdMap::STATE_UP;
    }
    map.osd_weight[i] = match rng.random_range(0..10) {
        0 => 0,
        1 | 2 => rng.random_range(1..0x1_0000),
        _ => OsdMap::WEIGHT_IN,
    };
    map.osd_uuid[i] = Uuid::from_u128(rng.random());
    map.osd_info[i].up_from = Epoch(rng.random_range(1..100));
    map.osd_info[i].up_thru = Epoch(rng.random_range(1..100));
    map.osd_info[i].lost_at = Epoch(*pick(rng, &[0, 0, 7]));
    map.osd_xinfo[i].features = types::features::SUPPORTED;
    map.osd_xinfo[i].laggy_probability = *pick(rng, &[0, 0, 1_000_000_000]);
    for addrs in [&mut map.client_addrs, &mut map.cluster_addrs, &mut map.hb_back_addrs, &mut map.hb_front_addrs] {
        addrs[i] = match rng.random_range(0..3) {
            0 => AddrVec::default(),
            1 => AddrVec(vec![addr(rng, AddrKind::MSGR2)]),
            _ => AddrVec(vec![addr(rng, AddrKind::MSGR2), addr(rng, AddrKind::LEGACY)]),
        };
    }
}

fn pool(rng: &mut ChaCha8Rng) -> PgPool {
    let pg_num = rng.random_range(1..40);
    let erasure = rng.random_bool(0.4);
    let mut pool = PgPool::replicated(rng.random_range(1..6), pg_num, u8::from(erasure));
    if erasure {
        pool.pool_type = PoolType::ERASURE;
        pool.erasure_code_profile = "default".to_owned();
        pool.stripe_width = 8192;
    } else {
        pool.crush_rule = *pick(rng, &[0, 2]);
    }
    pool.pgp_num = rng.random_range(1..=pg_num);
    pool.flags = *pick(rng, &[0, PgPool::FLAG_HASHPSPOOL, PgPool::FLAG_HASHPSPOOL, PgPool::FLAG_HASHPSPOOL | PgPool::FLAG_NODELETE]);
    pool.create_time = stamp(rng);
    pool.pg_autoscale_mode = *pick(rng, &[AutoscaleMode::OFF, AutoscaleMode::ON, AutoscaleMode::WARN, AutoscaleMode(255)]);
    pool.quota_max_bytes = *pick(rng, &[0, 1 << 30]);
    pool.fast_read = rng.random_bool(0.2);
    pool.opts.0.insert(PoolOptKey::PG_NUM_MIN, PoolOptValue::Int(8));
    pool.opts.0.insert(PoolOptKey::PG_AUTOSCALE_BIAS, PoolOptValue::Double(*pick(rng, &[4.0, 0.1, 1e-7, 12345678.5])));
    pool.opts.0.insert(PoolOptKey::COMPRESSION_MODE, PoolOptValue::Str("aggressive".to_owned()));
    pool.application_metadata.insert("rbd".to_owned(), BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    if rng.random_bool(0.3) {
        let snap = PoolSnap { snapid: Snap(1), stamp: stamp(rng), name: "before".to_owned() };
        pool.snaps.insert(Snap(1), snap);
        pool.snap_seq = Snap(1);
        pool.flags |= PgPool::FLAG_POOL_SNAPS;
    }
    pool
}

/// pg_temp, primary_temp, upmaps, upmap items for some of a pool's groups.
fn overrides(rng: &mut ChaCha8Rng, map: &mut OsdMap, id: PoolId, pool: &PgPool, osds: i32) {
    for seed in 0..pool.pg_num {
        let pg = PgId { pool: id, seed };
        if rng.random_bool(0.1) {
            let mut temp = set(rng, osds, pool.size);
            if pool.is_erasure() {
                // Chunks that nobody has, and a set that ends early.
                temp.iter_mut().filter(|_| rng.random_bool(0.3)).for_each(|osd| *osd = OsdId::HOLE);
                temp.truncate(rng.random_range(1..=usize::from(pool.size)));
            }
            map.pg_temp.insert(pg, temp);
        }
        if rng.random_bool(0.1) {
            map.primary_temp.insert(pg, OsdId(rng.random_range(0..osds)));
        }
        if rng.random_bool(0.1) {
            map.pg_upmap.insert(pg, set(rng, osds, pool.size));
        }
        if rng.random_bool(0.3) {
            let n = rng.random_range(1..4);
            let pairs = (0..n).map(|_| (OsdId(rng.random_range(0..osds)), OsdId(rng.random_range(0..osds))));
            map.pg_upmap_items.insert(pg, pairs.collect());
        }
    }
}

fn set(rng: &mut ChaCha8Rng, osds: i32, size: u8) -> Vec<OsdId> {
    (0..size).map(|_| OsdId(rng.random_range(0..osds))).collect()
}

/// root → racks → hosts → OSDs, all straw2, with a replicated rule over hosts, an erasure rule and one over OSDs.
fn crush(rng: &mut ChaCha8Rng, osds: i32) -> CrushMap {
    let mut map = CrushMap::default();
    map.type_names = [(0, "osd"), (1, "host"), (3, "rack"), (11, "root")].map(|(id, n)| (id, n.to_owned())).into();
    let mut buckets: Vec<Bucket> = vec![bucket(ROOT, vec![])];
    let racks = rng.random_range(1..4);
    let hosts = rng.random_range(3..8);
    for rack in 0..racks {
        buckets.push(bucket(RACK, vec![]));
        map.names.insert(-2 - rack, format!("rack{rack}"));
    }
    for host in 0..hosts {
        let mine: Vec<(i32, u32)> = (0..osds)
            .filter(|osd| osd % hosts == host)
            .map(|osd| (osd, rng.random_range(0..4 * 0x1_0000)))
            .collect();
        buckets.push(bucket(HOST, mine));
        map.names.insert(-2 - racks - host, format!("host{host}"));
    }
    map.names.insert(-1, "default".to_owned());
    map.names.extend((0..osds).map(|osd| (osd, format!("osd.{osd}"))));
    for (i, bucket) in buckets.iter_mut().enumerate() {
        bucket.id = -1 - i as i32;
    }
    let first_host = 1 + racks as usize;
    for host in first_host..buckets.len() {
        let (id, weight) = (buckets[host].id, buckets[host].weight);
        adopt(&mut buckets[1 + host % racks as usize], id, weight);
    }
    for rack in 1..first_host {
        let (id, weight) = (buckets[rack].id, buckets[rack].weight);
        adopt(&mut buckets[0], id, weight);
    }
    let places = buckets.len().next_power_of_two();
    map.buckets = buckets.into_iter().map(Some).collect();
    map.buckets.resize(places, None);
    let emit = Step::new(Op::Emit, 0, 0);
    let take = Step::new(Op::Take, -1, 0);
    let erasure = vec![
        Step::new(Op::SetChooseleafTries, 5, 0),
        Step::new(Op::SetChooseTries, 100, 0),
        take,
        Step::new(Op::ChooseIndep, 0, 0),
        emit,
    ];
    let rules = [
        ("replicated_rule", 1, vec![take, Step::new(Op::ChooseleafFirstn, 0, HOST.into()), emit]),
        ("erasure_rule", 3, erasure),
        ("flat", 1, vec![take, Step::new(Op::ChooseFirstn, 0, 0), emit]),
    ];
    for (number, (name, kind, steps)) in rules.into_iter().enumerate() {
        map.rule_names.insert(number as i32, name.to_owned());
        map.rules.push(Some(Rule { ruleset: number as u8, kind, min_size: 1, max_size: 10, steps }));
    }
    map.finalize();
    for pool in [crush::COMPAT_WEIGHT_SET, 1] {
        if rng.random_bool(0.3) {
            let args = weight_sets(rng, &map, if pool == 1 { 2 } else { 1 });
            map.choose_args.insert(pool, args);
        }
    }
    map
}

/// Other weights, and for some buckets other ids, for each of `positions` replicas.
fn weight_sets(rng: &mut ChaCha8Rng, map: &CrushMap, positions: usize) -> ChooseArgs {
    let mut args = ChooseArgs::new();
    for bucket in map.iter_buckets().filter(|b| !b.items.is_empty()) {
        let mut weights = || bucket.items.iter().map(|_| rng.random_range(0..2 * 0x1_0000)).collect();
        let weight_set = (0..positions).map(|_| weights()).collect();
        let ids = if rng.random_bool(0.2) { bucket.items.iter().map(|i| i - 1000).collect() } else { Vec::new() };
        args.insert(!bucket.id as u32, ChooseArg { weight_set, ids });
    }
    args
}

fn bucket(kind: u16, items: Vec<(i32, u32)>) -> Bucket {
    let weights: Vec<u32> = items.iter().map(|(_, w)| *w).collect();
    Bucket {
        id: 0,
        kind,
        hash: 0,
        weight: weights.iter().sum(),
        items: items.into_iter().map(|(id, _)| id).collect(),
        alg: Alg::Straw2 { item_weights: weights },
    }
}

fn adopt(parent: &mut Bucket, child: i32, weight: u32) {
    parent.items.push(child);
    parent.weight += weight;
    if let Alg::Straw2 { item_weights } = &mut parent.alg {
        item_weights.push(weight);
    }
}

fn stamp(rng: &mut ChaCha8Rng) -> Utime {
    Utime { sec: rng.random_range(1_000_000_000..4_000_000_000), nsec: rng.random_range(0..1_000_000_000) }
}

fn addr(rng: &mut ChaCha8Rng, kind: AddrKind) -> EntityAddr {
    let port = rng.random_range(1024..65535);
    let text = match rng.random_bool(0.2) {
        true => format!("[fe80::{:x}]:{port}", rng.random_range(1..65535)),
        false => format!("10.0.{}.1:{port}", rng.random_range(0..255)),
    };
    EntityAddr { kind, nonce: rng.random(), sock: text.parse().ok() }
}

fn pick<'a, T>(rng: &mut ChaCha8Rng, from: &'a [T]) -> &'a T {
    &from[rng.random_range(0..from.len())]
}
