//! What the tests share: a seeded generator of odd maps.

use crush::{Alg, CrushMap, Op, Rule, Step, Tunables};

/// Bucket types of random maps; gaps between the numbers are allowed, so there are some.
pub const KINDS: [(i32, &str); 5] = [(0, "osd"), (1, "host"), (2, "chassis"), (5, "rack"), (11, "root")];

/// SplitMix64: enough chance for a test, the same on every machine.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
    /// A weight: usually one OSD's, now and then nothing, next to nothing or very much.
    pub fn weight(&mut self) -> u32 {
        match self.below(8) {
            0 => 0,
            1 => 1 + self.below(100) as u32,
            2 => 0x10000,
            3 => 0x63_0000 + self.below(0x10000) as u32,
            _ => self.below(0x8_0000) as u32,
        }
    }
}

/// What random maps are made of.
#[derive(Clone, Copy)]
pub struct Taste {
    pub algs: &'static [u8],
    pub classes: bool,
    pub weight_sets: bool,
}

/// A map of several hierarchies over the same OSDs, with rules of all sorts.
pub fn random_map(rng: &mut Rng, taste: Taste) -> CrushMap {
    let mut map = CrushMap { tunables: random_tunables(rng), ..CrushMap::default() };
    map.type_names = KINDS.iter().map(|&(kind, name)| (kind, name.to_owned())).collect();
    let osds: Vec<i32> = (0..4 + rng.below(40) as i32).filter(|&osd| osd < 2 || !rng.one_in(8)).collect();
    for &osd in &osds {
        map.names.insert(osd, format!("osd.{osd}"));
    }
    for tree in 0..1 + rng.below(4) {
        random_tree(rng, &mut map, taste, tree, &osds);
    }
    if taste.classes {
        for &osd in &osds {
            if !rng.one_in(5) && map.item_exists(osd) {
                map.set_device_class(osd, rng.pick(&["ssd", "hdd", "nvme"])).unwrap();
            }
        }
    }
    if taste.weight_sets {
        random_weight_set(rng, &mut map);
    }
    for number in 0..3 + rng.below(12) as u32 {
        let rule = random_rule(rng, &map);
        let number = number + u32::from(rng.one_in(6)) * 20;
        if map.rule(number).is_none() {
            map.put_rule(number, &format!("rule-{number}"), Rule { ruleset: number as u8, ..rule }).unwrap();
        }
    }
    map.finalize();
    map
}

fn random_tunables(rng: &mut Rng) -> Tunables {
    if rng.one_in(3) {
        return rng.pick(&[Tunables::DEFAULT, Tunables::LEGACY]);
    }
    Tunables {
        choose_local_tries: rng.below(3) as u32,
        choose_local_fallback_tries: rng.pick(&[0, 0, 1, 3, 5]),
        choose_total_tries: rng.pick(&[0, 1, 5, 19, 50]),
        chooseleaf_descend_once: rng.below(2) as u32,
        chooseleaf_vary_r: rng.below(5) as u8,
        chooseleaf_stable: rng.below(2) as u8,
        straw_calc_version: rng.below(2) as u8,
        allowed_bucket_algs: Tunables::DEFAULT.allowed_bucket_algs,
        msr: None,
    }
}

/// Levels of buckets over some of the OSDs, up to one root.
fn random_tree(rng: &mut Rng, map: &mut CrushMap, taste: Taste, tree: usize, osds: &[i32]) {
    let mut level: Vec<(i32, u32)> = Vec::new();
    for &osd in osds {
        // crushtool maps nothing at all when there is no OSD.
        if osd == 0 || !rng.one_in(4) {
            level.push((osd, rng.weight()));
        }
    }
    for &(kind, kind_name) in &KINDS[1..] {
        if kind != 11 && rng.one_in(4) {
            continue;
        }
        let mut above = Vec::new();
        let mut n = 0;
        while !level.is_empty() || above.is_empty() {
            let take = if kind == 11 { level.len() } else { 1 + rng.below(6) };
            let mut items: Vec<(i32, u32)> = level.drain(..take.min(level.len())).collect();
            if rng.one_in(12) && items.iter().all(|&(item, _)| item > 0) {
                items.clear();
            }
            let alg = Alg::from_number(rng.pick(taste.algs)).unwrap();
            if matches!(alg, Alg::Uniform { .. }) {
                let weight = items.first().map_or(0, |item| item.1);
                items.iter_mut().for_each(|item| item.1 = weight);
            }
            let id = rng.one_in(10).then(|| -1 - rng.below(60) as i32).filter(|&id| map.bucket(id).is_none());
            let name = format!("{kind_name}{tree}.{n}");
            let id = map.add_bucket(id, &name, Some(&alg), kind as u16, &items).unwrap();
            let own = map.bucket(id).unwrap().weight;
            above.push((id, if rng.one_in(10) { rng.weight() } else { own }));
            n += 1;
        }
        level = above;
    }
}

fn random_weight_set(rng: &mut Rng, map: &mut CrushMap) {
    let set = rng.pick(&[-1, 0]);
    map.create_weight_set(set, 1 + rng.below(4)).unwrap();
    let mut args = map.choose_args.remove(&set).unwrap();
    args.retain(|_, _| !rng.one_in(8));
    for arg in args.values_mut() {
        for weights in &mut arg.weight_set {
            weights.iter_mut().for_each(|w| *w = if rng.one_in(3) { rng.weight() } else { *w });
        }
    }
    let buckets: Vec<u32> = args.keys().copied().collect();
    for index in buckets {
        let items = map.bucket(-1 - index as i32).unwrap().items.clone();
        if rng.one_in(4) {
            args.get_mut(&index).unwrap().ids = items.iter().map(|_| rng.below(1000) as i32 - 500).collect();
        }
    }
    map.choose_args.insert(set, args);
}

fn random_rule(rng: &mut Rng, map: &CrushMap) -> Rule {
    let mut steps = Vec::new();
    let sets = [
        Op::SetChooseTries,
        Op::SetChooseleafTries,
        Op::SetChooseLocalTries,
        Op::SetChooseLocalFallbackTries,
        Op::SetChooseleafVaryR,
        Op::SetChooseleafStable,
    ];
    for _ in 0..rng.below(3) {
        steps.push(Step::new(rng.pick(&sets), rng.below(6) as i32, 0));
    }
    let buckets: Vec<i32> = map.iter_buckets().map(|b| b.id).collect();
    let roots = map.roots();
    let osds: Vec<i32> = map.names.keys().copied().filter(|&id| id >= 0).collect();
    for _ in 0..1 + rng.below(2) {
        let take = match rng.below(12) {
            0 => rng.pick(&osds),
            1..4 => rng.pick(&buckets),
            _ => rng.pick(&roots),
        };
        steps.push(Step::new(Op::Take, take, 0));
        let count = |rng: &mut Rng| rng.pick(&[0, 0, 0, -1, 1, 2, 3, 5]);
        for _ in 0..rng.below(3) {
            let choose = rng.pick(&[Op::ChooseFirstn, Op::ChooseIndep]);
            steps.push(Step::new(choose, count(rng), rng.pick(&KINDS).0));
        }
        // Rules end with OSDs here: crushtool counts results in an array and ruins its memory on a bucket's id.
        let (choose, kind) = match rng.below(4) {
            0 => (rng.pick(&[Op::ChooseFirstn, Op::ChooseIndep]), 0),
            _ => (rng.pick(&[Op::ChooseleafFirstn, Op::ChooseleafIndep]), rng.pick(&[0, 1, 1, 2, 5])),
        };
        steps.push(Step::new(choose, count(rng), kind));
        steps.push(Step::new(Op::Emit, 0, 0));
    }
    Rule { ruleset: 0, kind: rng.pick(&[1, 3]), min_size: 1, max_size: 10, steps }
}
