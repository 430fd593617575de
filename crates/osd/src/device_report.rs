//! What the manager is told of the data device: how busy it is, what it has been seen to do, and what it has in common with others.

use qos::{Class, DeviceModel, Io};
use std::collections::BTreeMap;
use std::time::Duration;
use store::DeviceUse;
use types::Mono;
use types::msg::internal::DeviceReport;

/// Busy is told of spans of at least this.
const SPAN: Duration = Duration::from_secs(1);
const LARGE: u64 = 4 << 20;

/// How busy the device was between two reports, and with what.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    since: Mono,
    /// Nanoseconds until then: all, and clients'.
    used: [u64; 2],
    thousandths: [u16; 2],
}

impl Busy {
    /// Thousandths of the time in which it was busy, and those of clients.
    fn look(&mut self, now: Mono, used: &DeviceUse) -> [u16; 2] {
        let used = [used.time.iter().sum::<u64>() + used.flush_time, used.time[Class::Client as usize]];
        let passed = now - self.since;
        if passed >= SPAN {
            let part = |i: usize| used[i].saturating_sub(self.used[i]).saturating_mul(1000) / passed.as_nanos() as u64;
            *self = Busy { since: now, used, thousandths: [part(0).min(1000) as u16, part(1).min(1000) as u16] };
        }
        self.thousandths
    }

    /// `metadata`: what the OSD tells of itself, under the names of `ceph osd metadata`.
    pub fn report(&mut self, now: Mono, metadata: &BTreeMap<String, String>, device: &DeviceModel, used: &DeviceUse) -> DeviceReport {
        let [busy, clients] = self.look(now, used);
        let said = |key: &str| metadata.get(key).filter(|value| !value.is_empty());
        let parents = [("disk", "bluestore_bdev_devices"), ("controller", "cuttlebone_bdev_controller")];
        let large = |io| (device.per_second(io, LARGE) * LARGE as f64) as u64;
        DeviceReport {
            host: said("hostname").cloned().unwrap_or_default(),
            parents: parents.into_iter().filter_map(|(what, key)| Some(format!("{what} {}", said(key)?))).collect(),
            busy: device.is_learned().then_some(busy),
            clients,
            read_iops: device.per_second(Io::Read, 4096) as u64,
            write_iops: device.per_second(Io::Write, 4096) as u64,
            read_bytes: large(Io::Read),
            write_bytes: large(Io::Write),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_what_the_device_was_given_of_the_time_that_passed() {
        let mut busy = Busy::default();
        let used = |ms: u64| DeviceUse { time: [ms * 400_000, ms * 300_000, 0], flush_time: ms * 300_000, ..DeviceUse::default() };
        let at = |ms: u64| Mono(ms * 1_000_000);
        assert_eq!(busy.look(at(2000), &used(1000)), [500, 200]);
        // Too soon to say another thing.
        assert_eq!(busy.look(at(2100), &used(1100)), [500, 200]);
        assert_eq!(busy.look(at(4000), &used(3000)), [1000, 400]);
        assert_eq!(busy.look(at(9000), &used(3000)), [0, 0]);
    }

    #[test]
    fn nothing_is_said_of_how_busy_a_device_is_that_is_not_known() {
        let metadata = BTreeMap::from([("hostname".to_owned(), "n1".to_owned()), ("bluestore_bdev_devices".to_owned(), "sda".to_owned())]);
        let said = Busy::default().report(Mono(5_000_000_000), &metadata, &DeviceModel::default(), &DeviceUse::default());
        assert_eq!((said.host.as_str(), said.parents.as_slice(), said.busy), ("n1", ["disk sda".to_owned()].as_slice(), None));
    }
}
