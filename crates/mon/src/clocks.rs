//! How far the clocks of the others are from the leader's: for a warning, for nothing here rests on clocks that agree.
//!
//! The leader asks, each member answers with its time; what is certain is what the round trip cannot explain.
//! Upstream: Monitor::timecheck in src/mon/Monitor.cc.

use crate::env::Env;
use crate::mon::{Effect, Mon};
use crate::services::State;
use std::collections::BTreeMap;
use std::time::Duration;
use store::Kv;
use types::msg::internal_mon::PeerSays;
use types::{Mono, Now, Utime};

/// One member's clock as last seen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Clock {
    /// Seconds it is ahead of the leader's, at least.
    pub skew: f64,
    /// Seconds of the round trip.
    pub latency: f64,
}

/// The clocks of all members, by name; the leader's own among them.
#[derive(Debug, Clone, Default)]
pub struct Clocks {
    pub seen: BTreeMap<String, Clock>,
    pub round: u64,
    /// When all are asked again.
    due: Mono,
}

impl Clocks {
    /// Somebody has come or gone: looks again at once.
    pub fn ask_soon(&mut self) {
        self.due = Mono(0);
    }

    /// What is wrong with a clock, if it is more than is allowed.
    pub fn complaint(clock: &Clock, env: &Env, state: &State) -> Option<String> {
        let allowed = env.float(state, "mon_clock_drift_allowed", 0.05);
        (clock.skew.abs() > allowed).then(|| format!("clock skew {}s > max {allowed}s", text(clock.skew.abs())))
    }
}

/// As a C++ stream prints it: six digits that count.
pub fn text(seconds: f64) -> String {
    let whole = if seconds >= 1.0 { seconds.log10().floor() as usize + 1 } else { 0 };
    let fixed = format!("{seconds:.*}", 6usize.saturating_sub(whole));
    if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.').to_owned() } else { fixed }
}

impl<K: Kv> Mon<K> {
    /// Asks everybody who agrees, when it is time.
    pub(crate) fn tick_clocks(&mut self, now: Now) {
        let Some(state) = &self.state else { return };
        if now.mono < self.quorum.clocks.due {
            return;
        }
        let bad = self.quorum.clocks.seen.values().any(|c| Clocks::complaint(c, &self.env, state).is_some());
        let interval = self.env.seconds(state, "mon_timecheck_interval", 300);
        // A clock that is wrong is looked at more often, so that the warning goes soon after it is set.
        let skewed = self.env.seconds(state, "mon_timecheck_skew_interval", 30).min(interval);
        let names: Vec<String> = self.quorum.names(&state.monmap.map).into_iter().map(str::to_owned).collect();
        let clocks = &mut self.quorum.clocks;
        clocks.round += 2;
        clocks.due = now.mono + if bad { skewed } else { interval }.max(Duration::from_secs(1));
        clocks.seen.retain(|name, _| names.contains(name));
        clocks.seen.insert(self.env.name.clone(), Clock { skew: 0.0, latency: 0.0 });
        for to in names.into_iter().filter(|name| *name != self.env.name) {
            self.effects.push_back(Effect::Peer { to, says: PeerSays::Clock { asked: now.mono.0 } });
        }
    }

    pub(crate) fn handle_clock(&mut self, now: Now, from: &str, asked: u64, wall: Utime) {
        let known = |s: &&State| s.monmap.map.rank_of(from).is_some();
        let (Some(trip), Some(state)) = (now.mono.0.checked_sub(asked), self.state.as_ref().filter(known)) else { return };
        let latency = Duration::from_nanos(trip).as_secs_f64();
        let apart = wall.to_duration().as_secs_f64() - now.wall.to_duration().as_secs_f64();
        let skew = (apart.abs() - latency).max(0.0).copysign(apart);
        let clock = Clock { skew, latency };
        let was = self.quorum.clocks.seen.insert(from.to_owned(), clock);
        let bad = |c: &Clock| Clocks::complaint(c, &self.env, state).is_some();
        if bad(&clock) && !was.as_ref().is_some_and(bad) {
            let soon = self.env.seconds(state, "mon_timecheck_skew_interval", 30);
            self.quorum.clocks.due = self.quorum.clocks.due.min(now.mono + soon);
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn seconds_are_printed_as_stock_prints_them() {
        assert_eq!(super::text(0.25), "0.25");
        assert_eq!(super::text(12.345_678_9), "12.3457");
        assert_eq!(super::text(3600.0), "3600");
    }
}
