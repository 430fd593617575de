//! Capabilities: what an entity may do at a monitor, an OSD, a manager.
//!
//! The grammars are Ceph's to the letter, order of alternatives included, since operators have such texts stored and
//! expect the same ones to be refused. A text is kept as it was written: it is what is shown and stored.
//! Upstream: src/mon/MonCap.cc, src/osd/OSDCap.cc, src/mgr/MgrCap.cc.

mod daemon;
mod mgr;
mod mon;
mod network;
mod osd;
mod text;

pub use daemon::Ask;
pub use mgr::MgrCaps;
pub use mon::MonCaps;
pub use osd::{ClassCall, OsdAsk, OsdCaps};

use std::fmt;

/// Why a capability text was refused, in the words stock uses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CapsError {
    #[error("{service} capability parse failed, stopped at '{rest}' of '{text}'")]
    Stopped { service: &'static str, rest: String, text: String },
    #[error("{service} capability parse failed, stopped at end of ''")]
    Empty { service: &'static str },
    #[error("mgr capability parse failed during profile evaluation: {0}")]
    Profile(String),
}

/// Read, write, execute.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rwx(u8);

impl Rwx {
    pub const NONE: Rwx = Rwx(0);
    pub const R: Rwx = Rwx(2);
    pub const W: Rwx = Rwx(4);
    pub const X: Rwx = Rwx(8);
    pub const RW: Rwx = Rwx(6);
    pub const RWX: Rwx = Rwx(14);
    /// `*`: more than the sum of the others.
    pub const ANY: Rwx = Rwx(255);

    /// Those that are true.
    pub fn of(read: bool, write: bool, execute: bool) -> Rwx {
        Rwx(u8::from(read) << 1 | u8::from(write) << 2 | u8::from(execute) << 3)
    }

    /// True if every permission of `needed` is in `self`.
    pub fn covers(self, needed: Rwx) -> bool {
        self.0 & needed.0 == needed.0
    }

    fn and(self, other: Rwx) -> Rwx {
        Rwx(self.0 | other.0)
    }
}

impl fmt::Display for Rwx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Rwx::ANY {
            return f.write_str("*");
        }
        for (bit, letter) in [(Rwx::R, "r"), (Rwx::W, "w"), (Rwx::X, "x")] {
            if self.covers(bit) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::seq::IndexedRandom;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn texts_from_pieces_of_the_grammar_never_panic_and_keep_their_words() {
        let pieces = [
            "allow", " ", "  ", "r", "rwx", "*", "all", "class-read", "class", "pool", "=", "\"", "'", "namespace",
            "tag", "profile", "rbd", "osd", "command", "service", "module", "with", "prefix", "regex", "network",
            "10.0.0.0/8", ",", ";", "x y", "object_prefix", "fsname", "é", "\t", "(",
        ];
        let mut rng = ChaCha8Rng::seed_from_u64(11);
        for _ in 0..20_000 {
            let n = rng.random_range(0..12);
            let text: String = (0..n).filter_map(|_| pieces.choose(&mut rng).copied()).collect();
            assert!(text.parse::<MonCaps>().map_or(true, |c| c.text() == text));
            assert!(text.parse::<OsdCaps>().map_or(true, |c| c.text() == text));
            assert!(text.parse::<MgrCaps>().map_or(true, |c| c.text() == text));
        }
    }
}
