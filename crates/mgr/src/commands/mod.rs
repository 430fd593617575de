//! Commands: which answers which, and how results become replies.
//!
//! Who may call what is checked by the node, which knows the session; here everybody may.

mod autoscale;
mod balancer;
mod force;
mod osd;
mod pg;
mod scrub;
mod stop;

use crate::core::Mgr;
use crate::show::{config, iostat};
use admin::command::{Args, Command, CommandError, CommandSpec, CommandTable, MGR_COMMANDS, Reply};
use serde_json::{Value, json};
use std::sync::LazyLock;
use types::{Errno, Now};

static TABLE: LazyLock<CommandTable> = LazyLock::new(|| CommandTable::new(MGR_COMMANDS));

type Answer = Result<Reply, CommandError>;

impl Mgr {
    /// The manager's commands.
    pub fn commands() -> &'static CommandTable {
        &TABLE
    }

    /// The specification and typed arguments of a command: for the check of capabilities, then for `run`.
    pub fn resolve(command: &Command) -> Result<(&'static CommandSpec, Args), CommandError> {
        match TABLE.check(command) {
            Err(e) if !TABLE.knows(&command.prefix) => {
                Err(CommandError::new(e.errno, format!("No handler found for '{}'", command.prefix)))
            }
            other => other,
        }
    }

    /// Answers a command.
    pub fn run(&mut self, now: Now, command: &Command, args: &Args) -> Reply {
        let words: Vec<&str> = command.prefix.split(' ').collect();
        let answer = match words.as_slice() {
            ["get_command_descriptions"] => Ok(Reply::output(TABLE.describe(&[]))),
            ["pg", "force-recovery" | "force-backfill" | "cancel-force-recovery" | "cancel-force-backfill"] => self.force_pgs(command, args),
            ["osd", "pool", "force-recovery" | "force-backfill" | "cancel-force-recovery" | "cancel-force-backfill"] => {
                self.force_pools(command, args)
            }
            ["osd", "force-create-pg"] => self.force_create_pg(args),
            ["pg", "scrub" | "deep-scrub" | "repair"] => self.scrub_pg(command, args),
            ["osd", "scrub" | "deep-scrub" | "repair"] => self.scrub_osds(command, args),
            ["osd", "pool", "scrub" | "deep-scrub" | "repair"] => self.scrub_pools(command, args),
            ["pg", ..] => self.pg_command(now, command, args),
            ["osd", "pool", "autoscale-status"] => Ok(self.autoscale(command, args)),
            ["osd", "pool", verb @ ("get" | "set" | "unset"), "noautoscale"] => Ok(self.noautoscale(verb)),
            ["osd", "reweight-by-utilization" | "reweight-by-pg" | "test-reweight-by-utilization" | "test-reweight-by-pg"] => {
                self.reweight_command(command, args)
            }
            ["osd", ..] => self.osd_command(now, command, args),
            ["iostat"] => {
                let width = args.int("width").and_then(|w| usize::try_from(w).ok()).unwrap_or(80).min(1000);
                Ok(Reply::output(iostat::line(&self.rates().total(), width, args.flag("print_header"))))
            }
            ["config", ..] => self.config_command(command, args),
            ["service", "dump"] => Ok(both(command, &self.services().dump())),
            ["service", "status"] => Ok(both(command, &self.services().status())),
            ["progress", ..] => Ok(self.progress_command(now, command)),
            ["balancer", ..] => self.balancer_command(now, command, args),
            // An empty list would say that nothing has crashed, and that there are no devices.
            ["crash", ..] => Err(not_supported("Cuttlebone keeps no reports of crashes: a daemon's last words are in its log")),
            ["device", ..] => Err(not_supported("Cuttlebone does not tell devices apart: 'ceph osd metadata' says where an OSD keeps its data")),
            ["telemetry", "status"] => {
                let status = json!({"enabled": false, "why": "Cuttlebone sends nothing to anyone"});
                Ok(both(command, &status))
            }
            ["orch", ..] => Err(CommandError::new(Errno::ENOENT, "No orchestrator configured: Cuttlebone deploys itself")),
            ["fs", "status"] => Ok(if command.format.is_json() { both(command, &json!({})) } else { Reply::default() }),
            ["rbd", "task", "list"] => Ok(both(command, &json!([]))),
            _ => Err(not_built(&command.prefix)),
        };
        answer.into()
    }

    fn progress_command(&mut self, now: Now, command: &Command) -> Reply {
        match command.prefix.as_str() {
            "progress json" => Reply::output(admin::json::pretty(&self.progress.json(now.mono))),
            "progress" => match self.progress.text(now.mono) {
                Some(text) => Reply::output(text),
                None => Reply::status("Nothing in progress"),
            },
            _ => {
                self.progress.clear();
                Reply::default()
            }
        }
    }

    fn config_command(&self, command: &Command, args: &Args) -> Answer {
        let who = args.require("who")?;
        let unknown = || CommandError::new(Errno::ENOENT, format!("no config state for daemon {who}"));
        let reported = self.config_of(who).ok_or_else(unknown)?;
        if let Some(name) = args.str("key") {
            let value = config::value(reported, name).ok_or_else(|| CommandError::new(Errno::ENOENT, ""))?;
            return Ok(Reply::output(value + "\n"));
        }
        let options = config::listed(reported, command.prefix.ends_with("defaults"));
        Ok(match command.format.is_json() {
            true => both(command, &config::json(&options)),
            false => Reply::output(config::text(&options)),
        })
    }
}

/// JSON in the format asked for; plain stands for pretty, as in modules of stock.
fn both(command: &Command, value: &Value) -> Reply {
    Reply::output(command.format.render(value))
}

/// What is not built says so.
fn not_built(what: &str) -> CommandError {
    not_supported(&format!("'{what}' is not built in Cuttlebone yet"))
}

fn not_supported(why: &str) -> CommandError {
    CommandError::new(Errno::EOPNOTSUPP, why)
}
