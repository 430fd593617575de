//! Clients' sessions: who they are, what they may do, which map they were last given.

use crate::cls;
use crate::effects::SessionId;
use auth::OsdCaps;
use auth::caps::{ClassCall, OsdAsk};
use std::collections::BTreeMap;
use types::map::OsdMap;
use types::msg::osd::MOsdOp;
use types::msg::osd_op::{Op, Watch};
use types::{EntityAddr, EntityInst, EntityName, Epoch};

/// A client, as authentication and its session describe it.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    pub name: EntityName,
    pub inst: EntityInst,
    pub addr: EntityAddr,
    pub caps: OsdCaps,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub info: SessionInfo,
    /// The newest map it is known to have.
    pub epoch: Epoch,
}

pub(crate) type Sessions = BTreeMap<SessionId, Session>;

impl Session {
    /// True if the session's capabilities cover the operation.
    pub fn may(&self, map: &OsdMap, m: &MOsdOp) -> bool {
        if self.info.caps.allows_all() {
            return true;
        }
        let pool = m.pgid.pg.pool;
        let name = map.pool_name.get(&pool).map(String::as_str).unwrap_or_default();
        let Some(p) = map.pool_by_id(pool) else { return false };
        let mut parts = Vec::new();
        for op in &m.ops {
            if let Op::Call(args) = op.op
                && let Ok((class, method, _)) = op.call_parts(&args)
                && let Ok(method) = cls::find(&class, &method)
            {
                parts.push((String::from_utf8_lossy(&class).into_owned(), method));
            }
        }
        let call = |(class, m): &'_ (String, &'static cls::Method)| (class.clone(), m.name, m.flags);
        let parts: Vec<_> = parts.iter().map(call).collect();
        let calls: Vec<ClassCall<'_>> = parts
            .iter()
            .map(|(class, method, flags)| ClassCall {
                class,
                method,
                reads: flags & cls::RD != 0,
                writes: flags & cls::WR != 0,
                listed: true,
            })
            .collect();
        let nspace = String::from_utf8_lossy(&m.locator.nspace);
        let key = if m.locator.key.is_empty() { &m.oid } else { &m.locator.key };
        let object = String::from_utf8_lossy(key);
        let ask = OsdAsk {
            pool: name,
            nspace: &nspace,
            applications: &p.application_metadata,
            object: &object,
            reads: m.ops.iter().any(|o| o.op.reads() || matches!(o.op, Op::Watch(_))),
            writes: m.ops.iter().any(|o| writes(&o.op)),
            calls: &calls,
            addr: self.info.addr.sock.map(|s| s.ip()),
        };
        self.info.caps.is_capable(&ask)
    }
}

/// A ping of a watch needs no more than the right to look.
fn writes(op: &Op) -> bool {
    op.writes() && !matches!(op, Op::Watch(w) if w.op == Watch::PING)
}
