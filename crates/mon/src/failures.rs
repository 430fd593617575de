//! Which OSDs are believed to be dead, and which to stay so.
//!
//! Hears: reports of silence (`osds`), time. Says: whom to mark down, whom not to mark out.
//! Holds: no decision rests on the wall clock but how long ago somebody was slow, which only lengthens patience.
//! An OSD that was marked down and turns out to have been running was slow, not dead (`laggy_probability`, and for how long,
//! `laggy_interval`): it is waited for longer the next time, the more so the more recent that is; and so is whoever is
//! reported by OSDs that were slow, for then it may be the network. So OSDs that flap come to rest up.
//! Upstream: OSDMonitor::check_failure, can_mark_down, can_mark_out, tick (src/mon/OSDMonitor.cc).

use crate::mon::Mon;
use crate::osds::group_flags;
use crate::placement;
use std::collections::BTreeSet;
use std::time::Duration;
use store::Kv;
use types::map::{OsdMap, OsdXInfo};
use types::msg::internal::OsdBoot;
use types::{Now, OsdId, Utime};

/// A report is repeated every five seconds; one that is not has been overtaken.
const REPORT_LIFE: Duration = Duration::from_secs(20);

impl<K: Kv> Mon<K> {
    /// Looks at all reports again: patience may have ended.
    pub(crate) fn judge_failures(&mut self, now: Now) {
        for reports in self.osds.failures.values_mut() {
            reports.retain(|_, (at, _)| now.mono - *at <= REPORT_LIFE);
        }
        self.osds.failures.retain(|_, reports| !reports.is_empty());
        let targets: Vec<OsdId> = self.osds.failures.keys().copied().collect();
        targets.into_iter().for_each(|osd| self.judge_failure(now, osd));
    }

    /// Marks an OSD down once enough others, on different hosts where there are several, have missed it for long enough.
    pub(crate) fn judge_failure(&mut self, now: Now, target: OsdId) {
        let (Some(state), Some(reports)) = (&self.state, self.osds.failures.get(&target)) else { return };
        let map = &state.osdmap.map;
        let wanted = self.env.int(state, "mon_osd_min_down_reporters", 2).max(1) as usize;
        let level = self.env.option(state, "mon_osd_reporter_subtree_level").unwrap_or_else(|| "host".into());
        let reporters: BTreeSet<OsdId> = reports.keys().copied().filter(|o| map.is_up(*o)).collect();
        let others: BTreeSet<OsdId> = map.up_osds().filter(|o| *o != target).collect();
        let places = |osds: &BTreeSet<OsdId>| osds.iter().filter_map(|o| placement::location(map, *o).remove(&level)).collect::<BTreeSet<_>>().len();
        let by_place = places(&others) > 1;
        let (have, possible) = if by_place { (places(&reporters), places(&others)) } else { (reporters.len(), others.len()) };
        // Who noticed last is right about how long it has been.
        let silent = |osd: &OsdId| reports.get(osd).map(|(at, silent)| *silent + (now.mono - *at));
        let Some(silent) = reporters.iter().filter_map(silent).min() else { return };
        let grace = self.grace(now, target, silent, &reporters);
        if have < wanted.min(possible.max(1)) || silent < grace || !self.may_go_down(target) {
            return;
        }
        let place = placement::location(map, target);
        let place: Vec<String> = place.iter().rev().map(|(kind, name)| format!("{kind}={name}")).collect();
        let what = if by_place { level.as_str() } else { "osd" };
        let line = format!(
            "osd.{target} failed ({}) ({have} reporters from different {what} after {:.6} >= grace {:.6})",
            place.join(","),
            silent.as_secs_f64(),
            grace.as_secs_f64()
        );
        self.mark_down(now, target, line);
    }

    /// How long an OSD may be silent: the grace, and what is added for those that were slow before.
    fn grace(&self, now: Now, target: OsdId, silent: Duration, reporters: &BTreeSet<OsdId>) -> Duration {
        let Some(state) = &self.state else { return Duration::ZERO };
        let grace = self.env.seconds(state, "osd_heartbeat_grace", 20);
        if !self.env.bool(state, "mon_osd_adjust_heartbeat_grace", true) || reporters.is_empty() {
            return grace;
        }
        let map = &state.osdmap.map;
        let own = self.laggy_seconds(target, silent);
        let since = |osd: &OsdId| map.xinfo(*osd).map_or(Duration::ZERO, |x| elapsed(now.wall, x.down_stamp));
        let theirs: f64 = reporters.iter().map(|osd| self.laggy_seconds(*osd, since(osd))).sum();
        grace + Duration::from_secs_f64(own + theirs / reporters.len() as f64)
    }

    /// An OSD that was away before gets more time to come back before it is marked out.
    pub(crate) fn patience_with_absent(&self, osd: OsdId, waited: Duration) -> Duration {
        let Some(state) = self.state.as_ref().filter(|s| self.env.bool(s, "mon_osd_adjust_down_out_interval", true)) else { return Duration::ZERO };
        debug_assert!(state.osdmap.map.is_down(osd));
        Duration::from_secs_f64(self.laggy_seconds(osd, waited))
    }

    /// Seconds an OSD is likely to be slow for; half as many each half-life.
    fn laggy_seconds(&self, osd: OsdId, since: Duration) -> f64 {
        let Some(state) = &self.state else { return 0.0 };
        let Some(x) = state.osdmap.map.xinfo(osd) else { return 0.0 };
        let halflife = self.env.float(state, "mon_osd_laggy_halflife", 3600.0).max(1.0);
        let decay = 0.5f64.powf(since.as_secs_f64() / halflife);
        decay * f64::from(x.laggy_interval) * probability(x)
    }

    /// What is known of an OSD that boots: it was slow if it is the process that was marked down.
    pub(crate) fn laggy_history(&self, now: Now, boot: &OsdBoot) -> OsdXInfo {
        let Some(state) = &self.state else { return OsdXInfo::default() };
        let osd = boot.osd;
        let mut x = state.osdmap.pending_xinfo(osd);
        let weight = self.env.float(state, "mon_osd_laggy_weight", 0.3).clamp(0.0, 1.0);
        let was_slow = state.osdmap.map.exists(osd) && state.osdmap.map.addrs(osd) == Some(&boot.public_addrs);
        let mut likely = probability(&x) * (1.0 - weight);
        let mut interval = f64::from(x.laggy_interval) * (1.0 - weight);
        if was_slow {
            likely += weight;
            let since = self.osds.down_since.get(&osd).map(|at| now.mono - *at);
            let away = since.unwrap_or_else(|| elapsed(now.wall, x.down_stamp)).as_secs_f64();
            let most = self.env.float(state, "mon_osd_laggy_max_interval", 300.0);
            interval += weight * if most > 0.0 { away.min(most) } else { away };
        }
        x.laggy_probability = (likely.min(1.0) * f64::from(u32::MAX)) as u32;
        x.laggy_interval = interval as u32;
        x
    }

    /// False while an operator forbids it (`nodown`), or when so few are up that it is not they who are dead
    /// (`mon_osd_min_up_ratio`).
    pub(crate) fn may_go_down(&self, osd: OsdId) -> bool {
        let Some(state) = &self.state else { return false };
        let map = &state.osdmap.map;
        if map.has_flag(OsdMap::FLAG_NODOWN) || group_flags(map, osd) & OsdMap::STATE_NODOWN != 0 {
            return false;
        }
        let up = map.osds().filter(|o| state.osdmap.pending_state(*o) & OsdMap::STATE_UP != 0).count();
        let ratio = up as f64 / map.num_osds().max(1) as f64;
        let least = self.env.float(state, "mon_osd_min_up_ratio", 0.3);
        if ratio < least {
            tracing::info!("osd.{osd} is not marked down: {ratio:.3} of the OSDs are up, mon_osd_min_up_ratio is {least:.3}");
        }
        ratio >= least
    }

    /// False while an operator forbids it (`noout`), or when so few are in that data would have no room
    /// (`mon_osd_min_in_ratio`).
    pub(crate) fn may_go_out(&self, osd: OsdId) -> bool {
        let Some(state) = &self.state else { return false };
        let map = &state.osdmap.map;
        if map.has_flag(OsdMap::FLAG_NOOUT) || group_flags(map, osd) & OsdMap::STATE_NOOUT != 0 {
            return false;
        }
        let weight = |osd: OsdId| state.osdmap.pending().new_weight.get(&osd).copied().unwrap_or_else(|| map.weight(osd));
        let inside = map.osds().filter(|o| weight(*o) != OsdMap::WEIGHT_OUT).count();
        let ratio = inside as f64 / map.num_osds().max(1) as f64;
        ratio >= self.env.float(state, "mon_osd_min_in_ratio", 0.75)
    }

    /// True if everything of the size of `mon_osd_down_out_subtree_limit` that the OSD belongs to is down.
    pub(crate) fn is_whole_subtree_down(&self, osd: OsdId) -> bool {
        let Some(state) = &self.state else { return false };
        let map = &state.osdmap.map;
        let limit = self.env.option(state, "mon_osd_down_out_subtree_limit").unwrap_or_else(|| "rack".into());
        let Some(limit) = map.crush.type_id(&limit).filter(|kind| *kind > 0) else { return false };
        let mut at = osd.0;
        while let Some(parent) = map.crush.parent(at) {
            if !map.crush.leaves(parent.id).iter().all(|leaf| map.is_down(OsdId(*leaf))) {
                return false;
            }
            if i32::from(parent.kind) >= limit {
                return true;
            }
            at = parent.id;
        }
        false
    }
}

fn probability(x: &OsdXInfo) -> f64 {
    f64::from(x.laggy_probability) / f64::from(u32::MAX)
}

/// Time by a clock that may have been set back.
fn elapsed(now: Utime, then: Utime) -> Duration {
    now.to_duration().saturating_sub(then.to_duration())
}
