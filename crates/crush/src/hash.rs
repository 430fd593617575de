//! The hashes placement is built on: Jenkins' mix over one to five words, and over an object's name.
//!
//! Holds: results never change; every object's place depends on them.
//! Upstream: src/crush/hash.c, src/common/ceph_hash.cc; the mix is Bob Jenkins' evahash (public domain).

/// The only hash a bucket can name (`CRUSH_HASH_RJENKINS1`); any other number hashes everything to 0.
pub const RJENKINS1: u8 = 0;

const SEED: u32 = 1_315_423_911;
const X: u32 = 231_232;
const Y: u32 = 1_232;

#[inline(always)]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    #[inline(always)]
    fn left(into: &mut u32, p: u32, q: u32, by: u32) {
        *into = into.wrapping_sub(p).wrapping_sub(q) ^ (q << by);
    }
    #[inline(always)]
    fn right(into: &mut u32, p: u32, q: u32, by: u32) {
        *into = into.wrapping_sub(p).wrapping_sub(q) ^ (q >> by);
    }
    right(a, *b, *c, 13);
    left(b, *c, *a, 8);
    right(c, *a, *b, 13);
    right(a, *b, *c, 12);
    left(b, *c, *a, 16);
    right(c, *a, *b, 5);
    right(a, *b, *c, 3);
    left(b, *c, *a, 10);
    right(c, *a, *b, 15);
}

/// One word hashed.
pub fn rjenkins1_1(a: u32) -> u32 {
    let (mut a, mut b, mut x, mut y, mut h) = (a, a, X, Y, SEED ^ a);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    h
}

/// Two words hashed.
pub fn rjenkins1_2(a: u32, b: u32) -> u32 {
    let (mut a, mut b, mut x, mut y, mut h) = (a, b, X, Y, SEED ^ a ^ b);
    mix(&mut a, &mut b, &mut h);
    mix(&mut x, &mut a, &mut h);
    mix(&mut b, &mut y, &mut h);
    h
}

/// Three words hashed.
pub fn rjenkins1_3(a: u32, b: u32, c: u32) -> u32 {
    let (mut a, mut b, mut c, mut x, mut y, mut h) = (a, b, c, X, Y, SEED ^ a ^ b ^ c);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    h
}

/// Four words hashed.
pub fn rjenkins1_4(a: u32, b: u32, c: u32, d: u32) -> u32 {
    let (mut a, mut b, mut c, mut d, mut x, mut y, mut h) = (a, b, c, d, X, Y, SEED ^ a ^ b ^ c ^ d);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut a, &mut x, &mut h);
    mix(&mut y, &mut b, &mut h);
    mix(&mut c, &mut x, &mut h);
    mix(&mut y, &mut d, &mut h);
    h
}

/// Five words hashed.
pub fn rjenkins1_5(a: u32, b: u32, c: u32, d: u32, e: u32) -> u32 {
    let (mut a, mut b, mut c, mut d, mut e) = (a, b, c, d, e);
    let (mut x, mut y, mut h) = (X, Y, SEED ^ a ^ b ^ c ^ d ^ e);
    mix(&mut a, &mut b, &mut h);
    mix(&mut c, &mut d, &mut h);
    mix(&mut e, &mut x, &mut h);
    mix(&mut y, &mut a, &mut h);
    mix(&mut b, &mut x, &mut h);
    mix(&mut y, &mut c, &mut h);
    mix(&mut d, &mut x, &mut h);
    mix(&mut y, &mut e, &mut h);
    h
}

/// A name hashed (`CEPH_STR_HASH_RJENKINS`, number 2): what pools use.
pub fn str_hash_rjenkins(name: &[u8]) -> u32 {
    let word = |part: &[u8]| part.iter().rev().fold(0u32, |w, &byte| w << 8 | u32::from(byte));
    let (mut a, mut b, mut c) = (0x9e37_79b9u32, 0x9e37_79b9u32, 0u32);
    let mut blocks = name.chunks_exact(12);
    for block in &mut blocks {
        let (head, last) = block.split_at(8);
        let (first, second) = head.split_at(4);
        a = a.wrapping_add(word(first));
        b = b.wrapping_add(word(second));
        c = c.wrapping_add(word(last));
        mix(&mut a, &mut b, &mut c);
    }
    let tail = blocks.remainder();
    let (first, rest) = tail.split_at(tail.len().min(4));
    let (second, last) = rest.split_at(rest.len().min(4));
    a = a.wrapping_add(word(first));
    b = b.wrapping_add(word(second));
    // The lowest byte of the last word holds the length instead of a byte of the name.
    c = c.wrapping_add(name.len() as u32).wrapping_add(word(last) << 8);
    mix(&mut a, &mut b, &mut c);
    c
}

/// A name hashed as Linux's dcache once did (`CEPH_STR_HASH_LINUX`, number 1): pools of very old clusters.
pub fn str_hash_linux(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |h, &byte| {
        let c = u32::from(byte);
        h.wrapping_add(c << 4).wrapping_add(c >> 4).wrapping_mul(11)
    })
}

/// A name hashed by the method a pool names in `object_hash`; unknown methods give all ones, as stock's do.
pub fn str_hash(method: u8, name: &[u8]) -> u32 {
    match method {
        1 => str_hash_linux(name),
        2 => str_hash_rjenkins(name),
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hash_as_stock_clusters_place_them() {
        // `ceph osd map` of a stock cluster: the raw placement seed it prints for a name.
        assert_eq!(str_hash_rjenkins(b"foo"), 0x7fc1_f406);
        assert_eq!(str_hash_rjenkins(b""), 0xbd49_d10d);
    }
}
