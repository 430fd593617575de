//! What happened, as a hash that two runs of a seed must share, and as lines for people.

use std::fmt;
use std::time::Duration;

/// The event log of a run.
#[derive(Debug, Default)]
pub struct Log {
    hash: u64,
    events: u64,
    /// Print every event as it happens.
    pub verbose: bool,
}

impl Log {
    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Notes an event at `ns` of simulated time, with the bytes it carried.
    pub(crate) fn event(&mut self, ns: u64, what: fmt::Arguments<'_>, bytes: &[u8]) {
        let text = what.to_string();
        self.events += 1;
        self.mix(ns);
        self.mix(denc::crc32c(text.as_bytes()).into());
        self.mix(u64::from(denc::crc32c(bytes)) << 32 | bytes.len() as u64);
        if self.verbose {
            eprintln!("{:>14.6} {text}", Duration::from_nanos(ns).as_secs_f64());
        }
    }

    /// FNV-1a over words: order matters, nothing cancels out.
    fn mix(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }
}
