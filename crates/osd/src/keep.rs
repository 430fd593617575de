//! What an OSD keeps for the day every monitor is lost: the osdmaps it has anyway, and a copy of their other state.
//!
//! Holds: a copy is never replaced by an older one, so that one that comes late, or of a leader that has been replaced,
//! does no harm.
//! Tests: crates/mon/tests; tests/clients/recover_monitors.py.

use crate::disk::Disk;
use crate::effects::{Cx, Effect};
use crate::maps;
use crate::osd::Osd;
use bytes::Bytes;
use std::collections::BTreeMap;
use store::{Kv, KvError, META_COLL, Transaction};
use types::msg::internal::KeptState;
use types::{Epoch, Errno, Now};

/// The row of the copy.
const COPY_ROW: &[u8] = b"mon";

/// Which copy is on disk.
#[derive(Debug, Default)]
pub(crate) struct Keep {
    /// The copy without its contents.
    have: Option<KeptState>,
}

impl Keep {
    pub fn load(disk: &mut dyn Disk) -> Result<Self, Errno> {
        let raw = disk.coll_get(META_COLL, COPY_ROW)?;
        // One that cannot be read is replaced by the next.
        let have = raw.and_then(|raw| denc::from_bytes::<KeptState>(&raw).ok()).map(without_contents);
        Ok(Keep { have })
    }
}

fn without_contents(copy: KeptState) -> KeptState {
    KeptState { open: Bytes::new(), sealed: Bytes::new(), ..copy }
}

impl Osd {
    /// The monitors' state, to be kept.
    pub fn handle_mon_copy(&mut self, now: Now, disk: &mut dyn Disk, copy: KeptState, fx: &mut Vec<Effect>) {
        if self.keep.have.as_ref().is_some_and(|have| !copy.is_newer_than(have)) {
            return;
        }
        let mut txn = Transaction::new(META_COLL);
        txn.coll_set(COPY_ROW, denc::to_bytes(&copy, 0));
        Cx { now, disk, sh: &mut self.sh, fx }.submit(txn);
        self.keep.have = Some(without_contents(copy));
    }
}

/// What an OSD that does not run kept.
#[derive(Debug)]
pub struct Kept {
    /// Full maps, and the step that led to each where it was kept.
    pub maps: BTreeMap<Epoch, (Bytes, Option<Bytes>)>,
    pub copy: Option<KeptState>,
}

/// Reads it from the key-value store; an OSD that never had a map kept none.
pub fn read(kv: &impl Kv) -> Result<Kept, KvError> {
    let copy = store::coll_row(kv, META_COLL, COPY_ROW)?.and_then(|raw| denc::from_bytes(&raw).ok());
    Ok(Kept { maps: maps::all(kv)?, copy })
}
