//! Names of the flags of the cluster and of the OSDs.

use super::OsdMap;

/// Cluster-wide flags and their names, by bit.
pub const CLUSTER_FLAGS: [(u32, &str); 23] = [
    (OsdMap::FLAG_NEARFULL, "nearfull"),
    (OsdMap::FLAG_FULL, "full"),
    (OsdMap::FLAG_PAUSERD, "pauserd"),
    (OsdMap::FLAG_PAUSEWR, "pausewr"),
    (OsdMap::FLAG_PAUSEREC, "pauserec"),
    (OsdMap::FLAG_NOUP, "noup"),
    (OsdMap::FLAG_NODOWN, "nodown"),
    (OsdMap::FLAG_NOOUT, "noout"),
    (OsdMap::FLAG_NOIN, "noin"),
    (OsdMap::FLAG_NOBACKFILL, "nobackfill"),
    (OsdMap::FLAG_NORECOVER, "norecover"),
    (OsdMap::FLAG_NOSCRUB, "noscrub"),
    (OsdMap::FLAG_NODEEP_SCRUB, "nodeep-scrub"),
    (OsdMap::FLAG_NOTIERAGENT, "notieragent"),
    (OsdMap::FLAG_NOREBALANCE, "norebalance"),
    (OsdMap::FLAG_SORTBITWISE, "sortbitwise"),
    (OsdMap::FLAG_REQUIRE_JEWEL, "require_jewel_osds"),
    (OsdMap::FLAG_REQUIRE_KRAKEN, "require_kraken_osds"),
    (OsdMap::FLAG_REQUIRE_LUMINOUS, "require_luminous_osds"),
    (OsdMap::FLAG_RECOVERY_DELETES, "recovery_deletes"),
    (OsdMap::FLAG_PURGED_SNAPDIRS, "purged_snapdirs"),
    (OsdMap::FLAG_NOSNAPTRIM, "nosnaptrim"),
    (OsdMap::FLAG_PGLOG_HARDLIMIT, "pglog_hardlimit"),
];

/// States of an OSD and their names, by bit.
pub const OSD_STATES: [(u32, &str); 13] = [
    (OsdMap::STATE_EXISTS, "exists"),
    (OsdMap::STATE_UP, "up"),
    (OsdMap::STATE_AUTOOUT, "autoout"),
    (OsdMap::STATE_NEW, "new"),
    (OsdMap::STATE_FULL, "full"),
    (OsdMap::STATE_NEARFULL, "nearfull"),
    (OsdMap::STATE_BACKFILLFULL, "backfillfull"),
    (OsdMap::STATE_DESTROYED, "destroyed"),
    (OsdMap::STATE_NOUP, "noup"),
    (OsdMap::STATE_NODOWN, "nodown"),
    (OsdMap::STATE_NOIN, "noin"),
    (OsdMap::STATE_NOOUT, "noout"),
    (OsdMap::STATE_STOP, "stop"),
];

/// The names of the set bits, in the order of the table.
fn names(table: &[(u32, &'static str)], bits: u32) -> Vec<&'static str> {
    table.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name).collect()
}

/// `noout,sortbitwise,...`.
pub fn cluster_flags_string(flags: u32) -> String {
    names(&CLUSTER_FLAGS, flags).join(",")
}

/// The flag called `name`.
pub fn cluster_flag_by_name(name: &str) -> Option<u32> {
    CLUSTER_FLAGS.iter().find(|(_, n)| *n == name).map(|(flag, _)| *flag)
}

/// `["exists", "up"]`.
pub fn osd_state_names(state: u32) -> Vec<&'static str> {
    names(&OSD_STATES, state)
}
