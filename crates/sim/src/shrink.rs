//! From a run that fails to one that fails with less: fewer faults, fewer clients, fewer objects.

use crate::scenario::Scenario;
use std::fmt;
use std::str::FromStr;

/// What is left of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Less {
    /// Which of the faults, by number.
    pub faults: Vec<usize>,
    pub writers: usize,
    pub sharers: usize,
    /// Writers' tasks, objects of each, and how long they become.
    pub tasks: usize,
    pub objects: usize,
    pub bytes: usize,
}

impl Less {
    /// All of it.
    pub fn all(s: &Scenario) -> Self {
        let work = &s.work;
        let (tasks, objects, bytes) = (work.tasks, work.objects_per_task, work.bytes_max);
        Less { faults: (0..s.faults.len()).collect(), writers: s.writers, sharers: s.sharers, tasks, objects, bytes }
    }

    /// The scenario with only that much of it.
    pub fn of(&self, whole: &Scenario) -> Scenario {
        let mut s = whole.clone();
        s.faults = self.faults.iter().filter_map(|n| whole.faults.get(*n).cloned()).collect();
        (s.writers, s.sharers) = (self.writers, self.sharers);
        (s.work.tasks, s.work.objects_per_task, s.work.bytes_max) = (self.tasks, self.objects.max(1), self.bytes.max(2));
        s
    }
}

impl fmt::Display for Less {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(usize::to_string).collect();
        let (w, s, t, o, b) = (self.writers, self.sharers, self.tasks, self.objects, self.bytes);
        write!(f, "{} {w} {s} {t} {o} {b}", if faults.is_empty() { "-".into() } else { faults.join(",") })
    }
}

impl FromStr for Less {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = |_| format!("{text:?} is not what a shrunk run prints");
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[faults, writers, sharers, tasks, objects, bytes] = words.as_slice() else {
            return Err(format!("{text:?} has not six words"));
        };
        let faults = faults.split(',').filter(|w| *w != "-").map(str::parse).collect::<Result<_, _>>().map_err(bad)?;
        let number = |w: &str| w.parse().map_err(bad);
        let (writers, sharers, tasks) = (number(writers)?, number(sharers)?, number(tasks)?);
        Ok(Less { faults, writers, sharers, tasks, objects: number(objects)?, bytes: number(bytes)? })
    }
}

/// The least of `whole` that still fails, as far as some `tries` runs can tell.
pub fn shrink(whole: &Scenario, tries: usize, mut fails: impl FnMut(&Scenario) -> bool) -> Less {
    let mut best = Less::all(whole);
    let mut left = tries;
    let mut attempt = |best: &mut Less, less: Less| {
        let better = left > 0 && less != *best && fails(&less.of(whole));
        left = left.saturating_sub(1);
        if better {
            *best = less;
        }
        better
    };
    let kinds: std::collections::BTreeSet<&str> = whole.faults.iter().map(|f| f.fault.kind()).collect();
    for kind in kinds {
        let faults = best.faults.iter().copied().filter(|n| whole.faults[*n].fault.kind() != kind).collect();
        let less = Less { faults, ..best.clone() };
        attempt(&mut best, less);
    }
    let mut step = best.faults.len().div_ceil(2);
    while step > 0 {
        let mut at = 0;
        while at < best.faults.len() {
            let mut less = best.clone();
            less.faults.drain(at..(at + step).min(less.faults.len()));
            if !attempt(&mut best, less) {
                at += step;
            }
        }
        step = if step == 1 { 0 } else { step.div_ceil(2) };
    }
    let fewer: [fn(&mut Less); 5] =
        [|l| l.sharers = 0, |l| l.writers = l.writers.min(1), |l| l.tasks = 1, |l| l.objects = 1, |l| l.bytes = l.bytes.min(2000)];
    for fewer in fewer {
        let mut less = best.clone();
        fewer(&mut less);
        attempt(&mut best, less);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_is_left() {
        let whole = (0..).map(Scenario::of_seed).find(|s| s.faults.len() > 15).expect("a seed with many faults");
        let (a, b) = (whole.faults[3].clone(), whole.faults[11].clone());
        let less = shrink(&whole, 1000, |s| s.writers > 0 && s.faults.contains(&a) && s.faults.contains(&b));
        assert_eq!(less.faults, [3, 11]);
        assert_eq!((less.writers, less.sharers, less.tasks, less.objects), (1, 0, 1, 1));
        assert_eq!(less.to_string().parse(), Ok(less));
    }
}
