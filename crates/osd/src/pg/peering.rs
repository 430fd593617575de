//! Peering: the primary learns what every copy holds, and every acting copy takes over the authoritative log; what
//! objects they lack then is known, and is brought to them when the PG serves.
//!
//! Room: osd core.   Owns: `Peering`, one per interval on the primary.   Hears: infos, logs, maps.
//! Holds: every interval in which the PG may have been written has a survivor among those asked; the authoritative copy
//! is one that went active in the newest of them, for whatever was acknowledged is in its log. Copies that its log cannot
//! make whole do not act: others do until they are backfilled.
//! Upstream: doc/dev/peering.rst; PeeringState (GetInfo, GetLog, GetMissing, WaitUpThru, Activate).

use super::interval::Interval;
use super::{Pg, Stage, acting};
use crate::effects::{Cx, Durable, Peer};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::map::OsdMap;
use types::msg::internal::OsdAlive;
use types::msg::internal_osd::{PeerInfo, PgBody, Round};
use types::{EVersion, Epoch, Mono, OsdId};

/// What peering waits for.
#[derive(Debug)]
pub(crate) enum Step {
    /// Infos from these.
    GetInfo { waiting_for: BTreeSet<OsdId> },
    /// Some interval that may have been written has no survivor that is up: one of these has to come back.
    Down { blocked_by: BTreeSet<OsdId> },
    /// No copy is whole: whoever holds the rest has to come back.
    Incomplete,
    /// Others are to act, as long as some of the up set have to be backfilled.
    WaitActing,
    /// The authoritative log, from its holder.
    GetLog,
    /// Our own copy takes it over; it is on its way to the disk.
    MergeSelf,
    /// Every other copy does, and says what it lacks: these have not yet.
    MergePeers(BTreeSet<OsdId>),
    /// The map has to say that we were alive in this interval, so that nobody later overlooks it.
    WaitUpThru,
    /// The primary of an earlier interval may not know that it is over, and be read until then.
    WaitUnread { until: Mono },
    /// Every acting copy notes on its disk that the PG goes active.
    Activating { waiting_for: BTreeSet<OsdId>, local: bool },
}

/// Peering under way.
#[derive(Debug)]
pub(crate) struct Peering {
    pub step: Step,
    pub infos: BTreeMap<OsdId, PeerInfo>,
    /// Until when, by what the first has promised, the second may be read.
    pub promises: BTreeMap<(OsdId, OsdId), Mono>,
    pub began: Mono,
    /// Who was asked; if one of them goes or one more comes, it starts over.
    asked: BTreeSet<OsdId>,
    /// The holder of the authoritative copy.
    pub auth: OsdId,
}

impl Peering {
    /// A copy's description is here.
    fn note(&mut self, now: Mono, from: OsdId, info: PeerInfo) {
        let promised = info.promised.iter().map(|(osd, ms)| ((from, *osd), now + Duration::from_millis((*ms).into())));
        self.promises.extend(promised);
        self.infos.insert(from, info);
    }

    /// True if nothing here will go on before the map changes.
    pub fn is_stuck(&self) -> bool {
        matches!(self.step, Step::Down { .. } | Step::Incomplete)
    }

    /// OSDs whose copies it looks at, ours among them.
    pub fn probed(&self) -> impl Iterator<Item = &OsdId> {
        self.infos.keys().chain(&self.asked).collect::<BTreeSet<_>>().into_iter()
    }

    /// OSDs that hold it up.
    pub fn blocked_by(&self) -> Vec<OsdId> {
        match &self.step {
            Step::GetInfo { waiting_for } => waiting_for.iter().copied().collect(),
            Step::Down { blocked_by } => blocked_by.iter().copied().collect(),
            Step::GetLog => vec![self.auth],
            Step::MergePeers(waiting_for) => waiting_for.iter().copied().collect(),
            _ => Vec::new(),
        }
    }
}

impl Pg {
    pub(super) fn peering(&self) -> Option<&Peering> {
        if let Stage::Peering(p) = &self.stage { Some(p) } else { None }
    }

    pub(super) fn peering_mut(&mut self) -> Option<&mut Peering> {
        if let Stage::Peering(p) = &mut self.stage { Some(p) } else { None }
    }

    pub(super) fn step_mut(&mut self) -> Option<&mut Step> {
        self.peering_mut().map(|p| &mut p.step)
    }

    pub(super) fn start_peering(&mut self, cx: &mut Cx<'_>) {
        let asked = self.probe_set(cx);
        let me = cx.sh.whoami;
        self.round += 1;
        self.recovery.restart();
        self.release_slots(cx);
        for osd in &asked {
            cx.send_pg(*osd, self.id, self.round(), PgBody::Query, Durable::Now);
        }
        let info = self.info(cx);
        let step = Step::GetInfo { waiting_for: asked.clone() };
        let (infos, promises, began) = (BTreeMap::new(), BTreeMap::new(), cx.now.mono);
        let mut peering = Peering { step, infos, promises, began, asked, auth: me };
        peering.note(began, me, info);
        self.stage = Stage::Peering(Box::new(peering));
        self.infos_complete(cx);
    }

    /// Everybody who may know something: up, acting, and whoever held the PG when it may have been written.
    fn probe_set(&self, cx: &Cx<'_>) -> BTreeSet<OsdId> {
        let m = &self.walk.mapping;
        // Further back than logs are needed: objects may be there that no newer copy has got.
        let past = self.walk.past.iter().filter(|i| i.maybe_rw).flat_map(|i| i.acting.iter());
        let all = m.up.iter().chain(&m.acting).chain(past).copied();
        all.filter(|o| *o != cx.sh.whoami && cx.sh.map.is_up(*o)).collect()
    }

    /// Past intervals that may hold writes, as long as nothing newer went active everywhere.
    pub(super) fn rw_intervals(&self, started: Epoch) -> impl Iterator<Item = &Interval> {
        self.walk.past.iter().filter(move |i| i.maybe_rw && i.last >= started)
    }

    /// A new map of the same interval.
    pub(super) fn peering_map(&mut self, cx: &mut Cx<'_>, old: &OsdMap) {
        let probe = self.probe_set(cx);
        let Stage::Peering(p) = &self.stage else { return };
        let gone = p.asked.iter().any(|o| !cx.sh.map.is_up(*o) || up_from(old, *o) != up_from(&cx.sh.map, *o));
        let removed = p.blocked_by().iter().any(|o| !cx.sh.map.exists(*o));
        let unsettled = matches!(p.step, Step::GetInfo { .. } | Step::Down { .. } | Step::Incomplete | Step::WaitActing | Step::GetLog | Step::MergeSelf);
        if (unsettled && (gone || probe != p.asked)) || p.is_stuck() && (removed || any_lost_changed(old, &cx.sh.map)) {
            self.pushes = Default::default();
            self.start_peering(cx);
        } else if matches!(p.step, Step::WaitUpThru | Step::WaitUnread { .. }) {
            self.wait_up_thru(cx);
        }
        self.pump(cx);
    }

    /// A copy's description: an answer to our question, or a stray's offer, or an answer that came too late.
    pub(super) fn handle_info(&mut self, cx: &mut Cx<'_>, from: OsdId, late: bool, info: PeerInfo) {
        let is_stray = info.exists && !self.walk.mapping.involves(from);
        if is_stray && !self.is_void(&info) && !info.shards.is_empty() {
            self.shards.insert(from, info.shards.clone());
        }
        if is_stray && self.is_primary(cx.sh.whoami) {
            self.strays.insert(from);
            if matches!(self.stage, Stage::Active) && self.is_clean() {
                return self.remove_strays(cx);
            }
        }
        if info.exists && !self.is_void(&info) && from != cx.sh.whoami && !self.walk.mapping.acting.contains(&from) {
            self.handle_holder(cx, from);
        }
        if !info.exists && matches!(self.stage, Stage::Active) {
            self.recovery.note_empty(from);
        }
        let Stage::Peering(p) = &mut self.stage else { return };
        let Step::GetInfo { waiting_for } = &mut p.step else { return };
        if late {
            return;
        }
        waiting_for.remove(&from);
        p.note(cx.now.mono, from, info);
        self.infos_complete(cx);
    }

    /// With every answer here: is the past covered, and who is authoritative?
    fn infos_complete(&mut self, cx: &mut Cx<'_>) {
        let Stage::Peering(p) = &self.stage else { return };
        if !matches!(&p.step, Step::GetInfo { waiting_for } if waiting_for.is_empty()) {
            return;
        }
        if self.waits_for_void_copies(cx) {
            return;
        }
        let Stage::Peering(p) = &self.stage else { return };
        let histories = p.infos.values().filter(|i| i.exists).map(|i| i.history);
        let scrubs = histories.clone().map(|h| h.scrubs).max_by_key(|s| s.count);
        let newest = histories.clone().map(|h| h.last_epoch_started).max().unwrap_or_default();
        let clean = histories.map(|h| h.last_epoch_clean).max().unwrap_or_default();
        self.history.last_epoch_started = self.history.last_epoch_started.max(newest);
        self.history.last_epoch_clean = self.history.last_epoch_clean.max(clean);
        self.learn_scrubs(scrubs.unwrap_or_default());
        let blocked_by = self.blocked_by(&cx.sh.map, newest);
        let Stage::Peering(p) = &mut self.stage else { return };
        if !blocked_by.is_empty() {
            p.step = Step::Down { blocked_by };
            return self.peering_stuck(cx);
        }
        let by_shards = self.walk.mapping.need > 1;
        match choose_auth(&p.infos, cx.sh.whoami, newest, by_shards) {
            None => self.incomplete(cx),
            Some(auth) => {
                tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, %auth, started = %newest, infos = ?p.infos, "authoritative copy");
                p.auth = auth;
                let tail = p.infos.get(&auth).map(|i| i.log_tail).unwrap_or_default();
                let usable = acting::usable(&p.infos, &self.walk.mapping.up, tail);
                let known = |osd| self.peering().and_then(|p| p.infos.get(&osd)).map(acting::known).unwrap_or_default();
                let want = self.wanted_acting(cx, &usable, auth, known);
                match self.acts(&want) {
                    // Whoever has the other shards has to come back.
                    _ if want.len() < usize::from(self.walk.mapping.need) => self.incomplete(cx),
                    true => self.get_log(cx, auth),
                    false => self.wait_acting(cx, want),
                }
            }
        }
    }

    /// What there is is not whole.
    fn incomplete(&mut self, cx: &mut Cx<'_>) {
        if let Some(p) = self.peering_mut() {
            p.step = Step::Incomplete;
        }
        self.peering_stuck(cx)
    }

    /// Others are to act, or in another order: with the map that says so an interval begins.
    fn wait_acting(&mut self, cx: &mut Cx<'_>, want: Vec<OsdId>) {
        if let Some(p) = self.peering_mut() {
            p.step = Step::WaitActing;
        }
        self.ask_acting(cx, want);
    }

    /// Intervals of which no member is up with the store that it had then name those members. Whoever was declared lost or
    /// removed from the cluster is not waited for.
    fn blocked_by(&self, map: &OsdMap, started: Epoch) -> BTreeSet<OsdId> {
        let born = |o: &OsdId| self.peering()?.infos.get(o).map(|info| info.born);
        let is_here = |i: &Interval, o: &OsdId| map.is_up(*o) && born(o).is_some_and(|born| born <= i.first);
        let is_given_up = |i: &Interval, o: &OsdId| !map.exists(*o) || lost_at(map, *o) >= i.first && lost_at(map, *o) > Epoch(0);
        let found = |i: &Interval| i.acting.iter().filter(|o| is_here(i, o) || is_given_up(i, o)).count();
        let need = usize::from(self.walk.mapping.need);
        let dead = self.rw_intervals(started).filter(|i| found(i) < need.min(i.acting.len()));
        let members: BTreeSet<OsdId> = dead.flat_map(|i| i.acting.iter().copied()).collect();
        // Those that are away come first: one that is up with an empty disk has nothing more to say.
        let away: BTreeSet<OsdId> = members.iter().filter(|o| !map.is_up(**o)).copied().collect();
        if away.is_empty() { members } else { away }
    }

    /// Clients are told to hold back.
    pub(super) fn peering_stuck(&mut self, cx: &mut Cx<'_>) {
        if let Stage::Peering(p) = &self.stage {
            tracing::debug!(pg = %self.id, step = ?p.step, "peering cannot go on");
        }
        self.back_off_waiting(cx);
    }

    pub(super) fn get_log(&mut self, cx: &mut Cx<'_>, auth: OsdId) {
        self.assign_shards(cx);
        if auth == cx.sh.whoami {
            return self.keep_log(cx);
        }
        let Stage::Peering(p) = &mut self.stage else { return };
        p.step = Step::GetLog;
        let since = self.log.head();
        cx.send_pg(auth, self.id, self.round(), PgBody::GetLog { since }, Durable::Now);
    }

    /// Another primary wants our log.
    pub(super) fn send_log(&mut self, cx: &mut Cx<'_>, to: OsdId, round: Round, since: EVersion) {
        let base = self.log.base_for(since).unwrap_or(self.log.tail);
        let dups = self.log.dups.before(u64::MAX);
        let body = PgBody::Log { info: self.info(cx), base, entries: self.log.after(base), dups };
        cx.send_pg(to, self.id, round, body, Durable::Now);
    }

    /// Asks the monitors to note that we are alive in this interval.
    pub(super) fn ask_up_thru(&mut self, cx: &mut Cx<'_>) {
        let want = self.walk.since;
        if self.up_thru_ok(cx) || cx.sh.alive_wanted >= want {
            return;
        }
        cx.sh.alive_wanted = want;
        let msg = OsdAlive { osd: cx.sh.whoami, epoch: cx.sh.map.epoch, want };
        cx.send(Peer::Mon, 0, msg, Durable::Now);
    }

    pub(super) fn up_thru_ok(&self, cx: &Cx<'_>) -> bool {
        cx.sh.map.info(cx.sh.whoami).is_some_and(|i| i.up_thru >= self.walk.since)
    }
}

fn up_from(map: &OsdMap, osd: OsdId) -> Epoch {
    map.info(osd).map(|i| i.up_from).unwrap_or_default()
}

fn lost_at(map: &OsdMap, osd: OsdId) -> Epoch {
    map.info(osd).map(|i| i.lost_at).unwrap_or_default()
}

fn any_lost_changed(old: &OsdMap, new: &OsdMap) -> bool {
    new.osds().any(|o| lost_at(old, o) != lost_at(new, o))
}

/// The copy whose log all others take over: among complete copies that went active in the newest interval any did, one
/// that misses nothing if there is one, with the newest write, then with the longest log; ourselves if equal. All of them
/// have every acknowledged write in their logs. A newer write that only copies with gaps have was acknowledged to nobody,
/// and its object may be among the gaps. Where each copy is a shard, the one with the oldest newest write: what others have beyond it
/// was acknowledged to nobody, and may be on too few shards (`shards.rs`). `None` if there is no such copy.
pub(super) fn choose_auth(infos: &BTreeMap<OsdId, PeerInfo>, me: OsdId, history_started: Epoch, by_shards: bool) -> Option<OsdId> {
    let whole = || infos.iter().filter(|(_, i)| i.exists && i.is_whole());
    let started = whole().map(|(_, i)| i.last_epoch_started).max()?;
    if started < history_started {
        // Copies that went active later are known of, but none of them is whole.
        return None;
    }
    let newest = || whole().filter(|(_, i)| i.last_epoch_started >= started);
    let shortest = newest().map(|(_, i)| i.last_update).min()?;
    newest()
        .filter(|(_, i)| !by_shards || i.last_update == shortest)
        .max_by_key(|(osd, i)| (i.missing == 0, i.last_update, std::cmp::Reverse(i.log_tail), **osd == me, std::cmp::Reverse(**osd)))
        .map(|(osd, _)| *osd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(started: u32, version: u64) -> PeerInfo {
        PeerInfo {
            exists: true,
            last_backfill: types::HObject::max(),
            last_epoch_started: Epoch(started),
            last_update: EVersion { epoch: Epoch(started), version },
            ..PeerInfo::default()
        }
    }

    fn choose(list: &[(i32, PeerInfo)], started: u32) -> Option<i32> {
        let infos = list.iter().cloned().map(|(o, i)| (OsdId(o), i)).collect();
        choose_auth(&infos, OsdId(0), Epoch(started), false).map(|o| o.0)
    }

    #[test]
    fn the_newest_interval_counts_before_the_longest_log() {
        // osd.1 wrote on in an interval that the others have since left behind: nobody was told of those writes.
        assert_eq!(choose(&[(0, info(3, 9)), (1, info(2, 20))], 3), Some(0));
    }

    #[test]
    fn of_shards_the_one_with_the_shortest_log_has_all_that_was_acknowledged() {
        let infos = [(0, info(3, 10)), (1, info(3, 9)), (2, info(2, 4))].map(|(osd, i)| (OsdId(osd), i)).into();
        assert_eq!(choose_auth(&infos, OsdId(0), Epoch(3), true), Some(OsdId(1)));
    }

    #[test]
    fn among_equals_the_newest_write_wins_then_ourselves() {
        assert_eq!(choose(&[(0, info(3, 9)), (1, info(3, 10))], 3), Some(1));
        assert_eq!(choose(&[(0, info(3, 9)), (1, info(3, 9))], 3), Some(0));
    }

    #[test]
    fn a_copy_with_missing_objects_gives_way_to_one_without() {
        let behind = PeerInfo { missing: 1, ..info(3, 10) };
        assert_eq!(choose(&[(0, behind.clone()), (1, info(3, 9))], 3), Some(1));
        let newer = PeerInfo { missing: 2, ..info(3, 11) };
        assert_eq!(choose(&[(0, behind.clone()), (1, newer)], 3), Some(1), "there is no whole one");
        assert_eq!(choose(&[(0, behind), (1, info(2, 10))], 3), Some(0), "what is whole and old is no choice");
    }

    #[test]
    fn a_half_backfilled_copy_is_never_authoritative() {
        let half = PeerInfo { last_backfill: types::HObject::min(), ..info(3, 10) };
        assert_eq!(choose(&[(0, half.clone()), (1, info(3, 9))], 3), Some(1));
        assert_eq!(choose(&[(0, half.clone()), (1, info(2, 9))], 3), None);
        assert_eq!(choose(&[(0, half)], 0), None);
    }

    #[test]
    fn an_interval_that_only_an_incomplete_copy_knows_of_decides_nothing() {
        let half = PeerInfo { last_backfill: types::HObject::min(), ..info(4, 12) };
        assert_eq!(choose(&[(0, half), (1, info(3, 9))], 3), Some(1));
    }

    #[test]
    fn of_equal_heads_the_longer_log_wins() {
        let short = PeerInfo { log_tail: EVersion { epoch: Epoch(2), version: 5 }, ..info(3, 9) };
        let long = PeerInfo { log_tail: EVersion { epoch: Epoch(2), version: 4 }, ..info(3, 9) };
        assert_eq!(choose(&[(0, short), (1, long)], 3), Some(1));
    }

    #[test]
    fn a_new_pg_begins_with_what_everybody_has_nothing() {
        assert_eq!(choose(&[(0, info(0, 0)), (1, PeerInfo::default())], 0), Some(0));
    }
}
