//! What an OSD's devices take to flush, measured before it serves anybody.

use admin::option::ConfigValues;
use io::Clock;
use std::collections::BTreeMap;
use std::time::Duration;
use store::{BlockDev, DeviceFacts, DeviceProfile, FlushFault, Kv, Store};

/// Blocks that are written and flushed, each in another place.
const PLACES: u64 = 8;
/// So many are always done, and no more than this is spent on the rest.
const LEAST: usize = 3;
const PATIENCE: Duration = Duration::from_millis(400);

/// Measures flushes of the data device and of the database's log, and has the store know; `name`: the data device's, for the log.
pub fn devices<D: BlockDev, K: Kv>(store: &mut Store<D, K>, options: &ConfigValues, name: &str) -> DeviceFacts {
    let forced = match options.str("bluestore_debug_enforce_settings").as_str() {
        "hdd" => Some(DeviceProfile::Hdd),
        "ssd" => Some(DeviceProfile::Ssd),
        _ => None,
    };
    let took = times(|place| {
        // The first write of a block of a file has the file system give it a place, which is none of the device's doing.
        store.try_flush(place * 1000 / PLACES).is_ok().then_some(())?;
        time(|| store.try_flush(place * 1000 / PLACES).is_ok())
    });
    let log_took = times(|_| time(|| store.try_log_flush().is_ok()));
    let said = store.dev_mut().rotational();
    let facts = DeviceFacts::judge(said, forced, took, log_took);
    store.set_facts(facts);
    if forced.is_none() && (facts.profile == DeviceProfile::Hdd) != said {
        let by_kernel = if said { "its head moves" } else { "no head moves" };
        tracing::info!("{name}: the kernel says that {by_kernel}; by what flushes take it is used as {}", facts.profile.name());
    }
    tell(name, facts.flush, facts.fault);
    tell(&format!("the journal of {name}"), facts.log_flush, facts.log_fault);
    facts
}

/// What `osd metadata` shows of it.
pub fn metadata(facts: &DeviceFacts) -> BTreeMap<String, String> {
    let us = |took: Duration| took.as_micros().to_string();
    let fault = |fault| match fault {
        FlushFault::Quick => "too quick".to_owned(),
        FlushFault::Slow => "slow".to_owned(),
    };
    let all = [
        ("cuttlebone_device_profile", Some(facts.profile.name().to_owned())),
        ("cuttlebone_flush_us", facts.flush.map(us)),
        ("cuttlebone_flush_fault", facts.fault.map(fault)),
        ("cuttlebone_journal_flush_us", facts.log_flush.map(us)),
        ("cuttlebone_journal_flush_fault", facts.log_fault.map(fault)),
    ];
    all.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Does it for each place as long as there is patience; one that fails is left out, for whoever uses the device next will tell why.
fn times(mut one: impl FnMut(u64) -> Option<Duration>) -> Vec<Duration> {
    let (clock, mut took) = (Clock::new(), Vec::new());
    let begin = clock.now().mono;
    for place in 0..PLACES {
        if took.len() >= LEAST && clock.now().mono - begin > PATIENCE {
            break;
        }
        took.extend(one(place));
    }
    took
}

fn time(flush: impl FnOnce() -> bool) -> Option<Duration> {
    let clock = Clock::new();
    let begin = clock.now().mono;
    flush().then(|| clock.now().mono - begin)
}

fn tell(name: &str, took: Option<Duration>, fault: Option<FlushFault>) {
    let Some(took) = took else { return };
    match fault {
        None => tracing::info!("{name}: a flush takes {took:?}"),
        Some(FlushFault::Quick) => {
            tracing::warn!("{name}: a flush takes {took:?}, which no device can do: it ignores flushes, or is memory; what was acknowledged may not survive a power failure");
        }
        Some(FlushFault::Slow) => tracing::warn!("{name}: a flush takes {took:?}, ten times what is usual: every small write waits for it"),
    }
}
