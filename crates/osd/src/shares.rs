//! What each class of work is promised of the device's time, as options say.
//!
//! Upstream: src/osd/scheduler/mClockScheduler.cc of Tentacle for profiles and the options of `custom`, src/osd/scheduler/OpScheduler.cc for `wpq`.

use admin::option::ConfigValues;
use qos::{Class, Profile, Share};

/// By `osd_op_queue` and what belongs to each.
pub(crate) fn shares(config: &ConfigValues) -> [Share; 3] {
    let by_clock = config.str("osd_op_queue") == "mclock_scheduler";
    let profile: Profile = config.str("osd_mclock_profile").parse().unwrap_or_default();
    Class::ALL.map(|class| match by_clock {
        true => profile.share(class).unwrap_or_else(|| custom(config, class)),
        false => Share { reservation: 0, weight: priority(config, class), limit: None },
    })
}

/// The same while clients of devices that share a controller or a disk with ours wait for it, if so: background work gets no more of our
/// device than clients are not promised of it, whether ours want it or not.
pub(crate) fn beside_clients(mut shares: [Share; 3], yields: bool) -> [Share; 3] {
    let left = 1000 - shares[Class::Client as usize].reservation.min(1000);
    if !yields || left == 1000 {
        return shares;
    }
    for class in [Class::Recovery, Class::BestEffort] {
        let share = &mut shares[class as usize];
        share.limit = Some(share.limit.unwrap_or(1000).min(left.max(share.reservation)).max(50));
    }
    shares
}

/// Fractions of the device; a limit of 0 is none.
fn custom(config: &ConfigValues, class: Class) -> Share {
    let (reservation, weight, limit) = match class {
        Class::Client => ("osd_mclock_scheduler_client_res", "osd_mclock_scheduler_client_wgt", "osd_mclock_scheduler_client_lim"),
        Class::Recovery => (
            "osd_mclock_scheduler_background_recovery_res",
            "osd_mclock_scheduler_background_recovery_wgt",
            "osd_mclock_scheduler_background_recovery_lim",
        ),
        Class::BestEffort => (
            "osd_mclock_scheduler_background_best_effort_res",
            "osd_mclock_scheduler_background_best_effort_wgt",
            "osd_mclock_scheduler_background_best_effort_lim",
        ),
    };
    let thousandths = |name: &str| (config.f64(name).clamp(0.0, 1.0) * 1000.0).round() as u16;
    let limit = Some(thousandths(limit)).filter(|limit| *limit > 0);
    Share { reservation: thousandths(reservation), weight: weight_of(config.u64(weight)), limit }
}

/// Without a clock, by priority alone.
fn priority(config: &ConfigValues, class: Class) -> u16 {
    weight_of(config.u64(match class {
        Class::Client => "osd_client_op_priority",
        Class::Recovery => "osd_recovery_op_priority",
        Class::BestEffort => "osd_scrub_priority",
    }))
}

fn weight_of(n: u64) -> u16 {
    n.clamp(1, u16::MAX.into()) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::option::Source;

    fn with(options: &[(&str, &str)]) -> [Share; 3] {
        let mut config = ConfigValues::new("osd.0".parse().unwrap(), "ceph", "host");
        options.iter().for_each(|(name, value)| config.set(name, Source::Mon, value).unwrap());
        shares(&config)
    }

    #[test]
    fn a_profile_is_a_table() {
        let percent = |r: u16, weight, limit: Option<u16>| Share { reservation: r * 10, weight, limit: limit.map(|l| l * 10) };
        assert_eq!(with(&[]), [percent(50, 1, None), percent(50, 1, None), percent(0, 1, Some(90))]);
        let high = with(&[("osd_mclock_profile", "high_client_ops")]);
        assert_eq!(high, [percent(60, 2, None), percent(40, 1, None), percent(0, 1, Some(70))]);
        let high = with(&[("osd_mclock_profile", "high_recovery_ops")]);
        assert_eq!(high, [percent(30, 1, None), percent(70, 2, None), percent(0, 1, None)]);
    }

    #[test]
    fn beside_clients_of_neighbours_background_work_has_what_is_left() {
        let limits = |shares: [Share; 3]| shares.map(|s| s.limit);
        assert_eq!(limits(beside_clients(with(&[]), true)), [None, Some(500), Some(500)]);
        assert_eq!(limits(beside_clients(with(&[]), false)), [None, None, Some(900)]);
        let high = with(&[("osd_mclock_profile", "high_recovery_ops")]);
        assert_eq!(limits(beside_clients(high, true)), [None, Some(700), Some(700)]);
        assert_eq!(limits(beside_clients(with(&[("osd_op_queue", "wpq")]), true)), [None, None, None]);
    }

    #[test]
    fn custom_shares_are_options_of_their_own_and_only_then() {
        let own = [("osd_mclock_scheduler_client_res", "0.25"), ("osd_mclock_scheduler_client_lim", "0.5"), ("osd_mclock_scheduler_client_wgt", "7")];
        assert_eq!(with(&own)[0], Profile::Balanced.share(Class::Client).unwrap());
        let all: Vec<_> = own.into_iter().chain([("osd_mclock_profile", "custom")]).collect();
        assert_eq!(with(&all), [
            Share { reservation: 250, weight: 7, limit: Some(500) },
            Share { reservation: 0, weight: 1, limit: None },
            Share { reservation: 0, weight: 1, limit: None },
        ]);
    }

    #[test]
    fn without_a_clock_priorities_are_weights() {
        let weights = with(&[("osd_op_queue", "wpq"), ("osd_recovery_op_priority", "10")]).map(|s| (s.reservation, s.weight, s.limit));
        assert_eq!(weights, [(0, 63, None), (0, 10, None), (0, 5, None)]);
    }
}
