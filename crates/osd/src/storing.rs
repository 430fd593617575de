//! How the store is to behave, as options say: of the OSD by its device, of pools over that.
//!
//! Upstream: src/os/bluestore/BlueStore.cc (_set_compression, _set_csum, _choose_write_options).

use admin::option::ConfigValues;
use std::collections::BTreeMap;
use store::{Algorithm, Compression, CompressionMode, Csum, DeviceProfile, Policy, Tuning};
use types::PoolId;
use types::map::{OsdMap, PoolOptKey, PoolOptValue, PoolOpts};

/// What can be changed while the store is open: by the device, unless somebody configured it.
pub(crate) fn tuning(config: &ConfigValues, profile: DeviceProfile) -> Tuning {
    let ours = Tuning::of(profile);
    let set = |name: &str| config.is_set(name).then(|| config.u64(name));
    // For all devices, where it is not 0; else for such as this one.
    let deferred = Some(config.u64("bluestore_prefer_deferred_size")).filter(|n| *n > 0);
    let deferred = deferred.or_else(|| set(of_device(["bluestore_prefer_deferred_size_hdd", "bluestore_prefer_deferred_size_ssd"], profile)));
    Tuning {
        prefer_deferred_size: deferred.map_or(ours.prefer_deferred_size, saturated),
        deferred_bytes_max: set("bluestore_throttle_deferred_bytes").map_or(ours.deferred_bytes_max, |n| n.max(1)),
        queue_depth_max: set("bdev_aio_max_queue_depth").map_or(ours.queue_depth_max, |n| n.max(1)),
        buffered_read: config.bool("bluestore_default_buffered_read"),
        discard: config.bool("bdev_enable_discard"),
        ..ours
    }
}

/// How data is written of pools that say nothing.
pub(crate) fn policy(config: &ConfigValues, profile: DeviceProfile) -> Policy {
    let size = |name: &str, of_devices| match config.u64(name) {
        0 => config.u64(of_device(of_devices, profile)),
        n => n,
    };
    let algorithm = Algorithm::from_name(&config.str("bluestore_compression_algorithm"));
    let mode = CompressionMode::from_name(&config.str("bluestore_compression_mode")).unwrap_or_default();
    Policy {
        csum: Csum::from_name(&config.str("bluestore_csum_type")).unwrap_or_default(),
        compression: Compression {
            mode: if algorithm.is_some() { mode } else { CompressionMode::None },
            algorithm: algorithm.unwrap_or_default(),
            required_ratio_ppm: ppm(config.f64("bluestore_compression_required_ratio")),
            min_blob_size: saturated(size(
                "bluestore_compression_min_blob_size",
                ["bluestore_compression_min_blob_size_hdd", "bluestore_compression_min_blob_size_ssd"],
            )),
            max_blob_size: saturated(size(
                "bluestore_compression_max_blob_size",
                ["bluestore_compression_max_blob_size_hdd", "bluestore_compression_max_blob_size_ssd"],
            )),
        },
    }
}

/// Those of pools that say something.
pub(crate) fn pool_policies(config: &ConfigValues, profile: DeviceProfile, map: &OsdMap) -> BTreeMap<PoolId, Policy> {
    let own = policy(config, profile);
    // Where it is the pool that wants compression the OSD may name no algorithm.
    let mode = CompressionMode::from_name(&config.str("bluestore_compression_mode")).unwrap_or_default();
    let of_pools = map.pools.iter().map(|(id, pool)| (*id, over(own, mode, &config.str("bluestore_compression_algorithm"), &pool.opts)));
    of_pools.filter(|(_, policy)| *policy != own).collect()
}

fn over(own: Policy, mode: CompressionMode, algorithm: &str, opts: &PoolOpts) -> Policy {
    let text = |key| match opts.get(key) {
        Some(PoolOptValue::Str(text)) => Some(text.as_str()),
        _ => None,
    };
    let number = |key| match opts.get(key) {
        Some(PoolOptValue::Int(n)) => Some(*n),
        _ => None,
    };
    let size = |key| number(key).map(|n| saturated(n.max(0) as u64));
    let mode = text(PoolOptKey::COMPRESSION_MODE).and_then(CompressionMode::from_name).unwrap_or(mode);
    let algorithm = Algorithm::from_name(text(PoolOptKey::COMPRESSION_ALGORITHM).unwrap_or(algorithm));
    let ratio = match opts.get(PoolOptKey::COMPRESSION_REQUIRED_RATIO) {
        Some(PoolOptValue::Double(ratio)) => Some(ppm(*ratio)),
        _ => None,
    };
    Policy {
        csum: number(PoolOptKey::CSUM_TYPE).and_then(Csum::from_number).unwrap_or(own.csum),
        compression: Compression {
            mode: if algorithm.is_some() { mode } else { CompressionMode::None },
            algorithm: algorithm.unwrap_or(own.compression.algorithm),
            required_ratio_ppm: ratio.unwrap_or(own.compression.required_ratio_ppm),
            min_blob_size: size(PoolOptKey::COMPRESSION_MIN_BLOB_SIZE).unwrap_or(own.compression.min_blob_size),
            max_blob_size: size(PoolOptKey::COMPRESSION_MAX_BLOB_SIZE).unwrap_or(own.compression.max_blob_size),
        },
    }
}

/// The option for such a device, of that for disks that turn and that for others.
fn of_device(names: [&'static str; 2], profile: DeviceProfile) -> &'static str {
    match profile {
        DeviceProfile::Hdd => names[0],
        DeviceProfile::Ssd => names[1],
    }
}

fn saturated(n: u64) -> u32 {
    n.try_into().unwrap_or(u32::MAX)
}

fn ppm(ratio: f64) -> u32 {
    (ratio.clamp(0.0, 1.0) * 1e6).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::option::Source;

    fn config(options: &[(&str, &str)]) -> ConfigValues {
        let mut config = ConfigValues::new("osd.0".parse().unwrap(), "ceph", "host");
        options.iter().for_each(|(name, value)| config.set(name, Source::Mon, value).unwrap());
        config
    }

    fn pool(opts: &[(PoolOptKey, PoolOptValue)]) -> PoolOpts {
        PoolOpts(opts.iter().cloned().collect())
    }

    fn of_pool(config: &ConfigValues, opts: &PoolOpts) -> Policy {
        let own = policy(config, DeviceProfile::Ssd);
        let mode = CompressionMode::from_name(&config.str("bluestore_compression_mode")).unwrap();
        over(own, mode, &config.str("bluestore_compression_algorithm"), opts)
    }

    #[test]
    fn without_a_word_nothing_is_compressed_and_the_device_decides() {
        let none = config(&[]);
        assert_eq!(policy(&none, DeviceProfile::Hdd), Policy::default());
        for profile in [DeviceProfile::Hdd, DeviceProfile::Ssd] {
            assert_eq!(tuning(&none, profile), Tuning::of(profile));
        }
    }

    #[test]
    fn sizes_are_for_all_devices_or_for_one_kind() {
        let both = config(&[("bluestore_prefer_deferred_size_hdd", "16K"), ("bluestore_compression_max_blob_size_ssd", "128K")]);
        assert_eq!(tuning(&both, DeviceProfile::Hdd).prefer_deferred_size, 16 << 10);
        assert_eq!(tuning(&both, DeviceProfile::Ssd), Tuning::of(DeviceProfile::Ssd));
        assert_eq!(policy(&both, DeviceProfile::Ssd).compression.max_blob_size, 128 << 10);
        assert_eq!(policy(&both, DeviceProfile::Hdd).compression.max_blob_size, 64 << 10);
        let all = config(&[("bluestore_prefer_deferred_size", "8K"), ("bluestore_prefer_deferred_size_hdd", "16K"), ("bluestore_throttle_deferred_bytes", "1M")]);
        let t = tuning(&all, DeviceProfile::Hdd);
        assert_eq!((t.prefer_deferred_size, t.deferred_bytes_max), (8 << 10, 1 << 20));
    }

    #[test]
    fn a_pool_s_word_counts_over_the_osd_s_one_by_one() {
        let osd = config(&[("bluestore_compression_mode", "aggressive"), ("bluestore_csum_type", "xxhash32"), ("bluestore_compression_required_ratio", "0.5")]);
        let own = of_pool(&osd, &pool(&[]));
        assert_eq!(own, policy(&osd, DeviceProfile::Ssd));
        assert_eq!((own.csum, own.compression.mode, own.compression.required_ratio_ppm), (Csum::Xxhash32, CompressionMode::Aggressive, 500_000));
        let p = of_pool(&osd, &pool(&[
            (PoolOptKey::COMPRESSION_ALGORITHM, PoolOptValue::Str("zstd".into())),
            (PoolOptKey::COMPRESSION_MIN_BLOB_SIZE, PoolOptValue::Int(32 << 10)),
            (PoolOptKey::CSUM_TYPE, PoolOptValue::Int(1)),
        ]));
        assert_eq!((p.csum, p.compression.mode, p.compression.algorithm), (Csum::None, CompressionMode::Aggressive, Algorithm::Zstd));
        assert_eq!((p.compression.min_blob_size, p.compression.required_ratio_ppm), (32 << 10, 500_000));
        let off = of_pool(&osd, &pool(&[(PoolOptKey::COMPRESSION_MODE, PoolOptValue::Str("none".into()))]));
        assert_eq!(off.compression.mode, CompressionMode::None);
        let nothing = of_pool(&osd, &pool(&[(PoolOptKey::COMPRESSION_ALGORITHM, PoolOptValue::Str("none".into()))]));
        assert_eq!(nothing.compression.mode, CompressionMode::None);
    }

    #[test]
    fn a_pool_may_name_what_the_osd_does_not() {
        let osd = config(&[("bluestore_compression_algorithm", ""), ("bluestore_compression_mode", "force")]);
        assert_eq!(policy(&osd, DeviceProfile::Ssd).compression.mode, CompressionMode::None);
        let p = of_pool(&osd, &pool(&[(PoolOptKey::COMPRESSION_ALGORITHM, PoolOptValue::Str("lz4".into()))]));
        assert_eq!((p.compression.mode, p.compression.algorithm), (CompressionMode::Force, Algorithm::Lz4));
    }
}
