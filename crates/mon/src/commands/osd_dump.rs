//! `osd dump`, `osd info`: the whole map for people and programs.

use super::osd::{map_of_epoch, parse_osd};
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use types::Errno;

pub const COMMANDS: &[Entry] = &[entry("osd dump", "osd", "r", dump), entry("osd info", "osd", "r", info)];

fn dump(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    Ok(Reply::either(cmd.format, || map.print_plain(), || map.dump_json()))
}

fn info(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let wanted = cmd.list("id")?;
    let Some(id) = wanted.first() else {
        return Ok(Reply::either(cmd.format, || map.print_osds(), || map.dump_osds()));
    };
    let osd = parse_osd(id).ok_or_else(|| Reply::err(Errno::EINVAL, format!("unable to parse osd id value '{id}'")))?;
    if !map.exists(osd) {
        return Err(Reply::err(Errno::ENOENT, format!("osd.{osd} does not exist")));
    }
    let prefix = format!("osd.{osd} ");
    let text = || map.print_osds().lines().filter(|l| l.starts_with(&prefix)).map(|l| format!("{l}\n")).collect();
    Ok(Reply::either(cmd.format, text, || map.dump_osd(osd)))
}
