//! A monitor made anew from what OSDs kept.

use crate::lab::{Lab, addrs, entity};
use crate::{OPTIONS, three};
use auth::{ChaCha8Rng, Keyring};
use bytes::Bytes;
use mon::SessionId;
use mon::recover::{Keys, NewMon, RecoverError, Recovered, Remains, recover};
use rand::SeedableRng;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use store::mem::MemDisk;
use types::msg::Message;
use types::msg::internal::KeptState;
use types::msg::mon::MOsdMap;
use types::{EntityKind, EntityName, Epoch, Mono, Now, Utime};
use uuid::Uuid;

const OSD: SessionId = SessionId(101);

/// What osd.1 was sent since the last look: the newest copy, and every map.
#[derive(Default)]
struct Osd {
    maps: BTreeMap<Epoch, (Bytes, Option<Bytes>)>,
    kept: Option<KeptState>,
}

impl Osd {
    fn hear(&mut self, lab: &mut Lab) {
        lab.subscribe(OSD, "osdmap", 1, 0);
        lab.pass(Duration::from_secs(12));
        let first = lab.mon.state().unwrap().osdmap.first;
        for (session, _, message) in lab.mail.drain(..) {
            match message {
                Message::MonCopy(m) if session == OSD && self.kept.as_ref().is_none_or(|have| m.copy.is_newer_than(have)) => self.kept = Some(m.copy),
                Message::MOsdMap(m) if session == OSD => self.take(&m, first),
                _ => {}
            }
        }
    }

    /// As an OSD does: full maps are made of the steps.
    fn take(&mut self, m: &MOsdMap, first: Epoch) {
        for (epoch, raw) in &m.full {
            self.maps.insert(*epoch, (raw.clone(), None));
        }
        for (epoch, step) in m.incremental.iter().filter(|(e, _)| **e > first) {
            let before = &self.maps[&Epoch(epoch.0 - 1)].0;
            let mut map: types::map::OsdMap = denc::from_bytes(before).unwrap();
            map.apply_incremental(&denc::from_bytes(step).unwrap()).unwrap();
            let full = denc::to_bytes(&map, types::features::SUPPORTED);
            self.maps.insert(*epoch, (full, Some(step.clone())));
        }
    }
}

fn mon_keyring() -> Keyring {
    Keyring { entries: [(EntityName::new(EntityKind::MON, ""), entity(&[("mon", "allow *")]))].into() }
}

fn rebuild(osd: &Osd, keyrings: Vec<Keyring>) -> (MemDisk, Result<Recovered, RecoverError>) {
    let disk = MemDisk::new(0);
    let osd_key = (EntityName::new(EntityKind::OSD, "1"), entity(&[]));
    let remains = Remains {
        fsid: Uuid::from_u128(0x1234),
        maps: osd.maps.clone(),
        kept: osd.kept.clone(),
        keyrings,
        osd_keys: Keyring { entries: [osd_key].into() },
    };
    let mon = NewMon { name: "a".into(), addrs: addrs(3300, 0) };
    let now = Now { mono: Mono(1), wall: Utime { sec: 1_795_800_000, nsec: 0 } };
    let made = recover(&mut disk.kv(), &remains, &mon, now, &mut ChaCha8Rng::seed_from_u64(9));
    (disk, made)
}

/// A cluster with something of everything; its OSD, and the key of a user.
fn lived_in() -> (Lab, Osd, String) {
    let mut lab = three();
    lab.ok(json!({"prefix": "osd pool create", "pool": "p"}));
    lab.ok(json!({"prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "2"}));
    lab.ok(json!({"prefix": "config-key set", "key": "k", "val": "v"}));
    let key = lab.ok(json!({"prefix": "auth get-or-create-key", "entity": "client.x", "caps": ["mon", "allow r"]})).out;
    let mut osd = Osd::default();
    osd.hear(&mut lab);
    (lab, osd, key)
}

#[test]
fn everything_that_was_agreed_on_is_there_again() {
    let (mut lab, osd, key) = lived_in();
    let dump = lab.ok(json!({"prefix": "osd dump"})).out;
    let monmap = lab.json(json!({"prefix": "mon dump"}))["epoch"].as_u64().unwrap();
    let (disk, made) = rebuild(&osd, vec![mon_keyring()]);
    let made = made.unwrap();
    assert_eq!(made.keys, Keys::Kept);
    assert_eq!(made.first, lab.mon.state().unwrap().osdmap.first);
    let mut lab = Lab::on(disk, lab.fsid, OPTIONS);
    assert!(lab.mon.is_serving());
    assert_eq!(lab.ok(json!({"prefix": "osd dump"})).out, dump);
    assert_eq!(lab.ok(json!({"prefix": "auth get-key", "entity": "client.x"})).out, key);
    assert_eq!(lab.ok(json!({"prefix": "config get", "who": "osd.0", "key": "osd_max_backfills"})).out, "2\n");
    assert_eq!(lab.ok(json!({"prefix": "config-key get", "key": "k"})).out, "v");
    assert!(lab.json(json!({"prefix": "mon dump"}))["epoch"].as_u64().unwrap() > monmap);
    // It goes on, and is found again after a crash.
    lab.ok(json!({"prefix": "osd pool create", "pool": "q"}));
    let mut lab = lab.restart(OPTIONS);
    assert_eq!(lab.ok(json!({"prefix": "osd pool ls"})).out, "p\nq\n");
}

#[test]
fn the_copy_follows_every_change_and_a_recovered_monitors_is_the_newer_one() {
    let (mut lab, mut osd, _) = lived_in();
    let before = osd.kept.clone().unwrap();
    lab.pass(Duration::from_secs(30));
    assert!(!lab.mail.iter().any(|(_, _, m)| matches!(m, Message::MonCopy(_))), "nothing changed");
    lab.ok(json!({"prefix": "config set", "who": "osd", "name": "osd_max_backfills", "value": "3"}));
    osd.hear(&mut lab);
    let after = osd.kept.clone().unwrap();
    assert!(after.is_newer_than(&before));
    let (disk, made) = rebuild(&osd, vec![mon_keyring()]);
    made.unwrap();
    let mut lab = Lab::on(disk, lab.fsid, OPTIONS);
    lab.boot_osd(1, 5);
    osd.hear(&mut lab);
    assert!(osd.kept.unwrap().is_newer_than(&after), "though its log is shorter");
}

#[test]
fn keys_stay_sealed_without_that_of_the_monitors_and_osds_bring_their_own() {
    let (lab, osd, key) = lived_in();
    let kept = osd.kept.as_ref().unwrap();
    let secret = key.trim().as_bytes();
    let raw_secret: auth::CryptoKey = key.trim().parse().unwrap();
    for hidden in [secret, raw_secret.secret()] {
        assert!(!kept.open.windows(hidden.len()).any(|w| w == hidden) && !kept.sealed.windows(hidden.len()).any(|w| w == hidden));
    }
    let (disk, made) = rebuild(&osd, Vec::new());
    let made = made.unwrap();
    assert_eq!((made.keys, made.keyless.as_slice()), (Keys::Locked, &[types::OsdId(0), types::OsdId(2)][..]));
    assert!(made.keyring.key(&EntityName::new(EntityKind::CLIENT, "admin")).is_some());
    let mut lab = Lab::on(disk, lab.fsid, OPTIONS);
    assert_eq!(lab.cmd(json!({"prefix": "auth get-key", "entity": "client.x"})).result, -2);
    assert!(lab.ok(json!({"prefix": "auth get", "entity": "osd.1"})).out.contains("caps mon = \"allow profile osd\""));
    // Options are nobody's secret.
    assert_eq!(lab.ok(json!({"prefix": "config get", "who": "osd.0", "key": "osd_max_backfills"})).out, "2\n");
}

#[test]
fn maps_alone_make_a_cluster_and_no_map_makes_none() {
    let (mut lab, mut osd, _) = lived_in();
    osd.kept = None;
    let last = *osd.maps.keys().next_back().unwrap();
    // One without the step to it: what is before is of no use.
    let gap = Epoch(last.0 - 2);
    osd.maps.get_mut(&gap).unwrap().1 = None;
    let (disk, made) = rebuild(&osd, vec![mon_keyring()]);
    let made = made.unwrap();
    assert_eq!((made.keys, made.first, made.last), (Keys::NoCopy, gap, last));
    let pools = lab.ok(json!({"prefix": "osd pool ls"})).out;
    let mut lab = Lab::on(disk, lab.fsid, OPTIONS);
    assert_eq!(lab.ok(json!({"prefix": "osd pool ls"})).out, pools);
    osd.maps.clear();
    assert!(matches!(rebuild(&osd, vec![mon_keyring()]).1, Err(RecoverError::NoMap)));
}
