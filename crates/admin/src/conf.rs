//! `ceph.conf`: sections, options, comments, and what `$name` and its like stand for.
//!
//! Room: ground floor. Names are equal whatever separates their words: `osd max backfills`, `osd-max-backfills`.
//! A daemon reads its own section `[osd.3]`, then `[osd]`, then `[global]`; within a section the last line wins.
//! Upstream: src/common/ConfUtils.cc, src/common/config.cc (metavariables).

use std::collections::BTreeMap;
use types::EntityName;

/// A parsed file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conf {
    sections: BTreeMap<String, BTreeMap<String, String>>,
}

/// A line that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct ConfError {
    /// Counted from 1.
    pub line: usize,
    pub what: String,
}

/// What the metavariables stand for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaVars {
    /// `$cluster`
    pub cluster: String,
    /// `$type`, `$id`, `$name`
    pub name: EntityName,
    /// `$host`
    pub host: String,
    /// `$pid`
    pub pid: u32,
}

/// The one spelling of an option's name: words joined by underscores.
pub fn canonical_name(name: &str) -> String {
    name.split([' ', '\t', '-', '_']).filter(|w| !w.is_empty()).collect::<Vec<_>>().join("_").to_lowercase()
}

impl Conf {
    /// Parses a file's text.
    pub fn parse(text: &str) -> Result<Self, ConfError> {
        let mut conf = Conf::default();
        let mut section = "global".to_owned();
        let mut pending = String::new();
        for (at, raw) in text.lines().enumerate() {
            pending.push_str(raw);
            if pending.ends_with('\\') {
                pending.pop();
                continue;
            }
            let line = std::mem::take(&mut pending);
            let error = |what: &str| ConfError { line: at + 1, what: what.to_owned() };
            let line = without_comment(&line).trim();
            if line.is_empty() {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let name = rest.strip_suffix(']').ok_or_else(|| error("a section's name ends with ]"))?;
                section = name.trim().to_owned();
                conf.sections.entry(section.clone()).or_default();
                continue;
            }
            let (name, value) = line.split_once('=').ok_or_else(|| error("neither a section nor `option = value`"))?;
            let name = canonical_name(name);
            if name.is_empty() {
                return Err(error("an option without a name"));
            }
            conf.sections.entry(section.clone()).or_default().insert(name, unquoted(value.trim()).to_owned());
        }
        Ok(conf)
    }

    /// The value in force for `who` as it is written, without metavariables replaced.
    pub fn get(&self, who: &EntityName, option: &str) -> Option<&str> {
        let option = canonical_name(option);
        [who.to_string(), who.kind.name().to_owned(), "global".to_owned()]
            .iter()
            .find_map(|section| self.sections.get(section)?.get(&option))
            .map(String::as_str)
    }

    /// Everything in force for `who`: option and value.
    pub fn options(&self, who: &EntityName) -> BTreeMap<&str, &str> {
        let mut out = BTreeMap::new();
        for section in ["global", who.kind.name(), &who.to_string()] {
            let lines = self.sections.get(section).into_iter().flatten();
            out.extend(lines.map(|(k, v)| (k.as_str(), v.as_str())));
        }
        out
    }
}

/// Replaces `$name`, `${name}` and the other metavariables, and options named by `option`; unknown ones stay.
pub fn expand(value: &str, vars: &MetaVars, option: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (word, after) = match rest.strip_prefix('{').and_then(|r| r.split_once('}')) {
            Some((word, after)) => (word, after),
            None => rest.split_at(rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len())),
        };
        match meta(word, vars).or_else(|| option(word)) {
            Some(text) => {
                out.push_str(&text);
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out + rest
}

fn meta(word: &str, vars: &MetaVars) -> Option<String> {
    Some(match word {
        "cluster" => vars.cluster.clone(),
        "type" => vars.name.kind.name().to_owned(),
        "id" | "num" => vars.name.id.clone(),
        "name" => vars.name.to_string(),
        "host" => vars.host.clone(),
        "pid" => vars.pid.to_string(),
        _ => return None,
    })
}

/// Cuts at `#` or `;` unless quoted or escaped.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in line.char_indices() {
        match (c, quote) {
            _ if escaped => escaped = false,
            ('\\', _) => escaped = true,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(q)) if c == q => quote = None,
            ('#' | ';', None) => return &line[..at],
            _ => {}
        }
    }
    line
}

fn unquoted(value: &str) -> &str {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|v| v.strip_suffix(quote)) {
            return inner;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn osd3() -> EntityName {
        "osd.3".parse().unwrap()
    }

    #[test]
    fn the_nearest_section_wins_and_spelling_does_not_matter() {
        let conf = Conf::parse("osd max-backfills = 1\n[osd]\nosd_max_backfills=2 # two\n[osd.3]\nosd max backfills = \"3\"\n").unwrap();
        assert_eq!(conf.get(&osd3(), "osd_max_backfills"), Some("3"));
        assert_eq!(conf.get(&"osd.4".parse().unwrap(), "osd max backfills"), Some("2"));
        assert_eq!(conf.get(&"mon.a".parse().unwrap(), "osd max backfills"), Some("1"));
        assert_eq!(conf.options(&osd3())["osd_max_backfills"], "3");
    }

    #[test]
    fn metavariables_and_options_are_replaced_and_others_stay() {
        let vars = MetaVars { cluster: "ceph".into(), name: osd3(), host: "h".into(), pid: 7 };
        let option = |name: &str| (name == "run_dir").then(|| "/run".to_owned());
        assert_eq!(expand("$run_dir/$cluster-$name.$pid.asok", &vars, &option), "/run/ceph-osd.3.7.asok");
        assert_eq!(expand("/x/${type}.$id/$nosuch$", &vars, &option), "/x/osd.3/$nosuch$");
    }

    #[test]
    fn nonsense_is_named_with_its_line() {
        assert_eq!(Conf::parse("a = 1\nnonsense\n").unwrap_err().line, 2);
        assert_eq!(Conf::parse("[open\n").unwrap_err().line, 1);
        assert_eq!(Conf::parse("# only\n; comments\n"), Ok(Conf::default()));
    }
}
