//! Options: what exists, what is set where, and what is in force.
//!
//! An option that changes nothing here is accepted, for it stands in the files and habits of many, but `effective` says
//! so, and whoever sets it is told. Names are upstream's; blanks and dashes in them are underscores.
//! Upstream: src/common/options.{h,cc}, src/common/config.cc.

mod spec;
mod table_common;
mod table_debug;
mod table_mgr;
mod table_mon;
mod table_osd;
mod table_store;
mod value;
mod values;

pub use spec::{Level, OptType, OptionSpec};
pub use values::{ConfigValues, Source};

use crate::command::CommandError;
use types::Errno;

const TABLES: [&[OptionSpec]; 6] =
    [table_common::OPTIONS, table_mgr::OPTIONS, table_mon::OPTIONS, table_osd::OPTIONS, table_store::OPTIONS, table_debug::OPTIONS];

/// Every option, sorted by name.
pub fn all() -> Vec<&'static OptionSpec> {
    let mut out: Vec<&'static OptionSpec> = TABLES.into_iter().flatten().collect();
    out.sort_by_key(|o| o.name);
    out
}

/// The option of that name, however it is spelt.
pub fn find(name: &str) -> Option<&'static OptionSpec> {
    let name = canonical(name);
    TABLES.into_iter().flatten().find(|o| o.name == name)
}

/// The option, or the error that `config set` gives.
pub fn known(name: &str) -> Result<&'static OptionSpec, CommandError> {
    find(name).ok_or_else(|| CommandError::new(Errno::EINVAL, format!("unrecognized config option '{name}'")))
}

/// Options of recovery that are the scheduler's affair with `osd_op_queue=mclock_scheduler`.
/// Source: OSD::maybe_override_options_for_qos and maybe_override_sleep_options_for_qos, src/osd/OSD.cc of Tentacle.
const SCHEDULERS: &[&str] = &[
    "osd_max_backfills",
    "osd_recovery_max_active",
    "osd_recovery_max_active_hdd",
    "osd_recovery_max_active_ssd",
    "osd_recovery_sleep",
    "osd_recovery_sleep_hdd",
    "osd_recovery_sleep_ssd",
    "osd_recovery_sleep_hybrid",
];

/// Options that are weights with `osd_op_queue=wpq`.
const WEIGHTS: &[&str] = &["osd_client_op_priority", "osd_recovery_op_priority", "osd_scrub_priority"];

/// Why setting an option changes nothing as things are: the scheduler, or its profile, decides in its place. `get` has the values of others.
pub fn left_to_scheduler(name: &str, get: impl Fn(&str) -> String) -> Option<String> {
    let name = canonical(name);
    let (queue, profile) = (get("osd_op_queue"), get("osd_mclock_profile"));
    let by_clock = queue == "mclock_scheduler";
    let is_share = name.starts_with("osd_mclock_scheduler_");
    let (cause, is, remedy) = match name.as_str() {
        n if SCHEDULERS.contains(&n) && by_clock && get("osd_mclock_override_recovery_settings") != "true" => {
            ("osd_op_queue", queue, ": set osd_mclock_override_recovery_settings first for it to take effect")
        }
        n if WEIGHTS.contains(&n) && by_clock => ("osd_op_queue", queue, ""),
        n if (is_share || n == "osd_mclock_profile") && !by_clock => ("osd_op_queue", queue, ""),
        _ if is_share && profile != "custom" => ("osd_mclock_profile", profile, ": set that to custom first for it to take effect"),
        _ => return None,
    };
    Some(format!("{name} is ignored while {cause} is {is}{remedy}"))
}

/// The name with blanks and dashes as underscores.
pub fn canonical(name: &str) -> String {
    crate::conf::canonical_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_are_valid() {
        let all = all();
        assert!(all.len() > 300);
        assert!(all.windows(2).all(|w| w[0].name < w[1].name));
        for o in all {
            for text in [Some(o.default), o.daemon_default].into_iter().flatten() {
                // An address or an id that is not set has a text of its own.
                if !text.is_empty() && text != "-" {
                    o.normalize(text).unwrap_or_else(|e| panic!("{}: {e}", o.name));
                }
            }
        }
    }

    #[test]
    fn who_sets_what_the_scheduler_ignores_is_told() {
        let said = |name: &str, others: &[(&str, &str)]| {
            let get = |name: &str| others.iter().find(|(n, _)| *n == name).map_or_else(|| find(name).unwrap().default_for(true), |(_, v)| (*v).to_owned());
            left_to_scheduler(name, get).unwrap_or_default()
        };
        let (wpq, custom, heeded) = (("osd_op_queue", "wpq"), ("osd_mclock_profile", "custom"), ("osd_mclock_override_recovery_settings", "true"));
        let clock = "is ignored while osd_op_queue is mclock_scheduler";
        assert_eq!(said("osd_max_backfills", &[]), format!("osd_max_backfills {clock}: set osd_mclock_override_recovery_settings first for it to take effect"));
        assert_eq!(said("osd_recovery_op_priority", &[heeded]), format!("osd_recovery_op_priority {clock}"));
        assert_eq!(
            said("osd_mclock_scheduler_client_res", &[]),
            "osd_mclock_scheduler_client_res is ignored while osd_mclock_profile is balanced: set that to custom first for it to take effect"
        );
        for (name, others) in [("osd_mclock_profile", wpq), ("osd_mclock_scheduler_client_lim", wpq)] {
            assert_eq!(said(name, &[others, custom]), format!("{name} is ignored while osd_op_queue is wpq"));
        }
        for (name, others) in [("osd_max_backfills", heeded), ("osd_max_backfills", wpq), ("osd_scrub_priority", wpq), ("osd_mclock_scheduler_client_wgt", custom), ("osd_mclock_profile", custom)] {
            assert_eq!(said(name, &[others]), "", "{name}");
        }
    }

    #[test]
    fn spelling_does_not_matter() {
        assert_eq!(find("osd max-backfills").unwrap().name, "osd_max_backfills");
        assert_eq!(known("bogus").unwrap_err().status, "unrecognized config option 'bogus'");
    }
}
