//! The CRUSH map as JSON.

use crush::{Alg, CrushMap, Op, Profile, Rule};
use serde_json::{Map, Value, json};

/// `osd crush dump`.
pub fn map(crush: &CrushMap) -> Value {
    let device = |id: i32| {
        let name = crush.name(id).map_or_else(|| format!("device{id}"), str::to_owned);
        let mut v = json!({"id": id, "name": name});
        if let (Some(class), Some(fields)) = (crush.item_class(id), v.as_object_mut()) {
            fields.insert("class".into(), class.into());
        }
        v
    };
    let types: Vec<Value> = crush.type_names.iter().map(|(id, name)| json!({"type_id": id, "name": name})).collect();
    json!({
        "devices": (0..crush.max_devices).map(device).collect::<Vec<_>>(),
        "types": types,
        "buckets": crush.iter_buckets().map(|b| bucket(crush, b)).collect::<Vec<_>>(),
        "rules": crush.iter_rules().map(|(n, r)| rule(crush, n, r)).collect::<Vec<_>>(),
        "tunables": tunables(crush),
        "choose_args": choose_args(crush),
    })
}

fn bucket(crush: &CrushMap, b: &crush::Bucket) -> Value {
    let items: Vec<Value> = b.items.iter().enumerate().map(|(pos, id)| json!({"id": id, "weight": b.item_weight(pos), "pos": pos})).collect();
    json!({
        "id": b.id,
        "name": crush.name(b.id).unwrap_or(""),
        "type_id": b.kind,
        "type_name": crush.type_name(i32::from(b.kind)).unwrap_or(""),
        "weight": b.weight,
        "alg": b.alg.name(),
        "hash": "rjenkins1",
        "items": items,
    })
}

/// One rule, as `osd crush rule dump` shows it.
pub fn rule(crush: &CrushMap, number: u32, rule: &Rule) -> Value {
    let steps: Vec<Value> = rule.steps.iter().map(|s| step(crush, s)).collect();
    json!({
        "rule_id": number,
        "rule_name": crush.rule_name(number).unwrap_or(""),
        "ruleset": rule.ruleset,
        "type": rule.kind,
        "min_size": rule.min_size,
        "max_size": rule.max_size,
        "steps": steps,
    })
}

fn step(crush: &CrushMap, step: &crush::Step) -> Value {
    let choose = |op: &str| json!({"op": op, "num": step.arg1, "type": crush.type_name(step.arg2).unwrap_or("")});
    let set = |op: &str| json!({"op": op, "num": step.arg1});
    match step.op() {
        Some(Op::Noop) => json!({"op": "noop"}),
        Some(Op::Take) => json!({"op": "take", "item": step.arg1, "item_name": crush.name(step.arg1).unwrap_or("")}),
        Some(Op::Emit) => json!({"op": "emit"}),
        Some(Op::ChooseFirstn) => choose("choose_firstn"),
        Some(Op::ChooseIndep) => choose("choose_indep"),
        Some(Op::ChooseleafFirstn) => choose("chooseleaf_firstn"),
        Some(Op::ChooseleafIndep) => choose("chooseleaf_indep"),
        Some(Op::SetChooseTries) => set("set_choose_tries"),
        Some(Op::SetChooseleafTries) => set("set_chooseleaf_tries"),
        _ => json!({"opcode": step.op, "arg1": step.arg1, "arg2": step.arg2}),
    }
}

/// `osd crush show-tunables`: the switches, and what they ask of clients.
pub fn tunables(crush: &CrushMap) -> Value {
    let t = &crush.tunables;
    let profile = t.profile();
    let rules_use = |ops: &[Op]| crush.iter_rules().flat_map(|(_, r)| &r.steps).any(|s| s.op().is_some_and(|op| ops.contains(&op)));
    let v2 = rules_use(&[Op::ChooseIndep, Op::ChooseleafIndep, Op::SetChooseTries, Op::SetChooseleafTries]);
    let v3 = rules_use(&[Op::SetChooseleafVaryR]);
    let v5 = rules_use(&[Op::SetChooseleafStable]);
    let v4 = crush.iter_buckets().any(|b| matches!(b.alg, Alg::Straw2 { .. }));
    let old = t.choose_local_tries != 2 || t.choose_local_fallback_tries != 5 || t.choose_total_tries != 19;
    let (t2, t3, t5) = (t.chooseleaf_descend_once != 0, t.chooseleaf_vary_r != 0, t.chooseleaf_stable != 0);
    let minimum = match () {
        () if v5 || t5 => "jewel",
        () if v4 => "hammer",
        () if v3 || t3 => "firefly",
        () if v2 || t2 || old => "bobtail",
        () => "argonaut",
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
        "optimal_tunables": u8::from(profile == Some(Profile::Jewel)),
        "legacy_tunables": u8::from(profile == Some(Profile::Argonaut)),
        "minimum_required_version": minimum,
        "require_feature_tunables": u8::from(old),
        "require_feature_tunables2": u8::from(t2),
        "has_v2_rules": u8::from(v2),
        "require_feature_tunables3": u8::from(t3),
        "has_v3_rules": u8::from(v3),
        "has_v4_buckets": u8::from(v4),
        "require_feature_tunables5": u8::from(t5),
        "has_v5_rules": u8::from(v5),
    })
}

/// The weight sets, by the number of their pool.
pub fn choose_args(crush: &CrushMap) -> Value {
    let weight = |w: &u32| crate::reply::num(f64::from(*w) / 65536.0);
    let one = |(index, arg): (&u32, &crush::ChooseArg)| {
        let mut v = Map::new();
        v.insert("bucket_id".into(), (-1 - i64::from(*index)).into());
        if !arg.weight_set.is_empty() {
            let sets: Vec<Vec<Value>> = arg.weight_set.iter().map(|w| w.iter().map(weight).collect()).collect();
            v.insert("weight_set".into(), json!(sets));
        }
        if !arg.ids.is_empty() {
            v.insert("ids".into(), json!(arg.ids));
        }
        Value::Object(v)
    };
    let sets = crush.choose_args.iter().map(|(pool, args)| (pool.to_string(), args.iter().map(one).collect::<Vec<_>>().into()));
    Value::Object(sets.collect())
}
