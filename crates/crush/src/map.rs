//! The map: a hierarchy of buckets, the rules that walk it, and what everything is called.
//!
//! Holds: `buckets[i].id == -1 - i`; `max_devices` is above every OSD that is in a bucket or has a name.
//! Upstream: struct crush_map in src/crush/crush.h, class CrushWrapper in src/crush/CrushWrapper.h.

use crate::{Alg, Bucket, COMPAT_WEIGHT_SET, Tunables};
use std::collections::BTreeMap;

/// A CRUSH map (`CrushWrapper`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrushMap {
    /// Bucket `-1 - i` at `i`. The length counts on the wire: it grows by doubling and does not shrink.
    pub buckets: Vec<Option<Bucket>>,
    /// Rules by number. The length counts on the wire too.
    pub rules: Vec<Option<Rule>>,
    /// One more than the highest OSD that is in a bucket or has a name.
    pub max_devices: i32,
    pub tunables: Tunables,
    /// Bucket type number to name; 0 is the leaf type, `osd`.
    pub type_names: BTreeMap<i32, String>,
    /// Item id to name, for buckets and OSDs.
    pub names: BTreeMap<i32, String>,
    /// Rule number to name.
    pub rule_names: BTreeMap<i32, String>,
    /// OSD (or shadow bucket) to device class id.
    pub class_of: BTreeMap<i32, i32>,
    /// Device class id to name.
    pub class_names: BTreeMap<i32, String>,
    /// Bucket id to device class id to id of the shadow bucket with only that class's OSDs.
    pub class_bucket: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Weight sets by pool, or -1 for all pools without their own.
    pub choose_args: BTreeMap<i64, ChooseArgs>,
}

/// Replacement weights and ids (`crush_choose_arg_map`): bucket index (-1 - id) to its replacements.
pub type ChooseArgs = BTreeMap<u32, ChooseArg>;

/// What one straw2 bucket draws with instead of its own weights and ids (`crush_choose_arg`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChooseArg {
    /// One list of item weights per replica position; the last serves all later ones. Empty = the bucket's own.
    pub weight_set: Vec<Vec<u32>>,
    /// Ids hashed in place of the items'; empty = the items' own.
    pub ids: Vec<i32>,
}

impl ChooseArg {
    /// True if nothing is replaced; such entries are not written.
    pub fn is_empty(&self) -> bool {
        self.weight_set.is_empty() && self.ids.is_empty()
    }
}

/// A placement rule (`crush_rule`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// Equal to the rule's number since Luminous.
    pub ruleset: u8,
    /// 1 replicated, 3 erasure (`pg_pool_t::TYPE_*`).
    pub kind: u8,
    /// Smallest and largest pool size it is meant for; nobody asks any more.
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<Step>,
}

/// One step of a rule (`crush_rule_step`): an operation and its two arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// An `Op` number; unknown ones do nothing.
    pub op: u32,
    pub arg1: i32,
    pub arg2: i32,
}

/// The operations of rule steps (`crush_opcodes`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    Noop = 0,
    /// arg1: item to start from.
    Take = 1,
    /// arg1: how many (0 or below: that many fewer than asked for), arg2: bucket type.
    ChooseFirstn = 2,
    ChooseIndep = 3,
    Emit = 4,
    ChooseleafFirstn = 6,
    ChooseleafIndep = 7,
    /// arg1 overrides a tunable for the rest of the rule; so with all that follow.
    SetChooseTries = 8,
    SetChooseleafTries = 9,
    SetChooseLocalTries = 10,
    SetChooseLocalFallbackTries = 11,
    SetChooseleafVaryR = 12,
    SetChooseleafStable = 13,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 13] = [
        Op::Noop,
        Op::Take,
        Op::ChooseFirstn,
        Op::ChooseIndep,
        Op::Emit,
        Op::ChooseleafFirstn,
        Op::ChooseleafIndep,
        Op::SetChooseTries,
        Op::SetChooseleafTries,
        Op::SetChooseLocalTries,
        Op::SetChooseLocalFallbackTries,
        Op::SetChooseleafVaryR,
        Op::SetChooseleafStable,
    ];

    /// The operation of that number.
    pub fn from_number(n: u32) -> Option<Op> {
        Op::ALL.into_iter().find(|&op| op as u32 == n)
    }
}

impl Step {
    /// A step without arguments it does not use.
    pub fn new(op: Op, arg1: i32, arg2: i32) -> Step {
        Step { op: op as u32, arg1, arg2 }
    }

    /// What it does; `None` for numbers of the future.
    pub fn op(&self) -> Option<Op> {
        Op::from_number(self.op)
    }
}

impl CrushMap {
    /// The bucket of that id.
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        self.buckets.get(bucket_index(id)?)?.as_ref()
    }

    /// All buckets in the order of their places: -1, -2, ...
    pub fn iter_buckets(&self) -> impl DoubleEndedIterator<Item = &Bucket> {
        self.buckets.iter().flatten()
    }

    /// The rule of that number.
    pub fn rule(&self, number: u32) -> Option<&Rule> {
        self.rules.get(number as usize)?.as_ref()
    }

    /// All rules with their numbers, ascending.
    pub fn iter_rules(&self) -> impl DoubleEndedIterator<Item = (u32, &Rule)> {
        self.rules.iter().enumerate().filter_map(|(i, rule)| Some((i as u32, rule.as_ref()?)))
    }

    /// Name of an item.
    pub fn name(&self, id: i32) -> Option<&str> {
        self.names.get(&id).map(String::as_str)
    }

    /// Item of that name.
    pub fn item(&self, name: &str) -> Option<i32> {
        id_of(&self.names, name)
    }

    /// Name of a bucket type.
    pub fn type_name(&self, kind: i32) -> Option<&str> {
        self.type_names.get(&kind).map(String::as_str)
    }

    /// Number of the bucket type of that name.
    pub fn type_id(&self, name: &str) -> Option<i32> {
        id_of(&self.type_names, name)
    }

    /// Name of a rule.
    pub fn rule_name(&self, number: u32) -> Option<&str> {
        self.rule_names.get(&(number as i32)).map(String::as_str)
    }

    /// Number of the rule of that name.
    pub fn rule_id(&self, name: &str) -> Option<u32> {
        id_of(&self.rule_names, name).and_then(|id| u32::try_from(id).ok())
    }

    /// Id of the device class of that name.
    pub fn class_id(&self, name: &str) -> Option<i32> {
        id_of(&self.class_names, name)
    }

    /// Name of the device class of an item.
    pub fn item_class(&self, id: i32) -> Option<&str> {
        self.class_names.get(self.class_of.get(&id)?).map(String::as_str)
    }

    /// The weight set that placement of `pool` uses: its own, or the compat one, or none.
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&COMPAT_WEIGHT_SET))
    }

    /// Makes weight sets fit the buckets again after these have changed: what belongs to no straw2 bucket goes, lists
    /// of the wrong length are cut or filled with 0 (`update_choose_args` upstream).
    pub(crate) fn repair_choose_args(&mut self) {
        for args in self.choose_args.values_mut() {
            let positions = args.values().map(|arg| arg.weight_set.len()).find(|&n| n > 0).unwrap_or(1);
            args.retain(|&index, arg| {
                let Some(Some(bucket)) = self.buckets.get(index as usize) else { return false };
                if !matches!(bucket.alg, Alg::Straw2 { .. }) {
                    return false;
                }
                if arg.weight_set.len() == positions {
                    arg.weight_set.iter_mut().for_each(|weights| weights.resize(bucket.items.len(), 0));
                }
                !arg.is_empty()
            });
        }
    }

    /// Recomputes `max_devices` from buckets and names (`finalize` upstream).
    pub fn finalize(&mut self) {
        let held = self.iter_buckets().flat_map(|b| &b.items).copied().max();
        let named = self.names.last_key_value().map(|(&id, _)| id);
        self.max_devices = held.max(named).map_or(0, |id| id.saturating_add(1).max(0));
    }
}

/// The place of a bucket in `CrushMap::buckets`; `None` for OSDs.
pub(crate) fn bucket_index(id: i32) -> Option<usize> {
    usize::try_from(!id).ok()
}

/// The last id of that name, as stock's reverse maps have it.
fn id_of(names: &BTreeMap<i32, String>, name: &str) -> Option<i32> {
    names.iter().rev().find(|(_, n)| *n == name).map(|(&id, _)| id)
}
