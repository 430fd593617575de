//! Numbers as operators write them: `10M`, `4K`, `1.5` is refused.
//!
//! Upstream: src/common/strtol.cc (strict_si_cast, strict_iec_cast).

/// What a letter behind a number means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// `k` is 1000: counts.
    Decimal,
    /// `K` and `Ki` are 1024: bytes.
    Binary,
}

/// The number, or what is wrong with it in the words clients know.
pub fn parse(text: &str, scale: Scale) -> Result<u64, String> {
    let name = if scale == Scale::Binary { "strict_iecstrtoll" } else { "strict_sistrtoll" };
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    if text.is_empty() {
        return Err(format!("{name}: value not specified"));
    }
    let step: u64 = if scale == Scale::Binary { 1024 } else { 1000 };
    let letter = unit.strip_suffix('B').filter(|u| !u.is_empty()).unwrap_or(unit);
    let letter = letter.strip_suffix('i').unwrap_or(letter);
    let power = match letter {
        "" | "B" => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ => return Err(format!("{name}: unit prefix not recognized")),
    };
    let number: u64 = number.parse().map_err(|_| format!("The option value '{text}' seems to be invalid"))?;
    step.checked_pow(power).and_then(|f| number.checked_mul(f)).ok_or_else(|| format!("{name}: value seems to be too large"))
}

/// A switch as pool settings take it.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "true" | "1" => Some(true),
        "false" | "0" => Some(false),
        _ => None,
    }
}

/// A length of time: `90`, `10m`, `1h30m`, `2d`; seconds.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let (mut total, mut rest) = (0u64, text);
    while !rest.is_empty() {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let number: u64 = rest[..digits].parse().map_err(|_| "expected digit".to_owned())?;
        let tail = &rest[digits..];
        let word = tail.len() - tail.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let factor = match &tail[..word] {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 7 * 86_400,
            "mo" | "month" | "months" => 30 * 86_400,
            "y" | "yr" | "year" | "years" => 365 * 86_400,
            other => return Err(format!("unrecognized unit '{other}'")),
        };
        total = number.checked_mul(factor).and_then(|n| total.checked_add(n)).ok_or_else(|| "out of range".to_owned())?;
        rest = tail[word..].trim_start();
    }
    if text.is_empty() { Err("expected digit".into()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_by_their_kind() {
        assert_eq!(parse("10M", Scale::Binary), Ok(10 << 20));
        assert_eq!(parse("4Ki", Scale::Binary), Ok(4096));
        assert_eq!(parse("2k", Scale::Decimal), Ok(2000));
        assert_eq!(parse("zz", Scale::Binary).unwrap_err(), "strict_iecstrtoll: unit prefix not recognized");
        assert!(parse("99999999999E", Scale::Binary).is_err() && parse("", Scale::Binary).is_err());
    }

    #[test]
    fn durations_add_up() {
        assert_eq!(parse_duration("1h30m"), Ok(5400));
        assert_eq!(parse_duration("90"), Ok(90));
        assert_eq!(parse_duration("wat").unwrap_err(), "expected digit");
    }
}
