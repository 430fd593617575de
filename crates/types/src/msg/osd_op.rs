//! The operations of an OSD_OP message: 38 bytes each, and their input.
//!
//! `Op` is the code with the arguments of its union; the payload stays beside it in `OsdOp::indata`, a slice of the
//! message's data segment. Reading is total: a code nobody here knows keeps its bytes, so that it can be refused with
//! EOPNOTSUPP and echoed in the reply.
//! Upstream: src/include/rados.h (ceph_osd_op), src/osd/osd_types.h (OSDOp).

use crate::{Snap, Utime};
use super::BufList;
use bytes::Bytes;
use denc::{Decode, DecodeError, Decoder, Encode, Encoder};

/// Bytes of the argument union.
const ARGS_LEN: usize = 28;

/// A run of an object's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Extent {
    pub offset: u64,
    pub length: u64,
    pub truncate_size: u64,
    pub truncate_seq: u32,
}

/// Lengths of an xattr's name and value in the payload, and how to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Xattr {
    pub name_len: u32,
    pub value_len: u32,
    /// `CEPH_OSD_CMPXATTR_OP_*`, 1 to 6: eq, ne, gt, gte, lt, lte.
    pub cmp_op: u8,
    /// 1 compares as text, 2 as numbers.
    pub cmp_mode: u8,
}

/// Lengths of class name, method name and input in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Call {
    pub class_len: u8,
    pub method_len: u8,
    pub argc: u8,
    pub indata_len: u32,
}

/// A page of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Pgls {
    pub count: u64,
    pub start_epoch: u32,
}

/// Registers, renews or ends a watch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Watch {
    pub cookie: u64,
    pub ver: u64,
    /// One of the constants below.
    pub op: u8,
    pub generation: u32,
    /// In seconds; 0 for the OSD's default.
    pub timeout_s: u32,
}
impl Watch {
    pub const UNWATCH: u8 = 0;
    pub const LEGACY_WATCH: u8 = 1;
    pub const WATCH: u8 = 3;
    pub const RECONNECT: u8 = 5;
    pub const PING: u8 = 7;
}

/// A version that must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct AssertVer {
    pub unused: u64,
    pub ver: u64,
}

/// Where to copy from; the object's name and locator are in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct CopyFrom {
    pub snap: Snap,
    pub src_version: u64,
    /// `CEPH_OSD_COPY_FROM_FLAG_*`.
    pub flags: u8,
    pub src_fadvise_flags: u32,
}

/// What an object will be like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct AllocHint {
    pub object_size: u64,
    pub write_size: u64,
    /// `CEPH_OSD_ALLOC_HINT_FLAG_*`.
    pub flags: u32,
}

/// Writes the payload again and again over an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct WriteSame {
    pub offset: u64,
    pub length: u64,
    pub data_length: u64,
}

/// Checksums of an extent, by chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Encode, Decode)]
pub struct Checksum {
    pub offset: u64,
    pub length: u64,
    /// 0: one checksum over all.
    pub chunk_size: u32,
    /// 0 xxhash32, 1 xxhash64, 2 crc32c; the payload holds the initial value.
    pub kind: u8,
}

macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident $(($args:ty))? = $code:literal $text:literal,)*) => {
        /// An operation and its arguments.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Op {
            $($(#[$doc])* $name $(($args))?,)*
            /// A code nobody here knows, with its argument bytes.
            Unknown { code: u16, args: [u8; ARGS_LEN] },
        }

        impl Op {
            /// The code on the wire (`CEPH_OSD_OP_*`).
            pub fn code(&self) -> u16 {
                match self {
                    $(ops!(@pattern $name $(, $args)?) => $code,)*
                    Op::Unknown { code, .. } => *code,
                }
            }

            /// Upstream's name, as in `dump_ops_in_flight`; `???` for an unknown one.
            pub fn name(&self) -> &'static str {
                match self {
                    $(ops!(@pattern $name $(, $args)?) => $text,)*
                    Op::Unknown { .. } => "???",
                }
            }

            /// Reads the arguments of `code`.
            fn parse(code: u16, args: [u8; ARGS_LEN]) -> Op {
                match code {
                    $($code => ops!(@parse $name, args $(, $args)?),)*
                    _ => Op::Unknown { code, args },
                }
            }

            fn encode_args(&self, e: &mut Encoder) {
                match self {
                    $(ops!(@bind $name, a $(, $args)?) => { ops!(@encode e, a $(, $args)?) })*
                    Op::Unknown { args, .. } => { e.raw(args); }
                }
            }
        }
    };
    (@pattern $name:ident) => { Op::$name };
    (@pattern $name:ident, $args:ty) => { Op::$name(_) };
    (@bind $name:ident, $a:ident) => { Op::$name };
    (@bind $name:ident, $a:ident, $args:ty) => { Op::$name($a) };
    (@encode $e:ident, $a:ident) => {{}};
    (@encode $e:ident, $a:ident, $args:ty) => { $a.encode($e) };
    (@parse $name:ident, $raw:ident) => { Op::$name };
    (@parse $name:ident, $raw:ident, $args:ty) => { Op::$name(fixed::<$args>(&$raw)) };
}

ops! {
    Read(Extent) = 0x1201 "read",
    Stat = 0x1202 "stat",
    MapExt(Extent) = 0x1203 "mapext",
    MaskTrunc(Extent) = 0x1204 "masktrunc",
    SparseRead(Extent) = 0x1205 "sparse-read",
    /// By cookie; the payload holds version, timeout in seconds and the blob.
    Notify(u64) = 0x1206 "notify",
    NotifyAck(u64) = 0x1207 "notify-ack",
    AssertVer(AssertVer) = 0x1208 "assert-version",
    ListWatchers = 0x1209 "list-watchers",
    ListSnaps = 0x120a "list-snaps",
    SyncRead(Extent) = 0x120b "sync_read",
    TmapGet = 0x120c "tmapget",
    OmapGetKeys = 0x1211 "omap-get-keys",
    OmapGetVals = 0x1212 "omap-get-vals",
    OmapGetHeader = 0x1213 "omap-get-header",
    OmapGetValsByKeys = 0x1214 "omap-get-vals-by-keys",
    OmapCmp = 0x1219 "omap-cmp",
    IsDirty = 0x121d "isdirty",
    /// The most bytes the reply may hold.
    CopyGet(u64) = 0x121e "copy-get",
    Checksum(Checksum) = 0x121f "checksum",
    CmpExt(Extent) = 0x1220 "cmpext",
    Write(Extent) = 0x2201 "write",
    WriteFull(Extent) = 0x2202 "writefull",
    Truncate(Extent) = 0x2203 "truncate",
    Zero(Extent) = 0x2204 "zero",
    Delete = 0x2205 "delete",
    Append(Extent) = 0x2206 "append",
    StartSync = 0x2207 "startsync",
    SetTrunc(Extent) = 0x2208 "settrunc",
    TrimTrunc(Extent) = 0x2209 "trimtrunc",
    TmapUp = 0x320a "tmapup",
    TmapPut = 0x220b "tmapput",
    Create = 0x220d "create",
    /// Back to the content at this snapshot.
    Rollback(Snap) = 0x220e "rollback",
    Watch(Watch) = 0x220f "watch",
    OmapSetVals = 0x2215 "omap-set-vals",
    OmapSetHeader = 0x2216 "omap-set-header",
    OmapClear = 0x2217 "omap-clear",
    OmapRmKeys = 0x2218 "omap-rm-keys",
    CopyFrom(CopyFrom) = 0x221a "copy-from",
    Undirty = 0x221c "undirty",
    Tmap2Omap(u8) = 0x3222 "tmap2omap",
    SetAllocHint(AllocHint) = 0x2223 "set-alloc-hint",
    CachePin = 0x2224 "cache-pin",
    CacheUnpin = 0x2225 "cache-unpin",
    WriteSame(WriteSame) = 0x2226 "write-same",
    SetRedirect(CopyFrom) = 0x2227 "set-redirect",
    TierPromote = 0x2229 "tier-promote",
    UnsetManifest = 0x222a "unset-manifest",
    OmapRmKeyRange = 0x222c "omap-rm-key-range",
    CopyFrom2(CopyFrom) = 0x222d "copy-from2",
    CacheFlush = 0x821f "cache-flush",
    CacheEvict = 0x8220 "cache-evict",
    CacheTryFlush = 0x8221 "cache-try-flush",
    SetChunk(CopyFrom) = 0x8228 "set-chunk",
    TierFlush = 0x822b "tier-flush",
    TierEvict = 0x822c "tier-evict",
    GetXattr(Xattr) = 0x1301 "getxattr",
    GetXattrs = 0x1302 "getxattrs",
    CmpXattr(Xattr) = 0x1303 "cmpxattr",
    SetXattr(Xattr) = 0x2301 "setxattr",
    SetXattrs = 0x2302 "setxattrs",
    ResetXattrs(Xattr) = 0x2303 "resetxattrs",
    RmXattr(Xattr) = 0x2304 "rmxattr",
    Call(Call) = 0x1401 "call",
    Pgls(Pgls) = 0x1501 "pgls",
    PglsFilter(Pgls) = 0x1502 "pgls-filter",
    PgHitSetLs = 0x1503 "pg-hitset-ls",
    PgHitSetGet(Utime) = 0x1504 "pg-hitset-get",
    Pgnls(Pgls) = 0x1505 "pgnls",
    PgnlsFilter(Pgls) = 0x1506 "pgnls-filter",
    ScrubLs = 0x1507 "scrubls",
}

impl Op {
    const MODE_READ: u16 = 0x1000;
    const MODE_WRITE: u16 = 0x2000;
    const TYPE: u16 = 0x0f00;
    const TYPE_PG: u16 = 0x0500;

    /// True if it changes an object; a `call` may, and only its method's registration tells.
    pub fn writes(&self) -> bool {
        self.code() & Self::MODE_WRITE != 0
    }

    /// True if it reads an object; false for `call`, see `writes`.
    pub fn reads(&self) -> bool {
        self.code() & Self::MODE_READ != 0 && !matches!(self, Op::Call(_))
    }

    /// True if it asks a whole PG and not an object.
    pub fn is_pg(&self) -> bool {
        self.code() & Self::TYPE == Self::TYPE_PG
    }
}

impl std::fmt::Display for Op {
    /// As `dump_ops_in_flight` shows it: the name, and of what works on an extent that.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name();
        match self {
            Op::Read(e) | Op::SparseRead(e) | Op::SyncRead(e) | Op::MapExt(e) | Op::Write(e) | Op::WriteFull(e) | Op::Zero(e) | Op::Append(e)
            | Op::CmpExt(e) => write!(f, "{name} {}~{}", e.offset, e.length),
            Op::Truncate(e) => write!(f, "{name} {}", e.offset),
            Op::WriteSame(e) => write!(f, "{name} {}~{}", e.offset, e.length),
            Op::SetAllocHint(h) => write!(f, "{name} object_size {} write_size {}", h.object_size, h.write_size),
            Op::GetXattr(x) | Op::SetXattr(x) | Op::RmXattr(x) | Op::CmpXattr(x) => write!(f, "{name} ({}) ", x.value_len),
            Op::Watch(w) => write!(f, "{name} cookie {}", w.cookie),
            Op::Notify(cookie) | Op::NotifyAck(cookie) => write!(f, "{name} cookie {cookie}"),
            _ => f.write_str(name),
        }
    }
}

/// Arguments from the union; every type of them is at most as long as it, so that reading cannot fail.
fn fixed<T: Decode>(args: &[u8; ARGS_LEN]) -> T {
    T::decode(&mut Decoder::new(args)).expect("argument types fit the union")
}

/// Flags of one operation (`CEPH_OSD_OP_FLAG_*`).
pub mod op_flag {
    /// A create fails if the object exists.
    pub const EXCL: u32 = 1;
    /// A failure of this operation does not fail the message.
    pub const FAILOK: u32 = 2;
    pub const FADVISE_RANDOM: u32 = 4;
    pub const FADVISE_SEQUENTIAL: u32 = 8;
    pub const FADVISE_WILLNEED: u32 = 0x10;
    pub const FADVISE_DONTNEED: u32 = 0x20;
    pub const FADVISE_NOCACHE: u32 = 0x40;
}

/// One operation with its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OsdOp {
    pub op: Op,
    /// `op_flag`s.
    pub flags: u32,
    /// The payload, in the pieces it came in.
    pub indata: BufList,
}

impl From<Op> for OsdOp {
    fn from(op: Op) -> Self {
        OsdOp { op, flags: 0, indata: BufList::default() }
    }
}

impl OsdOp {
    /// An operation with a payload.
    pub fn with(op: Op, indata: impl Into<Bytes>) -> Self {
        OsdOp { op, flags: 0, indata: indata.into().into() }
    }

    /// The payload in one piece, for what is to be understood and not only stored.
    pub fn input(&self) -> Bytes {
        self.indata.contiguous()
    }

    /// Reads `length` bytes at `offset`; length 0 is "to the end".
    pub fn read(offset: u64, length: u64) -> Self {
        Op::Read(Extent { offset, length, ..Extent::default() }).into()
    }

    /// Writes `data` at `offset`.
    pub fn write(offset: u64, data: Bytes) -> Self {
        let length = data.len() as u64;
        OsdOp::with(Op::Write(Extent { offset, length, ..Extent::default() }), data)
    }

    /// Makes `data` the whole content.
    pub fn write_full(data: Bytes) -> Self {
        let length = data.len() as u64;
        OsdOp::with(Op::WriteFull(Extent { length, ..Extent::default() }), data)
    }

    /// Appends `data`.
    pub fn append(data: Bytes) -> Self {
        let length = data.len() as u64;
        OsdOp::with(Op::Append(Extent { length, ..Extent::default() }), data)
    }

    /// Zeroes an extent.
    pub fn zero(offset: u64, length: u64) -> Self {
        Op::Zero(Extent { offset, length, ..Extent::default() }).into()
    }

    /// Cuts or extends to `size`.
    pub fn truncate(size: u64) -> Self {
        Op::Truncate(Extent { offset: size, ..Extent::default() }).into()
    }

    /// Creates the object; with `exclusive` it must not exist.
    pub fn create(exclusive: bool) -> Self {
        OsdOp { flags: if exclusive { op_flag::EXCL } else { 0 }, ..Op::Create.into() }
    }

    /// Sets an xattr.
    pub fn setxattr(name: &[u8], value: &[u8]) -> Self {
        let args = Xattr { name_len: name.len() as u32, value_len: value.len() as u32, ..Xattr::default() };
        OsdOp::with(Op::SetXattr(args), [name, value].concat())
    }

    /// Gets an xattr.
    pub fn getxattr(name: &[u8]) -> Self {
        OsdOp::with(Op::GetXattr(Xattr { name_len: name.len() as u32, ..Xattr::default() }), name.to_vec())
    }

    /// Removes an xattr.
    pub fn rmxattr(name: &[u8]) -> Self {
        OsdOp::with(Op::RmXattr(Xattr { name_len: name.len() as u32, ..Xattr::default() }), name.to_vec())
    }

    /// Calls `class.method` with `input`. Names are at most 255 bytes long.
    pub fn call(class: &str, method: &str, input: &[u8]) -> Self {
        let (class_len, method_len) = (class.len().min(255), method.len().min(255));
        let args = Call {
            class_len: class_len as u8,
            method_len: method_len as u8,
            argc: 0,
            indata_len: input.len() as u32,
        };
        let (class, method) = (&class.as_bytes()[..class_len], &method.as_bytes()[..method_len]);
        OsdOp::with(Op::Call(args), [class, method, input].concat())
    }

    /// Name and value in the payload of an xattr operation.
    pub fn xattr_name_value(&self, args: &Xattr) -> Result<(Bytes, Bytes), DecodeError> {
        let input = self.input();
        let mut d = Decoder::shared(&input);
        Ok((d.bytes(args.name_len as usize)?, d.bytes(args.value_len as usize)?))
    }

    /// Class, method and input in the payload of a call.
    pub fn call_parts(&self, args: &Call) -> Result<(Bytes, Bytes, Bytes), DecodeError> {
        let input = self.input();
        let mut d = Decoder::shared(&input);
        Ok((
            d.bytes(args.class_len.into())?,
            d.bytes(args.method_len.into())?,
            d.bytes(args.indata_len as usize)?,
        ))
    }
}

/// Writes the 38 bytes of an operation whose payload (or output, in a reply) is `payload_len` bytes long.
pub(super) fn encode_op(e: &mut Encoder, op: &Op, flags: u32, payload_len: usize) {
    e.put(&op.code()).put(&flags);
    let start = e.len();
    op.encode_args(e);
    let used = e.len() - start;
    e.raw(&[0; ARGS_LEN][..ARGS_LEN - used]);
    e.count(payload_len);
}

/// Reads 38 bytes: operation, flags, payload length.
pub(super) fn decode_op(d: &mut Decoder<'_>) -> Result<(Op, u32, usize), DecodeError> {
    let (code, flags) = (d.get()?, d.get()?);
    let op = Op::parse(code, d.array()?);
    Ok((op, flags, d.count()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(op: &Op) -> Bytes {
        let mut e = Encoder::new(0);
        encode_op(&mut e, op, 7, 9);
        e.finish()
    }

    #[test]
    fn every_code_reads_back_as_itself_from_any_argument_bytes() {
        for code in 0..=u16::MAX {
            let args = std::array::from_fn(|i| i as u8 + 1);
            let op = Op::parse(code, args);
            assert_eq!(op.code(), code);
            let bytes = encoded(&op);
            assert_eq!(bytes.len(), 38);
            assert_eq!(decode_op(&mut Decoder::new(&bytes)).unwrap(), (op, 7, 9), "{code:#x}");
        }
    }

    #[test]
    fn unknown_codes_keep_their_arguments() {
        let args = std::array::from_fn(|i| i as u8);
        let op = Op::parse(0x1fff, args);
        assert_eq!(op, Op::Unknown { code: 0x1fff, args });
        assert_eq!(encoded(&op)[6..34], args);
    }

    #[test]
    fn lengths_beyond_the_payload_are_an_error() {
        let op = OsdOp::setxattr(b"name", b"value");
        let Op::SetXattr(mut args) = op.op else { panic!() };
        assert_eq!(op.xattr_name_value(&args).unwrap(), ("name".into(), "value".into()));
        args.value_len += 1;
        assert!(op.xattr_name_value(&args).is_err());
    }

    #[test]
    fn a_call_is_neither_read_nor_write_by_its_code() {
        let op = OsdOp::call("lock", "lock", b"in").op;
        assert!(!op.reads() && !op.writes());
        assert!(Op::Delete.writes() && Op::Stat.reads() && Op::Pgnls(Pgls::default()).is_pg());
    }
}
