//! A cursor over capability text. Every method either takes what it names and moves, or leaves the cursor where it was.

use super::Rwx;

#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    rest: &'a str,
}

impl<'a> Text<'a> {
    pub fn new(rest: &'a str) -> Self {
        Text { rest }
    }

    pub fn rest(&self) -> &'a str {
        self.rest
    }

    /// Runs `parse`; undoes its moves if it finds nothing.
    pub fn attempt<T>(&mut self, parse: impl FnOnce(&mut Self) -> Option<T>) -> Option<T> {
        let start = *self;
        let out = parse(self);
        if out.is_none() {
            *self = start;
        }
        out
    }

    pub fn lit(&mut self, word: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(word)?;
        Some(())
    }

    /// At least one character of `set`.
    pub fn run(&mut self, set: impl Fn(char) -> bool) -> Option<&'a str> {
        let end = self.rest.find(|c| !set(c)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        (!word.is_empty()).then(|| self.rest = rest)?;
        Some(word)
    }

    /// Any number of characters of `set`.
    pub fn skip(&mut self, set: impl Fn(char) -> bool) {
        self.rest = self.rest.trim_start_matches(set);
    }

    /// Spaces, tabs, line ends: at least one.
    pub fn spaces(&mut self) -> Option<()> {
        self.run(|c| c.is_ascii_whitespace() || c == '\x0b').map(|_| ())
    }

    /// `=` or spaces, which separate a keyword from its value.
    pub fn equals_or_spaces(&mut self) -> Option<()> {
        self.lit("=").or_else(|| self.spaces())
    }

    /// Text in quotes of either kind, or a bare word.
    pub fn string(&mut self) -> Option<String> {
        self.quoted(false).or_else(|| self.word())
    }

    /// As `string`, or empty quotes.
    pub fn string_or_empty(&mut self) -> Option<String> {
        self.quoted(true).or_else(|| self.word())
    }

    pub fn word(&mut self) -> Option<String> {
        self.run(|c| c.is_ascii_alphanumeric() || "_./-".contains(c)).map(str::to_owned)
    }

    fn quoted(&mut self, empty: bool) -> Option<String> {
        self.attempt(|t| {
            let quote = ["\"", "'"].into_iter().find(|q| t.rest.starts_with(q))?;
            t.lit(quote)?;
            let (inner, rest) = t.rest.split_once(quote)?;
            t.rest = rest;
            (empty || !inner.is_empty()).then(|| inner.to_owned())
        })
    }

    /// `*`, `all`, or some of `r`, `w`, `x` in this order.
    pub fn rwx(&mut self) -> Option<Rwx> {
        if self.lit("*").or_else(|| self.lit("all")).is_some() {
            return Some(Rwx::ANY);
        }
        let mut out = Rwx::NONE;
        for (letter, bit) in [("r", Rwx::R), ("w", Rwx::W), ("x", Rwx::X)] {
            if self.lit(letter).is_some() {
                out = out.and(bit);
            }
        }
        (out != Rwx::NONE).then_some(out)
    }

    /// ` network 10.0.0.0/8`, as text: whether it makes sense shows when it is matched.
    pub fn network(&mut self) -> Option<String> {
        self.attempt(|t| {
            t.spaces()?;
            t.lit("network")?;
            t.spaces()?;
            t.run(|c| c.is_ascii_hexdigit() || "/.:][".contains(c)).map(str::to_owned)
        })
    }
}
