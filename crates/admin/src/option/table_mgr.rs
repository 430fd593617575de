//! Options of the manager's modules, as upstream names them: `mgr/MODULE/OPTION`. What a module of upstream has and ours has no use
//! for is not here.

use super::spec::{Level::*, OptType::*, OptionSpec, opt};

pub(super) const OPTIONS: &[OptionSpec] = &[
    opt("mgr/balancer/active", Bool, Advanced, "true", "balance by itself").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/mode", Str, Advanced, "upmap", "how the balancer moves data").one_of(&["none", "crush-compat", "upmap"]).of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/begin_time", Str, Advanced, "0000", "time of day, in UTC, from which the balancer may act by itself: HHMM").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/end_time", Str, Advanced, "2400", "time of day, in UTC, to which the balancer may act by itself: HHMM").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/begin_weekday", Uint, Advanced, "0", "day of the week, 0 for Sunday, from which the balancer may act by itself").range("0", "7").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/end_weekday", Uint, Advanced, "7", "day of the week, before which the balancer may act by itself").range("0", "7").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/sleep_interval", Secs, Advanced, "60", "seconds between the balancer's rounds").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/upmap_max_optimizations", Uint, Advanced, "10", "copies of PGs that one round moves at most").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/upmap_max_deviation", Int, Advanced, "5", "by how many PGs of a pool an OSD may be off where bytes are in balance").range("1", "").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/crush_compat_max_iterations", Uint, Advanced, "25", "steps that a round of the mode crush-compat tries").range("1", "250").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/crush_compat_step", Float, Advanced, "0.5", "part of the way to the weight that seems right that a step goes").range("0.001", "0.999").of(&["mgr"]).runtime().effective(),
    opt("mgr/balancer/pool_ids", Str, Advanced, "", "numbers of the pools that the balancer is limited to; none for all").of(&["mgr"]).runtime().effective(),
    opt("mgr/pg_autoscaler/sleep_interval", Secs, Advanced, "60", "seconds between looks at how many PGs pools should have").of(&["mgr"]).runtime().effective(),
    opt("mgr/pg_autoscaler/threshold", Float, Advanced, "3.0", "factor by which a pool's number of PGs has to be off to be changed").range("1.0", "").of(&["mgr"]).runtime().effective(),
    opt("mgr/pg_autoscaler/noautoscale", Bool, Advanced, "false", "leave the number of PGs of all pools alone").of(&["mgr"]).runtime().effective(),
];
