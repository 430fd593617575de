//! Commands of stock Ceph with nothing behind them: described, so that stock tools send them, and refused with what there is instead.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("osd tier add", "osd", "rw", cache_tier),
    entry("osd tier add-cache", "osd", "rw", cache_tier),
    entry("osd tier cache-mode", "osd", "rw", cache_tier),
    entry("osd tier remove", "osd", "rw", cache_tier),
    entry("osd tier remove-overlay", "osd", "rw", cache_tier),
    entry("osd tier rm", "osd", "rw", cache_tier),
    entry("osd tier rm-overlay", "osd", "rw", cache_tier),
    entry("osd tier set-overlay", "osd", "rw", cache_tier),
    entry("mon enable_stretch_mode", "mon", "rw", stretch),
    entry("osd force_healthy_stretch_mode", "osd", "rw", stretch),
    entry("osd force_recovery_stretch_mode", "osd", "rw", stretch),
    entry("mon enable-msgr2", "mon", "rw", |_, _| Ok(Reply::ok())),
    entry("mon set election_strategy", "mon", "rw", election_strategy),
    entry("mon add disallowed_leader", "mon", "rw", |_, _| refuse("any monitor may become the leader")),
    entry("mon rm disallowed_leader", "mon", "rw", |_, _| refuse("any monitor may become the leader")),
    entry("mon set_location", "mon", "rw", |_, _| refuse("monitors have no place in the CRUSH map")),
    entry("mon set-rank", "mon", "rw", |_, _| refuse("monitors are ranked by their addresses")),
    entry("mon set-weight", "mon", "rw", |_, _| refuse("clients choose among all monitors alike")),
    entry("mon set-addrs", "mon", "rw", |_, _| refuse("a monitor gets another address by being removed and added anew")),
    entry("mon feature set", "mon", "rw", |_, _| refuse("the monitors have all the features they will ever have in this version")),
];

fn refuse(why: &str) -> Outcome {
    Err(Reply::err(Errno::EOPNOTSUPP, format!("not built in Cuttlebone: {why}")))
}

fn cache_tier(_: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    refuse("there are no cache tiers; a device for database and log makes writes quick ('cuttlebone osd create --db')")
}

fn stretch(_: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    refuse("there is no stretch mode; a CRUSH rule can spread copies over data centers")
}

/// Consensus elects as Raft does, which has no strategies.
fn election_strategy(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    match cmd.text("strategy")? {
        "classic" => Ok(Reply::ok()),
        "disallow" | "connectivity" => refuse("the only election strategy is classic"),
        other => Err(Reply::err(Errno::EINVAL, format!("{other} is not a valid election strategy"))),
    }
}
