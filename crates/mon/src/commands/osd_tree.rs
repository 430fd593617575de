//! `osd tree` and its relatives.

use super::osd::map_of_epoch;
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply};
use admin::tree::{TreeFilter, crush_tree_json, crush_tree_plain, osd_tree_json, osd_tree_plain};
use types::Errno;

pub const COMMANDS: &[Entry] = &[
    entry("osd tree", "osd", "r", |ctx, cmd| tree(ctx, cmd, false)),
    entry("osd tree-from", "osd", "r", |ctx, cmd| tree(ctx, cmd, true)),
    entry("osd crush tree", "osd", "r", crush_tree),
];

fn filter_arg(cmd: &Cmd) -> Result<TreeFilter, Reply> {
    let invalid = |text: String| Reply::err(Errno::EINVAL, text);
    let mut filter = TreeFilter::default();
    for state in cmd.list("states")? {
        filter = filter.with(&state).ok_or_else(|| invalid(format!("unrecognized state '{state}'")))?;
    }
    match filter {
        TreeFilter { r#in: true, out: true, .. } => Err(invalid("cannot specify both 'in' and 'out'".into())),
        TreeFilter { up: true, down: true, .. } => Err(invalid("cannot specify both 'up' and 'down'".into())),
        filter => Ok(filter),
    }
}

fn tree(ctx: &mut Ctx<'_>, cmd: &Cmd, below: bool) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let filter = filter_arg(cmd)?;
    let mut from = None;
    if below {
        let name = cmd.text("bucket")?;
        let none = || Reply::err(Errno::ENOENT, format!("bucket '{name}' does not exist"));
        let root = map.crush.item(name).ok_or_else(none)?;
        if root >= 0 {
            return Err(Reply::err(Errno::EINVAL, format!("\"{name}\" is not a bucket")));
        }
        from = Some(root);
    }
    Ok(Reply::either(cmd.format, || osd_tree_plain(&map, filter, from), || osd_tree_json(&map, filter, from)))
}

fn crush_tree(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let shadows = !cmd.list("shadow")?.is_empty() || cmd.flag("show_shadow");
    Ok(Reply::either(cmd.format, || crush_tree_plain(&map, shadows), || crush_tree_json(&map, shadows)))
}
