//! Recovery out of turn: which primaries are told to take which PGs before others. And the end of recovery: PGs that are given up.
//!
//! Upstream: DaemonServer::_handle_command (src/mgr/DaemonServer.cc), whose texts these are.

use super::Answer;
use super::pg::named_pg;
use crate::core::Mgr;
use admin::command::{Args, Command, CommandError, Reply};
use std::collections::{BTreeMap, BTreeSet};
use types::msg::internal::{OsdForceCreate, OsdForceRecovery};
use types::pg::PgState;
use types::{Errno, OsdId, PgId};

/// What is wanted.
#[derive(Debug, Clone, Copy)]
struct Wish<'a> {
    /// As the operator says it: the command's last word.
    word: &'a str,
    backfill: bool,
    cancel: bool,
}

impl<'a> Wish<'a> {
    fn of(prefix: &'a str) -> Self {
        let word = prefix.rsplit(' ').next().unwrap_or_default();
        Wish { word, backfill: word.ends_with("backfill"), cancel: word.starts_with("cancel") }
    }

    /// Why a PG in this state is left alone, and whether asking for it was an error.
    fn objection(self, state: PgState) -> Option<(&'static str, bool)> {
        let any = |states: [PgState; 3]| states.into_iter().any(|s| state.has(s));
        let (forced, needed) = match self.backfill {
            true => (PgState::FORCED_BACKFILL, any([PgState::DEGRADED, PgState::BACKFILL_WAIT, PgState::BACKFILLING])),
            false => (PgState::FORCED_RECOVERY, any([PgState::DEGRADED, PgState::RECOVERY_WAIT, PgState::RECOVERING])),
        };
        match (self.cancel, self.backfill) {
            (true, true) if !state.has(forced) => Some(("backfill not forced", false)),
            (true, false) if !state.has(forced) => Some(("recovery not forced", false)),
            (true, _) => None,
            (false, true) if !needed => Some(("doesn't require backfilling", false)),
            (false, false) if !needed => Some(("doesn't require recovery", false)),
            (false, true) if state.has(forced) => Some(("backfill already forced", true)),
            (false, false) if state.has(forced) => Some(("recovery already forced", true)),
            (false, _) => None,
        }
    }
}

impl Mgr {
    pub(super) fn force_pgs(&mut self, command: &Command, args: &Args) -> Answer {
        let parse = |text: &str| text.parse::<PgId>().map_err(|()| CommandError::invalid(format!("invalid pgid '{text}'; ")));
        let pgs = args.strings("pgid").into_iter().map(parse).collect::<Result<BTreeSet<PgId>, _>>()?;
        self.force(command, pgs)
    }

    pub(super) fn force_pools(&mut self, command: &Command, args: &Args) -> Answer {
        let pgs = self.named_pools(args)?.into_iter().flat_map(|pool| self.osdmap().pgs(pool)).collect();
        self.force(command, pgs)
    }

    /// Tells the primary of an incomplete PG to give up what is left. Stock answers the same of any PG, and changes nothing where a copy
    /// is left: OSDMonitor::prepare_command_impl (src/mon/OSDMonitor.cc).
    pub(super) fn force_create_pg(&mut self, args: &Args) -> Answer {
        let pg = named_pg(args)?;
        if self.osdmap().pool_by_id(pg.pool).is_none_or(|pool| pg.seed >= pool.pg_num) {
            return Err(CommandError::new(Errno::ENOENT, format!("pg {pg} should not exist")));
        }
        if !args.flag("yes_i_really_mean_it") {
            let why = "what is left of the PG on any OSD will be deleted, and its objects are lost for good; with an OSD that is away their missing parts \
                may come back. Pass --yes-i-really-mean-it if that is what you want";
            return Err(CommandError::new(Errno::EPERM, why));
        }
        let state = self.pgs().pgs.get(&pg).map(|stat| stat.state).unwrap_or(PgState::UNKNOWN);
        if state.has(PgState::DOWN) {
            return Err(CommandError::new(Errno::EBUSY, format!("pg {pg} waits for OSDs that are away (ceph pg {pg} query: blocked_by): declare them lost first")));
        }
        if !state.has(PgState::INCOMPLETE) {
            return Err(CommandError::invalid(format!("pg {pg} is {state}, not incomplete: it is not created anew")));
        }
        let primary = self.connected_primary(pg)?;
        self.orders.push((primary, OsdForceCreate { pgid: pg }.into()));
        Ok(Reply::status(format!("pg {pg} now creating, ok")))
    }

    /// Tells primaries of those that it makes sense for; an error is one only if there are none.
    fn force(&mut self, command: &Command, candidates: BTreeSet<PgId>) -> Answer {
        let wish = Wish::of(&command.prefix);
        let (mut said, mut error) = (String::new(), None);
        let mut by_primary: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
        for pg in candidates {
            let Some(stat) = self.pgs().pgs.get(&pg) else {
                said += &format!("pg {pg} does not exist; ");
                error = Some(Errno::ENOENT);
                continue;
            };
            match wish.objection(stat.state) {
                Some((why, is_error)) => {
                    said += &format!("pg {pg} {why}; ");
                    error = if is_error { Some(Errno::EINVAL) } else { error };
                }
                None => by_primary.entry(self.osdmap().pg_to_up_acting(pg).acting_primary).or_default().push(pg),
            }
        }
        if !by_primary.is_empty() {
            error = None;
        }
        by_primary.retain(|osd, _| self.osdmap().is_up(*osd));
        for (osd, pgs) in by_primary {
            if !self.connected.contains(&osd) {
                said += &format!("osd.{osd} is not currently connected");
                error = Some(Errno::EAGAIN);
                continue;
            }
            let list: Vec<String> = pgs.iter().map(ToString::to_string).collect();
            said += &format!("instructing pg(s) [{}] on osd.{osd} to {}; ", list.join(","), wish.word);
            self.orders.push((osd, OsdForceRecovery { pgs, backfill: wish.backfill, cancel: wish.cancel }.into()));
        }
        match error {
            Some(errno) => Err(CommandError::new(errno, said)),
            None => Ok(Reply::status(said)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_needs_it_is_forced_and_only_what_is_forced_is_let_go() {
        let (force, cancel) = (Wish::of("pg force-recovery"), Wish::of("osd pool cancel-force-recovery"));
        let waits = PgState::ACTIVE | PgState::RECOVERY_WAIT;
        assert_eq!(force.objection(waits), None);
        assert_eq!(force.objection(PgState::ACTIVE | PgState::CLEAN), Some(("doesn't require recovery", false)));
        assert_eq!(force.objection(waits | PgState::FORCED_RECOVERY), Some(("recovery already forced", true)));
        assert_eq!(cancel.objection(waits), Some(("recovery not forced", false)));
        assert_eq!(cancel.objection(waits | PgState::FORCED_RECOVERY), None);
        let backfill = Wish::of("pg force-backfill");
        assert_eq!(backfill.objection(waits), Some(("doesn't require backfilling", false)));
    }
}
