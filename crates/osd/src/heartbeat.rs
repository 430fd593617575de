//! Signs of life between OSDs, and reports about those that give none; with each a promise is asked for (`lease`).
//!
//! Holds: whoever shares a PG with us is asked; one that is silent on any of its networks is reported after the grace, once per
//! pause, until the map says it is down or it answers on all of them.
//! Why both: who is heard on the cluster network only would serve no client, and who is heard on the public one only would
//! take requests and never have them written.
//! Why others as well: CRUSH keeps copies on different hosts, so with two hosts only one of them would have anything to
//! report about an OSD of the other, and the monitors want to hear it from both; and an OSD without PGs has nobody.
//! Upstream: OSD::heartbeat, maybe_update_heartbeat_peers (src/osd/OSD.cc); osd_heartbeat_interval, osd_heartbeat_grace,
//! osd_heartbeat_min_peers.

use crate::effects::{Cx, Durable, Peer};
use crate::pg::Pg;
use crate::pings::Pings;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::map::OsdMap;
use types::msg::internal::{FailureKind, OsdFailure};
use types::msg::internal_osd::{OsdHeartbeat, OsdPing};
use types::pg::OsdPing as PingTimes;
use types::{AddrVec, Epoch, Mono, OsdId, PgId};

/// Between two reports about the same OSD.
const REPORT_PAUSE: Duration = Duration::from_secs(5);

/// A process that does not come to look for so long was stopped, or its machine was: answers wait for it, unread.
const STOOD_STILL: Duration = Duration::from_secs(3);

/// What is known of peers' health.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    /// `osd_heartbeat_grace`.
    pub grace: Duration,
    /// `osd_heartbeat_interval`.
    pub interval: Duration,
    /// `osd_heartbeat_min_peers`.
    pub peers_min: usize,
    /// `mon_osd_reporter_subtree_level`.
    pub level: String,
    /// `osd_fast_fail_on_connection_refused`.
    pub fast_fail: bool,
    peers: BTreeMap<OsdId, PeerHealth>,
    /// When everybody was last asked.
    asked: Mono,
    /// The last look at who is silent.
    looked: Mono,
    /// OSDs that turned out to have older maps than we.
    pub behind: Vec<(OsdId, Epoch)>,
}

#[derive(Debug)]
struct PeerHealth {
    up_from: Epoch,
    heard: Mono,
    front: Option<Front>,
    reported: Option<Mono>,
    pings: Pings,
    /// It was asked, and if it has answered, it has promised something.
    asked: bool,
    /// What it says of its disk.
    disk_is_slow: bool,
}

/// The same of the public network, where that is another one.
#[derive(Debug)]
struct Front {
    heard: Mono,
    pings: Pings,
}

impl PeerHealth {
    /// For how long it has not been heard on the network where that is longest.
    fn silent(&self, now: Mono) -> Duration {
        let heard = self.front.as_ref().map_or(self.heard, |f| f.heard.min(self.heard));
        now - heard
    }

    /// It was we who did not listen for so long.
    fn excuse(&mut self, stood: Duration) {
        self.heard = self.heard + stood;
        if let Some(front) = &mut self.front {
            front.heard = front.heard + stood;
        }
    }
}

impl Default for Heartbeats {
    fn default() -> Self {
        Heartbeats {
            grace: Duration::from_secs(20),
            interval: Duration::from_secs(6),
            peers_min: 10,
            level: "host".into(),
            fast_fail: true,
            peers: BTreeMap::new(),
            asked: Mono(0),
            looked: Mono(0),
            behind: Vec::new(),
        }
    }
}

impl Heartbeats {
    /// Peers follow the map: whoever shares a PG with us, and some others.
    pub fn handle_map(&mut self, cx: &mut Cx<'_>, pgs: &BTreeMap<PgId, Pg>) {
        let mut peers = BTreeMap::new();
        let sh = &*cx.sh;
        if sh.booted {
            let members = pgs.values().map(|pg| &pg.walk.mapping).filter(|m| m.involves(sh.whoami));
            let shared: BTreeSet<OsdId> = members.flat_map(|m| m.up.iter().chain(&m.acting)).copied().collect();
            let others = others(&sh.map, sh.whoami, &self.level, self.peers_min, &shared);
            for osd in shared.iter().chain(&others) {
                if *osd == sh.whoami || !sh.map.is_up(*osd) || peers.contains_key(osd) {
                    continue;
                }
                let up_from = sh.map.info(*osd).map(|i| i.up_from).unwrap_or_default();
                let front = has_front(&sh.map, *osd).then(|| Front { heard: cx.now.mono, pings: Pings::default() });
                let health = match self.peers.remove(osd) {
                    Some(known) if known.up_from == up_from => known,
                    _ => PeerHealth { up_from, heard: cx.now.mono, front, reported: None, pings: Pings::default(), asked: false, disk_is_slow: false },
                };
                peers.insert(*osd, health);
            }
        }
        self.peers = peers;
        // Without their promises clients would wait for the next turn.
        self.ask(cx, |peer| !peer.asked);
    }

    /// A question, or the answer to ours.
    pub fn handle(&mut self, cx: &mut Cx<'_>, m: OsdHeartbeat) {
        cx.sh.spaces.note(m.osd, m.space);
        if let Some(peer) = self.peers.get_mut(&m.osd) {
            peer.disk_is_slow = m.disk_is_slow;
        }
        if m.epoch < cx.sh.map.epoch && !m.is_reply {
            self.behind.push((m.osd, m.epoch));
        }
        if !m.is_reply {
            let (me, lasts) = (cx.sh.whoami, Duration::from_millis(m.lease_ms.into()));
            // Out of the map our word is worth nothing: after a crash we may know less of it than we once did.
            let given = if cx.sh.booted { cx.sh.leases.give(cx.now.mono, m.osd, lasts) } else { Duration::ZERO };
            let lease_ms = given.as_millis() as u32;
            let (space, disk_is_slow) = (cx.own_space(), cx.sh.disk_is_slow);
            let reply = OsdHeartbeat { osd: me, epoch: cx.sh.map.epoch, is_reply: true, space, lease_ms, disk_is_slow, ..m };
            cx.send(Peer::Osd(m.osd), 0, reply, Durable::Now);
            // It may have come into the map since it promised nothing.
            return self.ask(cx, |peer| !peer.asked);
        }
        if m.lease_ms > 0 {
            let until = Mono(m.mono_ns) + Duration::from_millis(m.lease_ms.into());
            cx.sh.leases.hold(m.osd, m.epoch, cx.sh.map.epoch, until);
        }
        let Some(peer) = self.peers.get_mut(&m.osd) else { return };
        peer.heard = cx.now.mono;
        peer.asked = m.lease_ms > 0;
        peer.pings.note(cx.now, m.mono_ns);
        self.note_alive(cx, m.osd);
    }

    /// An answer came over the public network.
    pub fn handle_front(&mut self, cx: &mut Cx<'_>, osd: OsdId, m: &OsdPing) {
        let Some(front) = self.peers.get_mut(&osd).and_then(|p| p.front.as_mut()) else { return };
        front.heard = cx.now.mono;
        front.pings.note(cx.now, m.mono_ns);
        self.note_alive(cx, osd);
    }

    /// A report is taken back when all networks work again.
    fn note_alive(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        let grace = self.grace;
        let Some(peer) = self.peers.get_mut(&osd).filter(|p| p.silent(cx.now.mono) <= grace) else { return };
        if peer.reported.take().is_some() {
            report(cx, osd, FailureKind::Alive, Duration::ZERO);
        }
    }

    /// An OSD's address refuses connections: it is gone.
    pub fn handle_refused(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        if !self.fast_fail || !cx.sh.booted || !cx.sh.map.is_up(osd) {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&osd) {
            if peer.reported.is_some_and(|at| cx.now.mono - at < Duration::from_secs(1)) {
                return;
            }
            peer.reported = Some(cx.now.mono);
            report(cx, osd, FailureKind::Refused, cx.now.mono - peer.heard);
        }
    }

    /// Asks whoever is due, reports whoever is overdue.
    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        cx.sh.perf.set_heartbeat_peers(self.peers.len() as u64);
        let stood = cx.now.mono - std::mem::replace(&mut self.looked, cx.now.mono);
        for (osd, peer) in &mut self.peers {
            if stood > STOOD_STILL {
                peer.excuse(stood);
            }
            let silent = peer.silent(cx.now.mono);
            let again = peer.reported.is_none_or(|at| cx.now.mono - at >= REPORT_PAUSE);
            if silent > self.grace && again {
                peer.reported = Some(cx.now.mono);
                report(cx, *osd, FailureKind::Silent, silent);
            }
        }
        // A shorter interval counts at once. One lost question must not cost a lease.
        let interval = self.interval.min(cx.sh.leases.lasts / 2);
        if std::mem::take(&mut cx.sh.leases.wanted) || cx.now.mono >= self.asked + interval {
            self.asked = cx.now.mono;
            self.ask(cx, |_| true);
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>, which: impl Fn(&PeerHealth) -> bool) {
        let (space, lease_ms) = (cx.own_space(), cx.sh.leases.lasts.as_millis() as u32);
        for (osd, peer) in self.peers.iter_mut().filter(|(_, peer)| which(peer)) {
            peer.asked = true;
            let ask = OsdHeartbeat {
                osd: cx.sh.whoami,
                epoch: cx.sh.map.epoch,
                is_reply: false,
                stamp: cx.now.wall,
                mono_ns: cx.now.mono.0,
                space,
                lease_ms,
                disk_is_slow: cx.sh.disk_is_slow,
            };
            cx.send(Peer::Osd(*osd), 0, ask, Durable::Now);
            if peer.front.is_some() {
                cx.send(Peer::Front(*osd), 0, OsdPing { is_reply: false, mono_ns: cx.now.mono.0 }, Durable::Now);
            }
        }
    }

    /// Those whose disk is slow, as they say.
    pub fn slow_disks(&self) -> impl Iterator<Item = OsdId> {
        self.peers.iter().filter(|(_, peer)| peer.disk_is_slow).map(|(osd, _)| *osd)
    }

    /// Who is asked.
    pub fn peers(&self) -> impl Iterator<Item = OsdId> {
        self.peers.keys().copied()
    }

    /// How long that takes. Of who was not asked for a minute yet, `last_update_s` is 0.
    pub fn ping_times(&self) -> BTreeMap<i32, PingTimes> {
        let of = |pings: &Pings| {
            let [one, five, fifteen] = pings.over();
            [(one.mean, five.mean, fifteen.mean), (one.min, five.min, fifteen.min), (one.max, five.max, fifteen.max)]
        };
        let told = |(osd, peer): (&OsdId, &PeerHealth)| {
            let none = Pings::default();
            let (back, front) = (&peer.pings, peer.front.as_ref().map_or(&none, |front| &front.pings));
            let ([back_pingtime, back_min, back_max], [front_pingtime, front_min, front_max]) = (of(back), of(front));
            let (back_last, front_last) = (back.last_us, front.last_us);
            let last_update_s = back.updated_s;
            (osd.0, PingTimes { last_update_s, back_pingtime, back_min, back_max, back_last, front_pingtime, front_min, front_max, front_last })
        };
        self.peers.iter().map(told).collect()
    }
}

/// True if an OSD listens for heartbeats on two networks.
pub(crate) fn has_front(map: &OsdMap, osd: OsdId) -> bool {
    map.hb_front_addrs(osd).is_some_and(|front| !front.is_blank() && Some(front) != map.hb_back_addrs(osd))
}

/// OSDs to ask though they share no PG with us, which are `shared`: our neighbours by number, one OSD of every other subtree,
/// and whoever comes next until there are enough of them. Which one of a subtree goes by our own number, so that together we
/// ask all of them.
pub(crate) fn others(map: &OsdMap, whoami: OsdId, level: &str, least: usize, shared: &BTreeSet<OsdId>) -> BTreeSet<OsdId> {
    let up: Vec<OsdId> = map.up_osds().filter(|osd| *osd != whoami).collect();
    let after = up.partition_point(|osd| *osd < whoami);
    let (before, behind) = up.split_at(after);
    let ring = || behind.iter().chain(before);
    let mut want: BTreeSet<OsdId> = ring().next().into_iter().chain(ring().next_back()).copied().collect();
    if let Some(kind) = map.crush.type_id(level).filter(|kind| *kind > 0) {
        let of_kind = map.crush.iter_buckets().filter(|b| i32::from(b.kind) == kind && !map.crush.is_shadow(b.id));
        let mut subtrees: Vec<Vec<OsdId>> = of_kind.map(|b| map.crush.leaves(b.id).into_iter().map(OsdId).collect()).collect();
        // Each begins with its own subtree: as many look at one as at any other.
        let own = subtrees.iter().position(|s| s.contains(&whoami));
        subtrees.rotate_left(own.unwrap_or(0));
        for subtree in subtrees.iter().skip(usize::from(own.is_some())) {
            let there: Vec<OsdId> = subtree.iter().filter(|osd| map.is_up(**osd)).copied().collect();
            if want.len() < least && !there.is_empty() {
                want.extend(there.get(whoami.0 as usize % there.len()));
            }
        }
    }
    for osd in ring() {
        if shared.union(&want).count() >= least {
            break;
        }
        want.insert(*osd);
    }
    want
}

fn report(cx: &mut Cx<'_>, target: OsdId, kind: FailureKind, silent: Duration) {
    let map: &OsdMap = &cx.sh.map;
    let msg = OsdFailure {
        reporter: cx.sh.whoami,
        target,
        target_addrs: map.addrs(target).cloned().unwrap_or_else(AddrVec::default),
        failed_for_ms: silent.as_millis() as u64,
        epoch: map.epoch,
        kind,
    };
    cx.send(Peer::Mon, 0, msg, Durable::Now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crush::CrushMap;
    use std::sync::Arc;
    use types::Utime;

    /// So many hosts with so many OSDs each, all up.
    fn map(hosts: i32, osds: i32) -> OsdMap {
        let mut map = OsdMap::new(uuid::Uuid::nil(), Utime::ZERO);
        map.set_max_osd(hosts * osds);
        let names: Vec<(i32, String)> = (0..hosts * osds).map(|o| (o, format!("h{}", o / osds))).collect();
        let names: Vec<(i32, &str, u32)> = names.iter().map(|(o, h)| (*o, h.as_str(), 0x10000)).collect();
        map.crush = Arc::new(CrushMap::build_default(&names, "osd").unwrap());
        map.osd_state.iter_mut().for_each(|s| *s = OsdMap::STATE_EXISTS | OsdMap::STATE_UP);
        map
    }

    #[test]
    fn everybody_is_asked_from_two_hosts_even_without_any_pg() {
        for (hosts, osds) in [(2, 1), (2, 2), (2, 6), (3, 1), (3, 12), (12, 3), (40, 2)] {
            let map = map(hosts, osds);
            let mut askers: BTreeMap<OsdId, BTreeSet<i32>> = BTreeMap::new();
            for osd in map.osds() {
                let asked = others(&map, osd, "host", 10, &BTreeSet::new());
                assert!(asked.len() <= 10 && asked.len() >= map.num_osds().saturating_sub(1).min(10), "{}", asked.len());
                assert!(!asked.contains(&osd));
                for to in asked {
                    askers.entry(to).or_default().insert(osd.0 / osds);
                }
            }
            for osd in map.osds() {
                // Where each host has one OSD, its own cannot ask it.
                let possible = if osds > 1 { hosts } else { hosts - 1 };
                assert!(askers[&osd].len() as i32 >= possible.min(2), "{hosts} hosts of {osds}: osd.{osd} is asked by {:?}", askers[&osd]);
            }
        }
    }

    #[test]
    fn where_pgs_give_peers_enough_only_neighbours_and_other_hosts_are_added() {
        let map = map(1, 30);
        let shared: BTreeSet<OsdId> = (10..22).map(OsdId).collect();
        assert_eq!(others(&map, OsdId(0), "host", 10, &shared), [1, 29].map(OsdId).into());
        assert_eq!(others(&map, OsdId(5), "room", 0, &shared), [4, 6].map(OsdId).into());
    }
}
