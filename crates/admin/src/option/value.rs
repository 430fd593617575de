//! Texts of option values: what is accepted, and how it is held.
//!
//! Upstream: src/common/strtol.cc, src/common/options.cc (Option::parse_value).

use super::spec::OptType;
use std::net::{IpAddr, SocketAddr};
use uuid::Uuid;

/// The canonical text of `raw`, or what is wrong with it.
pub(super) fn normalize(kind: OptType, raw: &str) -> Result<String, String> {
    let text = raw.trim();
    match kind {
        OptType::Str => Ok(raw.to_owned()),
        OptType::Int => scaled(text, 1000).map(|v| v.to_string()),
        OptType::Uint => unsigned(text, 1000).map(|v| v.to_string()),
        OptType::Size => unsigned(text, 1024).map(|v| v.to_string()),
        OptType::Float => float(text).map(|f| format!("{f:.6}")),
        OptType::Bool => boolean(text).map(|b| b.to_string()),
        OptType::Secs => seconds(text).map(|s| s.to_string()),
        OptType::Millisecs => text.parse::<u64>().map(|v| v.to_string()).map_err(|_| expected("milliseconds", text)),
        OptType::Uuid => Uuid::parse_str(text).map(|u| u.to_string()).map_err(|_| expected("a uuid", text)),
        OptType::Addr => address(text).then(|| text.to_owned()).ok_or_else(|| expected("an address", text)),
        OptType::AddrVec => Ok(text.to_owned()),
    }
}

fn expected(what: &str, got: &str) -> String {
    format!("expected {what}, got: '{got}'")
}

fn unsigned(text: &str, base: i64) -> Result<i64, String> {
    match scaled(text, base)? {
        v if v < 0 => Err(format!("value should not be negative: '{text}'")),
        v => Ok(v),
    }
}

/// A whole number with a unit letter; in base 1024 also `Ki`, `KiB` and a lone `B`.
fn scaled(text: &str, base: i64) -> Result<i64, String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '-' && c != '+').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let value: i64 = digits.parse().map_err(|_| match digits {
        "" if !unit.is_empty() => format!("unit prefix not recognized: '{text}'"),
        _ => expected("a whole number", text),
    })?;
    let unit = match base {
        1024 => unit.trim_end_matches('B').trim_end_matches('i'),
        _ => unit,
    };
    let power = match unit {
        "" => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return Err(format!("unit prefix not recognized: '{text}'")),
    };
    value.checked_mul(base.pow(power)).ok_or_else(|| format!("value seems to be too large: '{text}'"))
}

fn float(text: &str) -> Result<f64, String> {
    text.parse().ok().filter(|f: &f64| f.is_finite()).ok_or_else(|| expected("a number", text))
}

fn boolean(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        other => other.parse::<i64>().map(|n| n != 0).map_err(|_| expected("true or false", text)),
    }
}

/// Seconds, or spans like `1h 30m`.
fn seconds(text: &str) -> Result<u64, String> {
    if let Ok(plain) = text.parse() {
        return Ok(plain);
    }
    let bad = || expected("a time span like 90s or 1h 30m", text);
    let (mut rest, mut total) = (text, 0u64);
    while !rest.trim_start().is_empty() {
        rest = rest.trim_start();
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, after) = rest.split_at(digits);
        let after = after.trim_start();
        let unit_len = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        let seconds = match unit {
            "s" | "sec" | "secs" | "second" | "seconds" => 1,
            "m" | "min" | "mins" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "year" | "years" => 31_536_000,
            _ => return Err(bad()),
        };
        let number: u64 = number.parse().map_err(|_| bad())?;
        total = number.checked_mul(seconds).and_then(|s| total.checked_add(s)).ok_or_else(bad)?;
        rest = after;
    }
    Ok(total)
}

/// `v2:1.2.3.4:6789/0`, with type, port and nonce as one likes.
fn address(text: &str) -> bool {
    let bare = text.trim_start_matches("v1:").trim_start_matches("v2:").trim_start_matches("any:");
    let (bare, nonce) = bare.split_once('/').unwrap_or((bare, "0"));
    let ip = bare.trim_start_matches('[').trim_end_matches(']');
    nonce.parse::<u32>().is_ok() && (bare.parse::<SocketAddr>().is_ok() || ip.parse::<IpAddr>().is_ok() || bare == "-" || bare == ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_counts_decimal() {
        assert_eq!(normalize(OptType::Size, "10G").unwrap(), (10u64 << 30).to_string());
        assert_eq!(normalize(OptType::Size, "4Ki").unwrap(), "4096");
        assert_eq!(normalize(OptType::Size, "5B").unwrap(), "5");
        assert_eq!(normalize(OptType::Uint, "2K").unwrap(), "2000");
        assert!(normalize(OptType::Uint, "-1").is_err());
        assert!(normalize(OptType::Uint, "x").unwrap_err().contains("unit prefix not recognized"));
        assert!(normalize(OptType::Int, "99999999999E").is_err());
    }

    #[test]
    fn spans_add_up() {
        assert_eq!(normalize(OptType::Secs, "1h 30m").unwrap(), "5400");
        assert_eq!(normalize(OptType::Secs, "90").unwrap(), "90");
        assert!(normalize(OptType::Secs, "soon").is_err());
    }

    #[test]
    fn truth_has_many_names() {
        for (text, truth) in [("yes", "true"), ("0", "false"), ("TRUE", "true"), ("2", "true")] {
            assert_eq!(normalize(OptType::Bool, text).unwrap(), truth);
        }
        assert!(normalize(OptType::Bool, "maybe").is_err());
    }

    #[test]
    fn floats_have_six_decimals() {
        assert_eq!(normalize(OptType::Float, ".5").unwrap(), "0.500000");
        assert!(normalize(OptType::Float, "nan").is_err());
    }

    #[test]
    fn addresses_may_name_protocol_and_nonce() {
        for good in ["127.0.0.1", "v2:127.0.0.1:0/0", "[::1]:6789", "::1"] {
            assert!(normalize(OptType::Addr, good).is_ok(), "{good}");
        }
        assert!(normalize(OptType::Addr, "nowhere").is_err());
    }
}
