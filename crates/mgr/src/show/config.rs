//! `config show`: options in force in a daemon, as it reported them.
//!
//! Upstream: src/mgr/DaemonServer.cc.

use admin::TextTable;
use admin::option;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::msg::internal::ConfigInForce;

/// Every option with a value of its own, or all of them.
pub fn listed(reported: &BTreeMap<String, ConfigInForce>, defaults: bool) -> BTreeMap<String, ConfigInForce> {
    let mut out = reported.clone();
    if defaults {
        for o in option::all() {
            let standing = || ConfigInForce { value: o.default_for(true), source: "default".into(), overrides: vec![] };
            out.entry(o.name.to_string()).or_insert_with(standing);
        }
    }
    out
}

/// The value of one option; `None` for one that does not exist.
pub fn value(reported: &BTreeMap<String, ConfigInForce>, name: &str) -> Option<String> {
    let spec = option::find(name)?;
    Some(reported.get(spec.name).map_or_else(|| spec.default_for(true), |c| c.value.clone()))
}

/// As a table.
pub fn text(options: &BTreeMap<String, ConfigInForce>) -> String {
    let mut t = TextTable::new().left("NAME").left("VALUE").left("SOURCE").left("OVERRIDES").left("IGNORES");
    for (name, c) in options {
        let overrides: Vec<String> = c.overrides.iter().map(|(source, value)| format!("{source}[{value}]")).collect();
        t.row([name, &c.value, &c.source, &overrides.join(","), ""]);
    }
    t.render()
}

/// As JSON.
pub fn json(options: &BTreeMap<String, ConfigInForce>) -> Value {
    let option = |(name, c): (&String, &ConfigInForce)| {
        let mut out = json!({"name": name, "value": c.value, "source": c.source});
        if !c.overrides.is_empty() {
            let overruled = c.overrides.iter().rev().map(|(source, value)| json!({"source": source, "value": value}));
            out["overrides"] = overruled.collect();
        }
        out
    };
    options.iter().map(option).collect()
}
