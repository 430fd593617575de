//! Each operation against an object on a store in memory.

use super::*;
use crate::cls::Origin;
use crate::mutation::Step;
use crate::object::{INFO_ATTR, WatcherKey};
use crate::snaps::Snaps;
use bytes::Bytes;
use denc::{BString, Encoder};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, BTreeSet};
use store::mem::{MemDev, MemDisk, MemKv};
use store::{ReadFlags, ReadId, Store, StoreConfig, StoreEvent, Transaction, TxcId};
use types::msg::osd_op::*;
use types::*;
use uuid::Uuid;

/// One object, with a transaction durable as soon as it is planned.
struct Bench {
    disk: MemDisk,
    store: Store<MemDev, MemKv>,
    obj: HObject,
    limits: Limits,
    rng: ChaCha8Rng,
    version: u64,
    now: Now,
    client: i64,
    watch: Vec<WatchAction>,
    connected: bool,
    snaps: Snaps,
}

const COLL: ShardPgId = ShardPgId { pg: PgId { pool: PoolId(1), seed: 0 }, shard: -1 };

impl Bench {
    fn new() -> Self {
        let disk = MemDisk::new(64 << 20);
        Store::mkfs(&mut disk.dev(), &mut disk.kv(), Uuid::nil(), Uuid::nil(), 0).unwrap();
        let store = Store::mount(disk.dev(), disk.kv(), StoreConfig::default(), Uuid::nil(), 0).unwrap();
        let obj = HObject { pool: PoolId(1), name: "o".into(), snap: Snap::HEAD, ..HObject::min() };
        let now = Now { mono: Mono(1), wall: Utime { sec: 1000, nsec: 0 } };
        let rng = ChaCha8Rng::seed_from_u64(1);
        let limits = Limits { object_size_max: 1 << 20, ..Limits::default() };
        let mut b = Bench { disk, store, obj, limits, rng, version: 0, now, client: 7, watch: vec![], connected: true, snaps: Snaps::default() };
        let mut txn = Transaction::new(COLL);
        txn.create_coll(0);
        b.commit(txn);
        b
    }

    fn commit(&mut self, txn: Transaction) {
        self.version += 1;
        self.store.submit(self.now, TxcId(self.version), txn).unwrap();
        self.drain();
    }

    /// Lets the disk finish; returns what was read.
    fn drain(&mut self) -> Vec<Result<store::ReadData, Errno>> {
        let mut reads = vec![];
        loop {
            while let Some(event) = self.store.poll_event() {
                if let StoreEvent::ReadDone { result, .. } = event {
                    reads.push(result);
                }
            }
            let Some((id, _)) = self.disk.pending().first().copied() else { return reads };
            let result = self.disk.complete(id);
            self.store.handle_io(self.now, id, result);
        }
    }

    fn info(&mut self) -> Option<ObjectInfo> {
        let raw = self.store.getattr(COLL, &self.obj, INFO_ATTR).ok()?;
        Some(denc::from_bytes(&raw).unwrap())
    }

    fn plan(&mut self, ops: &[OsdOp], returnvec: bool, mut fetched: Fetched) -> Plan {
        let connected = self.connected;
        loop {
            let stored = self.info();
            let env = Env {
                disk: &mut self.store,
                coll: COLL,
                obj: &self.obj,
                now: self.now,
                origin: Origin {
                    inst: EntityInst { kind: EntityKind::CLIENT, num: self.client },
                    addr: EntityAddr::msgr2("127.0.0.1:1".parse().unwrap(), 5),
                },
                limits: &self.limits,
                rng: &mut self.rng,
                fetched: &fetched,
                notify_id: 99,
                snaps: &self.snaps,
                watch_connected: &|_| connected,
            };
            match execute(env, ops, stored, returnvec) {
                Outcome::Plan(plan) => return *plan,
                Outcome::NeedCopy(_) => panic!("a copy is needed"),
                Outcome::NeedReads(keys) => {
                    for key in keys {
                        let flags = ReadFlags { sparse: key.sparse, ..Default::default() };
                        self.store.read(ReadId(1), COLL, &self.obj.clone(), key.off, key.len, flags);
                        fetched.reads.insert(key, self.drain().pop().unwrap());
                    }
                }
            }
        }
    }

    /// Runs a message and applies it.
    fn run(&mut self, ops: &[OsdOp]) -> Plan {
        let mut plan = self.plan(ops, false, Fetched::default());
        self.watch.append(&mut plan.watch.clone());
        if !plan.mutation.is_empty() {
            plan.info.user_version += 1;
            let mut mutation = plan.mutation.clone();
            if plan.exists {
                mutation.push(Step::SetAttr { name: INFO_ATTR.into(), value: denc::to_bytes(&plan.info, 0) });
            }
            let mut txn = Transaction::new(COLL);
            mutation.into_transaction(&mut txn, &self.obj);
            self.commit(txn);
        }
        plan
    }

    fn result(&mut self, ops: &[OsdOp]) -> i32 {
        self.run(ops).result
    }

    fn out(&mut self, op: OsdOp) -> Vec<u8> {
        let plan = self.run(&[op]);
        assert_eq!(plan.result, 0);
        plan.results[0].outdata.contiguous().to_vec()
    }

    fn content(&mut self) -> Vec<u8> {
        self.out(OsdOp::read(0, 0))
    }
}

fn written(data: &'static [u8]) -> Bench {
    let mut b = Bench::new();
    assert_eq!(b.result(&[OsdOp::write_full(Bytes::from_static(data))]), 0);
    b
}

fn extent(offset: u64, length: u64) -> Extent {
    Extent { offset, length, ..Extent::default() }
}

fn omap_set(pairs: &[(&str, &str)]) -> OsdOp {
    let map: BTreeMap<BString, Bytes> = pairs.iter().map(|(k, v)| ((*k).into(), Bytes::copy_from_slice(v.as_bytes()))).collect();
    OsdOp::with(Op::OmapSetVals, denc::to_bytes(&map, 0))
}

fn encoded<T: denc::Encode>(op: Op, value: T) -> OsdOp {
    OsdOp::with(op, denc::to_bytes(&value, 0))
}

fn cmpxattr(name: &str, value: &[u8], cmp_op: u8, cmp_mode: u8) -> OsdOp {
    let x = Xattr { name_len: name.len() as u32, value_len: value.len() as u32, cmp_op, cmp_mode };
    OsdOp::with(Op::CmpXattr(x), [name.as_bytes(), value].concat())
}

const ENOENT: i32 = -2;
const EINVAL: i32 = -22;
const EFBIG: i32 = -27;
const ECANCELED: i32 = -125;

#[test]
fn writes_overlap_and_holes_read_as_zeros() {
    let mut b = Bench::new();
    assert_eq!(b.result(&[OsdOp::write(4, Bytes::from_static(b"abcd"))]), 0);
    assert_eq!(b.content(), b"\0\0\0\0abcd");
    b.run(&[OsdOp::write(6, Bytes::from_static(b"XYZ"))]);
    assert_eq!(b.content(), b"\0\0\0\0abXYZ");
    b.run(&[OsdOp::write_full(Bytes::from_static(b"new"))]);
    assert_eq!(b.content(), b"new");
    b.run(&[OsdOp::append(Bytes::from_static(b"er")), OsdOp::append(Bytes::from_static(b"!"))]);
    assert_eq!(b.content(), b"newer!");
}

#[test]
fn reads_end_where_the_object_ends() {
    let mut b = written(b"0123456789");
    assert_eq!(b.out(OsdOp::read(3, 4)), b"3456");
    assert_eq!(b.out(OsdOp::read(8, 100)), b"89");
    assert_eq!(b.out(OsdOp::read(10, 5)), b"");
    assert_eq!(b.out(OsdOp::read(5, 0)), b"56789");
    assert_eq!(Bench::new().result(&[OsdOp::read(0, 1)]), ENOENT);
}

#[test]
fn a_sparse_read_lists_runs_before_their_bytes() {
    let mut b = written(b"0123456789");
    let out = b.out(Op::SparseRead(extent(2, 4)).into());
    let mut d = denc::Decoder::new(&out);
    let (runs, data): (Vec<(u64, u64)>, Bytes) = d.get().unwrap();
    assert_eq!((runs, data), (vec![(2, 4)], Bytes::from_static(b"2345")));
    let nothing = b.out(Op::SparseRead(extent(50, 4)).into());
    assert_eq!(nothing, [0; 8]);
}

#[test]
fn truncate_cuts_and_extends_and_leaves_absent_objects_alone() {
    let mut b = written(b"0123456789");
    b.run(&[OsdOp::truncate(3)]);
    assert_eq!(b.content(), b"012");
    b.run(&[OsdOp::truncate(5)]);
    assert_eq!(b.content(), b"012\0\0");
    let mut absent = Bench::new();
    assert_eq!(absent.result(&[OsdOp::truncate(5)]), 0);
    assert!(absent.info().is_none());
}

#[test]
fn an_old_write_after_a_truncation_does_not_make_the_object_longer_again() {
    let mut b = written(b"0123456789");
    let cut = Extent { offset: 4, truncate_size: 4, truncate_seq: 5, length: 0 };
    b.run(&[Op::Truncate(cut).into()]);
    let late = Extent { offset: 2, length: 6, truncate_seq: 4, truncate_size: 0 };
    b.run(&[OsdOp::with(Op::Write(late), Bytes::from_static(b"abcdef"))]);
    assert_eq!(b.content(), b"01ab");
    // A reader that knows of a later truncation sees no further.
    let read = Extent { offset: 0, length: 10, truncate_seq: 6, truncate_size: 1 };
    assert_eq!(b.out(Op::Read(read).into()), b"0");
}

#[test]
fn zeros_to_the_end_cut_and_beyond_it_do_nothing() {
    let mut b = written(b"0123456789");
    b.run(&[OsdOp::zero(2, 3)]);
    assert_eq!(b.content(), b"01\0\0\x0056789");
    b.run(&[OsdOp::zero(6, 100)]);
    assert_eq!(b.content(), b"01\0\0\x005");
    assert_eq!(b.result(&[OsdOp::zero(50, 10)]), 0);
    assert_eq!(b.info().unwrap().size, 6);
    let mut absent = Bench::new();
    assert_eq!(absent.result(&[OsdOp::zero(0, 10)]), 0);
    assert!(absent.info().is_none());
}

#[test]
fn create_and_delete_say_what_was_wrong() {
    let mut b = Bench::new();
    assert_eq!(b.result(&[Op::Delete.into()]), ENOENT);
    assert_eq!(b.result(&[OsdOp::create(true)]), 0);
    assert_eq!(b.result(&[OsdOp::create(true)]), -17);
    assert_eq!(b.result(&[OsdOp::create(false)]), 0);
    assert_eq!(b.result(&[Op::Delete.into()]), 0);
    assert!(b.info().is_none());
}

#[test]
fn an_error_in_any_operation_leaves_no_change() {
    let mut b = written(b"old");
    let plan = b.run(&[OsdOp::write_full(Bytes::from_static(b"new")), OsdOp::setxattr(b"a", b"b"), OsdOp::create(true)]);
    assert_eq!(plan.result, -17);
    assert!(plan.mutation.is_empty());
    assert_eq!(b.content(), b"old");
    assert_eq!(plan.results.iter().map(|r| r.rval).collect::<Vec<_>>(), [0, 0, -17]);
}

#[test]
fn an_operation_that_may_fail_does_not_fail_the_message() {
    let mut b = written(b"old");
    let may_fail = OsdOp { flags: op_flag::FAILOK, ..Op::TmapGet.into() };
    let plan = b.run(&[may_fail, OsdOp::write_full(Bytes::from_static(b"new"))]);
    assert_eq!((plan.result, b.content()), (0, b"new".to_vec()));
}

#[test]
fn what_is_not_served_says_so() {
    let mut b = written(b"x");
    for op in [Op::CachePin, Op::TmapGet, Op::SetRedirect(CopyFrom::default())] {
        assert_eq!(b.result(&[op.into()]), -95, "{op:?}");
    }
}

#[test]
fn sizes_have_a_limit() {
    let mut b = Bench::new();
    let max = b.limits.object_size_max;
    assert_eq!(b.result(&[OsdOp::write(max - 1, Bytes::from_static(b"ab"))]), EFBIG);
    assert_eq!(b.result(&[OsdOp::write(u64::MAX - 1, Bytes::from_static(b"ab"))]), EFBIG);
    assert_eq!(b.result(&[OsdOp::write(max - 2, Bytes::from_static(b"ab"))]), 0);
    assert_eq!(b.result(&[OsdOp::append(Bytes::from_static(b"c"))]), EFBIG);
    assert_eq!(b.result(&[OsdOp::truncate(max + 1)]), EFBIG);
    assert_eq!(b.result(&[OsdOp::setxattr(&[b'n'; 101], b"")]), -36);
    b.limits.attr_size_max = 3;
    assert_eq!(b.result(&[OsdOp::setxattr(b"n", b"four")]), EFBIG);
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut b = written(b"x");
    assert_eq!(b.result(&[OsdOp::with(Op::Write(extent(0, 5)), Bytes::from_static(b"abc"))]), EINVAL);
    let x = Xattr { name_len: 9, ..Xattr::default() };
    assert_eq!(b.result(&[OsdOp::with(Op::GetXattr(x), Bytes::from_static(b"abc"))]), EINVAL);
    assert_eq!(b.result(&[Op::OmapGetKeys.into()]), EINVAL);
}

#[test]
fn comparing_data_names_the_first_byte_that_differs() {
    let mut b = written(b"abcdef");
    let cmp = |off, data: &'static [u8]| OsdOp::with(Op::CmpExt(extent(off, data.len() as u64)), Bytes::from_static(data));
    assert_eq!(b.result(&[cmp(2, b"cd")]), 0);
    assert_eq!(b.result(&[cmp(2, b"cX")]), -4096);
    assert_eq!(b.result(&[cmp(4, b"ef\0\0")]), 0);
    assert_eq!(b.result(&[cmp(0, b"X"), OsdOp::write_full(Bytes::from_static(b"new"))]), -4095);
    assert_eq!(b.content(), b"abcdef");
}

#[test]
fn write_same_repeats_its_data() {
    let mut b = Bench::new();
    let same = |length, data_length| Op::WriteSame(WriteSame { offset: 1, length, data_length });
    assert_eq!(b.result(&[OsdOp::with(same(6, 2), Bytes::from_static(b"ab"))]), 0);
    assert_eq!(b.content(), b"\0ababab");
    assert_eq!(b.result(&[OsdOp::with(same(5, 2), Bytes::from_static(b"ab"))]), EINVAL);
}

#[test]
fn checksums_cover_what_is_there() {
    let mut b = written(b"123456789");
    let sum = |length, chunk_size| Op::Checksum(Checksum { offset: 0, length, chunk_size, kind: 2 });
    let seed = Bytes::copy_from_slice(&u32::MAX.to_le_bytes());
    let out = b.out(OsdOp::with(sum(0, 0), seed.clone()));
    assert_eq!(out, [&1u32.to_le_bytes()[..], &(!0xe306_9283u32).to_le_bytes()].concat());
    assert_eq!(b.result(&[OsdOp::with(sum(9, 2), seed)]), EINVAL);
}

#[test]
fn xattrs_are_set_got_listed_and_removed() {
    let mut b = written(b"x");
    b.run(&[OsdOp::setxattr(b"a", b"1"), OsdOp::setxattr(b"_", b"2")]);
    assert_eq!(b.out(OsdOp::getxattr(b"a")), b"1");
    assert_eq!(b.result(&[OsdOp::getxattr(b"b")]), -61);
    let all: BTreeMap<BString, Bytes> = denc::from_slice(&b.out(Op::GetXattrs.into())).unwrap();
    assert_eq!(all.keys().cloned().collect::<Vec<_>>(), [BString::from("_"), "a".into()]);
    b.run(&[OsdOp::rmxattr(b"a")]);
    assert_eq!(b.result(&[OsdOp::getxattr(b"a")]), -61);
    assert_eq!(b.result(&[OsdOp::rmxattr(b"a")]), 0);
    // Setting one creates the object.
    let mut absent = Bench::new();
    assert_eq!(absent.result(&[OsdOp::setxattr(b"a", b"1")]), 0);
    assert!(absent.info().is_some());
}

#[test]
fn xattrs_compare_as_text_and_as_numbers() {
    let mut b = written(b"x");
    b.run(&[OsdOp::setxattr(b"s", b"bbb"), OsdOp::setxattr(b"n", b"10")]);
    let (eq, ne, gt, lte) = (1, 2, 3, 6);
    assert_eq!(b.result(&[cmpxattr("s", b"bbb", eq, 1)]), 1);
    assert_eq!(b.result(&[cmpxattr("s", b"bbb", ne, 1)]), ECANCELED);
    // The client's value is on the left.
    assert_eq!(b.result(&[cmpxattr("s", b"ccc", gt, 1)]), 1);
    assert_eq!(b.result(&[cmpxattr("n", &9u64.to_le_bytes(), lte, 2)]), 1);
    assert_eq!(b.result(&[cmpxattr("n", &9u64.to_le_bytes(), gt, 2)]), ECANCELED);
    assert_eq!(b.result(&[cmpxattr("nosuch", b"", eq, 1)]), 1);
    assert_eq!(b.result(&[cmpxattr("s", b"", 9, 1)]), EINVAL);
}

#[test]
fn omap_pages_say_whether_there_is_more() {
    let mut b = Bench::new();
    b.run(&[omap_set(&[("a1", "x"), ("a2", "y"), ("b1", "z")])]);
    let keys = |b: &mut Bench, after: &str, max: u64| {
        let out = b.out(encoded(Op::OmapGetKeys, (BString::from(after), max)));
        denc::from_slice::<(BTreeSet<BString>, bool)>(&out).unwrap()
    };
    assert_eq!(keys(&mut b, "", 2), (["a1", "a2"].map(BString::from).into(), true));
    assert_eq!(keys(&mut b, "a2", 2), (["b1"].map(BString::from).into(), false));
    assert_eq!(keys(&mut b, "", 0), (BTreeSet::new(), true));
    let vals = |b: &mut Bench, after: &str, prefix: &str| {
        let out = b.out(encoded(Op::OmapGetVals, (BString::from(after), 10u64, BString::from(prefix))));
        denc::from_slice::<(BTreeMap<BString, Bytes>, bool)>(&out).unwrap()
    };
    let found = |pairs: &[(&str, &'static str)]| pairs.iter().map(|(k, v)| ((*k).into(), Bytes::from(*v))).collect();
    assert_eq!(vals(&mut b, "", "a"), (found(&[("a1", "x"), ("a2", "y")]), false));
    assert_eq!(vals(&mut b, "a1", "a"), (found(&[("a2", "y")]), false));
    assert_eq!(vals(&mut b, "", "c"), (found(&[]), false));
}

#[test]
fn omap_keys_are_changed_one_by_one_by_range_and_all_at_once() {
    let mut b = Bench::new();
    b.run(&[omap_set(&[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")]), OsdOp::with(Op::OmapSetHeader, Bytes::from_static(b"h"))]);
    assert_eq!(b.out(Op::OmapGetHeader.into()), b"h");
    b.run(&[encoded(Op::OmapRmKeys, BTreeSet::from([BString::from("a"), "nosuch".into()]))]);
    b.run(&[encoded(Op::OmapRmKeyRange, (BString::from("b"), BString::from("d")))]);
    let got = b.out(encoded(Op::OmapGetValsByKeys, ["a", "b", "c", "d"].map(BString::from).into_iter().collect::<BTreeSet<_>>()));
    let got: BTreeMap<BString, Bytes> = denc::from_slice(&got).unwrap();
    assert_eq!(got, BTreeMap::from([("d".into(), Bytes::from("4"))]));
    b.run(&[Op::OmapClear.into()]);
    assert_eq!(b.out(Op::OmapGetHeader.into()), b"");
    assert_eq!(b.out(encoded(Op::OmapGetValsByKeys, BTreeSet::from([BString::from("d")]))), [0; 4]);
    assert_eq!(Bench::new().result(&[Op::OmapClear.into()]), ENOENT);
}

#[test]
fn omap_values_are_compared() {
    let mut b = Bench::new();
    b.run(&[omap_set(&[("k", "m")])]);
    let cmp = |value: &str, op: i32| {
        let wanted: BTreeMap<BString, (Bytes, i32)> = BTreeMap::from([("k".into(), (Bytes::copy_from_slice(value.as_bytes()), op))]);
        encoded(Op::OmapCmp, wanted)
    };
    assert_eq!(b.result(&[cmp("m", 1)]), 0);
    assert_eq!(b.result(&[cmp("x", 1)]), ECANCELED);
    assert_eq!(b.result(&[cmp("z", 5)]), 0);
    assert_eq!(b.result(&[cmp("z", 3)]), ECANCELED);
    assert_eq!(b.result(&[cmp("z", 2)]), EINVAL);
}

#[test]
fn versions_are_asserted() {
    let mut b = written(b"x");
    let have = b.info().unwrap().user_version;
    let assert_ver = |ver| OsdOp::from(Op::AssertVer(AssertVer { unused: 0, ver }));
    assert_eq!(b.result(&[assert_ver(have)]), 0);
    assert_eq!(b.result(&[assert_ver(have + 1)]), -75);
    b.run(&[OsdOp::append(Bytes::from_static(b"y"))]);
    assert_eq!(b.result(&[assert_ver(have)]), -34);
    assert_eq!(b.result(&[assert_ver(0)]), EINVAL);
}

#[test]
fn a_write_returns_data_only_to_those_who_ask_and_only_little() {
    let mut b = written(b"x");
    let call = OsdOp::call("hello", "write_return_data", b"");
    let quiet = b.plan(std::slice::from_ref(&call), false, Fetched::default());
    assert_eq!((quiet.result, quiet.results[0].rval, quiet.results[0].outdata.len()), (0, 0, 0));
    let told = b.plan(&[call], true, Fetched::default());
    assert_eq!((told.result, told.results[0].rval), (42, 42));
    assert_eq!(told.results[0].outdata.contiguous(), "you might see this");
    let much = b.plan(&[OsdOp::call("hello", "write_too_much_return_data", b"")], true, Fetched::default());
    assert_eq!((much.result, much.results[0].outdata.len()), (-75, 0));
}

#[test]
fn methods_must_keep_to_their_flags() {
    let mut b = written(b"hello there");
    assert_eq!(b.result(&[OsdOp::call("hello", "bad_reader", b"")]), -5);
    assert_eq!(b.result(&[OsdOp::call("hello", "bad_writer", b"x")]), -5);
    assert_eq!(b.content(), b"hello there");
    assert_eq!(b.result(&[OsdOp::call("hello", "turn_it_to_11", b"")]), 0);
    assert_eq!(b.content(), b"HELLO THERE");
    assert_eq!(b.out(OsdOp::call("hello", "replay", b"")), b"HELLO THERE");
}

fn lock_args(name: &str, kind: u8, cookie: &str, tag: &str, duration_s: u32, flags: u8) -> Bytes {
    let mut e = Encoder::new(0);
    e.envelope(1, 1, |e| {
        e.put(name).put(&kind).put(cookie).put(tag).put("description").put(&Utime { sec: duration_s, nsec: 0 }).put(&flags);
    });
    e.finish()
}

#[test]
fn locks_exclude_others_until_released_or_expired() {
    let mut b = Bench::new();
    let lock = |kind, cookie, tag, secs, flags| OsdOp::call("lock", "lock", &lock_args("l", kind, cookie, tag, secs, flags));
    let (exclusive, shared) = (1, 2);
    assert_eq!(b.result(&[lock(exclusive, "c", "", 10, 0)]), 0);
    assert_eq!(b.result(&[lock(exclusive, "c", "", 10, 0)]), -17);
    assert_eq!(b.result(&[lock(exclusive, "c", "", 10, 1)]), 0);
    b.client = 8;
    assert_eq!(b.result(&[lock(exclusive, "c", "", 10, 0)]), -16);
    assert_eq!(b.result(&[lock(exclusive, "c", "", 10, 2)]), ENOENT);
    b.now.wall.sec += 11;
    assert_eq!(b.result(&[lock(shared, "c", "t", 0, 0)]), 0);
    b.client = 9;
    assert_eq!(b.result(&[lock(shared, "c", "t", 0, 0)]), 0);
    assert_eq!(b.result(&[lock(shared, "d", "other", 0, 0)]), -16);
    assert_eq!(b.result(&[lock(9, "c", "t", 0, 0)]), EINVAL);
    let info = b.out(OsdOp::call("lock", "get_info", &denc::to_bytes(&Wrapped("l".into()), 0)));
    assert_eq!(info[..10], [1, 1, info[2], info[3], 0, 0, 2, 0, 0, 0]);
    let held = |cookie: &str| {
        let mut e = Encoder::new(0);
        e.envelope(1, 1, |e| {
            e.put("l").put(&2u8).put(cookie).put("t");
        });
        OsdOp::call("lock", "assert_locked", &e.finish())
    };
    assert_eq!(b.result(&[held("c")]), 0);
    assert_eq!(b.result(&[held("x"), OsdOp::write_full(Bytes::from_static(b"no"))]), -16);
}

/// One string in an envelope.
struct Wrapped(BString);
impl denc::Encode for Wrapped {
    fn encode(&self, e: &mut Encoder) {
        e.envelope(1, 1, |e| {
            e.put(&self.0);
        });
    }
}

#[test]
fn refcounts_remove_the_object_with_their_last_tag() {
    let mut b = written(b"tail");
    let op = |method: &str, tag: &str| {
        let mut e = Encoder::new(0);
        e.envelope(1, 1, |e| {
            e.put(tag).put(&true);
        });
        OsdOp::call("refcount", method, &e.finish())
    };
    assert_eq!(b.result(&[op("get", "a")]), 0);
    assert_eq!(b.result(&[op("put", "a")]), 0);
    assert_eq!(b.result(&[op("put", "a")]), 0);
    assert!(b.info().is_some(), "the implicit reference is left, a tag put twice counts once");
    assert_eq!(b.result(&[op("put", "b")]), 0);
    assert!(b.info().is_none());
}

#[test]
fn numbers_are_added_and_multiplied() {
    let mut b = Bench::new();
    let op = |method: &str, by: &str| OsdOp::call("numops", method, &denc::to_bytes(&("k".to_string(), by.to_string()), 0));
    assert_eq!(b.result(&[OsdOp::create(false), op("add", "5")]), 0);
    assert_eq!(b.result(&[op("mul", "2.5")]), 0);
    assert_eq!(b.result(&[op("add", "x")]), EINVAL);
    let got = b.out(encoded(Op::OmapGetValsByKeys, BTreeSet::from([BString::from("k")])));
    let got: BTreeMap<BString, Bytes> = denc::from_slice(&got).unwrap();
    assert_eq!(got["k".as_bytes()], "12.5");
}

#[test]
fn watches_are_recorded_renewed_and_removed() {
    let mut b = written(b"x");
    let watch = |op| OsdOp::from(Op::Watch(Watch { cookie: 5, op, ..Watch::default() }));
    assert_eq!(b.result(&[watch(Watch::PING)]), -107);
    assert_eq!(b.result(&[watch(Watch::RECONNECT)]), -107);
    assert_eq!(b.result(&[watch(Watch::WATCH)]), 0);
    let key = WatcherKey { cookie: 5, who: EntityInst { kind: EntityKind::CLIENT, num: 7 } };
    assert_eq!(b.info().unwrap().watchers[&key].timeout_s, 30);
    assert_eq!(b.result(&[watch(Watch::PING)]), 0);
    b.connected = false;
    assert_eq!(b.result(&[watch(Watch::PING)]), -110);
    assert_eq!(b.result(&[watch(Watch::RECONNECT)]), 0);
    let list = b.out(Op::ListWatchers.into());
    assert_eq!(list[..10], [1, 1, list[2], 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(b.result(&[watch(Watch::UNWATCH)]), 0);
    assert_eq!(b.out(Op::ListWatchers.into()).len(), 10);
    assert_eq!(b.result(&[watch(Watch::UNWATCH)]), 0);
    assert!(matches!(b.watch.last(), Some(WatchAction::Disconnect { cookie: 5 })));
    assert_eq!(Bench::new().result(&[watch(Watch::WATCH)]), ENOENT);
}

#[test]
fn a_notify_returns_its_id() {
    let mut b = written(b"x");
    let id = b.out(OsdOp::with(Op::Notify(3), denc::to_bytes(&(1u32, 5u32, Bytes::from_static(b"hi")), 0)));
    assert_eq!(id, 99u64.to_le_bytes());
    let expected = WatchAction::Notify { id: 99, cookie: 3, timeout_s: 5, payload: Bytes::from_static(b"hi") };
    assert_eq!(b.watch, [expected]);
}

#[test]
fn a_copy_takes_over_everything_of_its_source() {
    let mut b = written(b"to be replaced");
    b.run(&[OsdOp::setxattr(b"gone", b"1")]);
    let copy = CopyData {
        size: 3,
        data: Bytes::from_static(b"src").into(),
        attrs: BTreeMap::from([("kept".into(), Bytes::from_static(b"2"))]),
        omap: vec![("k".into(), Bytes::from_static(b"v"))],
        user_version: 77,
        ..CopyData::default()
    };
    let mut input = Encoder::new(0);
    input.put("source").put(&ObjectLocator::pool(PoolId(1)));
    let op = OsdOp::with(Op::CopyFrom(CopyFrom::default()), input.finish());
    let plan = b.plan(&[op], false, Fetched { copy: Some(Ok(copy)), ..Fetched::default() });
    assert_eq!((plan.result, plan.copied_version, plan.info.size), (0, Some(77), 3));
    assert_eq!(plan.mutation.steps[0], Step::Remove);
    assert_eq!(plan.delta, Delta { objects: 0, bytes: 3 - 14 });
}

#[test]
fn copy_get_gives_an_object_in_parts_that_add_up() {
    let mut b = written(b"0123456789");
    b.run(&[OsdOp::setxattr(b"a", b"1"), omap_set(&[("k", "v")])]);
    let (mut whole, mut parts) = (CopyData::default(), 0);
    while !whole.cursor.is_complete() {
        let out = b.out(encoded(Op::CopyGet(4), (whole.cursor.clone(), 4u64)));
        whole.append(denc::from_slice(&out).unwrap());
        parts += 1;
    }
    assert_eq!(parts, 3);
    assert_eq!(whole.data.contiguous(), "0123456789");
    assert_eq!(whole.attrs.len(), 1);
    assert_eq!(whole.omap, [(BString::from("k"), Bytes::from("v"))]);
}

#[test]
fn clones_are_listed_before_the_live_object_with_what_shows_them_and_what_they_share() {
    let mut b = written(b"0123456789");
    let set = &mut b.snaps.set;
    (set.seq, set.clones) = (Snap(6), vec![Snap(4)]);
    set.clone_size = [(Snap(4), 7)].into();
    set.clone_snaps = [(Snap(4), vec![Snap(4), Snap(3)])].into();
    set.clone_overlap = [(Snap(4), map::SnapIntervals([(2, 3)].into()))].into();
    let clone = (Snap(4), vec![Snap(3), Snap(4)], vec![(2u64, 3u64)], 7u64);
    let live = (Snap::HEAD, Vec::<Snap>::new(), Vec::<(u64, u64)>::new(), 10u64);
    let mut expected = Encoder::new(0);
    expected.envelope(2, 1, |e| {
        e.count(2);
        for c in [clone, live] {
            e.envelope(1, 1, |e| {
                e.put(&c);
            });
        }
        e.put(&Snap(6));
    });
    assert_eq!(b.out(Op::ListSnaps.into()), expected.finish().to_vec());
}

#[test]
fn what_a_snapshot_does_not_show_is_rolled_back_to_nothing_unless_it_is_watched() {
    let mut b = written(b"x");
    b.snaps.set.seq = Snap(6);
    let watch = Watch { op: Watch::WATCH, cookie: 1, ..Watch::default() };
    assert_eq!(b.result(&[Op::Watch(watch).into()]), 0);
    assert_eq!(b.result(&[Op::Rollback(Snap(5)).into()]), -16);
    assert_eq!(b.result(&[Op::Watch(Watch { op: Watch::UNWATCH, ..watch }).into()]), 0);
    assert_eq!(b.result(&[Op::Rollback(Snap(7)).into()]), 0);
    assert_eq!(b.content(), b"x", "nothing was written since that one");
    assert_eq!(b.result(&[Op::Rollback(Snap(5)).into()]), 0);
    assert_eq!(b.info(), None);
}

#[test]
fn only_the_live_object_is_listed_among_snapshots() {
    let mut b = written(b"0123456789");
    let out = b.out(Op::ListSnaps.into());
    assert_eq!(out.len(), 6 + 4 + (6 + 8 + 4 + 4 + 8) + 8);
    assert_eq!(out[16..24], Snap::HEAD.0.to_le_bytes());
}
