//! The cluster log, written and read by operators.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use crate::services::log::CLUSTER;
use crate::text::stamp;
use serde_json::{Value, json};
use types::msg::{LogEntry, LogPrio};
use types::{AddrVec, EntityInst, EntityKind, EntityName, Errno};

pub const COMMANDS: &[Entry] = &[entry("log", "mon", "rw", log), entry("log last", "mon", "r", last)];

fn log(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let nobody = || EntityName::new(EntityKind::CLIENT, "");
    let entry = LogEntry {
        name: ctx.who.map_or_else(nobody, |s| s.peer.name.clone()),
        rank: ctx.who.map_or(EntityInst { kind: EntityKind::CLIENT, num: -1 }, |s| EntityInst { kind: s.peer.kind, num: s.peer.global_id as i64 }),
        addrs: ctx.who.map_or_else(AddrVec::default, |s| s.peer.addrs.clone()),
        stamp: ctx.now.wall,
        seq: 0,
        prio: LogPrio::INFO,
        msg: cmd.list("logtext")?.join(" "),
        channel: CLUSTER.to_owned(),
    };
    ctx.state.log.append(entry, ctx.txn);
    Ok(Reply::ok())
}

fn entry_json(e: &LogEntry) -> Value {
    json!({
        "name": e.name.to_string(),
        "rank": e.rank.to_string(),
        "addrs": e.addrs.dump_json(),
        "stamp": stamp(e.stamp),
        "seq": e.seq,
        "channel": e.channel,
        "priority": format!("[{}]", e.prio),
        "message": e.msg,
    })
}

/// One line as log files have it.
pub fn entry_text(e: &LogEntry) -> String {
    format!("{} {} ({}) {} : {} [{}] {}\n", stamp(e.stamp), e.name, e.rank, e.seq, e.channel, e.prio, e.msg)
}

fn last(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let num = cmd.int("num")?.filter(|n| *n > 0).unwrap_or(20) as usize;
    let level = match cmd.text("level")? {
        "" => LogPrio::INFO,
        name => LogPrio::from_name(name).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unknown level '{name}'")))?,
    };
    let channel = match cmd.text("channel")? {
        "" => CLUSTER,
        name => name,
    };
    let all = ctx.state.log.entries(channel, level, 0);
    let shown = all.iter().skip(all.len().saturating_sub(num)).map(|(_, e)| *e);
    Ok(Reply::either(cmd.format, || shown.clone().map(entry_text).collect(), || shown.clone().map(entry_json).collect()))
}
