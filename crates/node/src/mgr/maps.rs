//! Following the osdmap from message to message.

use std::sync::Arc;
use types::Epoch;
use types::map::{OsdMap, OsdMapIncremental};
use types::msg::MOsdMap;

/// The newest map known.
#[derive(Default)]
pub struct MapFollower {
    map: Option<Arc<OsdMap>>,
}

/// What came of a message.
pub struct Followed {
    /// A newer map.
    pub newer: Option<Arc<OsdMap>>,
    /// The message does not lead on from what we have: ask from this epoch on; 0 for a full map.
    pub ask_from: Option<Epoch>,
}

impl MapFollower {
    /// Applies what leads on from our map.
    pub fn take(&mut self, m: &MOsdMap) -> Followed {
        let before = self.epoch();
        while let Some(next) = self.next(m) {
            self.map = Some(Arc::new(next));
        }
        let newest = m.incremental.keys().chain(m.full.keys()).max().copied().unwrap_or(Epoch(0));
        let broken = newest > self.epoch();
        let next = self.epoch().next();
        Followed {
            newer: self.map.clone().filter(|map| map.epoch > before),
            // An incremental for our very map that does not apply calls for a full one.
            ask_from: broken.then_some(if m.incremental.contains_key(&next) { Epoch(0) } else { next }),
        }
    }

    fn epoch(&self) -> Epoch {
        self.map.as_ref().map_or(Epoch(0), |m| m.epoch)
    }

    fn next(&self, m: &MOsdMap) -> Option<OsdMap> {
        if let Some(map) = self.map.as_ref().and_then(|have| follow(have, m)) {
            return Some(map);
        }
        let have = self.epoch();
        let (epoch, bytes) = m.full.iter().next_back().filter(|(epoch, _)| **epoch > have)?;
        match denc::from_slice::<OsdMap>(bytes) {
            Ok(map) => Some(map),
            Err(why) => {
                tracing::warn!("osdmap {epoch}: {why}");
                None
            }
        }
    }
}

fn follow(have: &OsdMap, m: &MOsdMap) -> Option<OsdMap> {
    let epoch = have.epoch.next();
    let inc = denc::from_slice::<OsdMapIncremental>(m.incremental.get(&epoch)?);
    let inc = inc.map_err(|why| tracing::warn!("osdmap incremental {epoch}: {why}")).ok()?;
    let mut map = have.clone();
    map.apply_incremental(&inc).map_err(|why| tracing::warn!("osdmap {epoch}: {why}")).ok()?;
    Some(map)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use std::collections::BTreeMap;
    use types::Utime;

    fn message(full: &[(u32, Bytes)], incremental: &[(u32, Bytes)]) -> MOsdMap {
        let by_epoch = |list: &[(u32, Bytes)]| list.iter().map(|(e, b)| (Epoch(*e), b.clone())).collect::<BTreeMap<_, _>>();
        MOsdMap {
            fsid: Default::default(),
            incremental: by_epoch(incremental),
            full: by_epoch(full),
            oldest: Epoch(1),
            newest: Epoch(9),
            gap_removed_snaps: BTreeMap::new(),
        }
    }

    /// A map at epoch 1, and what leads to epoch 2.
    fn two_epochs() -> (Bytes, Bytes) {
        let mut map = OsdMap::new(Default::default(), Utime::ZERO);
        map.epoch = Epoch(1);
        let full = map.publish();
        let mut next = map.clone();
        let mut inc = OsdMapIncremental::new(Default::default(), Epoch(2), Utime::ZERO);
        inc.new_max_osd = Some(3);
        next.apply_unchecked(&inc).unwrap();
        let bytes = inc.publish(&mut next).1;
        (full, bytes)
    }

    #[test]
    fn a_full_map_and_then_incrementals_lead_on() {
        let (full, inc) = two_epochs();
        let mut follower = MapFollower::default();
        let first = follower.take(&message(&[(1, full)], &[]));
        assert_eq!((first.newer.map(|m| m.epoch), first.ask_from), (Some(Epoch(1)), None));
        let second = follower.take(&message(&[], &[(2, inc)]));
        assert_eq!(second.newer.map(|m| (m.epoch, m.max_osd)), Some((Epoch(2), 3)));
    }

    #[test]
    fn a_gap_is_asked_for_and_a_broken_incremental_calls_for_a_full_map() {
        let (full, inc) = two_epochs();
        let mut follower = MapFollower::default();
        assert_eq!(follower.take(&message(&[], &[(2, inc.clone())])).ask_from, Some(Epoch(1)));
        follower.take(&message(&[(1, full)], &[]));
        assert_eq!(follower.take(&message(&[], &[(5, inc)])).ask_from, Some(Epoch(2)));
        assert_eq!(follower.take(&message(&[], &[(2, Bytes::from_static(b"junk"))])).ask_from, Some(Epoch(0)));
    }
}
