//! What clients learn of our commands: signatures as Ceph's, help in our words.
//!
//! The notation of a signature is that of `admin::command`. Module and permissions are in the commands' own tables.

use super::{Entry, table, tell_table};
use admin::command::MGR_COMMANDS;
use admin::{CommandSpec, CommandTable};
use std::collections::BTreeMap;
use std::sync::LazyLock;

type Row = (&'static str, &'static str, u32);

/// The monitors' table with the manager's, as `get_command_descriptions` sends it.
pub fn mon_descriptions() -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let mgr = CommandTable::new(MGR_COMMANDS);
        CommandTable::new(&specs(MON, table())).describe(&[&mgr])
    });
    TEXT.clone()
}

/// True if the active manager has a command of that name.
pub fn is_manager_s(prefix: &str) -> bool {
    MGR_COMMANDS.iter().any(|c| literal(c.sig) == prefix)
}

/// The table of `ceph tell mon.X`.
pub fn tell_descriptions() -> String {
    static TEXT: LazyLock<String> = LazyLock::new(|| CommandTable::new(&specs(TELL, tell_table())).describe(&[]));
    TEXT.clone()
}

/// The help of a command for one monitor.
pub fn help_of(prefix: &str) -> &'static str {
    TELL.iter().find(|(sig, ..)| literal(sig) == prefix).map_or("", |(_, help, _)| help)
}

fn specs(rows: &[Row], table: &BTreeMap<&'static str, &'static Entry>) -> Vec<CommandSpec> {
    let spec = |(sig, help, flags): &Row| {
        let entry = table.get(literal(sig).as_str());
        let (module, perm) = entry.map_or(("mon", "r"), |e| (e.module, e.perm));
        CommandSpec { sig, help, module, perm, flags: *flags }
    };
    rows.iter().map(spec).collect()
}

/// The literal words of a signature.
fn literal(sig: &str) -> String {
    sig.split(' ').filter(|w| !w.contains(':')).collect::<Vec<_>>().join(" ")
}

const MON: &[Row] = &[
    ("auth add entity:String caps:String?*", "give an entity a key (from standard input, or a new one) and capabilities", 0),
    ("auth caps entity:String caps:String*", "replace an entity's capabilities by those given", 0),
    ("auth del entity:String", "remove an entity and its key", 4),
    ("auth export entity:String?", "print the keyring of an entity, or of all", 0),
    ("auth get entity:String", "print an entity's key and capabilities as a keyring", 0),
    ("auth get-key entity:String", "print an entity's key alone", 0),
    ("auth get-or-create entity:String caps:String?*", "print an entity's keyring, making the entity if there is none", 0),
    ("auth get-or-create-key entity:String caps:String?*", "print an entity's key, making the entity if there is none", 0),
    ("auth import", "take over every entity of the keyring on standard input", 0),
    ("auth list", "list every entity with its key and capabilities", 4),
    ("auth ls", "list every entity with its key and capabilities", 0),
    ("auth print-key entity:String", "print an entity's key alone", 0),
    ("auth print_key entity:String", "print an entity's key alone", 0),
    ("auth rm entity:String", "remove an entity and its key", 0),
    ("config assimilate-conf", "keep the options of a ceph.conf here, return what cannot be kept", 0),
    ("config dump", "show every option kept by the monitors", 0),
    ("config generate-minimal-conf", "print the least ceph.conf a client needs", 0),
    ("config get who:String key:String?", "show the options in force for an entity, or one of them", 0),
    ("config help key:String", "describe an option", 0),
    ("config log num:Int?", "show the latest changes of options", 0),
    ("config ls", "list all options by name", 0),
    ("config reset num:Int[0]", "undo every change since a version of the log", 0),
    ("config rm who:String name:String", "forget an option's value for a section or entity", 0),
    ("config set who:String name:String value:String force:Bool?", "set an option for a section or entity", 0),
    ("config-key del key:String", "remove a key", 4),
    ("config-key dump key:String?", "print keys and values, all or those with a prefix", 0),
    ("config-key exists key:String", "tell whether a key exists", 0),
    ("config-key get key:String", "print a key's value", 0),
    ("config-key list", "list all keys", 4),
    ("config-key ls", "list all keys", 0),
    ("config-key put key:String val:String?", "set a key to a value, or to standard input", 4),
    ("config-key rm key:String", "remove a key", 0),
    ("config-key set key:String val:String?", "set a key to a value, or to standard input", 0),
    ("df detail:Choices?=detail", "show how full the cluster and its pools are", 0),
    ("features", "count daemons and clients by the features they speak", 0),
    ("fs authorize filesystem:String entity:String caps:String*", "make a key for paths of a file system", 0),
    ("fs dump epoch:Int?[0]", "show the map of file systems", 0),
    ("fs get fs_name:String", "show one file system", 0),
    ("fs ls", "list file systems", 0),
    ("fs new fs_name:String{[A-Za-z0-9-_.]} metadata:String data:String force:Bool? allow_dangerous_metadata_overlay:Bool? fscid:Int?[0] recover:Bool?", "make a file system of two pools", 0),
    ("fsid", "print the cluster's id", 0),
    ("health detail:Choices?=detail", "show what is wrong with the cluster", 0),
    ("health mute code:String ttl:String? sticky:Bool?", "silence a health check, for a time or until it clears", 0),
    ("health unmute code:String?", "end the silence of a health check, or of all", 0),
    ("log logtext:String*", "write a line into the cluster log", 0),
    ("log last num:Int?[1] level:Choices?=debug|info|sec|warn|error channel:Choices?=*|cluster|audit|cephadm", "show the latest lines of the cluster log", 0),
    ("mds count-metadata property:String", "count metadata servers by a field of their metadata", 0),
    ("mds metadata who:String?", "show what metadata servers say of themselves", 0),
    ("mds stat", "show the state of metadata servers in short", 32),
    ("mds versions", "count metadata servers by version", 0),
    ("mgr count-metadata property:String", "count managers by a field of their metadata", 0),
    ("mgr dump epoch:Int?[0]", "show the map of managers", 0),
    ("mgr fail who:String?", "have another manager take over", 0),
    ("mgr metadata who:String?", "show what managers say of themselves", 0),
    ("mgr module disable module:String", "turn a manager module off", 0),
    ("mgr module enable module:String force:Choices?=--force", "turn a manager module on", 0),
    ("mgr module ls", "list manager modules", 0),
    ("mgr services", "list addresses that manager modules serve at", 0),
    ("mgr stat", "show the active manager in short", 0),
    ("mgr versions", "count managers by version", 0),
    ("mon add disallowed_leader name:String", "keep a monitor from becoming the leader", 0),
    ("mon add name:String addr:IPAddr location:String?*{[A-Za-z0-9-_.=]}", "add a monitor at an address", 0),
    ("mon count-metadata property:String", "count monitors by a field of their metadata", 0),
    ("mon dump epoch:Int?[0]", "show the map of monitors", 0),
    ("mon enable-msgr2", "have the monitors speak the second protocol, as they do", 0),
    ("mon enable_stretch_mode tiebreaker_mon:String new_crush_rule:String dividing_bucket:String", "spread the cluster over two sites", 0),
    ("mon feature ls with_value:Choices?=--with-value", "list features of the monitor map", 0),
    ("mon feature set feature_name:String yes_i_really_mean_it:Bool?", "switch on a feature of the monitor map", 0),
    ("mon getmap epoch:Int?[0]", "fetch the encoded monitor map", 0),
    ("mon metadata id:String?", "show what monitors say of themselves", 0),
    ("mon ok-to-add-offline", "tell whether a monitor could be added before it runs", 0),
    ("mon ok-to-rm id:String", "tell whether a monitor could be removed", 0),
    ("mon ok-to-stop ids:String*", "tell whether monitors could be stopped now", 0),
    ("mon remove name:String", "remove a monitor", 4),
    ("mon rm disallowed_leader name:String", "let a monitor become the leader again", 0),
    ("mon rm name:String", "remove a monitor", 0),
    ("mon scrub", "compare the monitors' stores", 0),
    ("mon set election_strategy strategy:String", "choose how monitors elect a leader", 0),
    ("mon set-addrs name:String addrs:String", "give a monitor other addresses", 0),
    ("mon set-rank name:String rank:Int", "give a monitor another rank", 0),
    ("mon set-weight name:String weight:Int[0|65535]", "have more or fewer clients choose a monitor", 0),
    ("mon set_location name:String args:String*{[A-Za-z0-9-_.=]}", "say where in the CRUSH map a monitor is", 0),
    ("mon stat", "show the monitors in short", 0),
    ("mon versions", "count monitors by version", 0),
    ("node ls type:Choices?=all|osd|mon|mds|mgr", "list daemons by host", 0),
    ("osd add-nodown ids:String*", "keep OSDs from being marked down", 4),
    ("osd add-noin ids:String*", "keep OSDs from being marked in", 4),
    ("osd add-noout ids:String*", "keep OSDs from being marked out", 4),
    ("osd add-noup ids:String*", "keep OSDs from being marked up", 4),
    ("osd blacklist blacklistop:Choices=add|rm addr:EntityAddr expire:Float?[0.0]", "old name of `osd blocklist`", 4),
    ("osd blacklist clear", "old name of `osd blocklist clear`", 4),
    ("osd blacklist ls", "old name of `osd blocklist ls`", 4),
    ("osd blocklist range:String?{[range]} blocklistop:Choices=add|rm addr:EntityAddr expire:Float?[0.0]", "put a client on the blocklist (for seconds), or take it off", 0),
    ("osd blocklist clear", "empty the blocklist", 0),
    ("osd blocklist ls", "list blocked clients", 0),
    ("osd count-metadata property:String", "count OSDs by a field of their metadata", 0),
    ("osd create uuid:UUID? id:OsdName?", "make an OSD number (see `osd new`)", 4),
    ("osd crush add id:OsdName weight:Float[0.0] args:String*{[A-Za-z0-9-_.=]}", "put an OSD into the hierarchy with a weight", 0),
    ("osd crush add-bucket name:String{[A-Za-z0-9-_.]} type:String args:String?*{[A-Za-z0-9-_.=]}", "make a bucket of a type, somewhere or nowhere yet", 0),
    ("osd crush class create class:String{[A-Za-z0-9-_]}", "make a device class", 0),
    ("osd crush class ls", "list device classes", 0),
    ("osd crush class ls-osd class:String{[A-Za-z0-9-_]}", "list the OSDs of a device class", 0),
    ("osd crush class rename srcname:String{[A-Za-z0-9-_]} dstname:String{[A-Za-z0-9-_]}", "rename a device class", 0),
    ("osd crush class rm class:String{[A-Za-z0-9-_]}", "remove a device class, from its OSDs too", 0),
    ("osd crush create-or-move id:OsdName weight:Float[0.0] args:String*{[A-Za-z0-9-_.=]}", "put an OSD at a place, keeping the weight it has", 0),
    ("osd crush dump", "show the whole CRUSH map", 0),
    ("osd crush get-device-class ids:String*", "show the device class of OSDs", 0),
    ("osd crush get-tunable tunable:Choices=straw_calc_version", "show a tunable", 0),
    ("osd crush link name:String args:String*{[A-Za-z0-9-_.=]}", "hang a bucket at one more place", 0),
    ("osd crush ls node:String{[A-Za-z0-9-_.]}", "list what is directly below a node", 0),
    ("osd crush move name:String{[A-Za-z0-9-_.]} args:String*{[A-Za-z0-9-_.=]}", "move a bucket or OSD to another place", 0),
    ("osd crush remove name:String{[A-Za-z0-9-_.]} ancestor:String?{[A-Za-z0-9-_.]}", "take an item out of the hierarchy", 4),
    ("osd crush rename-bucket srcname:String{[A-Za-z0-9-_.]} dstname:String{[A-Za-z0-9-_.]}", "rename a bucket", 0),
    ("osd crush reweight name:String{[A-Za-z0-9-_.]} weight:Float[0.0]", "set an OSD's weight", 0),
    ("osd crush reweight-all", "work out all bucket weights anew", 0),
    ("osd crush reweight-subtree name:String{[A-Za-z0-9-_.]} weight:Float[0.0]", "set the weight of every OSD below a bucket", 0),
    ("osd crush rm name:String{[A-Za-z0-9-_.]} ancestor:String?{[A-Za-z0-9-_.]}", "take an item out of the hierarchy", 0),
    ("osd crush rm-device-class ids:String*", "take the device class off OSDs", 0),
    ("osd crush rule create-erasure name:String{[A-Za-z0-9-_.]} profile:String?{[A-Za-z0-9-_.=]}", "make a rule for erasure-coded pools", 0),
    ("osd crush rule create-replicated name:String{[A-Za-z0-9-_.]} root:String{[A-Za-z0-9-_.]} type:String{[A-Za-z0-9-_.]} class:String?{[A-Za-z0-9-_.]}", "make a rule that spreads copies over a failure domain", 0),
    ("osd crush rule create-simple name:String{[A-Za-z0-9-_.]} root:String{[A-Za-z0-9-_.]} type:String{[A-Za-z0-9-_.]} mode:Choices?=firstn|indep", "make a rule (see create-replicated)", 0),
    ("osd crush rule dump name:String?{[A-Za-z0-9-_.]}", "show one rule, or all", 0),
    ("osd crush rule list", "list rules", 4),
    ("osd crush rule ls", "list rules", 0),
    ("osd crush rule ls-by-class class:String{[A-Za-z0-9-_.]}", "list rules that take from a device class", 0),
    ("osd crush rule rename srcname:String{[A-Za-z0-9-_.]} dstname:String{[A-Za-z0-9-_.]}", "rename a rule", 0),
    ("osd crush rule rm name:String{[A-Za-z0-9-_.]}", "remove a rule that no pool uses", 0),
    ("osd crush set prior_version:Int?", "set an OSD's weight and place; without arguments, the whole map from standard input", 0),
    ("osd crush set id:OsdName weight:Float[0.0] args:String*{[A-Za-z0-9-_.=]}", "set an OSD's weight and place; without arguments, the whole map from standard input", 0),
    ("osd crush set-all-straw-buckets-to-straw2", "turn straw buckets into straw2", 0),
    ("osd crush set-device-class class:String ids:String*", "give OSDs a device class", 0),
    ("osd crush set-tunable tunable:Choices=straw_calc_version value:Int", "set a tunable", 0),
    ("osd crush show-tunables", "show the tunables", 0),
    ("osd crush swap-bucket source:String{[A-Za-z0-9-_.]} dest:String{[A-Za-z0-9-_.]} yes_i_really_mean_it:Bool?", "exchange the contents of two buckets", 0),
    ("osd crush tree shadow:Choices?=--show-shadow", "show the hierarchy", 0),
    ("osd crush tunables profile:Choices=legacy|argonaut|bobtail|firefly|hammer|jewel|optimal|default", "set all tunables to those of a release", 0),
    ("osd crush unlink name:String{[A-Za-z0-9-_.]} ancestor:String?{[A-Za-z0-9-_.]}", "take a bucket away from a place without destroying it", 0),
    ("osd crush weight-set create pool:Poolname mode:Choices=flat|positional", "make a weight set for a pool", 0),
    ("osd crush weight-set create-compat", "make the weight set that old clients can use", 0),
    ("osd crush weight-set dump", "show weight sets", 0),
    ("osd crush weight-set ls", "list weight sets", 0),
    ("osd crush weight-set reweight pool:Poolname item:String weight:Float*[0.0]", "set an item's weights in a pool's weight set", 0),
    ("osd crush weight-set reweight-compat item:String weight:Float*[0.0]", "set an item's weight in the compat weight set", 0),
    ("osd crush weight-set rm pool:Poolname", "remove a pool's weight set", 0),
    ("osd crush weight-set rm-compat", "remove the compat weight set", 0),
    ("osd destroy id:OsdName force:Bool? yes_i_really_mean_it:Bool?", "give up an OSD's data and keys, keeping its number for a replacement", 0),
    ("osd destroy-actual id:OsdName yes_i_really_mean_it:Bool?", "second step of `osd destroy`", 32),
    ("osd down ids:String* definitely_dead:Bool?", "mark OSDs down; those that run will say so", 0),
    ("osd dump epoch:Int?[0]", "show the map of OSDs", 0),
    ("osd erasure-code-profile get name:String{[A-Za-z0-9-_.]}", "show an erasure-code profile", 0),
    ("osd erasure-code-profile ls", "list erasure-code profiles", 0),
    ("osd erasure-code-profile rm name:String{[A-Za-z0-9-_.]}", "remove an erasure-code profile", 0),
    ("osd erasure-code-profile set name:String{[A-Za-z0-9-_.]} profile:String?* force:Bool?", "make an erasure-code profile of key=value pairs", 0),
    ("osd find id:OsdName", "show where an OSD is", 0),
    ("osd force_healthy_stretch_mode yes_i_really_mean_it:Bool?", "end what stretch mode does without a site", 0),
    ("osd force_recovery_stretch_mode yes_i_really_mean_it:Bool?", "have stretch mode recover to both sites", 0),
    ("osd get-require-min-compat-client", "show the oldest release clients may be of", 0),
    ("osd getcrushmap epoch:Int?[0]", "fetch the encoded CRUSH map", 0),
    ("osd getmap epoch:Int?[0]", "fetch the encoded map of OSDs", 0),
    ("osd getmaxosd", "show the limit of OSD numbers", 0),
    ("osd in ids:String*", "let OSDs take data", 0),
    ("osd info id:OsdName?", "show the map's line of an OSD, or of all", 0),
    ("osd last-stat-seq id:OsdName", "show which of an OSD's reports came last", 0),
    ("osd lost id:OsdName yes_i_really_mean_it:Bool?", "declare an OSD's data lost for good", 0),
    ("osd ls epoch:Int?[0]", "list OSD numbers", 0),
    ("osd ls-tree epoch:Int?[0] name:String", "list OSDs below a bucket", 0),
    ("osd lspools", "list pools with their numbers", 4),
    ("osd map pool:Poolname object:Objectname nspace:String?", "show which PG and OSDs an object belongs to", 0),
    ("osd metadata id:OsdName?", "show what OSDs say of themselves", 0),
    ("osd new uuid:UUID id:OsdName?", "make an OSD with an identity, its keys on standard input", 0),
    ("osd numa-status", "show the NUMA node of each OSD", 0),
    ("osd out ids:String*", "move all data off OSDs", 0),
    ("osd pause", "have OSDs take no reads and no writes", 0),
    ("osd pg-temp pgid:Pgid id:OsdName?*", "set a PG's temporary acting set (for developers)", 0),
    ("osd pg-upmap pgid:Pgid id:OsdName*", "place a PG on a given set of OSDs", 0),
    ("osd pg-upmap-items pgid:Pgid id:OsdName*", "replace OSDs in a PG's set, in pairs", 0),
    ("osd pg-upmap-primary pgid:Pgid id:OsdName", "make another OSD of a PG's set its primary", 0),
    ("osd pool application disable pool:Poolname app:String yes_i_really_mean_it:Bool?", "say that an application no longer uses a pool", 0),
    ("osd pool application enable pool:Poolname app:String{[A-Za-z0-9-_.]} yes_i_really_mean_it:Bool?", "say which application uses a pool", 0),
    ("osd pool application get pool:Poolname? app:String? key:String?", "show the applications of pools", 0),
    ("osd pool application rm pool:Poolname app:String key:String", "remove a key of an application", 0),
    ("osd pool application set pool:Poolname app:String key:String{[A-Za-z0-9-_.]} value:String{[A-Za-z0-9-_.=]}", "set a key of an application", 0),
    ("osd pool create pool:Poolname pg_num:Int?[0] pgp_num:Int?[0] pool_type:Choices?=replicated|erasure erasure_code_profile:String?{[A-Za-z0-9-_.]} rule:String? expected_num_objects:Int?[0] size:Int?[0] pg_num_min:Int?[0] pg_num_max:Int?[0] autoscale_mode:Choices?=on|off|warn bulk:Bool? target_size_bytes:Int?[0] target_size_ratio:Float?[0.0]", "make a pool", 0),
    ("osd pool delete pool:Poolname pool2:Poolname? yes_i_really_really_mean_it:Bool? yes_i_really_really_mean_it_not_faking:Bool?", "remove a pool and all its data", 4),
    ("osd pool get pool:Poolname var:Choices=size|min_size|pg_num|pgp_num|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_objects|target_max_bytes|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|erasure_code_profile|min_read_recency_for_promote|all|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk|eio", "show a setting of a pool, or all", 0),
    ("osd pool get-quota pool:Poolname", "show the limits of a pool", 0),
    ("osd pool ls detail:Choices?=detail", "list pools", 0),
    ("osd pool mksnap pool:Poolname snap:String", "make a snapshot of a pool", 0),
    ("osd pool rename srcpool:Poolname destpool:Poolname", "rename a pool", 0),
    ("osd pool rm pool:Poolname pool2:Poolname? yes_i_really_really_mean_it:Bool? yes_i_really_really_mean_it_not_faking:Bool?", "remove a pool and all its data", 0),
    ("osd pool rmsnap pool:Poolname snap:String", "remove a snapshot of a pool", 0),
    ("osd pool set pool:Poolname var:Choices=size|min_size|pg_num|pgp_num|pgp_num_actual|crush_rule|hashpspool|nodelete|nopgchange|nosizechange|write_fadvise_dontneed|noscrub|nodeep-scrub|hit_set_type|hit_set_period|hit_set_count|hit_set_fpp|use_gmt_hitset|target_max_bytes|target_max_objects|cache_target_dirty_ratio|cache_target_dirty_high_ratio|cache_target_full_ratio|cache_min_flush_age|cache_min_evict_age|min_read_recency_for_promote|min_write_recency_for_promote|fast_read|hit_set_grade_decay_rate|hit_set_search_last_n|scrub_min_interval|scrub_max_interval|deep_scrub_interval|recovery_priority|recovery_op_priority|scrub_priority|compression_mode|compression_algorithm|compression_required_ratio|compression_max_blob_size|compression_min_blob_size|csum_type|csum_min_block|csum_max_block|allow_ec_overwrites|fingerprint_algorithm|pg_autoscale_mode|pg_autoscale_bias|pg_num_min|pg_num_max|target_size_bytes|target_size_ratio|dedup_tier|dedup_chunk_algorithm|dedup_cdc_chunk_size|bulk|eio val:String yes_i_really_mean_it:Bool?", "change a setting of a pool", 0),
    ("osd pool set-quota pool:Poolname field:Choices=max_objects|max_bytes val:String", "limit a pool to objects or bytes", 0),
    ("osd primary-affinity id:OsdName weight:Float[0.0|1.0]", "set how readily an OSD becomes primary, 0 to 1", 0),
    ("osd primary-temp pgid:Pgid id:OsdName", "set a PG's temporary primary (for developers)", 0),
    ("osd purge id:OsdName force:Bool? yes_i_really_mean_it:Bool?", "remove an OSD, its keys and its place, for good", 0),
    ("osd purge-actual id:OsdName yes_i_really_mean_it:Bool?", "second step of `osd purge`", 32),
    ("osd purge-new id:OsdName yes_i_really_mean_it:Bool?", "undo an `osd new` that went no further", 0),
    ("osd require-osd-release release:Choices=luminous|mimic|nautilus|octopus|pacific yes_i_really_mean_it:Bool?", "refuse OSDs older than a release", 0),
    ("osd reweight id:OsdName weight:Float[0.0|1.0]", "correct an OSD's share of data, 0 to 1", 0),
    ("osd reweightn weights:String", "correct the shares of several OSDs", 0),
    ("osd rm ids:String*", "remove OSDs from the map", 4),
    ("osd rm-nodown ids:String*", "let OSDs be marked down again", 4),
    ("osd rm-noin ids:String*", "let OSDs be marked in again", 4),
    ("osd rm-noout ids:String*", "let OSDs be marked out again", 4),
    ("osd rm-noup ids:String*", "let OSDs be marked up again", 4),
    ("osd rm-pg-upmap pgid:Pgid", "end a PG's placement by hand", 0),
    ("osd rm-pg-upmap-items pgid:Pgid", "end a PG's replacements", 0),
    ("osd rm-pg-upmap-primary pgid:Pgid", "let CRUSH choose a PG's primary again", 0),
    ("osd set key:Choices=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim|pglog_hardlimit yes_i_really_mean_it:Bool?", "set a cluster-wide flag", 0),
    ("osd set-backfillfull-ratio ratio:Float[0.0|1.0]", "set how full an OSD may be to take backfill", 0),
    ("osd set-full-ratio ratio:Float[0.0|1.0]", "set how full an OSD may be to take writes", 0),
    ("osd set-group flags:String who:String*", "set flags for OSDs, buckets or device classes", 0),
    ("osd set-nearfull-ratio ratio:Float[0.0|1.0]", "set how full an OSD may be before a warning", 0),
    ("osd set-require-min-compat-client version:String yes_i_really_mean_it:Bool?", "refuse clients older than a release", 0),
    ("osd setcrushmap prior_version:Int?", "replace the CRUSH map by the one on standard input", 0),
    ("osd setmaxosd newmax:Int[0]", "set the limit of OSD numbers", 0),
    ("osd stat", "show the OSDs in short", 0),
    ("osd stop ids:String*", "have OSDs stop", 0),
    ("osd tier add pool:Poolname tierpool:Poolname force_nonempty:Choices?=--force-nonempty", "make a pool the cache of another", 0),
    ("osd tier add-cache pool:Poolname tierpool:Poolname size:Int[0]", "make a pool the cache of another, of a given size", 0),
    ("osd tier cache-mode pool:Poolname mode:Choices=writeback|proxy|readproxy|readonly|none yes_i_really_mean_it:Bool?", "say how a cache works", 0),
    ("osd tier remove pool:Poolname tierpool:Poolname", "let a pool be no cache any more", 4),
    ("osd tier remove-overlay pool:Poolname", "have clients go past the cache", 4),
    ("osd tier rm pool:Poolname tierpool:Poolname", "let a pool be no cache any more", 0),
    ("osd tier rm-overlay pool:Poolname", "have clients go past the cache", 0),
    ("osd tier set-overlay pool:Poolname overlaypool:Poolname", "have clients go to the cache", 0),
    ("osd tree epoch:Int?[0] states:Choices?*=up|down|in|out|destroyed", "show OSDs in their hierarchy", 0),
    ("osd tree-from epoch:Int?[0] bucket:String states:Choices?*=up|down|in|out|destroyed", "show OSDs below a bucket", 0),
    ("osd unpause", "have OSDs take reads and writes again", 0),
    ("osd unset key:Choices=full|pause|noup|nodown|noout|noin|nobackfill|norebalance|norecover|noscrub|nodeep-scrub|notieragent|nosnaptrim", "clear a cluster-wide flag", 0),
    ("osd unset-group flags:String who:String*", "clear flags of OSDs, buckets or device classes", 0),
    ("osd utilization", "show how evenly PGs are spread", 0),
    ("osd versions", "count OSDs by version", 0),
    ("pg map pgid:Pgid", "show which OSDs a PG is on", 0),
    ("pg repeer pgid:Pgid", "have a PG peer anew", 0),
    ("quorum_status", "show which monitors agree, and who leads", 0),
    ("report tags:String?*", "print everything that helps to find a fault", 0),
    ("service dump", "show services that registered with the manager", 0),
    ("service status", "show the state of those services", 0),
    ("status", "show the cluster's state", 0),
    ("time-sync-status", "show how the monitors' clocks agree", 0),
    ("version", "print the version of the monitor that is asked", 0),
    ("versions", "count daemons by version", 0),
];

const TELL: &[Row] = &[
    ("compact", "have the store shrink its files", 33),
    ("config diff", "show options that are not at their defaults", 33),
    ("config get var:String", "show an option of this daemon", 33),
    ("config help var:String?", "describe an option", 33),
    ("config set var:String val:String*", "set an option of this daemon, until it ends", 33),
    ("perf dump logger:String? counter:String?", "dump perfcounters value", 33),
    ("perf schema logger:String? counter:String?", "dump perfcounters schema", 33),
    ("config show", "show every option of this daemon", 33),
    ("config unset var:String", "forget a value set on this daemon", 33),
    ("dump_historic_ops", "show recent requests that were slow", 33),
    ("git_version", "print where the program was built from", 33),
    ("heap heapcmd:Choices=dump|start_profiler|stop_profiler|release|stats value:String?", "show the allocator's figures", 33),
    ("help", "list the commands", 33),
    ("injectargs injected_args:String*", "set options as on a command line", 33),
    ("log flush", "write out what is waiting of the log", 33),
    ("log reopen", "open the log file again", 33),
    ("mon_status", "show this monitor's state", 33),
    ("ops", "show requests under way", 33),
    ("quorum_status", "show which monitors agree, and who leads", 0),
    ("sessions", "list who is connected", 33),
    ("sync_status", "show the replicated log's range", 33),
    ("version", "print the version", 33),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_described_and_every_description_has_a_command() {
        let described = |rows: &[Row]| rows.iter().map(|(sig, ..)| literal(sig)).collect::<std::collections::BTreeSet<_>>();
        for (rows, table) in [(MON, table()), (TELL, tell_table())] {
            let have: std::collections::BTreeSet<String> =
                table.keys().filter(|k| **k != "get_command_descriptions").map(|k| (*k).to_owned()).collect();
            assert_eq!(described(rows), have);
        }
    }

    #[test]
    fn the_manager_s_commands_are_merged_with_their_flag() {
        let all: serde_json::Value = serde_json::from_str(&mon_descriptions()).unwrap();
        let all = all.as_object().unwrap();
        assert!(all.values().any(|c| c["sig"][0] == "pg" && c["flags"] == 8));
        let tree = all.values().find(|c| c["sig"][0] == "osd" && c["sig"][1] == "tree").unwrap();
        assert_eq!(tree["sig"][2]["req"], "false", "a string, as clients expect");
    }
}
