//! Who may touch an object now, and who waits: per object, in order of arrival.
//!
//! Holds: readers see durable data only, so they wait for writes in flight and writes wait for readers; writes that
//! read nothing follow each other without waiting; a message that reads and writes is alone until it has submitted.

use super::ClientOp;
use crate::ops::Access;
use std::collections::{BTreeMap, VecDeque};
use types::HObject;

/// The objects that are in use.
#[derive(Debug, Default)]
pub(super) struct Queue {
    objects: BTreeMap<HObject, InUse>,
    /// Admitted operations that have not run yet.
    ready: VecDeque<ClientOp>,
}

#[derive(Debug, Default)]
struct InUse {
    /// Reading operations that wait for data.
    readers: u32,
    /// A read-write operation that has not submitted yet.
    exclusive: bool,
    /// Submitted writes that are not durable everywhere.
    writes: u32,
    /// Number of the newest such write.
    last_write: u64,
    waiting: VecDeque<ClientOp>,
}

impl InUse {
    fn admits(&self, a: Access) -> bool {
        match (a.reads, a.writes) {
            (_, false) => self.writes == 0 && !self.exclusive,
            (false, true) => self.readers == 0 && !self.exclusive,
            (true, true) => self.readers == 0 && self.writes == 0 && !self.exclusive,
        }
    }

    fn enter(&mut self, a: Access) {
        if a.writes {
            self.exclusive = true;
        } else {
            self.readers += 1;
        }
    }

    fn is_idle(&self) -> bool {
        self.readers == 0 && !self.exclusive && self.writes == 0 && self.waiting.is_empty()
    }
}

impl Queue {
    /// Lets an operation in, or queues it behind those before it.
    pub fn arrive(&mut self, op: ClientOp) {
        let object = match self.objects.get_mut(&op.object) {
            Some(object) => object,
            None => self.objects.entry(op.object.clone()).or_default(),
        };
        if object.waiting.is_empty() && object.admits(op.access) {
            object.enter(op.access);
            self.ready.push_back(op);
        } else {
            object.waiting.push_back(op);
        }
    }

    /// Objects that are in use.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// The next operation to run.
    pub fn pop_ready(&mut self) -> Option<ClientOp> {
        self.ready.pop_front()
    }

    /// An operation is done without having submitted anything.
    pub fn leave(&mut self, obj: &HObject, access: Access) {
        let Some(object) = self.objects.get_mut(obj) else { return };
        if access.writes {
            object.exclusive = false;
        } else {
            object.readers -= 1;
        }
        self.wake(obj);
    }

    /// A writing operation has submitted write number `version`.
    pub fn submitted(&mut self, obj: &HObject, version: u64) {
        let Some(object) = self.objects.get_mut(obj) else { return };
        object.exclusive = false;
        object.writes += 1;
        object.last_write = version;
        self.wake(obj);
    }

    /// A write is durable everywhere.
    pub fn committed(&mut self, obj: &HObject) {
        let Some(object) = self.objects.get_mut(obj) else { return };
        object.writes -= 1;
        self.wake(obj);
    }

    /// The newest write in flight on an object.
    pub fn last_write(&self, obj: &HObject) -> Option<u64> {
        self.objects.get(obj).filter(|o| o.writes > 0).map(|o| o.last_write)
    }

    /// Every operation here: those about to run, then those that wait, in order for each object.
    pub fn into_ops(self) -> impl Iterator<Item = ClientOp> {
        self.ready.into_iter().chain(self.objects.into_values().flat_map(|o| o.waiting))
    }

    /// Operations that wait for others on their object.
    pub fn waiting(&self) -> impl Iterator<Item = &ClientOp> {
        self.objects.values().flat_map(|o| o.waiting.iter())
    }

    fn wake(&mut self, obj: &HObject) {
        let Some(object) = self.objects.get_mut(obj) else { return };
        while object.waiting.front().is_some_and(|op| object.admits(op.access)) {
            let Some(op) = object.waiting.pop_front() else { break };
            object.enter(op.access);
            self.ready.push_back(op);
        }
        if object.is_idle() {
            self.objects.remove(obj);
        }
    }
}
