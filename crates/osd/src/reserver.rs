//! Who may recover now: a few placement groups hold a slot, the others wait by priority.
//!
//! Room: osd core.   Owns: `Reserver`, two per OSD: for what it recovers as primary, and for what it takes in as a copy.
//! Holds: never more than `osd_max_backfills` hold a slot, but for a moment after that was lowered; who holds one of lower
//! priority than somebody who waits loses it, and waits again.
//! Why two: a primary first takes its own slot, then its copies', in ascending order: so nobody waits in a circle.
//! Upstream: doc/dev/osd_internals/backfill_reservation.rst; common/AsyncReserver.h.

use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use types::PgId;

/// What a placement group is told of its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotNews {
    Granted,
    /// Somebody more urgent has it now.
    Preempted,
}

/// Slots, and who waits for one.
#[derive(Debug)]
pub(crate) struct Reserver {
    max: usize,
    held: BTreeMap<PgId, u8>,
    /// With the order of arrival.
    waiting: BTreeMap<PgId, (u8, u64)>,
    arrivals: u64,
    news: Vec<(PgId, SlotNews)>,
}

impl Reserver {
    pub fn new(max: usize) -> Self {
        Reserver { max, held: BTreeMap::new(), waiting: BTreeMap::new(), arrivals: 0, news: Vec::new() }
    }

    pub fn set_max(&mut self, max: usize) {
        self.max = max;
        self.settle();
    }

    /// Waits for a slot, or goes on with the one it has, by this priority.
    pub fn request(&mut self, pg: PgId, priority: u8) {
        if let Some(held) = self.held.get_mut(&pg) {
            *held = priority;
            // Its holder may not have heard of it, or not any more.
            self.news.push((pg, SlotNews::Granted));
        } else {
            self.arrivals += 1;
            let arrival = self.waiting.get(&pg).map_or(self.arrivals, |(_, at)| *at);
            self.waiting.insert(pg, (priority, arrival));
        }
        self.settle();
    }

    /// Waits no more, and gives up its slot.
    pub fn cancel(&mut self, pg: PgId) {
        self.waiting.remove(&pg);
        self.held.remove(&pg);
        self.news.retain(|(id, _)| *id != pg);
        self.settle();
    }

    /// True if somebody has a slot.
    pub fn is_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// As `dump_recovery_reservations` shows it.
    pub fn dump(&self) -> Value {
        let item = |(pg, prio): (&PgId, u8)| json!({"item": pg.to_string(), "prio": prio, "can_preempt": true});
        let mut queues: BTreeMap<u8, Vec<(u64, Value)>> = BTreeMap::new();
        for (pg, (prio, arrival)) in &self.waiting {
            queues.entry(*prio).or_default().push((*arrival, item((pg, *prio))));
        }
        let queues = queues.into_iter().map(|(priority, mut items)| {
            items.sort_by_key(|(arrival, _)| *arrival);
            let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
            json!({"priority": priority, "items": items})
        });
        let held: Vec<Value> = self.held.iter().map(|(pg, prio)| item((pg, *prio))).collect();
        json!({"max_allowed": self.max, "min_priority": 0, "queues": queues.collect::<Vec<_>>(), "in_progress": held})
    }

    /// What there is to tell, in order.
    pub fn take_news(&mut self) -> Vec<(PgId, SlotNews)> {
        std::mem::take(&mut self.news)
    }

    fn settle(&mut self) {
        while let Some((pg, priority)) = self.next() {
            if self.held.len() >= self.max && !self.preempt(priority) {
                return;
            }
            self.waiting.remove(&pg);
            self.held.insert(pg, priority);
            self.news.push((pg, SlotNews::Granted));
        }
    }

    /// The most urgent one that waits; of several the one that came first.
    fn next(&self) -> Option<(PgId, u8)> {
        let best = self.waiting.iter().min_by_key(|(_, (priority, arrival))| (Reverse(*priority), *arrival));
        best.map(|(pg, (priority, _))| (*pg, *priority))
    }

    /// Takes the slot of the least urgent holder, if that is less urgent than this.
    fn preempt(&mut self, priority: u8) -> bool {
        let least = self.held.iter().min_by_key(|(_, held)| **held).map(|(pg, held)| (*pg, *held));
        match least {
            Some((pg, held)) if held < priority && self.held.len() <= self.max => {
                self.held.remove(&pg);
                self.news.retain(|(id, _)| *id != pg);
                self.news.push((pg, SlotNews::Preempted));
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SlotNews::*;
    use super::*;
    use types::PoolId;

    fn pg(seed: u32) -> PgId {
        PgId { pool: PoolId(1), seed }
    }

    #[test]
    fn so_many_hold_a_slot_and_the_others_wait_in_order_of_urgency_then_of_arrival() {
        let mut r = Reserver::new(2);
        for (n, priority) in [(1, 180), (2, 180), (3, 100), (4, 140), (5, 140)] {
            r.request(pg(n), priority);
        }
        assert_eq!(r.take_news(), [(pg(1), Granted), (pg(2), Granted)]);
        let item = |n, prio| json!({"item": pg(n).to_string(), "prio": prio, "can_preempt": true});
        let queues = json!([{"priority": 100, "items": [item(3, 100)]}, {"priority": 140, "items": [item(4, 140), item(5, 140)]}]);
        assert_eq!(r.dump(), json!({"max_allowed": 2, "min_priority": 0, "queues": queues, "in_progress": [item(1, 180), item(2, 180)]}));
        r.cancel(pg(1));
        r.cancel(pg(2));
        assert_eq!(r.take_news(), [(pg(4), Granted), (pg(5), Granted)]);
        r.cancel(pg(5));
        assert_eq!(r.take_news(), [(pg(3), Granted)]);
    }

    #[test]
    fn the_more_urgent_takes_the_slot_of_the_least_urgent() {
        let mut r = Reserver::new(2);
        r.request(pg(1), 140);
        r.request(pg(2), 100);
        r.take_news();
        r.request(pg(3), 140);
        assert_eq!(r.take_news(), [(pg(2), Preempted), (pg(3), Granted)]);
        r.request(pg(4), 140);
        assert_eq!(r.take_news(), []);
    }

    #[test]
    fn who_asks_again_is_told_again_and_keeps_its_place() {
        let mut r = Reserver::new(1);
        r.request(pg(1), 100);
        r.request(pg(2), 100);
        r.request(pg(3), 100);
        r.take_news();
        r.request(pg(1), 100);
        r.request(pg(2), 100);
        assert_eq!(r.take_news(), [(pg(1), Granted)]);
        r.cancel(pg(1));
        assert_eq!(r.take_news(), [(pg(2), Granted)]);
    }

    #[test]
    fn fewer_slots_are_fewer_when_they_are_given_back() {
        let mut r = Reserver::new(2);
        r.request(pg(1), 100);
        r.request(pg(2), 100);
        r.set_max(1);
        r.request(pg(3), 255);
        r.take_news();
        r.cancel(pg(1));
        assert_eq!(r.take_news(), [(pg(2), Preempted), (pg(3), Granted)]);
    }
}
