//! What an erasure-code profile asks for: `ceph osd erasure-code-profile set`'s pairs, checked and filled in.
//!
//! Names, defaults, limits and texts are those of the plugins `jerasure` and `isa` of the Pacific generation. What
//! jerasure's parameters `w`, `packetsize` and `jerasure-per-chunk-alignment` say of the layout inside a chunk says
//! nothing here: they are checked and kept, because operators and their scripts set them.

use crate::MAX_CHUNKS;
use crate::matrix::{Technique, is_mds};
use std::collections::BTreeMap;
use types::Errno;

/// What a pool's chunks are like, and where CRUSH is to put them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Chunks of data, from 2.
    pub k: usize,
    /// Chunks of parity, from 1.
    pub m: usize,
    /// How parity is made.
    pub technique: Technique,
    /// Bytes of a chunk in one stripe: a multiple of 32.
    pub stripe_unit: u32,
    /// `crush-device-class`; empty for any.
    pub device_class: String,
    /// `crush-failure-domain`, the type of bucket of which each chunk has one of its own; empty if the profile does not
    /// say: what it is then the cluster decides.
    pub failure_domain: String,
    /// `crush-root`, `default` unless the profile says otherwise.
    pub root: String,
}

/// `osd_pool_erasure_code_stripe_unit`'s default: what a profile without `stripe_unit` gets, bytes.
const STRIPE_UNIT: u32 = 4096;
/// A chunk's length in one stripe is a multiple of this, bytes.
const ALIGNMENT: u32 = 32;
/// Techniques of the plugin `jerasure` that are there, and those that are not.
const JERASURE: [&str; 4] = ["reed_sol_van", "reed_sol_r6_op", "cauchy_orig", "cauchy_good"];
const NOT_BUILT: [&str; 3] = ["liberation", "blaum_roth", "liber8tion"];

/// Why a profile is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// `lrc`, `shec` or `clay`.
    #[error("erasure code plugin '{0}' is not built here; plugins are: jerasure, isa")]
    PluginNotBuilt(String),
    /// No plugin of Ceph's at all.
    #[error("no erasure code plugin '{0}'; plugins are: jerasure, isa")]
    NoPlugin(String),
    /// One of jerasure's RAID-6 bit matrices.
    #[error("technique={0} is not built here; techniques of jerasure are: {built}", built = JERASURE.join(", "))]
    TechniqueNotBuilt(String),
    /// No technique of that plugin. The list is as its own text has it.
    #[error("technique={technique} is not a valid coding technique.  Choose one of the following: {list}")]
    NoTechnique {
        /// What was asked for.
        technique: String,
        /// What could have been.
        list: &'static str,
    },
    /// Neither a number nor absent.
    #[error("could not convert {name}={value} to int because {why}, set to default {default}")]
    NotANumber {
        /// Of what.
        name: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it.
        why: String,
        /// What would have been taken without it.
        default: u32,
    },
    /// Fewer than two chunks of data.
    #[error("k={0} must be >= 2")]
    TooSmallK(i32),
    /// No parity.
    #[error("m={0} must be >= 1")]
    TooSmallM(i32),
    /// More than this build can number.
    #[error("k={k} m={m}: at most {MAX_CHUNKS} chunks in all are built here")]
    TooMany {
        /// Chunks of data.
        k: i32,
        /// Chunks of parity.
        m: i32,
    },
    /// RAID 6 has two parities.
    #[error("ReedSolomonRAID6: m={0} must be 2 for RAID6: revert to 2")]
    NotRaid6(i32),
    /// Not a field of jerasure's.
    #[error("ReedSolomonVandermonde: w={0} must be one of {{8, 16, 32}} : revert to 8")]
    WordSize(i32),
    /// More data than isa's Vandermonde matrix can have; the text names m, as the plugin's does.
    #[error("Vandermonde: m={0} should be less/equal than 32 : revert to k=32")]
    VandermondeTooLarge(i32),
    /// More parity than isa's Vandermonde matrix can have.
    #[error("Vandermonde: m={0} should be less than 5 to guarantee an MDS codec: revert to m=4")]
    VandermondeM(i32),
    /// With four parities its k has a limit.
    #[error("Vandermonde: k={0} should be less than 22 to guarantee an MDS codec with m=4: revert to k=21")]
    VandermondeK(i32),
    /// `mapping` names another number of chunks.
    #[error("mapping {mapping} maps {chunks} chunks instead of the expected {expected} and will be ignored")]
    MappingLength {
        /// What was given.
        mapping: String,
        /// Its length.
        chunks: usize,
        /// k + m.
        expected: i64,
    },
    /// Chunks are kept in order: data first.
    #[error("mapping={0} is not built here: chunks of data come first")]
    MappingNotBuilt(String),
    /// Not a size.
    #[error("could not parse stripe_unit '{value}': {why}")]
    StripeUnit {
        /// What was given.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// Not a multiple of 32 bytes.
    #[error("stripe_unit {unit} does not match ec profile alignment. Would be padded to {padded}")]
    Alignment {
        /// What was given.
        unit: u32,
        /// The next that would do.
        padded: u32,
    },
}

impl ProfileError {
    /// What a command answers with it.
    pub fn errno(&self) -> Errno {
        match self {
            Self::PluginNotBuilt(_) | Self::TechniqueNotBuilt(_) | Self::TooMany { .. } | Self::MappingNotBuilt(_) => Errno::EOPNOTSUPP,
            Self::NoPlugin(_) => Errno::EIO,
            Self::NoTechnique { .. } => Errno::ENOENT,
            _ => Errno::EINVAL,
        }
    }
}

type Pairs = BTreeMap<String, String>;

impl Profile {
    /// Checks the pairs of a profile and fills in what they do not say.
    ///
    /// # Errors
    /// The first thing wrong with them, in the order in which Ceph's plugins look.
    pub fn parse(pairs: &Pairs) -> Result<Profile, ProfileError> {
        let isa = match pairs.get("plugin").map_or("jerasure", String::as_str) {
            "jerasure" => false,
            "isa" => true,
            name @ ("lrc" | "shec" | "clay") => return Err(ProfileError::PluginNotBuilt(name.to_owned())),
            name => return Err(ProfileError::NoPlugin(name.to_owned())),
        };
        // An empty technique is none that there is, other than with numbers.
        let name = pairs.get("technique").map_or("reed_sol_van", String::as_str);
        let technique = technique(isa, name)?;
        let (k, m) = (number(pairs, "k", 7)?, number(pairs, "m", if name == "reed_sol_r6_op" { 2 } else { 3 })?);
        if !isa {
            check_jerasure(pairs, name, k, m)?;
        }
        check_counts(k, m)?;
        if isa && technique == Technique::Vandermonde {
            check_isa(k, m)?;
        }
        check_sum(k, m)?;
        let text = |name: &str, default: &str| value(pairs, name).unwrap_or(default).to_owned();
        Ok(Profile {
            k: k as usize,
            m: m as usize,
            technique,
            stripe_unit: stripe_unit(pairs)?,
            device_class: text("crush-device-class", ""),
            failure_domain: text("crush-failure-domain", ""),
            root: text("crush-root", "default"),
        })
    }

    /// Adds to `pairs` what its plugin adds to a profile that is set: each of its parameters that the pairs leave out or
    /// empty, with its default. The failure domain is `failure_domain` unless they say.
    pub fn fill(pairs: &mut Pairs, failure_domain: &str) {
        let mut default = |name: &str, text: &str| {
            let value = pairs.entry(name.to_owned()).or_default();
            if value.is_empty() {
                text.clone_into(value);
            }
            value.clone()
        };
        let plugin = default("plugin", "jerasure");
        let technique = default("technique", "reed_sol_van");
        default("k", "7");
        default("m", if technique == "reed_sol_r6_op" { "2" } else { "3" });
        if plugin == "jerasure" {
            default("w", "8");
            if technique.starts_with("cauchy") {
                default("packetsize", "2048");
            }
            if technique != "reed_sol_r6_op" {
                default("jerasure-per-chunk-alignment", "false");
            }
        }
        default("crush-root", "default");
        default("crush-failure-domain", failure_domain);
        default("crush-device-class", "");
    }
}

/// What `pairs` say of `name`, unless that is nothing.
fn value<'a>(pairs: &'a Pairs, name: &str) -> Option<&'a str> {
    pairs.get(name).map(String::as_str).filter(|v| !v.is_empty())
}

fn technique(isa: bool, name: &str) -> Result<Technique, ProfileError> {
    match (isa, name) {
        (_, "reed_sol_van") | (false, "reed_sol_r6_op") => Ok(Technique::Vandermonde),
        (true, "cauchy") | (false, "cauchy_orig" | "cauchy_good") => Ok(Technique::Cauchy),
        (false, name) if NOT_BUILT.contains(&name) => Err(ProfileError::TechniqueNotBuilt(name.to_owned())),
        (isa, name) => {
            let jerasure = "reed_sol_van, reed_sol_r6_op, cauchy_orig, cauchy_good, liberation, blaum_roth, liber8tion";
            Err(ProfileError::NoTechnique { technique: name.to_owned(), list: if isa { "reed_sol_van,cauchy" } else { jerasure } })
        }
    }
}

fn number(pairs: &Pairs, name: &'static str, default: u32) -> Result<i32, ProfileError> {
    let Some(text) = value(pairs, name) else {
        return Ok(default as i32);
    };
    let wrong = |why: String| ProfileError::NotANumber { name, value: text.to_owned(), why, default };
    match text.parse::<i128>() {
        Ok(n) => i32::try_from(n).map_err(|_| wrong(format!("The option value '{text}' seems to be invalid"))),
        Err(_) => Err(wrong(format!("Expected option value to be integer, got '{text}'"))),
    }
}

/// What only jerasure looks at.
fn check_jerasure(pairs: &Pairs, technique: &str, k: i32, m: i32) -> Result<(), ProfileError> {
    let w = number(pairs, "w", 8)?;
    if let Some(mapping) = value(pairs, "mapping") {
        let expected = i64::from(k) + i64::from(m);
        if mapping.len() as i64 != expected {
            return Err(ProfileError::MappingLength { mapping: mapping.to_owned(), chunks: mapping.len(), expected });
        }
        if mapping.trim_start_matches('D').contains('D') {
            return Err(ProfileError::MappingNotBuilt(mapping.to_owned()));
        }
    }
    check_counts(k, m)?;
    if technique == "reed_sol_r6_op" && m != 2 {
        return Err(ProfileError::NotRaid6(m));
    }
    if technique.starts_with("reed_sol") && ![8, 16, 32].contains(&w) {
        return Err(ProfileError::WordSize(w));
    }
    if technique.starts_with("cauchy") {
        number(pairs, "packetsize", 2048)?;
    }
    Ok(())
}

fn check_counts(k: i32, m: i32) -> Result<(), ProfileError> {
    match (k, m) {
        (..=1, _) => Err(ProfileError::TooSmallK(k)),
        (_, ..=0) => Err(ProfileError::TooSmallM(m)),
        _ => Ok(()),
    }
}

fn check_isa(k: i32, m: i32) -> Result<(), ProfileError> {
    match (k, m) {
        (33.., _) => Err(ProfileError::VandermondeTooLarge(m)),
        (_, 5..) => Err(ProfileError::VandermondeM(m)),
        _ if !is_mds(k as usize, m as usize) => Err(ProfileError::VandermondeK(k)),
        _ => Ok(()),
    }
}

fn check_sum(k: i32, m: i32) -> Result<(), ProfileError> {
    match i64::from(k) + i64::from(m) > MAX_CHUNKS as i64 {
        true => Err(ProfileError::TooMany { k, m }),
        false => Ok(()),
    }
}

fn stripe_unit(pairs: &Pairs) -> Result<u32, ProfileError> {
    let Some(text) = pairs.get("stripe_unit") else {
        return Ok(STRIPE_UNIT);
    };
    let wrong = |why: &str| ProfileError::StripeUnit { value: text.clone(), why: why.to_owned() };
    let (number, prefix) = text.split_at(text.bytes().take_while(u8::is_ascii_digit).count());
    let shift = match prefix {
        _ if text.is_empty() => return Err(wrong("strict_iecstrtoll: value not specified")),
        "" | "B" => 0,
        "K" | "Ki" => 10,
        "M" | "Mi" => 20,
        "G" | "Gi" => 30,
        _ => return Err(wrong("strict_iecstrtoll: unit prefix not recognized")),
    };
    let number: Option<u64> = number.parse().ok();
    match number.and_then(|n| n.checked_mul(1 << shift)).and_then(|n| u32::try_from(n).ok()) {
        None | Some(0) => Err(wrong(&format!("The option value '{text}' seems to be invalid"))),
        Some(unit) if !unit.is_multiple_of(ALIGNMENT) => {
            Err(ProfileError::Alignment { unit, padded: unit.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT) })
        }
        Some(unit) => Ok(unit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Pairs {
        text.split_whitespace().filter_map(|pair| pair.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    }

    fn refused(text: &str) -> (Errno, String) {
        let error = Profile::parse(&pairs(text)).unwrap_err();
        (error.errno(), error.to_string())
    }

    #[test]
    fn a_profile_says_what_it_says_and_the_rest_is_filled_in() {
        let got = Profile::parse(&pairs("plugin=jerasure technique=reed_sol_van k=2 m=1 crush-device-class=ssd crush-failure-domain=host")).unwrap();
        let want = Profile {
            k: 2,
            m: 1,
            technique: Technique::Vandermonde,
            stripe_unit: 4096,
            device_class: "ssd".to_owned(),
            failure_domain: "host".to_owned(),
            root: "default".to_owned(),
        };
        assert_eq!(got, want);
        let got = Profile::parse(&pairs("plugin=isa technique=cauchy k=8 m=5 stripe_unit=16K crush-root=a")).unwrap();
        assert_eq!((got.k, got.m, got.technique, got.stripe_unit, &got.root[..]), (8, 5, Technique::Cauchy, 16384, "a"));
        let got = Profile::parse(&pairs("")).unwrap();
        assert_eq!((got.k, got.m, &got.failure_domain[..]), (7, 3, ""));
    }

    #[test]
    fn every_profile_that_is_taken_has_a_code() {
        for (plugin, techniques) in [("isa", &["reed_sol_van", "cauchy"][..]), ("jerasure", &JERASURE[..])] {
            for technique in techniques {
                for (k, m) in (0..34).flat_map(|k| (0..34).map(move |m| (k, m))) {
                    if let Ok(p) = Profile::parse(&pairs(&format!("plugin={plugin} technique={technique} k={k} m={m}"))) {
                        assert_eq!((p.k, p.m), (k, m));
                        let code = crate::Code::new(p.technique, p.k, p.m);
                        assert_eq!((code.k(), code.m()), (k, m));
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_as_stock_says_it() {
        let invalid = |text: &str| (Errno::EINVAL, text.to_owned());
        assert_eq!(refused("k=1 m=1"), invalid("k=1 must be >= 2"));
        assert_eq!(refused("k=2 m=0"), invalid("m=0 must be >= 1"));
        let text = "could not convert k=two to int because Expected option value to be integer, got 'two', set to default 7";
        assert_eq!(refused("k=two m=0"), invalid(text));
        assert_eq!(refused("k=2 m=2 w=9"), invalid("ReedSolomonVandermonde: w=9 must be one of {8, 16, 32} : revert to 8"));
        assert_eq!(refused("technique=reed_sol_r6_op k=2 m=3"), invalid("ReedSolomonRAID6: m=3 must be 2 for RAID6: revert to 2"));
        let text = "Vandermonde: m=5 should be less than 5 to guarantee an MDS codec: revert to m=4";
        assert_eq!(refused("plugin=isa k=5 m=5"), invalid(text));
        let text = "Vandermonde: k=22 should be less than 22 to guarantee an MDS codec with m=4: revert to k=21";
        assert_eq!(refused("plugin=isa k=22 m=4"), invalid(text));
        assert_eq!(refused("k=2 m=2 stripe_unit=33"), invalid("stripe_unit 33 does not match ec profile alignment. Would be padded to 64"));
        assert_eq!(refused("k=2 m=2 mapping=DD_"), invalid("mapping DD_ maps 3 chunks instead of the expected 4 and will be ignored"));
        assert_eq!(refused("plugin=isa k=33 m=3"), invalid("Vandermonde: m=3 should be less/equal than 32 : revert to k=32"));
        assert_eq!(refused("k=2 m=2 stripe_unit=").1, "could not parse stripe_unit '': strict_iecstrtoll: value not specified");
        assert_eq!(refused("k=2 m=2 stripe_unit=4Q").1, "could not parse stripe_unit '4Q': strict_iecstrtoll: unit prefix not recognized");
        assert_eq!((refused("k=2 m=2 technique=xor").0, refused("k=2 m=2 technique=").0), (Errno::ENOENT, Errno::ENOENT));
        assert_eq!(refused("plugin=zip k=2 m=2").0, Errno::EIO);
    }

    #[test]
    fn what_is_not_built_is_said_so() {
        for text in ["plugin=lrc k=4 m=2 l=3", "plugin=shec", "plugin=clay k=4 m=2", "technique=liberation k=2 m=2", "k=30 m=3", "k=2 m=1 mapping=D_D"] {
            let (errno, sentence) = refused(text);
            assert!(errno == Errno::EOPNOTSUPP && sentence.contains("built here"), "{text}: {sentence}");
        }
    }

    #[test]
    fn a_profile_that_is_set_names_every_parameter() {
        let mut set = pairs("plugin=jerasure technique=reed_sol_van k=2 m=1 crush-failure-domain=osd");
        Profile::fill(&mut set, "host");
        let want = pairs("crush-failure-domain=osd crush-root=default jerasure-per-chunk-alignment=false k=2 m=1 plugin=jerasure technique=reed_sol_van w=8");
        assert_eq!(set.remove("crush-device-class"), Some(String::new()));
        assert_eq!(set, want);
        let mut set = pairs("plugin=isa k=2 m=1");
        Profile::fill(&mut set, "host");
        set.remove("crush-device-class");
        assert_eq!(set, pairs("crush-failure-domain=host crush-root=default k=2 m=1 plugin=isa technique=reed_sol_van"));
    }
}
