//! Building JSON in the order stock daemons put it. `admin::json` renders it.

use serde_json::{Map, Value};

/// An object being filled, field by field.
#[derive(Debug, Default)]
pub struct Obj(Map<String, Value>);

impl Obj {
    /// An empty object.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a field; a name that was there keeps its place.
    pub fn put(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.0.insert(name.into(), value.into());
        self
    }

    /// Appends a field with the value's printed form as a string (`dump_stream` upstream).
    pub fn show(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        self.put(name, value.to_string())
    }

    /// Appends every field of `other`, an object.
    pub fn extend(&mut self, other: Value) -> &mut Self {
        if let Value::Object(fields) = other {
            self.0.extend(fields);
        }
        self
    }

    /// The finished object.
    pub fn done(self) -> Value {
        Value::Object(self.0)
    }
}
impl<N: Into<String>, V: Into<Value>> FromIterator<(N, V)> for Obj {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        Obj(fields.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}
impl From<Obj> for Value {
    fn from(o: Obj) -> Value {
        o.done()
    }
}

/// An array of what `items` yields.
pub fn array<T: Into<Value>>(items: impl IntoIterator<Item = T>) -> Value {
    Value::Array(items.into_iter().map(Into::into).collect())
}

/// A float (`dump_float`): whole numbers have no point.
pub fn float(x: f64) -> Value {
    match x.fract() == 0.0 && x.abs() < 1e15 {
        true => (x as i64).into(),
        false => x.into(),
    }
}

/// `%.*g`: `digits` significant digits, no trailing zeros, an exponent below 1e-4 and from 10^digits on. What
/// C++ streams print, with 6 digits unless told otherwise.
pub fn general(x: f64, digits: usize) -> String {
    if x == 0.0 || !x.is_finite() {
        return if x == 0.0 { "0".into() } else { format!("{x}").to_lowercase() };
    }
    let scientific = format!("{x:.*e}", digits.saturating_sub(1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim(mantissa), exponent.abs());
    }
    trim(&format!("{x:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_the_digits_of_c() {
        for (x, six, seventeen) in [
            (1.0, "1", "1"),
            (0.95f32 as f64, "0.95", "0.94999998807907104"),
            (0.0, "0", "0"),
            (1.5, "1.5", "1.5"),
            (1e-5, "1e-05", "1.0000000000000001e-05"),
            (1234567.0, "1.23457e+06", "1234567"),
            (0.1, "0.1", "0.10000000000000001"),
        ] {
            assert_eq!((general(x, 6).as_str(), general(x, 17).as_str()), (six, seventeen));
        }
    }
}
