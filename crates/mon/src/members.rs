//! Who the monitors are: founding a cluster, joining one, coming back without the old disk, leaving.
//!
//! Owns: `Members`. Hears: `Hello` of every monitor that opens a session to us.
//! The map (`mon add`, `mon rm`, or a newcomer that knows the monitors' key) says who should be a member, and `MemberIds`
//! with which disk; consensus follows one step at a time, at the leader (`settle_members`): who went is taken out first,
//! a newcomer learns, then counts. So a change that was begun under one leader is finished under the next.
//! Holds: an id of consensus belongs to one disk. A store that has only been formatted may be all that is left of a member
//! whose disk was lost, and must neither vote nor acknowledge in its name: it says nothing until it either founds the
//! cluster, with all others of the first map, who have nothing either, or the leader gives it an id nobody had. Upstream
//! a majority founds; two lost disks of three would found anew what the third still has.
//! Upstream: doc/dev/mon-bootstrap.rst, src/mon/Monitor.cc (bootstrap, handle_probe), src/mon/MonmapMonitor.cc.

use crate::boot::{self, Seat};
use crate::mon::{Effect, Mon};
use crate::raft::{Change, Raft, mark_removed};
use crate::services::log::CLUSTER;
use crate::services::monmap::{MemberIds, MonMapService};
use crate::session::SessionId;
use crate::txn::StateError;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use store::{Kv, KvBatch};
use types::map::MonMap;
use types::msg::LogPrio;
use types::msg::internal_mon::{PeerAnswer, PeerSays};
use types::{AddrVec, Now};

/// A leader that was removed gives its successor so long.
const HAND_OVER: Duration = Duration::from_secs(2);

/// What a monitor says of itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Hello {
    pub name: String,
    /// 0 while it has none.
    pub id: u64,
    /// It has state of a cluster.
    pub born: bool,
    pub addrs: AddrVec,
}

/// Who the monitors are, as far as this one has applied or heard.
pub(crate) struct Members {
    map: MonMap,
    ids: MemberIds,
    /// Who speaks on sessions that others opened to us.
    met: BTreeMap<SessionId, Hello>,
    /// Newcomers that were given an id, by session.
    offered: BTreeSet<SessionId>,
    /// Nobody yet in consensus.
    holds: bool,
    told: BTreeMap<String, AddrVec>,
    left: bool,
}

impl Members {
    /// The id a monitor without a seat opens its idle consensus with; nobody is ever given it.
    pub const NO_ID: u64 = u64::MAX;

    pub fn new(holds: bool) -> Self {
        Members {
            map: MonMap::default(),
            ids: MemberIds::default(),
            met: BTreeMap::new(),
            offered: BTreeSet::new(),
            holds,
            told: BTreeMap::new(),
            left: false,
        }
    }

    /// True once this monitor is somebody in consensus.
    pub fn has_seat(&self) -> bool {
        !self.holds
    }

    /// What an earlier leader offered may never have been agreed on.
    pub fn offer_again(&mut self) {
        self.offered.clear();
    }

    /// The monitor with this id: as it says itself, or as is agreed.
    pub fn name_of(&self, id: u64) -> Option<&str> {
        let says = self.met.values().find(|h| h.id == id && id != 0).map(|h| h.name.as_str());
        says.or_else(|| self.ids.name_of(id).filter(|_| id != 0))
    }

    /// Ids that a monitor has, or is said to have.
    pub fn ids_of(&self, name: &str) -> BTreeSet<u64> {
        let says = self.met.values().filter(|h| h.name == name).map(|h| h.id);
        says.chain(self.ids.ids.get(name).copied()).filter(|id| *id != 0).collect()
    }

    pub fn rank_of_id(&self, id: u64) -> Option<usize> {
        self.map.rank_of(self.name_of(id)?)
    }

    /// The ranks of members, in order.
    pub fn ranks_of(&self, service: &MonMapService, ids: &[u64]) -> Vec<usize> {
        let mut ranks: Vec<usize> = ids.iter().filter_map(|id| service.map.rank_of(service.members.name_of(*id)?)).collect();
        ranks.sort_unstable();
        ranks
    }

    /// Everybody we want a session to.
    fn peers(&self, own: &str) -> BTreeMap<String, AddrVec> {
        let met = self.met.values().map(|h| (h.name.clone(), h.addrs.clone()));
        let mapped = self.map.mon_info.values().map(|m| (m.name.clone(), m.public_addrs.clone()));
        let addressed = |(name, addrs): &(String, AddrVec)| name != own && addrs.msgr2().is_some();
        // The map overrules what they say.
        met.chain(mapped).filter(addressed).collect()
    }

    /// True if this store, which has only been formatted, is one of those that begin the cluster. Only a map that no
    /// cluster has published says who they are.
    fn may_found(&self, own: &str) -> bool {
        let here: BTreeSet<&str> = self.met.values().map(|h| h.name.as_str()).chain([own]).collect();
        let first = self.map.epoch.0 == 0 && self.map.rank_of(own).is_some();
        let all = self.map.ranks.iter().all(|name| here.contains(name.as_str()));
        self.holds && first && all && !self.met.values().any(|h| h.born)
    }
}

impl<K: Kv> Mon<K> {
    /// True if this monitor was removed and has ended for that.
    pub fn has_left(&self) -> bool {
        self.members.left
    }

    /// Reads who the monitors are from what has been applied.
    pub(crate) fn read_members(&mut self) -> Result<(), StateError> {
        match MonMapService::load(&self.kv)? {
            Some(service) => (self.members.map, self.members.ids) = (service.map, service.members),
            None => {
                let map = boot::read_monmap(&self.kv)?.unwrap_or_default();
                // Those that publish the first map are known by their ranks before they have.
                self.members.ids = if map.epoch.0 == 0 || self.members.has_seat() { MemberIds::founding(&map) } else { MemberIds::default() };
                self.members.map = map;
            }
        }
        if self.state.is_none() {
            self.quorum.rank = self.members.map.rank_of(&self.env.name).unwrap_or(crate::env::Quorum::NO_RANK);
        }
        self.follow_peers();
        Ok(())
    }

    fn follow_peers(&mut self) {
        let all = self.members.peers(&self.env.name);
        if all != self.members.told {
            self.members.told = all.clone();
            self.effects.push_back(Effect::Peers { all });
        }
    }

    /// What we say first to every other monitor.
    pub(crate) fn hello(&self) -> PeerSays {
        let id = self.id();
        let born = matches!(MonMapService::load(&self.kv), Ok(Some(_)));
        PeerSays::Hello { name: self.env.name.clone(), id, born, addrs: self.env.addrs.clone() }
    }

    pub(crate) fn handle_hello(&mut self, now: Now, link: SessionId, hello: Hello) {
        if hello.name == self.env.name {
            return tracing::warn!("another monitor says that it is mon.{}", hello.name);
        }
        self.members.met.insert(link, hello);
        self.follow_peers();
        self.found(now);
        self.settle_members(now);
        self.follow_leader();
    }

    pub(crate) fn forget_hello(&mut self, link: SessionId) {
        self.members.met.remove(&link);
        self.members.offered.remove(&link);
        self.follow_peers();
    }

    /// Begins the cluster, if this is one of those that do.
    pub(crate) fn found(&mut self, now: Now) {
        let own = self.env.name.clone();
        if self.members.may_found(&own)
            && let Some(seat) = boot::founding_seat(&self.members.map, &own)
        {
            self.take_seat(now, &seat);
        }
    }

    /// The leader has given us an id.
    pub(crate) fn handle_welcome(&mut self, now: Now, seat: Seat) {
        if !self.members.has_seat() {
            self.take_seat(now, &seat);
            self.settle(now);
        }
    }

    fn take_seat(&mut self, now: Now, seat: &Seat) {
        tracing::info!("is member {} of consensus", seat.id);
        let opened = boot::take_seat(&mut self.kv, seat).map_err(|e| e.to_string());
        match opened.and_then(|()| Raft::open(&self.kv, seat.id, &seat.founders).map_err(|e| e.to_string())) {
            Ok(raft) => self.raft = raft,
            Err(why) => return self.fail(why),
        }
        self.members.holds = false;
        for to in self.linked() {
            self.effects.push_back(Effect::Peer { to, says: self.hello() });
        }
        self.stand_soon(now);
    }

    /// A leader says that we are no member any more.
    pub(crate) fn handle_removed(&mut self, from: &str) {
        tracing::info!("mon.{from} says that this monitor was removed");
        let mut batch = KvBatch::default();
        mark_removed(&mut batch);
        if let Err(e) = self.kv.apply(batch).and_then(|()| self.kv.flush_sync()) {
            return self.fail(e.to_string());
        }
        self.leave();
    }

    pub(crate) fn leave(&mut self) {
        if !std::mem::replace(&mut self.members.left, true) {
            tracing::warn!("removed from monmap, suicide.");
            self.effects.push_back(Effect::Leave);
        }
    }

    /// At the leader: brings consensus a step nearer to what the map says.
    pub(crate) fn settle_members(&mut self, now: Now) {
        if self.state.is_none() {
            return;
        }
        for (link, hello) in self.members.met.clone() {
            match hello.id {
                0 => self.meet_newcomer(now, link, &hello),
                id => self.meet_member(link, &hello, id),
            }
        }
        self.next_change(now);
    }

    /// Somebody with an empty store wants to be a monitor: new, or after its disk was lost.
    fn meet_newcomer(&mut self, now: Now, link: SessionId, hello: &Hello) {
        let Some(state) = self.state.as_mut() else { return };
        let known = state.monmap.members.ids.get(&hello.name).copied();
        let lives = known.is_some_and(|id| id != 0 && self.raft.in_quorum().contains(&id));
        let mut by_addr = hello.addrs.0.iter().filter_map(|a| state.monmap.map.by_addr(*a));
        let usurps = by_addr.any(|m| m.name != hello.name) || hello.addrs.msgr2().is_none();
        if lives || usurps || self.members.offered.contains(&link) {
            return;
        }
        if known.is_none() {
            state.monmap.add(&hello.name, hello.addrs.clone(), now.wall, &mut self.txn);
        } else if state.monmap.map.mon_info.get(&hello.name).is_some_and(|m| m.public_addrs != hello.addrs) {
            let mut map = state.monmap.map.clone();
            if let Some(info) = map.mon_info.get_mut(&hello.name) {
                info.public_addrs = hello.addrs.clone();
            }
            state.monmap.replace(map, now.wall, &mut self.txn);
        }
        state.monmap.change_members(&mut self.txn, |m| m.last += 1);
        let members = &state.monmap.members;
        let answer = PeerAnswer::Welcome { id: members.last, founders: (1..=members.founders).collect() };
        let line = format!("mon.{} at {} calls; it is given the id {}", hello.name, hello.addrs, members.last);
        self.members.offered.insert(link);
        self.after_changes(Effect::PeerAnswer { link, answer });
        self.log(now, CLUSTER, LogPrio::INFO, line);
    }

    fn meet_member(&mut self, link: SessionId, hello: &Hello, id: u64) {
        let Some(state) = self.state.as_mut() else { return };
        match state.monmap.members.ids.get(&hello.name).copied() {
            Some(known) if known == id => {}
            // It took the id it was given: its earlier disk is no member any more.
            Some(known) if known < id && id <= state.monmap.members.last => {
                state.monmap.change_members(&mut self.txn, |m| m.ids.extend([(hello.name.clone(), id)]));
            }
            _ if self.raft.is_member(id) => {}
            _ => self.after_changes(Effect::PeerAnswer { link, answer: PeerAnswer::Removed }),
        }
    }

    fn next_change(&mut self, now: Now) {
        let Some(state) = self.state.as_ref().filter(|_| !self.raft.is_changing() && self.is_settled()) else { return };
        let wanted: BTreeSet<u64> = state.monmap.members.ids.values().copied().filter(|id| *id != 0).collect();
        let (voters, learners) = (self.raft.voters().to_vec(), self.raft.learners().to_vec());
        let present = self.raft.in_quorum();
        let majority = |present: usize, of: usize| present > of / 2;
        let own = self.raft.id();
        let mut gone = voters.iter().chain(&learners).copied().filter(|id| !wanted.contains(id));
        // The leader goes last, for it has to hand over first.
        if let Some(id) = gone.clone().find(|id| *id != own).or_else(|| gone.next()) {
            let left = present.iter().filter(|p| **p != id).count();
            if id == own {
                self.hand_over(now, &wanted);
            } else if learners.contains(&id) || majority(left, voters.len() - 1) {
                self.raft.propose_change(Change::Remove(id));
            }
            return;
        }
        if let Some(id) = learners.iter().copied().find(|id| self.raft.is_level(*id))
            && majority(present.len() + 1, voters.len() + 1)
        {
            self.raft.propose_change(Change::Voter(id));
            return;
        }
        let here = |id: &u64| self.members.met.values().any(|h| h.id == *id);
        if let Some(id) = wanted.into_iter().find(|id| !self.raft.is_member(*id) && here(id)) {
            self.raft.propose_change(Change::Learner(id));
        }
    }

    /// This leader was removed: another one takes its place, and takes it out.
    fn hand_over(&mut self, now: Now, wanted: &BTreeSet<u64>) {
        let own = self.raft.id();
        let next = self.raft.in_quorum().into_iter().find(|id| *id != own && wanted.contains(id) && self.raft.is_level(*id));
        if let Some(next) = next {
            tracing::info!("hands the lead to member {next}");
            self.end();
            self.no_lead_until = now.mono + HAND_OVER;
            self.raft.transfer_lead(next);
        }
    }
}
