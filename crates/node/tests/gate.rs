//! Who gets through an OSD's gate: two endpoints that talk to each other, with tickets of a monitor.

use auth::cephx::{CephxClient, KeyStore, MonAuth, Reply, RotatingSecrets, TicketPolicy};
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind, mode};
use bytes::Bytes;
use msgr::{Action, Config, Endpoint, Event, Policy, SockId};
use node::{Gate, Modes};
use rand::SeedableRng;
use std::collections::VecDeque;
use std::net::SocketAddr;
use types::{AddrVec, EntityAddr, EntityInst, EntityKind, EntityName, Errno, Mono, Now, Utime};

const NOW: Now = Now { mono: Mono(1), wall: Utime { sec: 1_000_000, nsec: 0 } };
const DIALLED: SockId = SockId(SockId::ACCEPTED);

/// What a monitor knows: one entity, and the secrets of the services.
struct Db {
    entity: EntityAuth,
    secrets: RotatingSecrets,
}

impl KeyStore for Db {
    fn entity(&self, _: &EntityName) -> Option<EntityAuth> {
        Some(self.entity.clone())
    }
    fn secrets(&self, _: EntityKind) -> Option<&RotatingSecrets> {
        Some(&self.secrets)
    }
}

fn addr(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn endpoint(kind: EntityKind, num: i64, port: u16) -> Endpoint {
    let addrs = AddrVec(vec![EntityAddr::msgr2(addr(port), 1)]);
    let mut config = Config::new(kind, num, addrs, 0x3f01_cfbd_fffd_ffff);
    config.accept = vec![(EntityKind::OSD, Policy::LosslessPeer)];
    Endpoint::new(config, port.into())
}

/// Somebody with `owner`'s tickets and an OSD, whom he tells that he is a `says` with number `num`.
struct Visit {
    tickets: CephxClient,
    secrets: RotatingSecrets,
    rng: ChaCha8Rng,
    visitor: Endpoint,
    osd: Endpoint,
    gate: Gate,
}

impl Visit {
    fn new(owner: &str, says: EntityKind, num: i64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        let name: EntityName = owner.parse().unwrap();
        let mut secrets = RotatingSecrets::default();
        secrets.rotate(NOW.wall, TicketPolicy::default().service_ttl, KeyKind::Aes, &mut rng);
        let caps = ["mon", "osd"].map(|service| (service.to_string(), "allow *".to_string())).into();
        let db = Db { entity: EntityAuth { key: CryptoKey::generate(KeyKind::Aes, NOW.wall, &mut rng), caps }, secrets: secrets.clone() };

        let mut tickets = CephxClient::new(name, db.entity.key.clone(), &[EntityKind::OSD]);
        let (mut mon, challenge) = MonAuth::begin(&tickets.begin(), || Some(4100), &mut rng).unwrap();
        let request = tickets.handle_more(&challenge, &mut rng).unwrap();
        let Reply::Done(granted) = mon.proceed(&request, mode::CRC, &db, &TicketPolicy::default(), NOW.wall, &mut rng) else {
            panic!("the monitor refuses {owner}");
        };
        tickets.handle_done(NOW.mono, granted.global_id, &granted.payload).unwrap();
        if let Some(request) = tickets.renewal(NOW.mono, &mut rng) {
            let reply = mon.handle_message(&request, &db, &TicketPolicy::default(), NOW.wall, &mut rng).unwrap();
            tickets.handle_reply(NOW.mono, &reply).unwrap();
        }
        let gate = Gate::new(EntityKind::OSD, Modes::default(), ChaCha8Rng::seed_from_u64(5));
        Visit { tickets, secrets, rng, visitor: endpoint(says, num, 7000), osd: endpoint(EntityKind::OSD, 0, 6800), gate }
    }

    /// Runs until nothing moves: what the visitor was refused with, and what the OSD was told beside authentication.
    fn run(&mut self) -> (Option<i32>, Vec<Event>) {
        let to = AddrVec(vec![EntityAddr::msgr2(addr(6800), 1)]);
        self.visitor.connect(NOW, EntityKind::OSD, &to, Policy::LosslessPeer);
        let (mut dialled, mut refused, mut heard) = (None, None, Vec::new());
        let authorizer = self.tickets.authorizer(EntityKind::OSD, &mut self.rng).unwrap();
        let mut pipes: [VecDeque<Bytes>; 2] = Default::default();
        loop {
            if let Some(action) = self.visitor.poll_action() {
                match action {
                    Action::Dial { sock, .. } => {
                        dialled = Some(sock);
                        self.osd.handle_accepted(NOW, DIALLED, addr(7001), addr(6800));
                        self.visitor.handle_connected(NOW, sock, addr(7001));
                    }
                    Action::Transmit { bufs, .. } => pipes[0].extend(bufs),
                    Action::Close { .. } => return (refused, heard),
                }
            } else if let Some(action) = self.osd.poll_action() {
                match action {
                    Action::Transmit { bufs, .. } => pipes[1].extend(bufs),
                    Action::Close { .. } => return (refused, heard),
                    other => panic!("{other:?}"),
                }
            } else if let Some(event) = self.visitor.poll_event() {
                match event {
                    Event::AuthStart { conn } => self.visitor.auth_request(conn, 2, vec![mode::CRC], authorizer.request(&mut self.rng)),
                    Event::AuthReplyMore { conn, payload } => {
                        self.visitor.auth_request_more(conn, authorizer.handle_more(&payload, &mut self.rng).unwrap());
                    }
                    Event::AuthDone { conn, payload, .. } => {
                        let keys = authorizer.handle_done(&payload).unwrap();
                        self.visitor.auth_client_done(conn, keys.session_key, keys.connection_secret);
                    }
                    Event::AuthBad { conn, result, .. } => {
                        refused = Some(result);
                        self.visitor.close(conn);
                    }
                    _ => {}
                }
            } else if let Some(event) = self.osd.poll_event() {
                heard.extend(self.gate.handle(&mut self.osd, Some(&self.secrets), event));
            } else if let Some(bytes) = pipes[0].pop_front() {
                self.osd.handle_bytes(NOW, DIALLED, bytes);
            } else if let Some(bytes) = pipes[1].pop_front() {
                self.visitor.handle_bytes(NOW, dialled.unwrap(), bytes);
            } else {
                return (refused, heard);
            }
        }
    }
}

/// Sessions between OSDs are found by what they say of themselves: only an OSD's ticket may say so.
#[test]
fn a_clients_ticket_is_not_good_for_an_osd() {
    let (refused, heard) = Visit::new("client.admin", EntityKind::OSD, 1).run();
    assert_eq!(refused, Some(Errno::EACCES.wire()));
    assert!(!heard.iter().any(|e| matches!(e, Event::Ready { .. })), "{heard:?}");
}

/// What is said to be secure is: who says that he is a daemon, and is none, is not let in either.
#[test]
fn where_clients_have_to_be_secure_nobody_is_without() {
    for (owner, says, gets_in) in [("client.admin", EntityKind::CLIENT, false), ("client.admin", EntityKind::MGR, false), ("osd.1", EntityKind::OSD, true)] {
        let mut visit = Visit::new(owner, says, 1);
        visit.gate.set_modes(Modes { clients: vec![mode::SECURE], ..Modes::default() });
        let (refused, heard) = visit.run();
        assert_eq!(refused, (!gets_in).then_some(Errno::EOPNOTSUPP.wire()), "{owner} as {says:?}");
        assert_eq!(heard.iter().any(|e| matches!(e, Event::Ready { .. })), gets_in);
    }
}

/// Who is refused takes his ticket for bad; the secrets that open it are on their way.
#[test]
fn a_ticket_under_a_newer_secret_is_not_refused_and_the_secret_is_wanted() {
    for (newer, wanted) in [(true, true), (false, false)] {
        let mut visit = Visit::new("client.admin", EntityKind::CLIENT, -1);
        visit.secrets.secrets = std::mem::take(&mut visit.secrets.secrets).into_iter().map(|(id, key)| (id + 10, key)).collect();
        visit.secrets.newest = if newer { 0 } else { visit.secrets.newest + 10 };
        let (refused, heard) = visit.run();
        assert_eq!((refused.is_some(), visit.gate.wants_secrets(), visit.gate.wants_secrets()), (!wanted, wanted, false));
        assert!(!heard.iter().any(|e| matches!(e, Event::Ready { .. })), "{heard:?}");
    }
}

#[test]
fn each_comes_in_as_what_his_ticket_says() {
    for (owner, kind, num) in [("client.admin", EntityKind::CLIENT, -1), ("osd.1", EntityKind::OSD, 1)] {
        let mut visit = Visit::new(owner, kind, num);
        let (refused, heard) = visit.run();
        assert_eq!(refused, None);
        let Some(Event::Ready { conn, peer }) = heard.first() else { panic!("{owner}: {heard:?}") };
        let visitor = visit.gate.visitor(*conn).unwrap();
        // But under the number that he gives: he may have been given another global id than he had when he sent something first.
        assert_eq!(visitor.inst(peer), EntityInst { kind, num });
        assert_ne!(visitor.global_id as i64, num);
        assert_eq!((visitor.name.to_string(), visitor.caps.as_str()), (owner.to_string(), "allow *"));
    }
}
