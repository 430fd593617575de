//! cephx payloads: at a monitor, at a daemon, at a client.

use auth::cephx::{CephxClient, KeyStore, MonAuth, RotatingSecrets, ServiceAuth, TicketPolicy};
use auth::{ChaCha8Rng, CryptoKey, EntityAuth, KeyKind};
use bytes::Bytes;
use rand::SeedableRng;
use types::{EntityKind, EntityName, Mono, Utime};

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(1)
}

fn key() -> CryptoKey {
    CryptoKey::generate(KeyKind::Aes, Utime::ZERO, &mut rng())
}

fn admin() -> EntityName {
    EntityName::new(EntityKind::CLIENT, "admin")
}

struct Keys(RotatingSecrets);

impl Keys {
    fn new() -> Self {
        let mut secrets = RotatingSecrets::default();
        secrets.rotate(Utime::ZERO, std::time::Duration::from_secs(3600), KeyKind::Aes, &mut rng());
        Keys(secrets)
    }
}
impl KeyStore for Keys {
    fn entity(&self, name: &EntityName) -> Option<EntityAuth> {
        let caps = ["mon", "osd", "mgr"].map(|s| (s.to_owned(), "allow *".to_owned()));
        (*name == admin()).then(|| EntityAuth { key: key(), caps: caps.into_iter().collect() })
    }
    fn secrets(&self, _service: EntityKind) -> Option<&RotatingSecrets> {
        Some(&self.0)
    }
}

/// Two payloads: u8 length of the first, the first, the second.
fn two(data: &[u8]) -> [Bytes; 2] {
    let (&n, rest) = data.split_first().unwrap_or((&0, &[]));
    let (a, b) = rest.split_at(usize::from(n).min(rest.len()));
    [a, b].map(Bytes::copy_from_slice)
}

fn joined(a: &[u8], b: &[u8]) -> Vec<u8> {
    [&[a.len() as u8], a, b].concat()
}

pub fn mon_server(data: &[u8]) {
    let ([first, more], keys, policy) = (two(data), Keys::new(), TicketPolicy::default());
    let Ok((mut server, _)) = MonAuth::begin(&first, || Some(4000), &mut rng()) else { return };
    server.proceed(&more, 2, &keys, &policy, Utime::ZERO, &mut rng());
    let _ = server.handle_message(&more, &keys, &policy, Utime::ZERO, &mut rng());
}

pub fn server_seeds() -> Vec<Vec<u8>> {
    let mut client = CephxClient::new(admin(), key(), &[EntityKind::OSD, EntityKind::MGR]);
    let first = client.begin();
    let Ok((_, challenge)) = MonAuth::begin(&first, || Some(4000), &mut rng()) else { return Vec::new() };
    let more = client.handle_more(&challenge, &mut rng()).unwrap_or_default();
    vec![joined(&first, &more), joined(&first, &client.rotating_request())]
}

pub fn service(data: &[u8]) {
    let mut service = ServiceAuth::new(EntityKind::OSD);
    for payload in two(data) {
        service.handle(&payload, 2, |_| Some(key()), &mut rng());
    }
}

pub fn service_seeds() -> Vec<Vec<u8>> {
    vec![joined(&[1; 60], &[1; 120])]
}

pub fn client(data: &[u8]) {
    let mut client = CephxClient::new(admin(), key(), &[EntityKind::OSD]);
    client.begin();
    let [challenge, done] = two(data);
    let _ = client.handle_more(&challenge, &mut rng());
    let _ = client.handle_done(Mono(1), 4000, &done);
    let _ = client.handle_reply(Mono(1), &done);
}

pub fn client_seeds() -> Vec<Vec<u8>> {
    let (mut client, keys, policy) =
        (CephxClient::new(admin(), key(), &[EntityKind::OSD]), Keys::new(), TicketPolicy::default());
    let first = client.begin();
    let Ok((mut server, challenge)) = MonAuth::begin(&first, || Some(4000), &mut rng()) else { return Vec::new() };
    let more = client.handle_more(&challenge, &mut rng()).unwrap_or_default();
    match server.proceed(&more, 2, &keys, &policy, Utime::ZERO, &mut rng()) {
        auth::cephx::Reply::Done(granted) => vec![joined(&challenge, &granted.payload)],
        _ => vec![joined(&challenge, &[])],
    }
}
