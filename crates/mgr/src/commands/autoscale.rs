//! What operators say to the autoscaler, and `osd reweight-by-...`.

use super::{Answer, both};
use crate::core::Mgr;
use crate::reweight::Request;
use admin::command::{Args, Command, CommandError, Reply};
use admin::human::general;
use serde_json::json;
use std::collections::BTreeSet;
use types::{Errno, PoolId};

impl Mgr {
    pub(super) fn autoscale(&self, command: &Command, args: &Args) -> Reply {
        // This one command has a format of its own besides.
        let wants_json = command.format.is_json() || args.str("format").is_some_and(|f| f.starts_with("json"));
        match wants_json {
            true => both(command, &self.autoscale_json()),
            false => Reply::output(self.autoscale_text()),
        }
    }

    /// The switch over all pools, those that are still to be made too.
    pub(super) fn noautoscale(&mut self, verb: &str) -> Reply {
        let off = self.settings().autoscale.off;
        match (verb, off) {
            ("get", _) => Reply::status(format!("noautoscale is {}", if off { "on" } else { "off" })),
            ("set", true) => Reply::status("noautoscale is already set!"),
            ("unset", false) => Reply::status("noautoscale is already unset!"),
            (verb, _) => {
                let (value, mode) = if verb == "set" { ("true", "off") } else { ("false", "on") };
                self.set_own_option("mgr/pg_autoscaler/noautoscale", value);
                let default = json!({"prefix": "config set", "who": "global", "name": "osd_pool_default_pg_autoscale_mode", "value": mode});
                self.mon_orders.push(default.to_string());
                for name in self.osdmap().pool_name.values().cloned().collect::<Vec<_>>() {
                    self.mon_orders.push(json!({"prefix": "osd pool set", "pool": name, "var": "pg_autoscale_mode", "val": mode}).to_string());
                }
                Reply::status(format!("noautoscale is {verb}, all pools now have autoscale {mode}"))
            }
        }
    }

    pub(super) fn reweight_command(&mut self, command: &Command, args: &Args) -> Answer {
        let settings = self.settings();
        let unknown = |name: &str| CommandError::new(Errno::ENOENT, format!("pool '{name}' does not exist"));
        let pool = |name: &str| self.osdmap().pool_id(name).ok_or_else(|| unknown(name));
        let request = Request {
            overload: args.int("oload").unwrap_or(120),
            max_change: args.float("max_change").unwrap_or(settings.reweight_max_change),
            max_osds: args.int("max_osds").unwrap_or(settings.reweight_max_osds),
            by_pg: command.prefix.ends_with("by-pg"),
            pools: args.strings("pools").into_iter().map(pool).collect::<Result<BTreeSet<PoolId>, _>>()?,
            no_increasing: args.flag("no_increasing"),
        };
        if request.max_change <= 0.0 {
            return Err(CommandError::invalid(format!("max_change {} must be positive", general(request.max_change, 6))));
        }
        if request.max_osds <= 0 {
            return Err(CommandError::invalid(format!("max_osds {} must be positive", request.max_osds)));
        }
        let outcome = self.reweight(request).map_err(|(errno, why)| CommandError::new(errno, format!("{why}FAILED reweight-by-pg")))?;
        let output = match command.format.is_json() {
            true => both(command, &outcome.json()).output,
            false => outcome.text().into_bytes(),
        };
        if command.prefix.contains(" test-") || outcome.weights.is_empty() {
            return Ok(Reply { output, ..Reply::status("no change") });
        }
        self.mon_orders.push(outcome.order());
        Ok(Reply { output, ..Reply::default() })
    }
}
