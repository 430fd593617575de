//! Erasure-coded pools are made, and what `osd pool set` may change of them.

use super::ec_profile;
use super::pool::{Sizes, check_rule, insert, make, named_rule, pg_num_arg, plan};
use super::Ctx;
use crate::cmd::Cmd;
use crate::placement::pending_crush;
use crate::reply::Reply;
use crush::CrushMap;
use types::map::{PgPool, PoolType};

/// `osd pool create NAME ... erasure [PROFILE] [RULE]`: with a rule of its own if none is named. Number of OSDs and stripe
/// come from the profile.
pub fn create(ctx: &mut Ctx<'_>, cmd: &Cmd, name: &str) -> Result<(), Reply> {
    let profile_name = Some(cmd.text("erasure_code_profile")?).filter(|p| !p.is_empty()).unwrap_or("default");
    let pending = pending_crush(&ctx.state.osdmap);
    let rule_name = cmd.text("rule")?;
    let named = Some(rule_name).filter(|r| !r.is_empty()).map(|r| named_rule(&pending, r)).transpose()?;
    let profile = ec_profile::read(ctx, profile_name)?;
    let mut crush = CrushMap::clone(&pending);
    // Pools of the default profile share a rule, as upstream has it.
    let own = if profile_name == "default" { "erasure-code" } else { name };
    let rule = match named {
        Some(rule) => rule,
        None if crush.rule_id(own).is_some() => named_rule(&crush, own)?,
        None => ec_profile::add_rule(&mut crush, own, &profile)?,
    };
    let (size, enough) = (profile.k + profile.m, profile.k + (profile.m - 1).min(1));
    let sizes = Sizes { size: size as u8, min_size: enough as u8 };
    let pg_num = pg_num_arg(ctx, cmd, &crush, rule, sizes.size)?;
    let new = plan(ctx, name, pg_num, cmd.int("pgp_num")?.unwrap_or(0), rule, sizes)?;
    check_rule(&crush, rule, PoolType::ERASURE, sizes.size)?;
    let mut pool = make(ctx, &new, cmd)?;
    pool.pool_type = PoolType::ERASURE;
    profile_name.clone_into(&mut pool.erasure_code_profile);
    pool.stripe_width = profile.k as u32 * profile.stripe_unit;
    pool.fast_read = match cmd.int("fast_read")? {
        Some(on) if on >= 0 => on > 0,
        _ => ctx.bool_option("osd_pool_default_ec_fast_read", false),
    };
    if crush != *pending {
        ctx.state.osdmap.set_crush(&crush);
    }
    ec_profile::restore_default(ctx, profile_name);
    insert(ctx, name, pool);
    Ok(())
}

/// The least `min_size` of an erasure-coded pool: as many chunks as it takes to read.
pub fn least_min_size(ctx: &Ctx<'_>, pool: &PgPool) -> Result<i64, Reply> {
    ec_profile::read(ctx, &pool.erasure_code_profile).map(|profile| profile.k as i64)
}
