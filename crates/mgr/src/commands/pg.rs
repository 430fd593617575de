//! `pg ...`.

use super::{Answer, both, not_built};
use crate::core::Mgr;
use crate::show::{pg_json, pg_text};
use admin::command::{Args, Command, CommandError, Reply};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use types::pg::{PgState, PgStat};
use types::{Errno, Now, OsdId, PgId, PoolId, Utime};

impl Mgr {
    pub(super) fn pg_command(&self, now: Now, command: &Command, args: &Args) -> Answer {
        match command.prefix.as_str() {
            "pg stat" => Ok(match command.format.is_json() {
                true => both(command, &self.pg_stat_json()),
                false => Reply::output(self.pg_stat_text()),
            }),
            "pg dump" => Ok(self.pg_dump(command, &args.strings("dumpcontents"), command.format.is_json())),
            // Whatever parts it names, it shows all.
            "pg dump_json" => Ok(self.pg_dump(command, &[], true)),
            "pg dump_pools_json" => Ok(self.pg_dump(command, &["pools"], true)),
            "pg ls" | "pg ls-by-pool" | "pg ls-by-osd" | "pg ls-by-primary" => self.pg_ls(now, command, args),
            "pg dump_stuck" => self.dump_stuck(now, command, args),
            "pg debug" => Ok(self.pg_debug(args)),
            other => Err(not_built(other)),
        }
    }

    /// The parts asked for, in the order in which stock prints them.
    fn pg_dump(&self, command: &Command, what: &[&str], json: bool) -> Reply {
        let asked = |part: &str| what.contains(&part) || what.contains(&"all") || what.is_empty();
        let whole = what.is_empty() || what.contains(&"all");
        let named: BTreeSet<&str> = what.iter().copied().collect();
        let status = format!("dumped {}", if what.is_empty() { "all".into() } else { named.into_iter().collect::<Vec<_>>().join(",") });
        let output = match json {
            true => {
                // A command that has JSON in its name gives it even to who asks for plain text.
                let value = self.dump_json(asked, whole, what);
                if command.format.is_json() { command.format.render(&value) } else { admin::json::compact(&value) }
            }
            false => self.dump_text(asked, whole, what),
        };
        Reply::output(output).with_status(status)
    }

    fn dump_text(&self, asked: impl Fn(&str) -> bool, whole: bool, what: &[&str]) -> String {
        let summary = what.contains(&"sum") || what.contains(&"summary");
        let mut out = String::new();
        if whole {
            out += &(self.basic_text() + &self.pgs_text() + &self.pools_text(false) + &self.sum_text(false));
            out += &(self.osds_text() + pg_text::OMAP_NOTE);
            return out;
        }
        if summary {
            // Nothing else beside it, as in stock.
            return self.basic_text() + &self.sum_text(true) + &self.osd_sum_text() + pg_text::OMAP_NOTE;
        }
        if asked("pgs") {
            out += &self.pgs_text();
        }
        if asked("pools") {
            out += &self.pools_text(true);
        }
        if asked("osds") {
            out += &self.osds_text();
        }
        if asked("pgs_brief") {
            out += &pg_text::pg_briefs(self.pgs().pgs.iter());
        }
        if asked("pools") || asked("pgs") {
            out += pg_text::OMAP_NOTE;
        }
        out
    }

    fn dump_json(&self, asked: impl Fn(&str) -> bool, whole: bool, what: &[&str]) -> Value {
        let mut out = Map::from_iter([("pg_ready".to_string(), Value::from(true))]);
        if whole {
            let mut map = self.basic_json();
            map.insert("pg_stats".into(), self.pg_stats_json());
            map.insert("pool_stats".into(), self.pool_stats_json());
            map.insert("osd_stats".into(), self.osd_stats_json());
            map.insert("pool_statfs".into(), self.pool_statfs_json());
            out.insert("pg_map".into(), map.into());
            return Value::Object(out);
        }
        if what.contains(&"sum") || what.contains(&"summary") {
            out.insert("pg_map".into(), self.basic_json().into());
            return Value::Object(out);
        }
        if asked("pools") {
            out.insert("pool_stats".into(), self.pool_stats_json());
        }
        if asked("osds") {
            out.insert("osd_stats".into(), self.osd_stats_json());
            out.insert("pool_statfs".into(), self.pool_statfs_json());
        }
        if asked("pgs") {
            out.insert("pg_stats".into(), self.pg_stats_json());
        }
        if asked("pgs_brief") {
            out.insert("pg_stats".into(), self.pgs().pgs.iter().map(|(id, s)| pg_json::pg_brief(id, s)).collect());
        }
        if asked("delta") {
            out.insert("delta".into(), json!({"pg_stats_delta": self.delta_json()}));
        }
        Value::Object(out)
    }

    fn pg_ls(&self, now: Now, command: &Command, args: &Args) -> Answer {
        let pool = match (args.str("poolstr"), args.int("pool")) {
            (Some(name), _) => Some(self.osdmap().pool_id(name).ok_or_else(|| no_pool(name))?),
            (None, Some(id)) if self.osdmap().pools.contains_key(&PoolId(id)) => Some(PoolId(id)),
            (None, Some(id)) => return Err(no_pool(&id.to_string())),
            (None, None) => None,
        };
        let states = states(&args.strings("states"))?;
        let osd = self.osd_of(args)?;
        let primary = command.prefix.ends_with("primary");
        let chosen = |(id, s): &(&PgId, &PgStat)| {
            let of_osd = osd.is_none_or(|osd| match primary {
                true => s.acting_primary == osd,
                false => s.acting.contains(&osd) || s.up.contains(&osd),
            });
            let in_state = states.is_empty() || states.iter().any(|wanted| matches(s.state, *wanted));
            pool.is_none_or(|pool| id.pool == pool) && of_osd && in_state
        };
        let mut pgs = self.pgs().pgs.iter().filter(chosen).peekable();
        // Of none there is no table, and no list.
        let none = pgs.peek().is_none();
        Ok(match command.format.is_json() {
            true if none => both(command, &json!({"pg_ready": true})),
            false if none => Reply::default(),
            true => {
                let list: Vec<Value> = pgs.map(|(id, s)| pg_json::pg(id, s)).collect();
                both(command, &json!({"pg_ready": true, "pg_stats": list}))
            }
            false => Reply::output(pg_text::pg_list(now, pgs)),
        })
    }

    fn osd_of(&self, args: &Args) -> Result<Option<OsdId>, CommandError> {
        match args.osd("osd") {
            Some(osd) if self.osdmap().is_up(osd) => Ok(Some(osd)),
            Some(osd) => Err(CommandError::new(Errno::EAGAIN, format!("osd {osd} is not up"))),
            None => Ok(None),
        }
    }

    fn dump_stuck(&self, now: Now, command: &Command, args: &Args) -> Answer {
        let mut kinds = args.strings("stuckops");
        if kinds.is_empty() {
            kinds.push("unclean");
        }
        let threshold = args.int("threshold").and_then(|s| u64::try_from(s).ok()).map(Duration::from_secs);
        let threshold = threshold.unwrap_or(self.settings().pg_stuck_threshold);
        let cutoff = Utime::from_duration(now.wall.to_duration().saturating_sub(threshold));
        let stuck: Vec<_> = self.pgs().pgs.iter().filter(|(_, s)| kinds.iter().any(|k| is_stuck(k, s, cutoff))).collect();
        let output = match (command.format.is_json(), stuck.is_empty()) {
            (true, _) => {
                let list: Vec<Value> = stuck.iter().map(|(id, s)| pg_json::pg(id, s)).collect();
                command.format.render(&json!({"pg_ready": true, "stuck_pg_stats": list}))
            }
            (false, true) => String::new(),
            (false, false) => pg_text::pg_briefs(stuck.into_iter()),
        };
        Ok(Reply::output(output).with_status("ok"))
    }

    fn pg_debug(&self, args: &Args) -> Reply {
        let mut all = self.pgs().pgs.values();
        let found = match args.str("debugop") {
            Some("unfound_objects_exist") => all.any(|s| s.stats.sum.num_objects_unfound > 0),
            _ => all.any(|s| s.state.has(PgState::DEGRADED)),
        };
        Reply::output(if found { "TRUE" } else { "FALSE" })
    }

    pub(super) fn known_pg(&self, args: &Args) -> Result<PgId, CommandError> {
        let pg = named_pg(args)?;
        match self.pgs().pgs.contains_key(&pg) {
            true => Ok(pg),
            false => Err(CommandError::new(Errno::ENOENT, format!("pg {pg} does not exist"))),
        }
    }
}

/// The PG that is named, whether there is such a one or not.
pub(super) fn named_pg(args: &Args) -> Result<PgId, CommandError> {
    let text = args.require("pgid")?;
    args.pg("pgid").ok_or_else(|| CommandError::invalid(format!("invalid pgid '{text}'")))
}

fn no_pool(name: &str) -> CommandError {
    CommandError::new(Errno::ENOENT, format!("pool {name} does not exist"))
}

/// States by their words, joined by plus signs or not.
fn states(words: &[&str]) -> Result<Vec<PgState>, CommandError> {
    let refusal = |word: &str| {
        let known = PgState::all_words().join("+");
        CommandError::invalid(format!("'{word}' is not a valid pg state, available choices: {known}"))
    };
    let one = |word: &str| PgState::from_word(word).ok_or_else(|| refusal(word));
    let joined = |word: &&str| word.split('+').map(one).try_fold(PgState(0), |all, s| Ok(all | s?));
    words.iter().map(joined).collect()
}

/// True if a PG is in a state; `unknown` is the absence of all.
fn matches(state: PgState, wanted: PgState) -> bool {
    if wanted == PgState::UNKNOWN { state == PgState::UNKNOWN } else { state.has(wanted) }
}

fn is_stuck(kind: &str, s: &PgStat, cutoff: Utime) -> bool {
    let (bad, well) = match kind {
        "inactive" => (!s.state.has(PgState::ACTIVE), s.last_active),
        "unclean" => (!s.state.has(PgState::CLEAN), s.last_clean),
        "stale" => (s.state.has(PgState::STALE), s.last_unstale),
        "undersized" => (s.state.has(PgState::UNDERSIZED), s.last_fullsized),
        "degraded" => (s.state.has(PgState::DEGRADED), s.last_undegraded),
        _ => (false, Utime::ZERO),
    };
    // A PG that never was well counts from its last change.
    bad && if well.is_zero() { s.last_change } else { well } < cutoff
}
