//! A map from text, as `crushtool -c` reads it.
//!
//! Holds: what `decompile` or `crushtool -d` wrote gives the same map; what is wrong is named with its line.
//! Differs from upstream in what it lets through: OSDs over weight 100, items used before they are defined at any depth,
//! rules of a type given by number.
//! Upstream: src/crush/grammar.h, CrushCompiler::compile in src/crush/CrushCompiler.cc.

use crate::{Alg, Bucket, ChooseArg, ChooseArgs, CrushError, CrushMap, Op, Rule, Step, Tunables};
use std::collections::{BTreeMap, BTreeSet};

/// What is wrong with a text map, and in which line (from 1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct CompileError {
    pub line: usize,
    pub what: CompileErrorKind,
}

/// What is wrong with a text map.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileErrorKind {
    #[error("{wanted} expected, '{found}' found")]
    Unexpected { wanted: &'static str, found: String },
    #[error("'{0}' is defined twice")]
    Twice(String),
    #[error("'{0}' is not defined")]
    Undefined(String),
    #[error("tunable {0} not recognized")]
    UnknownTunable(String),
    #[error("position {0} is taken or out of range")]
    Position(usize),
    #[error("bucket {bucket} needs exactly {wanted} values, {found} found")]
    Count { bucket: i32, wanted: usize, found: usize },
    #[error(transparent)]
    Edit(#[from] CrushError),
}

type Result<T> = std::result::Result<T, CompileError>;

impl CrushMap {
    /// Reads a text map. Tunables that it does not name are the legacy ones, as for every text map.
    pub fn compile(text: &str) -> Result<CrushMap> {
        let mut compiler = Compiler {
            tokens: Tokens { all: tokens(text), at: 0 },
            map: CrushMap { tunables: Tunables::LEGACY, ..CrushMap::default() },
            shadows: BTreeMap::new(),
            blocks: Vec::new(),
            claimed: BTreeSet::new(),
        };
        compiler.claim_ids();
        compiler.run()?;
        compiler.map.finalize();
        Ok(compiler.map)
    }
}

/// Words and brackets with their lines; comments go to the end of the line.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let mut rest = line.split('#').next().unwrap_or_default().trim_start();
        while let Some(first) = rest.chars().next() {
            let is_bracket = |c: char| "{}[]".contains(c);
            let end = match is_bracket(first) {
                true => 1,
                false => rest.find(|c: char| c.is_whitespace() || is_bracket(c)).unwrap_or(rest.len()),
            };
            let (token, after) = rest.split_at(end);
            all.push((i + 1, token));
            rest = after.trim_start();
        }
    }
    all
}

struct Tokens<'a> {
    all: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.all.get(self.at).map(|&(_, token)| token)
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek();
        self.at += 1;
        token
    }

    /// Takes the next token if it is `word`.
    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, word: &'static str) -> Result<()> {
        match self.take(word) {
            true => Ok(()),
            false => Err(self.unexpected(word)),
        }
    }

    fn name(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(token) if !"{}[]".contains(token) => {
                self.at += 1;
                Ok(token)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    /// A whole number; too large ones become the largest, whose low half, -1, is what stock makes of the compat weight
    /// set's number.
    fn int(&mut self) -> Result<i32> {
        let digits = |t: &str| t.strip_prefix('-').unwrap_or(t).bytes().all(|c| c.is_ascii_digit());
        let token = self.peek().filter(|t| digits(t)).ok_or_else(|| self.unexpected("a number"))?;
        self.at += 1;
        Ok(token.parse::<i64>().unwrap_or(i64::MAX) as i32)
    }

    /// A decimal number as 16.16 fixed point.
    fn weight(&mut self) -> Result<u32> {
        let token: Option<f32> = self.peek().and_then(|t| t.parse().ok()).filter(|w: &f32| *w >= 0.0 && *w < 65536.0);
        let weight = token.ok_or_else(|| self.unexpected("a weight"))?;
        self.at += 1;
        Ok((weight * 65536.0) as u32)
    }

    fn unexpected(&self, wanted: &'static str) -> CompileError {
        let found = self.peek().unwrap_or("the end").to_owned();
        self.error_at(self.at, CompileErrorKind::Unexpected { wanted, found })
    }

    /// An error in the line of the token just taken.
    fn error(&self, what: CompileErrorKind) -> CompileError {
        self.error_at(self.at.saturating_sub(1), what)
    }

    fn error_at(&self, at: usize, what: CompileErrorKind) -> CompileError {
        let (line, _) = self.all.get(at).or(self.all.last()).copied().unwrap_or((1, ""));
        CompileError { line, what }
    }
}

/// A bucket as it is written, before its items are looked up.
struct Block<'a> {
    at: usize,
    name: &'a str,
    kind: u16,
    id: Option<i32>,
    classes: BTreeMap<i32, i32>,
    alg: Alg,
    hash: u8,
    items: Vec<Item<'a>>,
}

#[derive(Clone, Copy)]
struct Item<'a> {
    at: usize,
    name: &'a str,
    weight: Option<u32>,
    pos: Option<usize>,
}

struct Compiler<'a> {
    tokens: Tokens<'a>,
    map: CrushMap,
    /// Ids that the text gives shadow buckets: by bucket and class.
    shadows: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// Buckets read but not made: they may use one another in any order.
    blocks: Vec<Block<'a>>,
    /// Ids that the text gives buckets anywhere.
    claimed: BTreeSet<i32>,
}

impl<'a> Compiler<'a> {
    fn claim_ids(&mut self) {
        let words = self.tokens.all.windows(2).filter_map(|pair| match pair {
            [(_, "id"), (_, id)] => id.parse().ok(),
            _ => None,
        });
        self.claimed = words.filter(|&id| id < 0).collect();
    }

    fn run(&mut self) -> Result<()> {
        let mut has_shadows = false;
        while let Some(word) = self.tokens.next() {
            if !has_shadows && matches!(word, "rule" | "choose_args") {
                self.make_buckets()?;
                self.make_shadows()?;
                has_shadows = true;
            }
            match word {
                "tunable" => self.tunable()?,
                "device" => self.device()?,
                "type" => {
                    let kind = self.tokens.int()?;
                    let name = self.tokens.name()?;
                    self.map.type_names.insert(kind, name.to_owned());
                }
                "rule" => self.rule()?,
                "choose_args" => self.choose_args()?,
                kind => self.block(kind)?,
            }
        }
        // Without a rule nobody needs shadows, and stock makes none.
        self.make_buckets()
    }

    fn tunable(&mut self) -> Result<()> {
        let name = self.tokens.name()?;
        let value = self.tokens.int()? as u32;
        let t = &mut self.map.tunables;
        match name {
            "choose_local_tries" => t.choose_local_tries = value,
            "choose_local_fallback_tries" => t.choose_local_fallback_tries = value,
            "choose_total_tries" => t.choose_total_tries = value,
            "chooseleaf_descend_once" => t.chooseleaf_descend_once = u32::from(value != 0),
            "chooseleaf_vary_r" => t.chooseleaf_vary_r = value as u8,
            "chooseleaf_stable" => t.chooseleaf_stable = value as u8,
            "straw_calc_version" => t.straw_calc_version = value as u8,
            "allowed_bucket_algs" => t.allowed_bucket_algs = value,
            _ => return Err(self.tokens.error(CompileErrorKind::UnknownTunable(name.to_owned()))),
        }
        Ok(())
    }

    fn device(&mut self) -> Result<()> {
        let id = self.tokens.int()?;
        let name = self.tokens.name()?;
        self.define(self.tokens.at - 1, id, name)?;
        if self.tokens.take("class") {
            let class = self.tokens.name()?;
            let class = self.map.class_id_or_new(class);
            self.map.class_of.insert(id, class);
        }
        Ok(())
    }

    fn define(&mut self, at: usize, id: i32, name: &str) -> Result<()> {
        if self.map.item(name).is_some() || self.map.item_exists(id) {
            return Err(self.tokens.error_at(at, CompileErrorKind::Twice(name.to_owned())));
        }
        self.map.names.insert(id, name.to_owned());
        Ok(())
    }

    /// Reads a bucket; `kind` is its first word.
    fn block(&mut self, kind: &str) -> Result<()> {
        let number = self.map.type_id(kind).and_then(|n| u16::try_from(n).ok());
        let kind = number.ok_or_else(|| self.tokens.error(CompileErrorKind::Undefined(kind.to_owned())))?;
        let at = self.tokens.at;
        let name = self.tokens.name()?;
        if self.blocks.iter().any(|b| b.name == name) {
            return Err(self.tokens.error(CompileErrorKind::Twice(name.to_owned())));
        }
        let alg = Alg::Straw2 { item_weights: Vec::new() };
        let mut block = Block { at, name, kind, id: None, classes: BTreeMap::new(), alg, hash: 0, items: Vec::new() };
        self.tokens.expect("{")?;
        while self.tokens.take("id") {
            let id = self.tokens.int()?;
            if !self.tokens.take("class") {
                block.id = Some(id);
                continue;
            }
            // The class may have no OSD at all and be kept alive by a rule.
            let class = self.tokens.name()?;
            let class = self.map.class_id_or_new(class);
            block.classes.insert(class, id);
        }
        self.tokens.expect("alg")?;
        let alg = self.tokens.name()?;
        block.alg = Alg::parse(alg).ok_or_else(|| self.tokens.error(CompileErrorKind::Undefined(alg.to_owned())))?;
        while self.tokens.take("hash") {
            block.hash = if self.tokens.take("rjenkins1") { 0 } else { self.tokens.int()? as u8 };
        }
        while self.tokens.take("item") {
            let item = self.item()?;
            block.items.push(item);
        }
        self.tokens.expect("}")?;
        self.blocks.push(block);
        Ok(())
    }

    fn item(&mut self) -> Result<Item<'a>> {
        let at = self.tokens.at;
        let name = self.tokens.name()?;
        let weight = if self.tokens.take("weight") { Some(self.tokens.weight()?) } else { None };
        let pos = if self.tokens.take("pos") { Some(self.tokens.int()? as usize) } else { None };
        Ok(Item { at, name, weight, pos })
    }

    /// Makes the buckets read so far, each after those it holds.
    fn make_buckets(&mut self) -> Result<()> {
        let mut blocks: Vec<Option<Block<'a>>> = std::mem::take(&mut self.blocks).into_iter().map(Some).collect();
        let order: BTreeMap<&str, usize> = blocks.iter().flatten().map(|b| b.name).zip(0..).collect();
        for first in 0..blocks.len() {
            // Depth first without recursion: a block waits on the stack until what it holds is made.
            let mut stack = vec![first];
            while let Some(&i) = stack.last() {
                let Some(Some(block)) = blocks.get(i) else {
                    stack.pop();
                    continue;
                };
                let below = block.items.iter().filter_map(|item| order.get(item.name).copied());
                match below.into_iter().find(|&j| matches!(blocks.get(j), Some(Some(_)))) {
                    Some(j) if stack.contains(&j) => {
                        return Err(self.tokens.error_at(block.at, CrushError::Loop.into()));
                    }
                    Some(j) => stack.push(j),
                    None => {
                        stack.pop();
                        if let Some(block) = blocks.get_mut(i).and_then(Option::take) {
                            self.make_bucket(block)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn make_bucket(&mut self, block: Block<'a>) -> Result<()> {
        let items = self.place_items(&block)?;
        let id = block.id.unwrap_or_else(|| self.map.free_bucket_id(|id| self.claimed.contains(&id)));
        self.define(block.at, id, block.name)?;
        let at_fault = |e: CrushError| self.tokens.error_at(block.at, e.into());
        let version = self.map.tunables.straw_calc_version;
        let mut bucket = Bucket::new(id, block.kind, &block.alg, &items, version).map_err(at_fault)?;
        bucket.hash = block.hash;
        let placed = self.map.put_bucket(bucket);
        placed.map_err(|e| self.tokens.error_at(block.at, e.into()))?;
        if !block.classes.is_empty() {
            self.shadows.insert(id, block.classes);
        }
        Ok(())
    }

    /// Items of a bucket with their weights in the order of their positions; those without one fill the gaps.
    fn place_items(&self, block: &Block<'a>) -> Result<Vec<(i32, u32)>> {
        let mut placed: Vec<Option<(i32, u32)>> = vec![None; block.items.len()];
        let (with_pos, without): (Vec<Item>, Vec<Item>) = block.items.iter().partition(|item| item.pos.is_some());
        for item in with_pos.into_iter().chain(without) {
            let undefined = || self.tokens.error_at(item.at, CompileErrorKind::Undefined(item.name.to_owned()));
            let id = self.map.item(item.name).ok_or_else(undefined)?;
            let own_weight = self.map.bucket(id).map_or(crate::ONE, |b| b.weight);
            let free = placed.iter().position(Option::is_none).unwrap_or(0);
            let pos = item.pos.unwrap_or(free);
            match placed.get_mut(pos) {
                Some(slot @ None) => *slot = Some((id, item.weight.unwrap_or(own_weight))),
                _ => return Err(self.tokens.error_at(item.at, CompileErrorKind::Position(pos))),
            }
        }
        Ok(placed.into_iter().flatten().collect())
    }

    fn make_shadows(&mut self) -> Result<()> {
        let shadows = std::mem::take(&mut self.shadows);
        self.map.populate_classes(shadows).map_err(|e| self.tokens.error(e.into()))
    }

    fn rule(&mut self) -> Result<()> {
        let at = self.tokens.at;
        let name = if self.tokens.peek() == Some("{") { "" } else { self.tokens.name()? };
        if !name.is_empty() && self.map.rule_id(name).is_some() {
            return Err(self.tokens.error(CompileErrorKind::Twice(name.to_owned())));
        }
        self.tokens.expect("{")?;
        if !self.tokens.take("ruleset") {
            self.tokens.expect("id")?;
        }
        let number = self.tokens.int()?;
        self.tokens.expect("type")?;
        let kind = if self.tokens.take("replicated") {
            1
        } else if self.tokens.take("erasure") {
            3
        } else {
            self.tokens.int()? as u8
        };
        self.tokens.expect("min_size")?;
        let min_size = self.tokens.int()? as u8;
        self.tokens.expect("max_size")?;
        let max_size = self.tokens.int()? as u8;
        let mut steps = Vec::new();
        while self.tokens.take("step") {
            steps.push(self.step()?);
        }
        self.tokens.expect("}")?;
        let rule = Rule { ruleset: number as u8, kind, min_size, max_size, steps };
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        self.map.put_rule(number, name, rule).map_err(|e| self.tokens.error_at(at, e.into()))?;
        if name.is_empty() {
            self.map.rule_names.remove(&(number as i32));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Step> {
        let word = self.tokens.name()?;
        match word {
            "noop" => Ok(Step::new(Op::Noop, 0, 0)),
            "emit" => Ok(Step::new(Op::Emit, 0, 0)),
            "take" => self.step_take(),
            "choose" | "chooseleaf" => {
                let mode = self.tokens.name()?;
                let words = format!("{word} {mode}");
                let op = Op::ALL.into_iter().find(|op| op.words() == words);
                let op = op.ok_or_else(|| self.tokens.error(CompileErrorKind::Undefined(words)))?;
                let count = self.tokens.int()?;
                self.tokens.expect("type")?;
                let kind = self.tokens.name()?;
                let undefined = || self.tokens.error(CompileErrorKind::Undefined(kind.to_owned()));
                Ok(Step::new(op, count, self.map.type_id(kind).ok_or_else(undefined)?))
            }
            _ => {
                let op = Op::ALL.into_iter().find(|op| op.words() == word);
                let op = op.ok_or_else(|| self.tokens.error(CompileErrorKind::Undefined(word.to_owned())))?;
                Ok(Step::new(op, self.tokens.int()?, 0))
            }
        }
    }

    fn step_take(&mut self) -> Result<Step> {
        let name = self.tokens.name()?;
        let undefined = || self.tokens.error(CompileErrorKind::Undefined(name.to_owned()));
        let id = self.map.item(name).ok_or_else(undefined)?;
        if !self.tokens.take("class") {
            return Ok(Step::new(Op::Take, id, 0));
        }
        let class = self.tokens.name()?;
        let shadows = self.map.class_bucket.get(&id);
        let shadow = self.map.class_id(class).and_then(|class| shadows?.get(&class));
        let none = || CrushError::NoDevicesOfClass { root: name.to_owned(), class: class.to_owned() };
        Ok(Step::new(Op::Take, *shadow.ok_or_else(|| self.tokens.error(none().into()))?, 0))
    }

    fn choose_args(&mut self) -> Result<()> {
        let set = i64::from(self.tokens.int()?);
        if self.map.choose_args.contains_key(&set) {
            return Err(self.tokens.error(CompileErrorKind::Twice(set.to_string())));
        }
        self.tokens.expect("{")?;
        let mut args = ChooseArgs::new();
        while self.tokens.take("{") {
            let (index, arg) = self.choose_arg()?;
            args.insert(index, arg);
        }
        self.tokens.expect("}")?;
        self.map.choose_args.insert(set, args);
        Ok(())
    }

    fn choose_arg(&mut self) -> Result<(u32, ChooseArg)> {
        self.tokens.expect("bucket_id")?;
        let bucket = self.tokens.int()?;
        let undefined = || self.tokens.error(CompileErrorKind::Undefined(bucket.to_string()));
        let wanted = self.map.bucket(bucket).ok_or_else(undefined)?.size();
        let check = |tokens: &Tokens, found| match found == wanted {
            true => Ok(()),
            false => Err(tokens.error(CompileErrorKind::Count { bucket, wanted, found })),
        };
        let mut arg = ChooseArg::default();
        if self.tokens.take("weight_set") {
            self.tokens.expect("[")?;
            while self.tokens.take("[") {
                let mut weights = Vec::new();
                while !self.tokens.take("]") {
                    weights.push(self.tokens.weight()?);
                }
                check(&self.tokens, weights.len())?;
                arg.weight_set.push(weights);
            }
            self.tokens.expect("]")?;
        }
        if self.tokens.take("ids") {
            self.tokens.expect("[")?;
            while !self.tokens.take("]") {
                arg.ids.push(self.tokens.int()?);
            }
            check(&self.tokens, arg.ids.len())?;
        }
        self.tokens.expect("}")?;
        Ok((!bucket as u32, arg))
    }
}
