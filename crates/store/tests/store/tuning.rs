//! What may be deferred: an operator's options and the memory that there is both have a say.

use crate::harness::*;
use store::*;

#[test]
fn what_is_deferred_is_bounded_by_memory_and_by_options_whichever_was_said_last() {
    let (mut d, _) = mounted(64 << 20, StoreConfig::default());
    let usual = Tuning::of(DeviceProfile::Hdd);
    let mut told = |memory: Option<u64>, option: Option<u64>| {
        if let Some(target) = memory {
            d.store.set_memory(Memory { target, cache_min: 0 });
        }
        if let Some(deferred_bytes_max) = option {
            d.store.tune(Tuning { deferred_bytes_max, ..usual });
        }
        d.store.tuning().deferred_bytes_max
    };
    let tight = told(Some(96 << 20), None);
    assert!(tight < usual.deferred_bytes_max, "{tight}");
    assert_eq!(told(None, Some(1 << 40)), tight);
    assert_eq!(told(None, Some(4096)), 4096);
    // More memory: options alone count.
    assert_eq!(told(Some(4 << 30), Some(1 << 40)), 1 << 40);
    assert_eq!(told(Some(96 << 20), None), tight);
}
