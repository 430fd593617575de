//! Tunables, one struct, so that simulation can shrink and shuffle them.

use crate::{Compression, Csum};
use std::time::Duration;

/// How data is written; what is there stays as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    pub csum: Csum,
    pub compression: Compression,
}

/// How a store behaves; `Default` is for flash (see `Tuning::of`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Writes up to this many bytes go through the key-value log and reach their place later
    /// (`bluestore_prefer_deferred_size`); longer ones go straight to free space.
    pub prefer_deferred_size: u32,
    /// Bulk goes straight to free space, however short, while a flush of the log takes less than this. A disk where each write costs as
    /// much as a hundred kilobytes rather takes many pieces in one write of the log, and to their places in its order.
    /// Measured, because virtual disks of flash say that their head moves.
    pub bulk_flush_max: Duration,
    /// Reads of one class that lie near each other are one of the device, up to so many bytes; 0: each is its own.
    pub joined_read_bytes: u64,
    /// Deferred bytes that start a batch of device writes; what is less stays in the log.
    pub deferred_batch_bytes: u64,
    /// Deferred bytes on their way to the device at a time: every flush, of the key-value engine's log too, waits for
    /// what the disk was given before.
    pub deferred_window_bytes: u64,
    /// Deferred bytes not in their place yet from which on further deferred writes wait for their commit
    /// (`bluestore_throttle_deferred_bytes`): a slow disk slows its clients down, not our memory up.
    pub deferred_bytes_max: u64,
    /// Bytes that are read behind what was asked for, where an object is read from front to back and they lie there on the device.
    pub readahead_bytes: u32,
    /// Keep what clients read (`bluestore_default_buffered_read`), here and in the operating system's page cache.
    pub buffered_read: bool,
    /// Reads up to so many bytes are kept in the page cache.
    pub page_cached_bytes_max: u32,
    /// Reads and writes that the device is given at a time at most, whatever time they take (`bdev_aio_max_queue_depth`).
    pub queue_depth_max: u64,
    /// Budget of the onode cache in bytes; onodes with changes in flight are kept beyond it.
    pub onode_cache_bytes: u64,
    /// Budget of the data block cache in bytes.
    pub data_cache_bytes: u64,
    /// Bytes of memory of the process beyond which caches shrink.
    pub memory_target: u64,
    /// Regions of 256 KiB of which it is remembered which blocks were read and right: 16 GiB for some 5 MB of memory.
    pub verified_regions: usize,
    /// How often a block with a wrong checksum is read again before that is believed (`bluestore_retry_disk_reads`).
    pub retry_disk_reads: u32,
    /// Parts per thousand of the device that do not count as available: room for writes under way when it becomes full.
    pub reserve_per_mille: u32,
    /// Tell the device what was freed (`bdev_enable_discard`).
    pub discard: bool,
    /// How data of pools is written that have no policy of their own (`Store::set_policies`).
    pub policy: Policy,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            prefer_deferred_size: 32 << 10,
            bulk_flush_max: Duration::from_millis(15),
            joined_read_bytes: 1 << 20,
            deferred_batch_bytes: 4 << 20,
            deferred_window_bytes: 128 << 10,
            deferred_bytes_max: 8 << 20,
            readahead_bytes: 0,
            buffered_read: true,
            page_cached_bytes_max: 64 << 10,
            queue_depth_max: 1024,
            onode_cache_bytes: 24 << 20,
            data_cache_bytes: 8 << 20,
            memory_target: 128 << 20,
            verified_regions: 64 << 10,
            retry_disk_reads: 3,
            reserve_per_mille: 10,
            discard: false,
            policy: Policy::default(),
        }
    }
}
