//! What may be deferred: an operator's options and the memory that there is both have a say.

use crate::harness::*;
use rand_chacha::ChaCha8Rng;
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

#[test]
fn what_memory_is_left_goes_to_onodes_first_and_comes_back() {
    let config = StoreConfig { onode_cache_bytes: 40_000, data_cache_bytes: 200_000, memory_target: 64 << 20, deferred_batch_bytes: 1, ..StoreConfig::default() };
    let (mut d, mut rng) = mounted(64 << 20, config);
    // Caches grow to what is theirs while the process is small.
    for _ in 0..50 {
        d.store.fit_memory(10 << 20);
    }
    let fill = |d: &mut Driver, rng: &mut ChaCha8Rng, from: u32| {
        for i in from..from + 500 {
            d.submit(write(&object(COLLS[0], i), 0, vec![i as u8; 4096])).unwrap();
            d.run(rng);
        }
    };
    fill(&mut d, &mut rng, 0);
    let held = |d: &Driver| (d.store.memory().onodes.1, d.store.memory().data.1);
    let (onodes, data) = held(&d);
    assert!(onodes <= 40_000 && data <= 200_000, "{onodes} {data}");
    // A megabyte is left beyond what is kept for the next look.
    d.store.lend_memory((64 << 20) - (9 << 20));
    fill(&mut d, &mut rng, 500);
    let (onodes, data) = held(&d);
    assert!(onodes > 80_000 && data > 200_000, "{onodes} {data}");
    assert!(onodes + data <= 240_000 + (1 << 20), "what onodes have is not lent twice: {onodes} {data}");
    // Nothing is left.
    (0..3).for_each(|_| d.store.lend_memory(70 << 20));
    let (onodes, data) = held(&d);
    assert!(onodes <= 40_000 && data <= 200_000, "{onodes} {data}");
}
