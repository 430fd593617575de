//! Listing the objects of a pool, PG by PG.

use crate::handle::{Handle, check};
use crate::io::IoCtx;
use crate::objecter::OpRequest;
use bytes::Bytes;
use denc::{BString, Decode, DecodeError, Decoder};
use types::msg::osd_op::Pgls;
use types::msg::{Op, OsdOp};
use types::{Errno, HObject, PgId};

/// Objects asked for in one request.
const PAGE: u64 = 1024;

/// An object as a listing has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListEntry {
    pub nspace: BString,
    pub name: BString,
    /// Locator key; empty when placed by name.
    pub key: BString,
}

impl Decode for ListEntry {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        Ok(ListEntry { nspace: d.get()?, name: d.get()?, key: d.get()? })
    }
}

/// A page, and where the next one begins.
struct Page {
    next: HObject,
    entries: Vec<ListEntry>,
}

impl Decode for Page {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        d.envelope("pg_nls_response_t", 1, |_, d| Ok(Page { next: d.get()?, entries: d.get()? }))
    }
}

impl IoCtx {
    /// The namespace that stands for all.
    pub const ALL_NAMESPACES: &'static [u8] = b"\x01";

    /// Every object of this namespace; of all of them with `namespace(IoCtx::ALL_NAMESPACES)`.
    pub async fn list(&self) -> Result<Vec<ListEntry>, Errno> {
        let map = self.handle.map().await?;
        let pgs: Vec<PgId> = map.pgs(self.pool()).collect();
        if map.pool_by_id(self.pool()).is_none() {
            return Err(Errno::ENOENT);
        }
        let mut all = Vec::new();
        for pg in pgs {
            self.list_pg(pg, &mut all).await?;
        }
        Ok(all)
    }

    async fn list_pg(&self, pg: PgId, all: &mut Vec<ListEntry>) -> Result<(), Errno> {
        let mut cursor = HObject::min();
        loop {
            let (page, exhausted) = list_page(&self.handle, &self.nspace, pg, &cursor).await?;
            all.extend(page.entries);
            // At the end an OSD names the beginning of the next PG, or nothing.
            if exhausted || page.next.max || page.next <= cursor {
                return Ok(());
            }
            cursor = page.next;
        }
    }
}

async fn list_page(handle: &Handle, nspace: &BString, pg: PgId, cursor: &HObject) -> Result<(Page, bool), Errno> {
    let mut op = OsdOp::from(Op::Pgnls(Pgls { count: PAGE, start_epoch: 0 }));
    op.indata = denc::to_bytes(cursor, 0).into();
    let reply = handle.submit(OpRequest::pg(pg.pool, nspace.clone(), pg.seed, vec![op])).await?;
    let result = check(reply.result)?;
    let out: Bytes = reply.ops.first().map(|op| op.outdata.contiguous()).unwrap_or_default();
    let page = denc::from_slice(&out).map_err(|_| Errno::EIO)?;
    Ok((page, result == 1))
}
