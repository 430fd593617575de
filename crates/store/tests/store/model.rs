//! Random transactions against a model: what was written is what is read, with everything in flight at once.

use crate::harness::*;
use rand::Rng;
use rand::seq::IndexedRandom;
use store::*;

fn run(seed: u64, txns: usize) {
    let rng = &mut rng(seed);
    let disk = Driver::format(64 << 20);
    let mut d = Driver::mount(&disk, tight_config(rng));
    d.bulk_every = 3;
    create_colls(&mut d, rng);
    let free = d.store.statfs().available;
    let mut models = [Model::default(), Model::default()];
    for _ in 0..txns {
        let which = rng.random_range(0..2);
        let (coll, model) = (COLLS[which], &mut models[which]);
        let t = random_txn(rng, coll, model);
        model.apply(&t);
        let objects = touched(&t);
        if rng.random_bool(0.2) { d.submit_placed(rng, t) } else { d.submit(t) }.unwrap();
        objects.iter().for_each(|o| model.check_meta(&mut d, coll, o));
        for _ in 0..rng.random_range(0..4) {
            d.step(rng);
        }
        if rng.random_bool(0.1) {
            d.store.set_policies(random_policy(rng), [(coll.pg.pool, random_policy(rng))].into());
        }
        if rng.random_bool(0.05) {
            model.check_listing(&mut d, coll, 2);
        }
        if rng.random_bool(0.03) {
            d.run(rng);
            let name = object(coll, rng.random_range(0..6));
            if let Some(o) = model.objects.get(&name) {
                check_part(&mut d, rng, coll, &name, &o.data);
            }
        }
    }
    d.run(rng);
    for (coll, model) in COLLS.into_iter().zip(&models) {
        model.check_all(&mut d, rng, coll);
    }
    let stored: u64 = models.iter().flat_map(|m| m.objects.values()).map(|o| o.data.len() as u64).sum();
    assert!(d.store.statfs().stored <= stored);
    assert_eq!(d.checksum_errors, 0);
    assert_eq!(d.fsck().errors, []);

    // Again from the disk.
    let allocated = d.store.statfs();
    let compressed = d.store.compressed().clone();
    let mut d = Driver::mount(&disk, tight_config(rng));
    d.bulk_every = 3;
    assert_eq!((d.store.statfs().stored, d.store.statfs().allocated, d.store.compressed()), (allocated.stored, allocated.allocated, &compressed));
    assert!(allocated.compressed.stored <= allocated.compressed.allocated && allocated.compressed.allocated <= allocated.compressed.original);
    for (coll, model) in COLLS.into_iter().zip(&models) {
        model.check_all(&mut d, rng, coll);
    }

    // Everything removed gives everything back.
    for (coll, model) in COLLS.into_iter().zip(&models) {
        for name in model.objects.keys() {
            let mut t = Transaction::new(coll);
            t.remove(name);
            d.commit(rng, t);
        }
        let mut t = Transaction::new(coll);
        t.remove_coll();
        d.commit(rng, t);
    }
    d.store.write_deferred();
    d.run(rng);
    d.store.write_deferred();
    d.run(rng);
    assert_eq!(d.store.statfs().available, free);
    assert_eq!((d.store.statfs().stored, d.store.compressed().len()), (0, 0));
    let report = d.fsck();
    assert_eq!((report.errors.len(), report.objects, report.blocks, report.omap_keys), (0, 0, 0, 0));
}

fn check_part(d: &mut Driver, rng: &mut rand_chacha::ChaCha8Rng, coll: types::ShardPgId, name: &types::HObject, data: &[u8]) {
    let off = rng.random_range(0..=data.len() + 10);
    let len = *[1, 100, 4096, 70_000].choose(rng).unwrap();
    let flags = ReadFlags { sparse: rng.random(), nocache: rng.random(), bypass: rng.random(), ..ReadFlags::default() };
    let got = d.read(rng, coll, name, off as u64, len as u64, flags).unwrap();
    let want = &data[off.min(data.len())..(off + len).min(data.len())];
    let mut whole = vec![0; want.len()];
    let bytes = got.data.contiguous();
    let (crc, block_crcs) = (denc::crc32c(&bytes), bytes.chunks_exact(4096).map(denc::crc32c).collect::<Vec<_>>());
    assert!(got.data.crc().is_none_or(|known| known == crc) && block_crcs.starts_with(got.data.block_crcs()), "{name:?} {off} {len}: other checksums than of what was read");
    let mut at = 0;
    for (o, l) in got.extents {
        let (o, l) = (o as usize - off, l as usize);
        whole[o..o + l].copy_from_slice(&bytes[at..at + l]);
        at += l;
    }
    assert_eq!(at, bytes.len());
    assert!(whole == want, "{name:?} {off} {len}");
    check_digest(d, rng, coll, name, data, off / 4096 * 4096, len.next_multiple_of(4096));
}

/// The checksum of a range is that of its bytes, whether blocks were read for it or not.
fn check_digest(d: &mut Driver, rng: &mut rand_chacha::ChaCha8Rng, coll: types::ShardPgId, name: &types::HObject, data: &[u8], off: usize, len: usize) {
    let trust = rng.random::<bool>().then_some(Trust { now: d.now.mono, age_s: 9 });
    let flags = ReadFlags { digest: true, bypass: rng.random(), trust, ..ReadFlags::default() };
    let got = d.read(rng, coll, name, off as u64, len as u64, flags).unwrap();
    let want = &data[off.min(data.len())..(off + len).min(data.len())];
    assert_eq!((got.digest.crc, got.extents.first().map_or(0, |e| e.1)), (denc::crc32c(want), want.len() as u64), "{name:?} {off} {len}");
    assert!(got.data.is_empty() && (flags.trust.is_some() || got.digest.trusted == 0));
}

#[test]
fn random_transactions_match_the_model() {
    for seed in 0..12 {
        eprintln!("seed {seed}");
        run(seed, 150);
    }
}
