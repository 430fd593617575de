//! What the store asks of a disk.

use bytes::Bytes;
use types::Errno;
use types::msg::BufList;

/// One I/O in flight. The store numbers them; device and key-value engine of one store share the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Memory to be filled with what is written then.
pub trait WriteBuffer {
    /// All of it; its content is arbitrary.
    fn bytes(&mut self) -> &mut [u8];

    /// It is filled: from here on it is only read.
    fn freeze(self: Box<Self>) -> Bytes;
}

impl WriteBuffer for Vec<u8> {
    fn bytes(&mut self) -> &mut [u8] {
        self
    }

    fn freeze(self: Box<Self>) -> Bytes {
        Bytes::from(*self)
    }
}

/// A disk, a partition, or a file standing in for one. `read`, `write` and `flush` are answered later, in any order,
/// by the owner calling `Store::handle_io(id, result)`.
///
/// Promised by an implementation: a write answered before a flush was *started* is durable once that flush is
/// answered `Ok`; other writes may after a crash be there, not there, or there in part, at a granularity of the
/// sector. Offsets and lengths are multiples of `block_size`.
pub trait BlockDev {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// Smallest unit of I/O in bytes: 512 or 4096.
    fn block_size(&self) -> u32;

    /// True for a disk whose head moves: batches are larger there.
    fn rotational(&self) -> bool {
        false
    }

    /// Bytes that may still be written to places never written before, where that is less than the device's size
    /// says: a sparse file takes space from the file system under it. `None`: every block is there already.
    fn room_beneath(&self) -> Option<u64> {
        None
    }

    /// Reads `len` bytes at `off`; answered with the bytes.
    fn read(&mut self, id: IoId, off: u64, len: usize);

    /// As `read`, through the operating system's page cache, which keeps it as long as it has memory for it. What comes may have been there before the last
    /// write, or before the medium changed: only for who can tell by a checksum, and does not ask for the medium's sake.
    fn read_cached(&mut self, id: IoId, off: u64, len: usize) {
        self.read(id, off, len);
    }

    /// What the page cache has, at once, if it has all of it. Worth as much as what `read_cached` brings.
    fn cached(&mut self, _off: u64, _len: usize) -> Option<Bytes> {
        None
    }

    /// The page cache need not keep the range. A hint, never answered.
    fn uncache(&mut self, _off: u64, _len: u64) {}

    /// Writes `data` at `off`; answered with empty bytes. Pieces need no alignment in memory; aligned ones are
    /// written without a copy.
    fn write(&mut self, id: IoId, off: u64, data: BufList);

    /// Memory for `len` bytes that `write` need not copy, and that need not be new from the kernel.
    fn buffer(&self, len: usize) -> Box<dyn WriteBuffer> {
        Box::new(vec![0; len])
    }

    /// Makes every write answered so far durable; answered with empty bytes.
    fn flush(&mut self, id: IoId);

    /// The range holds nothing any more. A hint, never answered.
    fn discard(&mut self, off: u64, len: u64);

    /// Reads at once, waiting for the disk: for mkfs, mount and fsck only.
    fn read_sync(&mut self, off: u64, len: usize) -> Result<Bytes, Errno>;

    /// Writes at once and makes it durable: for mkfs, and to measure what that takes.
    fn write_sync(&mut self, off: u64, data: &[u8]) -> Result<(), Errno>;
}
