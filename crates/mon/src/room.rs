//! Room on the file systems of the monitors' stores: each looks at its own, the leader makes warnings of it.
//!
//! Upstream: HealthMonitor::check_member_health in src/mon/HealthMonitor.cc.

use crate::env::Quorum;
use crate::health::{Checks, Severity, add};
use crate::mon::{Effect, Mon};
use crate::services::State;
use crate::services::config::Subject;
use admin::human;
use store::Kv;
use types::msg::internal_mon::{MonRoom, PeerSays};

impl<K: Kv> Mon<K> {
    /// Told every few seconds by whoever can look: how many percent of the store's file system are available, and how large the
    /// store is.
    pub fn handle_room(&mut self, available_percent: u8, store_bytes: u64) {
        let own = |option: &str| number(option, self.env.options.get(option)?);
        let room = MonRoom {
            available_percent,
            store_bytes,
            low_percent: own("mon_data_avail_warn"),
            critical_percent: own("mon_data_avail_crit"),
            big_bytes: own("mon_data_size_warn"),
        };
        self.quorum.rooms.insert(self.env.name.clone(), room);
        let leader = self.members.name_of(self.raft.leader()).filter(|name| *name != self.env.name);
        if let Some(to) = leader.map(str::to_owned) {
            self.effects.push_back(Effect::Peer { to, says: PeerSays::Room { name: self.env.name.clone(), room } });
        }
    }
}

/// An option's value as a number: `15G` is one, too.
fn number(option: &str, text: &str) -> Option<i64> {
    admin::option::find(option)?.normalize(text).ok()?.parse().ok()
}

/// A monitor's room with what to complain of.
struct Judged<'a> {
    name: &'a str,
    room: &'a MonRoom,
    low: i64,
    critical: i64,
    big: i64,
}

impl<'a> Judged<'a> {
    /// The monitor's own file overrules the database, which it cannot see.
    fn new(state: &State, name: &'a str, room: &'a MonRoom) -> Self {
        let limit = |own: Option<i64>, option: &str, default| {
            let set = || number(option, &state.config.get(&Subject::mon(name), option)?);
            own.or_else(set).unwrap_or(default)
        };
        Judged {
            name,
            room,
            low: limit(room.low_percent, "mon_data_avail_warn", 30),
            critical: limit(room.critical_percent, "mon_data_avail_crit", 5),
            big: limit(room.big_bytes, "mon_data_size_warn", 15 << 30),
        }
    }

    fn is_critical(&self) -> bool {
        i64::from(self.room.available_percent) <= self.critical
    }

    fn is_low(&self) -> bool {
        !self.is_critical() && i64::from(self.room.available_percent) <= self.low
    }

    fn is_big(&self) -> bool {
        i64::try_from(self.room.store_bytes).is_ok_and(|bytes| bytes >= self.big)
    }

    fn available(&self) -> String {
        format!("mon.{} has {}% avail", self.name, self.room.available_percent)
    }

    fn size(&self) -> String {
        let limit = human::bytes(self.big.max(0) as u64);
        format!("mon.{} is {} >= mon_data_size_warn ({limit})", self.name, human::bytes(self.room.store_bytes))
    }
}

/// A code, how bad it is and what is said, whom it concerns, and a line for each.
type Kind<'j> = (&'static str, Severity, &'static str, fn(&Judged<'j>) -> bool, fn(&Judged<'j>) -> String);

fn kinds<'j>() -> [Kind<'j>; 3] {
    [
        ("MON_DISK_CRIT", Severity::Err, "very low on available space", Judged::is_critical, Judged::available),
        ("MON_DISK_LOW", Severity::Warn, "low on available space", Judged::is_low, Judged::available),
        ("MON_DISK_BIG", Severity::Warn, "using a lot of disk space", Judged::is_big, Judged::size),
    ]
}

/// What there is to say of the stores of those that agree.
pub(crate) fn checks(state: &State, quorum: &Quorum, all: &mut Checks) {
    let names = quorum.names(&state.monmap.map);
    let known = names.into_iter().filter_map(|name| Some(Judged::new(state, name, quorum.rooms.get(name)?)));
    let known: Vec<Judged<'_>> = known.collect();
    for (code, severity, what, is, says) in kinds() {
        let hit: Vec<&Judged<'_>> = known.iter().filter(|j| is(j)).collect();
        if hit.is_empty() {
            continue;
        }
        let (plural, are) = if hit.len() > 1 { ("s", "are") } else { ("", "is") };
        let names: Vec<&str> = hit.iter().map(|j| j.name).collect();
        let summary = format!("mon{plural} {} {are} {what}", names.join(","));
        add(all, code, severity, hit.len(), summary, hit.into_iter().map(says).collect());
    }
}
