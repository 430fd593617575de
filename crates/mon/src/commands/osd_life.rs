//! OSDs are made, taken in and out, and removed.

use super::osd::{id_arg, parse_osd};
use super::{Ctx, Entry, entry};
use crate::cmd::Cmd;
use crate::placement::pending_crush;
use crate::reply::{Outcome, Reply};
use auth::{CryptoKey, EntityAuth};
use crush::CrushMap;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use types::map::OsdMap;
use types::pg::PgState;
use types::{EntityKind, EntityName, Errno, OsdId};
use uuid::Uuid;

pub const COMMANDS: &[Entry] = &[
    entry("osd new", "osd", "rw", new),
    entry("osd create", "osd", "rw", create),
    entry("osd in", "osd", "rw", in_),
    entry("osd out", "osd", "rw", out),
    entry("osd down", "osd", "rw", down),
    entry("osd stop", "osd", "rw", stop),
    entry("osd rm", "osd", "rw", rm),
    entry("osd lost", "osd", "rw", lost),
    entry("osd destroy", "osd", "rw", destroy),
    entry("osd destroy-actual", "osd", "rw", destroy_actual),
    entry("osd purge", "osd", "rw", purge),
    entry("osd purge-actual", "osd", "rw", purge_actual),
    entry("osd purge-new", "osd", "rw", purge_actual),
];

/// The `ids` argument: OSDs that exist, and what is to be said of those that do not.
pub fn osds_arg(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<(Vec<OsdId>, String), Reply> {
    let map = ctx.osdmap();
    let (mut osds, mut complaints) = (Vec::new(), String::new());
    for text in cmd.list("ids")? {
        if ["any", "all", "*"].contains(&text.as_str()) {
            return Ok((map.osds().collect(), String::new()));
        }
        match parse_osd(&text) {
            Some(osd) if map.exists(osd) => osds.push(osd),
            Some(osd) => complaints += &format!("osd.{osd} does not exist. "),
            None => return Err(Reply::err(Errno::EINVAL, format!("Expected option value to be integer, got '{text}'invalid osd id-1"))),
        }
    }
    Ok((osds, complaints))
}

fn in_(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let any = cmd.list("ids")?.iter().any(|t| ["any", "all", "*"].contains(&t.as_str()));
    let (osds, mut status) = osds_arg(ctx, cmd)?;
    let map = ctx.osdmap();
    for osd in osds {
        if map.is_in(osd) {
            if !any {
                status += &format!("osd.{osd} is already in. ");
            }
            continue;
        }
        let mut xinfo = map.xinfo(osd).cloned().unwrap_or_default();
        let weight = if xinfo.old_weight > 0 { xinfo.old_weight } else { OsdMap::WEIGHT_IN };
        let inc = ctx.state.osdmap.change();
        if std::mem::take(&mut xinfo.old_weight) > 0 {
            inc.new_xinfo.insert(osd, xinfo);
        }
        inc.new_weight.insert(osd, weight);
        status += &format!("marked in osd.{osd}. ");
    }
    Ok(Reply::status(status))
}

fn out(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let any = cmd.list("ids")?.iter().any(|t| ["any", "all", "*"].contains(&t.as_str()));
    let (osds, mut status) = osds_arg(ctx, cmd)?;
    let map = ctx.osdmap();
    for osd in osds {
        if !map.is_in(osd) {
            if !any {
                status += &format!("osd.{osd} is already out. ");
            }
            continue;
        }
        let inc = ctx.state.osdmap.change();
        inc.new_weight.insert(osd, OsdMap::WEIGHT_OUT);
        if map.weight(osd) != OsdMap::WEIGHT_IN {
            let mut xinfo = map.xinfo(osd).cloned().unwrap_or_default();
            xinfo.old_weight = map.weight(osd);
            inc.new_xinfo.insert(osd, xinfo);
        }
        status += &format!("marked out osd.{osd}. ");
    }
    Ok(Reply::status(status))
}

fn down(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let any = cmd.list("ids")?.iter().any(|t| ["any", "all", "*"].contains(&t.as_str()));
    let (osds, mut status) = osds_arg(ctx, cmd)?;
    let map = ctx.osdmap();
    for osd in osds {
        if map.is_down(osd) {
            if !any {
                status += &format!("osd.{osd} is already down. ");
            }
            continue;
        }
        ctx.state.osdmap.change_state(osd, 0, OsdMap::STATE_UP);
        status += &format!("marked down osd.{osd}. ");
    }
    Ok(Reply::status(status))
}

fn stop(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (osds, mut status) = osds_arg(ctx, cmd)?;
    let map = ctx.osdmap();
    for osd in osds {
        if map.state(osd) & OsdMap::STATE_STOP != 0 {
            status += &format!("osd.{osd} is already stopped. ");
        } else if map.is_up(osd) {
            ctx.state.osdmap.change_state(osd, OsdMap::STATE_STOP, 0);
            status += &format!("stop osd.{osd}. ");
        } else {
            ctx.state.osdmap.change_state(osd, OsdMap::STATE_STOP, 0);
            status += &format!("stop down osd.{osd}. ");
        }
    }
    Ok(Reply::status(status))
}

fn rm(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let (osds, mut status) = osds_arg(ctx, cmd)?;
    let map = ctx.osdmap();
    if let Some(up) = osds.iter().find(|o| map.is_up(**o)) {
        return Err(Reply::err(Errno::EBUSY, format!("{status}osd.{up} is still up; must be down before removal. ")));
    }
    let names: Vec<String> = osds.iter().map(|o| format!("osd.{o}")).collect();
    for osd in osds {
        forget(ctx, osd);
    }
    if !names.is_empty() {
        status += &format!("removed {}", names.join(", "));
    }
    Ok(Reply::status(status))
}

/// Takes an OSD out of the map.
fn forget(ctx: &mut Ctx<'_>, osd: OsdId) {
    let state = ctx.state.osdmap.pending_state(osd);
    ctx.state.osdmap.change_state(osd, 0, state);
    ctx.state.osdmap.set_metadata(osd, None, ctx.txn);
}

fn lost(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let osd = id_arg(cmd)?;
    if !cmd.flag("yes_i_really_mean_it") {
        let text = "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.";
        return Err(Reply::err(Errno::EPERM, text));
    }
    let map = ctx.osdmap();
    if !map.exists(osd) {
        return Err(Reply::err(Errno::ENOENT, format!("osd.{osd} does not exist")));
    }
    if map.is_up(osd) {
        return Err(Reply::err(Errno::EBUSY, format!("osd.{osd} is not down")));
    }
    let down_at = map.info(osd).map(|i| i.down_at).unwrap_or_default();
    ctx.state.osdmap.change().new_lost.insert(osd, down_at);
    Ok(Reply::status(format!("marked osd lost in epoch {down_at}")))
}

/// That nothing needs what this OSD holds, as far as the manager knows; who forces it is not asked.
///
/// Stock's manager answers these commands and then gives the monitor the one that ends in `-actual`. What it looks at, the
/// monitors have in the digest.
fn must_be_needless(ctx: &Ctx<'_>, cmd: &Cmd) -> Result<(), Reply> {
    let osd = id_arg(cmd)?;
    if cmd.flag("force") || cmd.flag("yes_i_really_mean_it") || !ctx.osdmap().exists(osd) {
        return Ok(());
    }
    let Err((errno, why)) = needless(ctx, osd) else { return Ok(()) };
    Err(Reply::err(errno, format!("{why}\n--force does it all the same; what only this OSD holds is then lost for good.")))
}

/// As `ceph osd safe-to-destroy` judges.
fn needless(ctx: &Ctx<'_>, osd: OsdId) -> Result<(), (Errno, String)> {
    let digest = ctx.state.mgr.digest.as_ref();
    let Some((digest, by_osd)) = digest.and_then(|d| Some((d, d.pgs_by_osd.as_ref()?))) else {
        return Err((Errno::EAGAIN, "no manager has reported the state of any pg".into()));
    };
    if let Some(unknown) = digest.pgs_by_state.get(&PgState::UNKNOWN.0) {
        return Err((Errno::EAGAIN, format!("{unknown} pgs have unknown state; cannot draw any conclusions")));
    }
    if let Some(mapped) = by_osd.get(&osd) {
        return Err((Errno::EBUSY, format!("osd.{osd} has {mapped} pgs currently mapped to it")));
    }
    let is_clean = |state: PgState| state.has(PgState::ACTIVE) && state.has(PgState::CLEAN) && !state.has(PgState::STALE);
    if digest.pgs_by_state.keys().all(|state| is_clean(PgState(*state))) {
        return Ok(());
    }
    match digest.osds.get(&osd).filter(|_| ctx.osdmap().is_up(osd)) {
        None => Err((Errno::EAGAIN, format!("osd.{osd} reports nothing, and not all pgs are active+clean"))),
        Some(stat) if stat.num_pgs > 0 => Err((Errno::EBUSY, format!("osd.{osd} still holds pgs, and not all pgs are active+clean"))),
        Some(_) => Ok(()),
    }
}

/// That the operator is sure, where nothing else is asked.
fn must_be_sure(cmd: &Cmd) -> Result<(), Reply> {
    if cmd.flag("yes_i_really_mean_it") {
        return Ok(());
    }
    let osd = id_arg(cmd)?;
    let text = format!(
        "Are you SURE?  Did you verify with 'ceph osd safe-to-destroy osd.{osd}'?  This will PERMANENTLY DESTROY the data of the \
         OSD, so pass --yes-i-really-mean-it if you really do."
    );
    Err(Reply::err(Errno::EPERM, text))
}

/// What destroying and purging have in common: there, and not running. `None`: nothing to do any more.
fn removable(ctx: &Ctx<'_>, cmd: &Cmd, verb: &str) -> Result<Option<OsdId>, Reply> {
    let osd = id_arg(cmd)?;
    let map = ctx.osdmap();
    if !map.exists(osd) {
        return Ok(None);
    }
    if map.is_up(osd) {
        return Err(Reply::err(Errno::EBUSY, format!("osd.{osd} is not `down`.")));
    }
    tracing::info!("{verb} osd.{osd}");
    Ok(Some(osd))
}

/// Removes an OSD's key, its keys in the dictionary, and its metadata.
fn remove_keys(ctx: &mut Ctx<'_>, osd: OsdId) {
    for name in [EntityName::new(EntityKind::OSD, osd.to_string()), lockbox(ctx.osdmap().uuid(osd))] {
        if ctx.state.auth.get(&name).is_some() {
            ctx.state.auth.remove(&name, ctx.txn);
        }
    }
    let prefix = format!("dm-crypt/osd/{}/", ctx.osdmap().uuid(osd));
    let keys: Vec<String> = ctx.state.config_key.with_prefix(&prefix).map(|(k, _)| k.clone()).collect();
    for key in keys {
        ctx.state.config_key.remove(&key, ctx.txn);
    }
}

fn lockbox(uuid: Uuid) -> EntityName {
    EntityName::new(EntityKind::CLIENT, format!("osd-lockbox.{uuid}"))
}

fn destroy(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    must_be_needless(ctx, cmd)?;
    do_destroy(ctx, cmd)
}

fn destroy_actual(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    must_be_sure(cmd)?;
    do_destroy(ctx, cmd)
}

fn do_destroy(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let Some(osd) = removable(ctx, cmd, "destroying")? else {
        return Err(Reply::err(Errno::ENOENT, format!("osd.{} does not exist", id_arg(cmd)?)));
    };
    if ctx.osdmap().is_destroyed(osd) {
        return Ok(Reply::status(format!("destroyed osd.{osd}")));
    }
    remove_keys(ctx, osd);
    ctx.state.osdmap.change_state(osd, OsdMap::STATE_DESTROYED, 0);
    let inc = ctx.state.osdmap.change();
    inc.new_uuid.insert(osd, Uuid::nil());
    Ok(Reply::status(format!("destroyed osd.{osd}")))
}

fn purge(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    must_be_needless(ctx, cmd)?;
    do_purge(ctx, cmd)
}

fn purge_actual(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    must_be_sure(cmd)?;
    do_purge(ctx, cmd)
}

fn do_purge(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let osd = match removable(ctx, cmd, "purging")? {
        Some(osd) => osd,
        None => return Ok(Reply::status(format!("purged osd.{}", id_arg(cmd)?))),
    };
    remove_keys(ctx, osd);
    let mut crush = CrushMap::clone(&pending_crush(&ctx.state.osdmap));
    if crush.item_exists(osd.0) {
        crush.remove_item(osd.0, false).map_err(|e| Reply { result: e.errno(), ..Reply::status(e.to_string()) })?;
        ctx.state.osdmap.set_crush(&crush);
    }
    forget(ctx, osd);
    Ok(Reply::status(format!("purged osd.{osd}")))
}

/// The lowest number without an OSD.
fn free_id(map: &OsdMap) -> OsdId {
    (0..).map(OsdId).find(|o| !map.exists(*o)).unwrap_or(OsdId(map.max_osd))
}

/// Makes `osd` exist with this identity.
fn bring_into_being(ctx: &mut Ctx<'_>, osd: OsdId, uuid: Uuid) {
    let map = ctx.osdmap();
    if osd.0 >= map.max_osd {
        ctx.state.osdmap.change().new_max_osd = Some(osd.0 + 1);
    }
    // An OSD that is in exists: the weight says so, and the state must not say it again, for state bits are flipped.
    let destroyed = map.state(osd) & OsdMap::STATE_DESTROYED;
    let inc = ctx.state.osdmap.change();
    inc.new_state.insert(osd, OsdMap::STATE_NEW | destroyed);
    inc.new_weight.insert(osd, OsdMap::WEIGHT_IN);
    if !uuid.is_nil() {
        inc.new_uuid.insert(osd, uuid);
    }
}

fn create(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let map = ctx.osdmap();
    let uuid = parse_uuid(cmd.text("uuid")?)?.unwrap_or_default();
    if let Some(osd) = map.osd_by_uuid(uuid).filter(|_| !uuid.is_nil()) {
        return Ok(id_reply(cmd, osd));
    }
    let osd = match cmd.int("id") {
        Ok(None) => free_id(&map),
        _ => id_arg(cmd)?,
    };
    if map.exists(osd) {
        return Err(Reply::err(Errno::EEXIST, format!("id {osd} already in use")));
    }
    bring_into_being(ctx, osd, uuid);
    Ok(id_reply(cmd, osd))
}

fn id_reply(cmd: &Cmd, osd: OsdId) -> Reply {
    Reply::either(cmd.format, || format!("{osd}\n"), || json!({"osdid": osd.0}))
}

fn parse_uuid(text: &str) -> Result<Option<Uuid>, Reply> {
    if text.is_empty() {
        return Ok(None);
    }
    Uuid::parse_str(text).map(Some).map_err(|_| Reply::err(Errno::EINVAL, format!("invalid uuid value '{text}'")))
}

/// `osd new UUID [ID] -i -`: a number, an identity and, from standard input, the secret and what else belongs to it.
fn new(ctx: &mut Ctx<'_>, cmd: &Cmd) -> Outcome {
    let uuid = parse_uuid(cmd.text("uuid")?)?.ok_or_else(|| Reply::err(Errno::EINVAL, "requires the OSD's UUID to be specified."))?;
    let secrets = Secrets::parse(&cmd.input)?;
    let map = ctx.osdmap();
    let wanted = match cmd.int("id") {
        Ok(None) => None,
        _ => Some(id_arg(cmd)?),
    };
    let known = map.osd_by_uuid(uuid);
    let osd = match (known, wanted) {
        (Some(osd), Some(id)) if osd != id => {
            return Err(Reply::err(Errno::EEXIST, format!("uuid {uuid} already in use for different id {osd}")));
        }
        (Some(osd), _) => osd,
        (None, Some(id)) if map.exists(id) && !map.is_destroyed(id) => {
            return Err(Reply::err(Errno::EINVAL, format!("id {id} already in use and does not match uuid {uuid}")));
        }
        (None, Some(id)) if !map.exists(id) && !(0..ctx.int_option("mon_max_osd", 10_000)).contains(&i64::from(id.0)) => {
            return Err(Reply::err(Errno::ERANGE, format!("id {id} is above mon_max_osd")));
        }
        (None, Some(id)) => id,
        (None, None) => (map.osds().find(|o| map.is_destroyed(*o) && map.uuid(*o).is_nil() && cmd.flag("reuse"))).unwrap_or_else(|| free_id(&map)),
    };
    store_secrets(ctx, osd, uuid, &secrets)?;
    if known.is_none() {
        bring_into_being(ctx, osd, uuid);
        place(ctx, osd, &secrets)?;
    }
    Ok(id_reply(cmd, osd))
}

/// What `osd new` reads from standard input.
#[derive(Default)]
struct Secrets {
    cephx: Option<CryptoKey>,
    lockbox: Option<CryptoKey>,
    dmcrypt: Option<String>,
    crush_device_class: Option<String>,
}

impl Secrets {
    fn parse(input: &[u8]) -> Result<Self, Reply> {
        if input.iter().all(u8::is_ascii_whitespace) {
            return Ok(Secrets::default());
        }
        let bad = || Reply::err(Errno::EINVAL, "unable to parse the JSON on standard input");
        let all: BTreeMap<String, Value> = serde_json::from_slice(input).map_err(|_| bad())?;
        let text = |name: &str| all.get(name).and_then(Value::as_str).map(str::to_owned);
        let key = |name: &str| -> Result<Option<CryptoKey>, Reply> {
            let wrong = |_| Reply::err(Errno::EINVAL, format!("'{name}' is not a key"));
            text(name).map(|t| t.parse().map_err(wrong)).transpose()
        };
        let secrets = Secrets {
            cephx: key("cephx_secret")?,
            lockbox: key("cephx_lockbox_secret")?,
            dmcrypt: text("dmcrypt_key"),
            crush_device_class: text("crush_device_class"),
        };
        if secrets.cephx.is_none() && (secrets.lockbox.is_some() || secrets.dmcrypt.is_some()) {
            return Err(Reply::err(Errno::EINVAL, "requires a cephx secret."));
        }
        if secrets.lockbox.is_some() != secrets.dmcrypt.is_some() {
            return Err(Reply::err(Errno::EINVAL, "requires a lockbox secret and a dm-crypt key together"));
        }
        Ok(secrets)
    }
}

fn store_secrets(ctx: &mut Ctx<'_>, osd: OsdId, uuid: Uuid, secrets: &Secrets) -> Result<(), Reply> {
    let name = EntityName::new(EntityKind::OSD, osd.to_string());
    if let Some(key) = &secrets.cephx {
        let caps = crate::services::auth::caps_of(&name);
        match ctx.state.auth.get(&name) {
            Some(old) if old.key.secret() != key.secret() => {
                return Err(Reply::err(Errno::EEXIST, format!("entity {name} exists but key does not match")));
            }
            Some(_) => {}
            None => ctx.state.auth.put(name, EntityAuth { key: key.clone(), caps }, ctx.txn),
        }
    }
    if let (Some(key), Some(dmcrypt)) = (&secrets.lockbox, &secrets.dmcrypt) {
        let place = format!("dm-crypt/osd/{uuid}/luks");
        let cap = format!("allow command \"config-key get\" with key=\"{place}\"");
        let caps = [("mon".to_owned(), cap)].into();
        ctx.state.auth.put(lockbox(uuid), EntityAuth { key: key.clone(), caps }, ctx.txn);
        ctx.state.config_key.put(&place, dmcrypt.clone().into(), ctx.txn);
    }
    Ok(())
}

/// A device class given with the secrets is set before the OSD first boots.
fn place(ctx: &mut Ctx<'_>, osd: OsdId, secrets: &Secrets) -> Result<(), Reply> {
    let Some(class) = &secrets.crush_device_class else { return Ok(()) };
    let mut crush = CrushMap::clone(&pending_crush(&ctx.state.osdmap));
    // It stands nowhere yet: a class belongs to a name.
    crush.name_device(osd.0);
    crush.set_device_class(osd.0, class).map_err(|e| Reply { result: e.errno(), ..Reply::status(e.to_string()) })?;
    ctx.state.osdmap.set_crush(&crush);
    Ok(())
}
