//! Where OSDs stand in the CRUSH hierarchy: the first map, and the place a booting OSD takes.

use crate::commands::ec_profile;
use crate::env::Env;
use crate::services::osdmap::OsdMapService;
use crush::CrushMap;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::OsdId;
use types::map::OsdMap;

/// Smallest weight an OSD gets, so that it gets some data.
const WEIGHT_MIN_TIB: f64 = 0.00001;

/// Gives a new cluster's map its root, its replicated rule and its default profile. The rule spreads copies over what
/// `osd_crush_chooseleaf_type` says (0 OSDs, 1 hosts); unset, over hosts: two copies on one machine are lost together.
/// A cluster on a single machine sets it to 0, as `cuttlebone up` does.
pub fn first_crush(env: &Env, map: &mut OsdMap) {
    let kind = env.options.get("osd_crush_chooseleaf_type").and_then(|v| v.trim().parse().ok()).unwrap_or(1);
    let blank = CrushMap::build_default(&[], "osd").expect("the default map has no OSDs to get wrong");
    let domain = blank.type_name(kind).unwrap_or("host").to_owned();
    let crush = CrushMap::build_default(&[], &domain).unwrap_or(blank);
    map.crush = Arc::new(crush);
    let profile = ec_profile::default_pairs(env.options.get(ec_profile::DEFAULT_OPTION).map(String::as_str));
    map.erasure_code_profiles.insert("default".into(), profile);
}

/// Bucket type to bucket name above an OSD.
pub fn location(map: &OsdMap, osd: OsdId) -> BTreeMap<String, String> {
    map.crush.full_location(osd.0).into_iter().collect()
}

/// An OSD's CRUSH weight by its size: TiB, with four decimals, as the OSD of stock Ceph writes it into its command.
pub fn weight_of_size(bytes: u64) -> f64 {
    let tib = (bytes as f64 / (1u64 << 40) as f64 * 10_000.0).round() / 10_000.0;
    tib.max(WEIGHT_MIN_TIB)
}

/// Puts a booting OSD where it says it stands, and gives it its device class, unless an operator decided otherwise.
pub fn place_booting(osdmap: &mut OsdMapService, osd: OsdId, size_bytes: u64, class: &str, place: &BTreeMap<String, String>) {
    let mut crush = CrushMap::clone(&pending_crush(osdmap));
    let mut place = place.clone();
    place.entry("root".to_owned()).or_insert_with(|| "default".to_owned());
    let name = format!("osd.{osd}");
    let weight = (weight_of_size(size_bytes) * f64::from(crush::ONE)) as u32;
    let mut changed = match crush.create_or_move_item(osd.0, weight, &name, &place) {
        Ok(changed) => changed,
        Err(e) => {
            tracing::warn!("osd.{osd} cannot be placed at {place:?}: {e}");
            false
        }
    };
    if !class.is_empty() && crush.item_class(osd.0).is_none() {
        match crush.set_device_class(osd.0, class) {
            Ok(set) => changed |= set,
            Err(e) => tracing::warn!("osd.{osd} cannot be given class {class}: {e}"),
        }
    }
    if changed {
        osdmap.set_crush(&crush);
    }
}

/// The CRUSH map as the next epoch will have it.
pub fn pending_crush(osdmap: &OsdMapService) -> Arc<CrushMap> {
    let pending = osdmap.pending().crush.as_ref().and_then(|raw| denc::from_bytes(raw).ok());
    pending.map_or_else(|| osdmap.map.crush.clone(), Arc::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_what_a_first_boot_gives() {
        let of = weight_of_size;
        assert_eq!((of(10 << 30), of(4_000_787_030_016), of(1 << 20)), (0.0098, 3.6387, 0.00001));
    }
}
