//! Cluster feature bits, and the mask every daemon of ours announces.
//!
//! A name may span several bits upstream (an incarnation marker repeats bit 57 or 59); those masks are whole here, so
//! `Encoder::has(SERVER_NAUTILUS)` asks what upstream's `HAVE_FEATURE` asks.
//! Upstream: src/include/ceph_features.h.

const INCARNATION_2: u64 = 1 << 57;
const INCARNATION_3: u64 = 1 << 57 | 1 << 28;

pub const UID: u64 = 1;
pub const NOSRCADDR: u64 = 1 << 1;
pub const SERVER_NAUTILUS: u64 = 1 << 2 | INCARNATION_3;
pub const SUBSCRIBE2: u64 = 1 << 4;
pub const MONNAMES: u64 = 1 << 5;
pub const OBJECTLOCATOR: u64 = 1 << 8;
pub const PGID64: u64 = 1 << 9;
pub const PGPOOL3: u64 = 1 << 11;
pub const OSDREPLYMUX: u64 = 1 << 12;
pub const OSDENC: u64 = 1 << 13;
pub const SERVER_KRAKEN: u64 = 1 << 14 | INCARNATION_2;
pub const SERVER_OCTOPUS: u64 = 1 << 16 | INCARNATION_3;
/// Latencies in nanoseconds instead of milliseconds; not in the mask Pacific announces.
pub const OS_PERF_STAT_NS: u64 = 1 << 17 | INCARNATION_3;
pub const CRUSH_TUNABLES: u64 = 1 << 18;
pub const OSD_PGLOG_HARDLIMIT: u64 = 1 << 19 | INCARNATION_2;
pub const SERVER_PACIFIC: u64 = 1 << 20 | INCARNATION_3;
pub const SERVER_LUMINOUS: u64 = 1 << 21 | INCARNATION_2;
pub const RESEND_ON_SPLIT: u64 = SERVER_LUMINOUS;
pub const RADOS_BACKOFF: u64 = SERVER_LUMINOUS;
pub const OSDMAP_PG_UPMAP: u64 = SERVER_LUMINOUS;
pub const CRUSH_CHOOSE_ARGS: u64 = SERVER_LUMINOUS;
pub const MSG_AUTH: u64 = 1 << 23;
pub const CRUSH_TUNABLES2: u64 = 1 << 25;
pub const SERVER_MIMIC: u64 = 1 << 28 | INCARNATION_2;
pub const OSDHASHPSPOOL: u64 = 1 << 30;
pub const STRETCH_MODE: u64 = 1 << 32 | INCARNATION_3;
/// What clients since Reef announce and those of Pacific do not.
pub const REEF_CLIENT: u64 = 1 << 33;
pub const OSD_CACHEPOOL: u64 = 1 << 35;
pub const CRUSH_V2: u64 = 1 << 36;
pub const OSDMAP_ENC: u64 = 1 << 39;
pub const CRUSH_TUNABLES3: u64 = 1 << 41;
pub const OSD_PRIMARY_AFFINITY: u64 = 1 << 41;
pub const MSGR_KEEPALIVE2: u64 = 1 << 42;
pub const OSD_POOLRESEND: u64 = 1 << 43;
pub const CRUSH_V4: u64 = 1 << 48;
pub const NEW_OSDOP_ENCODING: u64 = 1 << 56;
pub const MON_STATEFUL_SUB: u64 = 1 << 57;
pub const SERVER_JEWEL: u64 = 1 << 57;
pub const CRUSH_TUNABLES5: u64 = 1 << 58;
pub const NEW_OSDOPREPLY_ENCODING: u64 = 1 << 58;
pub const FS_BTIME: u64 = 1 << 59;
pub const MSG_ADDR2: u64 = 1 << 59;
pub const CEPHX_V2: u64 = 1 << 61;

/// What Pacific announces. Announcing more makes newer clients switch to formats nobody here reads: with bits 49 and
/// 50 Tentacle sends OSD_OP v9.
pub const SUPPORTED: u64 = 0x3f01_cfbd_fffd_ffff;

/// What a client of a release has that older ones lack, as far as bits tell them apart: nothing new between Luminous and Nautilus, nor
/// between Nautilus and Reef.
pub fn of_release(release: crate::map::Release) -> u64 {
    use crate::map::Release;
    let since = [(Release::JEWEL, SERVER_JEWEL), (Release::LUMINOUS, SERVER_LUMINOUS), (Release::NAUTILUS, CEPHX_V2), (Release::REEF, REEF_CLIENT)];
    since.into_iter().filter(|(first, _)| release >= *first).fold(0, |all, (_, bits)| all | bits)
}

/// What our daemons require of a peer.
pub const REQUIRED: u64 = MSG_ADDR2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_mask_has_every_bit_that_formats_hang_on() {
        for mask in [SERVER_NAUTILUS, SERVER_PACIFIC, SERVER_LUMINOUS, OBJECTLOCATOR, NEW_OSDOP_ENCODING, SUBSCRIBE2] {
            assert_eq!(SUPPORTED & mask, mask, "{mask:#x}");
        }
        assert_eq!(SUPPORTED & REQUIRED, REQUIRED);
        assert_eq!(SUPPORTED & (1 << 17), 0);
    }
}
