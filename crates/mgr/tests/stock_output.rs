//! What the manager prints for the figures of a stock 16.2.15 cluster is what that cluster printed.
//!
//! Three OSDs of 10 GiB, pools `device_health_metrics` (1 PG) and `p` (8 PGs), one object of 25,864,680 bytes.

use admin::command::{Command, Reply};
use mgr::{Mgr, MgrSettings};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::map::{OsdMap, PgPool};
use types::msg::internal::{MgrStats, SlowOps};
use types::pg::{OsdPing, OsdStat, PgShard, PgState, PgStat, StoreStatfs};
use types::{AddrVec, EVersion, Epoch, Mono, Now, OsdId, PgId, PoolId, ShardPgId, Utime};
use uuid::Uuid;

const PG_ACTING: [(i64, u32, [i32; 3]); 9] = [
    (1, 0, [1, 0, 2]),
    (2, 0, [2, 1, 0]),
    (2, 1, [2, 1, 0]),
    (2, 2, [0, 1, 2]),
    (2, 3, [1, 2, 0]),
    (2, 4, [1, 0, 2]),
    (2, 5, [1, 0, 2]),
    (2, 6, [1, 0, 2]),
    (2, 7, [1, 0, 2]),
];

fn at(sec: u32) -> Now {
    Now { mono: Mono(u64::from(sec) * 1_000_000_000), wall: Utime { sec: 1_795_199_000 + sec, nsec: 0 } }
}

fn osdmap() -> OsdMap {
    let mut map = OsdMap::new(Uuid::nil(), at(0).wall);
    map.epoch = Epoch(18);
    map.set_max_osd(3);
    let mut crush = crush::CrushMap::build_default(&[(0, "vm", 642), (1, "vm", 642), (2, "vm", 642)], "osd").unwrap();
    for osd in 0..3 {
        map.osd_state[osd] = OsdMap::STATE_EXISTS | OsdMap::STATE_UP;
        map.osd_weight[osd] = OsdMap::WEIGHT_IN;
        map.client_addrs[osd] = AddrVec::default();
        crush.set_device_class(osd as i32, "hdd").unwrap();
    }
    map.crush = Arc::new(crush);
    for (id, name, pg_num) in [(1, "device_health_metrics", 1), (2, "p", 8)] {
        map.pools.insert(PoolId(id), PgPool { min_size: 2, pg_autoscale_mode: types::map::AutoscaleMode::OFF, ..PgPool::replicated(3, pg_num, 0) });
        map.pool_name.insert(PoolId(id), name.into());
    }
    map
}

fn pg(pool: i64, seed: u32, acting: [i32; 3]) -> PgStat {
    let acting: Vec<OsdId> = acting.map(OsdId).into();
    let well = at(50).wall;
    let mut out = PgStat {
        state: PgState::ACTIVE | PgState::CLEAN,
        reported_epoch: Epoch(17),
        reported_seq: 10,
        up: acting.clone(),
        up_primary: acting[0],
        acting_primary: acting[0],
        acting,
        last_change: well,
        last_active: well,
        last_clean: well,
        last_peered: well,
        last_fullsized: well,
        last_unstale: well,
        ..PgStat::default()
    };
    if (pool, seed) == (2, 3) {
        out.stats.sum.num_objects = 1;
        out.stats.sum.num_object_copies = 3;
        out.stats.sum.num_bytes = 25_864_680;
        out.version = EVersion { epoch: Epoch(17), version: 7 };
        out.log_size = 7;
        out.ondisk_log_size = 7;
    }
    out
}

fn report(osd: i32) -> MgrStats {
    let statfs = StoreStatfs {
        total: 10_737_418_240,
        available: 10_407_170_048,
        allocated: 26_021_888,
        internal_metadata: 304_218_112,
        ..StoreStatfs::default()
    };
    let primary = |(pool, seed, acting): &(i64, u32, [i32; 3])| {
        let id = PgId { pool: PoolId(*pool), seed: *seed };
        (acting[0] == osd).then(|| (id, pg(*pool, *seed, *acting)))
    };
    MgrStats {
        osd: OsdId(osd),
        fsid: Uuid::nil(),
        epoch: Epoch(18),
        stat: OsdStat { statfs, num_pgs: 9, ..OsdStat::default() },
        pools: BTreeMap::new(),
        pgs: PG_ACTING.iter().filter_map(primary).collect(),
        perf: BTreeMap::new(),
        slow_ops: SlowOps::default(),
        config: None,
        device: Default::default(),
    }
}

/// The next report of an OSD, in which its PGs have changed.
fn next_report(osd: i32, change: impl Fn(&mut PgStat)) -> MgrStats {
    let mut next = report(osd);
    for stat in next.pgs.values_mut() {
        stat.reported_seq += 1;
        change(stat);
    }
    next
}

fn cluster() -> Mgr {
    let mut mgr = Mgr::new(MgrSettings::default());
    mgr.handle_osdmap(at(40), Arc::new(osdmap()));
    for osd in 0..3 {
        mgr.handle_stats(at(50), report(osd));
    }
    mgr.handle_tick(at(50));
    mgr
}

fn run(mgr: &mut Mgr, json: &str) -> Reply {
    let command = match Command::parse(&[json.to_string()]) {
        Ok(command) => command,
        Err(e) => return e.into(),
    };
    match Mgr::resolve(&command) {
        Ok((_, args)) => mgr.run(at(58), &command, &args),
        Err(e) => e.into(),
    }
}

fn text(mgr: &mut Mgr, json: &str) -> String {
    let reply = run(mgr, json);
    assert_eq!(reply.result, 0, "{}", reply.status);
    String::from_utf8(reply.output).unwrap()
}

#[test]
fn osd_df_has_stock_columns_and_blanks() {
    let wanted = "\
ID  CLASS  WEIGHT   REWEIGHT  SIZE    RAW USE  DATA    OMAP  META     AVAIL    %USE  VAR   PGS  STATUS
 0    hdd  0.00980   1.00000  10 GiB  315 MiB  25 MiB   0 B  290 MiB  9.7 GiB  3.08  1.00    9      up
 1    hdd  0.00980   1.00000  10 GiB  315 MiB  25 MiB   0 B  290 MiB  9.7 GiB  3.08  1.00    9      up
 2    hdd  0.00980   1.00000  10 GiB  315 MiB  25 MiB   0 B  290 MiB  9.7 GiB  3.08  1.00    9      up
                       TOTAL  30 GiB  945 MiB  74 MiB   0 B  870 MiB   29 GiB  3.08                   
MIN/MAX VAR: 1.00/1.00  STDDEV: 0
";
    assert_eq!(text(&mut cluster(), r#"{"prefix":"osd df"}"#), wanted);
    assert_eq!(text(&mut cluster(), r#"{"prefix":"osd df","filter_by":"class","filter":"hdd"}"#), wanted);
}

#[test]
fn osd_df_tree_names_every_bucket() {
    let wanted = "\
ID  CLASS  WEIGHT   REWEIGHT  SIZE    RAW USE  DATA    OMAP  META     AVAIL    %USE  VAR   PGS  STATUS  TYPE NAME    
-1         0.02939         -  30 GiB  945 MiB  74 MiB   0 B  870 MiB   29 GiB  3.08  1.00    -          root default 
-2         0.02939         -  30 GiB  945 MiB  74 MiB   0 B  870 MiB   29 GiB  3.08  1.00    -              host vm  
 0    hdd  0.00980   1.00000  10 GiB  315 MiB  25 MiB   0 B  290 MiB  9.7 GiB  3.08  1.00    9      up          osd.0
 1    hdd  0.00980   1.00000  10 GiB  315 MiB  25 MiB   0 B  290 MiB  9.7 GiB  3.08  1.00    9      up          osd.1
 2    hdd  0.00980   1.00000  10 GiB  315 MiB  25 MiB   0 B  290 MiB  9.7 GiB  3.08  1.00    9      up          osd.2
                       TOTAL  30 GiB  945 MiB  74 MiB   0 B  870 MiB   29 GiB  3.08                                  
MIN/MAX VAR: 1.00/1.00  STDDEV: 0
";
    assert_eq!(text(&mut cluster(), r#"{"prefix":"osd df","output_method":"tree"}"#), wanted);
}

#[test]
fn an_osd_outside_the_tree_is_a_stray() {
    let mut mgr = cluster();
    let mut map = osdmap();
    map.epoch = Epoch(19);
    map.set_max_osd(4);
    map.osd_state[3] = OsdMap::STATE_EXISTS;
    mgr.handle_osdmap(at(60), Arc::new(map));
    let json: serde_json::Value = serde_json::from_str(&text(&mut mgr, r#"{"prefix":"osd df","format":"json"}"#)).unwrap();
    assert_eq!((json["nodes"].as_array().unwrap().len(), &json["stray"][0]["id"]), (3, &3.into()));
    assert!(text(&mut mgr, r#"{"prefix":"osd df"}"#).contains("\n 3               0         0     0 B"));
}

#[test]
fn osd_df_json_counts_in_kilobytes() {
    let json = text(&mut cluster(), r#"{"prefix":"osd df","format":"json"}"#);
    let node = concat!(
        r#"{"nodes":[{"id":0,"device_class":"hdd","name":"osd.0","type":"osd","type_id":0,"#,
        r#""crush_weight":0.009796142578125,"depth":2,"pool_weights":{},"reweight":1,"kb":10485760,"kb_used":322508,"#,
        r#""kb_used_data":25412,"kb_used_omap":0,"kb_used_meta":297088,"kb_avail":10163252,"#,
        r#""utilization":3.0756759643554688,"var":1,"pgs":9,"status":"up"}"#
    );
    assert!(json.starts_with(node), "{json}");
    let summary = concat!(
        r#""summary":{"total_kb":31457280,"total_kb_used":967524,"total_kb_used_data":76236,"total_kb_used_omap":0,"#,
        r#""total_kb_used_meta":891264,"total_kb_avail":30489756,"average_utilization":3.0756759643554688,"#,
        r#""min_var":1,"max_var":1,"dev":0}}"#
    );
    assert!(json.ends_with(summary), "{json}");
}

#[test]
fn pg_stat_is_one_line() {
    let wanted = "9 pgs: 9 active+clean; 25 MiB data, 945 MiB used, 29 GiB / 30 GiB avail\n";
    assert_eq!(text(&mut cluster(), r#"{"prefix":"pg stat"}"#), wanted);
    let json = concat!(
        r#"{"pg_ready":true,"pg_summary":{"num_pg_by_state":[{"name":"active+clean","num":9}],"num_pgs":9,"#,
        r#""num_bytes":25864680,"total_bytes":32212254720,"total_avail_bytes":31221510144,"#,
        r#""total_used_bytes":990744576,"total_used_raw_bytes":990744576}}"#
    );
    assert_eq!(text(&mut cluster(), r#"{"prefix":"pg stat","format":"json"}"#), json);
}

#[test]
fn pg_ls_filters_by_pool_osd_and_state() {
    let out = text(&mut cluster(), r#"{"prefix":"pg ls-by-pool","poolstr":"device_health_metrics"}"#);
    let wanted = "\
PG   OBJECTS  DEGRADED  MISPLACED  UNFOUND  BYTES  OMAP_BYTES*  OMAP_KEYS*  LOG  STATE         SINCE  VERSION  REPORTED  UP         ACTING     SCRUB_STAMP  DEEP_SCRUB_STAMP
1.0        0         0          0        0      0            0           0    0  active+clean     8s      0'0     17:10  [1,0,2]p1  [1,0,2]p1  0.000000     0.000000        
";
    assert!(out.starts_with(wanted), "{out}");
    let count = |json: &str| text(&mut cluster(), json).lines().filter(|l| l.contains("active+clean")).count();
    assert_eq!(count(r#"{"prefix":"pg ls"}"#), 9);
    assert_eq!(count(r#"{"prefix":"pg ls","pool":2}"#), 8);
    assert_eq!(count(r#"{"prefix":"pg ls-by-primary","osd":"osd.2"}"#), 2);
    assert_eq!(count(r#"{"prefix":"pg ls-by-osd","osd":2}"#), 9);
    assert_eq!(count(r#"{"prefix":"pg ls","states":["degraded"]}"#), 0);
}

#[test]
fn pg_dump_says_what_it_dumped() {
    let reply = run(&mut cluster(), r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"]}"#);
    assert_eq!(reply.status, "dumped pgs_brief");
    let out = String::from_utf8(reply.output).unwrap();
    let wanted = "\
PG_STAT  STATE         UP       UP_PRIMARY  ACTING   ACTING_PRIMARY
1.0      active+clean  [1,0,2]           1  [1,0,2]               1
2.0      active+clean  [2,1,0]           2  [2,1,0]               2
";
    assert!(out.starts_with(wanted), "{out}");
    assert_eq!(run(&mut cluster(), r#"{"prefix":"pg dump"}"#).status, "dumped all");
    let sum = text(&mut cluster(), r#"{"prefix":"pg dump","dumpcontents":["sum"]}"#);
    let wanted = "\
PG_STAT  OBJECTS  MISSING_ON_PRIMARY  DEGRADED  MISPLACED  UNFOUND  BYTES     OMAP_BYTES*  OMAP_KEYS*  LOG  DISK_LOG
sum            1                   0         0          0        0  25864680            0           0    7         7
OSD_STAT  USED     AVAIL   USED_RAW  TOTAL 
sum       945 MiB  29 GiB   945 MiB  30 GiB
";
    assert!(sum.contains(wanted), "{sum}");
}

/// The third place of every PG of pool 2, which is erasure-coded, is empty.
fn with_empty_places() -> Mgr {
    let (mut mgr, mut map) = (Mgr::new(MgrSettings::default()), osdmap());
    let profile = [("k", "2"), ("m", "1")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    map.erasure_code_profiles.insert("p".to_owned(), profile.into());
    if let Some(pool) = map.pools.get_mut(&PoolId(2)) {
        (pool.pool_type, pool.erasure_code_profile) = (types::map::PoolType::ERASURE, "p".to_owned());
    }
    mgr.handle_osdmap(at(40), Arc::new(map));
    for osd in 0..3 {
        let mut report = report(osd);
        for (_, stat) in report.pgs.iter_mut().filter(|(pg, _)| pg.pool == PoolId(2)) {
            stat.state = PgState::ACTIVE | PgState::UNDERSIZED | PgState::DEGRADED;
            (stat.up[2], stat.acting[2]) = (OsdId::HOLE, OsdId::HOLE);
            stat.avail_no_missing = (0..).zip(&stat.acting[..2]).map(|(shard, osd)| PgShard { osd: *osd, shard }).collect();
            let sum = &mut stat.stats.sum;
            sum.num_objects_degraded = sum.num_objects;
        }
        mgr.handle_stats(at(50), report);
    }
    mgr.handle_tick(at(50));
    mgr
}

#[test]
fn an_empty_place_is_none_and_no_osd() {
    let mut mgr = with_empty_places();
    let dump = text(&mut mgr, r#"{"prefix": "pg dump", "dumpcontents": ["pgs"]}"#);
    assert!(dump.contains("[2,1,NONE]") && !dump.contains(&OsdId::HOLE.to_string()), "{dump}");
    assert!(text(&mut mgr, r#"{"prefix": "pg ls"}"#).contains("[2,1,NONE]p2"));
    let json: serde_json::Value = serde_json::from_str(&text(&mut mgr, r#"{"prefix": "pg dump", "dumpcontents": ["pgs"], "format": "json"}"#)).unwrap();
    let pgs = json["pg_map"]["pg_stats"].as_array().or(json["pg_stats"].as_array()).unwrap();
    let stat = pgs.iter().find(|pg| pg["pgid"] == "2.0").unwrap();
    assert_eq!((&stat["up"][2], &stat["avail_no_missing"]), (&serde_json::json!(OsdId::HOLE.0), &serde_json::json!(["2(0)", "1(1)"])));
    // Of every PG two of three chunks are there: k of them.
    let reply = run(&mut mgr, r#"{"prefix": "osd ok-to-stop", "ids": ["0"]}"#);
    assert_eq!(reply.result, -16, "{}", reply.status);
    let digest = mgr.digest(at(50));
    let pool = &digest.pools[&PoolId(2)];
    assert_eq!(pool.raw_used_rate, 1.5);
    assert!((pool.max_avail as f64 / digest.pools[&PoolId(1)].max_avail as f64 - 2.0).abs() < 1e-6, "three copies, or one and a half");
    assert!(digest.pgs_by_osd.as_ref().unwrap().keys().all(|osd| *osd != OsdId::HOLE));
    let health = format!("{:?}", digest.health);
    assert!(health.contains("PG_DEGRADED") && health.contains("1/3 objects degraded"), "{health}");
}

#[test]
fn ok_to_stop_counts_what_is_left() {
    let mut mgr = cluster();
    let one = text(&mut mgr, r#"{"prefix":"osd ok-to-stop","ids":["0"]}"#);
    let wanted = concat!(
        r#"{"ok_to_stop":true,"osds":[0],"num_ok_pgs":9,"num_not_ok_pgs":0,"#,
        r#""ok_become_degraded":["1.0","2.0","2.1","2.2","2.3","2.4","2.5","2.6","2.7"]}"#,
        "\n"
    );
    assert_eq!(one, wanted);
    let two = run(&mut mgr, r#"{"prefix":"osd ok-to-stop","ids":["0","1"]}"#);
    assert_eq!((two.result, two.status.as_str()), (-16, "unsafe to stop osd(s) at this time (9 PGs are or would become offline)"));
    let destroy = run(&mut mgr, r#"{"prefix":"osd safe-to-destroy","ids":["0"]}"#);
    assert_eq!((destroy.result, destroy.status.as_str()), (-16, "OSD(s) 0 have 9 pgs currently mapped to them. "));
    let gone = run(&mut mgr, r#"{"prefix":"osd safe-to-destroy","ids":["77"]}"#);
    assert_eq!(gone.status, "OSD(s) 77 are safe to destroy without reducing data durability.");
}

#[test]
fn ok_to_stop_counts_copies_that_lack_objects_as_none() {
    let mut mgr = cluster();
    let next = next_report(0, |stat| {
        stat.state = PgState::ACTIVE | PgState::DEGRADED | PgState::RECOVERING;
        // Two act with osd.0: osd.2 does not have everything.
        let whole = |osd| PgShard { osd: OsdId(osd), shard: ShardPgId::NO_SHARD };
        stat.avail_no_missing = vec![whole(0), whole(1)];
    });
    mgr.handle_stats(at(60), next);
    assert_eq!(run(&mut mgr, r#"{"prefix":"osd ok-to-stop","ids":["1"]}"#).result, -16);
    let lacking = run(&mut mgr, r#"{"prefix":"osd ok-to-stop","ids":["2"]}"#);
    assert!(String::from_utf8(lacking.output).unwrap().contains("ok_become_more_degraded"), "{}", lacking.status);
}

#[test]
fn ok_to_stop_finds_more_that_can_stop() {
    let mut mgr = cluster();
    // All three are on one host, and two of three copies have to stay.
    let osds = |mgr: &mut Mgr, max: &str| {
        let said: serde_json::Value = serde_json::from_str(&text(mgr, &format!(r#"{{"prefix":"osd ok-to-stop","ids":["1"],"max":{max}}}"#))).unwrap();
        said["osds"].clone()
    };
    assert_eq!(osds(&mut mgr, "3"), serde_json::json!([1]));
    let mut lone = osdmap();
    lone.epoch = Epoch(lone.epoch.0 + 1);
    for pool in lone.pools.values_mut() {
        pool.min_size = 1;
    }
    mgr.handle_osdmap(at(59), Arc::new(lone));
    assert_eq!(osds(&mut mgr, "1"), serde_json::json!([1]));
    assert_eq!(osds(&mut mgr, "2"), serde_json::json!([0, 1]));
    assert_eq!(osds(&mut mgr, "9"), serde_json::json!([0, 1]));
    assert_eq!(run(&mut mgr, r#"{"prefix":"osd ok-to-stop","ids":["1"],"max":0}"#).result, -22);
}

#[test]
fn autoscale_status_has_stock_columns() {
    let wanted = "\
POOL                     SIZE  TARGET SIZE  RATE  RAW CAPACITY   RATIO  TARGET RATIO  EFFECTIVE RATIO  BIAS  PG_NUM  NEW PG_NUM  AUTOSCALE  BULK   
device_health_metrics      0                 3.0        30720M  0.0000                                  1.0       1              off        False  
p                      25258k                3.0        30720M  0.0024                                  1.0       8              off        False  
";
    assert_eq!(text(&mut cluster(), r#"{"prefix":"osd pool autoscale-status"}"#), wanted);
}

#[test]
fn osd_status_has_stock_columns() {
    let wanted = "\
ID  HOST   USED  AVAIL  WR OPS  WR DATA  RD OPS  RD DATA  STATE      
 0  vm     314M  9925M      0        0       0        0   exists,up  
 1  vm     314M  9925M      0        0       0        0   exists,up  
 2  vm     314M  9925M      0        0       0        0   exists,up  
";
    assert_eq!(text(&mut cluster(), r#"{"prefix":"osd status"}"#), wanted);
}

#[test]
fn errors_read_as_stock_ones() {
    let mut mgr = cluster();
    let mut refusal = |json: &str| {
        let reply = run(&mut mgr, json);
        (reply.result, reply.status)
    };
    assert_eq!(refusal(r#"{"prefix":"nonsense"}"#), (-22, "No handler found for 'nonsense'".into()));
    assert_eq!(refusal(r#"{"prefix":"osd pool stats","pool_name":"nope"}"#), (-2, "unrecognized pool 'nope'".into()));
    assert_eq!(refusal(r#"{"prefix":"pg ls-by-pool","poolstr":"nope"}"#), (-2, "pool nope does not exist".into()));
    assert_eq!(refusal(r#"{"prefix":"config show","who":"osd.9"}"#), (-2, "no config state for daemon osd.9".into()));
    assert_eq!(refusal(r#"{"prefix":"osd scrub","who":"77"}"#), (-11, "osd.77 is not up".into()));
    let text = "pg 1.0 primary osd.1 is not currently connected";
    assert_eq!(refusal(r#"{"prefix":"pg scrub","pgid":"1.0"}"#), (-11, text.into()));
    assert_eq!(refusal(r#"{"prefix":"balancer mode","mode":"crush-compat"}"#).0, 0);
    assert_eq!(refusal(r#"{"prefix":"balancer optimize","plan":"x"}"#), (-22, "Balancer enabled, disable to optimize manually".into()));
    assert_eq!(refusal(r#"{"prefix":"balancer show","plan":"x"}"#), (-2, "plan x not found".into()));
    assert_eq!(refusal(r#"{"prefix":"balancer eval","option":"x"}"#), (-22, "option \"x\" not a plan or a pool".into()));
    assert_eq!(refusal(r#"{"prefix":"balancer pool add","pools":["x","p"]}"#), (-22, "pool(s) ['x'] not found".into()));
    // Nothing is known of these, and an empty list would say that there are none.
    for what in [r#""crash ls""#, r#""crash stat""#, r#""crash archive-all""#, r#""crash info","id":"x""#, r#""device ls""#, r#""device ls-by-host","host":"vm""#] {
        let (result, status) = refusal(&format!(r#"{{"prefix":{what}}}"#));
        assert!(result == -95 && status.starts_with("Cuttlebone"), "{what}: {result} {status}");
    }
}

#[test]
fn what_the_balancer_is_told_goes_to_the_monitors_and_counts_at_once() {
    let mut mgr = cluster();
    assert_eq!(run(&mut mgr, r#"{"prefix":"balancer off"}"#).result, 0);
    assert_eq!(mgr.take_mon_orders(), [r#"{"prefix":"config set","who":"mgr","name":"mgr/balancer/active","value":"false"}"#]);
    assert!(text(&mut mgr, r#"{"prefix":"balancer status"}"#).contains(r#""active": false"#));
    run(&mut mgr, r#"{"prefix":"balancer off"}"#);
    assert!(mgr.take_mon_orders().is_empty(), "it is off");
    let nothing = run(&mut mgr, r#"{"prefix":"balancer optimize","plan":"x"}"#);
    assert_eq!(nothing.result, -114, "{}", nothing.status);
    assert!(text(&mut mgr, r#"{"prefix":"balancer eval"}"#).starts_with("current cluster score 0."));
    assert_eq!(run(&mut mgr, r#"{"prefix":"osd pool set noautoscale"}"#).status, "noautoscale is set, all pools now have autoscale off");
    assert_eq!(mgr.take_mon_orders().len(), 4, "two options, two pools");
}

#[test]
fn a_pg_whose_primary_is_down_is_stale_and_new_pgs_are_unknown() {
    let mut mgr = cluster();
    let mut map = osdmap();
    map.epoch = Epoch(19);
    map.osd_state[1] = OsdMap::STATE_EXISTS;
    map.pools.insert(PoolId(3), PgPool::replicated(3, 4, 0));
    map.pool_name.insert(PoolId(3), "new".into());
    mgr.handle_osdmap(at(60), Arc::new(map));
    let states = mgr.digest(at(60)).pgs_by_state;
    let stale = PgState::STALE | PgState::ACTIVE | PgState::CLEAN;
    assert_eq!(states, BTreeMap::from([(0, 4), (6, 3), (stale.0, 6)]));
}

#[test]
fn a_pg_that_does_not_serve_is_told_at_once_unless_it_is_new() {
    let codes = |mgr: &Mgr| mgr.digest(at(60)).health.into_iter().map(|h| h.code).collect::<Vec<_>>();
    let mut fresh = Mgr::new(MgrSettings::default());
    fresh.handle_osdmap(at(59), Arc::new(osdmap()));
    assert!(codes(&fresh).contains(&"PG_AVAILABILITY".to_string()), "nobody has reported");

    let mut mgr = cluster();
    assert!(!codes(&mgr).contains(&"PG_AVAILABILITY".to_string()));
    let mut map = osdmap();
    map.epoch = Epoch(19);
    map.modified = at(60).wall;
    map.pools.insert(PoolId(3), PgPool::replicated(3, 4, 0));
    map.pool_name.insert(PoolId(3), "new".into());
    mgr.handle_osdmap(at(60), Arc::new(map));
    assert!(!codes(&mgr).contains(&"PG_AVAILABILITY".to_string()), "a pool is being made");
    let mut next = report(0);
    let id = PgId { pool: PoolId(2), seed: 0 };
    let peering = PgStat { state: PgState::PEERING, reported_epoch: Epoch(18), last_change: at(60).wall, ..pg(2, 0, [1, 0, 2]) };
    next.pgs = BTreeMap::from([(id, peering)]);
    mgr.handle_stats(at(60), next);
    assert!(codes(&mgr).contains(&"PG_AVAILABILITY".to_string()), "an old pg is peering");
    let tell = |mgr: &mut Mgr, reported_seq: u64, state: PgState| {
        let mut next = report(0);
        next.pgs = BTreeMap::from([(id, PgStat { state, reported_epoch: Epoch(19), reported_seq, last_change: at(60).wall, ..pg(2, 0, [1, 0, 2]) })]);
        mgr.handle_stats(at(60), next);
    };
    tell(&mut mgr, 1, PgState::ACTIVE | PgState::CLEAN);
    assert!(!codes(&mgr).contains(&"PG_AVAILABILITY".to_string()));
    tell(&mut mgr, 2, PgState::ACTIVE | PgState::CLEAN | PgState::LAGGY);
    assert!(codes(&mgr).contains(&"PG_AVAILABILITY".to_string()), "clients wait for a lease");
}

#[test]
fn a_new_primary_does_not_make_a_pg_stuck_at_once() {
    let mut mgr = cluster();
    let mut next = report(0);
    let id = PgId { pool: PoolId(2), seed: 0 };
    let undersized = PgStat {
        state: PgState::ACTIVE | PgState::UNDERSIZED,
        reported_epoch: Epoch(18),
        last_fullsized: Utime::ZERO,
        last_change: at(58).wall,
        ..pg(2, 0, [1, 0, 0])
    };
    next.pgs = BTreeMap::from([(id, undersized)]);
    mgr.handle_stats(at(58), next);
    let stuck = r#"{"prefix":"pg dump_stuck","stuckops":["undersized"]}"#;
    assert_eq!(text(&mut mgr, stuck), "");
    assert!(text(&mut mgr, &stuck.replace("]}", "],\"threshold\":1}")).contains("2.0"));
}

#[test]
fn a_report_of_a_newer_map_waits_for_it() {
    let mut mgr = cluster();
    let mut map = osdmap();
    map.epoch = Epoch(19);
    map.pools.insert(PoolId(3), PgPool::replicated(3, 1, 0));
    map.pool_name.insert(PoolId(3), "new".into());
    let mut next = report(2);
    next.epoch = Epoch(19);
    next.pgs = BTreeMap::from([(PgId { pool: PoolId(3), seed: 0 }, pg(3, 0, [2, 1, 0]))]);
    mgr.handle_stats(at(59), next);
    mgr.handle_osdmap(at(60), Arc::new(map));
    assert_eq!(mgr.digest(at(60)).pgs_by_state, BTreeMap::from([(6, 10)]));
}

#[test]
fn the_digest_carries_usage_and_health() {
    let mgr = cluster();
    let digest = mgr.digest(at(58));
    let p = &digest.pools[&PoolId(2)];
    // Stock printed 9870298112: its shares are of single precision, and so are ours.
    assert!((p.max_avail as i64 - 9_870_298_112).abs() < 2048, "{}", p.max_avail);
    assert_eq!((p.num_pgs, p.raw_used_rate, digest.classes["hdd"].total), (8, 3.0, 32_212_254_720));
    assert_eq!(digest.health.iter().map(|h| h.code.as_str()).collect::<Vec<_>>(), ["POOL_APP_NOT_ENABLED"]);
}

#[test]
fn traffic_is_a_rate_over_the_window() {
    let mut mgr = cluster();
    let next = next_report(1, |stat| {
        if stat.log_size == 7 {
            stat.stats.sum.num_wr = 100;
            stat.stats.sum.num_wr_kb = 1000;
        }
    });
    mgr.handle_stats(at(60), next);
    mgr.handle_tick(at(60));
    let io = mgr.digest(at(60)).io;
    assert_eq!((io.write_ops, io.write_bytes), (10, 102_400));
    let stats = text(&mut mgr, r#"{"prefix":"osd pool stats","pool_name":"p"}"#);
    assert_eq!(stats, "pool p id 2\n  client io 100 KiB/s wr, 0 op/s rd, 10 op/s wr\n\n");
}

#[test]
fn who_waits_for_room_is_told_of_at_once() {
    for (state, code, summary) in [
        (PgState::RECOVERY_TOOFULL, "PG_RECOVERY_FULL", "Full OSDs hold recovery up: 1 pg recovery_toofull"),
        (PgState::BACKFILL_TOOFULL, "PG_BACKFILL_FULL", "Backfill waits for space: 1 pg backfill_toofull"),
    ] {
        let mut mgr = cluster();
        let next = next_report(0, |stat| {
            stat.state = PgState::ACTIVE | state;
        });
        mgr.handle_stats(at(60), next);
        let health = mgr.digest(at(60)).health;
        let check = health.iter().find(|h| h.code == code).unwrap_or_else(|| panic!("{health:?}"));
        assert_eq!(check.summary, summary);
    }
}

#[test]
fn pools_near_their_quotas_are_told_of_from_the_thresholds_on() {
    let mut mgr = cluster();
    let used = mgr.digest(at(60)).pools[&PoolId(2)].stat.stats.sum;
    let mut map = osdmap();
    map.epoch = Epoch(map.epoch.0 + 1);
    // Four fifths of the bytes; of objects nothing is said.
    let (bytes, max) = (used.num_bytes as u64, used.num_bytes as u64 * 5 / 4);
    map.pools.get_mut(&PoolId(2)).unwrap().quota_max_bytes = max;
    mgr.handle_osdmap(at(60), Arc::new(map));
    let mut told = |warn: i64, critical: i64| {
        mgr.set_settings(MgrSettings { quota_warn_percent: warn, quota_critical_percent: critical, ..MgrSettings::default() });
        let all = mgr.digest(at(60)).health.into_iter().filter(|h| h.code.starts_with("POOL_") && h.code.contains("FULL"));
        all.map(|h| (h.code, h.severity, h.summary, h.detail)).collect::<Vec<_>>()
    };
    let detail = vec![format!("pool 'p' has {} (max {})", admin::human::bytes(bytes), admin::human::bytes(max))];
    assert_eq!(told(0, 0), []);
    assert_eq!(told(90, 95), []);
    assert_eq!(told(70, 95), [("POOL_NEAR_FULL".into(), 1, "1 pools nearfull".into(), detail.clone())]);
    assert_eq!(told(60, 70), [("POOL_FULL".into(), 2, "1 pools full".into(), detail)]);
}

#[test]
fn slow_heartbeats_are_told_of_by_network_and_shown_in_stock_s_shape() {
    let mut mgr = cluster();
    let mut next = next_report(1, |_| {});
    let back = OsdPing { last_update_s: at(55).wall.sec, back_pingtime: (900, 1_400_000, 1_500_250), back_min: (800, 700, 600), back_max: (1000, 2_000_000, 3_000_000), back_last: 850, ..OsdPing::default() };
    let front = OsdPing { last_update_s: at(55).wall.sec, back_last: 1, front_pingtime: (2_000_000, 0, 0), front_last: 7000, ..OsdPing::default() };
    next.stat.hb_pingtime = BTreeMap::from([(0, back), (2, front)]);
    mgr.handle_stats(at(60), next);
    let told = |mgr: &Mgr, sec: u32| -> Vec<(String, String, Vec<String>)> {
        let all = mgr.digest(at(sec)).health.into_iter().filter(|h| h.code.contains("SLOW_PING"));
        all.map(|h| (h.code, h.summary, h.detail)).collect()
    };
    let of_back = ("OSD_SLOW_PING_TIME_BACK".into(), "Slow OSD heartbeats on back (longest 1500.250ms)".into(),
        vec!["Slow OSD heartbeats on back from osd.1 [] to osd.0 [] 1500.250 msec possibly improving".into()]);
    let of_front = ("OSD_SLOW_PING_TIME_FRONT".into(), "Slow OSD heartbeats on front (longest 2000.000ms)".into(),
        vec!["Slow OSD heartbeats on front from osd.1 [] to osd.2 [] 2000.000 msec".into()]);
    assert_eq!(told(&mgr, 60), [of_back, of_front.clone()]);
    assert_eq!(told(&mgr, 55 + 1201), [], "too long ago");
    mgr.set_settings(MgrSettings { slow_ping_us: 1_600_000, ..MgrSettings::default() });
    assert_eq!(told(&mgr, 60), [of_front]);
    mgr.set_settings(MgrSettings { slow_ping_us: 0, ..MgrSettings::default() });
    assert_eq!(told(&mgr, 60), [], "never");
    let shown: Value = serde_json::from_str(&text(&mut mgr, r#"{"prefix":"pg dump","dumpcontents":["osds"],"format":"json"}"#)).unwrap();
    let stats = shown["osd_stats"].as_array().unwrap_or_else(|| panic!("{shown}"));
    let times = &stats.iter().find(|s| s["osd"] == 1).unwrap()["network_ping_times"];
    assert_eq!(times[0]["osd"], 0);
    assert_eq!(times[0]["interfaces"], json!([{
        "interface": "back", "average": {"1min": 0.9, "5min": 1400, "15min": 1500.25}, "min": {"1min": 0.8, "5min": 0.7, "15min": 0.6},
        "max": {"1min": 1, "5min": 2000, "15min": 3000}, "last": 0.85,
    }]));
    assert_eq!(times[1]["interfaces"].as_array().unwrap().len(), 2);
}

#[test]
fn pools_with_too_few_pgs_and_misplaced_objects_are_told_of() {
    let mut mgr = cluster();
    let next = next_report(1, |stat| {
        let many = stat.log_size == 7;
        (stat.stats.sum.num_objects, stat.stats.sum.num_object_copies) = if many { (12_000, 36_000) } else { (1, 3) };
        stat.stats.sum.num_objects_misplaced = if many { 360 } else { 0 };
    });
    mgr.handle_stats(at(60), next);
    let mut told = |settings: MgrSettings| {
        mgr.set_settings(settings);
        let all = mgr.digest(at(60)).health.into_iter().filter(|h| ["MANY_OBJECTS_PER_PG", "OBJECT_MISPLACED"].contains(&h.code.as_str()));
        all.map(|h| (h.code, h.summary, h.detail)).collect::<Vec<_>>()
    };
    assert_eq!(told(MgrSettings::default()), [], "an eighth more than average");
    let many = ("MANY_OBJECTS_PER_PG".into(), "1 pools have many more objects per pg than average".into(),
        vec!["pool p objects per pg (1500) is more than 1.12528 times cluster average (1333)".into()]);
    assert_eq!(told(MgrSettings { object_skew: 1.1, ..MgrSettings::default() }), [many]);
    assert_eq!(told(MgrSettings { object_skew: 1.1, skewed_from: (1000, 20_000), ..MgrSettings::default() }), []);
    assert_eq!(told(MgrSettings { object_skew: 1.1, skewed_from: (20_000, 1000), ..MgrSettings::default() }), []);
    let misplaced = ("OBJECT_MISPLACED".into(), "360/36015 objects misplaced (1.000%)".into(), vec![]);
    assert_eq!(told(MgrSettings { warn_on_misplaced: true, ..MgrSettings::default() }), [misplaced]);
}

#[test]
fn the_digest_counts_pgs_by_osd() {
    let mut mgr = cluster();
    let by_osd = |mgr: &Mgr| mgr.digest(at(60)).pgs_by_osd.unwrap();
    assert_eq!(by_osd(&mgr), [(OsdId(0), 9), (OsdId(1), 9), (OsdId(2), 9)].into());
    // One that acts no more, and one that is still to get the data.
    let next = next_report(0, |stat| {
        (stat.acting, stat.up) = (vec![OsdId(0), OsdId(crush::ITEM_NONE)], vec![OsdId(0), OsdId(5)]);
    });
    mgr.handle_stats(at(60), next);
    let now = by_osd(&mgr);
    assert_eq!((now[&OsdId(0)], now[&OsdId(1)], now[&OsdId(2)], now[&OsdId(5)], now.len()), (9, 8, 8, 1, 4));
}

#[test]
fn troubles_are_told_when_they_last() {
    let mut mgr = cluster();
    let mut next = next_report(0, |stat| {
        stat.state = PgState::ACTIVE | PgState::UNDERSIZED | PgState::DEGRADED;
        stat.stats.sum.num_objects_degraded = 2;
        stat.stats.sum.num_object_copies = 3;
        stat.acting.truncate(2);
    });
    next.slow_ops = SlowOps { count: 2, oldest_ms: 31_500, stages: [("waiting for degraded object".into(), 2)].into() };
    mgr.handle_stats(at(60), next);
    let summary = |mgr: &Mgr, sec: u32, code: &str| {
        mgr.digest(at(sec)).health.into_iter().find(|h| h.code == code).map(|h| (h.summary, h.detail))
    };
    let (text, detail) = summary(&mgr, 60, "PG_DEGRADED").unwrap();
    assert_eq!(text, "Degraded data redundancy: 2/6 objects degraded (33.333%), 1 pg degraded");
    assert_eq!(detail, ["pg 2.2 is active+undersized+degraded, acting [0,1]"]);
    let (text, _) = summary(&mgr, 200, "PG_DEGRADED").unwrap();
    assert_eq!(text, "Degraded data redundancy: 2/6 objects degraded (33.333%), 1 pg degraded, 1 pg undersized");
    let (text, detail) = summary(&mgr, 60, "SLOW_OPS").unwrap();
    assert_eq!(detail, ["osd.0: 2 waiting for degraded object"]);
    assert_eq!(text, "2 slow ops, oldest one blocked for 31 sec, osd.0 has slow ops");
}
