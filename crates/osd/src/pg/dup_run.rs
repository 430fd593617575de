//! A run of remembered requests, packed: each as what it differs by from the one before, in some ten bytes instead of ninety.
//!
//! Room: osd core.   Owns: `DupRun`.
//! Why not as they are stored: these are never written anywhere, so that their form may change with any build.

use denc::{DecodeError, Decoder, put_varint, varint};
use types::pg::{OpReturn, PgLogDup};
use types::{EVersion, EntityInst, EntityKind, Epoch, ReqId};

/// Requests, oldest first; one at least.
#[derive(Debug, Clone)]
pub(super) struct DupRun {
    /// Number of the oldest one's version.
    pub first: u64,
    packed: Box<[u8]>,
}

impl DupRun {
    /// Panics if there are none.
    pub fn pack<'a>(dups: impl Iterator<Item = &'a PgLogDup>) -> DupRun {
        let (mut out, mut first, none) = (Vec::new(), None, PgLogDup::default());
        let mut before = &none;
        for dup in dups {
            put(&mut out, dup, before);
            first = first.or(Some(dup.version.version));
            before = dup;
        }
        DupRun { first: first.expect("a run is not empty"), packed: out.into() }
    }

    /// The requests, oldest first.
    pub fn unpack(&self) -> impl Iterator<Item = PgLogDup> {
        let mut d = Decoder::new(&self.packed);
        let mut before = PgLogDup::default();
        std::iter::from_fn(move || {
            if d.is_empty() {
                return None;
            }
            before = take(&mut d, &before).expect("what was packed here unpacks");
            Some(before.clone())
        })
    }

    /// Bytes of memory that it takes.
    pub fn memory(&self) -> usize {
        size_of::<DupRun>() + self.packed.len()
    }
}

fn put(out: &mut Vec<u8>, dup: &PgLogDup, before: &PgLogDup) {
    let mut differs = |now: u64, then: u64| put_varint(out, folded(now.wrapping_sub(then) as i64));
    differs(dup.version.version, before.version.version);
    differs(dup.version.epoch.0.into(), before.version.epoch.0.into());
    differs(dup.user_version, dup.version.version);
    differs(dup.result as u64, before.result as u64);
    differs(dup.reqid.name.kind.0.into(), before.reqid.name.kind.0.into());
    differs(dup.reqid.name.num as u64, before.reqid.name.num as u64);
    differs(dup.reqid.tid, before.reqid.tid);
    differs(dup.reqid.inc as u64, before.reqid.inc as u64);
    put_varint(out, dup.op_returns.len() as u64);
    for OpReturn { rval, output } in &dup.op_returns {
        put_varint(out, folded((*rval).into()));
        put_varint(out, output.len() as u64);
        out.extend_from_slice(output);
    }
}

fn take(d: &mut Decoder<'_>, before: &PgLogDup) -> Result<PgLogDup, DecodeError> {
    let mut next = |then: u64| Ok::<u64, DecodeError>(then.wrapping_add(unfolded(varint(d)?) as u64));
    let version = next(before.version.version)?;
    let epoch = Epoch(next(before.version.epoch.0.into())? as u32);
    let user_version = next(version)?;
    let result = next(before.result as u64)? as i32;
    let kind = EntityKind(next(before.reqid.name.kind.0.into())? as u8);
    let num = next(before.reqid.name.num as u64)? as i64;
    let tid = next(before.reqid.tid)?;
    let inc = next(before.reqid.inc as u64)? as i32;
    let mut op_returns = Vec::new();
    for _ in 0..varint(d)? {
        let rval = unfolded(varint(d)?) as i32;
        let len = varint(d)? as usize;
        op_returns.push(OpReturn { rval, output: d.bytes(len)? });
    }
    let reqid = ReqId { name: EntityInst { kind, num }, tid, inc };
    Ok(PgLogDup { reqid, version: EVersion { epoch, version }, user_version, result, op_returns })
}

/// Small numbers of both signs as small ones without.
fn folded(v: i64) -> u64 {
    ((v << 1) ^ (v >> 63)) as u64
}

fn unfolded(v: u64) -> i64 {
    (v >> 1) as i64 ^ -((v & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn requests_of_all_kinds_read_back() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for _ in 0..200 {
            let mut wild = || rng.random::<u64>() >> rng.random_range(0..64);
            let dups: Vec<PgLogDup> = (0..20)
                .map(|_| PgLogDup {
                    reqid: ReqId { name: EntityInst { kind: EntityKind(wild() as u8), num: wild() as i64 }, tid: wild(), inc: wild() as i32 },
                    version: EVersion { epoch: Epoch(wild() as u32), version: wild() },
                    user_version: wild(),
                    result: wild() as i32,
                    op_returns: (0..wild() % 3).map(|n| OpReturn { rval: wild() as i32, output: vec![n as u8; wild() as usize % 200].into() }).collect(),
                })
                .collect();
            let run = DupRun::pack(dups.iter());
            assert_eq!((run.first, run.unpack().count()), (dups[0].version.version, 20));
            assert!(run.unpack().eq(dups));
        }
    }

    #[test]
    fn a_request_takes_little_memory() {
        let dup = |version: u64| PgLogDup {
            reqid: ReqId { name: EntityInst { kind: EntityKind::CLIENT, num: 4100 + version as i64 % 3 }, tid: 70_000 + 61 * version, inc: 0 },
            version: EVersion { epoch: Epoch(20), version },
            user_version: version,
            ..PgLogDup::default()
        };
        let dups: Vec<PgLogDup> = (900_000..900_032).map(dup).collect();
        let memory = DupRun::pack(dups.iter()).memory();
        assert!(memory < 32 * 13, "{memory}");
    }
}
