//! Consensus: TiKV's Raft over a `Kv`, with its chance and its clock taken away.
//!
//! Room: mon core.   Owns: `Raft`, the log in memory and what must be written of it.
//! Hears: proposals, peers' messages, ticks, finished flushes.   Says: `Progress`: what to write, send and apply.
//! Holds: a message or a commit that rests on the log leaves only after the flush that carries it.
//! Why a library: the maps are the cluster; consensus is where home-made code loses data. The library draws its random
//! election timeout from the process's chance; it is overruled before every tick by what the owner drew from its own.
//! Members come and go one at a time (`Change`): a new one learns first, and counts once it has caught up. Which ones there are
//! is kept with the log, for its entries were agreed on by those of their time. An id is never given to a second disk.
//! Upstream: src/mon/Paxos.h is what this stands in for.

use bytes::Bytes;
use prost::Message as _;
use raft::eraftpb::{ConfChange, ConfChangeType, ConfState, Entry, EntryType, HardState, Message, Snapshot};
use raft::{Config, GetEntriesContext, RaftState, RawNode, SnapshotStatus, StateRole, Storage, StorageError};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use store::{IoId, Kv, KvBatch, KvError};

/// Ticks without a word from a leader before a member stands for election.
const ELECTION_TICKS: usize = 10;
/// Members wait for up to so many ticks more, each for its own number: of two that stand at once neither may win.
const ELECTION_SPREAD: usize = 6;
/// Ticks without a word from a member after which the leader does not count it in the quorum.
const SILENT_TICKS: u64 = 10;
/// Entries kept behind the applied index, so that a member that was away shortly needs no snapshot.
const ENTRIES_KEPT: usize = 500;
/// Entries at which the log is cut.
const ENTRIES_MAX: usize = 2 * ENTRIES_KEPT;
/// A new member counts once it lacks no more entries than this.
const ENTRIES_BEHIND: u64 = 5;
/// Bytes at which the log is cut, to half of it: it is all in memory, and maps can be large.
const BYTES_MAX: usize = 8 << 20;

const HARD_STATE: &[u8] = b"rh";
const SNAPSHOT_META: &[u8] = b"rs";
const APPLIED: &[u8] = b"ra";
/// Who the members are, as of the last applied entry; absent while they are those that founded the group.
const MEMBERS: &[u8] = b"rc";
/// This member is one no more.
const REMOVED: &[u8] = b"rg";
const ENTRY: &[u8] = b"re";
const ENTRY_END: &[u8] = b"rf";

/// Why consensus cannot go on: the member must stop.
#[derive(Debug, thiserror::Error)]
pub enum RaftError {
    #[error("the log cannot be read: {0}")]
    Kv(#[from] KvError),
    #[error("the log holds what cannot be decoded: {0}")]
    Corrupt(&'static str),
    #[error("consensus: {0}")]
    Raft(#[from] raft::Error),
}

/// One member of the group.
pub struct Raft {
    node: RawNode<Log>,
    /// Readies whose flush is under way, oldest first.
    persisting: VecDeque<Persisting>,
    next_io: u64,
    /// Ticks so far, and the one in which each member was last heard.
    ticks: u64,
    heard: BTreeMap<u64, u64>,
    /// The election timeout in force, in ticks.
    patience: usize,
}

struct Persisting {
    number: u64,
    io: IoId,
    messages: Vec<Message>,
}

/// A change of who the members are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It gets the log, and does not count.
    Learner(u64),
    /// It counts.
    Voter(u64),
    Remove(u64),
}

/// What one step of consensus asks its owner to do, in this order: replace the state by `snapshot`, apply the
/// `committed` proposals, write `batch` in the same kv batch, start `flush`, send `messages`. Questions up to `reads`
/// are answered: see `ask_lead`.
#[derive(Debug, Default)]
pub struct Progress {
    pub snapshot: Option<Bytes>,
    pub committed: Vec<Bytes>,
    pub batch: KvBatch,
    pub flush: Option<IoId>,
    pub messages: Vec<(u64, Bytes)>,
    pub reads: Option<u64>,
    /// This member has been removed.
    pub removed: bool,
}

/// True if the kv holds a member's log.
pub fn has_log(kv: &impl Kv) -> Result<bool, KvError> {
    Ok(kv.get(HARD_STATE)?.is_some())
}

/// True if the kv is that of a member that was removed.
pub fn was_removed(kv: &impl Kv) -> Result<bool, KvError> {
    Ok(kv.get(REMOVED)?.is_some())
}

/// Notes that for good.
pub fn mark_removed(batch: &mut KvBatch) {
    batch.put(REMOVED, "1");
}

/// Begins a group of one whose state is in the store already. It stands behind a cut: whoever joins needs a snapshot.
pub fn begin_with_state(batch: &mut KvBatch, id: u64) {
    let hard_state = HardState { term: 1, commit: 1, ..HardState::default() };
    let members = ConfState { voters: vec![id], ..ConfState::default() };
    batch.put(HARD_STATE, hard_state.encode_to_vec());
    batch.put(MEMBERS, members.encode_to_vec());
    batch.put(SNAPSHOT_META, denc::to_bytes(&(1u64, 1u64), 0));
    batch.put(APPLIED, 1u64.to_le_bytes().to_vec());
}

impl Raft {
    /// Opens the member `id` (from 1) of a group that `founders` began; an empty kv starts a new log. A member that is
    /// alone stands for election at once.
    pub fn open(kv: &impl Kv, id: u64, founders: &[u64]) -> Result<Self, RaftError> {
        let log = Log::load(kv, founders)?;
        let alone = log.members.voters == [id];
        let applied = match kv.get(APPLIED)? {
            Some(raw) => u64::from_le_bytes(raw[..].try_into().map_err(|_| RaftError::Corrupt("applied index"))?),
            None => log.cut_index,
        };
        let config = Config {
            id,
            election_tick: ELECTION_TICKS,
            heartbeat_tick: 2,
            min_election_tick: ELECTION_TICKS,
            max_election_tick: ELECTION_TICKS + ELECTION_SPREAD,
            applied,
            max_size_per_msg: 1 << 20,
            max_inflight_msgs: 64,
            pre_vote: true,
            check_quorum: true,
            ..Config::default()
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let mut node = RawNode::new(&config, log, &logger)?;
        if alone {
            node.campaign()?;
        }
        let (heard, patience) = (BTreeMap::new(), ELECTION_TICKS);
        Ok(Raft { node, persisting: VecDeque::new(), next_io: 1, ticks: 0, heard, patience })
    }

    /// Hands in a proposal; false if this member does not lead.
    pub fn propose(&mut self, data: Bytes) -> bool {
        self.is_leader() && self.node.propose(Vec::new(), data.to_vec()).is_ok()
    }

    /// A peer's message; nonsense is dropped.
    pub fn handle_message(&mut self, raw: &Bytes) {
        // What is for another id was sent to an earlier disk of this monitor.
        if let Ok(message) = Message::decode(raw.clone())
            && message.to == self.node.raft.id
        {
            self.heard.insert(message.from, self.ticks);
            let _ = self.node.step(message);
        }
    }

    /// The clock: the owner calls it at (jittered) regular intervals, with a number of chance.
    pub fn handle_tick(&mut self, chance: u64) {
        self.ticks += 1;
        let raft = &mut self.node.raft;
        if raft.election_elapsed == 0 {
            self.patience = ELECTION_TICKS + (chance % ELECTION_SPREAD as u64) as usize;
        }
        raft.set_randomized_election_timeout(self.patience);
        self.node.tick();
    }

    /// The session with this member is gone, and what was sent on it lately is lost.
    pub fn handle_unreachable(&mut self, member: u64) {
        self.heard.remove(&member);
        self.handle_unsent(member);
    }

    /// A message to this member could not be sent.
    pub fn handle_unsent(&mut self, member: u64) {
        self.node.report_unreachable(member);
        // Only matters if it was being sent one: it is made again when the member is heard.
        self.node.report_snapshot(member, SnapshotStatus::Failure);
    }

    /// The leader is probably dead: waits no longer for it. True if it was this member's leader.
    pub fn forget_leader(&mut self, member: u64) -> bool {
        let raft = &mut self.node.raft;
        let ours = raft.state == StateRole::Follower && raft.leader_id == member;
        if ours {
            // The term and the vote stay what they are, and a leader that lives is followed again at its next word.
            raft.become_follower(raft.term, 0);
        }
        ours
    }

    /// Stands for election, if nobody leads.
    pub fn stand(&mut self) {
        // The library would let one that is only learning be elected.
        if self.leader() == 0 && self.voters().contains(&self.id()) {
            let _ = self.node.campaign();
        }
    }

    /// Proposes a change of the members; false if it cannot be now, for this one does not lead or another change is under way.
    pub fn propose_change(&mut self, change: Change) -> bool {
        if !self.is_leader() || self.is_changing() {
            return false;
        }
        let (kind, id) = match change {
            Change::Learner(id) => (ConfChangeType::AddLearnerNode, id),
            Change::Voter(id) => (ConfChangeType::AddNode, id),
            Change::Remove(id) => (ConfChangeType::RemoveNode, id),
        };
        let mut entry = ConfChange { node_id: id, ..Default::default() };
        entry.set_change_type(kind);
        self.node.propose_conf_change(Vec::new(), entry).is_ok()
    }

    /// Hands the lead to another member. Until that one leads, or an election's time has passed, nothing can be proposed.
    pub fn transfer_lead(&mut self, to: u64) {
        self.node.transfer_leader(to);
    }

    /// Asks the others whether this member still leads; `Progress::reads` says `question` once enough have said so
    /// after this call. Questions count upwards.
    pub fn ask_lead(&mut self, question: u64) {
        self.node.read_index(question.to_le_bytes().to_vec());
    }

    /// A flush handed out in a `Progress` is done.
    pub fn handle_flushed(&mut self, io: IoId) -> Vec<(u64, Bytes)> {
        let mut out = Vec::new();
        while self.persisting.front().is_some_and(|p| p.io.0 <= io.0) {
            let Some(done) = self.persisting.pop_front() else { break };
            self.node.on_persist_ready(done.number);
            out.extend(done.messages.iter().map(envelope));
        }
        out
    }

    /// The next thing to do, if any.
    pub fn poll(&mut self) -> Option<Progress> {
        if !self.node.has_ready() {
            return None;
        }
        let mut ready = self.node.ready();
        let mut out = Progress::default();
        let question = |state: &raft::ReadState| Some(u64::from_le_bytes(state.request_ctx[..].try_into().ok()?));
        out.reads = ready.take_read_states().iter().filter_map(question).max();
        out.messages.extend(ready.take_messages().iter().map(envelope));
        self.install(&mut ready, &mut out);
        for entry in ready.entries() {
            out.batch.put(entry_key(entry.index), entry.encode_to_vec());
        }
        self.node.mut_store().append(ready.entries());
        if let Some(hs) = ready.hs() {
            out.batch.put(HARD_STATE, hs.encode_to_vec());
            self.node.mut_store().hard_state = hs.clone();
        }
        let committed = ready.take_committed_entries();
        let (number, must_sync) = (ready.number(), ready.must_sync());
        let messages = ready.take_persisted_messages();
        self.node.advance_append_async(ready);
        self.apply(committed, &mut out);
        self.persist(number, must_sync, messages, &mut out);
        Some(out)
    }

    /// True while this member leads and has applied everything of earlier leaders: its state is the newest.
    pub fn leads_with_all_applied(&self) -> bool {
        let raft = &self.node.raft;
        self.is_leader() && raft.commit_to_current_term() && raft.raft_log.applied >= raft.raft_log.committed
    }

    pub fn is_leader(&self) -> bool {
        self.node.raft.state == StateRole::Leader
    }

    /// The member that leads, 0 if unknown.
    pub fn leader(&self) -> u64 {
        self.node.raft.leader_id
    }

    /// The term: what operators know as the election epoch.
    pub fn term(&self) -> u64 {
        self.node.raft.term
    }

    /// True if there is no other member.
    pub fn is_alone(&self) -> bool {
        self.node.store().members.voters.len() == 1
    }

    /// This member's id.
    pub fn id(&self) -> u64 {
        self.node.raft.id
    }

    /// Those that count.
    pub fn voters(&self) -> &[u64] {
        &self.node.store().members.voters
    }

    /// Those that get the log only.
    pub fn learners(&self) -> &[u64] {
        &self.node.store().members.learners
    }

    /// True while a change of the members is not applied yet.
    pub fn is_changing(&self) -> bool {
        self.node.raft.has_pending_conf()
    }

    /// True if a member was heard lately and has, as far as this leader knows, all but the last few entries.
    pub fn is_level(&self, id: u64) -> bool {
        let last = self.node.raft.raft_log.last_index();
        let progress = self.node.raft.prs().get(id);
        self.is_heard(id) && progress.is_some_and(|p| p.matched > 0 && p.matched + ENTRIES_BEHIND >= last)
    }

    fn is_heard(&self, id: u64) -> bool {
        self.heard.get(&id).is_some_and(|at| self.ticks - at < SILENT_TICKS)
    }

    /// Members that this leader has heard of lately, itself included.
    pub fn in_quorum(&self) -> Vec<u64> {
        let own = self.node.raft.id;
        self.voters().iter().copied().filter(|id| *id == own || self.is_heard(*id)).collect()
    }

    /// (first, last applied) index of the log.
    pub fn log_range(&self) -> (u64, u64) {
        (self.node.store().cut_index + 1, self.node.raft.raft_log.applied)
    }

    /// True if a peer needs the whole state; answered by `provide_snapshot`.
    pub fn wants_snapshot(&self) -> bool {
        self.node.store().snapshot_wanted.get()
    }

    /// The encoded state as of the last applied entry.
    pub fn provide_snapshot(&mut self, data: Bytes) {
        let index = self.node.raft.raft_log.applied;
        let Ok(term) = self.node.raft.raft_log.term(index) else { return };
        let log = self.node.mut_store();
        let mut snapshot = Snapshot { data: data.to_vec(), ..Default::default() };
        let meta = snapshot.mut_metadata();
        (meta.index, meta.term) = (index, term);
        meta.set_conf_state(log.members.clone());
        log.snapshot.replace(Some(snapshot));
        log.snapshot_wanted.set(false);
    }

    fn install(&mut self, ready: &mut raft::Ready, out: &mut Progress) {
        let snapshot = ready.snapshot();
        let (index, term) = (snapshot.get_metadata().index, snapshot.get_metadata().term);
        if index == 0 {
            return;
        }
        let members = in_order(snapshot.get_metadata().get_conf_state().clone());
        out.snapshot = Some(Bytes::copy_from_slice(&snapshot.data));
        out.batch.put(MEMBERS, members.encode_to_vec());
        out.batch.delete_range(ENTRY, ENTRY_END);
        out.batch.put(APPLIED, index.to_le_bytes().to_vec());
        let log = self.node.mut_store();
        log.members = members;
        log.entries.clear();
        (log.cut_index, log.cut_term) = (index, term);
        out.batch.put(SNAPSHOT_META, log.meta());
    }

    fn apply(&mut self, committed: Vec<Entry>, out: &mut Progress) {
        let Some(last) = committed.last().map(|e| e.index) else { return };
        for entry in committed {
            match entry.entry_type() {
                // The entry a new leader opens its term with is empty.
                EntryType::EntryNormal if entry.data.is_empty() => {}
                EntryType::EntryNormal => out.committed.push(entry.data.into()),
                EntryType::EntryConfChange => self.change_members(&entry, out),
                EntryType::EntryConfChangeV2 => {}
            }
        }
        self.node.advance_apply_to(last);
        out.batch.put(APPLIED, last.to_le_bytes().to_vec());
        self.cut(last, out);
    }

    fn change_members(&mut self, entry: &Entry, out: &mut Progress) {
        let Ok(change) = ConfChange::decode(&entry.data[..]) else { return };
        let id = self.node.raft.id;
        let was_in = self.is_member(id);
        // Everybody refuses the same changes.
        let Ok(members) = self.node.apply_conf_change(&change) else { return };
        let members = in_order(members);
        tracing::info!("members of consensus: {:?}, learning {:?}", members.voters, members.learners);
        out.batch.put(MEMBERS, members.encode_to_vec());
        let log = self.node.mut_store();
        log.members = members;
        // A member takes no snapshot that does not name it.
        log.snapshot.replace(None);
        if !self.is_member(change.node_id) {
            self.heard.remove(&change.node_id);
        }
        if was_in && !self.is_member(id) {
            mark_removed(&mut out.batch);
            out.removed = true;
        }
    }

    /// True if it gets the log.
    pub fn is_member(&self, id: u64) -> bool {
        self.voters().contains(&id) || self.learners().contains(&id)
    }

    fn cut(&mut self, applied: u64, out: &mut Progress) {
        let log = self.node.mut_store();
        let mut in_log = applied.saturating_sub(log.cut_index) as usize;
        let mut bytes: usize = log.entries.iter().take(in_log).map(|e| e.data.len()).sum();
        if in_log <= ENTRIES_MAX && bytes <= BYTES_MAX {
            return;
        }
        while in_log > ENTRIES_KEPT || bytes > BYTES_MAX / 2 {
            let Some(gone) = log.entries.pop_front() else { break };
            (log.cut_index, log.cut_term) = (gone.index, gone.term);
            in_log -= 1;
            bytes -= gone.data.len();
        }
        log.snapshot.replace(None);
        out.batch.put(SNAPSHOT_META, log.meta());
        out.batch.delete_range(ENTRY, entry_key(log.cut_index + 1));
    }

    fn persist(&mut self, number: u64, must_sync: bool, messages: Vec<Message>, out: &mut Progress) {
        if must_sync {
            let io = IoId(self.next_io);
            self.next_io += 1;
            out.flush = Some(io);
            self.persisting.push_back(Persisting { number, io, messages });
        } else if let Some(last) = self.persisting.back_mut() {
            last.number = number;
            last.messages.extend(messages);
        } else {
            self.node.on_persist_ready(number);
            out.messages.extend(messages.iter().map(envelope));
        }
    }
}

fn envelope(message: &Message) -> (u64, Bytes) {
    (message.to, message.encode_to_vec().into())
}

/// The library gives them as its tables have them.
fn in_order(mut members: ConfState) -> ConfState {
    members.voters.sort_unstable();
    members.learners.sort_unstable();
    members
}

fn entry_key(index: u64) -> Vec<u8> {
    [ENTRY, &index.to_be_bytes()[..]].concat()
}

/// The log as the library reads it: all of it in memory, for it is kept short.
struct Log {
    hard_state: HardState,
    members: ConfState,
    /// The last entry that was cut off.
    cut_index: u64,
    cut_term: u64,
    entries: VecDeque<Entry>,
    snapshot: RefCell<Option<Snapshot>>,
    snapshot_wanted: Cell<bool>,
}

impl Log {
    fn load(kv: &impl Kv, founders: &[u64]) -> Result<Self, RaftError> {
        let mut log = Log {
            hard_state: HardState::default(),
            members: ConfState { voters: founders.to_vec(), ..Default::default() },
            cut_index: 0,
            cut_term: 0,
            entries: VecDeque::new(),
            snapshot: RefCell::new(None),
            snapshot_wanted: Cell::new(false),
        };
        if let Some(raw) = kv.get(HARD_STATE)? {
            log.hard_state = HardState::decode(raw).map_err(|_| RaftError::Corrupt("hard state"))?;
        }
        if let Some(raw) = kv.get(MEMBERS)? {
            log.members = ConfState::decode(raw).map_err(|_| RaftError::Corrupt("members"))?;
        }
        if let Some(raw) = kv.get(SNAPSHOT_META)? {
            (log.cut_index, log.cut_term) = denc::from_bytes(&raw).map_err(|_| RaftError::Corrupt("snapshot"))?;
        }
        for (_, raw) in kv.scan(Bound::Included(ENTRY), Bound::Excluded(ENTRY_END), usize::MAX)? {
            log.entries.push_back(Entry::decode(raw).map_err(|_| RaftError::Corrupt("entry"))?);
        }
        let in_order = log.entries.iter().zip(log.cut_index + 1..).all(|(entry, index)| entry.index == index);
        in_order.then_some(log).ok_or(RaftError::Corrupt("entries with a gap"))
    }

    fn meta(&self) -> Bytes {
        denc::to_bytes(&(self.cut_index, self.cut_term), 0)
    }

    fn append(&mut self, new: &[Entry]) {
        if let Some(first) = new.first() {
            self.entries.truncate(first.index.saturating_sub(self.cut_index + 1) as usize);
            self.entries.extend(new.iter().cloned());
        }
    }
}

impl Storage for Log {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.members.clone()))
    }

    fn entries(&self, low: u64, high: u64, max: impl Into<Option<u64>>, _: GetEntriesContext) -> raft::Result<Vec<Entry>> {
        if low <= self.cut_index {
            return Err(StorageError::Compacted.into());
        }
        let from = (low - self.cut_index - 1) as usize;
        let mut out: Vec<Entry> = self.entries.iter().skip(from).take((high - low) as usize).cloned().collect();
        raft::util::limit_size(&mut out, max.into());
        Ok(out)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.cut_index {
            return Ok(self.cut_term);
        }
        let at = index.checked_sub(self.cut_index + 1).ok_or(StorageError::Compacted)?;
        Ok(self.entries.get(at as usize).ok_or(StorageError::Unavailable)?.term)
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.cut_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.cut_index + self.entries.len() as u64)
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        match &*self.snapshot.borrow() {
            Some(snapshot) if snapshot.get_metadata().index >= request_index => Ok(snapshot.clone()),
            _ => {
                self.snapshot_wanted.set(true);
                Err(StorageError::SnapshotTemporarilyUnavailable.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use store::mem::{MemDisk, MemKv};

    /// Members with their kvs and what each has applied; messages travel at once, flushes end at once.
    struct Group {
        members: BTreeMap<u64, (Raft, MemKv, Vec<Bytes>)>,
        cut_off: Option<u64>,
    }

    impl Group {
        fn new(n: u64) -> Self {
            let ids: Vec<u64> = (1..=n).collect();
            let member = |&id: &u64| {
                let kv = MemDisk::new(0).kv();
                (id, (Raft::open(&kv, id, &ids).unwrap(), kv, Vec::new()))
            };
            Group { members: ids.iter().map(member).collect(), cut_off: None }
        }

        fn settle(&mut self) {
            loop {
                let mut mail = Vec::new();
                for (id, (raft, kv, applied)) in &mut self.members {
                    let mut said = Vec::new();
                    while let Some(p) = raft.poll() {
                        if let Some(snapshot) = p.snapshot {
                            *applied = denc::from_bytes(&snapshot).unwrap();
                        }
                        applied.extend(p.committed);
                        kv.apply(p.batch).unwrap();
                        said.extend(p.messages);
                        if let Some(io) = p.flush {
                            said.extend(raft.handle_flushed(io));
                        }
                    }
                    if raft.wants_snapshot() {
                        raft.provide_snapshot(denc::to_bytes(&*applied, 0));
                    }
                    if self.cut_off != Some(*id) {
                        mail.extend(said);
                    }
                }
                if mail.is_empty() {
                    return;
                }
                for (to, raw) in mail {
                    if let Some(member) = self.members.get_mut(&to).filter(|_| self.cut_off != Some(to)) {
                        member.0.handle_message(&raw);
                    }
                }
            }
        }

        fn tick(&mut self, n: usize) {
            for _ in 0..n {
                self.members.iter_mut().for_each(|(id, m)| m.0.handle_tick(2 * id));
                self.settle();
            }
        }

        fn leader(&self) -> u64 {
            *self.members.iter().find(|(id, m)| m.0.is_leader() && self.cut_off != Some(**id)).unwrap().0
        }

        fn propose(&mut self, text: &'static str) -> bool {
            let leader = self.leader();
            let done = self.members.get_mut(&leader).unwrap().0.propose(Bytes::from_static(text.as_bytes()));
            self.settle();
            done
        }
    }

    #[test]
    fn one_member_leads_before_the_first_tick_and_keeps_its_log() {
        let mut group = Group::new(1);
        group.settle();
        assert!(group.members[&1].0.leads_with_all_applied());
        assert!(group.propose("a") && group.propose("b"));
        let (_, kv, applied) = group.members.remove(&1).unwrap();
        assert_eq!(applied, ["a", "b"].map(Bytes::from));
        let mut again = Raft::open(&kv, 1, &[1]).unwrap();
        let mut redone = Vec::new();
        while let Some(p) = again.poll() {
            redone.extend(p.committed);
            p.flush.map(|io| again.handle_flushed(io));
        }
        assert!(redone.is_empty(), "what was applied is not applied twice");
        assert!(again.leads_with_all_applied());
    }

    #[test]
    fn nothing_is_committed_before_its_flush_is_done() {
        let kv = MemDisk::new(0).kv();
        let mut raft = Raft::open(&kv, 1, &[1]).unwrap();
        let first = raft.poll().unwrap();
        raft.handle_flushed(first.flush.unwrap());
        while let Some(p) = raft.poll() {
            p.flush.map(|io| raft.handle_flushed(io));
        }
        assert!(raft.propose(Bytes::from_static(b"x")));
        let p = raft.poll().unwrap();
        assert!(p.committed.is_empty() && p.flush.is_some() && raft.poll().is_none());
        raft.handle_flushed(p.flush.unwrap());
        assert_eq!(raft.poll().unwrap().committed, [Bytes::from_static(b"x")]);
    }

    #[test]
    fn a_long_log_is_cut() {
        let mut group = Group::new(1);
        group.settle();
        (0..ENTRIES_MAX + 10).for_each(|_| assert!(group.propose("x")));
        let (first, last) = group.members[&1].0.log_range();
        assert!(first > 1 && (last - first) as usize <= ENTRIES_MAX);
        let (_, kv, _) = group.members.remove(&1).unwrap();
        Raft::open(&kv, 1, &[1]).unwrap();
    }

    #[test]
    fn a_log_of_large_entries_is_cut_by_its_size() {
        let mut group = Group::new(1);
        group.settle();
        let large = Bytes::from(vec![7; BYTES_MAX / 8]);
        for _ in 0..20 {
            assert!(group.members.get_mut(&1).unwrap().0.propose(large.clone()));
            group.settle();
        }
        let (first, last) = group.members[&1].0.log_range();
        assert!(last - first < 10, "{first}..{last}");
    }

    #[test]
    fn three_members_agree_and_one_that_was_away_gets_a_snapshot() {
        let mut group = Group::new(3);
        group.members.get_mut(&2).unwrap().0.handle_tick(0);
        group.tick(2 * ELECTION_TICKS);
        let away = if group.leader() == 3 { 1 } else { 3 };
        group.cut_off = Some(away);
        (0..ENTRIES_MAX + 10).for_each(|_| assert!(group.propose("x")));
        group.cut_off = None;
        group.tick(3 * ELECTION_TICKS);
        assert!(group.propose("last"));
        group.tick(ELECTION_TICKS);
        let lengths: Vec<usize> = group.members.values().map(|m| m.2.len()).collect();
        assert_eq!(lengths, [ENTRIES_MAX + 11; 3]);
    }

    impl Group {
        /// A new member that knows who founded the group.
        fn join(&mut self, id: u64) {
            let kv = MemDisk::new(0).kv();
            let raft = Raft::open(&kv, id, &[1, 2, 3]).unwrap();
            self.members.insert(id, (raft, kv, Vec::new()));
        }

        fn change(&mut self, change: Change) {
            let leader = self.leader();
            assert!(self.members.get_mut(&leader).unwrap().0.propose_change(change), "{change:?}");
            self.settle();
        }

        fn of(&self, id: u64) -> &Raft {
            &self.members[&id].0
        }
    }

    fn led_group(long: bool) -> Group {
        let mut group = Group::new(3);
        group.tick(2 * ELECTION_TICKS);
        let entries = if long { ENTRIES_MAX + 10 } else { 3 };
        (0..entries).for_each(|_| assert!(group.propose("x")));
        group
    }

    #[test]
    fn a_new_member_learns_then_counts_whether_the_log_is_whole_or_cut() {
        for long in [false, true] {
            let mut group = led_group(long);
            group.join(4);
            group.change(Change::Learner(4));
            group.tick(5);
            let leader = group.leader();
            assert!(group.of(leader).is_level(4) && group.of(4).learners() == [4]);
            group.change(Change::Voter(4));
            assert!(group.propose("last"));
            group.tick(5);
            for member in group.members.values() {
                assert_eq!((member.0.voters(), member.2.last()), (&[1, 2, 3, 4][..], Some(&Bytes::from("last"))));
                assert_eq!(member.2.len(), group.members[&1].2.len());
            }
        }
    }

    #[test]
    fn who_the_members_are_survives_a_restart_and_a_removed_one_knows_it() {
        let mut group = led_group(false);
        let gone = if group.leader() == 3 { 2 } else { 3 };
        group.change(Change::Remove(gone));
        group.tick(5);
        for id in (1..=3).filter(|id| *id != gone) {
            let again = Raft::open(&group.members[&id].1, id, &[1, 2, 3]).unwrap();
            assert_eq!(again.voters().len(), 2);
            assert!(!was_removed(&group.members[&id].1).unwrap());
        }
        // Alone it may never learn of it from the log; what it has of it, it keeps.
        let told = was_removed(&group.members[&gone].1).unwrap();
        assert_eq!(told, !group.of(gone).is_member(gone));
    }

    #[test]
    fn one_change_at_a_time_and_the_lead_can_be_handed_over() {
        let mut group = led_group(false);
        let leader = group.leader();
        let raft = &mut group.members.get_mut(&leader).unwrap().0;
        assert!(raft.propose_change(Change::Learner(9)) && !raft.propose_change(Change::Learner(10)));
        group.settle();
        let next = leader % 3 + 1;
        group.members.get_mut(&leader).unwrap().0.transfer_lead(next);
        group.settle();
        group.tick(2);
        assert_eq!(group.leader(), next);
        group.change(Change::Remove(leader));
        assert!(group.propose("goes on"));
    }

    #[test]
    fn one_that_is_learning_is_never_elected() {
        let mut group = led_group(false);
        group.join(4);
        group.change(Change::Learner(4));
        group.tick(5);
        let dead = group.leader();
        group.cut_off = Some(dead);
        let learner = &mut group.members.get_mut(&4).unwrap().0;
        assert!(learner.forget_leader(dead));
        learner.stand();
        group.settle();
        group.tick(3 * ELECTION_TICKS);
        assert!(group.leader() != 4);
    }

    #[test]
    fn what_is_for_an_earlier_disk_is_not_heard() {
        let group = led_group(false);
        let leader = group.leader();
        let kv = MemDisk::new(0).kv();
        let mut fresh = Raft::open(&kv, 7, &[1, 2, 3]).unwrap();
        let term = group.of(leader).term();
        let heartbeat = Message { to: leader % 3 + 1, from: leader, term, ..Default::default() };
        fresh.handle_message(&heartbeat.encode_to_vec().into());
        assert_eq!(fresh.term(), 0);
    }

    #[test]
    fn nonsense_from_a_peer_changes_nothing() {
        let mut group = Group::new(1);
        group.settle();
        group.members.get_mut(&1).unwrap().0.handle_message(&Bytes::from_static(b"\xff\xff\xff"));
        group.settle();
        assert!(group.propose("a"));
    }
}
