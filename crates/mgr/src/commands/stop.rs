//! `osd ok-to-stop`: whether all data stays available without some OSDs, and which others could stop with them.
//!
//! Upstream: DaemonServer::_check_offlines_pgs, _maximize_ok_to_stop_set in src/mgr/DaemonServer.cc.

use super::Answer;
use crate::core::Mgr;
use admin::command::{Args, CommandError, Reply};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use types::pg::PgState;
use types::{Errno, OsdId, PgId};

/// What becomes of PGs without some OSDs.
struct Without {
    osds: BTreeSet<OsdId>,
    found: BTreeMap<&'static str, Vec<PgId>>,
    /// PGs that nobody knows enough of.
    unknown: usize,
}

impl Without {
    fn count(&self, prefix: &str) -> usize {
        self.found.iter().filter(|(k, _)| k.starts_with(prefix)).map(|(_, pgs)| pgs.len()).sum()
    }

    fn is_ok(&self) -> bool {
        self.unknown == 0 && self.count("bad") == 0
    }

    fn show(&self) -> Value {
        let mut out = Map::new();
        out.insert("ok_to_stop".into(), self.is_ok().into());
        out.insert("osds".into(), self.osds.iter().map(|o| o.0).collect::<Vec<_>>().into());
        out.insert("num_ok_pgs".into(), self.count("ok").into());
        out.insert("num_not_ok_pgs".into(), self.count("bad").into());
        out.extend(self.found.iter().map(|(k, pgs)| (k.to_string(), pgs.iter().map(|p| p.to_string()).collect::<Vec<_>>().into())));
        Value::Object(out)
    }
}

impl Mgr {
    pub(super) fn ok_to_stop(&self, args: &Args) -> Answer {
        let osds = self.osds(&args.strings("ids"))?;
        if osds.is_empty() {
            return Err(CommandError::invalid("must specify one or more OSDs"));
        }
        let max = args.int("max").unwrap_or(1);
        let max = usize::try_from(max).ok().filter(|max| *max >= 1).ok_or_else(|| CommandError::invalid("max must be at least 1"))?;
        let without = self.most_without(self.without(osds), max);
        if without.unknown > 0 {
            let text = format!("{} pgs have unknown state; cannot draw any conclusions", without.unknown);
            return Err(CommandError::new(Errno::EAGAIN, text));
        }
        // Stock gives this one as compact JSON even to who asks for plain text.
        let output = (admin::json::compact(&without.show()) + "\n").into_bytes();
        Ok(match without.count("bad") {
            0 => Reply { output, ..Reply::default() },
            n => Reply {
                result: Errno::EBUSY.wire(),
                status: format!("unsafe to stop osd(s) at this time ({n} PGs are or would become offline)"),
                output,
            },
        })
    }

    fn without(&self, osds: BTreeSet<OsdId>) -> Without {
        let (mut found, mut unknown) = (BTreeMap::<_, Vec<PgId>>::new(), 0);
        for (pg, stat) in &self.pgs().pgs {
            let Some(pool) = self.osdmap().pool_by_id(pg.pool) else { continue };
            let hit = stat.acting.iter().filter(|o| osds.contains(o)).count();
            if stat.state == PgState::UNKNOWN {
                unknown += usize::from(hit > 0);
                continue;
            }
            let degraded = stat.state.has(PgState::DEGRADED);
            let left = stat.acting.iter().filter(|o| o.0 >= 0 && o.0 != crush::ITEM_NONE).count() - hit;
            // Objects that only the OSDs to be stopped have would be unfound: copies that lack some do not count for those that have all.
            let whole = stat.avail_no_missing.iter().filter(|s| !osds.contains(&s.osd)).count();
            let left = if degraded && whole < stat.avail_no_missing.len() { left.min(whole) } else { left };
            let verdict = match hit {
                0 => continue,
                _ if !stat.state.has(PgState::ACTIVE) => "bad_already_inactive",
                _ if left < usize::from(pool.min_size) => "bad_become_inactive",
                _ if degraded => "ok_become_more_degraded",
                _ => "ok_become_degraded",
            };
            found.entry(verdict).or_default().push(*pg);
        }
        Without { osds, found, unknown }
    }

    /// Adds neighbours of the first OSD that can stop, too, up to `max` altogether: those on its host before those in its rack.
    fn most_without(&self, mut best: Without, max: usize) -> Without {
        let crush = &self.osdmap().crush;
        let Some(mut item) = best.osds.first().map(|o| o.0) else { return best };
        while best.is_ok() && best.osds.len() < max {
            let Some(parent) = crush.parent(item) else { break };
            item = parent.id;
            let mut refused = false;
            for osd in crush.leaves(item).into_iter().map(OsdId).filter(|o| self.osdmap().is_up(*o)) {
                if best.osds.len() < max && !best.osds.contains(&osd) {
                    let more = self.without(best.osds.iter().copied().chain([osd]).collect());
                    match more.is_ok() {
                        true => best = more,
                        false => refused = true,
                    }
                }
            }
            if refused {
                break;
            }
        }
        best
    }
}
