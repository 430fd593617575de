//! Commands to an OSD: `ceph tell osd.N ...`, `ceph pg <pgid> query`, and the admin socket.
//!
//! Holds: what is printed is this moment's state, and printing it changes nothing.
//! Upstream: OSD::asok_command, src/osd/OSD.cc; PrimaryLogPG::do_command.

mod bench;
mod history;
mod pgs;
mod table;

pub(crate) use bench::Bench;
pub(crate) use history::{Finished, History, Senders};

use crate::disk::Disk;
use crate::memory::Plan;
use crate::effects::Effect;
use crate::osd::{Osd, OsdConfig};
use admin::command::Reply;
use admin::option::{ConfigValues, Source};
use admin::{Args, Command, CommandError, CommandTable, Format};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::msg::internal::ConfigInForce;
use types::json::Obj;
use types::pg::{NetworkPing, OsdPing};
use types::{EntityKind, EntityName, Errno, Now, Utime};

/// What commands need to know besides the OSD.
pub(crate) struct Commands {
    table: CommandTable,
    pub config: ConfigValues,
    pub bench: Option<Bench>,
}

/// Objects being recovered at once if nobody configured it.
const RECOVERY_MAX: usize = 64;
/// The same while no client asks for anything: the messages of one turn are on their way while those of the next are being read.
const RECOVERY_MAX_ALONE: usize = 256;

/// PGs that recover at once from an OSD, and to one. With one, half of the time is beginnings and ends when clients are busy.
const BACKFILLS_MAX: usize = 4;

/// Entries of all logs of an OSD while copies are away: some 60 MB, for the store keeps their rows in memory, too.
const LOG_ENTRIES: usize = 100_000;

impl Commands {
    pub fn new(config: &OsdConfig) -> Self {
        let host = config.metadata.get("hostname").map(String::as_str).unwrap_or_default();
        let name = EntityName::new(EntityKind::OSD, config.whoami.to_string());
        Commands {
            table: CommandTable::new(table::COMMANDS),
            config: config.options.clone().unwrap_or_else(|| ConfigValues::new(name, "ceph", host)),
            bench: None,
        }
    }

    /// `osd_pg_log_dups_tracked`.
    pub fn log_dups_tracked(&self) -> u64 {
        self.config.u64("osd_pg_log_dups_tracked")
    }

    /// False if a stopping OSD is to end without waiting for the map to say so (`osd_fast_shutdown`).
    pub fn says_that_it_stops(&self) -> bool {
        !self.config.bool("osd_fast_shutdown") || self.config.bool("osd_fast_shutdown_notify_mon")
    }

    /// `osd_heartbeat_grace`.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(self.config.u64("osd_heartbeat_grace").max(1))
    }

    /// How long others promise to start nothing without us (`osd_pool_default_read_lease_ratio` of the grace): whoever is
    /// silent has lost that before it is called down.
    pub fn lease(&self) -> Duration {
        self.grace().mul_f64(self.config.f64("osd_pool_default_read_lease_ratio").clamp(0.01, 1.0))
    }

    /// True if somebody set an option of recovery, and the scheduler leaves it to him.
    fn counts(&self, name: &str) -> bool {
        self.config.is_set(name) && admin::option::left_to_scheduler(name, |name| self.config.str(name)).is_none()
    }

    /// `osd_max_backfills`: as somebody configured, else so many that one begins or ends while others keep the way busy. What is on
    /// its way is bounded for all of them together.
    pub fn max_backfills(&self) -> usize {
        let name = "osd_max_backfills";
        if self.counts(name) { self.config.u64(name).max(1) as usize } else { BACKFILLS_MAX }
    }

    /// Objects being recovered at once: as somebody configured, for all devices or such a one; else as many as keep the
    /// way to the next OSD busy. Upstream's own figures for devices (10 and 3) are what a PG of theirs may have, one object
    /// to a message and a transaction: they would leave us idle.
    pub fn recovery_max(&self, device_class: &str) -> usize {
        self.configured_recovery_max(device_class).unwrap_or(RECOVERY_MAX)
    }

    /// The same while no client asks for anything.
    pub fn recovery_max_alone(&self, device_class: &str) -> usize {
        self.configured_recovery_max(device_class).unwrap_or(RECOVERY_MAX_ALONE)
    }

    fn configured_recovery_max(&self, device_class: &str) -> Option<usize> {
        let device = match device_class {
            "hdd" => "osd_recovery_max_active_hdd",
            _ => "osd_recovery_max_active_ssd",
        };
        let all = "osd_recovery_max_active";
        match (if self.counts(all) { self.config.u64(all) } else { 0 }, self.counts(device)) {
            (0, false) => None,
            (0, true) => Some(self.config.u64(device).max(1) as usize),
            (n, _) => Some(n as usize),
        }
    }

    /// Between two starts of recovering an object: as somebody configured, for all devices or such a one; else nothing.
    pub fn recovery_sleep(&self, device_class: &str) -> Duration {
        let device = match device_class {
            "hdd" => "osd_recovery_sleep_hdd",
            _ => "osd_recovery_sleep_ssd",
        };
        match if self.counts("osd_recovery_sleep") { self.config.duration("osd_recovery_sleep") } else { Duration::ZERO } {
            Duration::ZERO if self.counts(device) => self.config.duration(device),
            all => all,
        }
    }

    /// Entries a PG's log keeps: `ours`, unless somebody configured at least (`osd_min_pg_log_entries`) or at most so many
    /// (`osd_max_pg_log_entries`).
    pub fn log_entries(&self, ours: usize) -> usize {
        let set = |name| self.config.is_set(name).then(|| self.config.u64(name) as usize);
        let least = set("osd_min_pg_log_entries").map_or(ours, |min| ours.max(min));
        set("osd_max_pg_log_entries").map_or(least, |max| least.min(max)).max(1)
    }

    /// Entries a PG's log keeps while a copy is away, on an OSD with so many PGs: its part of `osd_target_pg_log_entries_per_osd`, or of
    /// what we can afford in that much memory; no fewer than `least`, and no more than `osd_max_pg_log_entries`.
    pub fn log_entries_degraded(&self, least: usize, pgs: usize, memory: &Plan) -> usize {
        let name = "osd_target_pg_log_entries_per_osd";
        let target = if self.config.is_set(name) { self.config.u64(name) as usize } else { LOG_ENTRIES / 1000 * memory.log_share };
        (target / pgs.max(1)).min(self.config.u64("osd_max_pg_log_entries") as usize).max(least)
    }

    /// Options that are not at their default, for the manager.
    pub fn config_in_force(&self) -> BTreeMap<String, ConfigInForce> {
        self.config.in_force()
    }
}

impl Osd {
    /// Runs a command; the answer is an effect with the same `id`, now or later.
    pub fn handle_command(&mut self, now: Now, disk: &mut dyn Disk, id: u64, command: &Command, fx: &mut Vec<Effect>) {
        match self.run_command(now, disk, id, command, fx) {
            Ok(None) => {}
            Ok(Some(reply)) => fx.push(Effect::CommandReply { id, reply }),
            Err(e) => fx.push(Effect::CommandReply { id, reply: e.into() }),
        }
    }

    /// What the monitors configure for us.
    pub fn handle_config(&mut self, config: &BTreeMap<String, String>) {
        self.commands.config.replace_mon(config);
        self.apply_options();
    }

    /// Options take effect.
    pub(crate) fn apply_options(&mut self) {
        self.sh.log_dups_tracked = self.commands.log_dups_tracked();
        self.sh.recovery_max = self.commands.recovery_max(&self.config.device_class);
        self.sh.recovery_max_alone = self.commands.recovery_max_alone(&self.config.device_class);
        self.sh.recovery_pace.set(self.commands.recovery_sleep(&self.config.device_class));
        self.sh.recovery_freed = true;
        self.sh.shares = crate::shares::shares(&self.commands.config);
        self.store_told = None;
        self.sh.log_entries_max = self.commands.log_entries(self.config.log_entries_max);
        self.sh.local_slots.set_max(self.commands.max_backfills());
        self.sh.remote_slots.set_max(self.commands.max_backfills());
        self.sh.scrub = crate::pg::ScrubOptions::new(&self.commands.config);
        self.sh.trim = crate::pg::TrimOptions::new(&self.commands.config);
        let c = &self.commands.config;
        self.sh.scan_min = c.u64("osd_backfill_scan_min").max(1) as usize;
        self.sh.scan_max = (c.u64("osd_backfill_scan_max") as usize).max(self.sh.scan_min);
        self.heartbeats.grace = self.commands.grace();
        self.sh.leases.lasts = self.commands.lease();
        self.heartbeats.interval = Duration::from_secs(c.u64("osd_heartbeat_interval").max(1));
        self.heartbeats.peers_min = c.u64("osd_heartbeat_min_peers") as usize;
        self.heartbeats.level = c.str("mon_osd_reporter_subtree_level");
        self.heartbeats.fast_fail = c.bool("osd_fast_fail_on_connection_refused");
        self.probation.ratio = c.f64("osd_heartbeat_min_healthy_ratio");
        self.probation.longest = Duration::from_secs(c.u64("osd_max_markdown_period"));
        let period = Duration::from_secs(c.u64("osd_max_markdown_period"));
        self.memory = Plan::new(c, self.config.memory, crate::memory::osds_here(&self.maps.newest, self.config.whoami));
        self.intake.bytes_max = self.memory.requests;
        self.intake.requests_max = c.u64("osd_client_message_cap");
        self.slow.complaint = c.duration("osd_op_complaint_time");
        self.slow.lines_max = c.u64("osd_op_log_threshold") as usize;
        let history = &mut self.sh.history;
        history.size = c.u64("osd_op_history_size") as usize;
        history.kept = Duration::from_secs(c.u64("osd_op_history_duration"));
        history.slow_size = c.u64("osd_op_history_slow_op_size") as usize;
        history.slow_from = c.duration("osd_op_history_slow_op_threshold");
        self.clock.markdowns.limit = Some((c.u64("osd_max_markdown_count") as usize, period));
        let (c, l) = (&self.commands.config, &mut self.sh.limits);
        l.object_size_max = c.u64("osd_max_object_size");
        l.name_len_max = c.u64("osd_max_object_name_len") as usize;
        l.nspace_len_max = c.u64("osd_max_object_namespace_len") as usize;
        l.attr_size_max = c.u64("osd_max_attr_size") as u32;
        l.attr_name_len_max = c.u64("osd_max_attr_name_len") as u32;
        l.omap_entries_max = c.u64("osd_max_omap_entries_per_request");
        l.omap_bytes_max = c.u64("osd_max_omap_bytes_per_request") as usize;
        l.write_reply_max = c.u64("osd_max_write_op_reply_len") as usize;
        l.write_size_max = (c.u64("osd_max_write_size") as usize) << 20;
        l.failsafe_full_per_mille = (c.f64("osd_failsafe_full_ratio") * 1000.0) as u32;
        l.watch_timeout_s = c.u64("osd_client_watch_timeout") as u32;
        l.notify_timeout_s = c.u64("osd_default_notify_timeout") as u32;
    }

    fn run_command(
        &mut self,
        now: Now,
        disk: &mut dyn Disk,
        id: u64,
        command: &Command,
        fx: &mut Vec<Effect>,
    ) -> Result<Option<Reply>, CommandError> {
        if command.prefix == "get_command_descriptions" {
            return Ok(Some(Reply::output(self.commands.table.describe(&[]))));
        }
        let args = self.commands.table.check(command)?.1;
        let pretty = command.format != Format::Json;
        let render = |v: Value| Ok(Some(Reply::output(command.format.render(&v))));
        let text = |t: String| Ok(Some(Reply::output(t)));
        let senders = || Senders::new(&args.strings("filterstr"));
        match command.prefix.as_str() {
            "version" => render(json!({"version": self.short_version(), "release": "pacific", "release_type": "stable"})),
            "help" => render(self.commands.table.help()),
            "git_version" => render(json!({"git_version": self.version().split(['(', ')']).nth(1).unwrap_or_default()})),
            "perf dump" => text(self.print_perf(now.mono, disk, admin::perf::dump, &args, pretty)),
            "perf schema" => text(self.print_perf(now.mono, disk, admin::perf::schema, &args, pretty)),
            "perf histogram dump" => text(self.print_perf(now.mono, disk, admin::perf::histogram_dump, &args, pretty)),
            "perf histogram schema" => text(self.print_perf(now.mono, disk, admin::perf::histogram_schema, &args, pretty)),
            "perf reset" => render(self.perf_reset(now.mono, disk, args.require("var")?)),
            "dump_mempools" => render(self.dump_mempools(disk)),
            "cache status" => render(self.cache_status(disk)),
            "cache drop" => {
                disk.drop_caches();
                Ok(Some(Reply::default()))
            }
            "dump_objectstore_kv_stats" => text(self.print_kv(disk, pretty)),
            "dump_pg_recovery_stats" => {
                Err(CommandError::new(Errno::EOPNOTSUPP, "how often and how long PGs were in which state is not counted in Cuttlebone"))
            }
            "config show" => render(self.commands.config.show()),
            "config diff" => render(self.commands.config.diff()),
            "config diff get" => render(self.commands.config.diff_get(args.require("var")?)?),
            "config get" => render(self.config_get(args.require("var")?)?),
            "config set" => render(self.config_set(&args)?),
            "config unset" => render(self.config_unset(args.require("var")?)?),
            "config help" => render(config_help(args.str("var"))?),
            "injectargs" => Ok(Some(self.inject_args(&args)?)),
            "status" => render(self.status()),
            "dump_ops_in_flight" | "ops" => render(self.ops_in_flight(now, &senders())),
            "dump_blocked_ops" => render(self.blocked_ops(now, &senders())),
            "dump_historic_ops" => render(self.sh.history.dump(now, false, &senders())),
            "dump_historic_ops_by_duration" => render(self.sh.history.dump(now, true, &senders())),
            "dump_historic_slow_ops" => render(self.sh.history.dump_slow(now, &senders())),
            "dump_watchers" => render(self.watchers()),
            "dump_blocklist" => render(self.blocklist()),
            "dump_osd_network" => render(self.network(args.int("value"), now)),
            "dump_recovery_reservations" => {
                render(json!({"local_reservations": self.sh.local_slots.dump(), "remote_reservations": self.sh.remote_slots.dump()}))
            }
            "dump_scrub_reservations" => render(self.scrub_reservations()),
            "dump_scrubs" => render(self.scheduled_scrubs(now)),
            "get_mapped_pools" => render(self.pgs.keys().map(|id| id.pool.0).collect::<BTreeSet<_>>().into_iter().collect()),
            "list_devices" => render(self.devices()),
            "get_latest_osdmap" => {
                fx.push(Effect::WantMaps { from: self.maps.wanted() });
                Ok(Some(Reply::default()))
            }
            "bench" => self.start_bench(&mut *disk, now, id, &args, fx).map(|()| None),
            "pg" if args.str("cmd") == Some("mark_unfound_lost") => self.mark_unfound_lost(now, disk, id, &args, fx),
            "mark_unfound_lost" => self.mark_unfound_lost(now, disk, id, &args, fx),
            "pg" => render(self.pg_command(now, disk, args.str("cmd").unwrap_or("query"), &args, fx)?),
            "query" | "list_unfound" => render(self.pg_command(now, disk, &command.prefix, &args, fx)?),
            // Every line of the log is written when it is said.
            "log flush" => Ok(Some(Reply::default())),
            "heap" => Err(CommandError::new(Errno::EOPNOTSUPP, "could not issue heap profiler command -- not using tcmalloc!")),
            "compact" => Err(CommandError::new(Errno::EOPNOTSUPP, "the database compacts itself; doing so on demand is not built in Cuttlebone")),
            "send_beacon" => {
                self.send_beacon(fx);
                Ok(Some(Reply::default()))
            }
            "flush_pg_stats" => {
                self.sh.stats_seq += 1;
                let seq = self.sh.stats_seq;
                self.send_stats(now, disk, fx);
                Ok(Some(Reply::output(format!("{seq}"))))
            }
            other => Err(CommandError::new(Errno::EOPNOTSUPP, format!("{other} is not served by this OSD"))),
        }
    }

    /// `16.2.15`.
    fn short_version(&self) -> String {
        self.version().split(' ').nth(2).unwrap_or_default().to_owned()
    }

    fn version(&self) -> String {
        self.config.metadata.get("ceph_version").cloned().unwrap_or_default()
    }

    fn config_get(&self, name: &str) -> Result<Value, CommandError> {
        admin::option::known(name)?;
        Ok(json!({name: self.commands.config.str(name)}))
    }

    fn config_set(&mut self, args: &Args) -> Result<Value, CommandError> {
        let name = args.require("var")?.to_owned();
        let value = args.strings("val").join(" ");
        let notice = self.set_option(&name, &value)?;
        Ok(json!({"success": format!("{name} = '{}' {}", self.commands.config.str(&name), notice).trim_end()}))
    }

    fn config_unset(&mut self, name: &str) -> Result<Value, CommandError> {
        self.commands.config.unset(name, Source::Override)?;
        self.apply_options();
        Ok(json!({"success": ""}))
    }

    /// Sets an option; returns what is to be said about its effect here.
    fn set_option(&mut self, name: &str, value: &str) -> Result<String, CommandError> {
        let spec = admin::option::known(name)?;
        self.commands.config.set(name, Source::Override, value)?;
        self.apply_options();
        if name == "osd_memory_target"
            && let Some(why) = self.memory.wanted.complaint()
        {
            return Ok(format!("({why})"));
        }
        let ignored = admin::option::left_to_scheduler(name, |name| self.commands.config.str(name));
        Ok(ignored.or(spec.notice()).map(|n| format!("({n})")).unwrap_or_default())
    }

    /// `--name value` and `--name=value`, as many as there are.
    fn inject_args(&mut self, args: &Args) -> Result<Reply, CommandError> {
        let words: Vec<String> =
            args.strings("injected_args").iter().flat_map(|s| s.split_whitespace()).map(str::to_owned).collect();
        let mut said = Vec::new();
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            let option = word.trim_start_matches('-');
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name.to_owned(), value.to_owned()),
                None => (option.to_owned(), words.next().unwrap_or_else(|| "true".into())),
            };
            let name = name.replace('-', "_");
            let notice = self.set_option(&name, &value)?;
            said.push(format!("{name} = '{}' {notice}", self.commands.config.str(&name)).trim_end().to_owned());
        }
        Ok(Reply::status(said.join("\n")))
    }

    fn status(&self) -> Value {
        json!({
            "cluster_fsid": self.config.fsid.to_string(),
            "osd_fsid": self.config.uuid.to_string(),
            "whoami": self.sh.whoami.0,
            "state": if self.sh.booted { "active" } else { "booting" },
            "oldest_map": self.maps.oldest().0,
            "cluster_osdmap_trim_lower_bound": self.maps.kept_by_monitors().0,
            "newest_map": self.maps.epoch().0,
            "num_pgs": self.pgs.len(),
        })
    }

    fn blocklist(&self) -> Value {
        let row = |(addr, until): (&types::EntityAddr, &types::Utime)| json!({"entity_addr_t": addr.dump_json(), "expire_time": until.to_string()});
        self.maps.newest.blocklist.iter().map(row).collect()
    }

    /// The disks that it lies on, and what is known of each.
    fn devices(&self) -> Value {
        let of = |key: &str| self.config.metadata.get(key).map(String::as_str).unwrap_or_default();
        let ids: BTreeMap<&str, &str> = of("device_ids").split(',').filter_map(|pair| pair.split_once('=')).collect();
        let names = of("devices").split(',').filter(|name| !name.is_empty());
        names.map(|name| json!({"device": format!("/dev/{name}"), "device_id": ids.get(name).unwrap_or(&"")})).collect()
    }

    /// Networks on which heartbeats take at least so many milliseconds, by the longest average, the longest first; without a number those that are slow.
    fn network(&self, threshold_ms: Option<i64>, now: Now) -> Value {
        let c = &self.commands.config;
        let slow_us = OsdPing::slow_from_us(c.f64("mon_warn_on_slow_ping_time"), c.f64("mon_warn_on_slow_ping_ratio"), self.heartbeats.grace);
        let threshold_us = threshold_ms.map_or(slow_us, |ms| ms.max(0) as u64 * 1000);
        let times = self.heartbeats.ping_times();
        let mut rows: Vec<_> = times.iter().flat_map(|(osd, times)| times.networks().map(|network| (*osd, times.last_update_s, network))).collect();
        rows.retain(|(.., network)| u64::from(network.longest_us()) >= threshold_us);
        rows.sort_by_key(|(osd, _, network)| std::cmp::Reverse((network.longest_us(), *osd)));
        let show = |(osd, updated, network): (i32, u32, NetworkPing)| {
            let stale = i64::from(now.wall.sec.saturating_sub(updated)) > c.i64("osd_heartbeat_stale");
            let mut out = Obj::new();
            out.put("last update", Utime { sec: updated, nsec: 0 }.ctime()).put("stale", updated > 0 && stale);
            out.put("from osd", self.sh.whoami.0).put("to osd", osd).extend(network.dump_json().done());
            out.done()
        };
        json!({"threshold": threshold_us / 1000, "entries": rows.into_iter().map(show).collect::<Vec<_>>()})
    }
}

fn config_help(name: Option<&str>) -> Result<Value, CommandError> {
    match name {
        Some(name) => Ok(admin::option::known(name)?.json()),
        None => Ok(Value::Array(admin::option::all().into_iter().map(|o| o.json()).collect())),
    }
}
