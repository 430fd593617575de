//! What data devices that have something in common, a controller or the disk itself, do together, beside what each does alone.
//!
//! Owns: [`Parents`].   Hears: what OSDs say of their devices.   Says: what holds several of them back.
//! Why: an OSD sees its own device only. One that is slow because its neighbours are busy, too, looks like one that fails.
//! Holds: an OSD's figures count as those of a device alone, or of one with company, once it has been busy so for a while: its model follows
//! within seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::msg::internal::DeviceReport;
use types::{Mono, OsdId};

/// Thousandths of the time: from the first on a device is busy, below the other it has no part in what others do.
const BUSY: u16 = 800;
const IDLE: u16 = 200;
/// Thousandths of its time that clients have of a device, for others to leave it to them.
const CLIENTS: u16 = 50;
/// For so long the company must have been the same.
const STEADY: Duration = Duration::from_secs(10);
/// A report counts for so long.
const FRESH: Duration = Duration::from_secs(15);
/// And what several do together.
const KEEP: Duration = Duration::from_secs(300);
/// From this factor on it is worth telling, in percent: two that fully hold each other back come to 200.
const OFF: u64 = 150;

/// 4 KiB reads and writes a second, bytes read and written a second.
type Figures = [u64; 4];
const NAMES: [&str; 4] = ["reads of 4 KiB", "writes of 4 KiB", "read", "write"];

/// What all OSDs have said.
#[derive(Debug, Clone, Default)]
pub struct Parents {
    members: BTreeMap<OsdId, Member>,
}

#[derive(Debug, Clone)]
struct Member {
    report: DeviceReport,
    at: Mono,
    /// Busy, since when, and whether others of its parents are, too.
    busy: Option<(Company, Mono)>,
    alone: Option<Figures>,
    together: Option<(Figures, Mono)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Company {
    Alone,
    Others,
}

/// Devices that hold each other back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    pub host: String,
    /// `disk sda`, `controller 0000:00:14.0`.
    pub parent: String,
    /// True if these are several disks.
    pub is_controller: bool,
    pub osds: Vec<OsdId>,
    what: &'static str,
    alone: u64,
    together: u64,
}

impl Limit {
    /// What they do together, and what they would if each did what it does alone.
    pub fn figures(&self) -> String {
        let value = |n: u64| if self.what.contains("KiB") { format!("{n}") } else { format!("{} MB/s", n / 1_000_000) };
        match self.what.contains("KiB") {
            true => format!("together {} {} a second, one by one {}", value(self.together), self.what, value(self.alone)),
            false => format!("together they {} {}, one by one {}", self.what, value(self.together), value(self.alone)),
        }
    }

    /// `osd.1 and osd.4`.
    pub fn names(osds: impl Iterator<Item = OsdId>) -> String {
        osds.map(|osd| format!("osd.{osd}")).collect::<Vec<_>>().join(", ")
    }
}

impl Member {
    fn figures(&self) -> Figures {
        let r = &self.report;
        [r.read_iops, r.write_iops, r.read_bytes, r.write_bytes]
    }

    fn is_busy(&self) -> bool {
        self.report.busy.is_some_and(|busy| busy >= BUSY)
    }

    fn is_related(&self, other: &Member) -> bool {
        self.report.host == other.report.host && self.report.parents.iter().any(|p| other.report.parents.contains(p))
    }
}

impl Parents {
    /// An OSD reports.
    pub fn take(&mut self, now: Mono, osd: OsdId, report: DeviceReport) {
        let before = self.members.remove(&osd).filter(|m| (&m.report.host, &m.report.parents) == (&report.host, &report.parents));
        let mut member = match before {
            Some(before) => Member { report, at: now, ..before },
            None => Member { report, at: now, busy: None, alone: None, together: None },
        };
        let company = self.company(now, &member);
        member.busy = company.map(|company| match member.busy {
            Some((before, since)) if before == company => (company, since),
            _ => (company, now),
        });
        match member.busy {
            Some((Company::Alone, since)) if now - since >= STEADY => member.alone = Some(member.figures()),
            Some((Company::Others, since)) if now - since >= STEADY => member.together = Some((member.figures(), now)),
            _ => {}
        }
        self.members.insert(osd, member);
    }

    /// OSDs that are no more are forgotten.
    pub fn retain(&mut self, exists: impl Fn(OsdId) -> bool) {
        self.members.retain(|osd, _| exists(*osd));
    }

    /// Who is busy with a device that is; `None` if that cannot be said.
    fn company(&self, now: Mono, member: &Member) -> Option<Company> {
        if !member.is_busy() {
            return None;
        }
        let relatives: Vec<&Member> = self.members.values().filter(|m| m.is_related(member) && now - m.at < FRESH).collect();
        match (relatives.iter().any(|m| m.is_busy()), relatives.iter().all(|m| m.report.busy.unwrap_or(0) < IDLE)) {
            (true, _) => Some(Company::Others),
            (_, true) => Some(Company::Alone),
            _ => None,
        }
    }

    /// Who holds whom back, by what was seen in the last minutes. Of OSDs on one disk, their controller is not to blame.
    pub fn limits(&self, now: Mono) -> Vec<Limit> {
        let mut parents: BTreeMap<(&str, &str), Vec<(OsdId, &Member)>> = BTreeMap::new();
        for (osd, member) in &self.members {
            for parent in &member.report.parents {
                parents.entry((&member.report.host, parent)).or_default().push((*osd, member));
            }
        }
        parents.into_iter().filter_map(|((host, parent), members)| limit(now, host, parent, members)).collect()
    }

    /// OSDs whose background work is to leave what holds them back to clients of others.
    pub fn to_yield(&self, now: Mono) -> BTreeSet<OsdId> {
        let serves = |osd: &OsdId| self.members.get(osd).is_some_and(|m| now - m.at < FRESH && m.report.clients >= CLIENTS);
        let of = |limit: Limit| -> Vec<OsdId> {
            let others = |osd: &OsdId| limit.osds.iter().any(|other| other != osd && serves(other));
            limit.osds.iter().copied().filter(|osd| others(osd)).collect()
        };
        self.limits(now).into_iter().flat_map(of).collect()
    }
}

fn limit(now: Mono, host: &str, parent: &str, mut members: Vec<(OsdId, &Member)>) -> Option<Limit> {
    members.retain(|(_, m)| m.alone.is_some() && m.together.is_some_and(|(_, at)| now - at < KEEP));
    let disks: BTreeSet<_> = members.iter().map(|(_, m)| m.report.parents.first()).collect();
    let is_disk = members.iter().all(|(_, m)| m.report.parents.first().is_some_and(|disk| disk == parent));
    if members.len() < 2 || !is_disk && disks.len() < 2 {
        return None;
    }
    let sum = |of: fn(&Member) -> Option<Figures>| {
        let all = members.iter().filter_map(|(_, m)| of(m));
        all.fold(Figures::default(), |sum, one| std::array::from_fn(|i| sum[i].saturating_add(one[i])))
    };
    let (alone, together) = (sum(|m| m.alone), sum(|m| m.together.map(|(figures, _)| figures)));
    let percent = |i: usize| alone[i].saturating_mul(100).checked_div(together[i]).unwrap_or(0);
    let i = (0..NAMES.len()).filter(|i| percent(*i) >= OFF).max_by_key(|i| percent(*i))?;
    Some(Limit {
        host: host.into(),
        parent: parent.into(),
        is_controller: !is_disk,
        osds: members.iter().map(|(osd, _)| *osd).collect(),
        what: NAMES[i],
        alone: alone[i],
        together: together[i],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(disk: &str, busy: u16, write_mb: u64) -> DeviceReport {
        let parents = vec![format!("disk {disk}"), "controller 0000:00:14.0".to_owned()];
        DeviceReport {
            host: "n1".into(),
            parents,
            busy: Some(busy),
            clients: 0,
            read_iops: 100,
            write_iops: 100,
            read_bytes: 100_000_000,
            write_bytes: write_mb * 1_000_000,
        }
    }

    /// Every five seconds each OSD reports as it is told; until so many seconds have passed.
    fn run(p: &mut Parents, from: &mut u64, seconds: u64, reports: &[DeviceReport]) {
        for _ in 0..seconds / 5 {
            *from += 5;
            for (osd, report) in reports.iter().enumerate() {
                p.take(Mono(*from * 1_000_000_000), OsdId(osd as i32), report.clone());
            }
        }
    }

    /// Each of two has been seen while the other rested; and when that was.
    fn each_alone(disks: [&str; 2]) -> (Parents, u64) {
        let (mut p, mut now) = (Parents::default(), 0);
        run(&mut p, &mut now, 30, &[report(disks[0], 950, 110), report(disks[1], 20, 100)]);
        run(&mut p, &mut now, 30, &[report(disks[0], 10, 110), report(disks[1], 990, 108)]);
        (p, now)
    }

    fn seen(p: &Parents, at: u64) -> Vec<(String, bool, String)> {
        p.limits(Mono(at * 1_000_000_000)).into_iter().map(|l| (l.parent.clone(), l.is_controller, l.figures())).collect()
    }

    #[test]
    fn a_controller_that_holds_disks_back_is_named() {
        let (mut p, mut now) = each_alone(["sda", "sdb"]);
        assert_eq!(seen(&p, now), []);
        run(&mut p, &mut now, 30, &[report("sda", 990, 52), report("sdb", 990, 55)]);
        let said = ("controller 0000:00:14.0".to_owned(), true, "together they write 107 MB/s, one by one 218 MB/s".to_owned());
        assert_eq!(seen(&p, now), [said]);
        // It is not told for ever.
        assert_eq!(seen(&p, now + 301), []);
    }

    #[test]
    fn background_work_yields_to_clients_of_others() {
        let (mut p, mut now) = each_alone(["sda", "sdb"]);
        let serving = DeviceReport { clients: 400, ..report("sdb", 990, 50) };
        run(&mut p, &mut now, 5, &[report("sda", 990, 50), serving.clone()]);
        assert_eq!(p.to_yield(Mono(now * 1_000_000_000)), BTreeSet::new());
        run(&mut p, &mut now, 30, &[report("sda", 990, 50), serving]);
        // The one with clients has nobody to yield to.
        assert_eq!(p.to_yield(Mono(now * 1_000_000_000)), BTreeSet::from([OsdId(0)]));
        run(&mut p, &mut now, 30, &[report("sda", 990, 50), report("sdb", 990, 50)]);
        assert_eq!(p.to_yield(Mono(now * 1_000_000_000)), BTreeSet::new());
    }

    #[test]
    fn disks_that_do_not_disturb_each_other_are_not_told_of() {
        let (mut p, mut now) = each_alone(["sda", "sdb"]);
        run(&mut p, &mut now, 30, &[report("sda", 990, 80), report("sdb", 990, 75)]);
        assert_eq!(seen(&p, now), []);
    }

    #[test]
    fn two_on_one_disk_do_not_speak_of_its_controller() {
        let (mut p, mut now) = each_alone(["sda", "sda"]);
        run(&mut p, &mut now, 30, &[report("sda", 990, 50), report("sda", 990, 50)]);
        assert_eq!(seen(&p, now).into_iter().map(|(parent, is_controller, _)| (parent, is_controller)).collect::<Vec<_>>(), [("disk sda".into(), false)]);
    }

    #[test]
    fn figures_count_only_when_the_company_was_steady() {
        let (mut p, mut now) = (Parents::default(), 0);
        run(&mut p, &mut now, 5, &[report("sda", 950, 110), report("sdb", 20, 100)]);
        run(&mut p, &mut now, 30, &[report("sda", 500, 110), report("sdb", 990, 108)]);
        run(&mut p, &mut now, 60, &[report("sda", 990, 50), report("sdb", 990, 50)]);
        assert_eq!(seen(&p, now), []);
        // Another host's controller of that name is another one.
        let other = DeviceReport { host: "n2".into(), ..report("sda", 990, 50) };
        run(&mut p, &mut now, 60, &[other, report("sdb", 990, 100)]);
        assert_eq!(seen(&p, now), []);
    }
}
