//! JSON as Ceph prints it: four blanks in pretty form, no blanks otherwise, floats with 17 digits and no `.0`.
//!
//! Key order is the order of insertion. Answers are built as `serde_json::Value`s and printed here; `JsonWriter` is for
//! what a value cannot hold, like the fixed nine decimals of a time counter.
//! Upstream: src/common/Formatter.cc (JSONFormatter), src/common/escape.cc.

use crate::human::general;
use serde_json::{Number, Value};

/// `value` without blanks or line ends.
pub fn compact(value: &Value) -> String {
    let mut w = JsonWriter::new(false);
    w.value("", value);
    w.finish()
}

/// `value` indented by four, with a line end.
pub fn pretty(value: &Value) -> String {
    let mut w = JsonWriter::new(true);
    w.value("", value);
    w.finish()
}

/// Prints JSON piece by piece. Names are ignored within arrays and at the top.
#[derive(Debug)]
pub struct JsonWriter {
    out: String,
    pretty: bool,
    /// Closing bracket and number of entries of each open container.
    open: Vec<(char, usize)>,
}

impl JsonWriter {
    /// An empty text, to be indented or not.
    pub fn new(pretty: bool) -> Self {
        JsonWriter { out: String::new(), pretty, open: vec![] }
    }

    /// Begins an object.
    pub fn object(&mut self, name: &str) -> &mut Self {
        self.begin(name, '{', '}')
    }

    /// Begins an array.
    pub fn array(&mut self, name: &str) -> &mut Self {
        self.begin(name, '[', ']')
    }

    /// Ends the innermost object or array.
    pub fn end(&mut self) -> &mut Self {
        if let Some((bracket, entries)) = self.open.pop() {
            if self.pretty && entries > 0 {
                self.newline();
            }
            self.out.push(bracket);
        }
        self
    }

    /// A string.
    pub fn string(&mut self, name: &str, text: &str) -> &mut Self {
        self.entry(name);
        quote(&mut self.out, text);
        self
    }

    /// Text printed as it is: a number in a shape of its own.
    pub fn raw(&mut self, name: &str, text: &str) -> &mut Self {
        self.entry(name);
        self.out.push_str(text);
        self
    }

    /// Any value.
    pub fn value(&mut self, name: &str, value: &Value) -> &mut Self {
        match value {
            Value::Null => self.raw(name, "null"),
            Value::Bool(b) => self.raw(name, if *b { "true" } else { "false" }),
            Value::Number(n) => self.raw(name, &number(n)),
            Value::String(s) => self.string(name, s),
            Value::Array(items) => {
                self.array(name);
                items.iter().for_each(|item| {
                    self.value("", item);
                });
                self.end()
            }
            Value::Object(map) => {
                self.object(name);
                map.iter().for_each(|(key, item)| {
                    self.value(key, item);
                });
                self.end()
            }
        }
    }

    /// The text; pretty text ends its line.
    pub fn finish(mut self) -> String {
        while !self.open.is_empty() {
            self.end();
        }
        if self.pretty && self.out.ends_with(['}', ']']) {
            self.out.push('\n');
        }
        self.out
    }

    fn begin(&mut self, name: &str, opening: char, closing: char) -> &mut Self {
        self.entry(name);
        self.out.push(opening);
        self.open.push((closing, 0));
        self
    }

    fn entry(&mut self, name: &str) {
        let Some((bracket, entries)) = self.open.last_mut() else { return };
        *entries += 1;
        let (first, named) = (*entries == 1, *bracket == '}');
        if !first {
            self.out.push(',');
        }
        if self.pretty {
            self.newline();
        }
        if named {
            quote(&mut self.out, name);
            self.out.push_str(if self.pretty { ": " } else { ":" });
        }
    }

    fn newline(&mut self) {
        self.out.push('\n');
        self.out.push_str(&"    ".repeat(self.open.len()));
    }
}

fn number(n: &Number) -> String {
    match n.as_f64() {
        Some(f) if n.is_f64() => general(f, 17),
        _ => n.to_string(),
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            c if c < ' ' || c == '\x7f' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pretty_text_is_indented_by_four_and_ends_its_line() {
        let v = json!({"a": 1, "b": [1, {"c": "x"}], "e": [], "o": {}});
        let text = "{\n    \"a\": 1,\n    \"b\": [\n        1,\n        {\n            \"c\": \"x\"\n        }\n    ],\n    \"e\": [],\n    \"o\": {}\n}\n";
        assert_eq!(pretty(&v), text);
        assert_eq!(compact(&v), r#"{"a":1,"b":[1,{"c":"x"}],"e":[],"o":{}}"#);
    }

    #[test]
    fn floats_lose_their_point_zero_and_keep_17_digits() {
        assert_eq!(compact(&json!([1.0, 0.0, 0.95f32 as f64, -2.5])), "[1,0,0.94999998807907104,-2.5]");
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(compact(&json!("a\"b\\c\n\t\u{1}\u{7f}/é")), "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f/é\"");
    }
}
