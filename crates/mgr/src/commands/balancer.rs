//! `balancer ...`.
//!
//! Upstream: handle_command in src/pybind/mgr/balancer/module.py.

use super::Answer;
use crate::balancer::eval::Eval;
use crate::balancer::model::Change;
use crate::balancer::{Plan, Step};
use crate::core::Mgr;
use admin::command::{Args, Command, CommandError, Reply};
use admin::json::pretty;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use types::map::{OsdMap, Release};
use types::{Errno, Now, PoolId};

impl Mgr {
    pub(super) fn balancer_command(&mut self, now: Now, command: &Command, args: &Args) -> Answer {
        match command.prefix.as_str() {
            "balancer status" => Ok(Reply::output(pretty(&self.balancer_status()))),
            "balancer mode" => self.balancer_mode(args.require("mode")?),
            "balancer on" => Ok(self.balancer_switch(now, true)),
            "balancer off" => Ok(self.balancer_switch(now, false)),
            "balancer pool ls" => Ok(self.balancer_pools()),
            "balancer pool add" => self.balancer_pool_add(args),
            "balancer pool rm" => Ok(self.balancer_pool_rm(args)),
            "balancer eval" => self.balancer_eval(args, false),
            "balancer eval-verbose" => self.balancer_eval(args, true),
            "balancer optimize" => self.balancer_optimize(now, args),
            "balancer show" => self.plan(args).map(|plan| Reply::output(show(plan))),
            "balancer dump" => self.plan(args).map(|plan| Reply::output(pretty(&dump(plan)))),
            "balancer ls" => Ok(Reply::output(pretty(&json!(self.balancer.plans.keys().collect::<Vec<_>>())))),
            "balancer rm" => {
                self.balancer.plans.remove(args.require("plan")?);
                Ok(Reply::default())
            }
            "balancer reset" => {
                self.balancer.plans.clear();
                Ok(Reply::default())
            }
            "balancer execute" => self.balancer_execute(args),
            other => Err(super::not_built(other)),
        }
    }

    fn balancer_mode(&mut self, mode: &str) -> Answer {
        let oldest = self.osdmap().require_min_compat_client;
        if mode == "upmap" && oldest < Release::LUMINOUS {
            let text = format!(
                "min_compat_client \"{oldest}\" < \"luminous\", which is required for pg-upmap. Try \"ceph osd set-require-min-compat-client \
                 luminous\" before enabling this mode"
            );
            return Err(CommandError::new(Errno::EPERM, text));
        }
        self.set_own_option("mgr/balancer/mode", mode);
        Ok(Reply::default())
    }

    fn balancer_switch(&mut self, now: Now, on: bool) -> Reply {
        if self.settings().balancer.active != on {
            self.set_own_option("mgr/balancer/active", if on { "true" } else { "false" });
        }
        self.wake_balancer(now);
        Reply::default()
    }

    fn balancer_pools(&self) -> Reply {
        let ids = &self.settings().balancer.pool_ids;
        if ids.is_empty() {
            return Reply::default();
        }
        let mut names: Vec<&String> = ids.iter().filter_map(|id| self.osdmap().pool_name.get(id)).collect();
        names.sort();
        Reply::output(pretty(&json!(names)))
    }

    fn balancer_pool_add(&mut self, args: &Args) -> Answer {
        let names = args.strings("pools");
        let unknown: Vec<&&str> = names.iter().filter(|name| self.osdmap().pool_id(name).is_none()).collect();
        if !unknown.is_empty() {
            return Err(CommandError::invalid(format!("pool(s) {} not found", list(&unknown))));
        }
        let mut ids = self.settings().balancer.pool_ids.clone();
        ids.extend(names.iter().filter_map(|name| self.osdmap().pool_id(name)));
        self.set_balancer_pools(&ids);
        Ok(Reply::default())
    }

    fn balancer_pool_rm(&mut self, args: &Args) -> Reply {
        let mut ids = self.settings().balancer.pool_ids.clone();
        if ids.is_empty() {
            return Reply::default();
        }
        let gone: Vec<PoolId> = args.strings("pools").iter().filter_map(|name| self.osdmap().pool_id(name)).collect();
        ids.retain(|id| !gone.contains(id) && self.osdmap().pools.contains_key(id));
        self.set_balancer_pools(&ids);
        Reply::default()
    }

    fn set_balancer_pools(&mut self, ids: &BTreeSet<PoolId>) {
        let text = ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",");
        self.set_own_option("mgr/balancer/pool_ids", &text);
    }

    fn balancer_eval(&self, args: &Args, verbose: bool) -> Answer {
        let ids = |names: &[String]| names.iter().filter_map(|name| self.osdmap().pool_id(name)).collect();
        let show = |map: &OsdMap, only: &BTreeSet<PoolId>, what: &str| Ok(Reply::output(Eval::new(map, self.pgs(), only).show(what, verbose)));
        match args.str("option") {
            None => show(self.osdmap(), &BTreeSet::new(), "current cluster"),
            Some(name) => match (self.balancer.plans.get(name), self.osdmap().pool_id(name)) {
                (Some(plan), _) => show(&planned(plan), &ids(&plan.pools), &format!("plan \"{name}\"")),
                (None, Some(pool)) => show(self.osdmap(), &BTreeSet::from([pool]), &format!("pool \"{name}\"")),
                (None, None) => Err(CommandError::invalid(format!("option \"{name}\" not a plan or a pool"))),
            },
        }
    }

    fn balancer_optimize(&mut self, now: Now, args: &Args) -> Answer {
        if self.settings().balancer.active {
            return Err(CommandError::invalid("Balancer enabled, disable to optimize manually"));
        }
        let pools: Vec<String> = args.strings("pools").into_iter().map(str::to_owned).collect();
        let unknown: Vec<&String> = pools.iter().filter(|name| self.osdmap().pool_id(name).is_none()).collect();
        if !unknown.is_empty() {
            return Err(CommandError::invalid(format!("pools {} not found", list(&unknown))));
        }
        let plan = self.optimize(now, &pools).map_err(|(errno, why)| CommandError::new(errno, why))?;
        self.balancer.plans.insert(args.require("plan")?.to_owned(), plan);
        Ok(Reply::default())
    }

    fn balancer_execute(&mut self, args: &Args) -> Answer {
        if self.settings().balancer.active {
            return Err(CommandError::invalid("Balancer enabled, disable to execute a plan"));
        }
        let orders: Vec<String> = self.plan(args)?.steps.iter().map(Step::command).collect();
        self.balancer.plans.remove(args.require("plan")?);
        self.mon_orders.extend(orders);
        Ok(Reply::default())
    }

    fn plan(&self, args: &Args) -> Result<&Plan, CommandError> {
        let name = args.require("plan")?;
        self.balancer.plans.get(name).ok_or_else(|| CommandError::new(Errno::ENOENT, format!("plan {name} not found")))
    }
}

/// `['a', 'b']`
fn list(names: &[impl AsRef<str>]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("'{}'", name.as_ref())).collect();
    format!("[{}]", names.join(", "))
}

/// The map as the plan would make it.
fn planned(plan: &Plan) -> OsdMap {
    let mut map = OsdMap::clone(&plan.map);
    plan.steps.iter().for_each(|step| step.apply(&mut map));
    map
}

/// The plan as commands for a shell.
fn show(plan: &Plan) -> String {
    let head = [
        format!("# starting osdmap epoch {}", plan.map.epoch),
        format!("# starting crush version {}", plan.map.crush_version),
        format!("# mode {}", plan.mode),
    ];
    head.into_iter().chain(plan.steps.iter().map(Step::typed)).collect::<Vec<_>>().join("\n")
}

/// The plan as the step of the map that it would be, as far as it is one: weights are not shown, as in stock.
fn dump(plan: &Plan) -> Value {
    let upmaps = plan.steps.iter().filter_map(|step| if let Step::Upmap(change) = step { Some(change) } else { None });
    let (gone, new): (Vec<&Change>, Vec<&Change>) = upmaps.partition(|change| change.items.is_empty());
    let items = |change: &&Change| {
        let mappings: Vec<Value> = change.items.iter().map(|(from, to)| json!({"from": from.0, "to": to.0})).collect();
        json!({"pgid": change.pg.to_string(), "mappings": mappings})
    };
    json!({
        "epoch": plan.map.epoch.next().0, "fsid": plan.map.fsid.to_string(), "new_pg_upmap": [], "old_pg_upmap": [],
        "new_pg_upmap_items": new.iter().map(items).collect::<Vec<_>>(),
        "old_pg_upmap_items": gone.iter().map(|change| change.pg.to_string()).collect::<Vec<_>>(),
    })
}
