//! The device's capacity as operators see it: `osd_mclock_max_capacity_iops_hdd` and `_ssd`.
//!
//! Owns: [`Capacity`].   Hears: what the device model has learned, what the option says.   Says: when the monitors are to be told another figure, and what
//! is wrong with the one they have.
//! Why: stock measures one burst when it first starts and keeps the figure for ever. What is learned here is told once it has been steady for a while, and
//! compared with whatever stands there afterwards, be it an operator's or what the same device did before.

use admin::option::ConfigValues;
use qos::{DeviceModel, Io, NEAR, factor};
use std::time::Duration;
use store::DeviceProfile;
use types::Mono;

/// A figure is told that has been steady, within `NEAR`, for so long.
const STEADY: Duration = Duration::from_secs(15);
/// Between two figures told.
const PAUSE: Duration = Duration::from_secs(180);
/// What is off by that factor either way is worth a warning.
const OFF: f64 = 2.0;
/// A disk that takes so long for a small read or write is slow, nanoseconds: of flash that has many at once each costs microseconds.
const SLOW_NS: u64 = 2_000_000;
/// The warning's name.
const ALERT: &str = "OSD_CAPACITY_MISMATCH";

/// The option that says what devices of a class can do.
pub(crate) fn option(device_class: &str) -> &'static str {
    match device_class {
        "hdd" => "osd_mclock_max_capacity_iops_hdd",
        _ => "osd_mclock_max_capacity_iops_ssd",
    }
}

/// What the option says, if somebody set it: I/Os of 4 KiB in a second.
pub(crate) fn configured(config: &ConfigValues, device_class: &str) -> Option<f64> {
    let name = option(device_class);
    Some(config.f64(name)).filter(|iops| config.is_set(name) && *iops > 0.0)
}

/// Whether a disk is slow, which it `was` so far. One that has not done enough since we started is what is `configured` of it, by who learned that before, or else what it was
/// found to be at the start. Who comes back is written to first, and that goes to the log.
pub(crate) fn is_slow(device: &DeviceModel, found: DeviceProfile, configured: Option<f64>, was: bool) -> bool {
    // One that is taken for slow stays so until it is clearly quicker.
    let limit = if was { SLOW_NS / 2 } else { SLOW_NS };
    let each = |iops: f64| (1e9 / iops) as u64;
    match configured {
        // Who is only written to has nothing to say of reads.
        _ if device.is_learned() => device.capacity(None).map_or(0, each).max(device.cost(Io::Read, 4096)) > limit,
        Some(iops) => each(iops) > limit,
        None => found == DeviceProfile::Hdd,
    }
}

#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// A figure, and since when what was learned has been near it.
    steady: Option<(f64, Mono)>,
    told_at: Option<Mono>,
    /// What is wrong.
    pub alert: Option<(&'static str, String)>,
}

impl Capacity {
    /// Looks at what was learned (the figure nearest to what is configured), `None` while that is a guess. Returns the figure that the monitors are to be told now.
    pub fn look(&mut self, now: Mono, learned: Option<f64>, configured: Option<f64>, option: &str) -> Option<f64> {
        let learned = learned?;
        let (figure, since) = *self.steady.get_or_insert((learned, now));
        if factor(learned, figure) > NEAR {
            self.steady = Some((learned, now));
            return None;
        }
        if now - since < STEADY {
            return None;
        }
        let off = configured.filter(|c| factor(learned, *c) > OFF);
        self.alert = off.map(|c| (ALERT, format!("does {learned:.0} I/Os of 4 KiB in a second, {option} says {c:.0}")));
        let differs = configured.is_none_or(|c| factor(learned, c) > NEAR);
        // A device that has become much slower is news, not its new figure.
        let slower = off.is_some_and(|c| learned < c);
        if !differs || slower || self.told_at.is_some_and(|at| now - at < PAUSE) {
            return None;
        }
        self.told_at = Some(now);
        Some(learned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION: &str = "osd_mclock_max_capacity_iops_hdd";

    /// What is told in so many seconds, looking twice in each.
    fn run(c: &mut Capacity, from: u64, seconds: u64, learned: f64, configured: Option<f64>) -> Vec<f64> {
        let looks = (2 * from..2 * (from + seconds)).map(|half| Mono(half * 500_000_000));
        looks.filter_map(|now| c.look(now, Some(learned), configured, OPTION)).collect()
    }

    #[test]
    fn a_disk_that_was_not_used_since_the_start_is_what_is_said_of_it() {
        use DeviceProfile::{Hdd, Ssd};
        let mut device = DeviceModel::default();
        assert!(is_slow(&device, Hdd, None, false) && !is_slow(&device, Ssd, None, true));
        for (said, stays, becomes) in [(75.0, true, true), (700.0, true, false), (5000.0, false, false)] {
            assert_eq!([true, false].map(|was| is_slow(&device, Ssd, Some(said), was)), [stays, becomes], "{said}");
        }
        let mut now = 0;
        while !device.is_learned() {
            let begun = device.started(now, Io::Read, 4096);
            now += 100_000;
            device.ended(now, begun);
        }
        assert!(!is_slow(&device, Hdd, Some(75.0), true), "it has shown that it is not");
    }

    #[test]
    fn a_figure_is_told_once_when_it_has_been_steady() {
        let mut c = Capacity::default();
        assert_eq!(c.look(Mono(1), None, None, OPTION), None);
        assert!(run(&mut c, 10, 10, 75.0, None).is_empty());
        // It was not steady yet.
        assert!(run(&mut c, 20, 10, 110.0, None).is_empty());
        assert_eq!(run(&mut c, 30, 20, 108.0, None), [108.0]);
        assert!(run(&mut c, 50, 600, 108.0, Some(108.0)).is_empty() && c.alert.is_none());
        // Within a quarter it is no news, beyond it is.
        assert!(run(&mut c, 700, 60, 125.0, Some(108.0)).is_empty());
        assert_eq!(run(&mut c, 800, 60, 150.0, Some(108.0)), [150.0]);
        assert!(c.alert.is_none());
    }

    #[test]
    fn what_is_off_by_a_factor_is_said_with_both_figures() {
        let mut c = Capacity::default();
        assert!(run(&mut c, 1, 60, 75.0, Some(315.0)).is_empty());
        let (code, text) = c.alert.clone().unwrap();
        assert_eq!((code, text.as_str()), (ALERT, "does 75 I/Os of 4 KiB in a second, osd_mclock_max_capacity_iops_hdd says 315"));
        run(&mut c, 61, 60, 75.0, Some(100.0));
        assert!(c.alert.is_none());
        // One that is much faster is told, and warned of until somebody takes it over.
        assert_eq!(run(&mut c, 400, 60, 320.0, Some(100.0)), [320.0]);
        assert!(c.alert.is_some());
    }
}
