//! What a message does to its one object, and to the object's clones, in order: the part of a transaction that every acting
//! OSD applies alike.
//!
//! Room: osd core.   Holds: applied to equal objects, a mutation gives equal objects.
//! Why not the store's transaction: this names no collection and no object, travels in one message with its payload
//! uncopied, and is what tests compare.

use bytes::Bytes;
use denc::{BString, DecodeError, Decoder, Encoder};
use store::{AllocHint, ObjIdx, Op, Transaction};
use crate::object::{INFO_ATTR, SNAPSET_ATTR};
use crate::snaps;
use types::msg::BufList;
use types::{HObject, Snap};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Creates the object if it does not exist.
    Touch,
    Write { off: u64, data: BufList },
    /// Adds to what is there, bit by bit.
    Xor { off: u64, data: BufList },
    Zero { off: u64, len: u64 },
    /// Cuts or extends with zeros.
    Truncate { size: u64 },
    /// Removes data, attributes and omap.
    Remove,
    SetAttr { name: BString, value: Bytes },
    RmAttr { name: BString },
    OmapSet { pairs: Vec<(BString, Bytes)> },
    OmapRm { keys: Vec<BString> },
    /// `from` inclusive, `to` exclusive.
    OmapRmRange { from: BString, to: BString },
    OmapClear,
    OmapSetHeader { header: Bytes },
    AllocHint { object_size: u64, write_size: u64, flags: u32 },
    /// The object as it is becomes a clone, described by `info`, which these snapshots show.
    Clone { clone: Snap, info: Bytes, snaps: Vec<Snap> },
    /// The object becomes what one of its clones is.
    BecomeClone { clone: Snap },
    /// Another description of a clone.
    SetCloneInfo { clone: Snap, info: Bytes },
    RemoveClone { clone: Snap },
    /// These snapshots do not show a clone any more.
    Unshow { clone: Snap, snaps: Vec<Snap> },
}

/// Steps on one object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mutation {
    pub steps: Vec<Step>,
}

impl Mutation {
    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Appends a step.
    pub fn push(&mut self, step: Step) {
        self.steps.push(step);
    }

    /// This between what `around` does first, which is to make a clone, and the rest of that.
    pub fn within(self, around: &Mutation) -> Mutation {
        let first = around.steps.iter().take_while(|step| matches!(step, Step::Clone { .. })).count();
        let (front, back) = around.steps.split_at(first);
        Mutation { steps: front.iter().cloned().chain(self.steps).chain(back.iter().cloned()).collect() }
    }

    /// The ranges that are written, if apart from attributes and clones nothing else changes.
    pub fn overwritten(&self) -> Option<Vec<(u64, u64)>> {
        let range = |step: &Step| match step {
            Step::Write { off, data } | Step::Xor { off, data } => Some(Some((*off, data.len() as u64))),
            Step::Touch | Step::SetAttr { .. } | Step::RmAttr { .. } | Step::AllocHint { .. } => Some(None),
            Step::Clone { .. } | Step::SetCloneInfo { .. } | Step::RemoveClone { .. } | Step::Unshow { .. } => Some(None),
            _ => None,
        };
        let all: Option<Vec<Option<(u64, u64)>>> = self.steps.iter().map(range).collect();
        all.map(|all| all.into_iter().flatten().collect())
    }

    /// The same steps as the store takes them, on `obj`.
    pub fn into_transaction(self, txn: &mut Transaction, obj: &HObject) {
        let idx = txn.obj(obj);
        self.steps.into_iter().for_each(|step| step.put(txn, idx, obj));
    }

    /// Appends the steps' encoding to `e`; written data goes into `payload`, shared, not copied.
    pub fn encode_split(&self, e: &mut Encoder, payload: &mut BufList) {
        e.count(self.steps.len());
        self.steps.iter().for_each(|step| step.encode_split(e, payload));
    }

    /// Reads what `encode_split` wrote; the payload's pieces are sliced off its front.
    pub fn decode_split(d: &mut Decoder<'_>, payload: &mut BufList) -> Result<Self, DecodeError> {
        let n = d.count()?;
        let mut steps = Vec::with_capacity(d.capacity_for(n, 1));
        for _ in 0..n {
            steps.push(Step::decode_split(d, payload)?);
        }
        Ok(Mutation { steps })
    }
}

impl Step {
    /// Adds it to a transaction; `obj` is the object called `name` there.
    fn put(self, txn: &mut Transaction, obj: ObjIdx, name: &HObject) {
        let named = |clone: Snap| HObject { snap: clone, ..name.clone() };
        let op = match self {
            Step::Touch => Op::Touch(obj),
            Step::Write { off, data } => Op::Write { obj, off, data },
            Step::Xor { off, data } => Op::Xor { obj, off, data },
            Step::Zero { off, len } => Op::Zero { obj, off, len },
            Step::Truncate { size } => Op::Truncate { obj, size },
            Step::Remove => Op::Remove(obj),
            Step::SetAttr { name, value } => Op::SetAttrs { obj, attrs: vec![(name, value)] },
            Step::RmAttr { name } => Op::RmAttr { obj, name },
            Step::OmapSet { pairs } => Op::OmapSet { obj, pairs },
            Step::OmapRm { keys } => Op::OmapRm { obj, keys },
            Step::OmapRmRange { from, to } => Op::OmapRmRange { obj, from, to },
            Step::OmapClear => Op::OmapClear(obj),
            Step::OmapSetHeader { header } => Op::OmapSetHeader { obj, header },
            Step::AllocHint { object_size, write_size, flags } => {
                let hint = AllocHint { expected_object_size: object_size, expected_write_size: write_size, flags };
                Op::SetAllocHint { obj, hint }
            }
            Step::Clone { clone, info, snaps } => {
                let to = txn.obj(&named(clone));
                txn.ops.push(Op::Clone { from: obj, to });
                txn.ops.push(Op::SetAttrs { obj: to, attrs: vec![(INFO_ATTR.into(), info)] });
                txn.ops.push(Op::RmAttr { obj: to, name: SNAPSET_ATTR.into() });
                return snaps::index(txn, &named(clone), &snaps);
            }
            Step::BecomeClone { clone } => Op::Clone { from: txn.obj(&named(clone)), to: obj },
            Step::SetCloneInfo { clone, info } => Op::SetAttrs { obj: txn.obj(&named(clone)), attrs: vec![(INFO_ATTR.into(), info)] },
            Step::RemoveClone { clone } => Op::Remove(txn.obj(&named(clone))),
            Step::Unshow { clone, snaps } => return snaps::unindex(txn, &named(clone), &snaps),
        };
        txn.ops.push(op);
    }

    fn encode_split(&self, e: &mut Encoder, payload: &mut BufList) {
        match self {
            Step::Touch => e.put(&1u8),
            Step::Write { off, data } => put_data(e.put(&2u8).put(off), payload, data),
            Step::Zero { off, len } => e.put(&3u8).put(off).put(len),
            Step::Truncate { size } => e.put(&4u8).put(size),
            Step::Remove => e.put(&5u8),
            Step::SetAttr { name, value } => e.put(&6u8).put(name).put(value),
            Step::RmAttr { name } => e.put(&7u8).put(name),
            Step::OmapSet { pairs } => e.put(&8u8).put(pairs),
            Step::OmapRm { keys } => e.put(&9u8).put(keys),
            Step::OmapRmRange { from, to } => e.put(&10u8).put(from).put(to),
            Step::OmapClear => e.put(&11u8),
            Step::OmapSetHeader { header } => e.put(&12u8).put(header),
            Step::AllocHint { object_size, write_size, flags } => {
                e.put(&13u8).put(object_size).put(write_size).put(flags)
            }
            Step::Clone { clone, info, snaps } => e.put(&14u8).put(clone).put(info).put(snaps),
            Step::BecomeClone { clone } => e.put(&15u8).put(clone),
            Step::SetCloneInfo { clone, info } => e.put(&16u8).put(clone).put(info),
            Step::RemoveClone { clone } => e.put(&17u8).put(clone),
            Step::Unshow { clone, snaps } => e.put(&18u8).put(clone).put(snaps),
            Step::Xor { off, data } => put_data(e.put(&19u8).put(off), payload, data),
        };
    }

    fn decode_split(d: &mut Decoder<'_>, payload: &mut BufList) -> Result<Self, DecodeError> {
        Ok(match d.get::<u8>()? {
            1 => Step::Touch,
            2 => Step::Write { off: d.get()?, data: take_data(d, payload)? },
            3 => Step::Zero { off: d.get()?, len: d.get()? },
            4 => Step::Truncate { size: d.get()? },
            5 => Step::Remove,
            6 => Step::SetAttr { name: d.get()?, value: d.get()? },
            7 => Step::RmAttr { name: d.get()? },
            8 => Step::OmapSet { pairs: d.get()? },
            9 => Step::OmapRm { keys: d.get()? },
            10 => Step::OmapRmRange { from: d.get()?, to: d.get()? },
            11 => Step::OmapClear,
            12 => Step::OmapSetHeader { header: d.get()? },
            13 => Step::AllocHint { object_size: d.get()?, write_size: d.get()?, flags: d.get()? },
            14 => Step::Clone { clone: d.get()?, info: d.get()?, snaps: d.get()? },
            15 => Step::BecomeClone { clone: d.get()? },
            16 => Step::SetCloneInfo { clone: d.get()?, info: d.get()? },
            17 => Step::RemoveClone { clone: d.get()? },
            18 => Step::Unshow { clone: d.get()?, snaps: d.get()? },
            19 => Step::Xor { off: d.get()?, data: take_data(d, payload)? },
            other => return Err(DecodeError::BadTag { what: "mutation step", tag: other.into() }),
        })
    }
}

/// The length of data, which goes into the payload.
fn put_data<'a>(e: &'a mut Encoder, payload: &mut BufList, data: &BufList) -> &'a mut Encoder {
    payload.append(data.clone());
    e.put(&(data.len() as u64))
}

/// What `put_data` wrote.
fn take_data(d: &mut Decoder<'_>, payload: &mut BufList) -> Result<BufList, DecodeError> {
    let len = usize::try_from(d.get::<u64>()?).unwrap_or(usize::MAX);
    let left = payload.len();
    payload.split_to(len).ok_or(DecodeError::Short { wanted: len, left })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_survives_the_wire_and_payload_keeps_its_order() {
        let data = |s: &'static [u8]| BufList::from(Bytes::from_static(s));
        let m = Mutation {
            steps: vec![
                Step::Touch,
                Step::Write { off: 3, data: data(b"abc") },
                Step::Zero { off: 1, len: 2 },
                Step::Write { off: 9, data: data(b"de") },
                Step::Xor { off: 5, data: data(b"fgh") },
                Step::Truncate { size: 4 },
                Step::Remove,
                Step::SetAttr { name: "n".into(), value: "v".into() },
                Step::RmAttr { name: "n".into() },
                Step::OmapSet { pairs: vec![("k".into(), "v".into())] },
                Step::OmapRm { keys: vec!["k".into()] },
                Step::OmapRmRange { from: "a".into(), to: "b".into() },
                Step::OmapClear,
                Step::OmapSetHeader { header: "h".into() },
                Step::AllocHint { object_size: 1, write_size: 2, flags: 3 },
                Step::Clone { clone: Snap(4), info: "i".into(), snaps: vec![Snap(4), Snap(3)] },
                Step::BecomeClone { clone: Snap(4) },
                Step::SetCloneInfo { clone: Snap(4), info: "j".into() },
                Step::RemoveClone { clone: Snap(4) },
                Step::Unshow { clone: Snap(4), snaps: vec![Snap(3)] },
            ],
        };
        let (mut e, mut payload) = (Encoder::new(0), BufList::default());
        m.encode_split(&mut e, &mut payload);
        let front = e.finish();
        let back = Mutation::decode_split(&mut Decoder::shared(&front), &mut payload).unwrap();
        assert_eq!(back, m);
        assert!(payload.is_empty());
    }

    #[test]
    fn a_write_that_claims_more_payload_than_there_is_is_refused() {
        let data = |s: &'static [u8]| BufList::from(Bytes::from_static(s));
        let m = Mutation { steps: vec![Step::Write { off: 0, data: data(b"abc") }] };
        let (mut e, mut payload) = (Encoder::new(0), BufList::default());
        m.encode_split(&mut e, &mut payload);
        let front = e.finish();
        assert!(Mutation::decode_split(&mut Decoder::shared(&front), &mut data(b"ab")).is_err());
    }
}
