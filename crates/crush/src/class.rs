//! Device classes: for every root and class a shadow tree holds only that class's OSDs, and rules take from it.
//!
//! Holds: shadow trees are exactly what the hierarchy and the OSDs' classes say; a shadow keeps its id for as long as
//! its original and class exist, so that rules go on pointing at it.
//! Upstream: rebuild_roots_with_classes, device_class_clone in src/crush/CrushWrapper.cc.

use crate::location::is_valid_name;
use crate::weight::ShadowSums;
use crate::{Alg, Bucket, CrushError, CrushMap};
use std::collections::{BTreeMap, BTreeSet};

type Result<T> = std::result::Result<T, CrushError>;

/// What a rebuild carries along.
struct Rebuild {
    /// Shadows before it, whose ids are kept.
    old: BTreeMap<i32, BTreeMap<i32, i32>>,
    used: BTreeSet<i32>,
    sums: ShadowSums,
}

impl CrushMap {
    /// Gives an OSD a device class; false if it had it. (`osd crush set-device-class`.)
    ///
    /// Errors: the OSD is bound to another class.
    pub fn set_device_class(&mut self, osd: i32, class: &str) -> Result<bool> {
        if osd < 0 || !self.item_exists(osd) {
            return Err(CrushError::NoItem(osd.to_string()));
        } else if !is_valid_name(class) {
            return Err(CrushError::BadName(class.to_owned()));
        }
        match self.item_class(osd) {
            Some(old) if old == class => return Ok(false),
            Some(old) => return Err(CrushError::ClassBound { osd, old: old.to_owned(), new: class.to_owned() }),
            None => {}
        }
        self.atomically(|map| {
            let id = map.class_id_or_new(class);
            map.class_of.insert(osd, id);
            map.rebuild_classes().map(|()| true)
        })
    }

    /// Takes an OSD's device class away; false if it had none. (`osd crush rm-device-class`.)
    pub fn remove_device_class(&mut self, osd: i32) -> Result<bool> {
        if osd < 0 || !self.item_exists(osd) {
            return Err(CrushError::NoItem(osd.to_string()));
        }
        self.atomically(|map| match map.class_of.remove(&osd) {
            Some(_) => map.rebuild_classes().map(|()| true),
            None => Ok(false),
        })
    }

    /// Gives a device class and its shadow buckets another name. (`osd crush class rename`.)
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<()> {
        let id = self.class_id(from).ok_or_else(|| CrushError::NoClass(from.to_owned()))?;
        if self.class_id(to).is_some() {
            return Err(CrushError::ClassExists(to.to_owned()));
        } else if !is_valid_name(to) {
            return Err(CrushError::BadName(to.to_owned()));
        }
        let shadows: Vec<i32> = self.class_of.iter().filter(|&(&i, &c)| i < 0 && c == id).map(|(&i, _)| i).collect();
        for shadow in shadows {
            if let Some((original, _)) = self.name(shadow).and_then(|name| name.split_once('~')) {
                let name = format!("{original}~{to}");
                self.names.insert(shadow, name);
            }
        }
        self.class_names.insert(id, to.to_owned());
        Ok(())
    }

    /// Gives an OSD that is in no bucket yet its name, so that it can have a class.
    pub fn name_device(&mut self, osd: i32) {
        if osd >= 0 && !self.item_exists(osd) {
            self.names.insert(osd, format!("osd.{osd}"));
            self.max_devices = self.max_devices.max(osd.saturating_add(1));
        }
    }

    /// Makes a device class that no OSD has yet; its id, and false if there was one of that name. (`osd crush class create`.)
    pub fn create_class(&mut self, class: &str) -> Result<(i32, bool)> {
        if !is_valid_name(class) {
            return Err(CrushError::BadName(class.to_owned()));
        }
        let is_new = self.class_id(class).is_none();
        Ok((self.class_id_or_new(class), is_new))
    }

    /// Removes a device class, from its OSDs too; its id. Rules that take from it have to be gone. (`osd crush class rm`.)
    pub fn remove_class(&mut self, class: &str) -> Result<i32> {
        let id = self.class_id(class).ok_or_else(|| CrushError::NoClass(class.to_owned()))?;
        self.atomically(|map| {
            for osd in map.osds_of_class(class) {
                map.class_of.remove(&osd);
            }
            map.class_names.remove(&id);
            map.rebuild_classes().map(|()| id)
        })
    }

    /// The rules that take from a class's shadow trees.
    pub fn rules_of_class(&self, class: &str) -> Vec<u32> {
        let Some(class) = self.class_id(class) else { return Vec::new() };
        let takes_it = |rule| self.takes(rule).into_iter().any(|t| self.split_class(t).is_some_and(|s| s.1 == Some(class)));
        self.iter_rules().map(|(number, _)| number).filter(|&rule| takes_it(rule)).collect()
    }

    /// Id of a class, made if need be: one above the highest.
    pub(crate) fn class_id_or_new(&mut self, class: &str) -> i32 {
        self.class_id(class).unwrap_or_else(|| {
            let id = self.class_names.last_key_value().map_or(0, |(&id, _)| id.saturating_add(1));
            self.class_names.insert(id, class.to_owned());
            id
        })
    }

    /// Makes all shadow trees anew, with the ids they had; classes that no OSD and no rule uses go. Every edit here does
    /// that by itself; it is for maps that others wrote.
    pub fn rebuild_classes(&mut self) -> Result<()> {
        self.drop_dead_classes();
        let shadow_roots: Vec<i32> = self.roots().into_iter().filter(|&id| self.is_shadow(id)).collect();
        for root in shadow_roots {
            let mut tree = self.below(root);
            tree.insert(root);
            tree.into_iter().filter(|&id| id < 0).for_each(|id| self.erase_bucket(id));
        }
        let old = std::mem::take(&mut self.class_bucket);
        self.populate_classes(old)
    }

    /// Makes the shadow trees of a map that has none, with the ids that `old` has for them.
    pub(crate) fn populate_classes(&mut self, old: BTreeMap<i32, BTreeMap<i32, i32>>) -> Result<()> {
        let used = old.values().flat_map(|shadows| shadows.values().copied()).collect();
        let mut rebuild = Rebuild { old, used, sums: ShadowSums::new() };
        let classes: Vec<i32> = self.class_names.keys().copied().collect();
        for root in self.nonshadow_roots() {
            for &class in &classes {
                self.clone_for_class(root, class, &mut rebuild)?;
            }
        }
        Ok(())
    }

    fn drop_dead_classes(&mut self) {
        let takes: BTreeSet<i32> = self.iter_rules().flat_map(|(number, _)| self.takes(number)).collect();
        let of_rules = self.class_bucket.values().flatten().filter(|(_, shadow)| takes.contains(shadow));
        let of_osds = self.class_of.iter().filter(|(item, _)| **item >= 0);
        let alive: BTreeSet<i32> = of_rules.map(|(&class, _)| class).chain(of_osds.map(|(_, &class)| class)).collect();
        self.class_names.retain(|id, _| alive.contains(id));
    }

    /// Makes the shadow of a bucket and of all below it; gives its id.
    fn clone_for_class(&mut self, original: i32, class: i32, rebuild: &mut Rebuild) -> Result<i32> {
        let no_item = || CrushError::NoItem(original.to_string());
        let class_name = self.class_names.get(&class).map(String::as_str).unwrap_or_default();
        let name = format!("{}~{class_name}", self.name(original).ok_or_else(no_item)?);
        if let Some(shadow) = self.item(&name) {
            return Ok(shadow);
        }
        let bucket = self.bucket(original).ok_or_else(no_item)?.clone();
        let mut items = Vec::new();
        let mut kept = Vec::new();
        for (pos, &item) in bucket.items.iter().enumerate() {
            if item < 0 {
                let child = self.clone_for_class(item, class, rebuild)?;
                items.push((child, self.bucket(child).map_or(0, |b| b.weight)));
                kept.push(pos);
            } else if self.class_of.get(&item) == Some(&class) {
                items.push((item, bucket.item_weight(pos)));
                kept.push(pos);
            }
        }
        let was = rebuild.old.get(&original).and_then(|shadows| shadows.get(&class)).copied();
        let id = was.unwrap_or_else(|| self.free_bucket_id(|id| rebuild.used.contains(&id)));
        self.put_bucket(self.shadow_of(&bucket, id, &items)?)?;
        self.class_of.insert(id, class);
        self.names.insert(id, name);
        self.class_bucket.entry(original).or_default().insert(class, id);
        self.shadow_weight_sets(original, id, &kept, &mut rebuild.sums);
        Ok(id)
    }

    fn shadow_of(&self, original: &Bucket, id: i32, items: &[(i32, u32)]) -> Result<Bucket> {
        // The shadows of equally weighted buckets differ with their OSDs' classes: only their average fits `uniform`.
        let averaged: Vec<(i32, u32)>;
        let items = match original.alg {
            Alg::Uniform { .. } if !items.is_empty() => {
                let sum: u64 = items.iter().map(|&(_, weight)| u64::from(weight)).sum();
                let weight = (sum / items.len() as u64) as u32;
                averaged = items.iter().map(|&(item, _)| (item, weight)).collect();
                &averaged
            }
            _ => items,
        };
        let mut bucket = Bucket::new(id, original.kind, &original.alg, items, self.tunables.straw_calc_version)?;
        bucket.hash = original.hash;
        Ok(bucket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_before_osds_and_go_with_the_last_word() {
        let mut map = CrushMap::build_default(&[], "host").unwrap();
        assert_eq!((map.create_class("nvme"), map.create_class("nvme")), (Ok((0, true)), Ok((0, false))));
        assert!(map.create_class("n vme").is_err());
        map.name_device(7);
        map.set_device_class(7, "nvme").unwrap();
        let place = crate::parse_location(["root=default", "host=a"]).unwrap();
        map.create_or_move_item(7, crate::ONE, "osd.7", &place).unwrap();
        assert_eq!(map.item_class(7), Some("nvme"));
        assert!(map.item("default~nvme").is_some_and(|shadow| map.leaves(shadow).contains(&7)));
        map.check_shape().unwrap();
        assert_eq!(map.remove_class("nvme"), Ok(0));
        assert!(map.item_class(7).is_none() && map.item("default~nvme").is_none() && map.remove_class("nvme").is_err());
    }
}
