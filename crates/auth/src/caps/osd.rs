//! Capabilities at an OSD. Upstream: src/osd/OSDCap.cc.

use super::text::Text;
use super::{CapsError, network};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::str::FromStr;

const R: u8 = 2;
const W: u8 = 4;
const CLASS_READ: u8 = 8;
const CLASS_WRITE: u8 = 16;
const X: u8 = CLASS_READ | CLASS_WRITE;
const ANY: u8 = 255;

/// A method call within a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassCall<'a> {
    pub class: &'a str,
    pub method: &'a str,
    pub reads: bool,
    pub writes: bool,
    /// The class is on the list that `x` covers (`osd_class_default_list`).
    pub listed: bool,
}

/// What a request wants to do to an object.
#[derive(Debug, Clone, Copy)]
pub struct OsdAsk<'a> {
    pub pool: &'a str,
    pub nspace: &'a str,
    /// The pool's applications and their settings.
    pub applications: &'a BTreeMap<String, BTreeMap<String, String>>,
    /// The object's name, or its locator key.
    pub object: &'a str,
    pub reads: bool,
    pub writes: bool,
    pub calls: &'a [ClassCall<'a>],
    /// Where the asker is; `None` matches no network.
    pub addr: Option<IpAddr>,
}

/// `tag application key=value`; `*` for any key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    application: String,
    key: String,
    value: String,
}

/// Which objects a grant is about.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Match {
    pool: Option<String>,
    /// A trailing `*` makes it a prefix.
    nspace: Option<String>,
    object_prefix: Option<String>,
    tag: Option<Tag>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Spec {
    Allow(u8),
    /// A class, and one method or all.
    Class(String, Option<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Grant {
    /// One clause, or what a profile stands for.
    rules: Vec<(Match, Spec)>,
    network: Option<String>,
}

/// What an entity may do at an OSD.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdCaps {
    grants: Vec<Grant>,
    text: String,
}

impl FromStr for OsdCaps {
    type Err = CapsError;

    fn from_str(text: &str) -> Result<Self, CapsError> {
        let mut t = Text::new(text);
        let mut grants = Vec::new();
        grants.extend(t.attempt(grant));
        while !grants.is_empty() {
            let next = t.attempt(|t| {
                t.lit(",").or_else(|| t.lit(";"))?;
                grant(t)
            });
            match next {
                Some(next) => grants.push(next),
                None => break,
            }
        }
        t.skip(|c| c.is_ascii_whitespace());
        if !grants.is_empty() && t.rest().is_empty() {
            return Ok(OsdCaps { grants, text: text.to_owned() });
        }
        Err(CapsError::Stopped { service: "osd", rest: t.rest().to_owned(), text: text.to_owned() })
    }
}

impl OsdCaps {
    /// `allow *`.
    pub fn allow_all() -> Self {
        let rules = vec![(Match::default(), Spec::Allow(ANY))];
        OsdCaps { grants: vec![Grant { rules, network: None }], text: "allow *".to_owned() }
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if there is an `allow *` for every object, whatever its network.
    pub fn allows_all(&self) -> bool {
        let everything = Match::default();
        self.grants.iter().flat_map(|g| &g.rules).any(|(m, spec)| *m == everything && *spec == Spec::Allow(ANY))
    }

    /// True if one grant allows reading and writing as asked; each class call may be allowed by a grant of its own
    /// that comes earlier or is the same.
    pub fn is_capable(&self, ask: &OsdAsk<'_>) -> bool {
        let mut allowed = vec![false; ask.calls.len()];
        self.grants.iter().any(|grant| {
            let elsewhere = grant.network.as_ref().is_some_and(|n| !ask.addr.is_some_and(|a| network::contains(n, a)));
            !elsewhere && grant.rules.iter().any(|(m, spec)| m.holds(ask) && spec.allows(ask, &mut allowed))
        })
    }
}

impl Match {
    fn holds(&self, ask: &OsdAsk<'_>) -> bool {
        self.pool.as_ref().is_none_or(|pool| pool == ask.pool)
            && self.nspace.as_ref().is_none_or(|want| nspace_holds(want, ask.nspace))
            && self.tag.as_ref().is_none_or(|tag| tag.holds(ask.applications))
            && self.object_prefix.as_ref().is_none_or(|prefix| ask.object.starts_with(prefix))
    }
}

fn nspace_holds(want: &str, nspace: &str) -> bool {
    want == nspace || want.strip_suffix('*').is_some_and(|prefix| nspace.starts_with(prefix))
}

impl Tag {
    fn holds(&self, applications: &BTreeMap<String, BTreeMap<String, String>>) -> bool {
        let Some(settings) = applications.get(&self.application) else { return false };
        match (self.key.as_str(), self.value.as_str()) {
            ("*", "*") => true,
            ("*", value) => settings.values().any(|v| v == value),
            (key, "*") => settings.contains_key(key),
            (key, value) => settings.get(key).is_some_and(|v| v == value),
        }
    }
}

impl Spec {
    /// Marks the calls this rule covers in `allowed`; true if nothing is left to ask.
    fn allows(&self, ask: &OsdAsk<'_>, allowed: &mut [bool]) -> bool {
        let bits = if let Spec::Allow(bits) = self { *bits } else { 0 };
        if (ask.reads && bits & R == 0) || (ask.writes && bits & W == 0) {
            return false;
        }
        if bits == ANY {
            return true;
        }
        for (call, ok) in ask.calls.iter().zip(allowed.iter_mut()) {
            *ok |= match self {
                Spec::Class(class, method) => class == call.class && method.as_ref().is_none_or(|m| m == call.method),
                Spec::Allow(_) => {
                    call.listed
                        && !(call.reads && bits & CLASS_READ == 0)
                        && !(call.writes && bits & CLASS_WRITE == 0)
                }
            };
        }
        allowed.iter().all(|ok| *ok)
    }
}

fn expand(profile: &str, pool: Option<String>, nspace: Option<String>) -> Vec<(Match, Spec)> {
    let given = || Match { pool: pool.clone(), nspace: nspace.clone(), ..Match::default() };
    let object = |name: &str| Match { object_prefix: Some(name.to_owned()), ..Match::default() };
    match profile {
        "read-only" => vec![(given(), Spec::Allow(R))],
        "read-write" => vec![(given(), Spec::Allow(R | W))],
        "rbd" => vec![
            (object("rbd_info"), Spec::Allow(R)),
            (object("rbd_children"), Spec::Allow(CLASS_READ)),
            (object("rbd_mirroring"), Spec::Allow(CLASS_READ)),
            (Match { nspace: None, ..given() }, class("rbd", "metadata_list")),
            (given(), Spec::Allow(R | W | X)),
        ],
        "rbd-read-only" => {
            let header = || Match { object_prefix: Some("rbd_header.".to_owned()), ..given() };
            vec![
                (given(), Spec::Allow(R | CLASS_READ)),
                (header(), class("rbd", "child_attach")),
                (header(), class("rbd", "child_detach")),
            ]
        }
        _ => Vec::new(),
    }
}

fn class(name: &str, method: &str) -> Spec {
    Spec::Class(name.to_owned(), Some(method.to_owned()))
}

fn blanks(t: &mut Text<'_>) {
    t.skip(|c| c == ' ' || c == '\t');
}

fn grant(t: &mut Text<'_>) -> Option<Grant> {
    blanks(t);
    // `allow` what to which objects, else to which objects what: upstream tries them in this order.
    let first = t
        .attempt(|t| {
            t.lit("allow")?;
            let spec = spec(t)?;
            let rules = vec![(objects(t), spec)];
            Some(Grant { rules, network: t.network() })
        })
        .or_else(|| {
            t.attempt(|t| {
                t.lit("allow")?;
                let objects = objects(t);
                let rules = vec![(objects, spec(t)?)];
                Some(Grant { rules, network: t.network() })
            })
        })
        .or_else(|| profile(t))?;
    blanks(t);
    Some(first)
}

fn profile(t: &mut Text<'_>) -> Option<Grant> {
    t.attempt(|t| {
        t.lit("profile")?;
        t.equals_or_spaces()?;
        let name = t.string()?;
        let pool = keyed(t, "pool", |t| t.string());
        let rules = expand(&name, pool, nspace(t));
        Some(Grant { rules, network: t.network() })
    })
}

/// ` <keyword>[=| ]<value>`.
fn keyed(t: &mut Text<'_>, keyword: &str, value: impl FnOnce(&mut Text<'_>) -> Option<String>) -> Option<String> {
    t.attempt(|t| {
        t.spaces()?;
        t.lit(keyword)?;
        t.equals_or_spaces()?;
        value(t)
    })
}

fn nspace(t: &mut Text<'_>) -> Option<String> {
    keyed(t, "namespace", |t| {
        let mut name = t.string_or_empty()?;
        if t.lit("*").is_some() {
            name.push('*');
        }
        Some(name)
    })
}

/// Which objects; may be nothing at all, which is all of them.
fn objects(t: &mut Text<'_>) -> Match {
    if let Some(tag) = tag(t) {
        return Match { tag: Some(tag), ..Match::default() };
    }
    let tagged = t.attempt(|t| {
        let nspace = nspace(t)?;
        Some(Match { nspace: Some(nspace), tag: Some(tag(t)?), ..Match::default() })
    });
    if let Some(tagged) = tagged {
        return tagged;
    }
    let pool = keyed(t, "pool", |t| t.string());
    let nspace = nspace(t);
    let object_prefix = t.attempt(|t| {
        t.spaces()?;
        t.lit("object_prefix")?;
        t.spaces()?;
        t.string()
    });
    Match { pool, nspace, object_prefix, tag: None }
}

fn tag(t: &mut Text<'_>) -> Option<Tag> {
    let any = |t: &mut Text<'_>| t.lit("*").or_else(|| t.lit("all")).map(|()| "*".to_owned()).or_else(|| t.string());
    t.attempt(|t| {
        t.spaces()?;
        t.lit("tag")?;
        t.spaces()?;
        let application = t.string()?;
        t.spaces()?;
        let key = any(t)?;
        t.spaces();
        t.lit("=")?;
        t.spaces();
        Some(Tag { application, key, value: any(t)? })
    })
}

fn spec(t: &mut Text<'_>) -> Option<Spec> {
    bits(t).map(Spec::Allow).or_else(|| {
        t.attempt(|t| {
            t.spaces()?;
            t.lit("class")?;
            t.spaces()?;
            let class = t.string()?;
            let method = t.attempt(|t| {
                t.spaces()?;
                t.string()
            });
            Some(Spec::Class(class, method))
        })
    })
}

/// ` *`, or some of ` rwx`, ` class-read`, ` class-write`, in this order.
fn bits(t: &mut Text<'_>) -> Option<u8> {
    let any = t.attempt(|t| {
        t.spaces()?;
        t.lit("*").or_else(|| t.lit("all"))
    });
    if any.is_some() {
        return Some(ANY);
    }
    let mut out = 0;
    t.attempt(|t| {
        t.spaces()?;
        for (letter, bit) in [("r", R), ("w", W), ("x", X)] {
            if t.lit(letter).is_some() {
                out |= bit;
            }
        }
        (out != 0).then_some(())
    });
    for (word, bit) in [("class-read", CLASS_READ), ("class-write", CLASS_WRITE)] {
        let found = t.attempt(|t| {
            t.spaces()?;
            t.lit(word)
        });
        out |= if found.is_some() { bit } else { 0 };
    }
    (out != 0).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Object<'a> {
        pool: &'a str,
        nspace: &'a str,
        name: &'a str,
    }

    const HERE: Object<'_> = Object { pool: "p", nspace: "", name: "o" };

    fn can(caps: &str, o: &Object<'_>, ops: &str, calls: &[ClassCall<'_>]) -> bool {
        let caps: OsdCaps = caps.parse().unwrap_or_else(|e| panic!("{e}"));
        let applications = BTreeMap::from([
            ("rbd".to_owned(), BTreeMap::new()),
            ("cephfs".to_owned(), BTreeMap::from([("data".to_owned(), "a".to_owned())])),
        ]);
        caps.is_capable(&OsdAsk {
            pool: o.pool,
            nspace: o.nspace,
            applications: &applications,
            object: o.name,
            reads: ops.contains('r'),
            writes: ops.contains('w'),
            calls,
            addr: Some("10.0.0.9".parse().unwrap()),
        })
    }

    #[test]
    fn the_grammar_of_stock_is_accepted() {
        for good in [
            "allow *",
            "allow r",
            "allow rwx",
            "allow r pool foo ",
            "allow r pool=foo",
            "allow wx pool foo",
            "allow pool foo r",
            "allow pool taco class foo",
            "allow pool taco class-read",
            "allow class foo",
            "allow class clsname \"clsthingidon'tunderstand\"",
            "allow  pool foo   object_prefix   prefix r   class-read",
            "allow pool=bar namespace=\"\" rwx; allow pool='baz'  namespace=  r",
            "allow pool bar namespace='' rwx; allow pool baz object_prefix obo r",
            "allow rwx namespace=ns*",
            "allow rwx tag cephfs data=a",
            "allow rw tag rbd * = *",
            "allow rw namespace=x tag cephfs metadata=*",
            "profile rbd pool=bar, profile rbd-read-only pool=baz namespace=ns",
            "profile \"rbd\" network 10.0.0.0/8",
            "allow rwx network 1.2.3.4/24",
            " allow r , allow w\n",
        ] {
            if good.contains("namespace=  r") {
                assert!(good.parse::<OsdCaps>().is_err(), "an empty namespace needs quotes");
                continue;
            }
            let caps: OsdCaps = good.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(caps.text(), good);
        }
    }

    #[test]
    fn what_stock_refuses_is_refused_in_its_words() {
        for (bad, rest) in [
            ("allow poolfoo", "allow poolfoo"),
            ("allow r poolfoo", "poolfoo"),
            ("allow r w", "w"),
            ("ALLOW r", "ALLOW r"),
            ("allow rwx,", ","),
            ("allow rwx pool foo r", "r"),
            ("pool foo", "pool foo"),
            ("", ""),
        ] {
            let e = bad.parse::<OsdCaps>().unwrap_err();
            assert_eq!(e.to_string(), format!("osd capability parse failed, stopped at '{rest}' of '{bad}'"));
        }
    }

    #[test]
    fn grants_hold_for_their_objects_only() {
        assert!(can("allow *", &HERE, "rw", &[]));
        assert!(can("allow r", &HERE, "r", &[]) && !can("allow r", &HERE, "rw", &[]));
        assert!(!can("allow r, allow w", &HERE, "rw", &[]), "one grant must cover reading and writing");
        assert!(can("allow rw pool=p", &HERE, "rw", &[]) && !can("allow rw pool=q", &HERE, "r", &[]));
        let ns = Object { nspace: "tenant1", ..HERE };
        assert!(can("allow r namespace=tenant1", &ns, "r", &[]) && !can("allow r namespace=tenant1", &HERE, "r", &[]));
        assert!(can("allow r namespace=ten*", &ns, "r", &[]) && !can("allow r namespace=\"\"", &ns, "r", &[]));
        assert!(can("allow r object_prefix o", &HERE, "r", &[]) && !can("allow r object_prefix x", &HERE, "r", &[]));
        assert!(can("allow r tag cephfs data=a", &HERE, "r", &[]) && !can("allow r tag cephfs data=b", &HERE, "r", &[]));
        assert!(can("allow r tag cephfs *=a", &HERE, "r", &[]) && can("allow r tag rbd *=*", &HERE, "r", &[]));
        assert!(!can("allow * network 11.0.0.0/8", &HERE, "r", &[]) && can("allow * network 10.0.0.0/8", &HERE, "r", &[]));
    }

    #[test]
    fn class_calls_need_x_or_their_class_by_name() {
        let call = ClassCall { class: "lock", method: "lock", reads: true, writes: true, listed: true };
        assert!(can("allow rwx", &HERE, "", &[call]) && !can("allow rw", &HERE, "", &[call]));
        assert!(!can("allow rw class-read", &HERE, "", &[call]) && can("allow class-read class-write", &HERE, "", &[call]));
        assert!(can("allow class lock", &HERE, "", &[call]) && can("allow class lock lock", &HERE, "", &[call]));
        assert!(!can("allow class lock info", &HERE, "", &[call]));
        let unlisted = ClassCall { listed: false, ..call };
        assert!(!can("allow rwx", &HERE, "", &[unlisted]) && can("allow *", &HERE, "", &[unlisted]));
        assert!(can("allow class lock, allow rw", &HERE, "", &[unlisted]));
    }

    #[test]
    fn profile_rbd_reaches_what_images_need() {
        let p = |name| Object { name, ..HERE };
        assert!(can("profile rbd pool=p", &p("rbd_data.1"), "rw", &[]));
        assert!(!can("profile rbd pool=q", &p("rbd_data.1"), "r", &[]));
        assert!(can("profile rbd pool=q", &p("rbd_info"), "r", &[]));
        let attach = ClassCall { class: "rbd", method: "child_attach", reads: true, writes: true, listed: true };
        assert!(can("profile rbd-read-only", &p("rbd_header.1"), "", &[attach]));
        assert!(!can("profile rbd-read-only", &p("rbd_data.1"), "", &[attach]));
        assert!(!can("profile rbd-read-only", &p("rbd_data.1"), "w", &[]));
    }
}
