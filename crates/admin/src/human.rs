//! Figures for people, in Ceph's shapes: `2.5 GiB`, `12k`, `16m`, `2026-11-20T18:24:10.279145+0000`.
//!
//! Upstream: src/include/types.h, src/include/utime.h, src/common/ceph_time.cc, src/include/util.h.

use types::Utime;
pub use types::json::general;

const IEC: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
const SI: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];

/// Bytes with a binary unit (`byte_u_t`): `945 MiB`, `9.7 GiB`, `0 B`.
pub fn bytes(v: u64) -> String {
    scaled(v, 1024, &IEC, 7)
}

/// A count with a decimal unit (`si_u_t`): `25k`, `1.2M`.
pub fn si(v: u64) -> String {
    scaled(v, 1000, &SI, 7)
}

/// Scales to the largest unit that leaves at least 1, with as many decimals (two at most) as fit `width` bytes.
fn scaled(v: u64, base: u64, units: &[&str; 7], width: usize) -> String {
    let (mut n, mut scale, mut unit) = (v, 1u64, 0);
    while n >= base && unit + 1 < units.len() {
        (n, unit) = (n / base, unit + 1);
        scale = scale.saturating_mul(base);
    }
    let name = units.get(unit).copied().unwrap_or_default();
    if unit == 0 || v.is_multiple_of(scale) {
        return format!("{n}{name}");
    }
    let exact = v as f64 / scale as f64;
    // The widest text that fits; with no decimals it may exceed the width and stands all the same.
    (1..=2).rev().map(|d| format!("{exact:.d$}{name}")).find(|s| s.len() <= width).unwrap_or(format!("{exact:.0}{name}"))
}

/// How long, roughly (`timespan_str`): `1.5s`, `90s`, `16m`, `3d`.
pub fn age(nanos: u128) -> String {
    if nanos < 2_000_000_000 {
        return format!("{}s", general(nanos as f32 as f64 / 1e9, 6));
    }
    let s = (nanos / 1_000_000_000) as u64;
    let (m, h, d) = (s / 60, s / 3600, s / 86400);
    match () {
        _ if s < 120 => format!("{s}s"),
        _ if m < 120 => format!("{m}m"),
        _ if h < 48 => format!("{h}h"),
        _ if d < 14 => format!("{d}d"),
        _ if d / 7 < 12 => format!("{}w", d / 7),
        _ if d / 30 < 24 => format!("{}M", d / 30),
        _ => format!("{}y", d / 365),
    }
}

/// The time between two moments, roughly; zero when `now` is before `then`.
pub fn age_between(now: Utime, then: Utime) -> String {
    age(now.to_duration().saturating_sub(then.to_duration()).as_nanos())
}

/// A moment as maps and logs print it, in UTC: `2026-11-20T18:24:10.279145+0000`. Before 1980 it is taken for a span
/// and printed in seconds, as upstream does: zero is `0.000000`.
pub fn timestamp(t: Utime) -> String {
    t.to_string()
}

/// The same with a `Z`, as the monmap's JSON has it.
pub fn timestamp_z(t: Utime) -> String {
    t.gmt()
}

/// A number in `width` characters, the last of them a unit letter or a blank, as the manager's modules print: `25258k`,
/// `    0 `. `factor` is 1000 or 1024; `width` is at least 5.
pub fn narrow(n: u64, width: usize, factor: u64) -> String {
    let units = [' ', 'k', 'M', 'G', 'T', 'P', 'E'];
    let fits = |power: &u32| (n / factor.pow(*power)).to_string().len() < width;
    let power = (0..units.len() as u32 - 1).find(fits).unwrap_or(6);
    let digits = width.saturating_sub(1);
    if power == 0 {
        return format!("{n:>digits$} ");
    }
    let exact = format!("{:.6}", n as f64 / (factor as f64).powi(power as i32));
    let cut: String = exact.chars().take(digits).collect();
    let cut = cut.strip_suffix('.').map_or(cut.clone(), |whole| format!(" {whole}"));
    format!("{cut}{}", units.get(power as usize).unwrap_or(&' '))
}

/// A CRUSH or OSD weight (`weightf_t`): five decimals, `0` for none, `-` for "does not apply".
pub fn weight(v: f32) -> String {
    match v {
        v if v < -0.01 => "-".into(),
        v if v < 0.000_001 => "0".into(),
        v => format!("{v:.5}"),
    }
}

/// A percentage with two decimals, `0` below a hundredth (`percentify`).
pub fn percent(p: f64) -> String {
    if p < 0.01 { "0".into() } else { format!("{p:.2}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_at_most_two_decimals_and_seven_characters() {
        for (v, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1 << 20, "1 MiB"),
            (25_864_680, "25 MiB"),
            (990_744_576, "945 MiB"),
            (31_221_510_144, "29 GiB"),
            (10_407_170_048, "9.7 GiB"),
            (32_212_254_720, "30 GiB"),
            (1536, "1.5 KiB"),
        ] {
            assert_eq!(bytes(v), text, "{v}");
        }
    }

    #[test]
    fn counts_scale_by_thousands() {
        assert_eq!([si(999), si(1000), si(1234), si(12_345), si(1_234_567)], ["999", "1k", "1.23k", "12.35k", "1.23M"]);
    }

    #[test]
    fn ages_grow_coarser() {
        let s = 1_000_000_000u128;
        assert_eq!(age(1_500_000_000), "1.5s");
        assert_eq!([age(36 * s), age(16 * 60 * s), age(3 * 3600 * s), age(72 * 3600 * s)], ["36s", "16m", "3h", "3d"]);
    }

    #[test]
    fn moments_are_iso_8601_in_utc() {
        let t = Utime { sec: 1_795_199_050, nsec: 279_145_000 };
        assert_eq!(timestamp(t), "2026-11-20T18:24:10.279145+0000");
        assert_eq!(timestamp(Utime::ZERO), "0.000000");
        assert_eq!(timestamp_z(Utime { sec: 1_709_164_800, nsec: 0 }), "2024-02-29T00:00:00.000000Z");
    }

    #[test]
    fn numbers_look_as_from_a_cpp_stream() {
        assert_eq!(general(3.075_675_964_355_468_8, 17), "3.0756759643554688");
        assert_eq!(general(0.009796142578125, 17), "0.009796142578125");
        assert_eq!(general(0.95f32 as f64, 17), "0.94999998807907104");
        assert_eq!(general(0.00001, 6), "1e-05");
        assert_eq!(general(1_000_000.0, 6), "1e+06");
        assert_eq!(general(1.0, 17), "1");
    }

    #[test]
    fn narrow_numbers_end_in_a_unit_or_a_blank() {
        let six = [(0, "    0 "), (25_864_680, "25258k"), (32_212_254_720, "30720M"), (99_999, "99999 "), (102_400, "100.0k")];
        six.iter().for_each(|(n, text)| assert_eq!(narrow(*n, 6, 1024), *text));
        assert_eq!([narrow(330_248_192, 5, 1024), narrow(1234, 5, 1000)], [" 314M", "1234 "]);
    }

    #[test]
    fn weights_have_five_decimals() {
        assert_eq!([weight(0.0294), weight(1.0), weight(0.0), weight(-1.0)], ["0.02940", "1.00000", "0", "-"]);
    }
}
