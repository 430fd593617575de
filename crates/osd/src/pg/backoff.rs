//! Backoffs: clients of a PG that cannot serve soon are told to hold back instead of queueing here.
//!
//! Holds: what a client sent before it heard of a backoff is dropped until it confirms that it did, also if it may go on by then.
//! It sends again all that is unanswered when it is released; if something of that ran before, operations would change places.
//! Upstream: doc/dev/rados-client-protocol.rst; MOSDBackoff.

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
    /// The newest backoff of sessions that have not confirmed it.
    unheard: BTreeMap<SessionId, u64>,
}

#[derive(Debug)]
struct Backoff {
    /// The PG as its client named it.
    pgid: ShardPgId,
    id: u64,
    begin: HObject,
    end: HObject,
}

impl Backoffs {
    /// Tells everybody to go on.
    pub fn release_all(&mut self, cx: &mut Cx<'_>) {
        for (session, b) in std::mem::take(&mut self.blocked) {
            let msg = MOsdBackoff {
                pgid: b.pgid,
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
        self.unheard.remove(&session);
    }

    /// A client has heard of a backoff; true if there is no newer one: what it sends from now on it sent since.
    pub fn handle_ack(&mut self, session: SessionId, id: u64) -> bool {
        let newest = self.unheard.get(&session) == Some(&id);
        if newest {
            self.unheard.remove(&session);
        }
        newest
    }

    /// True if what this source sends may come before something that it will send again.
    pub fn is_unheard_by(&self, source: OpSource) -> bool {
        matches!(source, OpSource::Session(session) if self.unheard.contains_key(&session))
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
            pgid: op.msg.pgid,
            epoch: cx.sh.map.epoch,
            op: MOsdBackoff::BLOCK,
            id,
            begin: begin.clone(),
            end: end.clone(),
        };
        self.backoffs.blocked.insert(session, Backoff { pgid: op.msg.pgid, id, begin, end });
        self.backoffs.unheard.insert(session, id);
        cx.send(Peer::Session(session), 0, msg, Durable::Now);
    }

    /// Sends everything that waits here back to its clients.
    pub(super) fn back_off_waiting(&mut self, cx: &mut Cx<'_>) {
        for op in std::mem::take(&mut self.waiting) {
            self.back_off(cx, op);
        }
    }
}
