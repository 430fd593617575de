//! An OSD that was marked down though it runs asks others over every network whether they hear it, before it asks to be up again:
//! behind a broken network it would be marked down once more, and everybody would peer each time.
//!
//! Holds: it is over when enough others have answered lately on all their networks, or after `osd_max_markdown_period`: the others
//! may be dead, and nobody left to say so. An address that refuses connections is no witness.
//! Upstream: OSD::start_waiting_for_healthy, _is_healthy (src/osd/OSD.cc); osd_heartbeat_min_healthy_ratio.

use crate::effects::{Cx, Durable, Peer};
use crate::heartbeat;
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::internal_osd::OsdPing;
use types::{Epoch, Mono, OsdId};

/// Between two looks at who has not answered.
const PAUSE: Duration = Duration::from_secs(1);
/// An answer counts for so long.
const LATELY: Duration = Duration::from_secs(10);

/// Whether we may ask to be up.
#[derive(Debug)]
pub(crate) struct Probation {
    /// `osd_heartbeat_min_healthy_ratio`: the part of those asked that has to answer.
    pub ratio: f64,
    /// `osd_max_markdown_period`: how long it lasts at most.
    pub longest: Duration,
    began: Option<Mono>,
    asked: Mono,
    witnesses: BTreeMap<OsdId, Witness>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Witness {
    up_from: Epoch,
    back: Option<Mono>,
    /// A question is on its way. Sessions keep what they are given: one is enough.
    asked_back: bool,
    front: Option<Mono>,
    /// It has no other network.
    one_network: bool,
}

impl Default for Probation {
    fn default() -> Self {
        let (ratio, longest) = (0.33, Duration::from_secs(600));
        Probation { ratio, longest, began: None, asked: Mono(0), witnesses: BTreeMap::new() }
    }
}

fn is_fresh(now: Mono, heard: Option<Mono>) -> bool {
    heard.is_some_and(|at| now - at < LATELY)
}

impl Probation {
    /// The map says that we are down.
    pub fn begin(&mut self, now: Mono) {
        self.began = Some(now);
        self.witnesses.clear();
    }

    /// The map says that we are up.
    pub fn end(&mut self) {
        self.began = None;
        self.witnesses.clear();
    }

    /// Others are asked that the map says are up, and that heartbeats would go to.
    pub fn handle_map(&mut self, cx: &mut Cx<'_>, level: &str, least: usize) {
        if self.began.is_none() {
            return;
        }
        let map = &cx.sh.map;
        let who = heartbeat::others(map, cx.sh.whoami, level, least, &Default::default());
        let known = std::mem::take(&mut self.witnesses);
        for osd in who {
            let (up_from, one_network) = (map.info(osd).map(|i| i.up_from).unwrap_or_default(), !heartbeat::has_front(map, osd));
            let new = Witness { up_from, one_network, ..Witness::default() };
            self.witnesses.insert(osd, known.get(&osd).filter(|w| w.up_from == up_from).copied().unwrap_or(new));
        }
        self.ask(cx);
    }

    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.began.is_some() && cx.now.mono >= self.asked + PAUSE {
            self.ask(cx);
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        self.asked = now;
        for (osd, w) in &mut self.witnesses {
            let ping = OsdPing { is_reply: false, mono_ns: now.0 };
            if !is_fresh(now, w.back) && !w.asked_back {
                w.asked_back = true;
                cx.send(Peer::Osd(*osd), 0, ping.clone(), Durable::Now);
            }
            if !w.one_network && !is_fresh(now, w.front) {
                cx.send(Peer::Front(*osd), 0, ping, Durable::Now);
            }
        }
    }

    /// An answer to a ping came over one of the networks.
    pub fn handle_answer(&mut self, now: Mono, from: Peer) {
        let (Peer::Osd(osd) | Peer::Front(osd)) = from else { return };
        if let Some(w) = self.witnesses.get_mut(&osd) {
            match from {
                Peer::Front(_) => w.front = Some(now),
                _ => (w.back, w.asked_back) = (Some(now), false),
            }
        }
    }

    /// The session with it was lost, and our question with it.
    pub fn handle_peer_lost(&mut self, osd: OsdId) {
        if let Some(w) = self.witnesses.get_mut(&osd) {
            w.asked_back = false;
        }
    }

    /// It is not we who cannot be reached.
    pub fn handle_refused(&mut self, osd: OsdId) {
        self.witnesses.remove(&osd);
    }

    pub fn is_over(&self, now: Mono) -> bool {
        let Some(began) = self.began else { return true };
        let hears = |w: &&Witness| is_fresh(now, w.back) && (w.one_network || is_fresh(now, w.front));
        let heard = self.witnesses.values().filter(hears).count();
        heard as f64 >= self.witnesses.len() as f64 * self.ratio || now - began >= self.longest
    }
}
