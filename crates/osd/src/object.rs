//! What an OSD keeps about an object beside its data: `ObjectInfo`, stored in the attribute `_`.
//!
//! Room: osd core. The format is ours; upstream's noun is `object_info_t`.
//! Holds: attributes that clients set are stored as `_<name>`, so none can collide with the info itself.
//! Upstream: src/osd/osd_types.h.

use denc::{BString, Decode, Encode};
use std::collections::BTreeMap;
use types::{EVersion, EntityAddr, EntityInst, ReqId, Snap, Utime};

/// The attribute that holds the `ObjectInfo`.
pub const INFO_ATTR: &[u8] = b"_";

/// The attribute of a live object that holds its `SnapSet`, if it ever met a snapshot.
pub const SNAPSET_ATTR: &[u8] = b"snapset";

/// The attribute of an object of an erasure-coded pool that says which shard of it this is: one byte.
pub const SHARD_ATTR: &[u8] = b"@shard";

/// The stored name of a client's attribute.
pub fn user_attr(name: &[u8]) -> BString {
    [INFO_ATTR, name].concat().into()
}

/// State of an object that exists.
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 2, compat = 1)]
pub struct ObjectInfo {
    /// The write that produced this state.
    pub version: EVersion,
    /// The write before it; zero for a new object.
    pub prior_version: EVersion,
    pub last_reqid: ReqId,
    /// The version clients see and assert; never goes back, not even over a deletion.
    pub user_version: u64,
    pub size: u64,
    pub mtime: Utime,
    /// `ObjectInfo::OMAP`, `ObjectInfo::WHITEOUT`.
    pub flags: u32,
    pub truncate_seq: u32,
    pub truncate_size: u64,
    pub expected_object_size: u64,
    pub expected_write_size: u64,
    pub alloc_hint_flags: u32,
    pub watchers: BTreeMap<WatcherKey, WatchInfo>,
    /// Of a clone: the snapshots that show it, newest first.
    #[denc(since = 2)]
    pub snaps: Vec<Snap>,
}

impl ObjectInfo {
    /// There is no live object: this only keeps what is known of its clones (`FLAG_WHITEOUT`).
    pub const WHITEOUT: u32 = 2;
    /// Keys or a header were stored, now or earlier (`FLAG_OMAP`).
    pub const OMAP: u32 = 8;

    /// True if the object may have omap keys.
    pub fn has_omap(&self) -> bool {
        self.flags & Self::OMAP != 0
    }

    /// True if it only stands for clones without a live object.
    pub fn is_whiteout(&self) -> bool {
        self.flags & Self::WHITEOUT != 0
    }

    /// Where data ends for a reader that knows of a truncation this object has not heard of yet.
    pub fn size_seen_by(&self, seq: u32, truncate_size: u64, end: u64) -> u64 {
        match self.truncate_seq < seq && end > truncate_size && self.size > truncate_size {
            true => truncate_size,
            false => self.size,
        }
    }
}

/// One watch: the cookie its client chose, and the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Encode, Decode)]
pub struct WatcherKey {
    pub cookie: u64,
    pub who: EntityInst,
}

/// What is kept of a watcher over restarts (`watch_info_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Encode, Decode)]
pub struct WatchInfo {
    /// Silence, in seconds, after which the watch is dropped.
    pub timeout_s: u32,
    pub addr: EntityAddr,
}

/// Where the old content of an object waits until a write is on every shard: an object beside it, of a name that no clone has.
pub mod undo {
    use types::{HObject, Snap};

    const BIT: u64 = 1 << 63;

    /// What write number `version` changed.
    pub fn of(object: &HObject, version: u64) -> HObject {
        // Clones have theirs, too: they are told apart by the number, for each entry of a log is about one object.
        HObject { snap: Snap(BIT | version), ..object.clone() }
    }

    /// True for such an object.
    pub fn is(object: &HObject) -> bool {
        object.snap < Snap::HEAD && object.snap.0 & BIT != 0
    }

    /// The attribute that says of what parts of the object this is: its size, and from where and how much. Without, it is all of it.
    pub const PARTS: &[u8] = b"@parts";

    /// The largest id that a snapshot may have beside them.
    pub const SNAP_MAX: Snap = Snap(BIT - 1);
}
