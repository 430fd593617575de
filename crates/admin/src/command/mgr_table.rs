//! The manager's commands. They stand here because the monitor describes them too: clients fetch one table for both.
//!
//! What is not built is listed only where a script would stumble over its absence; it answers EOPNOTSUPP.
//! Upstream: src/mgr/MgrCommands.h, src/pybind/mgr/*/module.py.

use super::{CommandSpec, flag};

const fn mgr(sig: &'static str, help: &'static str, module: &'static str, perm: &'static str) -> CommandSpec {
    CommandSpec { sig, help, module, perm, flags: flag::MGR }
}

/// Every command of the manager.
pub const MGR_COMMANDS: &[CommandSpec] = &[
    mgr("pg stat", "one line about all PGs", "pg", "r"),
    mgr("pg dump dumpcontents:Choices?*=all|summary|sum|delta|pools|osds|pgs|pgs_brief", "everything known of PGs, pools and OSDs", "pg", "r"),
    mgr("pg dump_json dumpcontents:Choices?*=all|summary|sum|pools|osds|pgs", "the same, always as json", "pg", "r"),
    mgr("pg dump_pools_json", "figures of pools, always as json", "pg", "r"),
    mgr("pg ls-by-pool poolstr:String states:String?*", "PGs of a pool", "pg", "r"),
    mgr("pg ls-by-primary osd:OsdName pool:Int? states:String?*", "PGs that an OSD is primary of", "pg", "r"),
    mgr("pg ls-by-osd osd:OsdName pool:Int? states:String?*", "PGs that an OSD holds", "pg", "r"),
    mgr("pg ls pool:Int? states:String?*", "PGs of a pool or in a state", "pg", "r"),
    mgr("pg dump_stuck stuckops:Choices?*=inactive|unclean|stale|undersized|degraded threshold:Int?", "PGs that have been in a bad state for long", "pg", "r"),
    mgr("pg debug debugop:Choices=unfound_objects_exist|degraded_pgs_exist", "whether there are such PGs", "pg", "r"),
    mgr("pg scrub pgid:Pgid", "compare the copies of a PG", "pg", "rw"),
    mgr("pg deep-scrub pgid:Pgid", "compare the copies of a PG byte by byte", "pg", "rw"),
    mgr("pg repair pgid:Pgid", "compare the copies of a PG and repair what differs", "pg", "rw"),
    mgr("pg force-recovery pgid:Pgid*", "recover these PGs before others", "pg", "rw"),
    mgr("pg force-backfill pgid:Pgid*", "backfill these PGs before others", "pg", "rw"),
    mgr("pg cancel-force-recovery pgid:Pgid*", "recover these PGs in their turn again", "pg", "rw"),
    mgr("pg cancel-force-backfill pgid:Pgid*", "backfill these PGs in their turn again", "pg", "rw"),
    mgr("osd force-create-pg pgid:Pgid yes_i_really_mean_it:Bool?", "give up what is left of an incomplete PG and let it begin anew, empty", "osd", "rw"),
    mgr("osd perf", "latencies of OSDs", "osd", "r"),
    mgr("osd df output_method:Choices?=plain|tree filter_by:Choices?=class|name filter:String?", "how full OSDs are", "osd", "r"),
    mgr("osd blocked-by", "OSDs that others wait for", "osd", "r"),
    mgr("osd pool stats pool_name:Poolname?", "what goes on in pools", "osd", "r"),
    mgr("osd pool scrub who:Poolname*", "compare the copies of pools", "osd", "rw"),
    mgr("osd pool deep-scrub who:Poolname*", "compare the copies of pools byte by byte", "osd", "rw"),
    mgr("osd pool force-recovery who:Poolname*", "recover the PGs of these pools before others", "osd", "rw"),
    mgr("osd pool force-backfill who:Poolname*", "backfill the PGs of these pools before others", "osd", "rw"),
    mgr("osd pool cancel-force-recovery who:Poolname*", "recover the PGs of these pools in their turn again", "osd", "rw"),
    mgr("osd pool cancel-force-backfill who:Poolname*", "backfill the PGs of these pools in their turn again", "osd", "rw"),
    mgr("osd pool repair who:Poolname*", "compare the copies of pools and repair what differs", "osd", "rw"),
    mgr("osd scrub who:String", "compare the copies of what an OSD is primary of", "osd", "rw"),
    mgr("osd deep-scrub who:String", "compare the copies of what an OSD is primary of byte by byte", "osd", "rw"),
    mgr("osd repair who:String", "compare the copies of what an OSD is primary of and repair what differs", "osd", "rw"),
    mgr("osd safe-to-destroy ids:String*", "whether these OSDs hold nothing that is needed", "osd", "r"),
    mgr("osd ok-to-stop ids:String* max:Int?", "whether all data stays available without these OSDs", "osd", "r"),
    mgr("osd reweight-by-utilization oload:Int? max_change:Float? max_osds:Int? no_increasing:Bool?", "lower the weight of full OSDs", "osd", "rw"),
    mgr("osd test-reweight-by-utilization oload:Int? max_change:Float? max_osds:Int? no_increasing:Bool?", "what that would do", "osd", "r"),
    mgr("osd reweight-by-pg oload:Int? max_change:Float? max_osds:Int? pools:Poolname?*", "lower the weight of OSDs with many PGs", "osd", "rw"),
    mgr("osd test-reweight-by-pg oload:Int? max_change:Float? max_osds:Int? pools:Poolname?*", "what that would do", "osd", "r"),
    mgr("osd pool get noautoscale", "whether the autoscaler leaves all pools alone", "mgr", "w"),
    mgr("osd pool set noautoscale", "have the autoscaler leave all pools alone", "mgr", "w"),
    mgr("osd pool unset noautoscale", "have the autoscaler look after all pools", "mgr", "w"),
    mgr("osd status bucket:String?", "what OSDs do and how full they are", "mgr", "r"),
    mgr("osd pool autoscale-status format:String?", "PG counts of pools and what they should be", "mgr", "r"),
    CommandSpec {
        sig: "iostat width:Int? print_header:Bool?",
        help: "reads and writes per second",
        module: "mgr",
        perm: "r",
        flags: flag::MGR | flag::POLL,
    },
    mgr("config show who:String key:String?", "options in force in a daemon", "mgr", "r"),
    mgr("config show-with-defaults who:String", "options in force in a daemon, defaults too", "mgr", "r"),
    mgr("service dump", "service daemons and what they say", "service", "r"),
    mgr("service status", "state of service daemons", "service", "r"),
    mgr("progress", "what is under way", "mgr", "r"),
    mgr("progress json", "what is under way, as json", "mgr", "r"),
    mgr("progress clear", "forget what was under way", "mgr", "rw"),
    mgr("balancer status", "what the balancer does", "mgr", "r"),
    mgr("balancer mode mode:Choices=none|crush-compat|upmap", "how to balance", "mgr", "rw"),
    mgr("balancer on", "balance by itself", "mgr", "rw"),
    mgr("balancer off", "do not balance", "mgr", "rw"),
    mgr("balancer pool ls", "pools that balancing is limited to; none for all", "mgr", "r"),
    mgr("balancer pool add pools:String*", "limit balancing to these pools too", "mgr", "rw"),
    mgr("balancer pool rm pools:String*", "balance these pools no longer", "mgr", "rw"),
    mgr("balancer eval option:String?", "how even data is spread: in the cluster, a pool or a plan", "mgr", "r"),
    mgr("balancer eval-verbose option:String?", "the same, with all figures", "mgr", "r"),
    mgr("balancer optimize plan:String pools:String?*", "make a plan", "mgr", "rw"),
    mgr("balancer show plan:String", "a plan as commands", "mgr", "r"),
    mgr("balancer dump plan:String", "a plan as a step of the map", "mgr", "r"),
    mgr("balancer execute plan:String", "carry a plan out", "mgr", "rw"),
    mgr("balancer rm plan:String", "drop a plan", "mgr", "rw"),
    mgr("balancer reset", "drop all plans", "mgr", "rw"),
    mgr("balancer ls", "plans", "mgr", "r"),
    mgr("crash ls", "crashes that were reported", "mgr", "r"),
    mgr("crash ls-new", "crashes nobody has looked at", "mgr", "r"),
    mgr("crash stat", "how many crashes were reported", "mgr", "r"),
    mgr("crash info id:String", "one crash", "mgr", "r"),
    mgr("crash archive id:String", "mark a crash as looked at", "mgr", "w"),
    mgr("crash archive-all", "mark all crashes as looked at", "mgr", "w"),
    mgr("device ls", "devices of daemons", "mgr", "r"),
    mgr("device info devid:String", "one device", "mgr", "r"),
    mgr("device ls-by-daemon who:String", "devices of one daemon", "mgr", "r"),
    mgr("device ls-by-host host:String", "devices of one host", "mgr", "r"),
    mgr("rbd perf image stats pool_spec:String? sort_by:String?", "reads and writes of images", "mgr", "r"),
    mgr("rbd perf image counters pool_spec:String? sort_by:String?", "counters of images", "mgr", "r"),
    mgr("rbd task list task_id:String?", "tasks on images", "mgr", "r"),
    mgr("fs status fs:String?", "what file systems do", "mgr", "r"),
    mgr("orch device ls hostname:String?* format:String? refresh:Bool? wide:Bool?", "devices of hosts, as an orchestrator knows them", "mgr", "r"),
    mgr("orch host ls format:String?", "hosts, as an orchestrator knows them", "mgr", "r"),
    mgr("orch ls service_type:String? service_name:String? export:Bool? format:String? refresh:Bool?", "services, as an orchestrator knows them", "mgr", "r"),
    mgr("orch ps hostname:String? service_name:String? daemon_type:String? daemon_id:String? format:String? refresh:Bool?", "daemons, as an orchestrator knows them", "mgr", "r"),
    mgr("orch status detail:Bool? format:String?", "who deploys daemons", "mgr", "r"),
    mgr("telemetry status", "whether figures are sent to anyone", "mgr", "r"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::CommandTable;

    #[test]
    fn every_signature_parses_and_is_for_the_manager() {
        let table = CommandTable::new(MGR_COMMANDS);
        assert!(table.specs().all(|s| s.flags & flag::MGR != 0));
        assert!(table.knows("osd pool autoscale-status"));
    }
}
