//! The replicated rule of a new cluster that began on one machine, and those of its erasure-coded pools: raised from OSDs to hosts when there are
//! enough of them.
//!
//! Owns: [`Raise`].   Hears: the second's tick, the map, the manager's figures.   Says: in the cluster log, that it is going to be done and that it is done.
//! Why: with one machine copies cannot lie on different hosts, and who adds the others later does not think of the rule; until the first host is lost.
//! Holds: only rules as they were made are changed, and nothing is ever lowered; no pool loses a copy's place by it, no OSD is filled to its warning by it.

use crate::commands::ec_profile::{self, DOMAIN};
use crate::env::Env;
use crate::mon::Mon;
use crate::placement::pending_crush;
use crate::services::State;
use crate::services::log::CLUSTER;
use crush::CrushMap;
use ec::Profile;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use store::Kv;
use types::map::{OsdMap, PgPool};
use types::msg::LogPrio;
use types::msg::internal::MgrDigest;
use types::pg::PgState;
use types::{Mono, Now, OsdId, PoolId};

/// Whether it is done at all, and after how many seconds in which nothing spoke against it.
const OPTION: &str = "mon_crush_raise_rule";
const AFTER: &str = "mon_crush_raise_rule_after";
/// What it is raised to.
const RAISED: &str = "host";

/// After something spoke against it that took looking at every PG, it is not looked at again for so long.
const PAUSE: Duration = Duration::from_secs(60);

/// Rules against which nothing speaks. The leader's; another one begins anew.
#[derive(Debug, Default)]
pub struct Raise {
    rules: BTreeMap<u32, Waiting>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiting {
    ready_since: Option<Mono>,
    not_before: Mono,
}

/// What would come of it.
struct Plan {
    crush: Arc<CrushMap>,
    /// Copies of PGs that move, of how many.
    moving: usize,
    copies: usize,
}

/// Looks whether it is time.
pub fn tick<K: Kv>(mon: &mut Mon<K>, now: Now) {
    let Some(state) = mon.state.as_ref() else { return };
    let is_wanted = mon.env.bool(state, OPTION, true) && state.mgr.digest.as_ref().is_some_and(is_whole);
    let ready = if is_wanted { ready(&mon.env, state) } else { Vec::new() };
    mon.raise.rules.retain(|rule, _| ready.iter().any(|(ready, _)| ready == rule));
    for (rule, hosts) in ready {
        look(mon, now, rule, &hosts);
    }
}

/// Looks whether it is time for a rule.
fn look<K: Kv>(mon: &mut Mon<K>, now: Now, rule: u32, hosts: &[String]) {
    let Some(state) = mon.state.as_ref() else { return };
    let waiting = mon.raise.rules.entry(rule).or_default();
    let (after, since) = (mon.env.seconds(state, AFTER, 300), waiting.ready_since);
    if now.mono < waiting.not_before || since.is_some_and(|since| now.mono - since < after) {
        return;
    }
    let Some(plan) = plan(state, rule) else {
        *waiting = Waiting { ready_since: None, not_before: now.mono + PAUSE };
        return;
    };
    let name = state.osdmap.map.crush.rule_name(rule).unwrap_or_default().to_owned();
    let what = format!("{} of {} copies of placement groups", plan.moving, plan.copies);
    let text = match (since, mon.state.as_mut()) {
        (Some(_), Some(state)) => {
            state.osdmap.set_crush(&plan.crush);
            mon.raise.rules.remove(&rule);
            format!("the CRUSH rule {name} spreads copies over hosts from now on; {what} move")
        }
        _ => {
            waiting.ready_since = Some(now.mono);
            format!(
                "the CRUSH rule {name} will spread copies over hosts instead of OSDs in {} seconds, for there are enough of them ({}); {what} will move. \
                 To keep it as it is: ceph config set mon {OPTION} false",
                after.as_secs(), hosts.join(", ")
            )
        }
    };
    mon.log(now, CLUSTER, LogPrio::WARN, text);
}

/// Rules that can be raised as far as is seen without looking at every PG, and the hosts there are for each.
fn ready(env: &Env, state: &State) -> Vec<(u32, Vec<String>)> {
    let (map, crush) = (&state.osdmap.map, pending_crush(&state.osdmap));
    let usual = u8::try_from(env.int(state, "osd_pool_default_size", 3)).unwrap_or(3);
    let first = pristine_rule(&crush);
    let coded: BTreeSet<u32> = map.pools.values().filter(|p| p.is_erasure()).map(|p| p.crush_rule.into()).collect();
    let coded = coded.into_iter().filter(|rule| pools(map, *rule).all(|(_, p)| is_as_made(map, &crush, p)));
    let rules = first.map(|rule| (rule, usual)).into_iter().chain(coded.map(|rule| (rule, 0)));
    let enough = |(rule, least): (u32, u8)| {
        let (hosts, copies) = (hosts(map, rule), pools(map, rule).map(|(_, p)| p.size).fold(least, u8::max));
        (hosts.len() >= usize::from(copies)).then_some((rule, hosts))
    };
    rules.filter_map(enough).collect()
}

/// What would come of raising a rule; `None` if a PG would lack a place or an OSD room.
fn plan(state: &State, rule: u32) -> Option<Plan> {
    let map = &state.osdmap.map;
    let mut crush = CrushMap::clone(&pending_crush(&state.osdmap));
    crush.set_failure_domain(rule, RAISED).ok()?;
    let raised = OsdMap { crush: Arc::new(crush), pg_upmap: BTreeMap::new(), pg_upmap_items: BTreeMap::new(), ..OsdMap::clone(map) };
    let (mut moving, mut copies) = (0, 0);
    for (id, pool) in pools(map, rule) {
        for pg in map.pgs(*id) {
            let up = |map: &OsdMap| map.pg_to_up_acting(pg).up.into_iter().filter(|osd| *osd != OsdId::HOLE).collect::<Vec<_>>();
            let (is, will_be) = (up(map), up(&raised));
            if will_be.len() < pool.size.into() {
                return None;
            }
            copies += will_be.len();
            moving += will_be.iter().filter(|osd| !is.contains(osd)).count();
        }
    }
    fits(&raised, state.mgr.digest.as_ref()?).then_some(Plan { crush: raised.crush, moving, copies })
}

fn pools(map: &OsdMap, rule: u32) -> impl Iterator<Item = (&PoolId, &PgPool)> {
    map.pools.iter().filter(move |(_, p)| u32::from(p.crush_rule) == rule)
}

/// The first map's rule, if it is over OSDs and as it was made.
fn pristine_rule(crush: &CrushMap) -> Option<u32> {
    let first = CrushMap::build_default(&[], "osd").ok()?;
    let (number, made) = first.iter_rules().next()?;
    (crush.rule_name(number) == first.rule_name(number) && crush.rule(number) == Some(made)).then_some(number)
}

/// True if an erasure-coded pool's rule is as it is made where nobody says what no two chunks may share, and over OSDs.
fn is_as_made(map: &OsdMap, crush: &CrushMap, pool: &PgPool) -> bool {
    let rule = u32::from(pool.crush_rule);
    // Asked every second, and a copy of the map is made for what comes after.
    if !pool.is_erasure() || crush.rule_failure_domain(rule) != Some("osd") {
        return false;
    }
    let made = || {
        let pairs = map.erasure_code_profiles.get(&pool.erasure_code_profile)?;
        let silent = pairs.get(DOMAIN).is_none_or(String::is_empty);
        let profile = Profile::parse(pairs).ok().filter(|_| silent)?;
        let mut crush = CrushMap::clone(crush);
        let number = ec_profile::add_rule(&mut crush, "as-made", &Profile { failure_domain: "osd".into(), ..profile }).ok()?;
        crush.rule(number.into()).cloned()
    };
    let ruleset = |rule: &crush::Rule| crush::Rule { ruleset: 0, ..rule.clone() };
    crush.rule(rule).map(ruleset) == made().as_ref().map(ruleset)
}

/// Hosts below what the rule takes that have an OSD that is up and in.
fn hosts(map: &OsdMap, rule: u32) -> Vec<String> {
    let crush = &map.crush;
    let Some(kind) = crush.type_id(RAISED) else { return Vec::new() };
    let serves = |osd: i32| map.is_up(OsdId(osd)) && map.is_in(OsdId(osd)) && crush.item_weight(osd).unwrap_or(0) > 0;
    let all = crush.takes(rule).into_iter().flat_map(|take| crush.children_of_type(take, kind, false));
    all.filter(|host| crush.leaves(*host).into_iter().any(serves)).filter_map(|host| crush.name(host).map(str::to_owned)).collect()
}

/// True if every PG serves and has all its copies, wherever they are.
fn is_whole(digest: &MgrDigest) -> bool {
    let lacks = PgState(PgState::DEGRADED.0 | PgState::UNDERSIZED.0 | PgState::STALE.0);
    digest.pgs_by_state.keys().all(|state| PgState(*state).has(PgState::ACTIVE) && state & lacks.0 == 0)
}

/// True if no OSD of which figures are known becomes nearly full, as far as bytes are spread evenly over PGs.
fn fits(map: &OsdMap, digest: &MgrDigest) -> bool {
    let mut bytes: BTreeMap<OsdId, f64> = BTreeMap::new();
    for (id, pool) in &map.pools {
        let Some(usage) = digest.pools.get(id) else { continue };
        let of_copy = usage.stat.stats.sum.num_bytes.max(0) as f64 * usage.raw_used_rate / f64::from(pool.size.max(1)) / f64::from(pool.pg_num.max(1));
        for osd in map.pgs(*id).flat_map(|pg| map.pg_to_up_acting(pg).up) {
            *bytes.entry(osd).or_default() += of_copy;
        }
    }
    let limit = f64::from(map.full_ratios().nearfull);
    let room = |osd: &OsdId| digest.osds.get(osd).map_or(f64::INFINITY, |stat| stat.statfs.total as f64 * limit);
    bytes.iter().all(|(osd, bytes)| *bytes <= room(osd))
}
