//! What a class of work is promised of a device's time.

use std::str::FromStr;

/// Of a device's time. Fractions are in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// What the class gets whenever it has something to do; 0: nothing for certain.
    pub reservation: u16,
    /// How what nobody is promised is divided: in proportion to weights. At least 1.
    pub weight: u16,
    /// What it never gets more of, though the device idles; `None`: as much as there is.
    pub limit: Option<u16>,
}

impl Share {
    /// `reservation` and `limit` in percent, as profiles are written.
    const fn percent(reservation: u16, weight: u16, limit: Option<u16>) -> Self {
        let limit = match limit {
            Some(l) => Some(l * 10),
            None => None,
        };
        Share { reservation: reservation * 10, weight, limit }
    }
}

/// Who asks for a device's time (`op_scheduler_class` upstream).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Class {
    /// What a client waits for.
    #[default]
    Client,
    /// Copies that are missing somewhere: data at risk.
    Recovery,
    /// Scrub, trimming, deletion, data that only moves.
    BestEffort,
}

impl Class {
    pub const ALL: [Class; 3] = [Class::Client, Class::Recovery, Class::BestEffort];

    /// As in the names of options and counters.
    pub fn name(self) -> &'static str {
        match self {
            Class::Client => "client",
            Class::Recovery => "background_recovery",
            Class::BestEffort => "background_best_effort",
        }
    }
}

/// `osd_mclock_profile`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Profile {
    #[default]
    Balanced,
    HighClientOps,
    HighRecoveryOps,
    /// The shares are options of their own: `osd_mclock_scheduler_*`.
    Custom,
}

impl Profile {
    /// What the profile promises a class; `None` for [`Profile::Custom`], which is not for it to say.
    /// Source: doc/rados/configuration/mclock-config-ref.rst of Tentacle.
    pub fn share(self, class: Class) -> Option<Share> {
        Some(match (self, class) {
            (Profile::Custom, _) => return None,
            (Profile::Balanced, Class::Client | Class::Recovery) => Share::percent(50, 1, None),
            (Profile::Balanced, Class::BestEffort) => Share::percent(0, 1, Some(90)),
            (Profile::HighClientOps, Class::Client) => Share::percent(60, 2, None),
            (Profile::HighClientOps, Class::Recovery) => Share::percent(40, 1, None),
            (Profile::HighClientOps, Class::BestEffort) => Share::percent(0, 1, Some(70)),
            (Profile::HighRecoveryOps, Class::Client) => Share::percent(30, 1, None),
            (Profile::HighRecoveryOps, Class::Recovery) => Share::percent(70, 2, None),
            (Profile::HighRecoveryOps, Class::BestEffort) => Share::percent(0, 1, None),
        })
    }

    /// As the option is written.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Balanced => "balanced",
            Profile::HighClientOps => "high_client_ops",
            Profile::HighRecoveryOps => "high_recovery_ops",
            Profile::Custom => "custom",
        }
    }
}

impl FromStr for Profile {
    type Err = ();

    fn from_str(s: &str) -> Result<Self, ()> {
        [Profile::Balanced, Profile::HighClientOps, Profile::HighRecoveryOps, Profile::Custom].into_iter().find(|p| p.name() == s).ok_or(())
    }
}
