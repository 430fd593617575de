//! The table that `get_command_descriptions` gives to clients.

use admin::CommandSpec;
use admin::command::flag;

const fn c(sig: &'static str, help: &'static str) -> CommandSpec {
    CommandSpec { sig, help, module: "osd", perm: "rw", flags: flag::NONE }
}

pub(super) const COMMANDS: &[CommandSpec] = &[
    c("pg pgid:Pgid cmd:Choices=query", "show details of a specific pg"),
    c("pg pgid:Pgid cmd:Choices=mark_unfound_lost mulcmd:Choices=revert|delete", "give up this pg's unfound objects: go back to an older version if there is one, or delete them"),
    c("pg pgid:Pgid cmd:Choices=list_unfound offset:String?", "list unfound objects of this pg, perhaps from an offset given in JSON"),
    c("query pgid:Pgid", "show details of a specific pg"),
    c("mark_unfound_lost pgid:Pgid mulcmd:Choices=revert|delete", "give up this pg's unfound objects: go back to an older version if there is one, or delete them"),
    c("list_unfound pgid:Pgid offset:String?", "list unfound objects of this pg, perhaps from an offset given in JSON"),
    c("version", "get ceph version"),
    c("get_command_descriptions", "list available commands"),
    c("help", "list available commands"),
    c("git_version", "get git sha1"),
    c("injectargs injected_args:String*", "inject configuration arguments into running daemon"),
    c("config set var:String val:String*", "config set <field> <val> [<val> ...]: set a config variable"),
    c("config unset var:String", "config unset <field>: unset a config variable"),
    c("config get var:String", "config get <field>: get the config value"),
    c("config show", "dump current config settings"),
    c("config diff", "dump diff of current config and default config"),
    c("config diff get var:String", "dump diff get <field>: dump diff of current and default config setting <field>"),
    c("config help var:String?", "get config setting schema and descriptions"),
    c("perf dump logger:String? counter:String?", "dump perfcounters value"),
    c("perf schema logger:String? counter:String?", "dump perfcounters schema"),
    c("perf histogram dump logger:String? counter:String?", "dump perf histogram values"),
    c("perf histogram schema", "dump perf histogram schema"),
    c("dump_mempools", "get mempool stats"),
    c("cache status", "get cache status of object stores"),
    c("cache drop", "drop all OSD caches"),
    c("dump_objectstore_kv_stats", "print statistics of kvdb which used by bluestore"),
    c("dump_pg_recovery_stats", "dump pg recovery statistics"),
    c("perf reset var:String", "perf reset <name>: perf reset all or one perfcounter name"),
    c("bench count:Int? size:Int? object_size:Int? object_num:Int?", "OSD benchmark: write <count> <size>-byte objects (default count=1G default size=4MB). Results in log."),
    c("status", "high-level status of OSD"),
    c("dump_ops_in_flight filterstr:String?*", "show the ops currently in flight"),
    c("ops filterstr:String?*", "show the ops currently in flight"),
    c("dump_blocked_ops filterstr:String?*", "show the blocked ops currently in flight"),
    c("dump_historic_ops filterstr:String?*", "show recent ops"),
    c("dump_historic_ops_by_duration filterstr:String?*", "show slowest recent ops, sorted by duration"),
    c("dump_historic_slow_ops filterstr:String?*", "show slowest recent ops"),
    c("dump_watchers", "show clients which have active watches, and on which objects"),
    c("dump_blocklist", "dump blocklisted clients and times"),
    c("dump_osd_network value:Int?", "Dump osd heartbeat network ping times"),
    c("dump_recovery_reservations", "show recovery reservations"),
    c("dump_scrub_reservations", "show scrub reservations"),
    c("dump_scrubs", "print scheduled scrubs"),
    c("get_mapped_pools", "dump pools whose PG(s) are mapped to this OSD."),
    c("list_devices", "list OSD devices."),
    c("get_latest_osdmap", "force osd to update the latest map from the mon"),
    c("flush_pg_stats", "flush pg stats"),
    c("send_beacon", "send OSD beacon to mon immediately"),
    c("log flush", "flush log entries to log file"),
    c("heap heapcmd:String value:String?", "show heap usage info (available only if compiled with tcmalloc)"),
    c("compact", "Compact object store's omap. WARNING: Compaction probably slows your requests"),
];

#[cfg(test)]
mod tests {
    #[test]
    fn every_signature_can_be_read() {
        let table = admin::CommandTable::new(super::COMMANDS);
        assert!(table.knows("perf dump") && table.knows("pg"));
    }
}
