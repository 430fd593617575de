//! PGs, pools and OSDs as tables: `pg dump`, `pg ls`, `pg stat`.
//!
//! Upstream: src/mon/PGMap.cc (dump_pg_stats, dump_osd_stats, print_oneline_summary, dump_filtered_pg_stats).

use crate::core::Mgr;
use admin::TextTable;
use admin::human::{age_between, bytes, si, timestamp};
use admin::usage;
use serde_json::{Value, json};
use types::map::osdmap::{print_osds, print_pg_osds};
use types::pg::{PgStat, PoolStat};
use types::{Now, OsdId, PgId};

/// What stands under tables with omap columns.
pub const OMAP_NOTE: &str = "\n* omap figures are gathered by deep scrubs and may be out of date.\n";

/// Columns of counts that tables of PGs and pools share.
const COUNTS: [&str; 10] = [
    "OBJECTS",
    "MISSING_ON_PRIMARY",
    "DEGRADED",
    "MISPLACED",
    "UNFOUND",
    "BYTES",
    "OMAP_BYTES*",
    "OMAP_KEYS*",
    "LOG",
    "DISK_LOG",
];

fn counts(s: &PoolStat) -> Vec<String> {
    let sum = &s.stats.sum;
    let cells = [
        sum.num_objects,
        sum.num_objects_missing_on_primary,
        sum.num_objects_degraded,
        sum.num_objects_misplaced,
        sum.num_objects_unfound,
        sum.num_bytes,
        sum.num_omap_bytes,
        sum.num_omap_keys,
        s.log_size,
        s.ondisk_log_size,
    ];
    cells.map(|n| n.to_string()).into()
}

fn of_pg(s: &PgStat) -> PoolStat {
    PoolStat { stats: s.stats, log_size: s.log_size, ondisk_log_size: s.ondisk_log_size, ..PoolStat::default() }
}

/// A table whose first column is `first`; without it the headings are blank, as in the middle of `pg dump`.
fn counts_table(first: Option<&str>) -> TextTable {
    let table = TextTable::new().left(first.unwrap_or(""));
    COUNTS.iter().fold(table, |t, name| t.figures(if first.is_some() { name } else { "" }))
}

impl Mgr {
    /// The head of `pg dump`.
    pub(crate) fn basic_text(&self) -> String {
        let pgs = self.pgs();
        format!(
            "version {}\nstamp {}\nlast_osdmap_epoch {}\nlast_pg_scan {}\n",
            pgs.version,
            timestamp(pgs.stamp),
            pgs.epoch,
            pgs.epoch
        )
    }

    /// Every PG.
    pub(crate) fn pgs_text(&self) -> String {
        let mut t = counts_table(Some("PG_STAT")).left("STATE").left("STATE_STAMP").figures("VERSION").figures("REPORTED");
        t = t.left("UP").figures("UP_PRIMARY").left("ACTING").figures("ACTING_PRIMARY").figures("LAST_SCRUB");
        t = t.left("SCRUB_STAMP").figures("LAST_DEEP_SCRUB").left("DEEP_SCRUB_STAMP").figures("SNAPTRIMQ_LEN");
        for (pg, s) in &self.pgs().pgs {
            let mut row = vec![pg.to_string()];
            row.extend(counts(&of_pg(s)));
            row.extend([
                s.state.to_string(),
                timestamp(s.last_change),
                s.version.to_string(),
                format!("{}:{}", s.reported_epoch, s.reported_seq),
                print_pg_osds(&s.up),
                s.up_primary.to_string(),
                print_pg_osds(&s.acting),
                s.acting_primary.to_string(),
                s.last_scrub.to_string(),
                timestamp(s.last_scrub_stamp),
                s.last_deep_scrub.to_string(),
                timestamp(s.last_deep_scrub_stamp),
                s.snaptrimq_len.to_string(),
            ]);
            t.row(row);
        }
        t.render()
    }

    /// Every pool.
    pub(crate) fn pools_text(&self, header: bool) -> String {
        let mut t = counts_table(header.then_some("POOLID"));
        for pool in self.osdmap().pools.keys().rev() {
            t.row([pool.to_string()].into_iter().chain(counts(&self.pgs().pool(*pool))));
        }
        t.render()
    }

    /// All PGs together.
    pub(crate) fn sum_text(&self, header: bool) -> String {
        let mut t = counts_table(header.then_some("PG_STAT"));
        t.row(["sum".to_string()].into_iter().chain(counts(&self.pgs().sum())));
        t.render()
    }

    /// Every OSD.
    pub(crate) fn osds_text(&self) -> String {
        let mut t = TextTable::new().left("OSD_STAT").figures("USED").figures("AVAIL").figures("USED_RAW").figures("TOTAL");
        t = t.figures("HB_PEERS").figures("PG_SUM").figures("PRIMARY_PG_SUM");
        for (osd, report) in self.pgs().osds.iter().rev() {
            let f = &report.stat.statfs;
            let peers: Vec<OsdId> = report.stat.hb_peers.iter().map(|o| OsdId(*o)).collect();
            t.row([
                osd.to_string(),
                bytes(f.used()),
                bytes(f.available),
                bytes(f.used_raw()),
                bytes(f.total),
                print_osds(&peers),
                self.pgs().num_pgs_of(*osd).to_string(),
                self.pgs().num_primary_pgs_of(*osd).to_string(),
            ]);
        }
        let f = self.pgs().osd_sum(self.osdmap()).statfs;
        t.row(["sum".into(), bytes(f.used()), bytes(f.available), bytes(f.used_raw()), bytes(f.total)]);
        t.render()
    }

    /// All OSDs together.
    pub(crate) fn osd_sum_text(&self) -> String {
        let f = self.pgs().osd_sum(self.osdmap()).statfs;
        let mut t = TextTable::new().left("OSD_STAT").figures("USED").figures("AVAIL").figures("USED_RAW").figures("TOTAL");
        t.row(["sum".into(), bytes(f.used()), bytes(f.available), bytes(f.used_raw()), bytes(f.total)]);
        t.render()
    }

    /// `pg stat`.
    pub(crate) fn pg_stat_text(&self) -> String {
        let states: Vec<String> = self.pgs().by_state().iter().map(|(s, n)| format!("{n} {s}")).collect();
        let (sum, f, io) = (self.pgs().object_sum(), self.pgs().osd_sum(self.osdmap()).statfs, self.rates().total());
        let mut out = format!(
            "{} pgs: {}; {} data, {} used, {} / {} avail",
            self.pgs().pgs.len(),
            states.join(", "),
            bytes(sum.num_bytes.max(0) as u64),
            bytes(f.used()),
            bytes(f.available),
            bytes(f.total)
        );
        if io.read_bytes + io.write_bytes + io.read_ops + io.write_ops > 0 {
            out += "; ";
            for (rate, what) in [(io.read_bytes, "rd"), (io.write_bytes, "wr")].into_iter().filter(|(rate, _)| *rate > 0) {
                out += &format!("{}/s {what}, ", bytes(rate));
            }
            out += &format!("{} op/s", si(io.read_ops + io.write_ops));
        }
        usage::recovery_lines(&sum).iter().for_each(|line| out += &format!("; {line}"));
        if let Some(line) = usage::recovery_io_line(&io) {
            out += &format!("; {line} recovering");
        }
        out + "\n"
    }

    /// The same as JSON.
    pub(crate) fn pg_stat_json(&self) -> Value {
        let (sum, f, io) = (self.pgs().object_sum(), self.pgs().osd_sum(self.osdmap()).statfs, self.rates().total());
        let states = self.pgs().by_state();
        let mut out = super::pg_json::into_map(json!({
            "num_pg_by_state": states.iter().map(|(s, n)| json!({"name": s.to_string(), "num": n})).collect::<Vec<_>>(),
            "num_pgs": self.pgs().pgs.len(), "num_bytes": sum.num_bytes, "total_bytes": f.total,
            "total_avail_bytes": f.available, "total_used_bytes": f.used(), "total_used_raw_bytes": f.used_raw(),
        }));
        for (rate, name) in [(io.read_bytes, "read_bytes_sec"), (io.write_bytes, "write_bytes_sec")] {
            if rate > 0 {
                out.insert(name.into(), rate.into());
                out.insert("io_sec".into(), (io.read_ops + io.write_ops).into());
            }
        }
        out.extend(usage::recovery_json(&sum));
        out.extend(usage::recovery_io_json(&io));
        json!({"pg_ready": true, "pg_summary": out})
    }
}

/// `pg ls`.
pub fn pg_list<'a>(now: Now, pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>) -> String {
    let mut t = TextTable::new().left("PG");
    for name in ["OBJECTS", "DEGRADED", "MISPLACED", "UNFOUND", "BYTES", "OMAP_BYTES*", "OMAP_KEYS*", "LOG"] {
        t = t.figures(name);
    }
    t = t.left("STATE").figures("SINCE").figures("VERSION").figures("REPORTED").left("UP").left("ACTING");
    t = t.left("SCRUB_STAMP").left("DEEP_SCRUB_STAMP");
    for (pg, s) in pgs {
        let sum = &s.stats.sum;
        t.row([
            pg.to_string(),
            sum.num_objects.to_string(),
            sum.num_objects_degraded.to_string(),
            sum.num_objects_misplaced.to_string(),
            sum.num_objects_unfound.to_string(),
            sum.num_bytes.to_string(),
            sum.num_omap_bytes.to_string(),
            sum.num_omap_keys.to_string(),
            s.log_size.to_string(),
            s.state.to_string(),
            age_between(now.wall, s.last_change),
            s.version.to_string(),
            format!("{}:{}", s.reported_epoch, s.reported_seq),
            format!("{}p{}", print_pg_osds(&s.up), s.up_primary),
            format!("{}p{}", print_pg_osds(&s.acting), s.acting_primary),
            timestamp(s.last_scrub_stamp),
            timestamp(s.last_deep_scrub_stamp),
        ]);
    }
    t.render() + OMAP_NOTE
}

/// `pg dump pgs_brief` and `pg dump_stuck`.
pub fn pg_briefs<'a>(pgs: impl Iterator<Item = (&'a PgId, &'a PgStat)>) -> String {
    let mut t = TextTable::new().left("PG_STAT").left("STATE").left("UP").figures("UP_PRIMARY").left("ACTING");
    t = t.figures("ACTING_PRIMARY");
    for (pg, s) in pgs {
        t.row([
            pg.to_string(),
            s.state.to_string(),
            print_osds(&s.up),
            s.up_primary.to_string(),
            print_osds(&s.acting),
            s.acting_primary.to_string(),
        ]);
    }
    t.render()
}
