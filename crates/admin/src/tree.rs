//! `osd tree` and `osd crush tree`: the hierarchy as a table and as JSON.
//!
//! Upstream: OSDMap::print_tree in src/osd/OSDMap.cc, CrushWrapper::dump_tree in src/crush/CrushWrapper.cc.

use crate::table::TextTable;
use crush::{COMPAT_WEIGHT_SET, CrushMap, TreeNode, float};
use serde_json::{Map, Value, json};
use types::OsdId;
use types::map::OsdMap;

/// Which OSDs `osd tree` lists: those in any of the named states, or all when none is named.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeFilter {
    pub up: bool,
    pub down: bool,
    pub r#in: bool,
    pub out: bool,
    pub destroyed: bool,
}

impl TreeFilter {
    /// Adds the state of that name; `None` if there is none.
    pub fn with(mut self, state: &str) -> Option<TreeFilter> {
        match state {
            "up" => self.up = true,
            "down" => self.down = true,
            "in" => self.r#in = true,
            "out" => self.out = true,
            "destroyed" => self.destroyed = true,
            _ => return None,
        }
        Some(self)
    }

    fn is_set(&self) -> bool {
        *self != TreeFilter::default()
    }

    fn lets_through(&self, map: &OsdMap, osd: OsdId) -> bool {
        let TreeFilter { up, down, r#in, out, destroyed } = *self;
        !self.is_set()
            || up && map.is_up(osd)
            || down && map.is_down(osd)
            || r#in && map.is_in(osd)
            || out && !map.is_in(osd)
            || destroyed && map.is_destroyed(osd)
    }
}

/// Lines of an OSD map's tree, strays at the end: all roots, or the tree below one item.
struct OsdTree {
    nodes: Vec<TreeNode>,
    strays: Vec<TreeNode>,
}

impl OsdTree {
    fn new(map: &OsdMap, filter: TreeFilter, from: Option<i32>) -> OsdTree {
        let crush = &map.crush;
        let shows = |osd: i32| filter.lets_through(map, OsdId(osd));
        let roots = from.map_or_else(|| crush.nonshadow_roots(), |id| vec![id]);
        let nodes = crush.tree(&roots, filter.is_set(), &shows);
        let is_listed = |osd: i32| nodes.iter().any(|node| node.id == osd);
        let strays = map.osds().map(|osd| osd.0).filter(|&osd| from.is_none() && !is_listed(osd) && shows(osd));
        let strays = strays.map(stray).collect();
        OsdTree { nodes, strays }
    }
}

fn stray(osd: i32) -> TreeNode {
    TreeNode { id: osd, parent: None, depth: 0, weight: 0, children: Vec::new() }
}

fn status(map: &OsdMap, osd: OsdId) -> &'static str {
    match () {
        _ if map.is_up(osd) => "up",
        _ if map.is_destroyed(osd) => "destroyed",
        _ => "down",
    }
}

/// `osd tree`, `osd tree-from BUCKET` as a table.
pub fn osd_tree_plain(map: &OsdMap, filter: TreeFilter, from: Option<i32>) -> String {
    let tree = OsdTree::new(map, filter, from);
    let table = TextTable::new().figures("ID").figures("CLASS").figures("WEIGHT").left("TYPE NAME");
    let mut table = table.figures("STATUS").figures("REWEIGHT").figures("PRI-AFF");
    for node in tree.nodes.iter().chain(&tree.strays) {
        let class = map.crush.item_class(node.id).unwrap_or_default().to_owned();
        let mut row = vec![node.id.to_string(), class, weight(node.weight), label(&map.crush, node)];
        let osd = OsdId(node.id);
        match node.id {
            ..0 => {}
            _ if !map.exists(osd) => row.extend(["DNE".to_owned(), "0".to_owned()]),
            _ => {
                row.push(status(map, osd).to_owned());
                row.extend([weight(map.weight(osd)), weight(map.primary_affinity(osd))]);
            }
        }
        table.row(row);
    }
    table.render()
}

/// `osd tree -f json`.
pub fn osd_tree_json(map: &OsdMap, filter: TreeFilter, from: Option<i32>) -> Value {
    let tree = OsdTree::new(map, filter, from);
    let entry = |node: &TreeNode| {
        let mut fields = node_fields(&map.crush, &pool_name(map), node);
        let osd = OsdId(node.id);
        if node.id >= 0 {
            fields.insert("exists".into(), i32::from(map.exists(osd)).into());
            fields.insert("status".into(), status(map, osd).into());
            fields.insert("reweight".into(), float(map.weight(osd)));
            fields.insert("primary_affinity".into(), float(map.primary_affinity(osd)));
        }
        with_children(fields, node)
    };
    let nodes: Value = tree.nodes.iter().map(entry).collect();
    match from {
        Some(_) => json!({"nodes": nodes}),
        None => json!({"nodes": nodes, "stray": tree.strays.iter().map(entry).collect::<Value>()}),
    }
}

/// `osd crush tree [--show-shadow]` as a table.
pub fn crush_tree_plain(map: &OsdMap, shadows: bool) -> String {
    let crush = &map.crush;
    let name = pool_name(map);
    let mut table = TextTable::new().figures("ID").figures("CLASS").figures("WEIGHT");
    for &set in crush.choose_args.keys() {
        table = table.figures(&name(set));
    }
    let mut table = table.left("TYPE NAME");
    for node in crush_nodes(crush, shadows) {
        let class = crush.item_class(node.id).unwrap_or_default().to_owned();
        let mut row = vec![node.id.to_string(), class, weight(node.weight)];
        for &set in crush.choose_args.keys() {
            let first = crush.weights_in_set(set, &node).and_then(|weights| weights.first().copied());
            row.push(first.map(weight).unwrap_or_default());
        }
        row.push(label(crush, &node));
        table.row(row);
    }
    table.render()
}

/// `osd crush tree -f json`.
pub fn crush_tree_json(map: &OsdMap, shadows: bool) -> Value {
    let crush = &map.crush;
    let nodes = crush_nodes(crush, shadows);
    let name = pool_name(map);
    let entry = |node: &TreeNode| with_children(node_fields(crush, &name, node), node);
    let strays = crush.strays(&nodes).into_iter().map(|osd| entry(&stray(osd)));
    let strays: Value = strays.collect();
    json!({"nodes": nodes.iter().map(entry).collect::<Value>(), "stray": strays})
}

fn crush_nodes(crush: &CrushMap, shadows: bool) -> Vec<TreeNode> {
    let roots = if shadows { crush.roots() } else { crush.nonshadow_roots() };
    crush.tree(&roots, false, &|_| true)
}

/// Names of weight sets: `(compat)`, or their pool's.
fn pool_name(map: &OsdMap) -> impl Fn(i64) -> String + '_ {
    |set| match map.pool_name.iter().find(|(id, _)| id.0 == set) {
        _ if set == COMPAT_WEIGHT_SET => "(compat)".to_owned(),
        Some((_, name)) => name.to_string(),
        None => set.to_string(),
    }
}

/// Type and name, four blanks to the right for each bucket above.
fn label(crush: &CrushMap, node: &TreeNode) -> String {
    let indent = "    ".repeat(node.depth);
    match crush.bucket(node.id) {
        Some(bucket) => {
            let kind = crush.type_name(bucket.kind.into()).unwrap_or_default();
            format!("{indent}{kind} {}", crush.name(node.id).unwrap_or_default())
        }
        None => format!("{indent}osd.{}", node.id),
    }
}

fn node_fields(crush: &CrushMap, set_name: &dyn Fn(i64) -> String, node: &TreeNode) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("id".into(), node.id.into());
    if let Some(class) = crush.item_class(node.id) {
        fields.insert("device_class".into(), class.into());
    }
    let kind = crush.bucket(node.id).map_or(0, |b| i32::from(b.kind));
    let own = crush.name(node.id).unwrap_or_default().to_owned();
    fields.insert("name".into(), if node.id < 0 { own } else { format!("osd.{}", node.id) }.into());
    fields.insert("type".into(), crush.type_name(kind).unwrap_or_default().into());
    fields.insert("type_id".into(), kind.into());
    if node.id >= 0 {
        fields.insert("crush_weight".into(), float(node.weight));
        fields.insert("depth".into(), node.depth.into());
    }
    if node.parent.is_some() {
        let sets = crush.choose_args.keys().filter_map(|&set| {
            let weights = crush.weights_in_set(set, node)?;
            Some((set_name(set), weights.into_iter().map(float).collect::<Value>()))
        });
        fields.insert("pool_weights".into(), Value::Object(sets.collect()));
    }
    fields
}

fn with_children(mut fields: Map<String, Value>, node: &TreeNode) -> Value {
    if node.id < 0 {
        fields.insert("children".into(), node.children.clone().into());
    }
    fields.into()
}

/// A weight of a table: five decimals, `0` for nothing (`weightf_t` upstream).
fn weight(fixed: u32) -> String {
    match fixed as f32 / 65536.0 {
        w if w < 0.000_001 => "0".to_owned(),
        w => format!("{w:.5}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::compact;

    /// What a stock Pacific cluster answered about one map of its.
    macro_rules! stock {
        ($name:literal) => {
            include_str!(concat!("../testdata/tree/", $name))
        };
    }

    fn map() -> OsdMap {
        denc::from_slice(include_bytes!("../testdata/tree/osdmap.bin")).unwrap()
    }

    #[test]
    fn osd_trees_are_stocks_letter_for_letter() {
        let map = map();
        let all = TreeFilter::default();
        let (up, down) = (all.with("up").unwrap(), all.with("down").unwrap());
        let rack = map.crush.item("r1");
        assert_eq!(osd_tree_plain(&map, all, None), stock!("osd-tree.txt"));
        assert_eq!(osd_tree_plain(&map, up, None), stock!("osd-tree-up.txt"));
        assert_eq!(osd_tree_plain(&map, all, rack), stock!("osd-tree-from.txt"));
        assert_eq!(compact(&osd_tree_json(&map, all, None)), stock!("osd-tree.json").trim());
        assert_eq!(compact(&osd_tree_json(&map, down, None)), stock!("osd-tree-down.json").trim());
        assert_eq!(compact(&osd_tree_json(&map, all, rack)), stock!("osd-tree-from.json").trim());
        assert_eq!(all.with("sideways"), None);
    }

    #[test]
    fn crush_trees_are_stocks_letter_for_letter() {
        let map = map();
        assert_eq!(crush_tree_plain(&map, false), stock!("crush-tree.txt"));
        assert_eq!(crush_tree_plain(&map, true), stock!("crush-tree-shadow.txt"));
        assert_eq!(compact(&crush_tree_json(&map, false)), stock!("crush-tree.json").trim());
        assert_eq!(compact(&crush_tree_json(&map, true)), stock!("crush-tree-shadow.json").trim());
    }

    #[test]
    fn a_crush_dump_is_stocks_letter_for_letter() {
        assert_eq!(compact(&map().crush.dump_json()), stock!("crush-dump.json").trim());
    }
}
