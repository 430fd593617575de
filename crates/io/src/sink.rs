//! Where finished I/O is reported from other threads.

use bytes::Bytes;
use std::sync::mpsc::Sender;
use store::IoId;
use types::Errno;

/// Hands a completion to the thread that owns the store. Must not block; the owner wakes up for it.
pub trait IoSink: Send {
    fn complete(&self, id: IoId, result: Result<Bytes, Errno>);
}

impl IoSink for Sender<(IoId, Result<Bytes, Errno>)> {
    fn complete(&self, id: IoId, result: Result<Bytes, Errno>) {
        // A receiver that is gone has stopped caring.
        let _ = self.send((id, result));
    }
}
