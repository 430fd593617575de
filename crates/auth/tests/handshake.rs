//! Client, monitor and daemon against each other, with both kinds of keys.

use auth::cephx::{
    CephxClient, ClientError, Granted, KeyStore, MonAuth, Renewed, Reply, RotatingSecrets, ServiceAuth, ServiceReply,
    SessionKeys, TicketPolicy,
};
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind, mode};
use bytes::Bytes;
use rand::SeedableRng;
use std::collections::BTreeMap;
use types::{EntityKind, EntityName, Errno, Mono, Utime};

const NOW: Utime = Utime { sec: 1_000_000, nsec: 0 };
const T0: Mono = Mono(0);
const SERVICES: [EntityKind; 3] = [EntityKind::MON, EntityKind::OSD, EntityKind::MGR];

struct Db {
    entities: BTreeMap<EntityName, EntityAuth>,
    secrets: BTreeMap<EntityKind, RotatingSecrets>,
}

impl KeyStore for Db {
    fn entity(&self, name: &EntityName) -> Option<EntityAuth> {
        self.entities.get(name).cloned()
    }
    fn secrets(&self, service: EntityKind) -> Option<&RotatingSecrets> {
        self.secrets.get(&service)
    }
}

struct Lab {
    db: Db,
    rng: ChaCha8Rng,
    next_id: u64,
}

fn name(s: &str) -> EntityName {
    s.parse().unwrap()
}

impl Lab {
    fn new(kind: KeyKind) -> Lab {
        let mut rng = ChaCha8Rng::seed_from_u64(9);
        let mut entities = BTreeMap::new();
        for (who, caps) in [
            ("client.a", &[("mon", "allow r"), ("osd", "allow rw pool=p")][..]),
            ("client.b", &[("mon", "allow r")]),
            ("client.nocaps", &[]),
            ("osd.0", &[("mon", "allow profile osd"), ("osd", "allow *")]),
        ] {
            let caps = caps.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            entities.insert(name(who), EntityAuth { key: CryptoKey::generate(kind, NOW, &mut rng), caps });
        }
        let mut secrets = BTreeMap::new();
        for service in [EntityKind::AUTH, EntityKind::MON, EntityKind::OSD, EntityKind::MGR] {
            let mut r = RotatingSecrets::default();
            r.rotate(NOW, TicketPolicy::default().service_ttl, KeyKind::Aes, &mut rng);
            secrets.insert(service, r);
        }
        Lab { db: Db { entities, secrets }, rng, next_id: 4100 }
    }

    fn client(&self, who: &str) -> CephxClient {
        CephxClient::new(name(who), self.db.entities[&name(who)].key.clone(), &SERVICES)
    }

    /// A whole conversation with a monitor.
    fn log_in(&mut self, c: &mut CephxClient, con_mode: u32) -> Result<(MonAuth, Granted, SessionKeys), Errno> {
        let next = &mut self.next_id;
        let allocate = || {
            *next += 1;
            Some(*next)
        };
        let (mut server, challenge) = MonAuth::begin(&c.begin(), allocate, &mut self.rng)?;
        let request = c.handle_more(&challenge, &mut self.rng).unwrap();
        match server.proceed(&request, con_mode, &self.db, &TicketPolicy::default(), NOW, &mut self.rng) {
            Reply::Done(granted) => {
                let keys = c.handle_done(T0, granted.global_id, &granted.payload).unwrap();
                Ok((server, *granted, keys))
            }
            Reply::Bad(errno) => Err(errno),
            Reply::More(_) => panic!("a third round"),
        }
    }

    /// A whole conversation with an OSD.
    fn visit(&mut self, c: &CephxClient, service: EntityKind) -> Result<(auth::cephx::ServiceSession, SessionKeys), Errno> {
        let authorizer = c.authorizer(service, &mut self.rng).unwrap();
        let secrets = self.db.secrets[&service].clone();
        let find = |id| secrets.get(id).cloned();
        let mut server = ServiceAuth::new(service);
        let challenge = match server.handle(&authorizer.request(&mut self.rng), mode::SECURE, find, &mut self.rng) {
            ServiceReply::More(payload) => payload,
            ServiceReply::Bad(errno) => return Err(errno),
            ServiceReply::Done(_) => panic!("no challenge"),
        };
        let second = authorizer.handle_more(&challenge, &mut self.rng).unwrap();
        match server.handle(&second, mode::SECURE, find, &mut self.rng) {
            ServiceReply::Done(session) => {
                let keys = authorizer.handle_done(&session.payload).unwrap();
                Ok((*session, keys))
            }
            ServiceReply::Bad(errno) => Err(errno),
            ServiceReply::More(_) => panic!("a second challenge"),
        }
    }
}

const KINDS: [KeyKind; 2] = [KeyKind::Aes, KeyKind::Aes256k];

#[test]
fn both_sides_end_with_the_same_keys_in_both_modes() {
    for kind in KINDS {
        for (con_mode, len) in [(mode::CRC, 0), (mode::SECURE, 64)] {
            let mut lab = Lab::new(kind);
            let mut c = lab.client("client.a");
            let (_, granted, keys) = lab.log_in(&mut c, con_mode).unwrap();
            assert_eq!(keys.session_key, granted.session_key);
            assert_eq!(keys.connection_secret, granted.connection_secret);
            assert_eq!(keys.connection_secret.len(), len);
            assert_eq!((granted.global_id, granted.mon_caps.as_str()), (4101, "allow r"));
            let (session, keys) = lab.visit(&c, EntityKind::OSD).unwrap();
            assert_eq!((session.name.to_string().as_str(), session.caps.as_str()), ("client.a", "allow rw pool=p"));
            assert_eq!((session.session_key, session.connection_secret), (keys.session_key, keys.connection_secret));
        }
    }
}

#[test]
fn frames_have_the_lengths_seen_from_stock() {
    let mut lab = Lab::new(KeyKind::Aes);
    let mut c = CephxClient::new(name("client.admin"), lab.db.entities[&name("client.a")].key.clone(), &SERVICES);
    lab.db.entities.insert(name("client.admin"), lab.db.entities[&name("client.a")].clone());
    assert_eq!(c.begin().len(), 22);
    let (_, challenge) = MonAuth::begin(&c.begin(), || Some(1), &mut lab.rng).unwrap();
    assert_eq!(challenge.len(), 9);
    assert_eq!(c.handle_more(&challenge, &mut lab.rng).unwrap().len(), 36);
    let mut bootstrap = CephxClient::new(name("client.admin"), lab.db.entities[&name("client.a")].key.clone(), &[]);
    for (con_mode, len) in [(mode::CRC, 210), (mode::SECURE, 274)] {
        bootstrap.forget();
        let (_, granted, _) = lab.log_in(&mut bootstrap, con_mode).unwrap();
        assert_eq!(granted.payload.len(), len);
    }
    lab.log_in(&mut c, mode::CRC).unwrap();
    let authorizer = c.authorizer(EntityKind::MON, &mut lab.rng).unwrap();
    assert_eq!(authorizer.request(&mut lab.rng).len(), 158);
    let (session, _) = lab.visit(&c, EntityKind::OSD).unwrap();
    assert_eq!(session.payload.len(), 100);
}

#[test]
fn a_wrong_key_an_unknown_entity_and_one_without_mon_caps_are_refused() {
    for kind in KINDS {
        let mut lab = Lab::new(kind);
        let wrong = CryptoKey::generate(kind, NOW, &mut lab.rng);
        let mut c = CephxClient::new(name("client.a"), wrong.clone(), &SERVICES);
        assert_eq!(lab.log_in(&mut c, mode::CRC).unwrap_err(), Errno::EACCES);
        let mut c = CephxClient::new(name("client.nobody"), wrong, &SERVICES);
        assert_eq!(lab.log_in(&mut c, mode::CRC).unwrap_err(), Errno::EACCES);
        let mut c = lab.client("client.nocaps");
        assert_eq!(lab.log_in(&mut c, mode::CRC).unwrap_err(), Errno::EACCES);
    }
}

#[test]
fn a_global_id_is_kept_with_its_ticket_and_only_by_its_owner() {
    for kind in KINDS {
        let mut lab = Lab::new(kind);
        let mut c = lab.client("client.a");
        let (_, first, _) = lab.log_in(&mut c, mode::CRC).unwrap();
        let (_, second, _) = lab.log_in(&mut c, mode::SECURE).unwrap();
        assert_eq!(first.global_id, second.global_id);
        lab.visit(&c, EntityKind::OSD).unwrap();
        // Another name with a stolen ticket; a claimed id without any.
        let mut thief = lab.client("client.b");
        let (mut server, challenge) = MonAuth::begin(&c.begin(), || None, &mut lab.rng).unwrap();
        let request = thief.handle_more(&challenge, &mut lab.rng).unwrap();
        let policy = TicketPolicy::default();
        let reply = server.proceed(&request, mode::CRC, &lab.db, &policy, NOW, &mut lab.rng);
        assert_eq!(reply, Reply::Bad(Errno::EACCES));
        // After the secrets rotated away, the ticket proves nothing.
        for _ in 0..3 {
            let auth = lab.db.secrets.get_mut(&EntityKind::AUTH).unwrap();
            let later = auth.current().unwrap().expires;
            auth.rotate(later, policy.auth_ttl, KeyKind::Aes, &mut lab.rng);
        }
        assert_eq!(lab.log_in(&mut c, mode::CRC).unwrap_err(), Errno::EACCES);
        c.forget();
        assert_ne!(lab.log_in(&mut c, mode::CRC).unwrap().1.global_id, first.global_id);
    }
}

#[test]
fn tickets_and_secrets_renew_over_messages() {
    for kind in KINDS {
        let mut lab = Lab::new(kind);
        let policy = TicketPolicy::default();
        let mut c = lab.client("osd.0");
        let (mut server, ..) = lab.log_in(&mut c, mode::CRC).unwrap();
        assert!(c.renewal(T0, &mut lab.rng).is_none());
        let due = c.next_renewal().unwrap();
        assert_eq!(due, T0 + std::time::Duration::from_secs(2700));
        for later in [due, T0 + policy.auth_ttl] {
            let request = c.renewal(later, &mut lab.rng).unwrap();
            let reply = server.handle_message(&request, &lab.db, &policy, NOW, &mut lab.rng).unwrap();
            assert_eq!(c.handle_reply(later, &reply).unwrap(), Renewed::Tickets);
            assert!(c.renewal(later, &mut lab.rng).is_none());
            lab.visit(&c, EntityKind::OSD).unwrap();
        }
        let reply = server.handle_message(&c.rotating_request(), &lab.db, &policy, NOW, &mut lab.rng).unwrap();
        let want = lab.db.secrets[&EntityKind::OSD].clone();
        assert_eq!(c.handle_reply(T0, &reply).unwrap(), Renewed::Secrets(want));
        let mut c = lab.client("client.a");
        let (mut server, ..) = lab.log_in(&mut c, mode::CRC).unwrap();
        let reply = server.handle_message(&c.rotating_request(), &lab.db, &policy, NOW, &mut lab.rng);
        assert_eq!(reply, Err(Errno::EACCES), "a client gets no service secrets");
    }
}

#[test]
fn a_ticket_whose_secret_rotated_away_is_refused_by_the_service() {
    let mut lab = Lab::new(KeyKind::Aes);
    let mut c = lab.client("client.a");
    lab.log_in(&mut c, mode::CRC).unwrap();
    for round in 0..3 {
        let osd = lab.db.secrets.get_mut(&EntityKind::OSD).unwrap();
        let later = osd.current().unwrap().expires;
        osd.rotate(later, TicketPolicy::default().service_ttl, KeyKind::Aes, &mut lab.rng);
        let visit = lab.visit(&c, EntityKind::OSD);
        assert_eq!(visit.is_ok(), round < 1, "round {round}");
    }
}

#[test]
fn a_replayed_second_round_is_refused() {
    let mut lab = Lab::new(KeyKind::Aes);
    let mut c = lab.client("client.a");
    lab.log_in(&mut c, mode::CRC).unwrap();
    let secrets = lab.db.secrets[&EntityKind::OSD].clone();
    let find = |id| secrets.get(id).cloned();
    let authorizer = c.authorizer(EntityKind::OSD, &mut lab.rng).unwrap();
    let first = authorizer.request(&mut lab.rng);
    let mut victim = ServiceAuth::new(EntityKind::OSD);
    let ServiceReply::More(challenge) = victim.handle(&first, mode::CRC, find, &mut lab.rng) else { panic!() };
    let second = authorizer.handle_more(&challenge, &mut lab.rng).unwrap();
    let mut replayed = ServiceAuth::new(EntityKind::OSD);
    assert!(matches!(replayed.handle(&first, mode::CRC, find, &mut lab.rng), ServiceReply::More(_)));
    assert_eq!(replayed.handle(&second, mode::CRC, find, &mut lab.rng), ServiceReply::Bad(Errno::EACCES));
    // Nor does an OSD's ticket open a manager.
    let mut mgr = ServiceAuth::new(EntityKind::MGR);
    assert_eq!(mgr.handle(&first, mode::CRC, find, &mut lab.rng), ServiceReply::Bad(Errno::EACCES));
}

#[test]
fn truncated_and_damaged_payloads_end_in_errors() {
    for kind in KINDS {
        let mut lab = Lab::new(kind);
        let mut c = lab.client("client.a");
        let hello = c.begin();
        for n in 0..hello.len() {
            assert_eq!(MonAuth::begin(&hello.slice(..n), || Some(1), &mut lab.rng).unwrap_err(), Errno::EACCES);
        }
        let (server, challenge) = MonAuth::begin(&hello, || Some(1), &mut lab.rng).unwrap();
        let request = c.handle_more(&challenge, &mut lab.rng).unwrap();
        let policy = TicketPolicy::default();
        for n in 0..request.len() {
            let reply = server.clone().proceed(&request.slice(..n), mode::CRC, &lab.db, &policy, NOW, &mut lab.rng);
            assert!(matches!(reply, Reply::Bad(_)), "{n}");
        }
        let Reply::Done(granted) = server.clone().proceed(&request, mode::SECURE, &lab.db, &policy, NOW, &mut lab.rng)
        else {
            panic!()
        };
        for n in 0..granted.payload.len() {
            let fresh = &mut c.clone();
            let cut = fresh.handle_done(T0, 1, &granted.payload.slice(..n));
            assert!(cut.is_err() || n > 150, "{n}");
            let mut bad = granted.payload.to_vec();
            bad[n] ^= 0x55;
            let _ = c.clone().handle_done(T0, 1, &Bytes::from(bad));
        }
        assert!(matches!(c.handle_reply(T0, &Bytes::from_static(&[0, 2, 0xf3, 0xff, 0xff, 0xff])), Err(ClientError::Refused(Errno(13)))));
    }
}
