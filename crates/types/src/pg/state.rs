//! The state of a PG as bits, and its text: `active+clean`.

use denc::{Decode, Encode};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// `PG_STATE_*` bits. No bit at all is `unknown`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct PgState(pub u64);

macro_rules! states {
    ($($name:ident $bit:literal $text:literal;)*) => {
        impl PgState {
            $(pub const $name: PgState = PgState(1 << $bit);)*

            /// Every bit and its word, in the order in which text lists them.
            const WORDS: &'static [(PgState, &'static str)] = &[$((PgState::$name, $text)),*];
        }
    };
}
// In the order of `pg_state_string`, which is not the order of the bits.
states! {
    STALE 17 "stale";
    CREATING 0 "creating";
    ACTIVE 1 "active";
    ACTIVATING 24 "activating";
    CLEAN 2 "clean";
    RECOVERY_WAIT 22 "recovery_wait";
    RECOVERY_TOOFULL 28 "recovery_toofull";
    RECOVERING 14 "recovering";
    FORCED_RECOVERY 30 "forced_recovery";
    DOWN 4 "down";
    RECOVERY_UNFOUND 5 "recovery_unfound";
    BACKFILL_UNFOUND 6 "backfill_unfound";
    UNDERSIZED 23 "undersized";
    DEGRADED 10 "degraded";
    REMAPPED 18 "remapped";
    PREMERGE 7 "premerge";
    SCRUBBING 8 "scrubbing";
    DEEP_SCRUB 19 "deep";
    INCONSISTENT 11 "inconsistent";
    PEERING 12 "peering";
    REPAIR 13 "repair";
    BACKFILL_WAIT 15 "backfill_wait";
    BACKFILLING 20 "backfilling";
    FORCED_BACKFILL 31 "forced_backfill";
    BACKFILL_TOOFULL 21 "backfill_toofull";
    INCOMPLETE 16 "incomplete";
    PEERED 25 "peered";
    SNAPTRIM 26 "snaptrim";
    SNAPTRIM_WAIT 27 "snaptrim_wait";
    SNAPTRIM_ERROR 29 "snaptrim_error";
    FAILED_REPAIR 32 "failed_repair";
    LAGGY 33 "laggy";
    WAIT 34 "wait";
}

impl PgState {
    /// Nobody has reported the PG.
    pub const UNKNOWN: PgState = PgState(0);

    /// True if all of `other`'s bits are set.
    pub fn has(self, other: PgState) -> bool {
        self.0 & other.0 == other.0
    }

    /// Every state's word, in the order in which states are printed.
    pub fn all_words() -> Vec<&'static str> {
        Self::WORDS.iter().map(|(_, word)| *word).collect()
    }

    /// The state that `word` names in a command (`pg ls degraded`); `unknown` is no bit.
    pub fn from_word(word: &str) -> Option<PgState> {
        let word = if word == "deep_scrub" { "deep" } else { word };
        let known = Self::WORDS.iter().find(|(_, text)| *text == word).map(|(state, _)| *state);
        known.or((word == "unknown").then_some(Self::UNKNOWN))
    }
}
impl BitOr for PgState {
    type Output = PgState;
    fn bitor(self, other: PgState) -> PgState {
        PgState(self.0 | other.0)
    }
}
impl BitOrAssign for PgState {
    fn bitor_assign(&mut self, other: PgState) {
        self.0 |= other.0;
    }
}
impl fmt::Display for PgState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = Self::WORDS.iter().filter(|(s, _)| self.has(*s)).map(|(_, text)| *text).collect();
        f.write_str(if words.is_empty() { "unknown".into() } else { words.join("+") }.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_in_the_operators_order() {
        let state = PgState::CLEAN | PgState::ACTIVE | PgState::DEGRADED | PgState::STALE;
        assert_eq!(state.to_string(), "stale+active+clean+degraded");
        assert_eq!(PgState::UNKNOWN.to_string(), "unknown");
        assert_eq!(PgState::from_word("deep"), Some(PgState::DEEP_SCRUB));
        assert_eq!(PgState::from_word("nonsense"), None);
    }
}
