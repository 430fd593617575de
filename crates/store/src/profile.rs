//! What kind of device the data is on, and what follows from that.
//!
//! Holds: what the kernel says of a device is believed unless what was measured contradicts it. Virtual disks of flash say that their head moves, and
//! bridges to disks whose head moves say that nothing does.

use crate::StoreConfig;
use std::time::Duration;

/// Whether a head moves; not the device class of the CRUSH map, which is the operator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceProfile {
    Hdd,
    #[default]
    Ssd,
}

impl DeviceProfile {
    /// As `osd metadata` names it.
    pub fn name(self) -> &'static str {
        match self {
            DeviceProfile::Hdd => "hdd",
            DeviceProfile::Ssd => "ssd",
        }
    }
}

/// What is wrong with a device's flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushFault {
    /// Quicker than such a device can be: it does not flush, or something in front of it keeps what it was told to write.
    Quick,
    /// Much slower than others of its kind.
    Slow,
}

/// A device as it was found when the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeviceFacts {
    pub profile: DeviceProfile,
    /// What a block written and flushed takes, as a rule; `None` if it was not measured.
    pub flush: Option<Duration>,
    pub fault: Option<FlushFault>,
    /// The same of the engine's log, which may be on another device.
    pub log_flush: Option<Duration>,
    pub log_fault: Option<FlushFault>,
}

/// A head that moves takes longer than this to write a block somewhere else and flush it, whoever helps it: half a turn of the fastest
/// disks is 2 ms.
const HEAD_LEAST: Duration = Duration::from_micros(1500);
/// Flash takes less at its best, even behind a network or a bus.
const FLASH_MOST: Duration = Duration::from_millis(6);
/// What nothing behind a bus can do: to memory and back, and no further.
const QUICKEST: Duration = Duration::from_micros(8);
/// Ten times what a flush takes on such devices as a rule.
const fn slow(kind: DeviceProfile) -> Duration {
    Duration::from_millis(match kind {
        DeviceProfile::Hdd => 200,
        DeviceProfile::Ssd => 20,
    })
}

/// What flushes take as a rule, and what is wrong with that on a device that should be of this kind. Whoever else uses it makes it slower, never
/// quicker: a quarter of them has to be slow.
fn flushes(took: &[Duration], kind: DeviceProfile) -> (Option<Duration>, Option<FlushFault>) {
    let Some(typical) = took.get(took.len() / 2).copied() else { return (None, None) };
    let fault = if typical < QUICKEST {
        Some(FlushFault::Quick)
    } else {
        (took[took.len() / 4] > slow(kind)).then_some(FlushFault::Slow)
    };
    (Some(typical), fault)
}

impl DeviceFacts {
    /// Judges a device by what the kernel says, what somebody has configured (`bluestore_debug_enforce_settings`), what it took to write blocks
    /// all over it and flush each, and what a flush of the log took.
    pub fn judge(rotational: bool, forced: Option<DeviceProfile>, mut took: Vec<Duration>, mut log_took: Vec<Duration>) -> DeviceFacts {
        took.sort_unstable();
        log_took.sort_unstable();
        let said = if rotational { DeviceProfile::Hdd } else { DeviceProfile::Ssd };
        // The best but one says what it is.
        let found = match (said, took.get(1).or(took.first())) {
            (DeviceProfile::Hdd, Some(best)) if *best < HEAD_LEAST => DeviceProfile::Ssd,
            (DeviceProfile::Ssd, Some(best)) if *best > FLASH_MOST => DeviceProfile::Hdd,
            _ => said,
        };
        let (flush, fault) = flushes(&took, said);
        // Nobody says what the log is on.
        let (log_flush, log_fault) = flushes(&log_took, DeviceProfile::Hdd);
        DeviceFacts { profile: forced.unwrap_or(found), flush, fault, log_flush, log_fault }
    }

    /// True if the data device was slow, and is not known to do better now: by its model a flush takes `learned`.
    pub fn is_slow_still(&self, learned: Option<Duration>) -> bool {
        self.fault == Some(FlushFault::Slow) && learned.is_none_or(|took| took > slow(DeviceProfile::Ssd))
    }
}

/// What can be changed while a store is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// See `StoreConfig`.
    pub prefer_deferred_size: u32,
    pub deferred_bytes_max: u64,
    pub readahead_bytes: u32,
    pub buffered_read: bool,
    pub page_cached_bytes_max: u32,
    pub queue_depth_max: u64,
    pub discard: bool,
}

impl Tuning {
    /// For such a device. On disks whose head moves more goes through the log, and what lies behind what was asked for is read with it. Batches of deferred
    /// writes stay as they are: a thousand in the order of the disk are enough for its elevator, and records that outlive the engine's memtable
    /// would be written twice.
    pub fn of(profile: DeviceProfile) -> Tuning {
        let ssd = StoreConfig::default().tuning();
        match profile {
            DeviceProfile::Ssd => ssd,
            DeviceProfile::Hdd => Tuning { prefer_deferred_size: 64 << 10, deferred_bytes_max: 32 << 20, readahead_bytes: 128 << 10, page_cached_bytes_max: 1 << 20, ..ssd },
        }
    }
}

impl StoreConfig {
    /// What of it can be changed.
    pub fn tuning(&self) -> Tuning {
        Tuning {
            prefer_deferred_size: self.prefer_deferred_size,
            deferred_bytes_max: self.deferred_bytes_max,
            readahead_bytes: self.readahead_bytes,
            buffered_read: self.buffered_read,
            page_cached_bytes_max: self.page_cached_bytes_max,
            queue_depth_max: self.queue_depth_max,
            discard: self.discard,
        }
    }

    /// Changes that.
    pub fn tune(&mut self, t: Tuning) {
        self.prefer_deferred_size = t.prefer_deferred_size;
        self.deferred_bytes_max = t.deferred_bytes_max;
        self.readahead_bytes = t.readahead_bytes;
        self.buffered_read = t.buffered_read;
        self.page_cached_bytes_max = t.page_cached_bytes_max;
        self.queue_depth_max = t.queue_depth_max;
        self.discard = t.discard;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(rotational: bool, took_us: &[u64]) -> (DeviceProfile, Option<FlushFault>) {
        let took: Vec<Duration> = took_us.iter().copied().map(Duration::from_micros).collect();
        let facts = DeviceFacts::judge(rotational, None, took, vec![]);
        (facts.profile, facts.fault)
    }

    #[test]
    fn the_kernel_is_believed_as_far_as_its_word_can_be_true() {
        use DeviceProfile::*;
        assert_eq!((judge(true, &[]), judge(false, &[])), ((Hdd, None), (Ssd, None)));
        assert_eq!(judge(true, &[9000, 14_000, 21_000, 12_000]), (Hdd, None));
        // A virtual disk of flash, and one that others use at the same time.
        assert_eq!(judge(true, &[300, 210, 250, 400]), (Ssd, None));
        assert_eq!(judge(true, &[15_000, 700, 900, 9000]), (Ssd, None));
        assert_eq!(judge(false, &[60, 15_000, 40, 30]), (Ssd, None));
        // A disk behind a bridge that says nothing of its head.
        assert_eq!(judge(false, &[9000, 14_000, 21_000, 12_000]), (Hdd, None));
    }

    #[test]
    fn flushes_that_cannot_be_and_those_that_nobody_should_have_to_wait_for_are_told_of() {
        assert_eq!(judge(false, &[2, 1, 3, 2]).1, Some(FlushFault::Quick));
        assert_eq!(judge(false, &[30_000, 25_000, 90_000, 5000]).1, Some(FlushFault::Slow));
        assert_eq!(judge(true, &[30_000, 25_000, 90_000, 5000]).1, None);
        assert_eq!(judge(true, &[300_000, 250_000, 900_000, 5000]).1, Some(FlushFault::Slow));
        assert_eq!(judge(false, &[30_000, 25_000, 900, 5000]).1, None, "half of the time somebody was in the way");
        let slow = DeviceFacts { fault: Some(FlushFault::Slow), ..DeviceFacts::default() };
        assert!(slow.is_slow_still(None) && slow.is_slow_still(Some(Duration::from_millis(30))) && !slow.is_slow_still(Some(Duration::from_millis(2))));
    }

    #[test]
    fn somebody_s_word_counts_more_than_all_that() {
        let facts = DeviceFacts::judge(true, Some(DeviceProfile::Ssd), vec![Duration::from_millis(12)], vec![Duration::from_micros(3)]);
        assert_eq!((facts.profile, facts.flush), (DeviceProfile::Ssd, Some(Duration::from_millis(12))));
        assert_eq!((facts.fault, facts.log_fault), (None, Some(FlushFault::Quick)));
    }
}
