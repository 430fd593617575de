//! The map as JSON, as `ceph osd crush dump` and its like answer.
//!
//! Holds: the fields of stock in its order.
//! Upstream: CrushWrapper::dump* in src/crush/CrushWrapper.cc.

use crate::hash::RJENKINS1;
use crate::{Bucket, CrushMap, Op, Profile, Rule, Step, Tunables, features};
use serde_json::{Map, Value, json};

impl CrushMap {
    /// `osd crush dump`.
    pub fn dump_json(&self) -> Value {
        json!({
            "devices": self.dump_devices(),
            "types": self.dump_types(),
            "buckets": self.iter_buckets().map(|b| self.dump_bucket(b)).collect::<Value>(),
            "rules": self.dump_rules(),
            "tunables": self.dump_tunables(),
            "choose_args": self.dump_choose_args(),
        })
    }

    fn dump_devices(&self) -> Value {
        // OSD numbers without a name are listed too, up to a number that no real cluster has.
        let listed = 0..self.max_devices.min(1 << 16);
        let device = |id: i32| {
            let mut device = json!({"id": id, "name": self.name(id).map_or_else(|| format!("device{id}"), str::to_owned)});
            if let Some(class) = self.item_class(id) {
                push(&mut device, "class", class.into());
            }
            device
        };
        listed.map(device).collect()
    }

    fn dump_types(&self) -> Value {
        let leaf = (!self.type_names.contains_key(&0)).then(|| json!({"type_id": 0, "name": "device"}));
        let named = self.type_names.range(0..).map(|(kind, name)| json!({"type_id": kind, "name": name}));
        leaf.into_iter().chain(named).collect()
    }

    fn dump_bucket(&self, b: &Bucket) -> Value {
        let mut bucket = json!({"id": b.id});
        if let Some(name) = self.name(b.id) {
            push(&mut bucket, "name", name.into());
        }
        push(&mut bucket, "type_id", b.kind.into());
        if let Some(name) = self.type_name(b.kind.into()) {
            push(&mut bucket, "type_name", name.into());
        }
        push(&mut bucket, "weight", int(b.weight));
        push(&mut bucket, "alg", b.alg.name().into());
        push(&mut bucket, "hash", if b.hash == RJENKINS1 { "rjenkins1" } else { "unknown" }.into());
        let item = |(pos, id): (usize, &i32)| json!({"id": id, "weight": int(b.item_weight(pos)), "pos": pos});
        push(&mut bucket, "items", b.items.iter().enumerate().map(item).collect());
        bucket
    }

    /// `osd crush rule dump`.
    pub fn dump_rules(&self) -> Value {
        self.iter_rules().map(|(number, rule)| self.dump_rule(number, rule)).collect()
    }

    /// `osd crush rule dump NAME`.
    pub fn dump_rule(&self, number: u32, rule: &Rule) -> Value {
        let mut out = json!({"rule_id": number});
        if let Some(name) = self.rule_name(number) {
            push(&mut out, "rule_name", name.into());
        }
        push(&mut out, "ruleset", rule.ruleset.into());
        push(&mut out, "type", rule.kind.into());
        push(&mut out, "min_size", rule.min_size.into());
        push(&mut out, "max_size", rule.max_size.into());
        push(&mut out, "steps", rule.steps.iter().map(|step| self.dump_step(step)).collect());
        out
    }

    fn dump_step(&self, step: &Step) -> Value {
        let op = step.op();
        let name = op.map(|op| op.words().replace(' ', "_"));
        match op {
            Some(Op::Noop | Op::Emit) => json!({"op": name}),
            Some(Op::Take) => {
                json!({"op": name, "item": step.arg1, "item_name": self.name(step.arg1).unwrap_or_default()})
            }
            Some(Op::ChooseFirstn | Op::ChooseIndep | Op::ChooseleafFirstn | Op::ChooseleafIndep) => {
                json!({"op": name, "num": step.arg1, "type": self.type_name(step.arg2).unwrap_or_default()})
            }
            Some(Op::SetChooseTries | Op::SetChooseleafTries) => json!({"op": name, "num": step.arg1}),
            _ => json!({"opcode": step.op, "arg1": step.arg1, "arg2": step.arg2}),
        }
    }

    /// `osd crush show-tunables`.
    pub fn dump_tunables(&self) -> Value {
        let t = &self.tunables;
        let profile = t.profile();
        let needs = |feature: u64| i32::from(self.required_features() & feature == feature);
        let own = |feature: u64| i32::from(t.required_features() & feature == feature);
        let any_step = |ops: &[Op]| {
            let mut steps = self.iter_rules().flat_map(|(_, rule)| &rule.steps);
            i32::from(steps.any(|step| step.op().is_some_and(|op| ops.contains(&op))))
        };
        json!({
            "choose_local_tries": t.choose_local_tries,
            "choose_local_fallback_tries": t.choose_local_fallback_tries,
            "choose_total_tries": t.choose_total_tries,
            "chooseleaf_descend_once": t.chooseleaf_descend_once,
            "chooseleaf_vary_r": t.chooseleaf_vary_r,
            "chooseleaf_stable": t.chooseleaf_stable,
            "straw_calc_version": t.straw_calc_version,
            "allowed_bucket_algs": t.allowed_bucket_algs,
            "profile": profile.map_or("unknown", Profile::name),
            "optimal_tunables": i32::from(profile == Some(Profile::Jewel)),
            "legacy_tunables": i32::from(profile == Some(Profile::Argonaut)),
            "minimum_required_version": self.minimum_release(),
            "require_feature_tunables": own(features::TUNABLES),
            "require_feature_tunables2": own(features::TUNABLES2),
            "has_v2_rules": needs(features::V2),
            "require_feature_tunables3": own(features::TUNABLES3),
            "has_v3_rules": any_step(&[Op::SetChooseleafVaryR]),
            "has_v4_buckets": needs(features::V4),
            "require_feature_tunables5": own(features::TUNABLES5),
            "has_v5_rules": any_step(&[Op::SetChooseleafStable]),
        })
    }

    /// The oldest release whose clients place by this map.
    pub fn minimum_release(&self) -> &'static str {
        let needs = self.required_features();
        let own = self.tunables.required_features();
        match () {
            _ if needs & features::TUNABLES5 != 0 => "jewel",
            _ if needs & features::V4 != 0 => "hammer",
            _ if own & features::TUNABLES3 != 0 => "firefly",
            _ if own & (features::TUNABLES | features::TUNABLES2) != 0 => "bobtail",
            _ => "argonaut",
        }
    }

    /// The feature bits a client needs to place by this map.
    pub fn required_features(&self) -> u64 {
        let mut needs = self.tunables.required_features();
        for step in self.iter_rules().flat_map(|(_, rule)| &rule.steps) {
            needs |= match step.op() {
                Some(Op::ChooseIndep | Op::ChooseleafIndep | Op::SetChooseTries | Op::SetChooseleafTries) => features::V2,
                Some(Op::SetChooseleafVaryR) => features::TUNABLES3,
                Some(Op::SetChooseleafStable) => features::TUNABLES5,
                _ => 0,
            };
        }
        if self.iter_buckets().any(|b| b.alg.number() == 5) {
            needs |= features::V4;
        }
        if self.has_incompatible_weight_sets() {
            needs |= features::CHOOSE_ARGS;
        }
        needs
    }

    /// Whether weight sets cannot be baked into the buckets for readers that know none.
    fn has_incompatible_weight_sets(&self) -> bool {
        let plain = |arg: &crate::ChooseArg| arg.is_empty() || (arg.weight_set.len() == 1 && arg.ids.is_empty());
        match self.choose_args.first_key_value() {
            None => false,
            Some((&set, args)) => {
                self.choose_args.len() > 1 || set != crate::COMPAT_WEIGHT_SET || !args.values().all(plain)
            }
        }
    }

    fn dump_choose_args(&self) -> Value {
        let mut sets = Map::new();
        for (set, args) in &self.choose_args {
            let mut list = Vec::new();
            for (&index, arg) in args.iter().filter(|(_, arg)| !arg.is_empty()) {
                let mut entry = json!({"bucket_id": -1 - i64::from(index)});
                if !arg.weight_set.is_empty() {
                    let row = |weights: &Vec<u32>| weights.iter().map(|&w| float(w)).collect::<Value>();
                    push(&mut entry, "weight_set", arg.weight_set.iter().map(row).collect());
                }
                if !arg.ids.is_empty() {
                    push(&mut entry, "ids", arg.ids.clone().into());
                }
                list.push(entry);
            }
            sets.insert(set.to_string(), list.into());
        }
        sets.into()
    }
}

impl Tunables {
    /// The feature bits a client needs because a tunable is not what it was before there were tunables.
    pub fn required_features(&self) -> u64 {
        let old = Tunables::LEGACY;
        let tries = |t: &Tunables| (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries);
        let when = |differs: bool, feature: u64| if differs { feature } else { 0 };
        when(tries(self) != tries(&old), features::TUNABLES)
            | when(self.chooseleaf_descend_once != 0, features::TUNABLES2)
            | when(self.chooseleaf_vary_r != 0, features::TUNABLES3)
            | when(self.chooseleaf_stable != 0, features::TUNABLES5)
    }
}

/// A 16.16 fixed point weight as JSON trees have it: a 32-bit float, whole numbers without a point.
pub fn float(weight: u32) -> Value {
    let w = f64::from(weight as f32 / 65536.0);
    if w.fract() == 0.0 { (w as i64).into() } else { w.into() }
}

/// Weights pass through signed integers on their way to JSON.
fn int(weight: u32) -> Value {
    (weight as i32).into()
}

fn push(object: &mut Value, name: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(name.to_owned(), value);
    }
}
