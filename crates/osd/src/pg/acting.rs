//! Who is to act: copies whose gaps the log tells of. While others of the up set are backfilled, the monitors are asked to
//! let whole copies from wherever they are serve in their place (`pg_temp`).
//!
//! Room: osd core.   Hears: infos, maps, time.
//! Holds: a copy that needs backfill never acts; so every past interval's acting set, and `min_size`, count whole copies
//! only. Any primary draws the same conclusion from the same infos: what is asked for and granted is not asked for anew.
//! Upstream: PeeringState::choose_acting, calc_replicated_acting; OSDService::queue_want_pg_temp.

use super::interval::Mapping;
use super::{Pg, Stage};
use crate::effects::{Cx, Durable, Peer};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::msg::internal::PgTempRequest;
use types::msg::internal_osd::PeerInfo;
use types::pg::Shards;
use types::{EVersion, Epoch, OsdId};

/// Until a request for an acting set is made again.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// Copies that the log behind `tail` can make whole.
pub(super) fn usable(infos: &BTreeMap<OsdId, PeerInfo>, up: &[OsdId], tail: EVersion) -> BTreeSet<OsdId> {
    let fits = |(osd, i): &(&OsdId, &PeerInfo)| i.is_whole() && i.last_update >= tail && (i.exists || up.contains(osd));
    infos.iter().filter(fits).map(|(osd, _)| *osd).collect()
}

/// The acting set to be wished for, primary first: of the usable copies those CRUSH wants; if these are too few, those that
/// act already, then any others.
pub(super) fn choose_acting(m: &Mapping, usable: &BTreeSet<OsdId>, auth: OsdId, temp_primary: Option<OsdId>) -> Vec<OsdId> {
    let candidates = temp_primary.iter().chain([&m.up_primary]).chain(&m.acting).chain([&auth]);
    let mut want: Vec<OsdId> = candidates.filter(|o| usable.contains(o)).take(1).copied().collect();
    let mut take = |osds: &mut dyn Iterator<Item = &OsdId>, enough: usize| {
        for osd in osds.filter(|o| usable.contains(o)) {
            if want.len() < enough && !want.contains(osd) {
                want.push(*osd);
            }
        }
    };
    take(&mut m.up.iter(), usize::MAX);
    take(&mut m.acting.iter().chain(usable), usize::from(m.size));
    want
}

/// What makes one copy of a shard better than another: when it last went active, its newest write, and how few objects it lacks.
pub(super) type Quality = (Epoch, EVersion, Reverse<u64>);

/// What a copy says of itself.
pub(super) fn known(info: &PeerInfo) -> (Option<&Shards>, Quality) {
    (Some(&info.shards).filter(|_| info.exists), (info.last_epoch_started, info.last_update, Reverse(info.missing)))
}

/// Where copies are shards, of two that have the same one of some object the better one. The other will be filled as another shard, so what
/// only it has is lost: that must not be the one that wrote on while its namesake was away.
fn best_of_each_shard<'a>(m: &Mapping, usable: &BTreeSet<OsdId>, known: impl Fn(OsdId) -> (Option<&'a Shards>, Quality)) -> BTreeSet<OsdId> {
    let mut ranked: Vec<OsdId> = usable.iter().copied().collect();
    ranked.sort_by_key(|osd| Reverse((known(*osd).1, m.up.contains(osd), Reverse(*osd))));
    let mut best: Vec<(OsdId, Option<&Shards>)> = Vec::new();
    for osd in ranked {
        let shards = known(osd).0;
        let clash = |other: &Option<&Shards>| shards.zip(*other).is_some_and(|(one, other)| one.clash(other));
        if !best.iter().any(|(_, other)| clash(other)) {
            best.push((osd, shards));
        }
    }
    best.into_iter().map(|(osd, _)| osd).collect()
}

fn same_set(a: &[OsdId], b: &[OsdId]) -> bool {
    a.len() == b.len() && a.iter().all(|o| b.contains(o))
}

impl Pg {
    /// The acting set that the usable copies make. `known` says which shards each of them has, if that is known, and how good it is.
    pub(super) fn wanted_acting<'a>(
        &self,
        cx: &Cx<'_>,
        usable: &BTreeSet<OsdId>,
        auth: OsdId,
        known: impl Fn(OsdId) -> (Option<&'a Shards>, Quality),
    ) -> Vec<OsdId> {
        let (m, temp_primary) = (&self.walk.mapping, cx.sh.map.primary_temp.get(&self.id).copied());
        if self.walk.mapping.need == 1 {
            return choose_acting(m, usable, auth, temp_primary);
        }
        let mut want = choose_acting(m, &best_of_each_shard(m, usable, known), auth, temp_primary);
        // There are no more shards, whoever is to be primary.
        want.truncate(usize::from(m.size));
        want
    }

    /// True if these act already.
    pub(super) fn acts(&self, want: &[OsdId]) -> bool {
        let m = &self.walk.mapping;
        same_set(want, &m.acting) && want.first() == Some(&m.primary)
    }

    /// Asks for another acting set, if that would change anything. True if it was asked for.
    pub(super) fn ask_acting(&mut self, cx: &mut Cx<'_>, want: Vec<OsdId>) -> bool {
        let m = &self.walk.mapping;
        let by_crush = same_set(&want, &m.up) && want.first() == Some(&m.up_primary);
        let temp = if by_crush { Vec::new() } else { want };
        let differs = match temp.is_empty() {
            true => cx.sh.map.pg_temp.contains_key(&self.id),
            false => !self.acts(&temp),
        };
        if differs {
            tracing::debug!(osd = %cx.sh.whoami, pg = %self.id, ?temp, "another acting set is wanted");
            self.acting_asked = Some((temp, cx.now.mono));
            self.send_acting_request(cx);
        }
        differs
    }

    fn send_acting_request(&self, cx: &mut Cx<'_>) {
        let Some((temp, _)) = &self.acting_asked else { return };
        let pg_temp = BTreeMap::from([(self.id, temp.clone())]);
        let msg = PgTempRequest { osd: cx.sh.whoami, epoch: cx.sh.map.epoch, pg_temp, forced: false };
        cx.send(Peer::Mon, 0, msg, Durable::Now);
    }

    /// A request that nothing came of for so long may be lost.
    pub(super) fn ask_acting_again(&mut self, cx: &mut Cx<'_>, after: Duration) {
        let Some((_, at)) = self.acting_asked.as_mut().filter(|(_, at)| cx.now.mono - *at >= after) else { return };
        *at = cx.now.mono;
        self.send_acting_request(cx);
    }

    /// A new map of the same interval: if what was asked for is so and changed nothing, that is well, too.
    pub(super) fn acting_map(&mut self, cx: &mut Cx<'_>) {
        let granted = |temp: &Vec<OsdId>| temp.is_empty() && !cx.sh.map.pg_temp.contains_key(&self.id);
        if self.acting_asked.as_ref().is_some_and(|(temp, _)| granted(temp)) {
            self.acting_asked = None;
            if matches!(self.stage, Stage::Active) && self.recovery.done {
                self.recovered(cx);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osds(list: &[i32]) -> Vec<OsdId> {
        list.iter().map(|o| OsdId(*o)).collect()
    }

    fn mapping(up: &[i32], acting: &[i32]) -> Mapping {
        let first = |list: &[i32]| OsdId(*list.first().unwrap());
        Mapping { up: osds(up), up_primary: first(up), acting: osds(acting), primary: first(acting), size: 3, min_size: 2, need: 1, bits: 0, premerge: false }
    }

    fn choose(m: &Mapping, usable: &[i32], auth: i32) -> Vec<OsdId> {
        choose_acting(m, &osds(usable).into_iter().collect(), OsdId(auth), None)
    }

    #[test]
    fn old_copies_act_while_new_ones_are_filled() {
        assert_eq!(choose(&mapping(&[3, 4, 5], &[3, 4, 5]), &[0, 1, 2], 1), osds(&[1, 0, 2]));
        assert_eq!(choose(&mapping(&[3, 1, 2], &[3, 1, 2]), &[0, 1, 2], 0), osds(&[1, 2, 0]));
        assert_eq!(choose(&mapping(&[3, 1, 2], &[3, 1, 2]), &[1, 2], 1), osds(&[1, 2]));
    }

    #[test]
    fn what_was_granted_is_not_wished_for_anew() {
        for (up, usable, auth) in [([3, 4, 5], &[0, 1, 2][..], 1), ([3, 1, 2], &[0, 1, 2, 6], 6), ([3, 1, 2], &[2], 2)] {
            let want = choose(&mapping(&up, &up), usable, auth);
            let granted: Vec<i32> = want.iter().map(|o| o.0).collect();
            for other in usable {
                assert_eq!(choose(&mapping(&up, &granted), usable, *other), want);
            }
        }
    }

    #[test]
    fn whom_crush_wants_acts_when_whole() {
        assert_eq!(choose(&mapping(&[3, 4, 5], &[1, 0, 2]), &[0, 1, 2, 3, 4, 5], 1), osds(&[3, 4, 5]));
        assert_eq!(choose(&mapping(&[3, 4, 5], &[1, 0, 2]), &[0, 1, 2, 4], 1), osds(&[1, 4, 0]));
    }

    #[test]
    fn of_two_with_the_same_shard_the_one_acts_that_wrote_on() {
        let ev = |version| EVersion { epoch: Epoch(1), version };
        // osd.2 was away while osd.3 wrote as the same shard; osd.5 is new.
        let shards: Vec<Shards> = [0, 1, 0, 0, 4].map(Shards::all).into();
        let known = |osd: OsdId| match osd.0 {
            2 => (shards.get(2), (Epoch(3), ev(1), Reverse(0))),
            5 => (None, Quality::default()),
            other => (shards.get(other as usize), (Epoch(4), ev(9), Reverse(0))),
        };
        let choose = |up: &[i32], usable: &[i32]| {
            let m = Mapping { size: 5, need: 4, ..mapping(up, up) };
            choose_acting(&m, &best_of_each_shard(&m, &osds(usable).into_iter().collect(), known), OsdId(3), None)
        };
        assert_eq!(choose(&[2, 3, 1, 4], &[1, 2, 3, 4]), osds(&[3, 1, 4]));
        assert_eq!(choose(&[2, 5, 1, 4], &[1, 2, 3, 4, 5]), osds(&[5, 1, 4, 3]));
    }

    #[test]
    fn nothing_held_is_whole_as_long_as_the_log_begins_at_the_beginning() {
        let held = PeerInfo { exists: true, last_backfill: types::HObject::max(), ..PeerInfo::default() };
        let infos = BTreeMap::from([(OsdId(0), held.clone()), (OsdId(1), PeerInfo::default()), (OsdId(2), PeerInfo::default())]);
        let up = osds(&[0, 1]);
        assert_eq!(usable(&infos, &up, EVersion::default()), osds(&[0, 1]).into_iter().collect());
        let half = PeerInfo { last_backfill: types::HObject::min(), ..held.clone() };
        let tail = EVersion { epoch: types::Epoch(1), version: 1 };
        let whole = PeerInfo { last_update: tail, ..held };
        let infos = BTreeMap::from([(OsdId(0), whole), (OsdId(1), half), (OsdId(2), PeerInfo::default())]);
        assert_eq!(usable(&infos, &up, tail), osds(&[0]).into_iter().collect());
    }
}
