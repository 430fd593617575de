//! `osd df`: how full every OSD is, flat or as the CRUSH tree.
//!
//! Upstream: OSDUtilizationDumper in src/osd/OSDMap.cc, CrushTreeDumper in src/crush/CrushTreeDumper.h.

use crate::core::Mgr;
use admin::TextTable;
use admin::human::{bytes, weight};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use types::OsdId;
use types::pg::StoreStatfs;

/// One line.
struct Node {
    id: i32,
    depth: usize,
    parent: Option<i32>,
    usage: StoreStatfs,
    pgs: usize,
}

/// Averages over OSDs that are in.
#[derive(Default)]
struct Spread {
    total: StoreStatfs,
    average: f64,
    min_var: f64,
    max_var: f64,
    deviation: f64,
}

/// What to show.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub class: Option<String>,
    /// A CRUSH bucket or OSD.
    pub under: Option<i32>,
}

impl Mgr {
    /// The table, with buckets and a last column if `tree`.
    pub(crate) fn osd_df_text(&self, tree: bool, filter: &Filter) -> String {
        let spread = self.spread(filter);
        let mut t = TextTable::new();
        let columns = [
            "ID", "CLASS", "WEIGHT", "REWEIGHT", "SIZE", "RAW USE", "DATA", "OMAP", "META", "AVAIL", "%USE", "VAR", "PGS",
            "STATUS",
        ];
        t = columns.iter().fold(t, |t, name| t.figures(name));
        if tree {
            t = t.left("TYPE NAME");
        }
        let nodes = self.nodes(filter);
        let strays = self.strays(&nodes, filter);
        for node in nodes.into_iter().filter(|n| tree || n.id >= 0).chain(strays) {
            t.row(self.df_row(&node, &spread));
        }
        let mut total = vec![String::new(), String::new(), String::new(), "TOTAL".into()];
        total.extend(sizes(&spread.total));
        total.push(format!("{:.2}", spread.average));
        t.row(total);
        let (low, high) = (two_digits(spread.min_var), two_digits(spread.max_var));
        format!("{}MIN/MAX VAR: {low}/{high}  STDDEV: {}\n", t.render(), two_digits(spread.deviation))
    }

    /// The same as JSON.
    pub(crate) fn osd_df_json(&self, tree: bool, filter: &Filter) -> Value {
        let spread = self.spread(filter);
        let nodes = self.nodes(filter);
        let shown = nodes.iter().filter(|n| tree || n.id >= 0);
        let f = &spread.total;
        json!({
            "nodes": shown.map(|n| self.df_node(n, &spread, &nodes)).collect::<Vec<_>>(),
            "stray": self.strays(&nodes, filter).iter().map(|n| self.df_node(n, &spread, &nodes)).collect::<Vec<_>>(),
            "summary": {
                "total_kb": f.total >> 10, "total_kb_used": f.used_raw() >> 10, "total_kb_used_data": f.allocated >> 10,
                "total_kb_used_omap": f.omap_allocated >> 10, "total_kb_used_meta": f.internal_metadata >> 10,
                "total_kb_avail": f.available >> 10, "average_utilization": spread.average,
                "min_var": spread.min_var, "max_var": spread.max_var, "dev": spread.deviation,
            },
        })
    }

    fn df_row(&self, node: &Node, spread: &Spread) -> Vec<String> {
        let (map, crush) = (self.osdmap(), &self.osdmap().crush);
        let osd = (node.id >= 0).then_some(OsdId(node.id));
        let use_percent = utilization(&node.usage);
        let mut row = vec![
            node.id.to_string(),
            crush.item_class(node.id).filter(|_| osd.is_some()).unwrap_or_default().into(),
            weight(self.crush_weight(node) as f32),
            osd.map_or("-".into(), |o| weight(map.weight(o) as f32 / 65536.0)),
        ];
        row.extend(sizes(&node.usage));
        row.push(two_digits(use_percent));
        row.push(two_digits(variance(use_percent, spread)));
        row.push(osd.map_or("-".into(), |_| node.pgs.to_string()));
        row.push(osd.map_or(String::new(), |o| if map.is_up(o) { "up" } else { "down" }.into()));
        row.push(format!("{}{}", "    ".repeat(node.depth), self.tree_name(node.id)));
        row
    }

    fn df_node(&self, node: &Node, spread: &Spread, all: &[Node]) -> Value {
        let (map, crush, f) = (self.osdmap(), &self.osdmap().crush, &node.usage);
        let osd = (node.id >= 0).then_some(OsdId(node.id));
        let kind = crush.bucket(node.id).map_or(0, |b| i32::from(b.kind));
        let mut out = Map::new();
        let mut put = |name: &str, value: Value| {
            out.insert(name.into(), value);
        };
        put("id", node.id.into());
        if let Some(class) = crush.item_class(node.id).filter(|_| osd.is_some()) {
            put("device_class", class.into());
        }
        put("name", crush.name(node.id).map_or(format!("osd.{}", node.id), str::to_owned).into());
        put("type", crush.type_name(kind).unwrap_or("osd").into());
        put("type_id", kind.into());
        if osd.is_some() {
            put("crush_weight", self.crush_weight(node).into());
            put("depth", node.depth.into());
        }
        if node.parent.is_some() {
            put("pool_weights", json!({}));
        }
        put("reweight", osd.map_or(-1.0, |o| f64::from(map.weight(o)) / 65536.0).into());
        put("kb", (f.total >> 10).into());
        put("kb_used", (f.used_raw() >> 10).into());
        put("kb_used_data", (f.allocated >> 10).into());
        put("kb_used_omap", (f.omap_allocated >> 10).into());
        put("kb_used_meta", (f.internal_metadata >> 10).into());
        put("kb_avail", (f.available >> 10).into());
        let use_percent = utilization(f);
        put("utilization", use_percent.into());
        put("var", variance(use_percent, spread).into());
        put("pgs", if osd.is_some() { node.pgs.into() } else { 0.into() });
        match osd {
            Some(o) => put("status", if map.is_up(o) { "up" } else { "down" }.into()),
            None => {
                let children = all.iter().rev().filter(|n| n.parent == Some(node.id)).map(|n| n.id);
                put("children", children.collect::<Vec<_>>().into());
            }
        }
        Value::Object(out)
    }

    /// OSDs that are nowhere in the tree.
    fn strays(&self, nodes: &[Node], filter: &Filter) -> Vec<Node> {
        let placed: BTreeSet<i32> = nodes.iter().map(|n| n.id).collect();
        let map = self.osdmap();
        let stray = map.osds().map(|o| o.0).filter(|o| map.crush.parent(*o).is_none() && !placed.contains(o));
        let node = |id: i32| {
            let usage = self.usage_below(id, filter);
            Node { id, depth: 0, parent: None, usage, pgs: self.pgs().num_pgs_of(OsdId(id)) }
        };
        stray.filter(|o| self.shown(*o, filter)).map(node).collect()
    }

    /// OSDs and, above them, buckets that hold any that are shown.
    fn nodes(&self, filter: &Filter) -> Vec<Node> {
        let crush = &self.osdmap().crush;
        let mut out = vec![];
        // Bounded by the number of buckets: a map with a cycle must not turn us in circles.
        let mut open: Vec<(i32, usize, Option<i32>)> =
            crush.nonshadow_roots().into_iter().rev().map(|root| (root, 0, None)).collect();
        let most = crush.buckets.len() + self.osdmap().max_osd.max(0) as usize + 1;
        while let Some((id, depth, parent)) = open.pop() {
            if out.len() > 2 * most {
                break;
            }
            let usage = self.usage_below(id, filter);
            let shown = if id >= 0 { self.shown(id, filter) } else { !self.osds_below(id, filter).is_empty() };
            let in_scope = shown || (filter.class.is_none() && filter.under.is_none());
            if in_scope {
                out.push(Node { id, depth, parent, usage, pgs: self.pgs().num_pgs_of(OsdId(id)) });
            }
            let mut children: Vec<i32> = crush.bucket(id).map(|b| b.items.clone()).unwrap_or_default();
            children.sort_by_key(|c| std::cmp::Reverse(sort_key(crush.item_class(*c), *c, crush.name(*c))));
            open.extend(children.into_iter().map(|c| (c, depth + 1, Some(id))));
        }
        out
    }

    fn tree_name(&self, id: i32) -> String {
        let crush = &self.osdmap().crush;
        match crush.bucket(id) {
            Some(b) => format!("{} {}", crush.type_name(i32::from(b.kind)).unwrap_or("?"), crush.name(id).unwrap_or("?")),
            None => format!("osd.{id}"),
        }
    }

    fn crush_weight(&self, node: &Node) -> f64 {
        let crush = &self.osdmap().crush;
        let own = crush.bucket(node.id).map(|b| b.weight);
        let in_parent = || node.parent.and_then(|p| crush.bucket(p)).and_then(|b| Some(b.item_weight(b.position(node.id)?)));
        f64::from(own.or_else(in_parent).unwrap_or(0)) / 65536.0
    }

    fn shown(&self, osd: i32, filter: &Filter) -> bool {
        let crush = &self.osdmap().crush;
        filter.class.as_deref().is_none_or(|c| crush.item_class(osd) == Some(c))
            && filter.under.is_none_or(|root| crush.subtree_contains(root, osd))
    }

    fn osds_below(&self, id: i32, filter: &Filter) -> BTreeSet<i32> {
        self.osdmap().crush.leaves(id).into_iter().filter(|osd| self.shown(*osd, filter)).collect()
    }

    fn usage_below(&self, id: i32, filter: &Filter) -> StoreStatfs {
        let mut out = StoreStatfs::default();
        let osds = if id >= 0 { BTreeSet::from([id]) } else { self.osds_below(id, filter) };
        for osd in osds.into_iter().map(OsdId).filter(|o| self.osdmap().is_in(*o)) {
            if let Some(report) = self.pgs().osds.get(&osd) {
                out.add(&report.stat.statfs);
            }
        }
        out
    }

    fn spread(&self, filter: &Filter) -> Spread {
        let counted: Vec<(f64, StoreStatfs)> = self
            .pgs()
            .counted(self.osdmap())
            .filter(|(osd, r)| self.shown(osd.0, filter) && r.stat.statfs.total > 0)
            .map(|(osd, r)| (f64::from(self.osdmap().weight(osd)) / 65536.0, r.stat.statfs))
            .collect();
        let mut out = Spread::default();
        counted.iter().for_each(|(_, f)| out.total.add(f));
        out.average = utilization(&out.total);
        let vars = counted.iter().map(|(_, f)| variance(utilization(f), &out));
        let (low, high) = vars.fold((f64::INFINITY, 0f64), |(low, high), v| (low.min(v), high.max(v)));
        (out.min_var, out.max_var) = if counted.is_empty() { (0.0, 0.0) } else { (low, high) };
        let weights: f64 = counted.iter().map(|(w, _)| w).sum();
        let squares: f64 = counted.iter().map(|(w, f)| w * (utilization(f) - out.average).powi(2)).sum();
        out.deviation = if weights > 0.0 { (squares / weights).sqrt() } else { 0.0 };
        out
    }
}

/// Children stand by class, then OSDs by number and buckets by name.
fn sort_key(class: Option<&str>, id: i32, name: Option<&str>) -> String {
    match id {
        0.. => format!("{}_osd.{id:08}", class.unwrap_or_default()),
        _ => format!("_{}", name.unwrap_or_default()),
    }
}

fn sizes(f: &StoreStatfs) -> [String; 6] {
    let part = |n: i64| bytes(n.max(0) as u64);
    [
        bytes(f.total),
        bytes(f.used_raw()),
        part(f.allocated),
        part(f.omap_allocated),
        part(f.internal_metadata),
        bytes(f.available),
    ]
}

/// Percent, in kilobytes as upstream counts.
fn utilization(f: &StoreStatfs) -> f64 {
    match f.total >> 10 {
        0 => 0.0,
        kb => 100.0 * (f.used_raw() >> 10) as f64 / kb as f64,
    }
}

fn variance(use_percent: f64, spread: &Spread) -> f64 {
    if spread.average > 0.0 { use_percent / spread.average } else { 1.0 }
}

/// Two decimals, `0` for what is hardly anything (`lowprecision_t`).
fn two_digits(v: f64) -> String {
    match v {
        v if v < -0.01 => "-".into(),
        v if v < 0.001 => "0".into(),
        v => format!("{v:.2}"),
    }
}
