//! The monitor client.

use auth::{Keyring, mode};
use bytes::Bytes;
use client::{MonClient, MonClientConfig, MonClientEvent};
use msgr::{Config, Endpoint};
use crate::net::Net;
use std::time::{Duration, Instant};
use types::{AddrVec, EntityAddr, EntityKind, EntityName, Errno, features};

struct Client {
    net: Net,
    ep: Endpoint,
    mon: MonClient,
}

fn cluster() -> Option<String> {
    std::env::var("CLUSTER_DIR").ok()
}

fn mon_addrs(dir: &str) -> Vec<AddrVec> {
    let conf = std::fs::read_to_string(format!("{dir}/ceph.conf")).unwrap();
    let at = conf.find("v2:").expect("a v2 address of a monitor") + 3;
    let addr = conf[at..].split([',', ']', '\n', '/']).next().unwrap().parse().unwrap();
    vec![AddrVec(vec![EntityAddr::msgr2(addr, 0)])]
}

fn connect(dir: &str, name: &str, key: Option<&str>, edit: impl FnOnce(&mut MonClientConfig)) -> Client {
    let name: EntityName = name.parse().unwrap();
    let ring: Keyring = std::fs::read_to_string(format!("{dir}/keyring")).unwrap().parse().unwrap();
    let key = key.map(|k| k.parse().unwrap()).or_else(|| ring.key(&name).cloned()).expect("a key");
    let mut config = MonClientConfig::new(name, key, mon_addrs(dir));
    edit(&mut config);
    let kind = config.name.kind;
    let nonce = std::process::id();
    let ours = AddrVec(vec![EntityAddr { nonce, ..EntityAddr::default() }]);
    let mut ep = Endpoint::new(Config::new(kind, -1, ours, features::SUPPORTED), 7);
    let net = Net::new();
    let seed = std::array::from_fn(|i| (net.now().wall.nsec >> (i % 4 * 8)) as u8 ^ i as u8);
    let mut mon = MonClient::new(config, seed);
    mon.start(net.now(), &mut ep);
    Client { net, ep, mon }
}

impl Client {
    /// Runs until `done` says something of an event.
    fn until<T>(&mut self, mut done: impl FnMut(&MonClientEvent) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            self.net.act(&mut self.ep);
            while let Some(event) = self.ep.poll_event() {
                let now = self.net.now();
                if let Some(event) = self.mon.handle_event(now, &mut self.ep, event) {
                    eprintln!("not the monitor's: {event:?}");
                }
            }
            while let Some(event) = self.mon.poll_event() {
                if let Some(out) = done(&event) {
                    self.net.act(&mut self.ep);
                    return out;
                }
            }
            assert!(begin.elapsed() < Duration::from_secs(20), "nothing happened");
            self.net.act(&mut self.ep);
            let deadline = [self.mon.next_timeout(), self.ep.next_timeout()].into_iter().flatten().min();
            self.net.wait(&mut self.ep, deadline);
            let now = self.net.now();
            self.ep.handle_timeout(now);
            self.mon.handle_timeout(now, &mut self.ep);
        }
    }

    fn command(&mut self, json: &str) -> (i32, String, Bytes) {
        let now = self.net.now();
        let mine = self.mon.command(now, &mut self.ep, json.to_owned(), Bytes::new());
        self.until(|event| match event {
            MonClientEvent::CommandReply { tid, result, status, output } if *tid == mine => {
                Some((*result, status.clone(), output.clone()))
            }
            _ => None,
        })
    }
}

#[test]
fn maps_versions_and_commands_in_both_modes() {
    let Some(dir) = cluster() else { return };
    for modes in [vec![mode::CRC], vec![mode::SECURE], vec![mode::SECURE, mode::CRC]] {
        let mut c = connect(&dir, "client.admin", None, |config| config.mon_modes = modes);
        let now = c.net.now();
        c.mon.subscribe(now, &mut c.ep, "osdmap", 0, true);
        c.mon.subscribe(now, &mut c.ep, "mgrmap", 0, false);
        let (mut mon, mut osd, mut mgr, mut config) = (false, false, false, false);
        c.until(|event| {
            match event {
                MonClientEvent::MonMap(m) => mon = m.mon_info.len() == 1,
                MonClientEvent::OsdMap(m) => {
                    let full = m.full.values().next().expect("a full map");
                    let map: types::map::OsdMap = denc::from_slice(full).unwrap();
                    assert!(map.crc.is_some());
                    osd = true;
                }
                MonClientEvent::MgrMap(m) => mgr = !m.active_name.is_empty(),
                MonClientEvent::Config(_) => config = true,
                _ => {}
            }
            (mon && osd && mgr && config).then_some(())
        });
        assert!(c.mon.global_id() > 0);
        let now = c.net.now();
        let mine = c.mon.get_version(now, &mut c.ep, "osdmap");
        let version = c.until(|event| match event {
            MonClientEvent::Version { handle, version, .. } if *handle == mine => Some(*version),
            _ => None,
        });
        assert!(version > 0);
        let (result, _, output) = c.command(r#"{"prefix": "fsid"}"#);
        assert_eq!((result, output.trim_ascii().len()), (0, 36));
        let (result, status, _) = c.command(r#"{"prefix": "no such command"}"#);
        assert_eq!((result, status.as_str()), (-22, "command not known"));
    }
}

#[test]
fn wrong_keys_and_unknown_names_are_refused_as_eacces() {
    let Some(dir) = cluster() else { return };
    for name in ["client.admin", "client.nobody"] {
        let wrong = "AQCoiQBr6K7mARAAo2Vn/C6GJPUEn22yFX0T/w==";
        let mut c = connect(&dir, name, Some(wrong), |_| {});
        let errno = c.until(|event| match event {
            MonClientEvent::AuthFailed { errno } => Some(*errno),
            _ => None,
        });
        assert_eq!(errno, Errno::EACCES);
    }
}

#[test]
fn a_daemon_gets_the_rotating_secrets_and_renews_its_tickets() {
    let Some(dir) = cluster() else { return };
    let mut admin = connect(&dir, "client.admin", None, |_| {});
    let (result, _, key) = admin.command(r#"{"prefix": "auth get-or-create-key", "entity": "osd.77", "caps": ["mon", "allow profile osd", "osd", "allow *"]}"#);
    assert_eq!(result, 0);
    let key = String::from_utf8(key.to_vec()).unwrap();
    let mut c = connect(&dir, "osd.77", Some(&key), |_| {});
    let secrets = c.until(|event| match event {
        MonClientEvent::RotatingSecrets(s) => Some(s.clone()),
        _ => None,
    });
    assert_eq!(secrets.secrets.len(), 3);
    admin.command(r#"{"prefix": "auth rm", "entity": "osd.77"}"#);
}

#[test]
fn the_manager_accepts_our_authorizer() {
    let Some(dir) = cluster() else { return };
    let mut c = connect(&dir, "client.admin", None, |_| {});
    let now = c.net.now();
    c.mon.subscribe(now, &mut c.ep, "mgrmap", 0, false);
    let addrs = c.until(|event| match event {
        MonClientEvent::MgrMap(m) if m.available => Some(m.active_addrs.clone()),
        _ => None,
    });
    let now = c.net.now();
    let conn = c.mon.dial_service(now, &mut c.ep, EntityKind::MGR, &addrs, msgr::Policy::LossyClient);
    let begin = Instant::now();
    loop {
        assert!(begin.elapsed() < Duration::from_secs(10));
        c.net.act(&mut c.ep);
        c.net.wait(&mut c.ep, None);
        while let Some(event) = c.ep.poll_event() {
            let now = c.net.now();
            match c.mon.handle_event(now, &mut c.ep, event) {
                Some(msgr::Event::Ready { conn: ready, peer }) => {
                    assert_eq!((ready, peer.mode), (conn, mode::SECURE));
                    return;
                }
                Some(other) => panic!("{other:?}"),
                None => {}
            }
        }
    }
}
