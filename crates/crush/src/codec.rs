//! The binary form of a map.
//!
//! Holds: what stock wrote is read, and written again to the same bytes for the features it was written for; a count
//! from a stranger reserves nothing.
//! Format: no envelope. u32 magic, i32 max_buckets, u32 max_rules, i32 max_devices; buckets (u32 alg, 0 = no bucket);
//! rules (u32 presence); three name maps; then tails that older writers leave out, in this order: three choose
//! tunables, descend_once, vary_r, straw_calc, allowed algs, stable, device classes, weight sets, MSR tunables.
//! Upstream: CrushWrapper::{encode,decode} in src/crush/CrushWrapper.cc.

use crate::map::bucket_index;
use crate::{Alg, Bucket, COMPAT_WEIGHT_SET, ChooseArg, ChooseArgs, CrushMap, Rule, ShapeError, Step, Tunables};
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};
use std::collections::BTreeMap;

const MAGIC: u32 = 0x0001_0000;
/// Places for buckets. An empty one takes 4 bytes of a stranger's map and many more of ours.
pub(crate) const BUCKETS_MAX: u32 = 1 << 20;
/// Places for rules; more than 256 (`CRUSH_MAX_RULES`) are never added, but might be read.
const RULES_MAX: u32 = 1 << 16;
/// Weights in all weight sets together: lists that are too short are filled up, which must not be a way to fill memory.
const WEIGHTS_MAX: usize = 1 << 22;

/// Cluster feature bits that decide how a map is written, and that say what a reader must know to place by it.
pub mod features {
    /// Bits that say "this is the second meaning of a feature bit" (`CEPH_FEATURE_INCARNATION_2`).
    const SECOND: u64 = 1 << 57;
    /// The reader knows choose_local_tries and its two companions.
    pub const TUNABLES: u64 = 1 << 18;
    /// ... chooseleaf_descend_once.
    pub const TUNABLES2: u64 = 1 << 25;
    /// ... indep rules and the set_* steps.
    pub const V2: u64 = 1 << 36;
    /// ... chooseleaf_vary_r.
    pub const TUNABLES3: u64 = 1 << 41;
    /// ... straw2.
    pub const V4: u64 = 1 << 48;
    /// ... chooseleaf_stable.
    pub const TUNABLES5: u64 = 1 << 58;
    /// ... device classes and weight sets (`SERVER_LUMINOUS`, `CRUSH_CHOOSE_ARGS`).
    pub const CHOOSE_ARGS: u64 = 1 << 21 | SECOND;
    /// All of them.
    pub const ALL: u64 = TUNABLES | TUNABLES2 | V2 | TUNABLES3 | V4 | TUNABLES5 | CHOOSE_ARGS;
}

impl Encode for CrushMap {
    /// Writes as much as the reader's features say it understands. A reader without weight sets gets the compat one
    /// in place of the buckets' own weights.
    fn encode(&self, e: &mut Encoder) {
        let luminous = e.has(features::CHOOSE_ARGS);
        let baked_in = if luminous { None } else { self.choose_args.get(&COMPAT_WEIGHT_SET) };
        e.put(&MAGIC).count(self.buckets.len()).count(self.rules.len()).put(&self.max_devices);
        for (i, bucket) in self.buckets.iter().enumerate() {
            let weights = baked_in.and_then(|args| args.get(&(i as u32))).and_then(|arg| arg.weight_set.first());
            encode_bucket(e, bucket.as_ref(), weights);
        }
        for rule in &self.rules {
            e.put(&u32::from(rule.is_some()));
            if let Some(rule) = rule {
                rule.encode(e);
            }
        }
        e.put(&self.type_names).put(&self.names).put(&self.rule_names);
        encode_tunables(e, &self.tunables);
        if luminous {
            e.put(&self.class_of).put(&self.class_names).put(&self.class_bucket);
            encode_choose_args(e, &self.choose_args);
            if let Some(msr) = &self.tunables.msr {
                e.put(msr);
            }
        }
    }
}

fn encode_bucket(e: &mut Encoder, bucket: Option<&Bucket>, straw2_weights: Option<&Vec<u32>>) {
    let Some(b) = bucket else {
        e.put(&0u32);
        return;
    };
    let alg = b.alg.number();
    e.put(&u32::from(alg)).put(&b.id).put(&b.kind).put(&alg).put(&b.hash).put(&b.weight);
    e.put(&b.items);
    match &b.alg {
        Alg::Uniform { item_weight } => item_weight.encode(e),
        Alg::List { item_weights: one, sum_weights: two } | Alg::Straw { item_weights: one, straws: two } => {
            one.iter().zip(two).for_each(|pair| {
                e.put(pair.0).put(pair.1);
            });
        }
        Alg::Tree { node_weights } => {
            e.put(&(node_weights.len() as u8));
            put_all(e, node_weights);
        }
        Alg::Straw2 { item_weights } => put_all(e, straw2_weights.unwrap_or(item_weights)),
    }
}

/// Numbers whose count the reader knows already.
fn put_all(e: &mut Encoder, numbers: &[u32]) {
    numbers.iter().for_each(|n| n.encode(e));
}

fn encode_tunables(e: &mut Encoder, t: &Tunables) {
    e.put(&t.choose_local_tries).put(&t.choose_local_fallback_tries).put(&t.choose_total_tries);
    e.put(&t.chooseleaf_descend_once).put(&t.chooseleaf_vary_r).put(&t.straw_calc_version).put(&t.allowed_bucket_algs);
    if e.has(features::TUNABLES5) {
        e.put(&t.chooseleaf_stable);
    }
}

fn encode_choose_args(e: &mut Encoder, all: &BTreeMap<i64, ChooseArgs>) {
    e.count(all.len());
    for (pool, args) in all {
        e.put(pool).count(args.values().filter(|arg| !arg.is_empty()).count());
        for (index, arg) in args.iter().filter(|(_, arg)| !arg.is_empty()) {
            e.put(index).put(&arg.weight_set).put(&arg.ids);
        }
    }
}

impl Encode for Rule {
    fn encode(&self, e: &mut Encoder) {
        e.count(self.steps.len());
        e.raw(&[self.ruleset, self.kind, self.min_size, self.max_size]);
        for step in &self.steps {
            e.put(&step.op).put(&step.arg1).put(&step.arg2);
        }
    }
}

impl Decode for CrushMap {
    /// Reads a map to the end of the buffer: which tails there are is told by where it ends.
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        if u32::decode(d)? != MAGIC {
            return Err(DecodeError::Invalid("not a CRUSH map: bad magic number"));
        }
        let (max_buckets, max_rules, _max_devices) = <(i32, u32, i32)>::decode(d)?;
        let max_buckets = u32::try_from(max_buckets).unwrap_or(u32::MAX);
        if max_buckets > BUCKETS_MAX || max_rules > RULES_MAX {
            return Err(DecodeError::Invalid("a CRUSH map of more buckets or rules than anyone has"));
        }
        let mut map = CrushMap { tunables: Tunables::LEGACY, ..CrushMap::default() };
        for i in 0..max_buckets {
            map.buckets.push(decode_bucket(d, i)?);
        }
        for _ in 0..max_rules {
            let present = u32::decode(d)? != 0;
            map.rules.push(if present { Some(Rule::decode(d)?) } else { None });
        }
        map.type_names = decode_names(d)?;
        map.names = decode_names(d)?;
        map.rule_names = decode_names(d)?;
        decode_tails(d, &mut map)?;
        map.repair_choose_args();
        map.finalize();
        match map.check_shape() {
            Ok(()) | Err(ShapeError::Dangling) => Ok(map),
            Err(ShapeError::Cycle) => Err(DecodeError::Invalid("a CRUSH bucket that contains itself")),
            Err(ShapeError::TooLarge) => Err(DecodeError::Invalid("a CRUSH hierarchy out of all proportion")),
        }
    }
}

fn decode_tails(d: &mut Decoder<'_>, map: &mut CrushMap) -> Result<(), DecodeError> {
    let t = &mut map.tunables;
    if d.is_empty() {
        return Ok(());
    }
    (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries) = d.get()?;
    decode_tail(d, &mut t.chooseleaf_descend_once)?;
    decode_tail(d, &mut t.chooseleaf_vary_r)?;
    decode_tail(d, &mut t.straw_calc_version)?;
    decode_tail(d, &mut t.allowed_bucket_algs)?;
    decode_tail(d, &mut t.chooseleaf_stable)?;
    if !d.is_empty() {
        (map.class_of, map.class_names, map.class_bucket) = d.get()?;
    }
    if !d.is_empty() {
        let mut weights = 0;
        for _ in 0..d.count()? {
            let pool = d.get()?;
            let args = decode_choose_args(d, &map.buckets, &mut weights)?;
            map.choose_args.insert(pool, args);
        }
    }
    if !d.is_empty() {
        map.tunables.msr = Some(d.get()?);
    }
    Ok(())
}

/// A value that is there unless the map ends before it.
fn decode_tail<T: Decode>(d: &mut Decoder<'_>, into: &mut T) -> Result<(), DecodeError> {
    if !d.is_empty() {
        *into = d.get()?;
    }
    Ok(())
}

fn decode_bucket(d: &mut Decoder<'_>, index: u32) -> Result<Option<Bucket>, DecodeError> {
    let alg = u32::decode(d)?;
    if alg == 0 {
        return Ok(None);
    }
    let (id, kind): (i32, u16) = d.get()?;
    let [alg_again, hash] = d.array()?;
    if bucket_index(id) != Some(index as usize) || u32::from(alg_again) != alg {
        return Err(DecodeError::Invalid("a CRUSH bucket that contradicts its place or algorithm"));
    }
    let weight = d.get()?;
    let items: Vec<i32> = d.get()?;
    let alg = match alg {
        1 => Alg::Uniform { item_weight: d.get()? },
        2 => {
            let (item_weights, sum_weights) = decode_pairs(d, items.len())?;
            Alg::List { item_weights, sum_weights }
        }
        3 => {
            let nodes = usize::from(u8::decode(d)?);
            Alg::Tree { node_weights: decode_numbers(d, nodes)? }
        }
        4 => {
            let (item_weights, straws) = decode_pairs(d, items.len())?;
            Alg::Straw { item_weights, straws }
        }
        5 => Alg::Straw2 { item_weights: decode_numbers(d, items.len())? },
        other => return Err(DecodeError::BadTag { what: "CRUSH bucket algorithm", tag: u64::from(other) }),
    };
    Ok(Some(Bucket { id, kind, hash, weight, items, alg }))
}

fn decode_numbers(d: &mut Decoder<'_>, n: usize) -> Result<Vec<u32>, DecodeError> {
    (0..n).map(|_| d.get()).collect()
}

fn decode_pairs(d: &mut Decoder<'_>, n: usize) -> Result<(Vec<u32>, Vec<u32>), DecodeError> {
    (0..n).map(|_| d.get::<(u32, u32)>()).collect()
}

/// A name map, whose keys some old writers made 64 bits wide: the high half then reads as an empty name.
fn decode_names(d: &mut Decoder<'_>) -> Result<BTreeMap<i32, String>, DecodeError> {
    let mut names = BTreeMap::new();
    for _ in 0..d.count()? {
        let key = d.get()?;
        let mut len = d.count()?;
        if len == 0 {
            len = d.count()?;
        }
        let name = std::str::from_utf8(d.raw(len)?).map_err(|_| DecodeError::Invalid("a CRUSH name that is not UTF-8"))?;
        names.insert(key, name.to_owned());
    }
    Ok(names)
}

/// One weight set; `weights` counts those of all of them, as they will be once they fit their buckets.
fn decode_choose_args(
    d: &mut Decoder<'_>,
    buckets: &[Option<Bucket>],
    weights: &mut usize,
) -> Result<ChooseArgs, DecodeError> {
    let mut args = ChooseArgs::new();
    for _ in 0..d.count()? {
        let index: u32 = d.get()?;
        let arg = ChooseArg { weight_set: d.get()?, ids: d.get()? };
        let bucket = buckets.get(index as usize).ok_or(DecodeError::Invalid("a weight set for no bucket"))?;
        if !arg.ids.is_empty() && bucket.as_ref().map(Bucket::size) != Some(arg.ids.len()) {
            return Err(DecodeError::Invalid("a weight set with ids for another number of items"));
        }
        *weights = weights.saturating_add(arg.weight_set.len().saturating_mul(bucket.as_ref().map_or(0, Bucket::size)));
        if *weights > WEIGHTS_MAX {
            return Err(DecodeError::Invalid("weight sets out of all proportion"));
        }
        args.insert(index, arg);
    }
    Ok(args)
}

impl Decode for Rule {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let len = d.count()?;
        let [ruleset, kind, min_size, max_size] = d.array()?;
        let mut steps = Vec::new();
        for _ in 0..len {
            let (op, arg1, arg2) = d.get()?;
            steps.push(Step { op, arg1, arg2 });
        }
        Ok(Rule { ruleset, kind, min_size, max_size, steps })
    }
}
