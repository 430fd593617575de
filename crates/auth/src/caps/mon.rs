//! Capabilities at a monitor. Upstream: src/mon/MonCap.cc.

use super::daemon::{
    Ask, Constraint, Constraints, Grant, Scope, args_match, capable, command_grant, parse_list, plain_grant, profile_name,
    service_grant,
};
use super::text::Text;
use super::{CapsError, Rwx};
use std::str::FromStr;
use types::EntityName;

/// What an entity may do at a monitor.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MonCaps {
    grants: Vec<Grant>,
    text: String,
}

impl FromStr for MonCaps {
    type Err = CapsError;
    fn from_str(text: &str) -> Result<Self, CapsError> {
        Ok(MonCaps { grants: parse_list("mon", text, grant)?, text: text.to_owned() })
    }
}

impl MonCaps {
    /// `allow *`.
    pub fn allow_all() -> Self {
        MonCaps { grants: vec![Grant::new(Scope::Everything, Rwx::ANY)], text: "allow *".to_owned() }
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if there is an `allow *`.
    pub fn allows_all(&self) -> bool {
        self.grants.iter().any(Grant::allows_all)
    }

    /// True if the ask is allowed.
    pub fn is_capable(&self, ask: &Ask<'_>) -> bool {
        capable(&self.grants, ask, |grant| allowed(grant, ask))
    }
}

fn allowed(grant: &Grant, ask: &Ask<'_>) -> Rwx {
    match &grant.scope {
        // Secrets are kept under config-key: a blanket `rwx` does not reach them, only `*` does.
        Scope::Everything if ask.service == "config-key" => Rwx::NONE,
        Scope::Everything => grant.allow,
        Scope::Service(service) if service == ask.service => grant.allow,
        Scope::Command(command, constraints) if command == ask.command && args_match(constraints, ask.args) => Rwx::ANY,
        Scope::Profile(profile, _) => {
            expand(profile, ask.name).iter().fold(Rwx::NONE, |sum, g| sum.and(allowed(g, ask)))
        }
        _ => Rwx::NONE,
    }
}

/// The grants of a profile; none for a name nobody knows, as upstream.
fn expand(profile: &str, name: &EntityName) -> Vec<Grant> {
    let s = Grant::service;
    let plain = |command| Grant::command(command, []);
    let equal = |value: &str| Constraint::Equal(value.to_owned());
    let prefix = |value: &str| Constraint::Prefix(value.to_owned());
    let regex = |value: &str| Constraint::Regex(value.to_owned());
    let create = |entity: &str, caps: Vec<(&'static str, Constraint)>| {
        Grant::command("auth get-or-create", [("entity", prefix(entity))].into_iter().chain(caps))
    };
    match profile {
        "read-only" => vec![Grant::new(Scope::Everything, Rwx::R)],
        "read-write" => vec![Grant::new(Scope::Everything, Rwx::RW)],
        "mon" => with_own_keys(name, vec![s("mon", Rwx::RWX), s("log", Rwx::RWX)]),
        "osd" => with_own_keys(
            name,
            vec![s("osd", Rwx::RWX), s("mon", Rwx::R), s("pg", Rwx::RW), s("log", Rwx::W)],
        ),
        "mds" => with_own_keys(
            name,
            vec![
                s("mds", Rwx::RWX),
                s("mon", Rwx::R),
                s("osd", Rwx::R),
                plain("osd pool rmsnap"),
                plain("osd blocklist"),
                plain("osd blacklist"),
                s("log", Rwx::W),
            ],
        ),
        "mgr" => with_own_keys(
            name,
            vec![
                s("mgr", Rwx::RWX),
                s("log", Rwx::RW),
                s("mon", Rwx::RW),
                s("mds", Rwx::RW),
                s("fs", Rwx::RW),
                s("osd", Rwx::RW),
                s("auth", Rwx::RWX),
                s("config-key", Rwx::RW),
                s("config", Rwx::RW),
                plain("auth get-or-create"),
                plain("auth caps"),
                plain("auth rm"),
                plain("smart"),
            ],
        ),
        "bootstrap-osd" => vec![
            s("mon", Rwx::R),
            s("osd", Rwx::R),
            plain("mon getmap"),
            plain("osd new"),
            plain("osd purge-new"),
        ],
        "bootstrap-mds" => bootstrap(create(
            "mds.",
            vec![
                ("caps_mon", equal("allow profile mds")),
                ("caps_osd", equal("allow rwx")),
                ("caps_mds", equal("allow")),
            ],
        )),
        "bootstrap-mgr" => bootstrap(create("mgr.", vec![("caps_mon", equal("allow profile mgr"))])),
        "bootstrap-rgw" => bootstrap(create(
            "client.rgw.",
            vec![("caps_mon", equal("allow rw")), ("caps_osd", equal("allow rwx"))],
        )),
        "bootstrap-rbd" | "bootstrap-rbd-mirror" => {
            let mon = if profile == "bootstrap-rbd" { "profile rbd" } else { "profile rbd-mirror" };
            let osd = r#"([ ,]*profile(=|[ ]+)['"]?rbd[^ ,'"]*['"]?([ ]+pool(=|[ ]+)['"]?[^,'"]+['"]?)?)+"#;
            vec![s("mon", Rwx::R), create("client.", vec![("caps_mon", equal(mon)), ("caps_osd", regex(osd))])]
        }
        "fs-client" => vec![s("mon", Rwx::R), s("mds", Rwx::R), s("osd", Rwx::R), s("pg", Rwx::R)],
        "simple-rados-client" => vec![s("mon", Rwx::R), s("osd", Rwx::R), s("pg", Rwx::R)],
        "crash" => vec![s("mon", Rwx::R)],
        "role-definer" => vec![s("mon", Rwx::R), s("auth", Rwx::RWX)],
        _ if profile.starts_with("rbd") => rbd(profile),
        _ => Vec::new(),
    }
}

/// What every `bootstrap-` key but the OSDs' may do.
fn bootstrap(create: Grant) -> Vec<Grant> {
    vec![Grant::service("mon", Rwx::R), Grant::service("osd", Rwx::R), Grant::command("mon getmap", []), create]
}

/// A client of block images: it may block another client that died with a lock.
fn rbd(profile: &str) -> Vec<Grant> {
    let mut grants: Vec<Grant> = ["mon", "osd", "pg"].into_iter().map(|s| Grant::service(s, Rwx::R)).collect();
    let one_client = || Constraint::Regex("[^/]+/[0-9]+".to_owned());
    let add = || Constraint::Equal("add".to_owned());
    grants.push(Grant::command("osd blocklist", [("blocklistop", add()), ("addr", one_client())]));
    grants.push(Grant::command("osd blacklist", [("blacklistop", add()), ("addr", one_client())]));
    match profile {
        "rbd-mirror" => {
            grants.push(Grant::command("config-key get", [("key", Constraint::Prefix("rbd/mirror/".to_owned()))]));
        }
        "rbd-mirror-peer" => {
            let own = Constraint::Regex("rbd/mirror/[^/]+".to_owned());
            grants.push(Grant::command("config-key get", [("key", own)]));
            let peer = Constraint::Prefix("rbd/mirror/peer/".to_owned());
            grants.push(Grant::command("config-key set", [("key", peer)]));
        }
        _ => {}
    }
    grants
}

/// A daemon keeps private settings under its own name.
fn with_own_keys(name: &EntityName, mut grants: Vec<Grant>) -> Vec<Grant> {
    for verb in ["get", "put", "set", "exists", "delete"] {
        let own = Constraint::Prefix(format!("daemon-private/{name}/"));
        grants.push(Grant::command(&format!("config-key {verb}"), [("key", own)]));
    }
    grants
}

fn grant(t: &mut Text<'_>) -> Option<Grant> {
    t.spaces();
    let grant = blanket_grant(t).or_else(|| profile_grant(t)).or_else(|| service_grant(t)).or_else(|| command_grant(t, false))?;
    t.spaces();
    Some(grant)
}

/// `allow rwx [network N] [fsname F]`.
fn blanket_grant(t: &mut Text<'_>) -> Option<Grant> {
    let mut grant = plain_grant(t)?;
    grant.fs_name = t.attempt(|t| {
        t.spaces()?;
        t.lit("fsname")?;
        t.equals_or_spaces()?;
        t.run(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)).map(str::to_owned)
    });
    Some(grant)
}

fn profile_grant(t: &mut Text<'_>) -> Option<Grant> {
    t.attempt(|t| {
        let name = profile_name(t)?;
        Some(Grant { network: t.network(), ..Grant::new(Scope::Profile(name, Constraints::new()), Rwx::NONE) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn can(caps: &str, service: &str, command: &str, args: &[(&str, &str)], needs: Rwx) -> bool {
        let caps: MonCaps = caps.parse().unwrap();
        let args: BTreeMap<String, String> = args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let name = "osd.3".parse().unwrap();
        let addr = Some("10.1.2.3".parse().unwrap());
        caps.is_capable(&Ask { name: &name, service, module: "", command, args: &args, needs, addr })
    }

    #[test]
    fn the_grammar_of_stock_is_accepted_and_kept_as_written() {
        // The good cases of upstream's own test, and a few of our own.
        for good in [
            "allow *",
            "allow all",
            "allow r",
            "allow rwx",
            "allow command foo",
            "allow command foo ",
            "allow command \"foo bar\"",
            "allow command=\"foo bar\" with a=b",
            "allow command foo with arg=b b=c",
            "allow command foo with arg prefix b, allow r",
            "allow command foo with arg regex \"^[0-9]+$\"",
            "allow service foo x",
            "allow service=foo x;allow r",
            "allow profile osd",
            "profile rbd",
            "profile=rbd",
            "profile \"rbd\" network 10.0.0.0/8",
            " allow r , allow command foo",
            "allow rw network 1.2.3.4/24",
            "allow r fsname=a",
            "allow\tr",
        ] {
            let caps: MonCaps = good.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(caps.text(), good);
        }
    }

    #[test]
    fn what_stock_refuses_is_refused_in_its_words() {
        for (bad, rest) in [
            ("allow r foo", "foo"),
            ("allow wr", "r"),
            ("foo", "foo"),
            ("allow", "allow"),
            ("allow command baz x", "x"),
            ("allow r,", ","),
            ("allow r, bogus", ", bogus"),
            ("allow service foo", "allow service foo"),
        ] {
            let e = bad.parse::<MonCaps>().unwrap_err();
            assert_eq!(e.to_string(), format!("mon capability parse failed, stopped at '{rest}' of '{bad}'"));
        }
        assert!("".parse::<MonCaps>().is_err());
    }

    #[test]
    fn grants_allow_what_they_say() {
        assert!(can("allow *", "config-key", "config-key get", &[], Rwx::R));
        assert!(!can("allow rwx", "config-key", "config-key get", &[], Rwx::R));
        assert!(can("allow r", "osd", "osd dump", &[], Rwx::R) && !can("allow r", "osd", "osd out", &[], Rwx::RW));
        assert!(can("allow service osd rw", "osd", "", &[], Rwx::RW) && !can("allow service osd rw", "mon", "", &[], Rwx::R));
        assert!(can("allow r, allow service osd w", "osd", "", &[], Rwx::RW), "grants add up");
        let foo = "allow command foo with a=b c prefix d e regex \"x+\"";
        assert!(can(foo, "mon", "foo", &[("a", "b"), ("c", "dd"), ("e", "xx")], Rwx::RWX));
        assert!(!can(foo, "mon", "foo", &[("a", "b"), ("c", "dd"), ("e", "xxy")], Rwx::R));
        assert!(!can(foo, "mon", "foo", &[("a", "b")], Rwx::R));
        assert!(can("allow r network 10.0.0.0/8", "mon", "", &[], Rwx::R));
        assert!(!can("allow * network 11.0.0.0/8", "mon", "", &[], Rwx::R));
    }

    #[test]
    fn profiles_allow_what_daemons_and_clients_need() {
        assert!(can("allow profile osd", "osd", "osd boot", &[], Rwx::X));
        assert!(!can("allow profile osd", "auth", "auth ls", &[], Rwx::R));
        let key = |k| [("key", k)];
        assert!(can("profile osd", "config-key", "config-key get", &key("daemon-private/osd.3/x"), Rwx::R));
        assert!(!can("profile osd", "config-key", "config-key get", &key("daemon-private/osd.4/x"), Rwx::R));
        assert!(can("profile rbd", "osd", "osd blocklist", &[("blocklistop", "add"), ("addr", "1.2.3.4:0/77")], Rwx::RW));
        assert!(!can("profile rbd", "osd", "osd blocklist", &[("blocklistop", "rm"), ("addr", "1.2.3.4:0/77")], Rwx::RW));
        let args = |caps| [("entity", "client.x"), ("caps_mon", "profile rbd"), ("caps_osd", caps)];
        assert!(can("profile bootstrap-rbd", "auth", "auth get-or-create", &args("profile rbd pool=a, profile rbd-read-only"), Rwx::RWX));
        assert!(!can("profile bootstrap-rbd", "auth", "auth get-or-create", &args("allow *"), Rwx::RWX));
        assert!(!can("profile nonsense", "mon", "", &[], Rwx::R));
    }
}
