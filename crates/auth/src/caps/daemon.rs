//! What monitor and manager capabilities have in common: grants by service, module, command or profile.

use super::text::Text;
use super::{CapsError, Rwx, network};
use std::collections::BTreeMap;
use std::net::IpAddr;
use types::EntityName;

/// What somebody wants to do.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Who asks; profiles name the asker's own keys.
    pub name: &'a EntityName,
    /// `osd`, `mon`, `auth`, `config-key`, ...
    pub service: &'a str,
    /// The manager's module that has the command; empty elsewhere.
    pub module: &'a str,
    /// The command's prefix, `osd pool create`; empty if it is not a command.
    pub command: &'a str,
    pub args: &'a BTreeMap<String, String>,
    pub needs: Rwx,
    /// Where the asker is; `None` matches no network.
    pub addr: Option<IpAddr>,
}

/// What an argument must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constraint {
    Equal(String),
    Prefix(String),
    /// POSIX extended, over the whole value.
    Regex(String),
}

pub type Constraints = BTreeMap<String, Constraint>;

impl Constraint {
    fn matches(&self, value: &str) -> bool {
        match self {
            Constraint::Equal(want) => want == value,
            Constraint::Prefix(want) => value.starts_with(want),
            Constraint::Regex(pattern) => {
                regex_lite::Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|r| r.is_match(value))
            }
        }
    }
}

/// True if every constrained argument is there and as it must be.
pub fn args_match(constraints: &Constraints, args: &BTreeMap<String, String>) -> bool {
    constraints.iter().all(|(key, constraint)| args.get(key).is_some_and(|value| constraint.matches(value)))
}

/// What a grant is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Service(String),
    Module(String, Constraints),
    Command(String, Constraints),
    Profile(String, Constraints),
}

/// One clause between commas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub scope: Scope,
    /// Meaningless for commands and profiles.
    pub allow: Rwx,
    pub network: Option<String>,
    /// `fsname`: only the file system code looks at it.
    pub fs_name: Option<String>,
}

impl Grant {
    pub fn new(scope: Scope, allow: Rwx) -> Self {
        Grant { scope, allow, network: None, fs_name: None }
    }

    pub fn service(service: &str, allow: Rwx) -> Self {
        Grant::new(Scope::Service(service.to_owned()), allow)
    }

    pub fn command(command: &str, constraints: impl IntoIterator<Item = (&'static str, Constraint)>) -> Self {
        let constraints = constraints.into_iter().map(|(k, c)| (k.to_owned(), c)).collect();
        Grant::new(Scope::Command(command.to_owned(), constraints), Rwx::NONE)
    }

    /// `allow *`.
    pub fn allows_all(&self) -> bool {
        self.scope == Scope::Everything && self.allow == Rwx::ANY
    }
}

/// True if `grants` together allow what is asked; `allowed` says what one grant gives.
pub fn capable(grants: &[Grant], ask: &Ask<'_>, allowed: impl Fn(&Grant) -> Rwx) -> bool {
    let mut so_far = Rwx::NONE;
    for grant in grants {
        let elsewhere = grant.network.as_ref().is_some_and(|net| !ask.addr.is_some_and(|a| network::contains(net, a)));
        if elsewhere {
            continue;
        }
        so_far = so_far.and(allowed(grant));
        if grant.allows_all() || so_far.covers(ask.needs) {
            return true;
        }
    }
    false
}

/// Parses grants separated by `,` or `;` until the end of the text.
pub fn parse_list(
    service: &'static str,
    text: &str,
    grant: impl Fn(&mut Text<'_>) -> Option<Grant>,
) -> Result<Vec<Grant>, CapsError> {
    let mut t = Text::new(text);
    let mut grants = Vec::new();
    grants.extend(t.attempt(&grant));
    while !grants.is_empty() {
        let next = t.attempt(|t| {
            t.skip(|c| c == ' ');
            t.lit(",").or_else(|| t.lit(";"))?;
            t.skip(|c| c == ' ');
            grant(t)
        });
        match next {
            Some(next) => grants.push(next),
            None => break,
        }
    }
    match t.rest() {
        "" if !grants.is_empty() => Ok(grants),
        "" => Err(CapsError::Empty { service }),
        rest => Err(CapsError::Stopped { service, rest: rest.to_owned(), text: text.to_owned() }),
    }
}

/// `k=v`, `k prefix v`, `k regex v`, separated by spaces; the manager's `=` may have spaces around it.
pub fn constraints(t: &mut Text<'_>, spaced_equals: bool) -> Option<Constraints> {
    let mut out = Constraints::new();
    let (key, value) = constraint(t, spaced_equals)?;
    out.insert(key, value);
    while let Some((key, value)) = t.attempt(|t| {
        t.spaces()?;
        constraint(t, spaced_equals)
    }) {
        out.entry(key).or_insert(value);
    }
    Some(out)
}

fn constraint(t: &mut Text<'_>, spaced_equals: bool) -> Option<(String, Constraint)> {
    t.attempt(|t| {
        let key = t.string()?;
        let equal = t.attempt(|t| {
            if spaced_equals {
                t.skip(|c| " \n\t".contains(c));
            }
            t.lit("=")?;
            if spaced_equals {
                t.skip(|c| " \n\t".contains(c));
            }
            t.string().map(Constraint::Equal)
        });
        let worded = |t: &mut Text<'_>, word: &str| {
            t.attempt(|t| {
                t.spaces()?;
                t.lit(word)?;
                t.spaces()?;
                t.string()
            })
        };
        let value = equal
            .or_else(|| worded(t, "prefix").map(Constraint::Prefix))
            .or_else(|| worded(t, "regex").map(Constraint::Regex))?;
        Some((key, value))
    })
}

/// `allow <keyword>[=| ]<name>`.
pub fn allow_named(t: &mut Text<'_>, keyword: &str) -> Option<String> {
    t.spaces();
    t.lit("allow")?;
    t.spaces()?;
    t.lit(keyword)?;
    t.equals_or_spaces()?;
    t.string()
}

/// ` with k=v ...`, or nothing.
pub fn with(t: &mut Text<'_>, spaced_equals: bool) -> Constraints {
    t.attempt(|t| {
        t.spaces()?;
        t.lit("with")?;
        t.spaces()?;
        constraints(t, spaced_equals)
    })
    .unwrap_or_default()
}

/// `allow rwx`.
pub fn plain_grant(t: &mut Text<'_>) -> Option<Grant> {
    t.attempt(|t| {
        t.spaces();
        t.lit("allow")?;
        t.spaces()?;
        let allow = t.rwx()?;
        Some(Grant { network: t.network(), ..Grant::new(Scope::Everything, allow) })
    })
}

/// `allow service X r`.
pub fn service_grant(t: &mut Text<'_>) -> Option<Grant> {
    t.attempt(|t| {
        let service = allow_named(t, "service")?;
        t.spaces()?;
        let allow = t.rwx()?;
        Some(Grant { network: t.network(), ..Grant::new(Scope::Service(service), allow) })
    })
}

/// `allow command "x" with k=v`.
pub fn command_grant(t: &mut Text<'_>, spaced_equals: bool) -> Option<Grant> {
    t.attempt(|t| {
        let command = allow_named(t, "command")?;
        let constraints = with(t, spaced_equals);
        Some(Grant { network: t.network(), ..Grant::new(Scope::Command(command, constraints), Rwx::NONE) })
    })
}

/// `[allow ]profile X`, up to the name.
pub fn profile_name(t: &mut Text<'_>) -> Option<String> {
    t.spaces();
    t.attempt(|t| {
        t.lit("allow")?;
        t.spaces()
    });
    t.lit("profile")?;
    t.equals_or_spaces()?;
    t.string()
}
