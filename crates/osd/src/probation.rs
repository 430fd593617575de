//! An OSD that was marked down though it runs asks others over every network whether they hear it, before it asks to be up again:
//! behind a broken network it would be marked down once more, and everybody would peer each time.
//!
//! Holds: it is over when enough others have answered on all their networks; an address that refuses connections is no witness.
//! Upstream: OSD::start_waiting_for_healthy, _is_healthy (src/osd/OSD.cc); osd_heartbeat_min_healthy_ratio.

use crate::effects::{Cx, Durable, Peer};
use crate::heartbeat;
use std::collections::BTreeMap;
use std::time::Duration;
use types::msg::internal_osd::OsdPing;
use types::{Mono, OsdId};

/// Between two questions to those who have not answered.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether we may ask to be up.
#[derive(Debug)]
pub(crate) struct Probation {
    /// `osd_heartbeat_min_healthy_ratio`: the part of those asked that has to answer.
    pub ratio: f64,
    running: bool,
    asked: Mono,
    witnesses: BTreeMap<OsdId, Answers>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Answers {
    back: bool,
    front: bool,
}

impl Default for Probation {
    fn default() -> Self {
        Probation { ratio: 0.33, running: false, asked: Mono(0), witnesses: BTreeMap::new() }
    }
}

impl Probation {
    /// The map says that we are down.
    pub fn begin(&mut self) {
        self.running = true;
        self.witnesses.clear();
    }

    /// The map says that we are up.
    pub fn end(&mut self) {
        self.running = false;
        self.witnesses.clear();
    }

    /// Others are asked that the map says are up, and that heartbeats would go to.
    pub fn handle_map(&mut self, cx: &mut Cx<'_>, level: &str, least: usize) {
        if !self.running {
            return;
        }
        let map = &cx.sh.map;
        let who = heartbeat::others(map, cx.sh.whoami, level, least, &Default::default());
        let known = std::mem::take(&mut self.witnesses);
        for osd in who {
            let new = Answers { back: false, front: !heartbeat::has_front(map, osd) };
            self.witnesses.insert(osd, known.get(&osd).copied().unwrap_or(new));
        }
        self.ask(cx);
    }

    pub fn tick(&mut self, cx: &mut Cx<'_>) {
        if self.running && cx.now.mono >= self.asked + PAUSE {
            self.ask(cx);
        }
    }

    fn ask(&mut self, cx: &mut Cx<'_>) {
        self.asked = cx.now.mono;
        for (osd, heard) in &self.witnesses {
            let ping = OsdPing { is_reply: false, mono_ns: cx.now.mono.0 };
            if !heard.back {
                cx.send(Peer::Osd(*osd), 0, ping.clone(), Durable::Now);
            }
            if !heard.front {
                cx.send(Peer::Front(*osd), 0, ping, Durable::Now);
            }
        }
    }

    /// An answer to a ping came over one of the networks.
    pub fn handle_answer(&mut self, from: Peer) {
        let (Peer::Osd(osd) | Peer::Front(osd)) = from else { return };
        if let Some(heard) = self.witnesses.get_mut(&osd) {
            match from {
                Peer::Front(_) => heard.front = true,
                _ => heard.back = true,
            }
        }
    }

    /// It is not we who cannot be reached.
    pub fn handle_refused(&mut self, osd: OsdId) {
        self.witnesses.remove(&osd);
    }

    pub fn is_over(&self) -> bool {
        let heard = self.witnesses.values().filter(|h| h.back && h.front).count();
        !self.running || heard as f64 >= self.witnesses.len() as f64 * self.ratio
    }
}
