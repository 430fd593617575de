//! Named releases, as maps require them of daemons and clients.

use denc::{Decode, Encode};
use std::fmt;

/// A release (`ceph_release_t`), ordered by age; 0 is "unknown".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Encode, Decode)]
pub struct Release(pub u8);

/// Names by number, from 1.
const NAMES: [&str; 20] = [
    "argonaut", "bobtail", "cuttlefish", "dumpling", "emperor", "firefly", "giant", "hammer", "infernalis", "jewel",
    "kraken", "luminous", "mimic", "nautilus", "octopus", "pacific", "quincy", "reef", "squid", "tentacle",
];

impl Release {
    pub const UNKNOWN: Self = Release(0);
    pub const FIREFLY: Self = Release(6);
    pub const HAMMER: Self = Release(8);
    pub const JEWEL: Self = Release(10);
    pub const LUMINOUS: Self = Release(12);
    pub const MIMIC: Self = Release(13);
    pub const NAUTILUS: Self = Release(14);
    pub const OCTOPUS: Self = Release(15);
    pub const PACIFIC: Self = Release(16);
    pub const QUINCY: Self = Release(17);
    pub const REEF: Self = Release(18);
    pub const SQUID: Self = Release(19);
    pub const TENTACLE: Self = Release(20);

    /// `pacific`, ...; `unknown` for 0 and for numbers of the future.
    pub fn name(self) -> &'static str {
        usize::from(self.0).checked_sub(1).and_then(|i| NAMES.get(i)).copied().unwrap_or("unknown")
    }

    /// The release called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        let at = NAMES.iter().position(|n| *n == name)?;
        Some(Release(at as u8 + 1))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_agree() {
        assert_eq!(Release::PACIFIC.name(), "pacific");
        assert_eq!(Release::from_name("tentacle"), Some(Release::TENTACLE));
        assert_eq!(Release(0).name(), "unknown");
        assert_eq!(Release(200).name(), "unknown");
        assert_eq!(Release::from_name("unknown"), None);
    }
}
