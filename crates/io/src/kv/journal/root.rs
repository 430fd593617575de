//! How far the database has the journal.
//!
//! On disk, in the family `journal`: key `root`, value version u8 = 1, then as u64: position, number and run of the frame to
//! read from, number of the last frame applied, bytes of the ring.

use super::ring::Place;
use denc::{DecodeError, Decoder};

/// The key of the only pair of its family.
pub const KEY: &[u8] = b"root";
const VERSION: u8 = 1;

/// The end of a checkpoint: part of the state it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    /// Reading from here on finds every frame that still matters, `applied` included.
    pub start: Place,
    /// Everything up to this frame is in the database, except deferred rows.
    pub applied: u64,
    /// Bytes of the ring.
    pub size: u64,
}

impl Root {
    pub fn to_bytes(self) -> Vec<u8> {
        let mut out = vec![VERSION];
        for n in [self.start.pos, self.start.seq, self.start.run, self.applied, self.size] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        out
    }

    pub fn parse(value: &[u8]) -> Result<Root, DecodeError> {
        let mut d = Decoder::new(value);
        if d.get::<u8>()? != VERSION {
            return Err(DecodeError::Invalid("version of the journal's root"));
        }
        let start = Place { pos: d.get()?, seq: d.get()?, run: d.get()? };
        let root = Root { start, applied: d.get()?, size: d.get()? };
        d.finish()?;
        Ok(root)
    }
}
