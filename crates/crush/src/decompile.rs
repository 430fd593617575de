//! A map as text, in the words of `crushtool -d`.
//!
//! Holds: byte for byte what stock prints. Weights have three decimals, so a map of finer weights does not survive.
//! Upstream: CrushCompiler::decompile in src/crush/CrushCompiler.cc.

use crate::hash::RJENKINS1;
use crate::{Alg, Bucket, ChooseArg, CrushMap, Op, Rule, Step, Tunables};
use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

/// A map as text.
pub struct Decompiled<'a>(&'a CrushMap);

impl CrushMap {
    /// The map as `crushtool -d` prints it.
    pub fn decompile(&self) -> Decompiled<'_> {
        Decompiled(self)
    }
}

/// A 16.16 fixed point number with three decimals, through the 32-bit float that stock prints it through.
struct Fixed(u32);

impl Display for Fixed {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", f64::from(self.0 as i32 as f32 / 65536.0))
    }
}

impl Display for Decompiled<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let map = self.0;
        writeln!(f, "# begin crush map")?;
        write_tunables(f, &map.tunables)?;
        writeln!(f, "\n# devices")?;
        for (&id, name) in map.names.range(0..map.max_devices) {
            writeln!(f, "device {id} {name}{}", self.class_of(id))?;
        }
        writeln!(f, "\n# types")?;
        if !map.type_names.contains_key(&0) {
            writeln!(f, "type 0 osd")?;
        }
        for (kind, name) in map.type_names.range(0..) {
            writeln!(f, "type {kind} {name}")?;
        }
        writeln!(f, "\n# buckets")?;
        let mut seen = BTreeSet::new();
        for bucket in map.iter_buckets() {
            self.write_subtree(f, bucket, &mut seen)?;
        }
        writeln!(f, "\n# rules")?;
        for (number, rule) in map.iter_rules() {
            self.write_rule(f, number, rule)?;
        }
        if !map.choose_args.is_empty() {
            writeln!(f, "\n# choose_args")?;
        }
        for (&set, args) in &map.choose_args {
            // The compat set's number, -1, shows as unsigned.
            writeln!(f, "choose_args {} {{", set as u64)?;
            for (&index, arg) in args.iter().filter(|(_, arg)| !arg.is_empty()) {
                write_choose_arg(f, index, arg)?;
            }
            writeln!(f, "}}")?;
        }
        writeln!(f, "\n# end crush map")
    }
}

fn write_tunables(f: &mut Formatter<'_>, t: &Tunables) -> fmt::Result {
    let legacy = Tunables::LEGACY;
    let all = [
        ("choose_local_tries", t.choose_local_tries, legacy.choose_local_tries),
        ("choose_local_fallback_tries", t.choose_local_fallback_tries, legacy.choose_local_fallback_tries),
        ("choose_total_tries", t.choose_total_tries, legacy.choose_total_tries),
        ("chooseleaf_descend_once", t.chooseleaf_descend_once, legacy.chooseleaf_descend_once),
        ("chooseleaf_vary_r", t.chooseleaf_vary_r.into(), legacy.chooseleaf_vary_r.into()),
        ("chooseleaf_stable", t.chooseleaf_stable.into(), legacy.chooseleaf_stable.into()),
        ("straw_calc_version", t.straw_calc_version.into(), legacy.straw_calc_version.into()),
        ("allowed_bucket_algs", t.allowed_bucket_algs, legacy.allowed_bucket_algs),
    ];
    all.iter().filter(|(_, value, legacy)| value != legacy).try_for_each(|(name, value, _)| {
        writeln!(f, "tunable {name} {value}")
    })
}

fn write_choose_arg(f: &mut Formatter<'_>, index: u32, arg: &ChooseArg) -> fmt::Result {
    writeln!(f, "  {{\n    bucket_id {}", -1 - i64::from(index))?;
    if !arg.weight_set.is_empty() {
        writeln!(f, "    weight_set [")?;
        for weights in &arg.weight_set {
            write!(f, "      [ ")?;
            weights.iter().try_for_each(|&w| write!(f, "{} ", Fixed(w)))?;
            writeln!(f, "]")?;
        }
        writeln!(f, "    ]")?;
    }
    if !arg.ids.is_empty() {
        write!(f, "    ids [ ")?;
        arg.ids.iter().try_for_each(|id| write!(f, "{id} "))?;
        writeln!(f, "]")?;
    }
    writeln!(f, "  }}")
}

impl Decompiled<'_> {
    fn item(&self, id: i32) -> String {
        match (self.0.name(id), id) {
            (Some(name), _) => name.to_owned(),
            (None, 0..) => format!("device{id}"),
            (None, _) => format!("bucket{}", -1 - id),
        }
    }

    fn kind(&self, kind: i32) -> String {
        match (self.0.type_name(kind), kind) {
            (Some(name), _) => name.to_owned(),
            (None, 0) => "device".to_owned(),
            (None, _) => format!("type{kind}"),
        }
    }

    fn class_of(&self, id: i32) -> String {
        self.0.item_class(id).map(|class| format!(" class {class}")).unwrap_or_default()
    }

    /// A bucket after those below it that were not written yet; shadows are left to the reader.
    fn write_subtree(&self, f: &mut Formatter<'_>, bucket: &Bucket, seen: &mut BTreeSet<i32>) -> fmt::Result {
        if !seen.insert(bucket.id) {
            return Ok(());
        }
        for child in bucket.items.iter().filter_map(|&item| self.0.bucket(item)) {
            self.write_subtree(f, child, seen)?;
        }
        if self.0.is_shadow(bucket.id) {
            return Ok(());
        }
        self.write_bucket(f, bucket)
    }

    fn write_bucket(&self, f: &mut Formatter<'_>, b: &Bucket) -> fmt::Result {
        writeln!(f, "{} {} {{", self.kind(b.kind.into()), self.item(b.id))?;
        writeln!(f, "\tid {}\t\t# do not change unnecessarily", b.id)?;
        for (class, shadow) in self.0.class_bucket.get(&b.id).into_iter().flatten() {
            if let Some(class) = self.0.class_names.get(class) {
                writeln!(f, "\tid {shadow} class {class}\t\t# do not change unnecessarily")?;
            }
        }
        writeln!(f, "\t# weight {}", Fixed(b.weight))?;
        let size = b.items.len();
        let note = match b.alg {
            Alg::Uniform { .. } => format!("\t# do not change bucket size ({size}) unnecessarily"),
            Alg::List { .. } => "\t# add new items at the end; do not change order unnecessarily".to_owned(),
            Alg::Tree { .. } => "\t# do not change pos for existing items unnecessarily".to_owned(),
            Alg::Straw { .. } | Alg::Straw2 { .. } => String::new(),
        };
        writeln!(f, "\talg {}{note}", b.alg.name())?;
        let hash = if b.hash == RJENKINS1 { "rjenkins1" } else { "unknown" };
        writeln!(f, "\thash {}\t# {hash}", b.hash)?;
        for (pos, &item) in b.items.iter().enumerate() {
            write!(f, "\titem {} weight {}", self.item(item), Fixed(b.item_weight(pos)))?;
            match b.alg {
                Alg::Uniform { .. } | Alg::Tree { .. } => writeln!(f, " pos {pos}")?,
                _ => writeln!(f)?,
            }
        }
        writeln!(f, "}}")
    }

    fn write_rule(&self, f: &mut Formatter<'_>, number: u32, rule: &Rule) -> fmt::Result {
        writeln!(f, "rule {} {{\n\tid {number}", self.0.rule_name(number).unwrap_or_default())?;
        if u32::from(rule.ruleset) != number {
            let ruleset = rule.ruleset;
            writeln!(f, "\t# WARNING: ruleset {ruleset} != id {number}; this will not recompile to the same map")?;
        }
        match rule.kind {
            1 => writeln!(f, "\ttype replicated")?,
            3 => writeln!(f, "\ttype erasure")?,
            other => writeln!(f, "\ttype {other}")?,
        }
        writeln!(f, "\tmin_size {}\n\tmax_size {}", rule.min_size, rule.max_size)?;
        rule.steps.iter().try_for_each(|step| self.write_step(f, step))?;
        writeln!(f, "}}")
    }

    fn write_step(&self, f: &mut Formatter<'_>, step: &Step) -> fmt::Result {
        let Some(op) = step.op() else { return Ok(()) };
        match op {
            Op::Noop => writeln!(f, "\tstep noop"),
            Op::Emit => writeln!(f, "\tstep emit"),
            Op::Take => {
                let (item, class) = self.0.split_class(step.arg1).unwrap_or((step.arg1, None));
                let class = class.and_then(|id| self.0.class_names.get(&id)).map(|name| format!(" class {name}"));
                writeln!(f, "\tstep take {}{}", self.item(item), class.unwrap_or_default())
            }
            Op::ChooseFirstn | Op::ChooseIndep | Op::ChooseleafFirstn | Op::ChooseleafIndep => {
                writeln!(f, "\tstep {} {} type {}", op.words(), step.arg1, self.kind(step.arg2))
            }
            set => writeln!(f, "\tstep {} {}", set.words(), step.arg1),
        }
    }
}

impl Op {
    /// How text maps write it.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Op::Noop => "noop",
            Op::Take => "take",
            Op::ChooseFirstn => "choose firstn",
            Op::ChooseIndep => "choose indep",
            Op::Emit => "emit",
            Op::ChooseleafFirstn => "chooseleaf firstn",
            Op::ChooseleafIndep => "chooseleaf indep",
            Op::SetChooseTries => "set_choose_tries",
            Op::SetChooseleafTries => "set_chooseleaf_tries",
            Op::SetChooseLocalTries => "set_choose_local_tries",
            Op::SetChooseLocalFallbackTries => "set_choose_local_fallback_tries",
            Op::SetChooseleafVaryR => "set_chooseleaf_vary_r",
            Op::SetChooseleafStable => "set_chooseleaf_stable",
        }
    }
}
