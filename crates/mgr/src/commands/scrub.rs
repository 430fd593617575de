//! Scrubs on command: which primaries are told to compare which PGs.
//!
//! Upstream: DaemonServer::_handle_command (src/mgr/DaemonServer.cc), whose texts these are.

use super::Answer;
use crate::core::Mgr;
use admin::command::{Args, Command, CommandError, Reply};
use std::collections::BTreeMap;
use types::msg::internal::OsdScrub;
use types::{Errno, OsdId, PgId};

impl Mgr {
    pub(super) fn scrub_pg(&mut self, command: &Command, args: &Args) -> Answer {
        let pg = self.known_pg(args)?;
        let (kind, primary) = (kind(command), self.connected_primary(pg)?);
        self.order(primary, vec![pg], kind);
        Ok(Reply::status(format!("instructing pg {pg} on osd.{primary} to {kind}")))
    }

    /// The primary of a PG, which can be told something.
    pub(super) fn connected_primary(&self, pg: PgId) -> Result<OsdId, CommandError> {
        let primary = self.osdmap().pg_to_up_acting(pg).acting_primary;
        match primary {
            OsdId(..0) => Err(CommandError::new(Errno::EAGAIN, format!("pg {pg} has no primary osd"))),
            _ if !self.connected.contains(&primary) => {
                Err(CommandError::new(Errno::EAGAIN, format!("pg {pg} primary osd.{primary} is not currently connected")))
            }
            _ => Ok(primary),
        }
    }

    pub(super) fn scrub_osds(&mut self, command: &Command, args: &Args) -> Answer {
        let (kind, who) = (kind(command), args.require("who")?);
        let osds: Vec<OsdId> = match who {
            "*" | "all" | "any" => self.osdmap().osds().filter(|o| self.osdmap().is_up(*o)).collect(),
            _ => self.osds(&[who])?.into_iter().collect(),
        };
        if let Some(down) = osds.iter().find(|o| !self.osdmap().is_up(**o)) {
            return Err(CommandError::new(Errno::EAGAIN, format!("osd.{down} is not up")));
        }
        let (told, lost): (Vec<OsdId>, Vec<OsdId>) = osds.iter().partition(|o| self.connected.contains(o));
        if told.is_empty() {
            let text = format!("failed to instruct osd(s) {} to {kind} (not connected)", list(&osds));
            return Err(CommandError::new(Errno::EAGAIN, text));
        }
        for osd in &told {
            let pgs = self.pgs_led_by(*osd);
            self.order(*osd, pgs, kind);
        }
        let mut text = format!("instructed osd(s) {} to {kind}", list(&told));
        if !lost.is_empty() {
            text += &format!("; osd(s) {} were not connected", list(&lost));
        }
        Ok(Reply::status(text))
    }

    pub(super) fn scrub_pools(&mut self, command: &Command, args: &Args) -> Answer {
        let kind = kind(command);
        let pools = self.named_pools(args)?;
        let mut by_primary: BTreeMap<OsdId, Vec<PgId>> = BTreeMap::new();
        for pg in pools.into_iter().flat_map(|pool| self.osdmap().pgs(pool)) {
            by_primary.entry(self.osdmap().pg_to_up_acting(pg).acting_primary).or_default().push(pg);
        }
        by_primary.retain(|osd, _| osd.0 >= 0);
        if let Some(lost) = by_primary.keys().find(|osd| !self.connected.contains(osd)) {
            return Err(CommandError::new(Errno::EAGAIN, format!("osd.{lost} is not currently connected")));
        }
        by_primary.into_iter().for_each(|(osd, pgs)| self.order(osd, pgs, kind));
        Ok(Reply::default())
    }

    fn pgs_led_by(&self, osd: OsdId) -> Vec<PgId> {
        let led = |pg: &&PgId| self.osdmap().pg_to_up_acting(**pg).acting_primary == osd;
        self.pgs().pgs.keys().filter(led).copied().collect()
    }

    fn order(&mut self, osd: OsdId, pgs: Vec<PgId>, kind: &str) {
        self.orders.push((osd, OsdScrub { pgs, deep: kind == "deep-scrub", repair: kind == "repair" }.into()));
    }
}

/// `scrub`, `deep-scrub` or `repair`: the last word.
fn kind(command: &Command) -> &'static str {
    match command.prefix.rsplit(' ').next() {
        Some("repair") => "repair",
        Some("deep-scrub") => "deep-scrub",
        _ => "scrub",
    }
}

fn list(osds: &[OsdId]) -> String {
    osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
