//! `health` and its mutes.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::health;
use crate::reply::{Outcome, Reply};
use crate::services::health::Mute;
use std::time::Duration;
use types::{Errno, Utime};

pub const COMMANDS: &[Entry] = &[
    entry("health", "mon", "r", show),
    entry("health mute", "mon", "w", mute),
    entry("health unmute", "mon", "w", unmute),
];

fn show(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let checks = health::checks(ctx.state, ctx.env, &ctx.quorum, ctx.now);
    let mutes = &ctx.state.health.mutes;
    let detail = cmd.text("detail")? == "detail";
    let text = || if detail { health::detail_text(&checks, mutes) } else { health::line(&checks, mutes) + "\n" };
    Ok(Reply::either(cmd.format, text, || health::json(&checks, mutes, detail)))
}

fn mute(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (code, ttl, sticky) = (cmd.text("code")?, cmd.text("ttl")?, cmd.flag("sticky"));
    if code.is_empty() {
        return Err(Reply::err(Errno::EINVAL, "must specify an alert code to mute"));
    }
    let until = match ttl {
        "" => Utime::ZERO,
        text => {
            let secs = crate::units::parse_duration(text).map_err(|why| Reply::err(Errno::EINVAL, format!("invalid duration: {text} ({why})")))?;
            Utime::from_duration(ctx.now.wall.to_duration() + Duration::from_secs(secs.min(1_000_000_000)))
        }
    };
    let checks = health::checks(ctx.state, ctx.env, &ctx.quorum, ctx.now);
    let check = checks.get(code);
    if check.is_none() && !sticky {
        return Err(Reply::err(Errno::ENOENT, format!("health alert {code} is not currently raised")));
    }
    let (summary, count) = check.map(|c| (c.summary.clone(), c.count)).unwrap_or_default();
    ctx.state.health.mute(code, Mute { until, sticky, summary, count }, ctx.txn);
    Ok(Reply::ok())
}

fn unmute(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    match cmd.text("code")? {
        "" => {
            let all: Vec<String> = ctx.state.health.mutes.keys().cloned().collect();
            all.iter().for_each(|code| ctx.state.health.unmute(code, ctx.txn));
        }
        code => ctx.state.health.unmute(code, ctx.txn),
    }
    Ok(Reply::ok())
}
