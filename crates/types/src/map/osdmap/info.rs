//! What the map remembers of each OSD.

use crate::{Epoch, Utime};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};

/// Epochs of an OSD's life (`osd_info_t`). It served in [up_from, up_thru) at least, until `down_at` at most;
/// [last_clean_begin, last_clean_end) is the last interval that ended with a clean shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdInfo {
    pub last_clean_begin: Epoch,
    pub last_clean_end: Epoch,
    pub up_from: Epoch,
    pub up_thru: Epoch,
    pub down_at: Epoch,
    /// Last epoch the operator declared the data lost; 0: never.
    pub lost_at: Epoch,
}

impl Encode for OsdInfo {
    fn encode(&self, e: &mut Encoder) {
        e.put(&1u8).put(&self.last_clean_begin).put(&self.last_clean_end).put(&self.up_from);
        e.put(&self.up_thru).put(&self.down_at).put(&self.lost_at);
    }
}
impl Decode for OsdInfo {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let _version: u8 = d.get()?;
        Ok(OsdInfo {
            last_clean_begin: d.get()?,
            last_clean_end: d.get()?,
            up_from: d.get()?,
            up_thru: d.get()?,
            down_at: d.get()?,
            lost_at: d.get()?,
        })
    }
}

/// More of each OSD (`osd_xinfo_t`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Encode, Decode)]
#[denc(v = 4, compat = 1)]
pub struct OsdXInfo {
    pub down_stamp: Utime,
    /// How likely a report of its failure is wrong; 0 never, `u32::MAX` always.
    pub laggy_probability: u32,
    /// Seconds between being laggy and recovering, on average.
    pub laggy_interval: u32,
    /// Feature mask the OSD booted with.
    #[denc(since = 2)]
    pub features: u64,
    /// Weight before it was marked out automatically.
    #[denc(since = 3)]
    pub old_weight: u32,
    #[denc(since = 4)]
    pub last_purged_snaps_scrub: Utime,
    /// Last epoch it was known to be dead, not just down.
    #[denc(since = 4)]
    pub dead_epoch: Epoch,
}
