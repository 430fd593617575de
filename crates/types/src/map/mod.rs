//! The cluster maps: who is in the cluster, what it holds, and where everything goes.
//!
//! Room: ground floor. One file or folder per map, each with its encoding, its queries and its dumps.
//! Holds: what stock 16.2 encoded encodes again to the same bytes; what newer releases append is skipped.
//! Upstream: src/osd/OSDMap.h, src/mon/MonMap.h, src/mon/MgrMap.h, src/mds/{FSMap,MDSMap,FSMapUser}.h.
//! Tests: tests/corpus_maps.rs, tests/stock_tools.rs.

mod addr_dump;
mod fs_dump;
pub mod fsmap;
pub mod fsmap_user;
pub mod interval;
pub mod mdsmap;
pub mod mgrmap;
pub mod monmap;
pub mod osdmap;
pub mod pool;
mod pool_dump;
pub mod pool_opts;
pub mod release;

pub use fs_dump::mds_state_name;
pub use fsmap::{Filesystem, FsMap};
pub use fsmap_user::{FsInfo, FsMapUser};
pub use interval::SnapIntervals;
pub use mdsmap::{CompatSet, MdsInfo, MdsMap};
pub use mgrmap::{MgrMap, ModuleInfo, ModuleOption, StandbyInfo};
pub use monmap::{ElectionStrategy, MonInfo, MonMap};
pub use osdmap::{OsdInfo, OsdMap, OsdMapIncremental, OsdXInfo, UpActing};
pub use pool::{AutoscaleMode, HitSetParams, MergeMeta, PgPool, PoolSnap, PoolType};
pub use pool_opts::{PoolOptKey, PoolOptValue, PoolOpts};
pub use release::Release;
