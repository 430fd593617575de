//! A whole cluster in one world: monitors, OSDs, and programs over the native client.

use crate::history::{History, Racer};
use crate::host::{Boot, HostId};
use crate::model::Model;
use crate::program::Program;
use crate::sim::{Sim, Tunables};
use crate::snapper;
use crate::workload::{Workload, read_each, read_everything};
use crate::world::SimWorld;
use admin::option::{ConfigValues, Source};
use auth::{CryptoKey, EntityAuth, KeyKind, Keyring};
use bytes::Bytes;
use client::{Handle, MonClientConfig};
use node::{Input, MonNode, Node, OsdNode, OsdNodeConfig};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use store::{Store, StoreConfig};
use types::map::MonMap;
use types::{AddrVec, EntityAddr, EntityKind, EntityName, Errno, OsdId, Utime};
use uuid::Uuid;

const MON_PORT: u16 = 3300;
const OSD_PORT: u16 = 6800;
const DISK_BYTES: u64 = 1 << 30;
/// The pool that workloads use.
pub const POOL: &str = "sim";

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct Plan {
    pub mons: usize,
    pub osds: usize,
    pub size: u32,
    pub min_size: u32,
    /// The pool is erasure-coded: data chunks, and bytes of a chunk in a stripe; `size` are all chunks.
    pub coded: Option<(u32, u32)>,
    pub pgs: u32,
    /// Entries a PG log keeps: few make backfill of what would be recovery.
    pub log_entries_max: usize,
    /// `osd_pg_log_dups_tracked`: writes whose requests a PG knows when they are sent again.
    pub log_dups_tracked: u64,
    /// `mon_osd_down_out_interval`, seconds: short ones move data.
    pub out_after_s: u32,
    /// `mon_min_osdmap_epochs`: with few, those who come late lack maps.
    pub map_epochs: u32,
    /// `osd_recovery_max_active`: with few, objects are missing for long.
    pub recovery_max: u32,
    /// PGs are deep-scrubbed that often, in seconds, and what is found is repaired; 0: never.
    pub scrub_s: u32,
    /// `osd_backfill_scan_min`: with few objects to a page, a backfill has many cursors to be interrupted at.
    pub scan_min: u32,
    /// OSDs have a network of their own.
    pub two_networks: bool,
    /// `osd_max_backfills`.
    pub max_backfills: u32,
    /// `osd_client_message_cap`: requests of clients that an OSD may have under way.
    pub client_messages: u32,
    /// Each OSD compresses, checks and defers as it draws from this seed; without one as it does by itself.
    pub storing: Option<u64>,
    /// Of each OSD.
    pub disk_bytes: u64,
    /// From where on OSDs are full, in thousandths: every ratio there is, at first.
    pub full_per_mille: u32,
}

impl Default for Plan {
    fn default() -> Self {
        Plan {
            mons: 1,
            osds: 3,
            size: 3,
            min_size: 2,
            coded: None,
            pgs: 4,
            log_entries_max: 100,
            log_dups_tracked: 3000,
            out_after_s: 600,
            map_epochs: 500,
            recovery_max: 0,
            scrub_s: 0,
            scan_min: 64,
            two_networks: false,
            max_backfills: 1,
            client_messages: 256,
            storing: None,
            disk_bytes: DISK_BYTES,
            full_per_mille: 970,
        }
    }
}

/// A simulated cluster and what its clients were promised.
pub struct Cluster {
    pub sim: Sim,
    pub mons: Vec<HostId>,
    pub osds: Vec<HostId>,
    pub programs: Vec<HostId>,
    pub model: Rc<RefCell<Model>>,
    ids: Rc<Identity>,
    /// Commands that have not been obeyed yet.
    commands: Rc<Cell<usize>>,
    mon_addrs: Vec<AddrVec>,
    /// Placement groups of the pool, as was asked for last, and those of them with places of their own.
    pub pgs: u32,
    pgps: u32,
    /// Changes of these numbers: given, and done.
    pg_changes: Rc<Cell<(u64, u64)>>,
    plan: Plan,
}

/// What mkfs needs and daemons prove themselves with.
struct Identity {
    fsid: Uuid,
    keyring: Keyring,
    osd_uuids: Vec<Uuid>,
}

impl Identity {
    fn new(rng: &mut ChaCha8Rng, osds: usize) -> Self {
        let mut keyring = Keyring::default();
        let mut add = |name: EntityName, caps: &[(&str, &str)]| {
            let key = CryptoKey::generate(KeyKind::Aes, Utime { sec: 1_763_000_000, nsec: 0 }, rng);
            let caps: BTreeMap<String, String> = caps.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            keyring.entries.insert(name, EntityAuth { key, caps });
        };
        add(EntityName::new(EntityKind::MON, ""), &[("mon", "allow *")]);
        let all = [("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *"), ("mds", "allow *")];
        add(EntityName::new(EntityKind::CLIENT, "admin"), &all);
        for osd in 0..osds {
            let caps = [("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")];
            add(osd_name(osd), &caps);
        }
        let fsid = Uuid::from_u128(rng.random());
        Identity { fsid, keyring, osd_uuids: (0..osds).map(|_| Uuid::from_u128(rng.random())).collect() }
    }

    fn key(&self, name: &EntityName) -> CryptoKey {
        self.keyring.key(name).cloned().expect("a key for everyone who is simulated")
    }
}

fn osd_name(osd: usize) -> EntityName {
    EntityName::new(EntityKind::OSD, osd.to_string())
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

impl Cluster {
    /// Formats every daemon and starts it, registers the OSDs, and makes the pool; nothing has happened yet.
    pub fn new(seed: u64, tunables: Tunables, plan: &Plan) -> Self {
        let mut sim = Sim::new(seed, tunables);
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x5eed);
        let ids = Rc::new(Identity::new(&mut rng, plan.osds));
        let mons = add_mons(&mut sim, &ids, plan);
        let mon_addrs: Vec<AddrVec> = mons.iter().map(|mon| AddrVec(vec![EntityAddr::msgr2(sim.addr(*mon), 0)])).collect();
        let osds = (0..plan.osds).map(|n| add_osd(&mut sim, &ids, n, &mon_addrs, plan)).collect();
        let model = Rc::new(RefCell::new(Model::default()));
        let (commands, kept) = (Rc::default(), plan.clone());
        let mut cluster = Cluster { sim, mons, osds, programs: Vec::new(), model, ids, commands, mon_addrs, pgs: plan.pgs, pgps: plan.pgs, pg_changes: Rc::default(), plan: kept };
        for mon in cluster.mons.clone() {
            cluster.sim.start(mon);
        }
        cluster.add_setup(plan);
        for osd in cluster.osds.clone() {
            cluster.sim.start(osd);
        }
        cluster
    }

    /// Adds and starts a program that does `work`.
    pub fn add_workload(&mut self, name: &str, work: Workload) {
        let (model, label) = (self.model.clone(), name.to_owned());
        self.add_program(name, move |seed, handle, clock| work.tasks(&label, seed, &model, &handle, &clock));
    }

    /// Adds and starts a program that takes snapshots of what it writes.
    pub fn add_snapper(&mut self, name: &str, work: Workload) {
        let (model, label) = (self.model.clone(), name.to_owned());
        self.add_program(name, move |seed, handle, clock| snapper::tasks(&work, &label, seed, &model, &handle, &clock));
    }

    /// Adds and starts a program that reads every object and checks it.
    pub fn add_reader(&mut self) {
        let model = self.model.clone();
        self.add_program("reader", move |_, handle, clock| vec![read_everything(POOL.into(), model.clone(), handle, clock)]);
    }

    /// Adds and starts a program whose tasks race with those of others for a few objects, and one that only reads them; what they
    /// saw is noted.
    pub fn add_sharer(&mut self, number: usize, tasks: usize, history: &Rc<RefCell<History>>) {
        let (model, history, time) = (self.model.clone(), history.clone(), self.sim.time());
        self.add_program(&format!("sharer-{number}"), move |seed, handle, clock| {
            let racer = |n: usize| Racer::new(number * 10 + n, seed, &model, &history, &handle, &clock, &time);
            let sharers = (0..tasks).map(|n| Box::pin(racer(n).share()) as Task);
            sharers.chain([Box::pin(racer(9).watch()) as Task]).collect()
        });
    }

    /// Adds and starts a program that reads every object, each by a task of its own.
    pub fn add_readers(&mut self) {
        let model = self.model.clone();
        self.add_program("readers", move |_, handle, clock| read_each(POOL, &model, &handle, &clock));
    }

    /// Starts one more monitor, with an empty disk and the first map: it asks to be let in.
    pub fn add_mon(&mut self) -> HostId {
        let name = char::from(b'a' + self.mons.len() as u8).to_string();
        let id = add_mon(&mut self.sim, &name, &self.plan);
        self.format_mon(id);
        self.sim.start(id);
        self.mons.push(id);
        id
    }

    /// A monitor loses its disk and starts with an empty one.
    pub fn lose_mon_disk(&mut self, id: HostId) {
        self.sim.crash(id, false);
        self.sim.replace_disk(id, DISK_BYTES);
        self.format_mon(id);
        self.sim.start(id);
    }

    fn format_mon(&mut self, id: HostId) {
        mon::mkfs(&mut self.sim.disk(id).kv(), &first_map(&self.ids, &self.mon_addrs), &self.ids.keyring).expect("an empty disk can be formatted");
    }

    /// Gives an OSD that is not running an empty disk, as whoever replaces a broken one does.
    pub fn replace_disk(&mut self, n: usize) {
        self.sim.replace_disk(self.osds[n], self.plan.disk_bytes);
        format_osd(&self.sim, &self.ids, self.osds[n], n);
    }

    /// An operator says how far OSDs may fill their disks.
    pub fn set_full(&mut self, per_mille: u32) {
        set_full(per_mille).iter().for_each(|set| self.command(set));
    }

    /// An operator gives a command until it succeeds.
    pub fn command(&mut self, json: &str) {
        let (json, open) = (json.to_owned(), self.commands.clone());
        open.set(open.get() + 1);
        self.add_program("operator", move |_, handle, clock| {
            let (json, open) = (json.clone(), open.clone());
            vec![Box::pin(async move {
                command(&handle, &clock, &json, "").await;
                open.set(open.get() - 1);
            })]
        });
    }

    /// Every snapshot that was ever taken is removed.
    pub fn remove_snapshots(&mut self) {
        let (model, open) = (self.model.clone(), self.commands.clone());
        open.set(open.get() + 1);
        self.add_program("remover", move |_, handle, clock| {
            let (model, open) = (model.clone(), open.clone());
            vec![Box::pin(async move {
                snapper::remove_all(&handle, &clock, &model).await;
                open.set(open.get() - 1);
            })]
        });
    }

    /// How the pool's objects are encoded, if they are.
    pub fn coded(&self) -> Option<ec::Code> {
        let (k, _) = self.plan.coded?;
        Some(ec::Code::new(ec::Technique::Vandermonde, k as usize, (self.plan.size - k) as usize))
    }

    /// An operator gives the pool more placement groups or fewer, drawn.
    pub fn change_pgs(&mut self) {
        let (pgs, pgps) = (self.pgs, self.pgps);
        let (pgs, pgps) = crate::scenario::other_pgs(self.sim.rng(), pgs, pgps);
        self.set_pgs(pgs, pgps);
    }

    /// An operator gives the pool so many placement groups, `pgp_num` of them with places of their own. (What a manager does step
    /// by step.)
    pub fn set_pgs(&mut self, pg_num: u32, pgp_num: u32) {
        let before = std::mem::replace(&mut self.pgs, pg_num);
        self.pgps = pgp_num;
        let set = |var: &str, n: u32| format!(r#"{{"prefix": "osd pool set", "pool": "{POOL}", "var": "{var}", "val": "{n}"}}"#);
        let (steps, ends) = match pg_num < before {
            // The last one ends first, each when it has no place of its own.
            true => (vec![set("pgp_num_actual", pgp_num)], (pg_num..before).rev().map(|n| (n, set("pg_num_actual", n))).collect()),
            false => (vec![set("pg_num_actual", pg_num), set("pgp_num_actual", pgp_num)], Vec::new()),
        };
        let (open, changes) = (self.commands.clone(), self.pg_changes.clone());
        open.set(open.get() + 1);
        let (turn, ended) = changes.get();
        changes.set((turn + 1, ended));
        self.add_program("operator", move |_, handle, clock| {
            let (steps, ends, open, changes) = (steps.clone(), ends.clone(), open.clone(), changes.clone());
            vec![Box::pin(async move {
                // Changes come one after the other.
                while changes.get().1 < turn {
                    clock.sleep(Duration::from_millis(100)).await;
                }
                for step in &steps {
                    command(&handle, &clock, step, "").await;
                }
                for (n, step) in &ends {
                    // What OSDs give up is begun again.
                    while pgs_now(&handle).await.is_none_or(|now| now > *n) {
                        let _ = handle.mon_command(step.clone(), Bytes::new()).await;
                        clock.sleep(Duration::from_millis(500)).await;
                    }
                }
                changes.set((changes.get().0, changes.get().1 + 1));
                open.set(open.get() - 1);
            })]
        });
    }

    /// Commands that have not succeeded yet.
    pub fn open_commands(&self) -> usize {
        self.commands.get()
    }

    /// Runs until every command has succeeded.
    pub fn await_commands(&mut self) {
        let (open, until) = (self.commands.clone(), self.sim.now_ns() + 900_000_000_000);
        self.sim.run_until_done(until, || open.get() == 0);
    }

    /// What the monitors answer to a command, given as JSON; for whoever replays a seed.
    pub fn ask(&mut self, json: &str) -> String {
        let (said, json) = (Rc::new(RefCell::new(None)), json.to_owned());
        let answer = said.clone();
        self.add_program("doctor", move |_, handle, _| {
            let (json, answer) = (json.clone(), answer.clone());
            vec![Box::pin(async move {
                let reply = handle.mon_command(json, Bytes::new()).await;
                let text = reply.map(|r| format!("{} {}{}", r.result, r.status, String::from_utf8_lossy(&r.output)));
                *answer.borrow_mut() = Some(text.unwrap_or_else(|e| e.to_string()));
            })]
        });
        let until = self.sim.now_ns() + 30_000_000_000;
        self.sim.run_until_done(until, || said.borrow().is_some());
        said.take().unwrap_or_else(|| "no answer".into())
    }

    /// Runs until `tasks` tasks have finished, or for `limit` of simulated time; true if they have.
    pub fn run_until_finished(&mut self, tasks: usize, limit: Duration) -> bool {
        let (model, until) = (self.model.clone(), self.sim.now_ns() + limit.as_nanos() as u64);
        self.sim.run_until_done(until, || {
            let model = model.borrow();
            model.finished >= tasks || !model.faults.is_empty()
        })
    }

    fn add_program(&mut self, name: &str, tasks: impl Fn(u64, Handle, crate::Clock) -> Vec<Task> + 'static) {
        let admin = EntityName::new(EntityKind::CLIENT, "admin");
        let config = MonClientConfig::new(admin.clone(), self.ids.key(&admin), self.mon_addrs.clone());
        let id = self.sim.add(name, 0, 0, move |boot: Boot<'_>| -> Box<dyn Node<SimWorld>> {
            let seed = boot.seed;
            Box::new(Program::new(config.clone(), boot.nonce, seed, |handle, clock| tasks(seed, handle, clock)))
        });
        self.sim.start(id);
        self.programs.push(id);
    }

    /// A program that does what an operator would: registers the OSDs and makes the pool.
    fn add_setup(&mut self, plan: &Plan) {
        let (model, ids, plan) = (self.model.clone(), self.ids.clone(), plan.clone());
        self.add_program("operator", move |_, handle, clock| {
            let (model, ids, plan) = (model.clone(), ids.clone(), plan.clone());
            vec![Box::pin(async move {
                for (n, uuid) in ids.osd_uuids.iter().enumerate() {
                    let secret = format!("{{\"cephx_secret\": \"{}\"}}", ids.key(&osd_name(n)));
                    command(&handle, &clock, &format!(r#"{{"prefix": "osd new", "uuid": "{uuid}", "id": {n}}}"#), &secret).await;
                }
                let (pgs, size) = (plan.pgs, plan.size);
                let how = match plan.coded {
                    None => format!(r#""size": {size}"#),
                    Some((k, unit)) => {
                        let m = size - k;
                        let profile = format!(r#"["k={k}", "m={m}", "stripe_unit={unit}", "crush-failure-domain=osd"]"#);
                        let set = format!(r#"{{"prefix": "osd erasure-code-profile set", "name": "{POOL}", "profile": {profile}, "force": true}}"#);
                        command(&handle, &clock, &set, "").await;
                        format!(r#""pool_type": "erasure", "erasure_code_profile": "{POOL}""#)
                    }
                };
                let create = format!(
                    r#"{{"prefix": "osd pool create", "pool": "{POOL}", "pg_num": {pgs}, "pgp_num": {pgs}, {how}, "pg_num_min": 1}}"#
                );
                command(&handle, &clock, &create, "").await;
                if plan.coded.is_some() {
                    let overwrites = format!(r#"{{"prefix": "osd pool set", "pool": "{POOL}", "var": "allow_ec_overwrites", "val": "true"}}"#);
                    command(&handle, &clock, &overwrites, "").await;
                }
                let min_size = format!(
                    r#"{{"prefix": "osd pool set", "pool": "{POOL}", "var": "min_size", "val": "{}"}}"#,
                    plan.min_size
                );
                command(&handle, &clock, &min_size, "").await;
                for set in set_full(plan.full_per_mille) {
                    command(&handle, &clock, &set, "").await;
                }
                model.borrow_mut().finished += 1;
            })]
        });
    }
}

/// The commands that make OSDs full from there on.
fn set_full(per_mille: u32) -> Vec<String> {
    let ratio = f64::from(per_mille) / 1000.0;
    let failsafe = format!(r#"{{"prefix": "config set", "who": "osd", "name": "osd_failsafe_full_ratio", "value": "{ratio}"}}"#);
    let of_map = |what: &str| format!(r#"{{"prefix": "osd set-{what}-ratio", "ratio": {ratio}}}"#);
    [failsafe].into_iter().chain(["nearfull", "backfillfull", "full"].map(of_map)).collect()
}

/// Runs a command until it succeeds.
async fn command(handle: &Handle, clock: &crate::Clock, json: &str, input: &str) {
    loop {
        let reply = handle.mon_command(json, Bytes::copy_from_slice(input.as_bytes())).await;
        match reply {
            Ok(reply) if reply.result >= 0 || reply.result == Errno::EEXIST.wire() => return,
            Ok(reply) => eprintln!("{json}: {} {}", reply.result, reply.status),
            Err(errno) => eprintln!("{json}: {errno}"),
        }
        clock.sleep(Duration::from_secs(1)).await;
    }
}

/// How many placement groups the pool has.
async fn pgs_now(handle: &Handle) -> Option<u32> {
    let get = format!(r#"{{"prefix": "osd pool get", "pool": "{POOL}", "var": "pg_num", "format": "json"}}"#);
    let reply = handle.mon_command(get, Bytes::new()).await.ok().filter(|reply| reply.result >= 0)?;
    let value: serde_json::Value = serde_json::from_slice(&reply.output).ok()?;
    value["pg_num"].as_u64()?.try_into().ok()
}

/// Monitors a, b, c, formatted with a map of them all.
fn add_mons(sim: &mut Sim, ids: &Rc<Identity>, plan: &Plan) -> Vec<HostId> {
    let names: Vec<String> = ('a'..='z').take(plan.mons).map(String::from).collect();
    let mons: Vec<HostId> = names.iter().map(|name| add_mon(sim, name, plan)).collect();
    let addrs: Vec<AddrVec> = mons.iter().map(|id| AddrVec(vec![EntityAddr::msgr2(sim.addr(*id), 0)])).collect();
    for id in &mons {
        mon::mkfs(&mut sim.disk(*id).kv(), &first_map(ids, &addrs), &ids.keyring).expect("an empty disk can be formatted");
    }
    mons
}

/// The map the cluster begins with.
fn first_map(ids: &Identity, addrs: &[AddrVec]) -> MonMap {
    let mut map = MonMap::new(ids.fsid, Utime { sec: 1_763_000_000, nsec: 0 });
    ('a'..='z').zip(addrs).for_each(|(name, addrs)| map.add(&name.to_string(), addrs.clone()));
    map
}

/// A monitor that was removed: its process ends at once.
struct Removed;

impl Node<SimWorld> for Removed {
    fn handle(&mut self, _: &mut SimWorld, _: Input) {}

    fn settle(&mut self, _: &mut SimWorld) {}

    fn stopped(&self) -> Option<i32> {
        Some(1)
    }
}

fn add_mon(sim: &mut Sim, name: &str, plan: &Plan) -> HostId {
    let options = [("mon_osd_down_out_interval", plan.out_after_s), ("mon_min_osdmap_epochs", plan.map_epochs)];
    let options: BTreeMap<String, String> = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_string())).collect();
    let name = name.to_owned();
    sim.add(&format!("mon.{name}"), MON_PORT, DISK_BYTES, move |boot: Boot<'_>| -> Box<dyn Node<SimWorld>> {
        let env = mon::Env {
            name: name.clone(),
            addrs: AddrVec(vec![EntityAddr::msgr2(boot.addr, 0)]),
            hostname: "host-mon".into(),
            options: options.clone(),
            metadata: BTreeMap::new(),
            boot: boot.seed,
        };
        match MonNode::new(env, boot.disk.kv(), boot.now, boot.seed) {
            Err(mon::OpenError::Removed(_)) => Box::new(Removed),
            opened => Box::new(opened.expect("a monitor opens what it wrote")),
        }
    })
}

fn add_osd(sim: &mut Sim, ids: &Rc<Identity>, n: usize, mon_addrs: &[AddrVec], plan: &Plan) -> HostId {
    let (own, mon_addrs) = (ids.clone(), mon_addrs.to_vec());
    let (log_entries_max, tracked) = (plan.log_entries_max, plan.log_dups_tracked.to_string());
    let (recovery_max, max_backfills) = (plan.recovery_max.to_string(), plan.max_backfills.to_string());
    let client_messages = plan.client_messages.to_string();
    let (scrub_s, two_networks) = (plan.scrub_s, plan.two_networks);
    let (scan_min, scan_max) = (plan.scan_min.to_string(), (plan.scan_min * 8).to_string());
    let storing = plan.storing.map(|seed| storing(seed, n).to_vec()).unwrap_or_default();
    let whoami = n as i32;
    let id = sim.add(&format!("osd.{n}"), OSD_PORT, plan.disk_bytes, move |boot: Boot<'_>| -> Box<dyn Node<SimWorld>> {
        let mut rng = ChaCha8Rng::seed_from_u64(boot.seed);
        // Every other one keeps no data itself: it goes by what the system's page cache has.
        let usual = StoreConfig::default();
        let config = StoreConfig { data_cache_bytes: usual.data_cache_bytes * (whoami as u64 % 2), ..usual };
        let store = Store::mount(boot.disk.dev(), boot.disk.kv(), config, own.fsid, whoami);
        let name = osd_name(n);
        let addrs = |at| AddrVec(vec![EntityAddr::msgr2(at, boot.nonce)]);
        let location = [("root", "default".to_owned()), ("host", format!("host-{n}"))];
        let mut options = ConfigValues::new(name.clone(), "ceph", "");
        options.set("osd_pg_log_dups_tracked", Source::File, &tracked).expect("a number");
        if log_entries_max < 500 {
            // Short logs are there to be too short.
            options.set("osd_max_pg_log_entries", Source::File, &log_entries_max.to_string()).expect("a number");
        }
        options.set("osd_mclock_override_recovery_settings", Source::File, "true").expect("a truth value");
        options.set("osd_recovery_max_active", Source::File, &recovery_max).expect("a number");
        options.set("osd_max_backfills", Source::File, &max_backfills).expect("a number");
        options.set("osd_client_message_cap", Source::File, &client_messages).expect("a number");
        let scrubs = [("min_interval", scrub_s.to_string()), ("auto_repair", "true".into()), ("auto_repair_num_errors", "100000".into())];
        for (name, value) in scrubs.iter().filter(|_| scrub_s > 0) {
            options.set(&format!("osd_scrub_{name}"), Source::File, value).expect("a value that fits");
        }
        if scrub_s > 0 {
            // Every scrub is deep; what was read in the ten seconds before need not be read again.
            options.set("osd_deep_scrub_interval", Source::File, "20").expect("a number");
        }
        for (name, value) in &storing {
            options.set(name, Source::File, value).expect("a value that fits");
        }
        options.set("osd_backfill_scan_min", Source::File, &scan_min).expect("a number");
        options.set("osd_backfill_scan_max", Source::File, &scan_max).expect("a number");
        let osd = osd::OsdConfig {
            whoami: OsdId(whoami),
            fsid: own.fsid,
            uuid: own.osd_uuids[n],
            addrs: addrs(boot.addr),
            cluster_addrs: addrs(if two_networks { boot.cluster_addr } else { boot.addr }),
            metadata: BTreeMap::new(),
            device_class: "ssd".into(),
            crush_location: location.into_iter().map(|(k, v)| (k.to_owned(), v)).collect(),
            limits: Default::default(),
            memory: Default::default(),
            log_entries_max,
            options: Some(options),
        };
        let mon = MonClientConfig::new(name.clone(), own.key(&name), mon_addrs.clone());
        let store = store.expect("an OSD mounts what it wrote");
        Box::new(OsdNode::new(OsdNodeConfig { osd, mon }, store, boot.now, rng.random()).expect("an OSD loads what it wrote"))
    });
    format_osd(sim, ids, id, n);
    id
}

/// How one OSD stores what it is given: one compresses what the next one does not, or does otherwise. Checksums are such that they find what rots.
fn storing(seed: u64, osd: usize) -> [(&'static str, &'static str); 6] {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed + osd as u64);
    let mut one_of = |of: &[&'static str]| of[rng.random_range(0..of.len())];
    [
        ("bluestore_compression_mode", one_of(&["none", "force", "force", "aggressive"])),
        ("bluestore_compression_algorithm", one_of(&["snappy", "lz4", "zstd", "zlib"])),
        ("bluestore_compression_min_blob_size", one_of(&["8192", "20480", "65536", "262144"])),
        ("bluestore_compression_required_ratio", one_of(&["0.875", "0.5", "1"])),
        ("bluestore_csum_type", one_of(&["crc32c", "crc32c", "xxhash32", "xxhash64"])),
        ("bluestore_prefer_deferred_size", one_of(&["0", "4096", "65536", "262144"])),
    ]
}

fn format_osd(sim: &Sim, ids: &Identity, id: HostId, n: usize) {
    let disk = sim.disk(id);
    Store::mkfs(&mut disk.dev(), &mut disk.kv(), ids.fsid, ids.osd_uuids[n], n as i32).expect("an empty disk can be formatted");
}
