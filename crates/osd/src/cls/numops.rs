//! Class `numops`: arithmetic on a decimal number kept in an omap value.
//!
//! Upstream: src/cls/numops/.

use super::{Call, Class, Method, MethodResult, RD, WR, args};
use crate::ops::Halt;
use denc::BString;
use types::Errno;

/// Significant digits of what is stored.
const PRECISION: usize = 10;

pub(super) const CLASS: Class = Class {
    name: "numops",
    methods: &[Method { name: "add", flags: RD | WR, run: add }, Method { name: "mul", flags: RD | WR, run: mul }],
};

fn add(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    apply(call, input, |value, by| value + by)
}

fn mul(call: &mut Call<'_, '_>, input: &[u8], _: &mut Vec<u8>) -> MethodResult {
    apply(call, input, |value, by| value * by)
}

fn apply(call: &mut Call<'_, '_>, input: &[u8], f: fn(f64, f64) -> f64) -> MethodResult {
    let (key, by): (BString, BString) = args(input)?;
    let by = number(&by).ok_or(Errno::EINVAL)?;
    let stored = match call.omap_get(&key) {
        Ok(raw) => raw,
        Err(Halt::Errno(Errno::ENODATA | Errno::ENOENT)) => Default::default(),
        Err(e) => return Err(e),
    };
    let value = number(&stored).ok_or(Errno::EBADMSG)?;
    call.omap_set(&key, significant(f(value, by)).into())?;
    Ok(0)
}

/// A number as `strtod` takes it, leading blanks allowed; nothing at all counts as 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?.trim_start();
    match text {
        "" => Some(0.0),
        _ => text.parse().ok(),
    }
}

/// As C's `%.10g` prints it.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}").to_lowercase();
    }
    let scientific = format!("{:.*e}", PRECISION - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..PRECISION as i32).contains(&exponent) {
        let decimals = (PRECISION as i32 - 1 - exponent).max(0) as usize;
        return trim_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
}

fn trim_zeros(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_c_streams_print_them() {
        let cases = [(5.0, "5"), (-2.5, "-2.5"), (1e10, "1e+10"), (0.1 + 0.2, "0.3"), (1e-5, "1e-05"), (123456789.25, "123456789.2")];
        for (value, text) in cases {
            assert_eq!(significant(value), text);
        }
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        assert_eq!(number(b"1.5x"), None);
        assert_eq!(number(b" 12"), Some(12.0));
        assert_eq!(number(b""), Some(0.0));
    }
}
