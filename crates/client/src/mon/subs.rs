//! What is subscribed to, and from which version on.

use std::collections::BTreeMap;
use types::msg::{MMonSubscribe, SubscribeItem};

/// Subscriptions by name.
#[derive(Debug, Default)]
pub struct Subscriptions {
    wanted: BTreeMap<String, SubscribeItem>,
}

impl Subscriptions {
    /// Wants `what` from `start` on; true if the monitor must be told. A lasting subscription is not cut short by a
    /// one-time one.
    pub fn want(&mut self, what: &str, start: u64, onetime: bool) -> bool {
        let old = self.wanted.get(what).copied();
        let lasting = old.is_some_and(|item| !item.onetime());
        let flags = if onetime && !lasting { SubscribeItem::ONETIME } else { 0 };
        let item = SubscribeItem { start, flags };
        self.wanted.insert(what.to_owned(), item);
        old != Some(item)
    }

    /// `version` of `what` arrived.
    pub fn got(&mut self, what: &str, version: u64) {
        let Some(item) = self.wanted.get_mut(what) else { return };
        if item.start > version {
            return;
        }
        match item.onetime() {
            true => {
                self.wanted.remove(what);
            }
            false => item.start = version + 1,
        }
    }

    pub fn forget(&mut self, what: &str) {
        self.wanted.remove(what);
    }

    /// Everything wanted, as a message: a new session knows of nothing.
    pub fn message(&self, hostname: &str) -> MMonSubscribe {
        MMonSubscribe { what: self.wanted.clone(), hostname: hostname.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_one_time_subscription_ends_with_its_version_and_a_lasting_one_moves_on() {
        let mut s = Subscriptions::default();
        assert!(s.want("osdmap", 5, true));
        assert!(!s.want("osdmap", 5, true));
        s.got("osdmap", 4);
        assert!(s.message("").what.contains_key("osdmap"));
        s.got("osdmap", 7);
        assert!(!s.message("").what.contains_key("osdmap"));
        assert!(s.want("monmap", 0, false));
        s.got("monmap", 3);
        assert_eq!(s.message("").what["monmap"], SubscribeItem { start: 4, flags: 0 });
        s.want("monmap", 9, true);
        assert!(!s.message("").what["monmap"].onetime());
    }
}
