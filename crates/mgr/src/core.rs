//! The manager's core: one state, fed by the node, asked by commands.

use crate::autoscale::AutoscaleSettings;
use crate::balancer::{Balancer, BalancerSettings};
use crate::pgmap::PgMap;
use crate::progress::Progress;
use crate::rates::Rates;
use crate::services::Services;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use types::map::OsdMap;
use types::msg::Message;
use types::msg::internal::{ConfigInForce, MgrStats, OsdYield};
use types::msg::{MMgrClose, MMgrOpen, MMgrReport};
use types::{EntityInst, EntityName, Mono, Now, OsdId};

/// OSDs yield for so long after they were last told to.
const YIELD_SECONDS: u32 = 10;

/// Options the manager goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct MgrSettings {
    /// `mon_pg_stuck_threshold`.
    pub pg_stuck_threshold: Duration,
    /// `mon_health_max_detail`.
    pub health_max_detail: usize,
    /// `mon_max_pg_per_osd`.
    pub max_pg_per_osd: usize,
    /// `mon_warn_on_pool_no_app`.
    pub warn_on_pool_no_app: bool,
    /// Percent of a quota (`mon_pool_quota_warn_threshold`, `mon_pool_quota_crit_threshold`); 0 for never.
    pub quota_warn_percent: i64,
    pub quota_critical_percent: i64,
    /// `mon_osd_warn_num_repaired`.
    pub warn_num_repaired: u64,
    /// Microseconds from which on heartbeats are slow (`OsdPing::slow_from_us`), and how old figures of them may be.
    pub slow_ping_us: u64,
    pub pings_valid: Duration,
    /// `mon_osd_reporter_subtree_level`.
    pub reporter_level: String,
    /// `mon_warn_on_misplaced`.
    pub warn_on_misplaced: bool,
    /// How many times as many objects as others a pool's PGs may have (`mon_pg_warn_max_object_skew`, 0 for any), from how many objects of the pool and of all on
    /// (`mon_pg_warn_min_pool_objects`, `mon_pg_warn_min_objects`).
    pub object_skew: f64,
    pub skewed_from: (i64, i64),
    /// Seconds after which a scrub, and a deep scrub, is missed; 0 for never.
    pub scrub_late_s: f64,
    pub deep_scrub_late_s: f64,
    /// `mgr_stats_period`.
    pub stats_period: Duration,
    /// `mon_osd_max_creating_pgs`.
    pub max_creating_pgs: u64,
    /// `target_max_misplaced_ratio`.
    pub max_misplaced_ratio: f64,
    /// `mgr_debug_aggressive_pg_num_changes`.
    pub aggressive_pg_changes: bool,
    pub balancer: BalancerSettings,
    pub autoscale: AutoscaleSettings,
    /// `mon_reweight_max_change`, `mon_reweight_max_osds`, `mon_reweight_min_pgs_per_osd`, `mon_reweight_min_bytes_per_osd`.
    pub reweight_max_change: f64,
    pub reweight_max_osds: i64,
    pub reweight_min_pgs_per_osd: u64,
    pub reweight_min_bytes_per_osd: u64,
}

impl Default for MgrSettings {
    fn default() -> Self {
        MgrSettings {
            pg_stuck_threshold: Duration::from_secs(60),
            health_max_detail: 50,
            max_pg_per_osd: 250,
            warn_on_pool_no_app: true,
            quota_warn_percent: 0,
            quota_critical_percent: 0,
            warn_num_repaired: 10,
            warn_on_misplaced: false,
            object_skew: 10.0,
            skewed_from: (1000, 10_000),
            slow_ping_us: 1_000_000,
            pings_valid: Duration::from_secs(1200),
            reporter_level: "host".into(),
            scrub_late_s: 604_800.0 * 1.5,
            deep_scrub_late_s: 604_800.0 * 1.75,
            stats_period: Duration::from_secs(5),
            max_creating_pgs: 1024,
            max_misplaced_ratio: 0.05,
            aggressive_pg_changes: false,
            balancer: BalancerSettings::default(),
            autoscale: AutoscaleSettings::default(),
            reweight_max_change: 0.05,
            reweight_max_osds: 4,
            reweight_min_pgs_per_osd: 10,
            reweight_min_bytes_per_osd: 100 << 20,
        }
    }
}

/// The manager.
#[derive(Debug, Clone)]
pub struct Mgr {
    settings: MgrSettings,
    osdmap: Arc<OsdMap>,
    pgs: PgMap,
    /// Reports made with a newer map than ours, the last of each OSD: they wait for it.
    early: BTreeMap<OsdId, MgrStats>,
    rates: Rates,
    pub(crate) progress: Progress,
    services: Services,
    /// OSDs with a session.
    pub(crate) connected: BTreeSet<OsdId>,
    /// What OSDs are to be told.
    pub(crate) orders: Vec<(OsdId, Message)>,
    /// Commands for the monitors: whoever gave the command that they come from is answered when they are done.
    pub(crate) mon_orders: Vec<String>,
    pub(crate) balancer: Balancer,
    pub(crate) next_autoscale: Mono,
    own: Option<(EntityName, BTreeMap<String, ConfigInForce>)>,
}

impl Mgr {
    /// A manager that knows nothing yet.
    pub fn new(settings: MgrSettings) -> Self {
        Mgr {
            settings,
            osdmap: Arc::new(OsdMap::default()),
            pgs: PgMap::default(),
            early: BTreeMap::new(),
            rates: Rates::default(),
            progress: Progress::default(),
            services: Services::default(),
            connected: BTreeSet::new(),
            orders: Vec::new(),
            mon_orders: Vec::new(),
            balancer: Balancer::default(),
            next_autoscale: Mono(0),
            own: None,
        }
    }

    /// Goes by other options from now on.
    pub fn set_settings(&mut self, settings: MgrSettings) {
        self.settings = settings;
    }

    /// Our own name and options, for `config show`.
    pub fn set_own_config(&mut self, name: EntityName, options: BTreeMap<String, ConfigInForce>) {
        self.own = Some((name, options));
    }

    /// OSDs that orders will reach.
    pub fn set_connected(&mut self, osds: BTreeSet<OsdId>) {
        self.connected = osds;
    }

    /// What commands had to say to OSDs.
    pub fn take_orders(&mut self) -> Vec<(OsdId, Message)> {
        std::mem::take(&mut self.orders)
    }

    /// What commands had to say to the monitors.
    pub fn take_mon_orders(&mut self) -> Vec<String> {
        std::mem::take(&mut self.mon_orders)
    }

    /// Has the monitors keep an option of ours. We go by it at once; what they tell us later is the same.
    pub(crate) fn set_own_option(&mut self, name: &str, value: &str) {
        match name {
            "mgr/balancer/active" => self.settings.balancer.active = value == "true",
            "mgr/balancer/mode" => self.settings.balancer.mode = value.into(),
            "mgr/balancer/pool_ids" => self.settings.balancer.pool_ids = crate::balancer::pool_ids(value),
            "mgr/pg_autoscaler/noautoscale" => self.settings.autoscale.off = value == "true",
            _ => {}
        }
        self.mon_orders.push(json!({"prefix": "config set", "who": "mgr", "name": name, "value": value}).to_string());
    }

    /// The options that a daemon reported; `None` for one that did not report.
    pub(crate) fn config_of(&self, who: &str) -> Option<&BTreeMap<String, ConfigInForce>> {
        let own = self.own.as_ref().filter(|(name, _)| name.to_string() == who).map(|(_, options)| options);
        let osd = || who.strip_prefix("osd.").and_then(|id| id.parse().ok()).and_then(|id| self.pgs.osds.get(&OsdId(id)));
        own.or_else(|| osd().map(|report| &report.config))
    }

    /// A newer osdmap.
    pub fn handle_osdmap(&mut self, now: Now, map: Arc<OsdMap>) {
        self.pgs.handle_osdmap(now, &map);
        self.osdmap = map;
        let (ready, early) = std::mem::take(&mut self.early).into_iter().partition(|(_, s)| s.epoch <= self.osdmap.epoch);
        self.early = early;
        let ready: BTreeMap<OsdId, MgrStats> = ready;
        ready.into_values().for_each(|stats| self.handle_stats(now, stats));
    }

    /// An OSD reports.
    pub fn handle_stats(&mut self, now: Now, stats: MgrStats) {
        if stats.epoch > self.osdmap.epoch {
            self.early.insert(stats.osd, stats);
            return;
        }
        let map = self.osdmap.clone();
        self.pgs.handle_stats(now, &map, stats);
    }

    /// A service daemon introduces itself.
    pub fn handle_open(&mut self, now: Now, from: EntityInst, addr: String, open: MMgrOpen) {
        self.services.open(now, from, addr, open);
    }

    /// A service daemon reports.
    pub fn handle_report(&mut self, now: Now, report: MMgrReport) {
        self.services.report(now, report);
    }

    /// A service daemon leaves.
    pub fn handle_close(&mut self, now: Now, close: &MMgrClose) {
        self.services.close(now, close);
    }

    /// A client's session is gone.
    pub fn handle_session_lost(&mut self, now: Now, gid: i64) {
        self.services.lost(now, gid);
    }

    /// Once per tick (a second or two): rates are taken, progress is looked at.
    pub fn handle_tick(&mut self, now: Now) {
        self.rates.sample(now.mono, &self.pgs, self.osdmap.pools.keys().copied());
        self.progress.handle_tick(now, &self.osdmap, &self.pgs);
        let seconds = YIELD_SECONDS;
        self.orders.extend(self.pgs.parents.to_yield(now.mono).into_iter().map(|osd| (osd, OsdYield { seconds }.into())));
    }

    /// True once there is a map to speak of: a manager is available from then on.
    pub fn is_ready(&self) -> bool {
        self.osdmap.epoch.0 > 0
    }

    /// The options it goes by.
    pub fn settings(&self) -> &MgrSettings {
        &self.settings
    }

    pub(crate) fn osdmap_arc(&self) -> Arc<OsdMap> {
        self.osdmap.clone()
    }

    /// The newest map.
    pub fn osdmap(&self) -> &OsdMap {
        &self.osdmap
    }

    /// PGs and OSDs as they were last reported.
    pub fn pgs(&self) -> &PgMap {
        &self.pgs
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.rates
    }

    pub(crate) fn services(&self) -> &Services {
        &self.services
    }
}
