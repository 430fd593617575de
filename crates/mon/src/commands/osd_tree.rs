//! `osd tree` and its relatives: the CRUSH hierarchy with what the osdmap knows of its OSDs.
//!
//! Upstream: src/crush/CrushTreeDumper.h, src/osd/OSDMap.cc (print_tree).

use super::osd::map_of_epoch;
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::reply::{Outcome, Reply, num};
use crate::text::{Left, Right, Table};
use serde_json::{Map, Value, json};
use types::map::OsdMap;
use types::{Errno, OsdId};

pub const COMMANDS: &[Entry] = &[
    entry("osd tree", "osd", "r", tree),
    entry("osd tree-from", "osd", "r", tree_from),
    entry("osd crush tree", "osd", "r", crush_tree),
];

/// One line of a tree.
struct Node {
    id: i32,
    depth: usize,
    children: Vec<i32>,
    weight: u32,
}

/// What a tree shows.
struct View<'a> {
    map: &'a OsdMap,
    shadows: bool,
    /// Only OSDs for which this holds, and what leads to them.
    keep: Box<dyn Fn(OsdId) -> bool + 'a>,
    filtered: bool,
}

impl View<'_> {
    fn nodes(&self, roots: &[i32]) -> Vec<Node> {
        let mut out = Vec::new();
        roots.iter().for_each(|root| self.walk(*root, 0, self.map.crush.item_weight(*root).unwrap_or(0), &mut out));
        out
    }

    fn walk(&self, id: i32, depth: usize, weight: u32, out: &mut Vec<Node>) {
        if !self.shown(id) || depth > 64 {
            return;
        }
        let mut children: Vec<(String, i32, u32)> = Vec::new();
        if let Some(bucket) = self.map.crush.bucket(id) {
            for (pos, item) in bucket.items.iter().enumerate().filter(|(_, i)| self.shown(**i)) {
                children.push((self.sort_key(*item), *item, bucket.item_weight(pos)));
            }
        }
        children.sort();
        out.push(Node { id, depth, children: children.iter().rev().map(|c| c.1).collect(), weight });
        children.into_iter().for_each(|(_, item, weight)| self.walk(item, depth + 1, weight, out));
    }

    /// OSDs by class and number, buckets by name.
    fn sort_key(&self, id: i32) -> String {
        let crush = &self.map.crush;
        match id >= 0 {
            true => format!("{}_osd_{id:08}", crush.item_class(id).unwrap_or("")),
            false => format!("_{}", crush.name(id).unwrap_or("")),
        }
    }

    fn shown(&self, id: i32) -> bool {
        if id >= 0 {
            return (self.keep)(OsdId(id));
        }
        (self.shadows || !self.map.crush.is_shadow(id)) && (!self.filtered || self.map.crush.leaves(id).iter().any(|o| self.shown(*o)))
    }

    /// OSDs of the map that stand nowhere.
    fn strays(&self) -> Vec<OsdId> {
        self.map.osds().filter(|o| !self.map.crush.is_linked(o.0) && (self.keep)(*o)).collect()
    }
}

fn weight_text(weight: u32) -> String {
    if weight == 0 { "0".into() } else { format!("{:.5}", f64::from(weight) / 65536.0) }
}

fn float_text(v: f64) -> String {
    if v < 1e-6 { "0".into() } else { format!("{v:.5}") }
}

fn fixed(v: u32) -> f64 {
    f64::from(v) / 65536.0
}

fn status(map: &OsdMap, osd: OsdId) -> &'static str {
    match () {
        () if !map.exists(osd) => "DNE",
        () if map.is_destroyed(osd) => "destroyed",
        () if map.is_up(osd) => "up",
        () => "down",
    }
}

fn name_of(map: &OsdMap, node: &Node) -> String {
    let kind = map.crush.bucket(node.id).and_then(|b| map.crush.type_name(i32::from(b.kind))).unwrap_or("");
    let indent = "    ".repeat(node.depth);
    match node.id >= 0 {
        true => format!("{indent}osd.{}", node.id),
        false => format!("{indent}{kind} {}", map.crush.name(node.id).unwrap_or("")),
    }
}

fn tree_text(view: &View<'_>, nodes: &[Node]) -> String {
    let map = view.map;
    let mut t = Table::new(&[
        ("ID", Left, Right),
        ("CLASS", Left, Right),
        ("WEIGHT", Left, Right),
        ("TYPE NAME", Left, Left),
        ("STATUS", Left, Right),
        ("REWEIGHT", Left, Right),
        ("PRI-AFF", Left, Right),
    ]);
    let class = |id: i32| if id >= 0 { map.crush.item_class(id).unwrap_or("").to_owned() } else { String::new() };
    for node in nodes {
        let mut row = vec![node.id.to_string(), class(node.id), weight_text(node.weight), name_of(map, node)];
        if node.id >= 0 {
            let osd = OsdId(node.id);
            row.push(status(map, osd).into());
            row.extend([float_text(fixed(map.weight(osd))), float_text(fixed(map.primary_affinity(osd)))]);
        }
        t.row(row);
    }
    for osd in view.strays() {
        let state = [status(map, osd).to_owned(), float_text(fixed(map.weight(osd))), float_text(fixed(map.primary_affinity(osd)))];
        t.row([osd.to_string(), class(osd.0), "0".into(), format!("osd.{osd}")].into_iter().chain(state));
    }
    t.render()
}

fn node_json(map: &OsdMap, node: &Node, with_state: bool) -> Value {
    let mut v = Map::new();
    let crush = &map.crush;
    v.insert("id".into(), node.id.into());
    if let Some(class) = crush.item_class(node.id).filter(|_| node.id >= 0) {
        v.insert("device_class".into(), class.into());
    }
    let kind = crush.bucket(node.id).map_or(0, |b| i32::from(b.kind));
    let name = crush.name(node.id).map_or_else(|| format!("osd.{}", node.id), str::to_owned);
    v.insert("name".into(), name.into());
    v.insert("type".into(), crush.type_name(kind).unwrap_or("").into());
    v.insert("type_id".into(), kind.into());
    if node.id >= 0 {
        v.insert("crush_weight".into(), num(fixed(node.weight)));
        v.insert("depth".into(), node.depth.into());
    }
    if node.depth > 0 || node.id >= 0 {
        v.insert("pool_weights".into(), json!({}));
    }
    if node.id >= 0 && with_state {
        let osd = OsdId(node.id);
        v.insert("exists".into(), u8::from(map.exists(osd)).into());
        v.insert("status".into(), status(map, osd).into());
        v.insert("reweight".into(), num(fixed(map.weight(osd))));
        v.insert("primary_affinity".into(), num(fixed(map.primary_affinity(osd))));
    }
    if node.id < 0 {
        v.insert("children".into(), json!(node.children));
    }
    Value::Object(v)
}

fn tree_json(view: &View<'_>, nodes: &[Node], with_state: bool) -> Value {
    let stray = |osd: OsdId| node_json(view.map, &Node { id: osd.0, depth: 0, children: Vec::new(), weight: 0 }, with_state);
    json!({
        "nodes": nodes.iter().map(|n| node_json(view.map, n, with_state)).collect::<Vec<_>>(),
        "stray": view.strays().into_iter().filter(|_| with_state).map(stray).collect::<Vec<_>>(),
    })
}

fn states_filter<'a>(map: &'a OsdMap, cmd: &Cmd) -> Result<View<'a>, Reply> {
    let states = cmd.list("states")?;
    let known = ["up", "down", "in", "out", "destroyed"];
    if let Some(bad) = states.iter().find(|s| !known.contains(&s.as_str())) {
        return Err(Reply::err(Errno::EINVAL, format!("unrecognized state '{bad}'")));
    }
    let both = |a: &str, b: &str| states.iter().any(|s| s == a) && states.iter().any(|s| s == b);
    if both("in", "out") {
        return Err(Reply::err(Errno::EINVAL, "cannot specify both 'in' and 'out'"));
    }
    if both("up", "down") {
        return Err(Reply::err(Errno::EINVAL, "cannot specify both 'up' and 'down'"));
    }
    let filtered = !states.is_empty();
    let keep = move |osd: OsdId| {
        states.iter().all(|s| match s.as_str() {
            "up" => map.is_up(osd),
            "down" => map.exists(osd) && map.is_down(osd) && !map.is_destroyed(osd),
            "in" => map.is_in(osd),
            "out" => map.exists(osd) && !map.is_in(osd),
            _ => map.is_destroyed(osd),
        })
    };
    Ok(View { map, shadows: false, keep: Box::new(keep), filtered })
}

fn tree(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let view = states_filter(&map, cmd)?;
    let nodes = view.nodes(&map.crush.nonshadow_roots());
    Ok(Reply::either(cmd.format, || tree_text(&view, &nodes), || tree_json(&view, &nodes, true)))
}

fn tree_from(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = map_of_epoch(ctx, cmd)?;
    let name = cmd.text("bucket")?;
    let root = map.crush.item(name).ok_or_else(|| Reply::err(Errno::ENOENT, format!("bucket '{name}' does not exist")))?;
    if root >= 0 {
        return Err(Reply::err(Errno::EINVAL, format!("\"{name}\" is not a bucket")));
    }
    let view = states_filter(&map, cmd)?;
    let nodes = view.nodes(&[root]);
    Ok(Reply::either(cmd.format, || tree_text(&view, &nodes), || tree_json(&view, &nodes, true)))
}

fn crush_tree(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let shadows = !cmd.text("shadow")?.is_empty() || !cmd.text("show_shadow")?.is_empty() || cmd.flag("show_shadow");
    let view = View { map: &map, shadows, keep: Box::new(|_| true), filtered: false };
    let roots = if shadows { map.crush.roots() } else { map.crush.nonshadow_roots() };
    let nodes = view.nodes(&roots);
    let text = || {
        let mut t = Table::new(&[("ID", Left, Right), ("CLASS", Left, Right), ("WEIGHT", Left, Right), ("TYPE NAME", Left, Left)]);
        for node in &nodes {
            let class = match node.id >= 0 {
                true => map.crush.item_class(node.id).unwrap_or(""),
                false => map.crush.split_class(node.id).and_then(|(_, c)| map.crush.class_names.get(&c?)).map_or("", String::as_str),
            };
            t.row([node.id.to_string(), class.to_owned(), weight_text(node.weight), name_of(&map, node)]);
        }
        t.render()
    };
    Ok(Reply::either(cmd.format, text, || tree_json(&view, &nodes, false)))
}
