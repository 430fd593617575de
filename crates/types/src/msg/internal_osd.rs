//! Messages between OSDs. Ours, not Ceph's: kinds from 0x7100.
//!
//! Holds: whatever concerns a PG names the interval it was sent in; a receiver that has moved on drops it, one that has
//! not yet heard of that interval keeps it until its map catches up.

use super::message;
use crate::pg::{PgLogDup, PgLogEntry, Shards};
use crate::{EVersion, Epoch, HObject, OsdId, PgId, Utime};
use bytes::Bytes;
use denc::{BString, Decode, Encode};

message! {
    /// A write for a replica: what to log and what to do.
    RepOp = 0x7100, v 5, c 5, p 127 {
        pgid: PgId,
        /// The primary's map.
        epoch: Epoch,
        interval: Epoch,
        /// What every copy stores in its log: the entry, and the PG's totals after the write.
        row: Bytes,
        /// The same of entries right before it that belong to the same write: clones that it made or removed.
        before: Vec<Bytes>,
        /// Every acting OSD has everything up to here on stable storage.
        committed_to: EVersion,
        /// The log may forget everything up to here.
        trim_to: EVersion,
        /// Steps on the object, without what they write.
        mutation: Bytes,
        /// The copy is being backfilled and has not got this far: it takes the entry, and the object when its turn comes.
        log_only: bool,
    } + /** What the steps write, in their order. */ payload
}
message! {
    /// The replica has it on stable storage.
    RepOpReply = 0x7101, v 2, c 2, p 127 {
        pgid: PgId,
        epoch: Epoch,
        interval: Epoch,
        osd: OsdId,
        version: EVersion,
        /// Its disk now: whoever orders writes must not order more than fits everywhere.
        space: DiskSpace,
    }
}
message! {
    /// Everything else OSDs have to say about a PG.
    PgMessage = 0x7102, v 9, c 9, p 127 {
        pgid: PgId,
        /// The sender's map.
        epoch: Epoch,
        round: Round,
        osd: OsdId,
        body: PgBody,
    } +
    /// What the parts of a `Push` write, behind each other.
    data
}
message! {
    /// Are you there? Yes.
    OsdHeartbeat = 0x7103, v 4, c 3, p 196 {
        osd: OsdId,
        epoch: Epoch,
        is_reply: bool,
        /// The asker's clock, returned as it came.
        stamp: Utime,
        /// The asker's monotonic time in nanoseconds, returned as it came.
        mono_ns: u64,
        /// The sender's disk.
        space: DiskSpace,
        /// How long the asker may count on nothing being started without it, from when it asked, in milliseconds: what it asks
        /// for, what it gets.
        lease_ms: u32,
        /// I/Os of the sender's disk take milliseconds each: who moves objects there or from there has to be patient.
        disk_is_slow: bool = since 4,
    }
}
message! {
    /// Does what we say over this connection reach you? Yes, says the answer, over the same one.
    OsdPing = 0x7105, v 1, c 1, p 196 {
        is_reply: bool,
        /// The asker's monotonic time in nanoseconds, returned as it came.
        mono_ns: u64,
    }
}
message! {
    /// Our session with you was reset: what we said last may never have arrived. Ask again for what you wait for.
    OsdSessionLost = 0x7104, v 1, c 1, p 127 { osd: OsdId, }
}

message! {
    /// Read this of your shard of an object of an erasure-coded pool.
    ShardRead = 0x7106, v 1, c 1, p 127 {
        pgid: PgId,
        epoch: Epoch,
        osd: OsdId,
        /// The asker's number for it.
        tid: u64,
        object: HObject,
        /// The write that made the object what is wanted.
        version: EVersion,
        shard: u8,
        off: u64,
        len: u64,
        /// Every attribute, too.
        attrs: bool,
        /// On whose account: 0 a client's, 1 recovery's, 2 that of what can wait.
        class: u8,
    }
}
message! {
    /// What was asked for; or the errno of why not: ENOENT where the shard is not that, or of another write.
    ShardReadReply = 0x7107, v 1, c 1, p 127 {
        pgid: PgId,
        epoch: Epoch,
        osd: OsdId,
        tid: u64,
        /// 0, or negative.
        result: i32,
        attrs: Vec<(BString, Bytes)>,
    } + data
}

/// An attempt at peering, as its primary counts them. Answers carry the round of what they answer: one that was asked
/// for in an earlier round, perhaps of another copy or before that copy was cut back, says nothing any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Round {
    pub interval: Epoch,
    /// From 1 in each life of the primary; 0 for what nobody asked for.
    pub number: u32,
}

/// How full an OSD's disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct DiskSpace {
    /// Bytes that data may still take.
    pub available: u64,
    /// 0: not known.
    pub total: u64,
}

impl DiskSpace {
    /// True if at least so much of it is used, from 0.0 to 1.0.
    pub fn is_used_to(&self, ratio: f64) -> bool {
        self.total > 0 && self.total.saturating_sub(self.available) as f64 >= self.total as f64 * ratio
    }
}

/// What a PG holds, in sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct PgTotals {
    /// Clones among them, and what only says that there is no live object beside clones.
    pub objects: i64,
    /// Of clones those that they have for themselves.
    pub bytes: i64,
    pub clones: i64,
}

/// What an OSD says of its copy of a PG.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 8, compat = 8)]
pub struct PeerInfo {
    /// False: it holds nothing of this PG, the rest is blank but `born`.
    pub exists: bool,
    pub last_update: EVersion,
    pub log_tail: EVersion,
    /// The interval in which this copy last went active.
    pub last_epoch_started: Epoch,
    pub history: PeerHistory,
    /// Objects before it are here or known to be missing; of those behind it nothing is known. `max` when no backfill is
    /// under way.
    pub last_backfill: HObject,
    /// Objects before `last_backfill`, if that is not `max`.
    pub backfilled: i64,
    /// Objects known to be absent or old.
    pub missing: u64,
    pub last_user_version: u64,
    pub totals: PgTotals,
    /// Number of the oldest write whose request it knows, by its log or beyond it.
    pub remembers_from: u64,
    /// How long others that once acted may still be read by what the sender has promised them, in milliseconds.
    pub promised: Vec<(OsdId, u32)>,
    /// The epoch from which on the sender's store has been in use: of what it held before under the same id nothing is there.
    #[denc(since = 5)]
    pub born: Epoch,
    /// Which shards of an erasure-coded pool's objects it has; none: whole objects, or nothing yet.
    #[denc(since = 8)]
    pub shards: Shards,
}

impl PeerInfo {
    /// True for a copy that lacks nothing but what its log or its missing set says. One that holds nothing is a whole
    /// copy of the PG as it was when it began.
    pub fn is_whole(&self) -> bool {
        !self.exists || self.last_backfill.max
    }
}

/// What an OSD knows of the PG as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 4, compat = 1)]
pub struct PeerHistory {
    pub epoch_created: Epoch,
    /// The newest interval in which every acting copy is known to have gone active.
    pub last_epoch_started: Epoch,
    /// The newest interval in which the PG was whole.
    pub last_epoch_clean: Epoch,
    #[denc(since = 2)]
    pub scrubs: ScrubHistory,
    /// The PG was split, or unfound objects of it were given up, and it has not been counted since: its totals are guesses.
    #[denc(since = 3)]
    pub approximate: bool,
    /// When the PG last began anew with nothing in it, on an operator's order; 0: it is what it was when its pool was made.
    #[denc(since = 4)]
    pub began_anew: Epoch,
}

/// When the copies of a PG were last compared, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubHistory {
    /// Counts scrubs: whoever knows of more of them knows better, whatever clocks say.
    pub count: u64,
    pub last_scrub: EVersion,
    pub last_scrub_stamp: Utime,
    pub last_deep_scrub: EVersion,
    pub last_deep_scrub_stamp: Utime,
    /// When there was last nothing wrong.
    pub last_clean_scrub_stamp: Utime,
    /// Bad copies that were found without reading data.
    pub shallow_errors: u32,
    pub deep_errors: u32,
}

impl ScrubHistory {
    /// Bad copies that are known and not repaired.
    pub fn errors(&self) -> u32 {
        self.shallow_errors.saturating_add(self.deep_errors)
    }
}

/// What one OSD says of its copy of an object, for a scrub.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 1, compat = 1)]
pub struct ScrubObject {
    pub object: HObject,
    /// Bytes stored.
    pub size: u64,
    /// Every stored attribute.
    pub attrs: Vec<(BString, Bytes)>,
    /// Of all data, if it was read.
    pub data_digest: Option<u32>,
    /// Of omap header and pairs.
    pub omap_digest: Option<u32>,
    /// `STAT_ERROR`, `READ_ERROR`.
    pub errors: u64,
}

impl ScrubObject {
    /// Its metadata cannot be read (`SHARD_STAT_ERR`).
    pub const STAT_ERROR: u64 = 1 << 2;
    /// Its data cannot be read, or has the wrong checksum (`SHARD_READ_ERR`).
    pub const READ_ERROR: u64 = 1 << 3;
}

/// A part of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 3, compat = 3)]
pub struct PushPart {
    pub object: HObject,
    /// What was there is removed first.
    pub first: bool,
    /// The object is whole with this part.
    pub last: bool,
    /// The sender's number for this push of the object.
    pub push: u64,
    /// Counts the parts: where one is lost, the rest is void.
    pub seq: u32,
    /// The write that made the object what it is.
    pub version: EVersion,
    /// Every stored attribute; with the last part. With the first of several that of what clients said of the object's use, if they did.
    pub attrs: Vec<(BString, Bytes)>,
    pub data_off: u64,
    /// So many bytes of the message's data are this part's.
    pub data_len: u32,
    pub size: u64,
    pub omap_header: Bytes,
    pub omap: Vec<(BString, Bytes)>,
}

/// The bodies of `PgMessage`.
#[derive(Debug, Clone, PartialEq, Encode, Decode)]
pub enum PgBody {
    /// Tell me about your copy.
    #[denc(tag = 1)]
    Query,
    #[denc(tag = 2)]
    Info(PeerInfo),
    /// Send your log behind `since`.
    #[denc(tag = 3)]
    GetLog { since: EVersion },
    /// Entries behind `base`, which is in the log or its tail; and every request remembered beyond the log.
    #[denc(tag = 4)]
    Log { info: PeerInfo, base: EVersion, entries: Vec<PgLogEntry>, dups: Vec<PgLogDup> },
    /// Make this your log: what you have behind `base` is void. With `reset` it is your whole log, and a backfill begins:
    /// you hold nothing for certain.
    #[denc(tag = 5)]
    Merge {
        reset: bool,
        base: EVersion,
        tail: EVersion,
        entries: Vec<PgLogEntry>,
        totals: PgTotals,
        last_user_version: u64,
        /// Requests of writes before those you know of, oldest first.
        dups: Vec<PgLogDup>,
        /// The shards that you hold from now on; none: whole objects. What you have of others does not count.
        shards: Shards,
    },
    /// Done and durable; these objects are now missing here, in these versions, and a backfill has come so far.
    #[denc(tag = 6)]
    Merged { missing: Vec<(HObject, EVersion)>, last_backfill: HObject, backfilled: i64 },
    /// List your objects from `begin` to `end` with their versions, so many at most.
    #[denc(tag = 7)]
    Scan { begin: HObject, end: HObject, limit: u32 },
    #[denc(tag = 8)]
    Scanned { begin: HObject, end: HObject, objects: Vec<(HObject, EVersion)> },
    /// Push me this object as that write left it.
    #[denc(tag = 9)]
    Pull { object: HObject, version: EVersion },
    /// Parts of objects you lack; what is small comes in company.
    #[denc(tag = 23)]
    Push(Vec<PushPart>),
    /// These objects are whole and durable, by these pushes.
    #[denc(tag = 24)]
    Pushed(Vec<(HObject, u64)>),
    /// A part is durable that is not the last of its object: the next may come.
    #[denc(tag = 25)]
    PartTaken { object: HObject, push: u64, seq: u32 },
    /// The PG starts in this interval; be ready. With too few copies it only recovers, and serves nobody.
    #[denc(tag = 12)]
    Activate { history: PeerHistory, serves: bool },
    #[denc(tag = 13)]
    Activated,
    /// Every acting copy is ready. With `recovered` none of them misses anything either.
    #[denc(tag = 14)]
    Started { history: PeerHistory, recovered: bool },
    /// Every copy has everything: entries of the log up to here are needed by nobody.
    #[denc(tag = 40)]
    Trim { to: EVersion },
    /// Every copy has every write up to here: what would be needed to take them back may be forgotten.
    #[denc(tag = 41)]
    Settled { to: EVersion },
    /// Your copy is not needed any more.
    #[denc(tag = 15)]
    Remove,
    /// Your copy is of a PG that does not count: the one that does began in that epoch, or, if it is 0, has never begun anew. Delete what you
    /// have, and then describe an empty copy.
    #[denc(tag = 42)]
    Void { began: Epoch },
    /// Your push of this object finds no room here.
    #[denc(tag = 19)]
    TooFull { object: HObject, push: u64 },
    /// What you have of these is old, or nobody should have it, and the primary has what should be: give back its room.
    #[denc(tag = 28)]
    MakeRoom { objects: Vec<HObject> },
    /// May the PG bring you objects?
    #[denc(tag = 20)]
    ReserveSlot { priority: u8 },
    /// Yes; or not any more.
    #[denc(tag = 21)]
    SlotReserved { granted: bool },
    /// It does not need to.
    #[denc(tag = 22)]
    ReleaseSlot,
    /// The object that was to be pulled is not here in that version, or cannot be read.
    #[denc(tag = 16)]
    PullFailed { object: HObject },
    /// Describe your copies in this range, having read them if it is to be deep: what you have read and found right in the
    /// last `trust_s` seconds need not be read again. Nobody writes there meanwhile.
    #[denc(tag = 39)]
    Scrub { scrub: u64, begin: HObject, end: HObject, deep: bool, trust_s: u32 },
    #[denc(tag = 33)]
    ScrubMap { scrub: u64, objects: Vec<ScrubObject> },
    /// Your copies of these objects are bad: you lack them in these versions.
    #[denc(tag = 34)]
    Distrust { scrub: u64, objects: Vec<(HObject, EVersion)> },
    /// That is noted, and durable.
    #[denc(tag = 35)]
    Distrusted { scrub: u64 },
    /// May a scrub count on you?
    #[denc(tag = 36)]
    ScrubReserve { scrub: u64 },
    #[denc(tag = 37)]
    ScrubReserved { scrub: u64, granted: bool },
    /// It need not any more.
    #[denc(tag = 38)]
    ScrubRelease,
    /// Your backfill has come to `end`. On the way there you lack these objects, in the versions they should have; without
    /// a version, you have them and nobody should. `objects` of the PG are before `end`.
    #[denc(tag = 17)]
    Backfill { end: HObject, differ: Vec<(HObject, EVersion)>, objects: i64 },
    /// Noted and durable.
    #[denc(tag = 18)]
    Backfilled { end: HObject },
    /// Nobody has these objects as they should be: what else have you of them?
    #[denc(tag = 26)]
    AskOlder { objects: Vec<HObject> },
    /// Older content, each with the attribute that describes it.
    #[denc(tag = 27)]
    Older { held: Vec<(HObject, Bytes)> },
}

#[cfg(test)]
mod tests {
    use super::super::tests::round_trip;
    use super::*;
    use crate::msg::BufList;
    use crate::PoolId;

    #[test]
    fn a_replicas_write_reads_back() {
        round_trip(&RepOp {
            pgid: PgId { pool: PoolId(1), seed: 2 },
            epoch: Epoch(3),
            interval: Epoch(2),
            row: Bytes::from_static(b"row"),
            before: vec![Bytes::from_static(b"clone")],
            committed_to: EVersion::default(),
            trim_to: EVersion::default(),
            mutation: Bytes::from_static(b"steps"),
            log_only: true,
            payload: BufList::from(Bytes::from_static(b"data")),
        });
    }

    #[test]
    fn a_disk_is_full_from_its_ratio_on_and_an_unknown_one_never() {
        let used = |n: u64| DiskSpace { available: 100 - n, total: 100 };
        assert!(used(97).is_used_to(0.97) && !used(96).is_used_to(0.97));
        assert!(!DiskSpace::default().is_used_to(0.0));
    }

    #[test]
    fn every_body_reads_back() {
        let bodies = [
            PgBody::Query,
            PgBody::Info(PeerInfo::default()),
            PgBody::Log {
                info: PeerInfo { remembers_from: 7, ..PeerInfo::default() },
                base: EVersion::default(),
                entries: vec![],
                dups: vec![PgLogDup { user_version: 4, ..PgLogDup::default() }],
            },
            PgBody::Scan { begin: HObject::min(), end: HObject::max(), limit: 3 },
            PgBody::Merged {
                missing: vec![(HObject::min(), EVersion::default())],
                last_backfill: HObject::max(),
                backfilled: 3,
            },
            PgBody::Pull { object: HObject::min(), version: EVersion { epoch: Epoch(3), version: 7 } },
            PgBody::Push(vec![PushPart { push: 3, seq: 1, data_len: 4, ..PushPart::default() }]),
            PgBody::Pushed(vec![(HObject::min(), 3)]),
            PgBody::PartTaken { object: HObject::min(), push: 3, seq: 1 },
            PgBody::Activate { history: PeerHistory::default(), serves: true },
            PgBody::Started { history: PeerHistory::default(), recovered: true },
            PgBody::Trim { to: EVersion { epoch: Epoch(3), version: 9 } },
            PgBody::Settled { to: EVersion { epoch: Epoch(3), version: 9 } },
            PgBody::Remove,
            PgBody::Void { began: Epoch(7) },
            PgBody::PullFailed { object: HObject::min() },
            PgBody::Scrub { scrub: 3, begin: HObject::min(), end: HObject::max(), deep: true, trust_s: 7 },
            PgBody::ScrubMap {
                scrub: 3,
                objects: vec![ScrubObject { data_digest: Some(1), errors: ScrubObject::READ_ERROR, ..ScrubObject::default() }],
            },
            PgBody::Distrust { scrub: 3, objects: vec![(HObject::min(), EVersion::default())] },
            PgBody::Distrusted { scrub: 3 },
            PgBody::ScrubReserve { scrub: 3 },
            PgBody::ScrubReserved { scrub: 3, granted: true },
            PgBody::ScrubRelease,
            PgBody::Backfill { end: HObject::max(), differ: vec![(HObject::min(), EVersion::default())], objects: 9 },
            PgBody::Backfilled { end: HObject::max() },
            PgBody::TooFull { object: HObject::min(), push: 3 },
            PgBody::MakeRoom { objects: vec![HObject::min()] },
            PgBody::ReserveSlot { priority: 180 },
            PgBody::SlotReserved { granted: true },
            PgBody::ReleaseSlot,
        ];
        for body in bodies {
            let pgid = PgId { pool: PoolId(1), seed: 2 };
            let (round, data) = (Round { interval: Epoch(2), number: 3 }, BufList::from(Bytes::from_static(b"data")));
            round_trip(&PgMessage { pgid, epoch: Epoch(3), round, osd: OsdId(1), body, data });
        }
    }
}
