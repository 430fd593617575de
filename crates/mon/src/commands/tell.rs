//! `ceph tell mon.X ...`: one monitor's own state and options.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Format, Outcome, Reply};
use crate::services::config::Subject;
use crate::text::stamp;
use admin::option;
use admin::perf::{PerfCounters, Print};
use serde_json::{Map, Value, json};
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("get_command_descriptions", "mon", "r", get_command_descriptions),
    entry("help", "mon", "r", help),
    entry("version", "mon", "r", version),
    entry("git_version", "mon", "r", git_version),
    entry("mon_status", "mon", "r", mon_status),
    entry("quorum_status", "mon", "r", |c, m| (super::find(super::table(), "quorum_status").map_or(version as fn(&mut Ctx<'_>, &Cmd) -> Outcome, |e| e.run))(c, m)),
    entry("sessions", "mon", "r", sessions),
    entry("ops", "mon", "r", ops),
    entry("dump_historic_ops", "mon", "r", ops),
    entry("perf dump", "mon", "r", |ctx, cmd| perf(ctx, cmd, admin::perf::dump)),
    entry("perf schema", "mon", "r", |ctx, cmd| perf(ctx, cmd, admin::perf::schema)),
    entry("config show", "mon", "r", config_show),
    entry("config get", "mon", "r", config_get),
    entry("config set", "mon", "rw", config_set),
    entry("config unset", "mon", "rw", config_unset),
    entry("config help", "mon", "r", config_help),
    entry("config diff", "mon", "r", config_diff),
    entry("injectargs", "mon", "rw", injectargs),
    entry("heap", "mon", "rw", |_, _| Err(Reply::err(Errno::EOPNOTSUPP, "could not issue heap profiler command -- not using tcmalloc!"))),
    entry("compact", "mon", "rw", |_, _| Err(Reply::err(Errno::EOPNOTSUPP, "the store compacts itself; doing so on demand is not built in Cuttlebone"))),
    entry("sync_status", "mon", "r", sync_status),
    // Every line of the log is written when it is said.
    entry("log flush", "mon", "rw", |_, _| Ok(Reply::ok())),
    entry("log reopen", "mon", "rw", |_, _| Err(Reply::err(Errno::EOPNOTSUPP, "send the daemon SIGHUP: it then opens its log anew"))),
];

/// `tell` prints JSON for people unless told otherwise.
fn out(cmd: &Cmd, value: &Value) -> Outcome {
    Ok(Reply::json(if cmd.format == Format::Json { Format::Json } else { Format::JsonPretty }, value))
}

fn get_command_descriptions(_: &mut Ctx<'_>, _: &Cmd) -> Outcome {
    Ok(Reply::text(super::specs::tell_descriptions()))
}

fn help(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all: Map<String, Value> = super::tell_table().keys().map(|k| ((*k).to_owned(), Value::from(super::specs::help_of(k)))).collect();
    out(cmd, &Value::Object(all))
}

fn version(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    out(cmd, &json!({"version": crate::version::short(), "release": crate::version::RELEASE, "release_type": "stable"}))
}

fn git_version(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    out(cmd, &json!({"git_version": crate::version::COMMIT}))
}

fn mon_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let features = types::features::SUPPORTED.to_string();
    let names = ctx.state.monmap.map.persistent_features.names();
    let rank = ctx.state.monmap.map.rank_of(&ctx.env.name);
    let state = match ctx.quorum.leader {
        _ if rank.is_none() => "probing",
        Some(rank) if rank == ctx.quorum.rank => "leader",
        Some(_) => "peon",
        None => "electing",
    };
    let outside: Vec<&str> = match ctx.quorum.leader {
        Some(_) => ctx.quorum.outside(&ctx.state.monmap.map).into_iter().map(|(_, name)| name).collect(),
        None => vec![&ctx.env.name],
    };
    let status = json!({
        "name": ctx.env.name,
        "rank": rank.map_or(-1, |rank| rank as i64),
        "state": state,
        "election_epoch": ctx.quorum.term,
        "quorum": ctx.quorum.ranks,
        "quorum_age": (ctx.now.mono - ctx.quorum.since).as_secs(),
        "features": {
            "required_con": "0",
            "required_mon": names,
            "quorum_con": features,
            "quorum_mon": names,
        },
        "outside_quorum": outside,
        "extra_probe_peers": [],
        "sync_provider": [],
        "monmap": super::mon::monmap_json(ctx),
        "feature_map": super::general::feature_map(ctx),
        "stretch_mode": false,
    });
    out(cmd, &status)
}

fn sessions(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let now = ctx.now.mono;
    let one = |s: &crate::session::Session| {
        json!({
            "name": format!("{}.{}", s.peer.kind.name(), s.peer.global_id),
            "entity_name": s.peer.name.to_string(),
            "addrs": s.peer.addrs.dump_json(),
            "socket_addr": s.peer.addrs.0.first().map(types::EntityAddr::dump_json),
            "con_type": s.peer.kind.name(),
            "state": "open",
            "con_features": s.peer.features,
            "con_features_hex": format!("{:x}", s.peer.features),
            "con_features_release": super::general::release_of(s.peer.features),
            "open": true,
            "caps": {"text": s.peer.caps},
            "authenticated": true,
            "global_id": s.peer.global_id,
            "global_id_status": "new_ok",
            "osd_epoch": s.subs.get("osdmap").map_or(0, |sub| sub.next),
            "remote_host": s.hostname,
            "connected_s": (now - s.since).as_secs(),
        })
    };
    out(cmd, &ctx.sessions.values().map(one).collect())
}

fn perf(ctx: &mut Ctx<'_>, cmd: &Cmd, print: Print) -> Outcome {
    let loggers = super::loggers::of(ctx);
    let loggers: Vec<&PerfCounters> = loggers.iter().collect();
    Ok(Reply::text(print(&loggers, cmd.str("logger")?, cmd.str("counter")?, cmd.format != Format::Json)))
}

fn ops(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    // Every request is handled within one turn of the loop: none is ever under way between two.
    out(cmd, &json!({"ops": [], "num_ops": 0}))
}

fn sync_status(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    out(cmd, &json!({"paxos": {"first": ctx.log_range.0, "last": ctx.log_range.1}, "stamp": stamp(ctx.now.wall)}))
}

fn in_force(ctx: &Ctx<'_>, name: &str) -> Option<String> {
    ctx.env.option(ctx.state, name)
}

fn config_show(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let all: Map<String, Value> = option::all().into_iter().map(|o| (o.name.to_owned(), in_force(ctx, o.name).unwrap_or_default().into())).collect();
    out(cmd, &Value::Object(all))
}

fn var(cmd: &Cmd) -> Result<String, Reply> {
    Ok(option::canonical(cmd.text("var")?))
}

fn config_get(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = var(cmd)?;
    let value = in_force(ctx, &name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("error getting '{name}': (2) No such file or directory")))?;
    out(cmd, &json!({name: value}))
}

fn config_set(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = var(cmd)?;
    let text = cmd.list("val")?.join(" ");
    set_option(ctx, &name, &text)?;
    out(cmd, &json!({"success": format!("{name} = '{text}' ")}))
}

fn set_option(ctx: &mut Ctx<'_>, name: &str, text: &str) -> Result<(), Reply> {
    let refused = |e: admin::CommandError| Reply::err(e.errno, format!("error setting '{name}' to '{text}': {}", e.status));
    let spec = option::known(name).map_err(refused)?;
    let value = spec.normalize(text).map_err(refused)?;
    ctx.env.options.insert(spec.name.to_owned(), value);
    Ok(())
}

fn config_unset(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let name = var(cmd)?;
    ctx.env.options.remove(&name);
    out(cmd, &json!({"success": ""}))
}

fn config_help(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    match cmd.str("var")? {
        Some(name) => {
            let spec = option::find(name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("Setting not found: '{name}'")))?;
            out(cmd, &spec.json())
        }
        None => out(cmd, &option::all().into_iter().map(|o| o.json()).collect()),
    }
}

fn config_diff(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let db = ctx.state.config.resolve(&Subject::mon(&ctx.env.name));
    let mut diff = Map::new();
    for spec in option::all() {
        let mut levels = Map::new();
        if let Some((value, _)) = db.get(spec.name) {
            levels.insert("mon".into(), value.as_str().into());
        }
        if let Some(value) = ctx.env.options.get(spec.name) {
            levels.insert("file".into(), value.as_str().into());
        }
        if !levels.is_empty() {
            let mut v = Map::from_iter([("default".to_owned(), Value::from(spec.default_for(true)))]);
            v.extend(levels);
            v.insert("final".into(), in_force(ctx, spec.name).into());
            diff.insert(spec.name.to_owned(), Value::Object(v));
        }
    }
    out(cmd, &json!({"diff": diff}))
}

/// `injectargs --opt=value ...`: the old way to set options.
fn injectargs(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let words: Vec<String> = cmd.list("injected_args")?.iter().flat_map(|w| w.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let mut status = String::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let bare = word.trim_start_matches('-');
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (bare.to_owned(), words.next().unwrap_or_else(|| "true".into())),
        };
        let name = option::canonical(&name);
        set_option(ctx, &name, &value)?;
        status += &format!("{name} = '{value}' ");
    }
    Ok(Reply { status: status.clone(), ..Reply::ok() })
}
