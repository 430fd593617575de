//! File systems: there are none yet, and these say so.

use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Format, Outcome, Reply};
use serde_json::{Value, json};
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("fs ls", "fs", "r", ls),
    entry("fs dump", "fs", "r", dump),
    entry("fs get", "fs", "r", get),
    entry("fs new", "fs", "rw", new),
    entry("mds stat", "mds", "r", mds_stat),
    entry("mds versions", "mds", "r", nothing),
    entry("mds metadata", "mds", "r", mds_metadata),
    entry("mds count-metadata", "mds", "r", nothing),
];

fn ls(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::either(cmd.format, || "No filesystems enabled\n".into(), || json!([])))
}

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.fsmap.map;
    let reply = Reply::either(cmd.format, || map.print_plain(), || map.dump_json());
    Ok(Reply { status: format!("dumped fsmap epoch {}", map.epoch), ..reply })
}

fn get(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Err(Reply::err(Errno::ENOENT, format!("filesystem '{}' not found", cmd.text("fs_name")?)))
}

fn new(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    for pool in [cmd.text("metadata")?, cmd.text("data")?] {
        if ctx.osdmap().pool_id(pool).is_none() {
            return Err(Reply::err(Errno::ENOENT, format!("pool '{pool}' does not exist")));
        }
    }
    Err(Reply::err(Errno::EOPNOTSUPP, "file systems are not available in this cluster yet"))
}

fn mds_stat(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = &ctx.state.fsmap.map;
    Ok(match cmd.format {
        Format::Plain => Reply::text("\n"),
        _ => Reply::json(cmd.format, &json!({"fsmap": map.dump_json(), "mdsmap_first_committed": 1, "mdsmap_last_committed": map.epoch.0})),
    })
}

fn nothing(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    Ok(Reply::json(cmd.format, &json!({})))
}

fn mds_metadata(_: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    match cmd.text("who")? {
        "" => Ok(Reply::json(cmd.format, &Value::Array(Vec::new()))),
        who => Err(Reply::err(Errno::EINVAL, format!("MDS named '{who}' does not exist, or is not up"))),
    }
}
