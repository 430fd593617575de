//! Tunables: the switches by which the mapping function grew up, and the named sets of them.
//!
//! Upstream: struct crush_map in src/crush/crush.h, CrushWrapper::set_tunables_* in src/crush/CrushWrapper.h.

/// The switches of one map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tunables {
    /// Retries in the same bucket after a collision; 0 in every profile since bobtail.
    pub choose_local_tries: u32,
    /// Retries in the same bucket by permutation; 0 in every profile since bobtail.
    pub choose_local_fallback_tries: u32,
    /// Retries of a whole descent; the first try comes on top.
    pub choose_total_tries: u32,
    /// Whether a chooseleaf step tries each inner descent once only (0 or 1).
    pub chooseleaf_descend_once: u32,
    /// How far the outer try's number is shifted right, plus one, before it feeds the inner descent; 0 = not fed.
    pub chooseleaf_vary_r: u8,
    /// Whether inner descents start at replica 0 for all positions (0 or 1).
    pub chooseleaf_stable: u8,
    /// Which of the two flawed straw length computations is used for `straw` buckets (0 or 1).
    pub straw_calc_version: u8,
    /// Bit `1 << alg` for each bucket algorithm that new buckets may use.
    pub allowed_bucket_algs: u32,
    /// `msr_descents` and `msr_collision_tries`, which Squid and later append: kept for them, unused here.
    pub msr: Option<(u32, u32)>,
}

/// A named set of tunables: the newest release whose clients are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// Also called `legacy`.
    Argonaut,
    Bobtail,
    Firefly,
    Hammer,
    /// Also called `optimal` and `default`.
    Jewel,
}

/// uniform, list, straw.
const LEGACY_ALGS: u32 = 1 << 1 | 1 << 2 | 1 << 4;
/// Those and straw2.
const HAMMER_ALGS: u32 = LEGACY_ALGS | 1 << 5;

impl Profile {
    /// All profiles, oldest first.
    pub const ALL: [Profile; 5] =
        [Profile::Argonaut, Profile::Bobtail, Profile::Firefly, Profile::Hammer, Profile::Jewel];

    /// The profile of that name in `ceph osd crush tunables NAME`.
    pub fn parse(name: &str) -> Option<Profile> {
        Some(match name {
            "legacy" | "argonaut" => Profile::Argonaut,
            "bobtail" => Profile::Bobtail,
            "firefly" => Profile::Firefly,
            "hammer" => Profile::Hammer,
            "jewel" | "optimal" | "default" => Profile::Jewel,
            _ => return None,
        })
    }

    /// The release it is named for.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Argonaut => "argonaut",
            Profile::Bobtail => "bobtail",
            Profile::Firefly => "firefly",
            Profile::Hammer => "hammer",
            Profile::Jewel => "jewel",
        }
    }
}

impl Tunables {
    /// What a map has that was encoded before tunables were (`set_tunables_legacy` upstream).
    pub const LEGACY: Tunables = Tunables::of(Profile::Argonaut, 0);
    /// What new maps get (`set_tunables_default` upstream).
    pub const DEFAULT: Tunables = Tunables::of(Profile::Jewel, 1);

    const fn of(profile: Profile, straw_calc_version: u8) -> Tunables {
        let modern = !matches!(profile, Profile::Argonaut);
        Tunables {
            choose_local_tries: if modern { 0 } else { 2 },
            choose_local_fallback_tries: if modern { 0 } else { 5 },
            choose_total_tries: if modern { 50 } else { 19 },
            chooseleaf_descend_once: modern as u32,
            chooseleaf_vary_r: matches!(profile, Profile::Firefly | Profile::Hammer | Profile::Jewel) as u8,
            chooseleaf_stable: matches!(profile, Profile::Jewel) as u8,
            straw_calc_version,
            allowed_bucket_algs: match profile {
                Profile::Hammer | Profile::Jewel => HAMMER_ALGS,
                _ => LEGACY_ALGS,
            },
            msr: None,
        }
    }

    /// Changes all switches to those of `profile`, but leaves `straw_calc_version` and `msr`, which no profile names.
    pub fn set_profile(&mut self, profile: Profile) {
        *self = Tunables { msr: self.msr, ..Tunables::of(profile, self.straw_calc_version) };
    }

    /// The profile these are the switches of, whatever `straw_calc_version` is.
    pub fn profile(&self) -> Option<Profile> {
        Profile::ALL.into_iter().find(|&p| {
            let mut other = *self;
            other.set_profile(p);
            *self == other
        })
    }
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables::DEFAULT
    }
}
