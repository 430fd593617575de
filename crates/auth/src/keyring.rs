//! Keyrings: names, keys and capabilities, in the text `ceph-authtool` writes.
//!
//! Upstream: src/auth/KeyRing.cc, src/auth/Auth.h (EntityAuth).

use crate::key::{CryptoKey, KeyError};
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use types::EntityName;

/// An entity's key and its capabilities by service name (`mon`, `osd`, `mgr`, `mds`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityAuth {
    pub key: CryptoKey,
    pub caps: BTreeMap<String, String>,
}

impl Encode for EntityAuth {
    fn encode(&self, e: &mut Encoder) {
        e.put(&2u8).put(&u64::MAX).put(&self.key);
        // Each capability is a string in a blob: upstream keeps room for other kinds.
        let caps: BTreeMap<&str, Bytes> = self.caps.iter().map(|(k, v)| (k.as_str(), denc::to_bytes(v, 0))).collect();
        e.put(&caps);
    }
}
impl Decode for EntityAuth {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let version: u8 = d.get()?;
        if version >= 2 {
            let _auid: u64 = d.get()?;
        }
        let key = d.get()?;
        let blobs: BTreeMap<String, Bytes> = d.get()?;
        let caps = blobs.into_iter().map(|(k, v)| Ok((k, denc::from_slice(&v)?))).collect::<Result<_, DecodeError>>()?;
        Ok(EntityAuth { key, caps })
    }
}

/// Why a keyring's text was refused; lines count from 1.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyringError {
    #[error("line {0}: not a section, not `name = value`")]
    Syntax(usize),
    #[error("line {line}: bad entity name in keyring: {name}")]
    BadName { line: usize, name: String },
    #[error("line {line}: error setting modifier for [{name}] type={what}")]
    BadModifier { line: usize, name: String, what: String },
    #[error("line {line}: [{name}]: {source}")]
    BadKey { line: usize, name: String, source: KeyError },
    #[error("[{0}] has no key")]
    NoKey(EntityName),
}

/// The entries of a keyring file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keyring {
    pub entries: BTreeMap<EntityName, EntityAuth>,
}

impl Keyring {
    /// The entry of `name`.
    pub fn get(&self, name: &EntityName) -> Option<&EntityAuth> {
        self.entries.get(name)
    }

    /// The key of `name`.
    pub fn key(&self, name: &EntityName) -> Option<&CryptoKey> {
        self.get(name).map(|entry| &entry.key)
    }
}

#[derive(Default)]
struct Section {
    key: Option<CryptoKey>,
    caps: BTreeMap<String, String>,
}

impl FromStr for Keyring {
    type Err = KeyringError;

    /// Reads the text form. Sections may repeat; the last value wins; `auid` and `[global]` are passed over.
    fn from_str(text: &str) -> Result<Self, KeyringError> {
        let mut sections: BTreeMap<EntityName, Section> = BTreeMap::new();
        let mut current: Option<EntityName> = None;
        for (line, content) in logical_lines(text) {
            let content = content.trim();
            if content.is_empty() {
                continue;
            }
            if let Some(name) = content.strip_prefix('[').and_then(|s| s.strip_suffix(']')) {
                current = parse_section_name(line, name.trim())?;
                if let Some(name) = &current {
                    sections.entry(name.clone()).or_default();
                }
                continue;
            }
            let (field, value) = content.split_once('=').ok_or(KeyringError::Syntax(line))?;
            let Some(name) = &current else { continue };
            let section = sections.entry(name.clone()).or_default();
            set_field(section, line, name, field.trim(), value.trim())?;
        }
        let entries = sections.into_iter().map(|(name, section)| match section.key {
            Some(key) => Ok((name, EntityAuth { key, caps: section.caps })),
            None => Err(KeyringError::NoKey(name)),
        });
        Ok(Keyring { entries: entries.collect::<Result<_, _>>()? })
    }
}

fn parse_section_name(line: usize, name: &str) -> Result<Option<EntityName>, KeyringError> {
    match name {
        "global" => Ok(None),
        _ => name.parse().map(Some).map_err(|()| KeyringError::BadName { line, name: name.to_owned() }),
    }
}

fn set_field(section: &mut Section, line: usize, name: &EntityName, field: &str, value: &str) -> Result<(), KeyringError> {
    let value = unquote(value);
    let field = field.replace('_', " ");
    let words: Vec<&str> = field.split_whitespace().collect();
    match words.as_slice() {
        ["key"] => {
            let bad = |source| KeyringError::BadKey { line, name: name.to_string(), source };
            section.key = Some(value.parse().map_err(bad)?);
        }
        ["caps", service] => {
            section.caps.insert((*service).to_owned(), value);
        }
        ["auid"] => {}
        _ => return Err(KeyringError::BadModifier { line, name: name.to_string(), what: field }),
    }
    Ok(())
}

/// Lines without comments, joined where one ends in a backslash; numbered by their first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut out: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (i, line) in text.lines().enumerate() {
        let (body, continues) = match line.strip_suffix('\\') {
            Some(body) => (body, true),
            None => (line, false),
        };
        let body = strip_comment(body);
        match out.last_mut() {
            Some((_, last)) if open => last.push_str(body),
            _ => out.push((i + 1, body.to_owned())),
        }
        open = continues;
    }
    out
}

/// Cuts at the first `#` or `;` outside quotes.
fn strip_comment(line: &str) -> &str {
    let (mut quote, mut escaped) = (None, false);
    for (i, c) in line.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (None, '"' | '\'') => quote = Some(c),
            (Some(q), _) if q == c => quote = None,
            (None, '#' | ';') => return line.get(..i).unwrap_or(line),
            _ => {}
        }
    }
    line
}

fn unquote(value: &str) -> String {
    let inner = ['"', '\''].into_iter().find_map(|q| value.strip_prefix(q)?.strip_suffix(q));
    inner.unwrap_or(value).replace("\\\"", "\"").replace("\\'", "'")
}

impl fmt::Display for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, entry) in &self.entries {
            writeln!(f, "[{name}]\n\tkey = {}", entry.key)?;
            for (service, caps) in &entry.caps {
                writeln!(f, "\tcaps {service} = \"{}\"", caps.replace('"', "\\\""))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // ceph-authtool 16.2.15.
    const STOCK: &str = "[mon.]\n\tkey = AQCniQBr3TK6ORAA6GQjyNaNsRLTr5BOnTa3sA==\n\tcaps mon = \"allow *\"\n\
        [client.admin]\n\tkey = AQCniQBrHcFGOxAAcEk+FMYvaTkgMeY01TJ9kw==\n\tcaps mon = \"allow *\"\n\
        \tcaps osd = \"allow * pool=\\\"x y\\\"\"\n[client.nocaps]\n\tkey = AQCoiQBrCSrRABAASpc4MBQNAGdRA/TJZYMxyg==\n";

    #[test]
    fn a_stock_keyring_parses_and_prints_the_same_bytes() {
        let ring: Keyring = STOCK.parse().unwrap();
        assert_eq!(ring.to_string(), STOCK);
        let admin = ring.get(&"client.admin".parse().unwrap()).unwrap();
        assert_eq!(admin.caps["osd"], "allow * pool=\"x y\"");
    }

    #[test]
    fn comments_blank_lines_underscores_and_single_quotes_are_understood() {
        let text = "# c\n\n[osd.0] ; c\nkey=AQCniQBr3TK6ORAA6GQjyNaNsRLTr5BOnTa3sA== # c\nauid = 0\ncaps_mon = 'allow profile osd'\n";
        let ring: Keyring = text.parse().unwrap();
        assert_eq!(ring.get(&"osd.0".parse().unwrap()).unwrap().caps["mon"], "allow profile osd");
    }

    #[test]
    fn errors_name_the_line() {
        for (text, want) in [
            ("[client.a]\nnonsense\n", "line 2: not a section, not `name = value`"),
            ("[nobody]\n", "line 1: bad entity name in keyring: nobody"),
            ("[client.a]\ncolour = red\n", "line 2: error setting modifier for [client.a] type=colour"),
            ("[client.a]\nkey = AA\n", "line 2: [client.a]: a key that is not base64"),
            ("[client.a]\ncaps mon = \"allow r\"\n", "[client.a] has no key"),
        ] {
            assert_eq!(text.parse::<Keyring>().unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn an_entity_round_trips_in_binary() {
        let ring: Keyring = STOCK.parse().unwrap();
        for entry in ring.entries.values() {
            assert_eq!(&denc::from_bytes::<EntityAuth>(&denc::to_bytes(entry, 0)).unwrap(), entry);
        }
    }
}
