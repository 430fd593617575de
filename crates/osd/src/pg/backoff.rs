//! Backoffs: clients of a PG that cannot serve soon are told to hold back instead of queueing here.
//!
//! Upstream: doc/dev/osd_internals/backoff.rst; MOSDBackoff.

use super::{ClientOp, OpSource, Pg};
use crate::effects::{Cx, Durable, Peer, SessionId};
use crate::ops::pg_range;
use std::collections::BTreeMap;
use types::msg::osd::MOsdBackoff;
use types::{HObject, ShardPgId};

/// Sessions that were told to hold back, with the number of the backoff and its range.
#[derive(Debug, Default)]
pub(crate) struct Backoffs {
    blocked: BTreeMap<SessionId, Backoff>,
}

#[derive(Debug)]
struct Backoff {
    id: u64,
    begin: HObject,
    end: HObject,
}

impl Backoffs {
    /// Tells everybody to go on.
    pub fn release_all(&mut self, cx: &mut Cx<'_>, pgid: ShardPgId) {
        for (session, b) in std::mem::take(&mut self.blocked) {
            let msg = MOsdBackoff {
                pgid,
                epoch: cx.sh.map.epoch,
                op: MOsdBackoff::UNBLOCK,
                id: b.id,
                begin: b.begin,
                end: b.end,
            };
            cx.send(Peer::Session(session), 0, msg, Durable::Now);
        }
    }

    pub fn forget_session(&mut self, session: SessionId) {
        self.blocked.remove(&session);
    }
}

impl Pg {
    /// Drops an operation and tells its client to hold back; it sends again when released.
    pub(super) fn back_off(&mut self, cx: &mut Cx<'_>, op: ClientOp) {
        let OpSource::Session(session) = op.source else {
            return self.waiting.push_back(op);
        };
        if self.backoffs.blocked.contains_key(&session) {
            return;
        }
        cx.sh.next_op += 1;
        let id = cx.sh.next_op;
        let (begin, end) = pg_range(self.id, self.walk.mapping.bits);
        let msg = MOsdBackoff {
            pgid: self.coll,
            epoch: cx.sh.map.epoch,
            op: MOsdBackoff::BLOCK,
            id,
            begin: begin.clone(),
            end: end.clone(),
        };
        self.backoffs.blocked.insert(session, Backoff { id, begin, end });
        cx.send(Peer::Session(session), 0, msg, Durable::Now);
    }

    /// Sends everything that waits here back to its clients.
    pub(super) fn back_off_waiting(&mut self, cx: &mut Cx<'_>) {
        for op in std::mem::take(&mut self.waiting) {
            self.back_off(cx, op);
        }
    }
}
