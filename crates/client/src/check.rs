//! What every RADOS cluster must do, asked of a running one: of ours, of stock Ceph of any release, of a simulated one.
//!
//! Each check works on objects of its own, named after it, and removes them. Run it against stock first: what stock
//! does is right, and a check that stock fails is wrong.
//! Upstream: doc/rados/api/librados.rst.

use crate::handle::Handle;
use crate::io::{IoCtx, Omap};
use crate::lock::{LockKind, LockRequest, LockerId};
use crate::objecter::WatchEvent;
use bytes::Bytes;
use denc::BString;
use std::collections::BTreeSet;
use std::time::Duration;
use types::msg::osd_op::{Checksum, Extent, WriteSame, Xattr};
use types::msg::{Op, OsdOp};
use types::{EntityInst, EntityKind, Errno};

/// What a check found wrong.
pub type Fault = String;
type Outcome = Result<(), Fault>;

/// Turns a wrong answer into a sentence.
fn expect<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Outcome {
    if got == want { Ok(()) } else { Err(format!("{what}: {got:?} instead of {want:?}")) }
}

fn fails<T: std::fmt::Debug>(what: &str, got: Result<T, Errno>, want: Errno) -> Outcome {
    match got {
        Err(errno) if errno == want => Ok(()),
        other => Err(format!("{what}: {other:?} instead of {want}")),
    }
}

fn ok<T>(what: &str, got: Result<T, Errno>) -> Result<T, Fault> {
    got.map_err(|errno| format!("{what}: {errno}"))
}

/// A pattern in which no two neighbouring blocks look alike.
fn pattern(len: usize, seed: u8) -> Bytes {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ ((i >> 8) as u8) ^ seed).collect::<Vec<u8>>().into()
}

/// Removes what checks that failed left behind.
pub async fn clean(handle: &Handle, io: &IoCtx) -> Result<(), Errno> {
    for entry in io.namespace(IoCtx::ALL_NAMESPACES).list().await? {
        if entry.name.starts_with(b"check ") || entry.nspace == b"check listings".as_slice() {
            io.namespace(entry.nspace).locator_key(entry.key).remove(&entry.name).await?;
        }
    }
    match handle.delete_pool("check_pool").await {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}

macro_rules! checks {
    ($($name:ident,)*) => {
        /// The names of all checks.
        pub const NAMES: &[&str] = &[$(stringify!($name)),*];

        /// Runs one check in `pool`; `None` for a name that is not in `NAMES`.
        pub async fn run(name: &str, handle: &Handle, pool: &IoCtx) -> Option<Outcome> {
            match name {
                $(stringify!($name) => Some($name(handle, pool).await),)*
                _ => None,
            }
        }
    };
}

checks! {
    content_is_written_and_read, extents_and_holes, append_truncate_and_zero, create_and_remove, missing_objects,
    large_objects, xattrs, xattr_comparisons, omaps, omap_pages, transactions_are_atomic, guards_hold,
    comparisons_of_content, checksums, repeated_writes, listings, namespaces_are_apart, locator_keys_place,
    locks, classes_that_are_not, watches_and_notifications, notifying_nobody, commands, usage, pools_come_and_go,
    many_requests_in_flight, nothing_is_written_well, removal_within_a_transaction, failures_that_are_allowed,
    sparse_reads, copies, limits, locks_expire_and_renew, many_objects_are_listed_page_by_page, omap_comparisons,
    reads_of_several_things,
}

async fn content_is_written_and_read(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check content";
    let data = pattern(100_000, 1);
    ok("write_full", io.write_full(oid, data.clone()).await)?;
    expect("read", ok("read", io.read(oid, 0, 0).await)?, data.clone())?;
    expect("size", ok("stat", io.stat(oid).await)?.0, 100_000)?;
    expect("part", ok("read", io.read(oid, 50_000, 7).await)?, data.slice(50_000..50_007))?;
    expect("beyond the end", ok("read", io.read(oid, 200_000, 10).await)?.len(), 0)?;
    ok("write_full", io.write_full(oid, Bytes::from_static(b"short")).await)?;
    expect("shorter", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"short"))?;
    ok("remove", io.remove(oid).await)
}

async fn extents_and_holes(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check extents";
    ok("write", io.write(oid, 8192, Bytes::from_static(b"tail")).await)?;
    expect("size", ok("stat", io.stat(oid).await)?.0, 8196)?;
    expect("hole", ok("read", io.read(oid, 0, 8192).await)?, Bytes::from(vec![0; 8192]))?;
    ok("write", io.write(oid, 4090, Bytes::from_static(b"across a block")).await)?;
    expect("across", ok("read", io.read(oid, 4088, 18).await)?, Bytes::from_static(b"\0\0across a block\0\0"))?;
    ok("remove", io.remove(oid).await)
}

async fn append_truncate_and_zero(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check append";
    for piece in ["one ", "two ", "three"] {
        ok("append", io.append(oid, Bytes::from_static(piece.as_bytes())).await)?;
    }
    expect("appended", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"one two three"))?;
    ok("truncate", io.truncate(oid, 7).await)?;
    expect("cut", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"one two"))?;
    ok("truncate", io.truncate(oid, 9).await)?;
    expect("extended", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"one two\0\0"))?;
    ok("zero", io.zero(oid, 1, 2).await)?;
    expect("zeroed", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"o\0\0 two\0\0"))?;
    ok("zero", io.zero(oid, 100, 100).await)?;
    expect("zeroing beyond the end", ok("stat", io.stat(oid).await)?.0, 9)?;
    ok("remove", io.remove(oid).await)
}

async fn create_and_remove(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check create";
    ok("create", io.create(oid, true).await)?;
    expect("size", ok("stat", io.stat(oid).await)?.0, 0)?;
    fails("create again", io.create(oid, true).await, Errno::EEXIST)?;
    ok("create without insisting", io.create(oid, false).await)?;
    ok("remove", io.remove(oid).await)?;
    fails("remove again", io.remove(oid).await, Errno::ENOENT)
}

async fn missing_objects(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check missing";
    fails("read", io.read(oid, 0, 0).await, Errno::ENOENT)?;
    fails("stat", io.stat(oid).await, Errno::ENOENT)?;
    fails("getxattr", io.getxattr(oid, b"a").await, Errno::ENOENT)?;
    fails("omap", io.omap_all(oid).await, Errno::ENOENT)?;
    fails("watch", io.watch(oid, 0).await.map(|_| ()), Errno::ENOENT)
}

async fn large_objects(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check large";
    let data = pattern(6 << 20, 3);
    ok("write_full", io.write_full(oid, data.slice(..4 << 20)).await)?;
    ok("write", io.write(oid, 4 << 20, data.slice(4 << 20..)).await)?;
    let read = ok("read", io.read(oid, 0, 0).await)?;
    if read != data {
        return Err(format!("{} bytes read back differ from {} written", read.len(), data.len()));
    }
    ok("remove", io.remove(oid).await)
}

async fn xattrs(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check xattrs";
    ok("setxattr", io.setxattr(oid, b"one", b"1").await)?;
    ok("setxattr", io.setxattr(oid, b"two", b"zwei\0").await)?;
    expect("one", ok("getxattr", io.getxattr(oid, b"one").await)?, Bytes::from_static(b"1"))?;
    let all = ok("getxattrs", io.getxattrs(oid).await)?;
    let want = Omap::from([("one".into(), Bytes::from_static(b"1")), ("two".into(), Bytes::from_static(b"zwei\0"))]);
    expect("all", all, want)?;
    ok("rmxattr", io.rmxattr(oid, b"one").await)?;
    fails("removed", io.getxattr(oid, b"one").await, Errno::ENODATA)?;
    ok("remove", io.remove(oid).await)
}

async fn xattr_comparisons(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check cmpxattr";
    ok("setxattr", io.setxattr(oid, b"a", b"value").await)?;
    let compare = |value: &[u8], cmp_op| {
        let args = Xattr { name_len: 1, value_len: value.len() as u32, cmp_op, cmp_mode: 1 };
        OsdOp::with(Op::CmpXattr(args), [b"a", value].concat())
    };
    let (equal, unequal) = (1, 2);
    let held = io.read_ops(oid, vec![compare(b"value", equal)], 0).await;
    expect("equal", ok("cmpxattr", held)?.result, 1)?;
    let guarded = io.read_ops(oid, vec![compare(b"value", equal), OsdOp::getxattr(b"a")], 0).await;
    expect("equal, then a read", ok("cmpxattr", guarded)?.result, 0)?;
    fails("unequal", io.read_ops(oid, vec![compare(b"other", equal)], 0).await, Errno::ECANCELED)?;
    ok("not equal", io.read_ops(oid, vec![compare(b"other", unequal)], 0).await)?;
    let guarded = vec![compare(b"other", equal), OsdOp::setxattr(b"b", b"1")];
    fails("guarded write", io.write_ops(oid, guarded, 0).await, Errno::ECANCELED)?;
    fails("not written", io.getxattr(oid, b"b").await, Errno::ENODATA)?;
    ok("remove", io.remove(oid).await)
}

async fn omaps(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check omaps";
    let entry = |k: &str, v: &'static [u8]| (BString::from(k), Bytes::from_static(v));
    let values = Omap::from([entry("a", b"1"), entry("b", b""), entry("c", b"3\0")]);
    ok("set", io.omap_set(oid, &values).await)?;
    expect("all", ok("get", io.omap_all(oid).await)?, values.clone())?;
    let keys: BTreeSet<BString> = ["a".into(), "z".into()].into();
    expect("some", ok("by keys", io.omap_by_keys(oid, &keys).await)?, Omap::from([entry("a", b"1")]))?;
    ok("header", io.omap_set_header(oid, Bytes::from_static(b"head")).await)?;
    expect("header", ok("header", io.omap_header(oid).await)?, Bytes::from_static(b"head"))?;
    ok("rm", io.omap_rm_keys(oid, &keys).await)?;
    expect("two left", ok("get", io.omap_all(oid).await)?.len(), 2)?;
    ok("clear", io.omap_clear(oid).await)?;
    expect("none left", ok("get", io.omap_all(oid).await)?, Omap::new())?;
    expect("no header", ok("header", io.omap_header(oid).await)?.len(), 0)?;
    ok("remove", io.remove(oid).await)
}

async fn omap_pages(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check omap pages";
    let values: Omap = (0..50).map(|i| (BString::from(format!("key{i:02}")), Bytes::from_static(b"v"))).collect();
    ok("set", io.omap_set(oid, &values).await)?;
    let (page, more) = ok("page", io.omap_page(oid, b"", b"", 20).await)?;
    expect("first page", (page.len(), more), (20, true))?;
    let (page, more) = ok("page", io.omap_page(oid, b"key44", b"", 20).await)?;
    expect("last page", (page.len(), more), (5, false))?;
    let (page, _) = ok("prefix", io.omap_page(oid, b"", b"key1", 20).await)?;
    expect("prefix", page.len(), 10)?;
    let (keys, more) = ok("keys", io.omap_keys_page(oid, b"key10", 3).await)?;
    expect("keys", (keys.into_iter().next(), more), (Some("key11".into()), true))?;
    ok("remove", io.remove(oid).await)
}

async fn transactions_are_atomic(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check atomic";
    let good = vec![OsdOp::create(true), OsdOp::write_full(Bytes::from_static(b"x")), OsdOp::setxattr(b"a", b"b")];
    ok("several", io.write_ops(oid, good, 0).await)?;
    let bad = vec![OsdOp::write_full(Bytes::from_static(b"y")), OsdOp::setxattr(b"a", b"c"), OsdOp::create(true)];
    fails("the last refuses", io.write_ops(oid, bad, 0).await, Errno::EEXIST)?;
    expect("content kept", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"x"))?;
    expect("xattr kept", ok("getxattr", io.getxattr(oid, b"a").await)?, Bytes::from_static(b"b"))?;
    ok("remove", io.remove(oid).await)
}

async fn guards_hold(_: &Handle, io: &IoCtx) -> Outcome {
    use types::msg::osd_op::AssertVer;
    let oid = b"check guards";
    let version = ok("write", io.write_ops(oid, vec![OsdOp::write_full(Bytes::from_static(b"1"))], 0).await)?.user_version;
    let assert = |ver| OsdOp::from(Op::AssertVer(AssertVer { unused: 0, ver }));
    ok("right version", io.write_ops(oid, vec![assert(version), OsdOp::append(Bytes::from_static(b"2"))], 0).await)?;
    let stale = io.write_ops(oid, vec![assert(version), OsdOp::append(Bytes::from_static(b"3"))], 0).await;
    fails("stale version", stale, Errno::ERANGE)?;
    let early = io.write_ops(oid, vec![assert(version + 100), OsdOp::append(Bytes::from_static(b"4"))], 0).await;
    fails("version to come", early, Errno::EOVERFLOW)?;
    expect("content", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"12"))?;
    ok("remove", io.remove(oid).await)
}

async fn comparisons_of_content(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check cmpext";
    ok("write", io.write_full(oid, Bytes::from_static(b"abcdef")).await)?;
    let compare = |offset, data: &'static [u8]| {
        let extent = Extent { offset, length: data.len() as u64, ..Extent::default() };
        OsdOp::with(Op::CmpExt(extent), Bytes::from_static(data))
    };
    ok("equal", io.read_ops(oid, vec![compare(2, b"cd")], 0).await)?;
    // -(MAX_ERRNO + position of the first difference)
    let differs = io.read_ops(oid, vec![compare(2, b"cx")], 0).await;
    fails("unequal", differs, Errno(4095 + 1))?;
    let guarded = vec![compare(0, b"zz"), OsdOp::write_full(Bytes::from_static(b"no"))];
    fails("guarded write", io.write_ops(oid, guarded, 0).await, Errno(4095))?;
    expect("content", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"abcdef"))?;
    ok("remove", io.remove(oid).await)
}

async fn checksums(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check checksums";
    ok("write", io.write_full(oid, pattern(8192, 9)).await)?;
    let args = Checksum { offset: 0, length: 8192, chunk_size: 4096, kind: 2 };
    let op = OsdOp::with(Op::Checksum(args), u32::MAX.to_le_bytes().to_vec());
    let reply = ok("checksum", io.read_ops(oid, vec![op], 0).await)?;
    let out = reply.ops.first().map(|op| op.outdata.contiguous()).unwrap_or_default();
    let sums: Vec<u32> = denc::from_slice(&out).map_err(|e| e.to_string())?;
    expect("one per chunk", sums.len(), 2)?;
    ok("remove", io.remove(oid).await)
}

async fn repeated_writes(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check writesame";
    let args = WriteSame { offset: 4, length: 12, data_length: 4 };
    ok("writesame", io.write_ops(oid, vec![OsdOp::with(Op::WriteSame(args), Bytes::from_static(b"abcd"))], 0).await)?;
    expect("content", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"\0\0\0\0abcdabcdabcd"))?;
    ok("remove", io.remove(oid).await)
}

async fn listings(_: &Handle, io: &IoCtx) -> Outcome {
    let io = io.namespace("check listings");
    let names: BTreeSet<BString> = (0..60).map(|i| BString::from(format!("object {i}"))).collect();
    for name in &names {
        ok("create", io.create(name, true).await)?;
    }
    let listed = ok("list", io.list().await)?;
    expect("names", listed.iter().map(|e| e.name.clone()).collect::<BTreeSet<_>>(), names.clone())?;
    expect("each once", listed.len(), names.len())?;
    for name in &names {
        ok("remove", io.remove(name).await)?;
    }
    expect("empty again", ok("list", io.list().await)?.len(), 0)
}

async fn namespaces_are_apart(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check namespaces";
    let (one, two) = (io.namespace("one"), io.namespace("two"));
    ok("write", one.write_full(oid, Bytes::from_static(b"1")).await)?;
    fails("elsewhere", two.read(oid, 0, 0).await, Errno::ENOENT)?;
    ok("write", two.write_full(oid, Bytes::from_static(b"2")).await)?;
    expect("first", ok("read", one.read(oid, 0, 0).await)?, Bytes::from_static(b"1"))?;
    let everywhere = ok("list", io.namespace(IoCtx::ALL_NAMESPACES).list().await)?;
    expect("in all", everywhere.iter().filter(|e| e.name == oid.as_slice()).count(), 2)?;
    ok("remove", one.remove(oid).await)?;
    ok("remove", two.remove(oid).await)
}

async fn locator_keys_place(_: &Handle, io: &IoCtx) -> Outcome {
    let keyed = io.locator_key("a key");
    let oid = b"check locator";
    ok("write", keyed.write_full(oid, Bytes::from_static(b"k")).await)?;
    expect("read", ok("read", keyed.read(oid, 0, 0).await)?, Bytes::from_static(b"k"))?;
    fails("without the key", io.read(oid, 0, 0).await, Errno::ENOENT)?;
    let listed = ok("list", io.list().await)?;
    let entry = listed.into_iter().find(|e| e.name == oid.as_slice()).map(|e| e.key);
    expect("key in listings", entry, Some("a key".into()))?;
    ok("remove", keyed.remove(oid).await)
}

async fn locks(handle: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check locks";
    let (gid, _) = ok("identity", handle.identity().await)?;
    let request = |cookie: &str, kind| LockRequest {
        name: "l".into(),
        kind,
        cookie: cookie.into(),
        tag: String::new(),
        description: "a check".into(),
        duration: Duration::ZERO,
        flags: 0,
    };
    ok("lock", io.lock(oid, &request("c1", LockKind::EXCLUSIVE)).await)?;
    fails("again", io.lock(oid, &request("c1", LockKind::EXCLUSIVE)).await, Errno::EEXIST)?;
    fails("another", io.lock(oid, &request("c2", LockKind::EXCLUSIVE)).await, Errno::EBUSY)?;
    let info = ok("info", io.lock_info(oid, "l").await)?;
    let locker = LockerId { locker: EntityInst { kind: EntityKind::CLIENT, num: gid as i64 }, cookie: "c1".into() };
    expect("holders", info.lockers.keys().cloned().collect::<Vec<_>>(), vec![locker.clone()])?;
    expect("kind", info.kind, LockKind::EXCLUSIVE)?;
    expect("names", ok("list", io.locks(oid).await)?, vec!["l".to_owned()])?;
    fails("unlock another's", io.unlock(oid, "l", "c2").await, Errno::ENOENT)?;
    ok("unlock", io.unlock(oid, "l", "c1").await)?;
    ok("shared", io.lock(oid, &request("s1", LockKind::SHARED)).await)?;
    ok("shared", io.lock(oid, &request("s2", LockKind::SHARED)).await)?;
    ok("break", io.break_lock(oid, "l", &LockerId { cookie: "s1".into(), ..locker.clone() }).await)?;
    expect("one left", ok("info", io.lock_info(oid, "l").await)?.lockers.len(), 1)?;
    ok("remove", io.remove(oid).await)
}

async fn classes_that_are_not(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check classes";
    ok("create", io.create(oid, true).await)?;
    // A class that is not on the OSD's list may not even be looked for.
    fails("class", io.exec(oid, "no_such_class", "m", b"").await, Errno::EPERM)?;
    fails("method", io.exec(oid, "lock", "no_such_method", b"").await, Errno::EOPNOTSUPP)?;
    fails("operation", io.read_ops(oid, vec![Op::Unknown { code: 0x12ff, args: [0; 28] }.into()], 0).await, Errno::EOPNOTSUPP)?;
    ok("remove", io.remove(oid).await)
}

async fn watches_and_notifications(handle: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check watches";
    ok("create", io.create(oid, true).await)?;
    let (gid, _) = ok("identity", handle.identity().await)?;
    let mut watch = ok("watch", io.watch(oid, 30).await)?;
    let watchers = ok("watchers", io.watchers(oid).await)?;
    expect("watchers", watchers.iter().map(|w| (w.name.num, w.cookie)).collect::<Vec<_>>(), vec![(gid as i64, watch.cookie())])?;
    // The notification ends when the watch below has answered; neither future may wait for the other.
    let notify = io.notify(oid, Bytes::from_static(b"hello"), 10);
    let answer = async {
        match watch.next().await {
            Some(WatchEvent::Notified { notify_id, payload, .. }) => {
                watch.ack(notify_id, Bytes::from_static(b"world")).map(|()| payload)
            }
            _ => Err(Errno::EIO),
        }
    };
    let (notified, heard) = both(notify, answer).await;
    expect("payload", ok("notified", heard)?, Bytes::from_static(b"hello"))?;
    match ok("notify", notified)? {
        WatchEvent::NotifyDone { result: 0, replies, timeouts } => {
            expect("replies", replies, vec![(gid, watch.cookie(), Bytes::from_static(b"world"))])?;
            expect("timeouts", timeouts, vec![])?;
        }
        other => return Err(format!("notify: {other:?}")),
    }
    ok("unwatch", watch.unwatch().await)?;
    expect("nobody left", ok("watchers", io.watchers(oid).await)?.len(), 0)?;
    ok("remove", io.remove(oid).await)
}

async fn notifying_nobody(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check notify";
    ok("create", io.create(oid, true).await)?;
    match ok("notify", io.notify(oid, Bytes::new(), 5).await)? {
        WatchEvent::NotifyDone { result: 0, replies, timeouts } if replies.is_empty() && timeouts.is_empty() => {}
        other => return Err(format!("notify: {other:?}")),
    }
    ok("remove", io.remove(oid).await)
}

async fn commands(handle: &Handle, _: &IoCtx) -> Outcome {
    let mon = ok("mon", handle.mon_command(r#"{"prefix": "osd dump", "format": "json"}"#, Bytes::new()).await)?;
    expect("osd dump", (mon.result, mon.output.first().copied()), (0, Some(b'{')))?;
    let bad = ok("mon", handle.mon_command(r#"{"prefix": "no such command"}"#, Bytes::new()).await)?;
    expect("unknown command", bad.result, Errno::EINVAL.wire())?;
    let map = ok("map", handle.map().await)?;
    let osd = map.up_osds().next().ok_or("no OSD is up")?;
    let tell = ok("osd", handle.osd_command(osd, r#"{"prefix": "version"}"#, Bytes::new()).await)?;
    expect("tell osd version", tell.result, 0)?;
    let mgr = ok("mgr", handle.mgr_command(r#"{"prefix": "pg stat"}"#, Bytes::new(), false).await)?;
    expect("pg stat", mgr.result, 0)
}

async fn usage(handle: &Handle, io: &IoCtx) -> Outcome {
    let all = ok("usage", handle.usage(None).await)?;
    if all.kb == 0 || all.kb_avail > all.kb {
        return Err(format!("usage: {all:?}"));
    }
    let names = ok("pools", handle.pools().await)?;
    let name = names.get(&io.pool()).ok_or("our pool has no name")?.clone();
    let stats = ok("pool stats", handle.pool_stats(vec![name.clone(), "no such pool".into()]).await)?;
    expect("pools with stats", stats.keys().cloned().collect::<Vec<_>>(), vec![name])
}

async fn pools_come_and_go(handle: &Handle, _: &IoCtx) -> Outcome {
    let name = "check_pool";
    fails("open", handle.pool(name).await.map(|_| ()), Errno::ENOENT)?;
    ok("create", handle.create_pool(name).await)?;
    fails("create again", handle.create_pool(name).await, Errno::EEXIST)?;
    let io = ok("open", handle.pool(name).await)?;
    ok("write", io.write_full(b"o", Bytes::from_static(b"x")).await)?;
    ok("delete", handle.delete_pool(name).await)?;
    fails("write to the deleted", io.write_full(b"o", Bytes::from_static(b"x")).await, Errno::ENOENT)
}

async fn many_requests_in_flight(_: &Handle, io: &IoCtx) -> Outcome {
    let name = |i: usize| format!("check flight {i}");
    let mut writes = Vec::new();
    for i in 0..64 {
        let io = io.clone();
        writes.push(Box::pin(async move { io.write_full(name(i).as_bytes(), pattern(3000, i as u8)).await }));
    }
    for result in all(writes).await {
        ok("write", result)?;
    }
    for i in 0..64 {
        expect("content", ok("read", io.read(name(i).as_bytes(), 0, 0).await)?, pattern(3000, i as u8))?;
        ok("remove", io.remove(name(i).as_bytes()).await)?;
    }
    Ok(())
}

async fn nothing_is_written_well(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check nothing";
    ok("write nothing", io.write(oid, 0, Bytes::new()).await)?;
    expect("an empty write creates", ok("stat", io.stat(oid).await)?.0, 0)?;
    ok("append nothing", io.append(oid, Bytes::new()).await)?;
    ok("write_full nothing", io.write_full(oid, Bytes::new()).await)?;
    ok("truncate to nothing", io.truncate(oid, 0).await)?;
    expect("empty", ok("read", io.read(oid, 0, 0).await)?.len(), 0)?;
    fails("no operations", io.write_ops(oid, vec![], 0).await, Errno::EINVAL)?;
    ok("remove", io.remove(oid).await)
}

async fn removal_within_a_transaction(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check remove within";
    ok("setxattr", io.setxattr(oid, b"a", b"1").await)?;
    let anew = vec![Op::Delete.into(), OsdOp::write_full(Bytes::from_static(b"anew"))];
    ok("remove and write", io.write_ops(oid, anew, 0).await)?;
    expect("content", ok("read", io.read(oid, 0, 0).await)?, Bytes::from_static(b"anew"))?;
    expect("no xattrs", ok("getxattrs", io.getxattrs(oid).await)?.len(), 0)?;
    let gone = vec![OsdOp::write_full(Bytes::from_static(b"x")), Op::Delete.into()];
    ok("write and remove", io.write_ops(oid, gone, 0).await)?;
    fails("gone", io.stat(oid).await, Errno::ENOENT)
}

async fn failures_that_are_allowed(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check failok";
    ok("write", io.write_full(oid, Bytes::from_static(b"data")).await)?;
    let mut missing = OsdOp::getxattr(b"no such");
    missing.flags = types::msg::osd_op::op_flag::FAILOK;
    let reply = ok("read", io.read_ops(oid, vec![missing, OsdOp::read(0, 4)], 0).await)?;
    let got: Vec<i32> = reply.ops.iter().map(|op| op.rval).collect();
    expect("first fails, second reads", got, vec![Errno::ENODATA.wire(), 0])?;
    expect("data", reply.ops.get(1).map(|op| op.outdata.contiguous()), Some(Bytes::from_static(b"data")))?;
    ok("remove", io.remove(oid).await)
}

async fn sparse_reads(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check sparse";
    ok("write", io.write(oid, 1 << 20, Bytes::from_static(b"island")).await)?;
    let op = OsdOp::from(Op::SparseRead(Extent { offset: 0, length: 2 << 20, ..Extent::default() }));
    let reply = ok("sparse read", io.read_ops(oid, vec![op], 0).await)?;
    let out = reply.ops.first().map(|op| op.outdata.contiguous()).unwrap_or_default();
    let (runs, data): (Vec<(u64, u64)>, Bytes) = denc::from_slice(&out).map_err(|e| e.to_string())?;
    let total: u64 = runs.iter().map(|(_, len)| len).sum();
    expect("as many bytes as the runs say", data.len() as u64, total)?;
    // How much around an island counts as written differs; that the island is in it does not.
    let mut at = 0;
    for (offset, len) in runs {
        if offset <= 1 << 20 && (1 << 20) + 6 <= offset + len {
            let start = at + ((1 << 20) - offset) as usize;
            expect("island", data.get(start..start + 6), Some(b"island".as_slice()))?;
            return ok("remove", io.remove(oid).await);
        }
        at += len as usize;
    }
    Err("the island is in none of the runs".into())
}

async fn copies(_: &Handle, io: &IoCtx) -> Outcome {
    let (from, to) = (b"check copy from", b"check copy to");
    let data = pattern(300_000, 5);
    ok("write", io.write_full(from, data.clone()).await)?;
    ok("setxattr", io.setxattr(from, b"a", b"1").await)?;
    ok("omap", io.omap_set(from, &Omap::from([("k".into(), Bytes::from_static(b"v"))])).await)?;
    let args = types::msg::osd_op::CopyFrom { snap: types::Snap::HEAD, src_version: 0, flags: 0, src_fadvise_flags: 0 };
    let locator = types::ObjectLocator { nspace: io.nspace.clone(), ..types::ObjectLocator::pool(io.pool()) };
    let source = denc::to_bytes(&(BString::from(from.as_slice()), locator), types::features::SUPPORTED);
    ok("copy", io.write_ops(to, vec![OsdOp::with(Op::CopyFrom(args), source)], 0).await)?;
    expect("same content", ok("read", io.read(to, 0, 0).await)? == data, true)?;
    expect("same xattr", ok("getxattr", io.getxattr(to, b"a").await)?, Bytes::from_static(b"1"))?;
    expect("same omap", ok("omap", io.omap_all(to).await)?.len(), 1)?;
    ok("remove", io.remove(from).await)?;
    ok("remove", io.remove(to).await)
}

async fn limits(_: &Handle, io: &IoCtx) -> Outcome {
    let long = vec![b'n'; 3000];
    fails("a long name", io.write_full(&long, Bytes::from_static(b"x")).await, Errno::ENAMETOOLONG)?;
    let oid = b"check limits";
    fails("far away", io.write(oid, 1 << 40, Bytes::from_static(b"x")).await, Errno::EFBIG)?;
    fails("a long xattr name", io.setxattr(oid, &[b'x'; 300], b"v").await, Errno::ENAMETOOLONG)?;
    fails("nothing came to be", io.stat(oid).await, Errno::ENOENT)
}

async fn locks_expire_and_renew(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check lock expiry";
    let request = |cookie: &str, flags, ms| LockRequest {
        name: "l".into(),
        kind: LockKind::EXCLUSIVE,
        cookie: cookie.into(),
        tag: String::new(),
        description: String::new(),
        duration: Duration::from_millis(ms),
        flags,
    };
    ok("lock", io.lock(oid, &request("a", 0, 60_000)).await)?;
    ok("renew", io.lock(oid, &request("a", 1, 1)).await)?;
    // The renewal ends a millisecond later: whoever comes until then is told that it is busy.
    for _ in 0..1000 {
        match io.lock(oid, &request("b", 0, 0)).await {
            Ok(()) => return ok("remove", io.remove(oid).await),
            Err(Errno::EBUSY) => {}
            Err(other) => return Err(format!("lock after expiry: {other}")),
        }
    }
    Err("an expired lock is still held".into())
}

async fn many_objects_are_listed_page_by_page(_: &Handle, io: &IoCtx) -> Outcome {
    let io = io.namespace("check listings");
    let names: Vec<String> = (0..1500).map(|i| format!("many {i}")).collect();
    for some in names.chunks(100) {
        let creations = some.iter().map(|name| Box::pin(io.create(name.as_bytes(), false))).collect();
        for result in all(creations).await {
            ok("create", result)?;
        }
    }
    let listed = ok("list", io.list().await)?;
    let distinct: BTreeSet<&BString> = listed.iter().map(|e| &e.name).collect();
    expect("all, each once", (listed.len(), distinct.len()), (1500, 1500))?;
    for some in names.chunks(100) {
        let removals = some.iter().map(|name| Box::pin(io.remove(name.as_bytes()))).collect();
        for result in all(removals).await {
            ok("remove", result)?;
        }
    }
    Ok(())
}

async fn omap_comparisons(_: &Handle, io: &IoCtx) -> Outcome {
    use std::collections::BTreeMap;
    let oid = b"check omap cmp";
    ok("set", io.omap_set(oid, &Omap::from([("k".into(), Bytes::from_static(b"v"))])).await)?;
    let compare = |key: &str, value: &'static [u8]| {
        let assertions = BTreeMap::from([(BString::from(key), (Bytes::from_static(value), 1i32))]);
        OsdOp::with(Op::OmapCmp, denc::to_bytes(&assertions, 0))
    };
    ok("equal", io.read_ops(oid, vec![compare("k", b"v")], 0).await)?;
    fails("unequal", io.read_ops(oid, vec![compare("k", b"w")], 0).await, Errno::ECANCELED)?;
    fails("no such key", io.read_ops(oid, vec![compare("l", b"v")], 0).await, Errno::ECANCELED)?;
    ok("remove", io.remove(oid).await)
}

async fn reads_of_several_things(_: &Handle, io: &IoCtx) -> Outcome {
    let oid = b"check several";
    ok("write", io.write_full(oid, Bytes::from_static(b"content")).await)?;
    ok("setxattr", io.setxattr(oid, b"a", b"attr").await)?;
    let reply = ok("read", io.read_ops(oid, vec![Op::Stat.into(), OsdOp::getxattr(b"a"), OsdOp::read(3, 100)], 0).await)?;
    let outs: Vec<Bytes> = reply.ops.iter().map(|op| op.outdata.contiguous()).collect();
    expect("sizes", outs.iter().map(Bytes::len).collect::<Vec<_>>(), vec![16, 4, 4])?;
    expect("tail", outs.last().cloned(), Some(Bytes::from_static(b"tent")))?;
    let broken = vec![OsdOp::getxattr(b"a"), OsdOp::getxattr(b"b"), OsdOp::read(0, 1)];
    fails("the second fails all", io.read_ops(oid, broken, 0).await, Errno::ENODATA)?;
    ok("remove", io.remove(oid).await)
}

/// Runs two futures side by side.
async fn both<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    let (mut from_a, mut from_b) = (None, None);
    std::future::poll_fn(move |cx| {
        if from_a.is_none() && let std::task::Poll::Ready(out) = a.as_mut().poll(cx) {
            from_a = Some(out);
        }
        if from_b.is_none() && let std::task::Poll::Ready(out) = b.as_mut().poll(cx) {
            from_b = Some(out);
        }
        match (from_a.take(), from_b.take()) {
            (Some(a), Some(b)) => std::task::Poll::Ready((a, b)),
            (a, b) => {
                (from_a, from_b) = (a, b);
                std::task::Poll::Pending
            }
        }
    })
    .await
}

/// Runs many futures side by side; their outputs in their order.
async fn all<T>(mut futures: Vec<std::pin::Pin<Box<impl Future<Output = T>>>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, slot) in futures.iter_mut().zip(&mut done) {
            if slot.is_none() && let std::task::Poll::Ready(out) = future.as_mut().poll(cx) {
                *slot = Some(out);
            }
        }
        match done.iter().all(Option::is_some) {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
