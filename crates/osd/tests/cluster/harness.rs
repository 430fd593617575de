//! A cluster of OSD cores on disks in memory, with a monitor that only makes maps, and a seed that decides what happens
//! next.

use admin::option::{ConfigValues, Source};
use bytes::Bytes;
use crush::{CrushMap, RuleKind, SimpleRule};
use osd::object::{SHARD_ATTR, undo};
use osd::{Effect, Osd, OsdConfig, Peer, SessionId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;
use store::mem::{MemDev, MemDisk, MemIo, MemKv};
use store::{Store, StoreConfig};
use types::map::{OsdMap, PgPool, PoolType};
use types::msg::internal::{FailureKind, MgrStats, OsdFailure};
use types::msg::internal_osd::{OsdPing, PgBody, PgMessage};
use types::msg::mon::MOsdMap;
use types::msg::Message;
use types::*;
use uuid::Uuid;

mod clients;

pub use clients::{Pending, session};

pub const POOL: PoolId = PoolId(1);

struct Daemon {
    disk: MemDisk,
    running: Option<(Osd, Store<MemDev, MemKv>)>,
    /// Counts boots: each has addresses of its own.
    boots: u32,
    reads_to_fail: u32,
    /// Bytes its device has returned.
    read_bytes: u64,
    /// Only clients reach it.
    cut_off: bool,
    /// A network over which it and other OSDs do not hear each other.
    lost: Option<Network>,
}

/// Between OSDs there are two, if that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Cluster,
    Public,
}

/// Looks at what the first OSD says of a PG to the second, at the moment at which it does.
type Witness = Box<dyn FnMut(&Cluster, OsdId, OsdId, &PgMessage)>;

/// An object with its attributes and omap, as a store has it.
type StoredObject = (HObject, (BTreeMap<denc::BString, Bytes>, Vec<(denc::BString, Bytes)>));

pub struct Cluster {
    pub rng: ChaCha8Rng,
    pub now: Now,
    pub map: OsdMap,
    /// As everybody knows it.
    published_map: OsdMap,
    published: BTreeMap<Epoch, Bytes>,
    daemons: Vec<Daemon>,
    /// Messages in flight, in order for each pair.
    net: BTreeMap<(Peer, OsdId), VecDeque<(u64, Message)>>,
    /// What each client waits for, by tid.
    pub pending: BTreeMap<u64, Pending>,
    pub notifications: Vec<(SessionId, types::msg::osd::MWatchNotify)>,
    /// Lines for the cluster log.
    pub said: Vec<String>,
    /// Answers to commands, by number.
    pub command_replies: BTreeMap<u64, admin::command::Reply>,
    next_tid: u64,
    /// Merges that were made, and that were given up.
    pub merges: u32,
    pub bounces: u32,
    /// Backoffs that clients were told of.
    pub blocks: u32,
    /// What clients send is on its way for as long as this is so.
    pub clients_are_far: bool,
    /// The epochs of the maps that OSDs gave to clients, in order.
    pub maps_given: Vec<(SessionId, Epoch)>,
    /// What OSDs say to monitors is lost for as long as this is so.
    pub mon_is_deaf: bool,
    /// What the first of two says to the second is on its way for as long as they are here.
    pub held: BTreeSet<(OsdId, OsdId)>,
    /// Its disk ends nothing for as long as this is so.
    pub stuck_disk: Option<OsdId>,
    pub witness: Option<Witness>,
    /// What clients' writes are to leave as it is: the newest snapshot there ever was, and those there are; and what reads are of.
    pub kept: (Snap, Vec<Snap>),
    pub at: Snap,
    map_dirty: bool,
    /// What every OSD is started with.
    options: ConfigValues,
    /// Entries that PG logs of OSDs started from now on keep.
    pub log_entries_max: usize,
    /// OSDs started from now on keep more while a copy is away.
    pub logs_grow: bool,
    /// OSDs started from now on have a network of their own.
    pub two_networks: bool,
    /// What OSDs told the monitors of each other.
    pub reports: Vec<OsdFailure>,
    /// The last of what each OSD told the manager.
    pub stats: BTreeMap<OsdId, MgrStats>,
    /// Who ended by himself, and why; `None`: nobody may.
    pub stopped: Option<Vec<(OsdId, String)>>,
}

const FSID: Uuid = Uuid::from_u128(7);

impl Cluster {
    pub fn new(seed: u64, osds: i32, pg_num: u32) -> Self {
        Self::with_options(seed, osds, pg_num, &[])
    }

    pub fn with_options(seed: u64, osds: i32, pg_num: u32, options: &[(&str, &str)]) -> Self {
        Self::with_pool(seed, osds, options, |_| PgPool::replicated(3, pg_num, 0))
    }

    /// One whose pool is erasure-coded, in stripes so small that a few words are several.
    pub fn erasure_coded(seed: u64, osds: i32, pg_num: u32, (k, m): (u8, u8), options: &[(&str, &str)]) -> Self {
        let pool = |map: &mut OsdMap| {
            let mut crush = CrushMap::clone(&map.crush);
            let rule = SimpleRule { name: "coded", root: "default", failure_domain: "osd", class: None, kind: RuleKind::Erasure };
            let rule = crush.add_simple_rule(rule).unwrap() as u8;
            map.crush = Arc::new(crush);
            let profile = [("plugin", "isa".to_owned()), ("k", k.to_string()), ("m", m.to_string())];
            map.erasure_code_profiles.insert("coded".into(), profile.map(|(k, v)| (k.to_owned(), v)).into());
            let flags = PgPool::FLAG_HASHPSPOOL | PgPool::FLAG_EC_OVERWRITES;
            let erasure_code_profile = "coded".into();
            let stripe_width = u32::from(k) * 4;
            let min_size = k + 1.min(m - 1);
            PgPool { pool_type: PoolType::ERASURE, flags, erasure_code_profile, stripe_width, min_size, ..PgPool::replicated(k + m, pg_num, rule) }
        };
        Self::with_pool(seed, osds, options, pool)
    }

    fn with_pool(seed: u64, osds: i32, options: &[(&str, &str)], pool: impl FnOnce(&mut OsdMap) -> PgPool) -> Self {
        let mut map = OsdMap::new(FSID, Utime::ZERO);
        map.set_max_osd(osds);
        let hosts: Vec<(i32, String)> = (0..osds).map(|o| (o, format!("h{o}"))).collect();
        let hosts: Vec<(i32, &str, u32)> = hosts.iter().map(|(o, h)| (*o, h.as_str(), 0x10000)).collect();
        map.crush = Arc::new(CrushMap::build_default(&hosts, "osd").unwrap());
        for osd in 0..osds as usize {
            map.osd_state[osd] = OsdMap::STATE_EXISTS;
            map.osd_weight[osd] = 0x10000;
        }
        let pool = pool(&mut map);
        map.pools.insert(POOL, pool);
        map.pool_name.insert(POOL, "p".into());
        map.pool_max = 1;
        let daemons = (0..osds)
            .map(|_| Daemon { disk: MemDisk::new(64 << 20), running: None, boots: 0, reads_to_fail: 0, read_bytes: 0, cut_off: false, lost: None })
            .collect();
        let mut c = Cluster {
            rng: ChaCha8Rng::seed_from_u64(seed),
            now: Now { mono: Mono(1), wall: Utime { sec: 1000, nsec: 0 } },
            published_map: map.clone(),
            map,
            published: BTreeMap::new(),
            daemons,
            net: BTreeMap::new(),
            pending: BTreeMap::new(),
            notifications: Vec::new(),
            said: Vec::new(),
            command_replies: BTreeMap::new(),
            next_tid: 0,
            merges: 0,
            bounces: 0,
            blocks: 0,
            clients_are_far: false,
            maps_given: Vec::new(),
            mon_is_deaf: false,
            held: BTreeSet::new(),
            stuck_disk: None,
            witness: None,
            kept: (Snap(0), Vec::new()),
            at: Snap::HEAD,
            map_dirty: false,
            options: ConfigValues::new(EntityName::new(EntityKind::OSD, "0"), "ceph", "host"),
            log_entries_max: 20,
            logs_grow: false,
            two_networks: false,
            reports: Vec::new(),
            stats: BTreeMap::new(),
            stopped: None,
        };
        // What a test says of recovery counts, whatever the scheduler.
        c.options.set("osd_mclock_override_recovery_settings", Source::File, "true").unwrap();
        options.iter().for_each(|(name, value)| c.options.set(name, Source::File, value).unwrap());
        c.publish();
        for osd in 0..osds {
            let d = &c.daemons[osd as usize];
            Store::mkfs(&mut d.disk.dev(), &mut d.disk.kv(), FSID, Uuid::from_u128(osd as u128 + 1), osd).unwrap();
            c.start(OsdId(osd));
        }
        c
    }

    /// An epoch comes of which one OSD hears only with the next one.
    pub fn publish_unheard_by(&mut self, osd: OsdId) {
        self.publish_but_to(osd);
        self.publish();
    }

    /// An epoch comes of which one OSD hears nothing until it asks.
    pub fn publish_but_to(&mut self, osd: OsdId) {
        self.publish();
        self.net.remove(&(Peer::Mon, osd));
    }

    /// The monitor drops all maps but the newest.
    pub fn trim_maps(&mut self) {
        self.published = self.published.split_off(&self.map.epoch);
    }

    /// Makes the map as it is now the next epoch.
    pub fn publish(&mut self) {
        self.map.epoch = self.map.epoch.next();
        let raw = self.map.publish();
        self.published.insert(self.map.epoch, raw);
        self.map_dirty = false;
        let all: Vec<OsdId> = (0..self.daemons.len() as i32).map(OsdId).collect();
        all.into_iter().for_each(|o| self.send_maps(o));
        self.published_map = self.map.clone();
        self.resend();
    }

    fn send_maps(&mut self, osd: OsdId) {
        let m = MOsdMap {
            fsid: FSID,
            incremental: BTreeMap::new(),
            full: self.published.clone(),
            oldest: self.published.keys().next().copied().unwrap_or(Epoch(1)),
            newest: self.map.epoch,
            gap_removed_snaps: BTreeMap::new(),
        };
        if self.daemons[osd.0 as usize].running.is_some() {
            self.net.entry((Peer::Mon, osd)).or_default().push_back((0, m.into()));
        }
    }

    fn addrs(port: i32, osd: OsdId, boots: u32) -> AddrVec {
        let sock = format!("127.0.0.1:{}", port + osd.0).parse().unwrap();
        AddrVec(vec![EntityAddr::msgr2(sock, boots)])
    }

    pub fn start(&mut self, osd: OsdId) {
        let d = &mut self.daemons[osd.0 as usize];
        assert!(d.running.is_none());
        d.boots += 1;
        let (mut core, mut store) = self.load(osd, &self.daemons[osd.0 as usize].disk);
        let mut fx = Vec::new();
        core.start(self.now, &mut store, &mut fx);
        for n in 0..4u64 {
            core.open_session(SessionId(n), session(n));
        }
        self.daemons[osd.0 as usize].running = Some((core, store));
        self.effects(osd, fx);
        self.send_maps(osd);
    }

    fn load(&self, osd: OsdId, disk: &MemDisk) -> (Osd, Store<MemDev, MemKv>) {
        let mut store = Store::mount(disk.dev(), disk.kv(), StoreConfig::default(), FSID, osd.0).unwrap();
        let boots = self.daemons[osd.0 as usize].boots;
        let addrs = |port| Self::addrs(port, osd, boots);
        let mut options = self.options.clone();
        if !self.logs_grow && !options.is_set("osd_max_pg_log_entries") {
            options.set("osd_max_pg_log_entries", Source::File, &self.log_entries_max.to_string()).unwrap();
        }
        let config = OsdConfig {
            whoami: osd,
            fsid: FSID,
            uuid: Uuid::from_u128(osd.0 as u128 + 1),
            addrs: addrs(6800),
            cluster_addrs: addrs(if self.two_networks { 7800 } else { 6800 }),
            metadata: BTreeMap::new(),
            device_class: String::new(),
            crush_location: BTreeMap::new(),
            limits: Default::default(),
            memory: Default::default(),
            log_entries_max: self.log_entries_max,
            options: Some(options),
        };
        let core = Osd::load(config, &mut store, [osd.0 as u8; 32]).unwrap();
        (core, store)
    }

    /// Where a PG would stand at an OSD that starts again, if power failed now and the disk kept nothing but what it has promised.
    pub fn line_after_power_cut(&self, osd: OsdId, pg: PgId) -> String {
        self.load(osd, &self.daemons[osd.0 as usize].disk.promised()).0.pg_line(pg)
    }

    /// Power fails at one OSD.
    pub fn crash(&mut self, osd: OsdId) {
        let d = &mut self.daemons[osd.0 as usize];
        if d.running.take().is_none() {
            return;
        }
        d.disk.crash(&mut self.rng);
        self.net.retain(|(from, to), _| ![Peer::Osd(osd), Peer::Front(osd)].contains(from) && *to != osd);
        // Its peers' connections are refused.
        self.mark_down(osd);
        self.map.osd_xinfo[osd.0 as usize].dead_epoch = self.map.epoch.next();
    }

    /// From now on monitors and OSDs hear nothing of it, nor it of them; what is said arrives later.
    pub fn cut_off(&mut self, osd: OsdId) {
        self.daemons[osd.0 as usize].cut_off = true;
    }

    pub fn rejoin(&mut self, osd: OsdId) {
        self.daemons[osd.0 as usize].cut_off = false;
    }

    /// From now on it and other OSDs do not hear each other over that network, or hear each other again.
    pub fn lose(&mut self, osd: OsdId, network: Option<Network>) {
        self.daemons[osd.0 as usize].lost = network;
    }

    /// Where `other` should be nobody listens, `osd` finds.
    pub fn refuse(&mut self, osd: OsdId, other: OsdId) {
        self.turn(osd, |core, store, now, fx| core.handle_peer_refused(now, store, other, fx));
    }

    /// An operator marks a running OSD down.
    pub fn call_down(&mut self, osd: OsdId) {
        self.mark_down(osd);
        self.publish();
    }

    /// An OSD that is not running gets an empty disk.
    pub fn replace_disk(&mut self, osd: OsdId) {
        let d = &mut self.daemons[osd.0 as usize];
        assert!(d.running.is_none());
        d.disk = MemDisk::new(64 << 20);
        Store::mkfs(&mut d.disk.dev(), &mut d.disk.kv(), FSID, Uuid::from_u128(osd.0 as u128 + 1), osd.0).unwrap();
    }

    /// The session between two OSDs is lost, with what is on it in both directions; `finds_out` hears of that.
    pub fn lose_session(&mut self, finds_out: OsdId, other: OsdId) {
        self.net.remove(&(Peer::Osd(finds_out), other));
        self.net.remove(&(Peer::Osd(other), finds_out));
        if self.is_running(other) {
            self.turn(finds_out, |core, store, now, fx| core.handle_peer_reset(now, store, other, fx));
        }
    }

    /// An OSD opens another session with a monitor.
    pub fn renew_mon_session(&mut self, osd: OsdId) {
        self.turn(osd, |core, store, now, fx| core.handle_mon_session(now, store, fx));
    }

    /// A client's sessions end, with what it has sent on them; on others it sends again what is unanswered.
    pub fn renew_sessions(&mut self, client: u64) {
        let id = SessionId(client);
        self.net.retain(|(from, _), _| *from != Peer::Session(id));
        for osd in (0..self.daemons.len() as i32).map(OsdId) {
            self.turn(osd, |core, store, now, fx| {
                core.close_session(now, store, id, fx);
                core.open_session(id, session(client));
            });
        }
        let open = |p: &&Pending| p.reply.is_none() && p.op.reqid.name == session(client).inst;
        let open: Vec<u64> = self.pending.values().filter(open).map(|p| p.tid).collect();
        open.into_iter().for_each(|tid| self.send_op(tid));
    }

    /// Two OSDs, drawn, lose their session.
    pub fn lose_some_session(&mut self) {
        let n = self.daemons.len() as i32;
        let a = self.rng.random_range(0..n);
        let b = (a + self.rng.random_range(1..n)) % n;
        self.lose_session(OsdId(a), OsdId(b));
    }

    /// Sends a command to an OSD; the answer will be among `command_replies`.
    pub fn command(&mut self, osd: OsdId, json: String) -> u64 {
        self.next_tid += 1;
        let (id, command) = (self.next_tid, admin::Command::parse(&[json]).unwrap());
        self.turn(osd, |core, store, now, fx| core.handle_command(now, store, id, &command, fx));
        id
    }

    /// The operator gives up what a down OSD holds.
    pub fn declare_lost(&mut self, osd: OsdId) {
        let info = &mut self.map.osd_info[osd.0 as usize];
        info.lost_at = info.down_at;
        self.publish();
    }

    /// The operator removes a down OSD from the cluster.
    pub fn purge(&mut self, osd: OsdId) {
        let n = osd.0 as usize;
        (self.map.osd_state[n], self.map.osd_weight[n]) = (0, 0);
        self.map.osd_info[n] = Default::default();
        self.publish();
    }

    /// An operator wants an OSD's PGs scrubbed.
    pub fn order_scrub(&mut self, osd: OsdId, deep: bool, repair: bool) {
        let order = types::msg::internal::OsdScrub { pgs: self.pgs(), deep, repair };
        self.turn(osd, |core, _, _, _| core.handle_scrub_order(&order));
    }

    /// An operator wants some of an OSD's PGs recovered, or filled, before others.
    pub fn order_force(&mut self, osd: OsdId, pgs: &[PgId], backfill: bool) {
        let order = types::msg::internal::OsdForceRecovery { pgs: pgs.to_vec(), backfill, cancel: false };
        self.turn(osd, |core, store, now, fx| core.handle_force_order(now, store, &order, fx));
    }

    /// An operator gives up what is left of an incomplete PG.
    pub fn order_create(&mut self, pg: PgId) {
        self.turn(self.primary(pg), |core, store, now, fx| core.handle_force_create(now, store, pg, fx));
    }

    /// Scrubs the only PG and waits for it: the primary's last word on it.
    pub fn scrub(&mut self, deep: bool, repair: bool) -> String {
        let (said, primary) = (self.said.len(), self.primary(self.pgs()[0]));
        self.order_scrub(primary, deep, repair);
        let name = if repair { "repair" } else if deep { "deep-scrub" } else { "scrub" };
        let end = |line: &&String| line.contains(&format!(" {name} ")) && !line.ends_with("starts");
        for _ in 0..200_000 {
            if let Some(line) = self.said[said..].iter().find(end) {
                return line.split_once(' ').unwrap().1.to_owned();
            }
            self.step();
        }
        panic!("the scrub does not end: {}", self.line(primary));
    }

    /// The next `count` reads of an OSD's device fail.
    pub fn fail_reads(&mut self, osd: OsdId, count: u32) {
        self.daemons[osd.0 as usize].reads_to_fail = count;
    }

    /// Everything on an OSD's device goes bad, the label excepted. Whoever has it in memory does not notice.
    pub fn rot(&mut self, osd: OsdId) {
        let disk = &self.daemons[osd.0 as usize].disk;
        disk.pages_in_use().into_iter().filter(|page| *page > 0).for_each(|page| disk.rot(page, 7));
    }

    /// The same, and what the OSD had in memory is gone.
    pub fn rot_and_restart(&mut self, osd: OsdId) {
        self.crash(osd);
        self.rot(osd);
        self.start(osd);
        self.settle();
    }

    /// How many reads are still to fail.
    pub fn reads_to_fail(&self, osd: OsdId) -> u32 {
        self.daemons[osd.0 as usize].reads_to_fail
    }

    /// Bytes that an OSD has read from its device.
    pub fn read_bytes(&self, osd: OsdId) -> u64 {
        self.daemons[osd.0 as usize].read_bytes
    }

    /// The primary of a PG.
    pub fn primary(&self, pg: PgId) -> OsdId {
        self.map.pg_to_up_acting(pg).acting_primary
    }

    fn mark_down(&mut self, osd: OsdId) {
        self.map.osd_state[osd.0 as usize] &= !OsdMap::STATE_UP;
        self.map.osd_info[osd.0 as usize].down_at = self.map.epoch.next();
        self.map_dirty = true;
    }

    /// False while an OSD has as much of its clients' under way as may be.
    pub fn wants_requests(&self, osd: OsdId) -> bool {
        self.daemons[osd.0 as usize].running.as_ref().is_some_and(|(osd, _)| osd.wants_requests())
    }

    pub fn is_running(&self, osd: OsdId) -> bool {
        self.daemons[osd.0 as usize].running.is_some()
    }

    /// What the monitor makes of an OSD's message.
    fn at_mon(&mut self, msg: Message) {
        match msg {
            Message::OsdBoot(m) => {
                let i = m.osd.0 as usize;
                // Down and up again are two epochs, or nobody would see an interval end.
                if self.map_dirty {
                    self.publish();
                }
                if self.map.is_up(m.osd) {
                    // Another boot of it: first it is down.
                    if self.map.client_addrs[i] != m.public_addrs {
                        self.mark_down(m.osd);
                        self.publish();
                    } else {
                        return;
                    }
                }
                self.map.osd_state[i] |= OsdMap::STATE_UP;
                self.map.client_addrs[i] = m.public_addrs;
                self.map.cluster_addrs[i] = m.cluster_addrs;
                self.map.hb_back_addrs[i] = m.hb_back_addrs;
                self.map.hb_front_addrs[i] = m.hb_front_addrs;
                self.map.osd_info[i].up_from = self.map.epoch.next();
                self.map_dirty = true;
            }
            Message::OsdAlive(m) => {
                let up = self.map.is_up(m.osd);
                let info = &mut self.map.osd_info[m.osd.0 as usize];
                if up && info.up_thru < m.want {
                    info.up_thru = self.map.epoch;
                    self.map_dirty = true;
                }
            }
            Message::PgTempRequest(m) => {
                for (pg, osds) in m.pg_temp {
                    let before = self.map.pg_temp.get(&pg).cloned().unwrap_or_default();
                    self.map_dirty |= before != osds;
                    match osds.is_empty() {
                        true => drop(self.map.pg_temp.remove(&pg)),
                        false => drop(self.map.pg_temp.insert(pg, osds)),
                    }
                }
            }
            Message::PgReadyToMerge(m) => {
                let pair = self.map.pools[&m.source.pool].merging().filter(|(source, _)| *source == m.source.seed);
                let Some((source, target)) = pair.filter(|_| self.map.pools[&m.source.pool].last_change == m.pool_changed) else { return };
                let places = [source, target].map(|seed| self.map.pg_to_up_acting(PgId { seed, ..m.source }));
                if m.ready && places.iter().any(|p| p.acting != m.acting || p.acting_primary != m.osd) {
                    return;
                }
                let epoch = self.map.epoch.next();
                let pool = self.map.pools.get_mut(&m.source.pool).unwrap();
                pool.last_change = epoch;
                pool.pg_num = if m.ready { source } else { pool.pg_num };
                pool.pg_num_pending = pool.pg_num;
                if m.ready {
                    pool.last_pg_merge_meta = m.meta(epoch);
                    self.map.pg_temp.remove(&m.source);
                    self.merges += 1;
                } else {
                    self.bounces += 1;
                }
                self.publish();
            }
            Message::OsdFailure(m) => {
                if m.kind != FailureKind::Alive && !self.is_running(m.target) && self.map.is_up(m.target) {
                    self.mark_down(m.target);
                }
                self.reports.push(m);
            }
            Message::MLog(m) => self.said.extend(m.entries.into_iter().map(|e| e.msg)),
            _ => {}
        }
    }

    fn effects(&mut self, from: OsdId, fx: Vec<Effect>) {
        for effect in fx {
            match effect {
                Effect::Send { to: over @ (Peer::Osd(to) | Peer::Front(to)), tid, msg } => {
                    let raw = msg.to_raw(types::features::SUPPORTED);
                    let msg = Message::decode(&raw).unwrap();
                    if let Message::PgMessage(m) = &msg
                        && let Some(mut witness) = self.witness.take()
                    {
                        witness(self, from, to, m);
                        self.witness = Some(witness);
                    }
                    if self.is_running(to) {
                        let from = if over == Peer::Osd(to) { Peer::Osd(from) } else { Peer::Front(from) };
                        self.net.entry((from, to)).or_default().push_back((tid, msg));
                    }
                }
                Effect::Send { to: Peer::Mon, .. } if self.daemons[from.0 as usize].cut_off || self.mon_is_deaf => {}
                Effect::Send { to: Peer::Mon, msg, .. } => self.at_mon(msg),
                Effect::Send { to: Peer::Session(s), tid, msg } => self.at_client(from, s, tid, msg),
                Effect::Send { to: Peer::Mgr, msg: Message::MgrStats(m), .. } => drop(self.stats.insert(from, m)),
                Effect::Send { to: Peer::Mgr, .. } => {}
                Effect::WantMaps { .. } => self.send_maps(from),
                Effect::CommandReply { id, reply } => drop(self.command_replies.insert(id, reply)),
                Effect::Stop { why } => match &mut self.stopped {
                    Some(stopped) => stopped.push((from, why)),
                    None => panic!("osd.{from} stops: {why}"),
                },
            }
        }
    }

    /// One thing happens, chosen by the seed.
    pub fn step(&mut self) {
        let cut_off = |osd: &OsdId| self.daemons[osd.0 as usize].cut_off;
        let lost = |osd: &OsdId, network| self.daemons[osd.0 as usize].lost == Some(network);
        let parted = |(from, to): &(Peer, OsdId)| match from {
            Peer::Osd(from) => self.held.contains(&(*from, *to)) || [from, to].iter().any(|o| cut_off(o) || lost(o, Network::Cluster)),
            Peer::Front(from) => [from, to].iter().any(|o| cut_off(o) || lost(o, Network::Public)),
            Peer::Session(_) => self.clients_are_far,
            Peer::Mon | Peer::Mgr => cut_off(to),
        };
        let ready: Vec<(Peer, OsdId)> = self.net.iter().filter(|(k, q)| !q.is_empty() && !parted(k)).map(|(k, _)| *k).collect();
        let disks: Vec<OsdId> = (0..self.daemons.len() as i32)
            .map(OsdId)
            .filter(|o| self.is_running(*o) && self.stuck_disk != Some(*o) && !self.daemons[o.0 as usize].disk.pending().is_empty())
            .collect();
        let (n, d) = (ready.len(), disks.len());
        if self.map_dirty && (n + d == 0 || self.rng.random_ratio(1, 20)) {
            return self.publish();
        }
        if n + d == 0 || self.rng.random_ratio(1, 200) {
            return self.tick(Duration::from_millis(500));
        }
        let pick = self.rng.random_range(0..n + d);
        if pick < n {
            self.deliver(ready[pick]);
        } else {
            self.complete_io(disks[pick - n]);
        }
    }

    fn turn(&mut self, osd: OsdId, f: impl FnOnce(&mut Osd, &mut Store<MemDev, MemKv>, Now, &mut Vec<Effect>)) {
        let now = self.now;
        let Some((core, store)) = self.daemons[osd.0 as usize].running.as_mut() else { return };
        let mut fx = Vec::new();
        store.handle_timeout(now);
        f(core, store, now, &mut fx);
        while let Some(event) = store.poll_event() {
            core.handle_store(now, store, event, &mut fx);
        }
        self.effects(osd, fx);
    }

    fn deliver(&mut self, key: (Peer, OsdId)) {
        let Some((tid, msg)) = self.net.get_mut(&key).and_then(VecDeque::pop_front) else { return };
        let (from, to) = key;
        if let (Peer::Osd(asker) | Peer::Front(asker), Message::OsdPing(OsdPing { is_reply: false, mono_ns })) = (from, &msg) {
            let over = if from == Peer::Osd(asker) { Peer::Osd(to) } else { Peer::Front(to) };
            let answer = OsdPing { is_reply: true, mono_ns: *mono_ns };
            return self.net.entry((over, asker)).or_default().push_back((0, answer.into()));
        }
        self.turn(to, |core, store, now, fx| match (from, msg) {
            (Peer::Mon, Message::MOsdMap(m)) => core.handle_maps(now, store, &m, fx),
            (from, msg) => core.handle_message(now, store, from, tid, msg, fx),
        });
    }

    fn complete_io(&mut self, osd: OsdId) {
        let disk = self.daemons[osd.0 as usize].disk.clone();
        let pending = disk.pending();
        let (id, kind) = pending[self.rng.random_range(0..pending.len())];
        if let MemIo::Read(len) = kind {
            let d = &mut self.daemons[osd.0 as usize];
            d.read_bytes += len as u64;
            if d.reads_to_fail > 0 {
                d.reads_to_fail -= 1;
                disk.fail_next(kind, Errno::EIO, 0);
            }
        }
        let result = disk.complete(id);
        self.turn(osd, |_, store, now, _| store.handle_io(now, id, result));
    }

    /// Runs for so long.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.now.mono + time;
        while self.now.mono < until {
            self.step();
        }
    }

    /// Time passes for everybody.
    pub fn tick(&mut self, by: Duration) {
        self.now.mono = self.now.mono + by;
        self.now.wall = Utime::from_duration(self.now.wall.to_duration() + by);
        for osd in 0..self.daemons.len() as i32 {
            self.turn(OsdId(osd), |core, store, now, fx| core.handle_timeout(now, store, fx));
        }
    }

    /// Runs until every PG is active and clean. Panics if that never comes.
    pub fn settle(&mut self) {
        for round in 0..400_000 {
            // Not in step with heartbeats.
            if round % 197 == 0 && self.is_clean() {
                return;
            }
            self.step();
        }
        let under_way: Vec<String> = self.net.iter().filter(|(_, q)| !q.is_empty()).map(|(k, q)| format!("{k:?} {:?}", q.front())).collect();
        panic!("never clean: {} {under_way:?}", self.status());
    }

    /// Runs until no PG waits to be merged.
    pub fn settle_merges(&mut self) {
        for _ in 0..200_000 {
            if self.map.pools[&POOL].merging().is_none() {
                return;
            }
            self.step();
        }
        panic!("neither merged nor given up: {}", self.status());
    }

    /// Runs until a PG's primary says `word` of it. Panics if it never does.
    pub fn until_state(&mut self, pg: PgId, word: &str) {
        for _ in 0..200_000 {
            if self.state(pg).split('+').any(|w| w == word) {
                return;
            }
            self.step();
        }
        panic!("never {word}: {}", self.status());
    }

    /// The names of what an OSD stores of a PG.
    pub fn stored(&mut self, osd: OsdId, pg: PgId) -> Vec<String> {
        let Some((_, store)) = self.daemons[osd.0 as usize].running.as_mut() else { return Vec::new() };
        match store.list(ShardPgId::whole(pg), &HObject::min(), &HObject::max(), usize::MAX) {
            Ok((objects, _)) => objects.into_iter().map(|o| o.name.to_string()).collect(),
            // Nothing of it at all.
            Err(Errno::ENOENT) => Vec::new(),
            Err(e) => panic!("{osd}: {e}"),
        }
    }

    /// Copies whose objects are not all of one shard.
    pub fn mixed_copies(&mut self) -> usize {
        let mut mixed = 0;
        for pg in self.pgs() {
            let coll = ShardPgId::whole(pg);
            for (_, store) in self.daemons.iter_mut().filter_map(|d| d.running.as_mut()) {
                let Ok((objects, _)) = store.list(coll, &HObject::min(), &HObject::max(), usize::MAX) else { continue };
                let tags: BTreeSet<_> = objects.iter().filter_map(|o| store.getattr(coll, o, SHARD_ATTR).ok()).collect();
                mixed += usize::from(tags.len() > 1);
            }
        }
        mixed
    }

    pub fn run(&mut self, steps: usize) {
        (0..steps).for_each(|_| self.step());
    }

    pub fn pgs(&self) -> Vec<PgId> {
        self.map.pgs(POOL).collect()
    }

    /// Parts of objects that are in flight, by message.
    pub fn pushes(&self) -> Vec<Vec<HObject>> {
        let parts = |msg: &Message| match msg {
            Message::PgMessage(m) => match &m.body {
                PgBody::Push(parts) => Some(parts.iter().map(|p| p.object.clone()).collect()),
                _ => None,
            },
            _ => None,
        };
        self.net.values().flatten().filter_map(|(_, msg)| parts(msg)).collect()
    }

    pub fn is_clean(&self) -> bool {
        self.net.values().flatten().all(|(_, m)| matches!(m, Message::OsdHeartbeat(_) | Message::OsdPing(_))) && self.pgs().iter().all(|pg| self.state(*pg) == "active+clean")
    }

    /// The state of a PG as its primary has it.
    pub fn state(&self, pg: PgId) -> String {
        let primary = self.map.pg_to_up_acting(pg).acting_primary;
        if primary.0 < 0 {
            return "nobody".into();
        }
        let running = self.daemons[primary.0 as usize].running.as_ref();
        running.and_then(|(core, _)| core.pg_state(pg)).map(|s| s.to_string()).unwrap_or_else(|| "absent".into())
    }

    /// Objects and bytes of a PG as its primary has counted them.
    pub fn totals(&self, pg: PgId) -> (i64, i64) {
        let running = self.daemons[self.primary(pg).0 as usize].running.as_ref();
        running.and_then(|(core, _)| core.pg_totals(pg)).unwrap_or_default()
    }

    /// Where an OSD's only PG stands.
    pub fn line(&self, osd: OsdId) -> String {
        self.line_of(osd, self.pgs()[0])
    }

    /// Where a PG stands at an OSD.
    pub fn line_of(&self, osd: OsdId, pg: PgId) -> String {
        let running = self.daemons[osd.0 as usize].running.as_ref();
        running.map_or_else(String::new, |(core, _)| core.pg_line(pg))
    }

    pub fn status(&self) -> String {
        let line = |pg: &PgId| {
            let lines = (0..self.daemons.len()).map(|o| match &self.daemons[o].running {
                Some((core, _)) => format!("  osd.{o} e{} {}\n", core.epoch(), core.pg_line(*pg)),
                None => String::new(),
            });
            format!("\n{pg}\n{}", lines.collect::<String>())
        };
        let pgs: Vec<String> = self.pgs().iter().filter(|pg| self.state(**pg) != "active+clean").map(line).collect();
        let mail: Vec<String> = self.net.iter().flat_map(|((from, to), q)| q.iter().map(move |(_, m)| format!("{from:?} to osd.{to}: {}", m.name()))).take(20).collect();
        let up: Vec<String> = (0..self.daemons.len() as i32)
            .map(|o| format!("osd.{o} running {} up {}", self.is_running(OsdId(o)), self.map.is_up(OsdId(o))))
            .collect();
        format!("e{} {} | {} | {}", self.map.epoch, up.join(", "), pgs.join(", "), mail.join(", "))
    }

    /// Every copy of every PG holds the same objects in the same versions.
    pub fn invariant_copies_agree(&mut self) {
        for pg in self.pgs() {
            let coll = ShardPgId::whole(pg);
            let mut first: Option<(OsdId, Vec<StoredObject>)> = None;
            for osd in self.map.pg_to_up_acting(pg).acting.into_iter().filter(|osd| *osd != OsdId::HOLE) {
                let Some((_, store)) = self.daemons[osd.0 as usize].running.as_mut() else { continue };
                let (objects, _) = store.list(coll, &HObject::min(), &HObject::max(), usize::MAX).unwrap();
                let shards = self.map.pools[&pg.pool].is_erasure();
                let copy: Vec<_> = objects
                    .into_iter()
                    // What waits to be settled does not count.
                    .filter(|o| !shards || !undo::is(o))
                    .map(|o| {
                        let mut attrs = store.getattrs(coll, &o).unwrap();
                        attrs.retain(|name, _| name != SHARD_ATTR);
                        let omap = store.omap_list(coll, &o, Bound::Unbounded, usize::MAX).unwrap();
                        (o, (attrs, omap))
                    })
                    .collect();
                match &first {
                    None => first = Some((osd, copy)),
                    Some((other, theirs)) => assert!(*theirs == copy, "{pg}: osd.{osd} and osd.{other} differ"),
                }
            }
        }
    }
}
