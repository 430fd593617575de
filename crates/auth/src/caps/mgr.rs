//! Capabilities at the manager. Upstream: src/mgr/MgrCap.cc.

use super::daemon::{
    Ask, Constraints, Grant, Scope, allow_named, args_match, capable, command_grant, constraints, parse_list, plain_grant,
    profile_name, service_grant, with,
};
use super::text::Text;
use super::{CapsError, Rwx};
use std::str::FromStr;

/// What an entity may do at the manager.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MgrCaps {
    grants: Vec<Grant>,
    text: String,
}

impl FromStr for MgrCaps {
    type Err = CapsError;
    fn from_str(text: &str) -> Result<Self, CapsError> {
        let grants = parse_list("mgr", text, grant)?;
        for grant in &grants {
            if let Scope::Profile(name, args) = &grant.scope {
                expand(name, args).map_err(CapsError::Profile)?;
            }
        }
        Ok(MgrCaps { grants, text: text.to_owned() })
    }
}

impl MgrCaps {
    /// `allow *`.
    pub fn allow_all() -> Self {
        MgrCaps { grants: vec![Grant::new(Scope::Everything, Rwx::ANY)], text: "allow *".to_owned() }
    }

    /// The text it was parsed from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the ask is allowed.
    pub fn is_capable(&self, ask: &Ask<'_>) -> bool {
        capable(&self.grants, ask, |grant| allowed(grant, ask))
    }
}

fn allowed(grant: &Grant, ask: &Ask<'_>) -> Rwx {
    match &grant.scope {
        Scope::Everything => grant.allow,
        Scope::Service(service) if service == ask.service => grant.allow,
        // A command of a module checks its arguments itself.
        Scope::Module(module, args) if module == ask.module && (!ask.command.is_empty() || args_match(args, ask.args)) => {
            grant.allow
        }
        Scope::Command(command, args) if command == ask.command && args_match(args, ask.args) => Rwx::ANY,
        Scope::Profile(name, args) => {
            let grants = expand(name, args).unwrap_or_default();
            grants.iter().fold(Rwx::NONE, |sum, g| sum.and(allowed(g, ask)))
        }
        _ => Rwx::NONE,
    }
}

fn expand(profile: &str, args: &Constraints) -> Result<Vec<Grant>, String> {
    Ok(match profile {
        "read-only" => vec![Grant::new(Scope::Everything, Rwx::R)],
        "read-write" => vec![Grant::new(Scope::Everything, Rwx::RW)],
        "crash" => vec![Grant::command("crash post", [])],
        // Documented, and without effect.
        "osd" | "mds" => Vec::new(),
        "rbd" | "rbd-read-only" => {
            if let Some(key) = args.keys().find(|key| !["pool", "namespace"].contains(&key.as_str())) {
                return Err(format!("profile '{profile}' does not recognize key '{key}'"));
            }
            let allow = if profile == "rbd" { Rwx::RW } else { Rwx::R };
            vec![Grant::new(Scope::Module("rbd_support".to_owned(), args.clone()), allow)]
        }
        _ => return Err(format!("unrecognized profile '{profile}'")),
    })
}

fn grant(t: &mut Text<'_>) -> Option<Grant> {
    t.spaces();
    let grant = plain_grant(t)
        .or_else(|| profile_grant(t))
        .or_else(|| service_grant(t))
        .or_else(|| module_grant(t))
        .or_else(|| command_grant(t, true))?;
    t.spaces();
    Some(grant)
}

fn profile_grant(t: &mut Text<'_>) -> Option<Grant> {
    t.attempt(|t| {
        let name = profile_name(t)?;
        let args = t.attempt(|t| {
            t.spaces()?;
            constraints(t, true)
        });
        let scope = Scope::Profile(name, args.unwrap_or_default());
        Some(Grant { network: t.network(), ..Grant::new(scope, Rwx::NONE) })
    })
}

/// `allow module X [with k=v] rw`.
fn module_grant(t: &mut Text<'_>) -> Option<Grant> {
    t.attempt(|t| {
        let module = allow_named(t, "module")?;
        let args = with(t, true);
        t.spaces()?;
        let allow = t.rwx()?;
        Some(Grant { network: t.network(), ..Grant::new(Scope::Module(module, args), allow) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn can(caps: &str, module: &str, command: &str, args: &[(&str, &str)], needs: Rwx) -> bool {
        let caps: MgrCaps = caps.parse().unwrap();
        let args: BTreeMap<String, String> = args.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let name = "client.a".parse().unwrap();
        caps.is_capable(&Ask { name: &name, service: "mgr", module, command, args: &args, needs, addr: None })
    }

    #[test]
    fn modules_and_profiles_take_arguments() {
        assert!(can("allow module bar with k1=v1 k2 = v2 rw", "bar", "", &[("k1", "v1"), ("k2", "v2")], Rwx::RW));
        assert!(!can("allow module bar with k1=v1 rw", "bar", "", &[("k1", "v")], Rwx::R));
        assert!(can("profile rbd pool=p namespace=n", "rbd_support", "", &[("pool", "p"), ("namespace", "n")], Rwx::RW));
        assert!(!can("profile rbd pool=p", "rbd_support", "", &[("pool", "q")], Rwx::R));
        assert!(!can("profile rbd-read-only", "rbd_support", "", &[], Rwx::W));
        assert!(can("profile crash", "crash", "crash post", &[], Rwx::RW) && !can("profile crash", "crash", "crash ls", &[], Rwx::R));
        assert!(can("allow r", "", "pg dump", &[], Rwx::R) && can("allow *", "", "x", &[], Rwx::RWX));
    }

    #[test]
    fn unknown_profiles_are_refused_when_parsed() {
        let why = |text: &str| text.parse::<MgrCaps>().unwrap_err().to_string();
        assert_eq!(why("profile x"), "mgr capability parse failed during profile evaluation: unrecognized profile 'x'");
        assert!(why("profile rbd colour=red").ends_with("profile 'rbd' does not recognize key 'colour'"));
        assert_eq!(why("allow r x"), "mgr capability parse failed, stopped at 'x' of 'allow r x'");
    }
}
