//! Every check of `client::check`, in both modes, in the pool `POOL` (`check` if unset).

use auth::{Keyring, mode};
use client::{Client, Handle, MonClientConfig, check};
use crate::net::Net;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use types::{AddrVec, EntityAddr, EntityName};

fn start(dir: &str, edit: impl FnOnce(&mut MonClientConfig)) -> (Client, Handle, Net) {
    let name: EntityName = "client.admin".parse().unwrap();
    let ring: Keyring = std::fs::read_to_string(format!("{dir}/keyring")).unwrap().parse().unwrap();
    let conf = std::fs::read_to_string(format!("{dir}/ceph.conf")).unwrap();
    let at = conf.find("v2:").expect("a v2 address of a monitor") + 3;
    let addr = conf[at..].split([',', ']', '\n', '/']).next().unwrap().parse().unwrap();
    let addrs = vec![AddrVec(vec![EntityAddr::msgr2(addr, 0)])];
    let mut config = MonClientConfig::new(name.clone(), ring.key(&name).unwrap().clone(), addrs);
    edit(&mut config);
    let net = Net::new();
    let seed = std::array::from_fn(|i| (net.now().wall.nsec >> (i % 4 * 8)) as u8 ^ i as u8);
    let (mut client, handle) = Client::new(config, net.now().wall.nsec, seed, Arc::new(|| {}));
    client.start(net.now());
    (client, handle, net)
}

/// Drives the client until the future is done.
fn run<T>(client: &mut Client, net: &mut Net, future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    let begin = Instant::now();
    loop {
        if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
            return out;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no answer");
        client.handle_calls(net.now());
        net.drive(client);
    }
}

#[test]
fn every_check_passes_in_both_modes() {
    let Ok(dir) = std::env::var("CLUSTER_DIR") else { return };
    let pool = std::env::var("POOL").unwrap_or("check".into());
    for modes in [vec![mode::CRC], vec![mode::SECURE]] {
        let (mut client, handle, mut net) = start(&dir, |config| {
            config.mon_modes = modes.clone();
            config.service_modes = modes.clone();
        });
        run(&mut client, &mut net, handle.connect()).unwrap();
        let io = match run(&mut client, &mut net, handle.pool(&pool)) {
            Ok(io) => io,
            Err(_) => {
                run(&mut client, &mut net, handle.create_pool(&pool)).unwrap();
                run(&mut client, &mut net, handle.pool(&pool)).unwrap()
            }
        };
        run(&mut client, &mut net, check::clean(&handle, &io)).unwrap();
        let only = std::env::var("CHECK").ok();
        let mut faults = Vec::new();
        for name in check::NAMES.iter().filter(|n| only.as_ref().is_none_or(|o| o == *n)) {
            eprintln!("{modes:?} {name}");
            if let Some(Err(fault)) = run(&mut client, &mut net, check::run(name, &handle, &io)) {
                faults.push(format!("{name}: {fault}"));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    }
}
