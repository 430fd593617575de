//! Rules: making and removing them, and maps to start from.
//!
//! Upstream: add_simple_rule_at, remove_rule in src/crush/CrushWrapper.cc; OSDMap::build_simple_crush_map.

use crate::location::{Location, is_valid_name};
use crate::{CrushError, CrushMap, MAX_RULES, Op, Rule, Step};

type Result<T> = std::result::Result<T, CrushError>;

/// Bucket types of a new map, from 0 up.
const TYPES: [&str; 12] =
    ["osd", "host", "chassis", "rack", "row", "pdu", "pod", "room", "datacenter", "zone", "region", "root"];

/// What a pool keeps, by the number rules and pools carry (`pg_pool_t::TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleKind {
    /// Copies: any order will do, so lost ones are made up for without gaps (firstn).
    Replicated = 1,
    /// Shards, each different from the others: positions stay (indep), with more tries.
    Erasure = 3,
}

/// A rule in one sentence: so many `failure_domain`s below `root`, one OSD (of `class`) in each.
#[derive(Debug, Clone, Copy)]
pub struct SimpleRule<'a> {
    pub name: &'a str,
    pub root: &'a str,
    /// Bucket type name; `osd` or empty: OSDs wherever they are.
    pub failure_domain: &'a str,
    pub class: Option<&'a str>,
    pub kind: RuleKind,
}

impl CrushMap {
    /// Adds a rule under the lowest free number and gives that. (`osd crush rule create-replicated`, the rule an
    /// erasure-coded pool gets.)
    pub fn add_simple_rule(&mut self, rule: SimpleRule<'_>) -> Result<u32> {
        if self.rule_id(rule.name).is_some() {
            return Err(CrushError::RuleExists(rule.name.to_owned()));
        } else if !is_valid_name(rule.name) {
            return Err(CrushError::BadName(rule.name.to_owned()));
        }
        let is_taken = |n: usize| {
            let ruleset = |rule: &Rule| usize::from(rule.ruleset) == n;
            matches!(self.rules.get(n), Some(Some(_))) || self.rules.iter().flatten().any(ruleset)
        };
        let number = (0..MAX_RULES).find(|&n| !is_taken(n)).ok_or(CrushError::TooManyRules)?;
        let take = self.root_of_class(rule.root, rule.class)?;
        let kind = match rule.failure_domain {
            "" => 0,
            name => self.type_id(name).ok_or_else(|| CrushError::UnknownFailureDomain(name.to_owned()))?,
        };
        let (choose, chooseleaf, min_size, max_size) = match rule.kind {
            RuleKind::Replicated => (Op::ChooseFirstn, Op::ChooseleafFirstn, 1, 10),
            RuleKind::Erasure => (Op::ChooseIndep, Op::ChooseleafIndep, 3, 20),
        };
        let mut steps = Vec::new();
        if rule.kind == RuleKind::Erasure {
            steps.push(Step::new(Op::SetChooseleafTries, 5, 0));
            steps.push(Step::new(Op::SetChooseTries, 100, 0));
        }
        steps.push(Step::new(Op::Take, take, 0));
        steps.push(Step::new(if kind == 0 { choose } else { chooseleaf }, 0, kind));
        steps.push(Step::new(Op::Emit, 0, 0));
        let made = Rule { ruleset: number as u8, kind: rule.kind as u8, min_size, max_size, steps };
        self.put_rule(number as u32, rule.name, made)?;
        Ok(number as u32)
    }

    /// The bucket a rule takes: a root, or its shadow for a device class.
    fn root_of_class(&self, root: &str, class: Option<&str>) -> Result<i32> {
        let id = self.item(root).ok_or_else(|| CrushError::NoRoot(root.to_owned()))?;
        let Some(class) = class.filter(|class| !class.is_empty()) else { return Ok(id) };
        let class_id = self.class_id(class).ok_or_else(|| CrushError::NoClass(class.to_owned()))?;
        let shadow = self.class_bucket.get(&id).and_then(|shadows| shadows.get(&class_id));
        let none = || CrushError::NoDevicesOfClass { root: root.to_owned(), class: class.to_owned() };
        shadow.copied().ok_or_else(none)
    }

    /// Puts a rule at a free number.
    pub fn put_rule(&mut self, number: u32, name: &str, rule: Rule) -> Result<()> {
        let index = number as usize;
        if index >= MAX_RULES {
            return Err(CrushError::TooManyRules);
        }
        if self.rules.len() <= index {
            self.rules.resize(index + 1, None);
        }
        match self.rules.get_mut(index) {
            Some(slot @ None) => *slot = Some(rule),
            _ => return Err(CrushError::RuleExists(number.to_string())),
        }
        self.rule_names.insert(number as i32, name.to_owned());
        Ok(())
    }

    /// Says for pools of how many chunks at most a rule is (`set_rule_mask_max_size`): that of an erasure-coded pool has as many.
    pub fn set_rule_max_size(&mut self, number: u32, max_size: u8) -> Result<()> {
        self.rule_mut(number)?.max_size = max_size;
        Ok(())
    }

    fn rule_mut(&mut self, number: u32) -> Result<&mut Rule> {
        let rule = self.rules.get_mut(number as usize).and_then(Option::as_mut);
        rule.ok_or_else(|| CrushError::NoRule(number.to_string()))
    }

    /// Lets a rule that chooses OSDs, wherever they are, choose one in each `failure_domain` instead.
    pub fn set_failure_domain(&mut self, number: u32, failure_domain: &str) -> Result<()> {
        let kind = self.type_id(failure_domain).ok_or_else(|| CrushError::UnknownFailureDomain(failure_domain.to_owned()))?;
        for step in &mut self.rule_mut(number)?.steps {
            *step = match step.op() {
                Some(Op::ChooseFirstn) if step.arg2 == 0 => Step::new(Op::ChooseleafFirstn, step.arg1, kind),
                Some(Op::ChooseIndep) if step.arg2 == 0 => Step::new(Op::ChooseleafIndep, step.arg1, kind),
                _ => continue,
            };
        }
        Ok(())
    }

    /// What a rule's last step chooses from: the type of bucket of which each copy or chunk has one of its own. `None` if it chooses
    /// nothing, or a type without a name.
    pub fn rule_failure_domain(&self, number: u32) -> Option<&str> {
        let chooses = |step: &&Step| matches!(step.op(), Some(Op::ChooseFirstn | Op::ChooseIndep | Op::ChooseleafFirstn | Op::ChooseleafIndep));
        self.type_name(self.rule(number)?.steps.iter().rev().find(chooses)?.arg2)
    }

    /// Removes a rule, and the device classes only it kept alive.
    pub fn remove_rule(&mut self, number: u32) -> Result<()> {
        self.atomically(|map| {
            let slot = map.rules.get_mut(number as usize);
            slot.and_then(Option::take).ok_or_else(|| CrushError::NoRule(number.to_string()))?;
            map.rule_names.remove(&(number as i32));
            map.rebuild_classes()
        })
    }

    /// Gives a rule another name.
    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<()> {
        let id = self.rule_id(from).ok_or_else(|| CrushError::NoRule(from.to_owned()))?;
        match self.rule_id(to) {
            Some(_) => return Err(CrushError::RuleExists(to.to_owned())),
            None if !is_valid_name(to) => return Err(CrushError::BadName(to.to_owned())),
            None => {}
        }
        self.rule_names.insert(id as i32, to.to_owned());
        Ok(())
    }

    /// The map of a new cluster: stock's bucket types, a root `default`, these OSDs (number, host name, weight in 16.16
    /// fixed point) and rule 0, `replicated_rule`, that spreads copies over `failure_domain`s.
    pub fn build_default(osds: &[(i32, &str, u32)], failure_domain: &str) -> Result<CrushMap> {
        let mut map = CrushMap::default();
        map.type_names = (0..).zip(TYPES).map(|(kind, name)| (kind, name.to_owned())).collect();
        map.add_bucket(None, "default", None, (TYPES.len() - 1) as u16, &[])?;
        for &(osd, host, weight) in osds {
            let loc = [("root", "default"), ("host", host)];
            let loc: Location = loc.map(|(kind, name)| (kind.to_owned(), name.to_owned())).into();
            map.insert_item(osd, weight, &format!("osd.{osd}"), &loc, false)?;
        }
        let kind = RuleKind::Replicated;
        map.add_simple_rule(SimpleRule { name: "replicated_rule", root: "default", failure_domain, class: None, kind })?;
        Ok(map)
    }
}
