//! The vocabulary: ids, versions, object names, cluster maps and messages, each with its Ceph encoding.
//!
//! Room: ground floor. Values in, values out.
//! Upstream: src/osd/osd_types.h, src/common/hobject.h, src/msg/msg_types.h, src/messages/.
#![forbid(unsafe_code)]

pub mod addr;
pub mod entity;
pub mod errno;
pub mod features;
pub mod hobject;
pub mod id;
pub mod json;
pub mod map;
pub mod msg;
pub mod pg;
pub mod time;

pub use addr::{AddrKind, AddrVec, EntityAddr};
pub use entity::{EntityInst, EntityKind, EntityName};
pub use errno::Errno;
pub use hobject::{HObject, ObjectLocator, Snap};
pub use id::{EVersion, Epoch, OsdId, PgId, PoolId, ReqId, ShardPgId};
pub use time::{Mono, Now, Utime};
