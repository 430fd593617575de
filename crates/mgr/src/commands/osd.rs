//! `osd ...` as far as the manager answers it.

use super::{Answer, both, not_built};
use crate::core::Mgr;
use crate::show::osd_df::Filter;
use crate::show::pg_json;
use admin::TextTable;
use admin::command::{Args, Command, CommandError, Reply};
use admin::human::narrow;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use types::pg::PgState;
use types::{Errno, Now, OsdId, PgId, PoolId};

impl Mgr {
    pub(super) fn osd_command(&self, _now: Now, command: &Command, args: &Args) -> Answer {
        match command.prefix.as_str() {
            "osd df" => self.osd_df(command, args),
            "osd perf" => Ok(self.osd_perf(command)),
            "osd blocked-by" => Ok(self.blocked_by(command)),
            "osd status" => self.osd_status(args),
            "osd pool stats" => self.pool_stats(command, args),
            "osd ok-to-stop" => self.ok_to_stop(args),
            "osd safe-to-destroy" => self.safe_to_destroy(command, args),
            other => Err(not_built(other)),
        }
    }

    fn osd_df(&self, command: &Command, args: &Args) -> Answer {
        let tree = args.str("output_method") == Some("tree");
        let mut filter = Filter::default();
        match (args.str("filter_by"), args.str("filter")) {
            (Some("class"), Some(class)) => {
                let known = self.osdmap().crush.class_id(class).is_some();
                let unknown = || CommandError::invalid(format!("'{class}' not a pool, crush node or device class name"));
                filter.class = Some(known.then(|| class.to_string()).ok_or_else(unknown)?);
            }
            (Some("name"), Some(name)) => {
                let unknown = || CommandError::invalid(format!("'{name}' not a pool, crush node or device class name"));
                filter.under = Some(self.osdmap().crush.item(name).ok_or_else(unknown)?);
            }
            _ => {}
        }
        Ok(match command.format.is_json() {
            true => both(command, &self.osd_df_json(tree, &filter)),
            false => Reply::output(self.osd_df_text(tree, &filter)),
        })
    }

    fn osd_perf(&self, command: &Command) -> Reply {
        if command.format.is_json() {
            let osd = |(id, r): (&OsdId, &crate::pgmap::OsdReport)| json!({"id": id.0, "perf_stats": pg_json::perf(&r.stat)});
            let all: Vec<Value> = self.pgs().osds.iter().rev().map(osd).collect();
            return both(command, &json!({"pg_ready": true, "osdstats": {"osd_perf_infos": all}}));
        }
        let mut t = TextTable::new().figures("osd").figures("commit_latency(ms)").figures("apply_latency(ms)");
        for (osd, report) in self.pgs().osds.iter().rev() {
            let p = report.stat.perf;
            let cells = [p.commit_latency_ns / 1_000_000, p.apply_latency_ns / 1_000_000].map(|ms| ms.to_string());
            t.row([osd.to_string()].into_iter().chain(cells));
        }
        Reply::output(t.render())
    }

    fn blocked_by(&self, command: &Command) -> Reply {
        let mut blockers: BTreeMap<OsdId, u32> = BTreeMap::new();
        for stat in self.pgs().pgs.values() {
            stat.blocked_by.iter().for_each(|osd| *blockers.entry(*osd).or_default() += 1);
        }
        if command.format.is_json() {
            let all: Vec<Value> = blockers.iter().map(|(osd, n)| json!({"id": osd.0, "num_blocked": n})).collect();
            return both(command, &json!({"pg_ready": true, "osd_blocked_by": {"osd_blocked_by_infos": all}}));
        }
        let mut t = TextTable::new().figures("osd").figures("num_blocked");
        blockers.iter().for_each(|(osd, n)| t.row([osd.to_string(), n.to_string()]));
        Reply::output(t.render())
    }

    fn osd_status(&self, args: &Args) -> Answer {
        let crush = &self.osdmap().crush;
        let under = match args.str("bucket") {
            Some(name) => Some(crush.item(name).ok_or_else(|| CommandError::invalid(format!("Bucket not found: {name}")))?),
            None => None,
        };
        let mut t = TextTable::new().right("ID").left("HOST");
        for name in ["USED", "AVAIL", "WR OPS", "WR DATA", "RD OPS", "RD DATA"] {
            t = t.right(name);
        }
        t = t.left("STATE");
        for osd in self.osdmap().osds().filter(|o| under.is_none_or(|root| crush.subtree_contains(root, o.0))) {
            let report = self.pgs().osds.get(&osd);
            let stat = report.map(|r| r.stat.statfs).unwrap_or_default();
            let rate = |counters: &[&str]| report.map_or(0, |r| r.rate(counters));
            let host = crush.full_location(osd.0).into_iter().find(|(kind, _)| kind == "host").map(|(_, name)| name);
            t.row([
                osd.to_string(),
                host.unwrap_or_default(),
                narrow(stat.used_raw(), 5, 1024),
                narrow(stat.available, 5, 1024),
                narrow(rate(&["osd.op_w", "osd.op_rw"]), 5, 1000),
                narrow(rate(&["osd.op_in_bytes"]), 5, 1024),
                narrow(rate(&["osd.op_r"]), 5, 1000),
                narrow(rate(&["osd.op_out_bytes"]), 5, 1024),
                types::map::osdmap::osd_state_names(self.osdmap().state(osd)).join(","),
            ]);
        }
        // The stock table pads every column to its right, the last one too.
        Ok(Reply::output(t.render().lines().map(|line| format!("{line}  \n")).collect::<String>()))
    }

    fn pool_stats(&self, command: &Command, args: &Args) -> Answer {
        let pools: Vec<PoolId> = match args.str("pool_name") {
            Some(name) => {
                let unknown = || CommandError::new(Errno::ENOENT, format!("unrecognized pool '{name}'"));
                vec![self.osdmap().pool_id(name).ok_or_else(unknown)?]
            }
            None => self.osdmap().pools.keys().copied().collect(),
        };
        Ok(match command.format.is_json() {
            true => both(command, &self.pool_stats_io_json(&pools)),
            false if pools.is_empty() => Reply::output("there are no pools!\n"),
            false => Reply::output(self.pool_stats_text(&pools)),
        })
    }

    /// Whether these OSDs hold nothing that is needed.
    fn safe_to_destroy(&self, command: &Command, args: &Args) -> Answer {
        let osds = self.osds(&args.strings("ids"))?;
        if osds.is_empty() {
            return Err(CommandError::invalid("must specify one or more OSDs"));
        }
        let states = || self.pgs().pgs.values().map(|s| s.state);
        let unknown = states().filter(|state| *state == PgState::UNKNOWN).count();
        if unknown > 0 {
            let text = format!("{unknown} pgs have unknown state; cannot draw any conclusions");
            return Err(CommandError::new(Errno::EAGAIN, text));
        }
        // What is whole elsewhere needs no copy here, whatever this OSD said last; a dead one will say nothing more.
        let clean = states().all(|s| s.has(PgState::ACTIVE) && s.has(PgState::CLEAN) && !s.has(PgState::STALE));
        let mut sorted: BTreeMap<&str, BTreeSet<OsdId>> = BTreeMap::new();
        let mut affected = BTreeSet::new();
        for osd in &osds {
            let mapped: Vec<PgId> = self.pgs().pgs_of_osd(*osd).map(|(pg, _)| *pg).collect();
            let report = self.pgs().osds.get(osd).filter(|_| self.osdmap().is_up(*osd));
            let verdict = match report {
                _ if !mapped.is_empty() => "active",
                _ if clean || !self.osdmap().exists(*osd) => "safe_to_destroy",
                None => "missing_stats",
                Some(r) if r.stat.num_pgs > 0 => "stored_pgs",
                Some(_) => "safe_to_destroy",
            };
            affected.extend(mapped);
            sorted.entry(verdict).or_default().insert(*osd);
        }
        let list = |name: &str| sorted.get(name).cloned().unwrap_or_default();
        if command.format.is_json() {
            let ids = |name: &str| list(name).iter().map(|o| o.0).collect::<Vec<_>>();
            return Ok(both(command, &json!({
                "safe_to_destroy": ids("safe_to_destroy"), "active": ids("active"),
                "missing_stats": ids("missing_stats"), "stored_pgs": ids("stored_pgs"),
            })));
        }
        let names = |set: &BTreeSet<OsdId>| set.iter().map(|o| o.to_string()).collect::<Vec<_>>().join(",");
        let mut why = String::new();
        if !list("active").is_empty() {
            why += &format!("OSD(s) {} have {} pgs currently mapped to them. ", names(&list("active")), affected.len());
        }
        if !list("missing_stats").is_empty() {
            why += &format!("OSD(s) {} report nothing, and not all PGs are active+clean. ", names(&list("missing_stats")));
        }
        if !list("stored_pgs").is_empty() {
            why += &format!("OSD(s) {} report that they still hold PGs, and not all PGs are active+clean. ", names(&list("stored_pgs")));
        }
        match why.is_empty() {
            true => Ok(Reply::status(format!("OSD(s) {} are safe to destroy without reducing data durability.", names(&osds)))),
            // Nobody knows yet: to be asked again.
            false if list("active").is_empty() && list("stored_pgs").is_empty() => Err(CommandError::new(Errno::EAGAIN, why)),
            false => Err(CommandError::new(Errno::EBUSY, why)),
        }
    }

    /// OSDs by number, `osd.N`, or `all`.
    pub(super) fn osds(&self, names: &[&str]) -> Result<BTreeSet<OsdId>, CommandError> {
        let mut out = BTreeSet::new();
        for name in names.iter().flat_map(|n| n.split(',')) {
            match name {
                "all" | "any" | "*" => out.extend(self.osdmap().osds()),
                one => {
                    let id = one.strip_prefix("osd.").unwrap_or(one).parse::<i32>().ok().filter(|id| *id >= 0);
                    out.insert(OsdId(id.ok_or_else(|| CommandError::invalid(format!("invalid osd id '{one}'")))?));
                }
            }
        }
        Ok(out)
    }

    /// The pools that a command about pools names.
    pub(super) fn named_pools(&self, args: &Args) -> Result<Vec<PoolId>, CommandError> {
        let names = args.strings("who");
        if names.is_empty() {
            return Err(CommandError::invalid("must specify one or more pool names"));
        }
        let unknown = |name: &str| CommandError::new(Errno::ENOENT, format!("unrecognized pool '{name}'"));
        names.into_iter().map(|name| self.osdmap().pool_id(name).ok_or_else(|| unknown(name))).collect()
    }
}
