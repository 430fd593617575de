//! Signs of life between OSDs, and reports about those that give none.
//!
//! Holds: only OSDs that share a PG with us are asked; a silent one is reported after the grace, once per pause, until
//! the map says it is down or it answers.
//! Upstream: OSD::heartbeat (src/osd/OSD.cc); osd_heartbeat_interval, osd_heartbeat_grace.

use crate::effects::{Cx, Durable, Peer, Shared};
use crate::pg::Pg;
use std::collections::BTreeMap;
use std::time::Duration;
use types::map::OsdMap;
use types::msg::internal::{FailureKind, OsdFailure};
use types::msg::internal_osd::OsdHeartbeat;
use types::{AddrVec, Epoch, Mono, Now, OsdId, PgId};

/// `osd_heartbeat_interval`.
const INTERVAL: Duration = Duration::from_secs(3);
/// Between two reports about the same OSD.
const REPORT_PAUSE: Duration = Duration::from_secs(5);

/// What is known of peers' health.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    /// `osd_heartbeat_grace`.
    pub grace: Duration,
    peers: BTreeMap<OsdId, PeerHealth>,
    next: Mono,
    /// OSDs that turned out to have older maps than we.
    pub behind: Vec<(OsdId, Epoch)>,
}

#[derive(Debug)]
struct PeerHealth {
    up_from: Epoch,
    heard: Mono,
    reported: Option<Mono>,
    /// The last round trip, in microseconds.
    rtt_us: u32,
}

impl Default for Heartbeats {
    fn default() -> Self {
        Heartbeats { grace: Duration::from_secs(20), peers: BTreeMap::new(), next: Mono(0), behind: Vec::new() }
    }
}

impl Heartbeats {
    /// Peers follow the map: whoever shares a PG with us.
    pub fn handle_map(&mut self, now: Now, sh: &Shared, pgs: &BTreeMap<PgId, Pg>) {
        let mut peers = BTreeMap::new();
        if sh.booted {
            let members = pgs.values().map(|pg| &pg.walk.mapping).filter(|m| m.involves(sh.whoami));
            for osd in members.flat_map(|m| m.up.iter().chain(&m.acting)) {
                if *osd == sh.whoami || !sh.map.is_up(*osd) || peers.contains_key(osd) {
                    continue;
                }
                let up_from = sh.map.info(*osd).map(|i| i.up_from).unwrap_or_default();
                let health = match self.peers.remove(osd) {
                    Some(known) if known.up_from == up_from => known,
                    _ => PeerHealth { up_from, heard: now.mono, reported: None, rtt_us: 0 },
                };
                peers.insert(*osd, health);
            }
        }
        self.peers = peers;
    }

    /// A question, or the answer to ours.
    pub fn handle(&mut self, cx: &mut Cx<'_>, m: OsdHeartbeat) {
        cx.sh.spaces.note(m.osd, m.space);
        if m.epoch < cx.sh.map.epoch && !m.is_reply {
            self.behind.push((m.osd, m.epoch));
        }
        if !m.is_reply {
            let me = cx.sh.whoami;
            let reply = OsdHeartbeat { osd: me, epoch: cx.sh.map.epoch, is_reply: true, space: cx.own_space(), ..m };
            return cx.send(Peer::Osd(m.osd), 0, reply, Durable::Now);
        }
        let Some(peer) = self.peers.get_mut(&m.osd) else { return };
        peer.heard = cx.now.mono;
        peer.rtt_us = ((cx.now.mono.0.saturating_sub(m.mono_ns)) / 1000) as u32;
        if peer.reported.take().is_some() {
            report(cx, m.osd, FailureKind::Alive, Duration::ZERO);
        }
    }

    /// An OSD's address refuses connections: it is gone.
    pub fn handle_refused(&mut self, cx: &mut Cx<'_>, osd: OsdId) {
        if !cx.sh.booted || !cx.sh.map.is_up(osd) {
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
        for (osd, peer) in &mut self.peers {
            let silent = cx.now.mono - peer.heard;
            let again = peer.reported.is_none_or(|at| cx.now.mono - at >= REPORT_PAUSE);
            if silent > self.grace && again {
                peer.reported = Some(cx.now.mono);
                report(cx, *osd, FailureKind::Silent, silent);
            }
        }
        if cx.now.mono < self.next {
            return;
        }
        self.next = cx.now.mono + INTERVAL;
        let space = cx.own_space();
        for osd in self.peers.keys() {
            let ask = OsdHeartbeat {
                osd: cx.sh.whoami,
                epoch: cx.sh.map.epoch,
                is_reply: false,
                stamp: cx.now.wall,
                mono_ns: cx.now.mono.0,
                space,
            };
            cx.send(Peer::Osd(*osd), 0, ask, Durable::Now);
        }
    }

    /// Peers, with the last round trip in microseconds.
    pub fn peers(&self) -> impl Iterator<Item = (OsdId, u32)> {
        self.peers.iter().map(|(o, p)| (*o, p.rtt_us))
    }
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
