//! Subscriptions: whoever asked for a map hears of every change at once.

use crate::mon::Mon;
use crate::services::State;
use crate::services::config::Subject;
use crate::services::log::CLUSTER;
use crate::services::osdmap::{read_full, read_inc};
use crate::session::{SessionId, Sub};
use bytes::Bytes;
use std::collections::BTreeMap;
use store::Kv;
use types::map::OsdMap;
use types::msg::mon::{MConfig, MFsMapUser, MMdsMap, MMonMap, MOsdMap, PaxosHeader};
use types::msg::{LogPrio, MLog, MMgrMap, Message};
use types::{EntityKind, Epoch, Now, OsdId};

/// Most maps in one message (`osd_map_message_max`), and about how many bytes.
const MAPS_PER_MESSAGE: usize = 40;
const BYTES_PER_MESSAGE: usize = 10 << 20;

/// The versions subscribers were last told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Versions {
    monmap: u32,
    osdmap: u32,
    mgrmap: u32,
    fsmap: u32,
    config: u64,
    log: u64,
}

impl Versions {
    fn of(state: &State) -> Self {
        Versions {
            monmap: state.monmap.map.epoch.0,
            osdmap: state.osdmap.map.epoch.0,
            mgrmap: state.mgr.map.epoch.0,
            fsmap: state.fsmap.map.epoch.0,
            config: state.config.version(),
            log: state.log.version,
        }
    }
}

/// Tells subscribers of everything that changed since the last call.
pub fn run<K: Kv>(mon: &mut Mon<K>, _now: Now) {
    let Some(state) = &mon.state else { return };
    let versions = Versions::of(state);
    if mon.published == versions {
        return;
    }
    mon.published = versions;
    let ids: Vec<SessionId> = mon.sessions.keys().copied().collect();
    ids.into_iter().for_each(|id| serve(mon, id, false));
}

/// Sends a session what it subscribed to and has not got. `asked`: it has just (re)subscribed, and gets its options
/// even if they did not change.
pub fn serve<K: Kv>(mon: &mut Mon<K>, id: SessionId, asked: bool) {
    let Some(session) = mon.sessions.get(&id) else { return };
    let subs = session.subs.clone();
    for (what, sub) in subs {
        match next(mon, id, &what, sub, asked) {
            Ok((messages, after)) => {
                let sent = !messages.is_empty();
                messages.into_iter().for_each(|m| mon.send(id, 0, m));
                let Some(session) = mon.sessions.get_mut(&id) else { return };
                if sent && sub.onetime {
                    session.subs.remove(&what);
                } else if let Some(sub) = session.subs.get_mut(&what) {
                    sub.next = after;
                }
            }
            Err(e) => return mon.fail(e.to_string()),
        }
    }
}

type Next = (Vec<Message>, u64);

fn next<K: Kv>(mon: &mut Mon<K>, id: SessionId, what: &str, sub: Sub, asked: bool) -> Result<Next, crate::txn::StateError> {
    let nothing = Ok((Vec::new(), sub.next));
    let (Some(state), Some(session)) = (&mon.state, mon.sessions.get_mut(&id)) else { return nothing };
    let one = |epoch: Epoch, message: Message| Ok((vec![message], u64::from(epoch.0) + 1));
    let due = |epoch: Epoch| sub.next <= u64::from(epoch.0);
    match what {
        "monmap" if due(state.monmap.map.epoch) => {
            one(state.monmap.map.epoch, MMonMap { map: state.monmap.encoded() }.into())
        }
        "osdmap" if session.may("osd", "r") => osdmaps(&mon.kv, state, sub.next),
        "mgrmap" if due(state.mgr.map.epoch) => one(state.mgr.map.epoch, MMgrMap { map: state.mgr.encoded() }.into()),
        "fsmap.user" if due(state.fsmap.map.epoch) => {
            let epoch = state.fsmap.map.epoch;
            one(epoch, MFsMapUser { epoch, map: state.fsmap.encoded_user() }.into())
        }
        "mdsmap" if due(state.fsmap.map.epoch) && session.may("mds", "r") => {
            let epoch = state.fsmap.map.epoch;
            let map = state.fsmap.encoded_mdsmap();
            one(epoch, MMdsMap { fsid: state.monmap.map.fsid, epoch, map, fs_name: "cephfs".into() }.into())
        }
        "config" => {
            let config = config_of(state, &session.peer.name);
            let same = session.last_config.as_ref() == Some(&config);
            if same && !asked {
                return nothing;
            }
            session.last_config = Some(config.clone());
            Ok((vec![MConfig { config }.into()], sub.next))
        }
        _ => match what.strip_prefix("log-").and_then(LogPrio::from_name) {
            Some(level) if session.may("mon", "r") => Ok(log_lines(state, level, sub.next)),
            _ => nothing,
        },
    }
}

/// A client that names no epoch gets the newest map whole; one that does gets the steps from there on.
fn osdmaps(kv: &impl Kv, state: &State, from: u64) -> Result<Next, crate::txn::StateError> {
    let (fsid, newest, oldest) = (state.osdmap.map.fsid, state.osdmap.map.epoch, state.osdmap.first);
    let after = u64::from(newest.0) + 1;
    if from >= after {
        return Ok((Vec::new(), from));
    }
    let blank = || MOsdMap { fsid, incremental: BTreeMap::new(), full: BTreeMap::new(), oldest, newest, gap_removed_snaps: BTreeMap::new() };
    let start = u32::try_from(from).unwrap_or(0);
    if from == 0 {
        let mut message = blank();
        message.full.insert(newest, full_map(kv, state, newest)?);
        return Ok((vec![message.into()], after));
    }
    let mut messages = Vec::new();
    let mut message = blank();
    let mut first = Epoch(start);
    // Whoever asks from the beginning has nothing to apply a step to.
    if first <= oldest {
        message.full.insert(oldest, full_map(kv, state, oldest)?);
        first = oldest.next();
    }
    let mut bytes = 0;
    for epoch in (first.0..=newest.0).map(Epoch) {
        let step = pending_or(kv, state, epoch)?;
        bytes += step.len();
        message.incremental.insert(epoch, step);
        if message.incremental.len() >= MAPS_PER_MESSAGE || bytes > BYTES_PER_MESSAGE {
            messages.push(std::mem::replace(&mut message, blank()).into());
            bytes = 0;
        }
    }
    if !message.incremental.is_empty() || !message.full.is_empty() {
        messages.push(message.into());
    }
    Ok((messages, after))
}

fn full_map(kv: &impl Kv, state: &State, epoch: Epoch) -> Result<Bytes, crate::txn::StateError> {
    if let Some(full) = state.osdmap.recent_full(epoch) {
        return Ok(full);
    }
    read_full(kv, epoch)?.ok_or(crate::txn::StateError::Missing("a full osdmap"))
}

fn pending_or(kv: &impl Kv, state: &State, epoch: Epoch) -> Result<Bytes, crate::txn::StateError> {
    if let Some(step) = state.osdmap.recent_inc(epoch) {
        return Ok(step);
    }
    read_inc(kv, epoch)?.ok_or(crate::txn::StateError::Missing("a step of the osdmap"))
}

fn log_lines(state: &State, level: LogPrio, from: u64) -> Next {
    let newest = state.log.version;
    // A new watcher hears what happens from now on.
    if from == 0 {
        return (Vec::new(), newest + 1);
    }
    let entries: Vec<_> = state.log.entries(CLUSTER, level, from - 1).into_iter().map(|(_, e)| e.clone()).collect();
    // The client drops what is not newer than the version it saw last.
    let paxos = PaxosHeader { version: newest, ..PaxosHeader::default() };
    let message = MLog { paxos, fsid: state.monmap.map.fsid, entries };
    let messages = if message.entries.is_empty() { Vec::new() } else { vec![message.into()] };
    (messages, newest + 1)
}

/// The options in force for an entity, as `config` subscriptions bring them.
pub fn config_of(state: &State, name: &types::EntityName) -> BTreeMap<String, String> {
    let subject = subject(&state.osdmap.map, name);
    state.config.resolve(&subject).into_iter().map(|(name, (value, _))| (name, value)).collect()
}

/// An entity with its place, where it has one.
pub fn subject(map: &OsdMap, name: &types::EntityName) -> Subject {
    let mut subject = Subject::of(name.clone());
    if name.kind == EntityKind::OSD
        && let Ok(id) = name.id.parse()
    {
        subject.location = crate::placement::location(map, OsdId(id));
        subject.class = map.crush.item_class(id).map(str::to_owned);
    }
    subject
}
