//! The mapping function: a rule walked over the map for one input.
//!
//! Holds: same answer as stock for every map stock accepts; ends for every other one: descents are as deep as there
//! are buckets at most, and `Scratch` bounds the draws.
//! Upstream: crush_do_rule, crush_choose_firstn, crush_choose_indep in src/crush/mapper.c.

use crate::draw::Scratch;
use crate::hash::rjenkins1_2;
use crate::{Alg, Bucket, ChooseArgs, CrushMap, ITEM_NONE, ONE, Op, Step};

/// A position of an indep mapping that is still open.
const UNDECIDED: i32 = 0x7fff_fffe;

impl CrushMap {
    /// Maps `x` by rule number `rule` to at most `result_max` items, usually OSDs.
    ///
    /// `weights[osd]` is how much of its share an OSD serves: 0x10000 all, 0 (or missing) none: `osd_weight` of the
    /// OSD map. A firstn rule leaves no gaps; an indep rule has `ITEM_NONE` where it found nothing. A rule that does
    /// not exist gives nothing.
    pub fn do_rule(
        &self,
        rule: u32,
        x: u32,
        result_max: usize,
        weights: &[u32],
        choose_args: Option<&ChooseArgs>,
    ) -> Vec<i32> {
        let Some(rule) = self.rule(rule) else { return Vec::new() };
        let mut mapping = Mapping {
            map: self,
            x,
            result_max,
            weights,
            choose_args,
            knobs: Knobs::of(self),
            scratch: Scratch::new(),
        };
        mapping.run(&rule.steps)
    }
}

/// Tunables as the rule's own steps override them.
#[derive(Debug, Clone, Copy)]
struct Knobs {
    tries: u32,
    leaf_tries: u32,
    local_retries: u32,
    local_fallback_retries: u32,
    vary_r: u32,
    stable: bool,
}

impl Knobs {
    fn of(map: &CrushMap) -> Knobs {
        let t = &map.tunables;
        Knobs {
            // The tunable counts retries.
            tries: t.choose_total_tries.wrapping_add(1),
            leaf_tries: 0,
            local_retries: t.choose_local_tries,
            local_fallback_retries: t.choose_local_fallback_tries,
            vary_r: u32::from(t.chooseleaf_vary_r),
            stable: t.chooseleaf_stable != 0,
        }
    }

    fn set(&mut self, op: Op, arg: i32) {
        let Ok(value) = u32::try_from(arg) else { return };
        match op {
            Op::SetChooseTries if value > 0 => self.tries = value,
            Op::SetChooseleafTries if value > 0 => self.leaf_tries = value,
            Op::SetChooseLocalTries => self.local_retries = value,
            Op::SetChooseLocalFallbackTries => self.local_fallback_retries = value,
            Op::SetChooseleafVaryR => self.vary_r = value,
            Op::SetChooseleafStable => self.stable = value != 0,
            _ => {}
        }
    }
}

/// One run of a rule.
struct Mapping<'a> {
    map: &'a CrushMap,
    x: u32,
    result_max: usize,
    weights: &'a [u32],
    choose_args: Option<&'a ChooseArgs>,
    knobs: Knobs,
    scratch: Scratch,
}

/// What a choose step asks of each bucket it starts from.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// How many replicas there are to choose; paces the tries of indep.
    replicas: u32,
    /// The bucket type to stop at; 0 for OSDs.
    kind: i32,
    tries: u32,
    /// Tries for the OSD below each chosen bucket; `None` in a plain choose step and in the inner descent itself.
    leaf_tries: Option<u32>,
    /// Added to every try's number.
    r_base: u32,
}

impl Wish {
    /// The inner descent of a chooseleaf step: one OSD below the item just drawn.
    fn below(self, tries: u32, r_base: u32) -> Wish {
        Wish { kind: 0, tries, leaf_tries: None, r_base, ..self }
    }
}

/// An item drawn, by what the descent does next.
enum Drawn<'a> {
    /// Of the wanted type.
    Wanted(i32),
    /// A bucket above the wanted type.
    Deeper(&'a Bucket),
    /// An unknown item, or an OSD where a bucket was wanted: no retry of this position can cure that.
    Hopeless,
    /// The bucket is empty.
    Nothing,
}

impl<'a> Mapping<'a> {
    fn run(&mut self, steps: &[Step]) -> Vec<i32> {
        let mut result = Vec::new();
        let mut working: Vec<i32> = Vec::new();
        for step in steps {
            let Some(op) = step.op() else { continue };
            match op {
                Op::Noop => {}
                Op::Take => {
                    let is_osd = (0..self.map.max_devices).contains(&step.arg1);
                    if is_osd || self.map.bucket(step.arg1).is_some() {
                        working = vec![step.arg1];
                    }
                }
                Op::ChooseFirstn | Op::ChooseIndep | Op::ChooseleafFirstn | Op::ChooseleafIndep => {
                    if !working.is_empty() {
                        working = self.choose(op, step, &working);
                    }
                }
                Op::Emit => {
                    let room = self.result_max.saturating_sub(result.len());
                    result.extend(working.drain(..).take(room));
                }
                knob => self.knobs.set(knob, step.arg1),
            }
        }
        result
    }

    /// One choose step from every item of the working set.
    fn choose(&mut self, op: Op, step: &Step, from: &[i32]) -> Vec<i32> {
        let firstn = matches!(op, Op::ChooseFirstn | Op::ChooseleafFirstn);
        let leaf = matches!(op, Op::ChooseleafFirstn | Op::ChooseleafIndep);
        let asked = i64::from(step.arg1) + if step.arg1 > 0 { 0 } else { self.result_max as i64 };
        let Some(replicas) = u32::try_from(asked).ok().filter(|&n| n > 0) else { return Vec::new() };
        let leaf_tries = match self.knobs.leaf_tries {
            0 if !firstn || self.map.tunables.chooseleaf_descend_once != 0 => 1,
            0 => self.knobs.tries,
            n => n,
        };
        let wish = Wish {
            replicas,
            kind: step.arg2,
            tries: self.knobs.tries,
            leaf_tries: leaf.then_some(leaf_tries),
            r_base: 0,
        };
        let mut chosen = Vec::new();
        for &item in from {
            let Some(bucket) = self.map.bucket(item) else { continue };
            let room = self.result_max.saturating_sub(chosen.len());
            chosen.extend(match firstn {
                true => self.choose_firstn(bucket, wish, room),
                false => self.choose_indep(bucket, wish, room.min(replicas as usize)),
            });
        }
        chosen
    }

    /// Draws from `bucket`, the `depth`th of one descent.
    fn draw(&mut self, bucket: &Bucket, kind: i32, r: u32, position: usize, depth: usize, permute: bool) -> Drawn<'a> {
        let map = self.map;
        let item = if permute {
            self.scratch.draw_permuted(bucket, self.x, r)
        } else {
            let replaced = self.choose_args.and_then(|args| args.get(&((-1 - bucket.id) as u32)));
            self.scratch.draw(bucket, self.x, r, replaced, position)
        };
        let Some(item) = item else { return Drawn::Nothing };
        if item >= 0 {
            return if kind == 0 && item < map.max_devices { Drawn::Wanted(item) } else { Drawn::Hopeless };
        }
        match map.bucket(item) {
            Some(child) if i32::from(child.kind) == kind => Drawn::Wanted(item),
            // Only a bucket that contains itself lets a descent pass more buckets than there are.
            Some(child) if depth < map.buckets.len() => Drawn::Deeper(child),
            _ => Drawn::Hopeless,
        }
    }

    /// Depth first: each replica in turn descends until it finds something new; one that does not leaves no gap.
    /// Gives items, or for chooseleaf the OSDs below them.
    fn choose_firstn(&mut self, top: &'a Bucket, wish: Wish, room: usize) -> Vec<i32> {
        let (mut items, mut leaves) = (Vec::new(), Vec::new());
        for replica in 0..wish.replicas {
            if items.len() >= room || self.scratch.is_exhausted() {
                break;
            }
            if let Some((item, leaf)) = self.place_firstn(top, wish, replica, &items, &leaves) {
                items.push(item);
                leaves.push(leaf);
            }
        }
        if wish.leaf_tries.is_some() { leaves } else { items }
    }

    /// Finds an item that is not in `taken`, and for chooseleaf an OSD below it that is not in `taken_leaves`.
    fn place_firstn(
        &mut self,
        top: &'a Bucket,
        wish: Wish,
        replica: u32,
        taken: &[i32],
        taken_leaves: &[i32],
    ) -> Option<(i32, i32)> {
        let Knobs { local_retries, local_fallback_retries, .. } = self.knobs;
        let position = taken.len();
        let (mut bucket, mut depth) = (top, 0);
        let (mut failed, mut failed_here) = (0u32, 0u32);
        while !self.scratch.is_exhausted() {
            let r = replica.wrapping_add(wish.r_base).wrapping_add(failed);
            let permute = local_fallback_retries > 0
                && failed_here as usize >= bucket.items.len() >> 1
                && failed_here > local_fallback_retries;
            let mut collides = false;
            match self.draw(bucket, wish.kind, r, position, depth, permute) {
                Drawn::Hopeless => return None,
                Drawn::Deeper(child) => {
                    (bucket, depth) = (child, depth + 1);
                    continue;
                }
                Drawn::Wanted(item) if taken.contains(&item) => collides = true,
                Drawn::Wanted(item) => {
                    if let Some(leaf) = self.accept_firstn(item, wish, r, taken_leaves) {
                        return Some((item, leaf));
                    }
                }
                Drawn::Nothing => {}
            }
            failed = failed.wrapping_add(1);
            failed_here += 1;
            let retry_here = collides && failed_here <= local_retries
                || local_fallback_retries > 0
                    && u64::from(failed_here) <= bucket.items.len() as u64 + u64::from(local_fallback_retries);
            if !retry_here {
                if failed >= wish.tries {
                    return None;
                }
                (bucket, depth, failed_here) = (top, 0, 0);
            }
        }
        None
    }

    /// The OSD that `item` stands for (itself, if it is one or a plain choose step wants no OSD), unless it is out.
    fn accept_firstn(&mut self, item: i32, wish: Wish, r: u32, taken_leaves: &[i32]) -> Option<i32> {
        let leaf = match (wish.leaf_tries, self.map.bucket(item)) {
            (Some(tries), Some(bucket)) => {
                let Knobs { vary_r, stable, .. } = self.knobs;
                let r_base = if vary_r > 0 { (r as i32).wrapping_shr(vary_r - 1) as u32 } else { 0 };
                let replica = if stable { 0 } else { taken_leaves.len() as u32 };
                let inner = wish.below(tries, r_base);
                self.place_firstn(bucket, inner, replica, taken_leaves, &[])?.0
            }
            _ => item,
        };
        (wish.kind != 0 || !self.is_out(item)).then_some(leaf)
    }

    /// Breadth first: every open position tries once per round, so that one lost position does not move the others.
    fn choose_indep(&mut self, top: &'a Bucket, wish: Wish, positions: usize) -> Vec<i32> {
        let mut items = vec![UNDECIDED; positions];
        let mut leaves = items.clone();
        let mut open = positions;
        let mut round = 0;
        while open > 0 && round < wish.tries && !self.scratch.is_exhausted() {
            for position in 0..positions {
                if items.get(position) != Some(&UNDECIDED) {
                    continue;
                }
                let (item, leaf) = self.place_indep(top, wish, position as u32, 0, round, &items);
                if let (Some(leaf), Some(slot)) = (leaf, leaves.get_mut(position)) {
                    *slot = leaf;
                }
                if let (Some(item), Some(slot)) = (item, items.get_mut(position)) {
                    *slot = item;
                    open -= 1;
                }
            }
            round += 1;
        }
        let mut chosen = if wish.leaf_tries.is_some() { leaves } else { items };
        chosen.iter_mut().filter(|item| **item == UNDECIDED).for_each(|item| *item = ITEM_NONE);
        chosen
    }

    /// One try of one position: what it is decided to be, if it is, and what its leaf is as far as it is known.
    /// `args_position` is the replica position that weight sets see.
    fn place_indep(
        &mut self,
        top: &'a Bucket,
        wish: Wish,
        position: u32,
        args_position: usize,
        round: u32,
        taken: &[i32],
    ) -> (Option<i32>, Option<i32>) {
        let (mut bucket, mut depth) = (top, 0);
        loop {
            let whole_rounds = matches!(bucket.alg, Alg::Uniform { .. }) && (bucket.items.len() as u32).is_multiple_of(wish.replicas);
            let pace = if whole_rounds { wish.replicas.wrapping_add(1) } else { wish.replicas };
            let r = position.wrapping_add(wish.r_base).wrapping_add(pace.wrapping_mul(round));
            match self.draw(bucket, wish.kind, r, args_position, depth, false) {
                Drawn::Nothing => return (None, None),
                Drawn::Hopeless => return (Some(ITEM_NONE), Some(ITEM_NONE)),
                Drawn::Deeper(child) => (bucket, depth) = (child, depth + 1),
                Drawn::Wanted(item) if taken.contains(&item) => return (None, None),
                Drawn::Wanted(item) => {
                    let mut leaf = item;
                    if let (Some(tries), Some(below)) = (wish.leaf_tries, self.map.bucket(item)) {
                        leaf = self.leaf_indep(below, wish.below(tries, r), position);
                        if leaf == ITEM_NONE {
                            return (None, Some(leaf));
                        }
                    }
                    // An OSD that is out is remembered as leaf: upstream returns it when every try ends so.
                    let accepted = (wish.kind != 0 || !self.is_out(item)).then_some(item);
                    return (accepted, Some(leaf));
                }
            }
        }
    }

    /// The OSD below a bucket chosen for `position`; `ITEM_NONE` if its tries find none.
    fn leaf_indep(&mut self, bucket: &'a Bucket, wish: Wish, position: u32) -> i32 {
        for round in 0..wish.tries {
            if self.scratch.is_exhausted() {
                break;
            }
            if let (Some(item), _) = self.place_indep(bucket, wish, position, position as usize, round, &[]) {
                return item;
            }
        }
        ITEM_NONE
    }

    /// Whether an OSD is out for this input: always at weight 0, in a share of all inputs below weight 1.
    fn is_out(&self, item: i32) -> bool {
        let weight = usize::try_from(item).ok().and_then(|osd| self.weights.get(osd)).copied().unwrap_or(0);
        match weight {
            ONE.. => false,
            0 => true,
            w => rjenkins1_2(self.x, item as u32) & 0xffff >= w,
        }
    }
}
