//! The code itself: parity from data, parity's change from data's change, and any chunk from any k others.

use crate::gf::{invert, mul};
use crate::isal::Tables;
use crate::matrix::{Technique, parity_rows};
use std::sync::Arc;

/// A systematic code: chunks 0 to k-1 are the data, k to k+m-1 the parity. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Code {
    k: usize,
    /// Parity's coefficients, one row for each parity chunk.
    rows: Arc<[Vec<u8>]>,
    encode: Tables,
}

/// Fewer chunks than it takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{have} chunks are there, {need} are needed")]
pub struct TooFew {
    /// How many different ones there are.
    pub have: usize,
    /// The code's k.
    pub need: usize,
}

impl Code {
    /// The code of `technique` with `k` chunks of data and `m` of parity.
    ///
    /// # Panics
    /// If not `1 <= k`, `1 <= m`, `k + m <= 32`.
    pub fn new(technique: Technique, k: usize, m: usize) -> Code {
        let rows = parity_rows(technique, k, m);
        Code { k, encode: Tables::new(&rows), rows: rows.into() }
    }

    /// Chunks of data.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Chunks of parity.
    pub fn m(&self) -> usize {
        self.rows.len()
    }

    /// Fills the `m` chunks of parity from the `k` of data. What parity held before does not matter.
    ///
    /// # Panics
    /// If there are not `k` and `m` slices, all equally long.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        self.encode.apply(data, parity);
    }

    /// Changes the `m` chunks of parity as a change of data chunk `chunk` by `delta` (old xor new) changes them. On zeros
    /// it gives parity's own delta.
    ///
    /// # Panics
    /// If `chunk` is not below `k`, or `delta` and the `m` slices are not all equally long.
    pub fn update(&self, chunk: usize, delta: &[u8], parity: &mut [&mut [u8]]) {
        self.encode.add(chunk, delta, parity);
    }

    /// The chunks `want`, in that order, from those in `have`: pairs of number and bytes, equally long, twice the same is
    /// as good as once. Of more than `k` it reads data first, then the lowest parity.
    ///
    /// # Errors
    /// [`TooFew`] if fewer than `k` different ones are there, even if all that is wanted is among them.
    ///
    /// # Panics
    /// If a number is not below k + m, or lengths differ.
    pub fn rebuild(&self, have: &[(usize, &[u8])], want: &[usize]) -> Result<Vec<Vec<u8>>, TooFew> {
        let mut made = vec![vec![0; have.first().map_or(0, |(_, bytes)| bytes.len())]; want.len()];
        let mut to: Vec<(usize, &mut [u8])> = want.iter().copied().zip(made.iter_mut().map(Vec::as_mut_slice)).collect();
        self.rebuild_into(have, &mut to)?;
        Ok(made)
    }

    /// Like [`Code::rebuild`], into buffers that are there: new memory of a megabyte costs more than the arithmetic.
    ///
    /// # Errors
    /// [`TooFew`], and nothing is written.
    ///
    /// # Panics
    /// As [`Code::rebuild`] does.
    pub fn rebuild_into(&self, have: &[(usize, &[u8])], want: &mut [(usize, &mut [u8])]) -> Result<(), TooFew> {
        let mut present: Vec<Option<&[u8]>> = vec![None; self.k + self.m()];
        have.iter().for_each(|&(shard, bytes)| present[shard] = Some(bytes));
        let (sources, from): (Vec<usize>, Vec<&[u8]>) =
            present.iter().enumerate().filter_map(|(shard, bytes)| Some((shard, (*bytes)?))).take(self.k).unzip();
        if sources.len() < self.k {
            return Err(TooFew { have: sources.len(), need: self.k });
        }
        let (mut lost, mut to): (Vec<usize>, Vec<&mut [u8]>) = (Vec::new(), Vec::new());
        for (shard, into) in want {
            match present[*shard] {
                Some(bytes) => into.copy_from_slice(bytes),
                None => {
                    lost.push(*shard);
                    to.push(into);
                }
            }
        }
        if !lost.is_empty() {
            let data = self.data_rows(&sources);
            let rows: Vec<Vec<u8>> = lost.iter().map(|&shard| self.row(shard, &data)).collect();
            Tables::new(&rows).apply(&from, &mut to);
        }
        Ok(())
    }

    /// How each chunk of data is made of `sources`, data first: one of them as it is; the lost ones solve the equations of
    /// as many parity chunks, which is all there is to invert.
    fn data_rows(&self, sources: &[usize]) -> Vec<Vec<u8>> {
        let unit = |at: usize| (0..self.k).map(|s| u8::from(s == at)).collect::<Vec<u8>>();
        let lost: Vec<usize> = (0..self.k).filter(|d| !sources.contains(d)).collect();
        let kept = self.k - lost.len();
        let parity: Vec<&Vec<u8>> = sources[kept..].iter().map(|&s| &self.rows[s - self.k]).collect();
        let equations = parity.iter().map(|row| lost.iter().map(|&d| row[d]).collect()).collect();
        let solved = invert(equations).expect("a code that survives every loss of m chunks");
        let solution = |of: &Vec<u8>| {
            // What of a parity chunk the lost data makes: the chunk itself, and what the data that is there adds to it.
            let of_kept = |s: &usize| of.iter().zip(&parity).fold(0, |sum, (&c, row)| sum ^ mul(c, row[*s]));
            sources[..kept].iter().map(of_kept).chain(of.iter().copied()).collect()
        };
        let mut solutions = solved.iter().map(solution);
        let place = |d: usize| sources[..kept].iter().position(|&s| s == d);
        (0..self.k).map(|d| place(d).map_or_else(|| solutions.next().expect("one for each that is lost"), unit)).collect()
    }

    /// How `shard` is made of the sources, given how data is.
    fn row(&self, shard: usize, data: &[Vec<u8>]) -> Vec<u8> {
        let Some(parity) = shard.checked_sub(self.k) else {
            return data[shard].clone();
        };
        let sum = |s: usize| self.rows[parity].iter().zip(data).fold(0, |sum, (&c, row)| sum ^ mul(c, row[s]));
        (0..self.k).map(sum).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const TECHNIQUES: [Technique; 2] = [Technique::Vandermonde, Technique::Cauchy];
    /// Around the sizes at which ISA-L goes over to other code.
    const LENGTHS: [usize; 12] = [0, 1, 7, 15, 16, 31, 33, 63, 64, 65, 129, 4099];

    fn random(rng: &mut ChaCha8Rng, n: usize, len: usize) -> Vec<Vec<u8>> {
        (0..n).map(|_| (0..len).map(|_| rng.random()).collect()).collect()
    }

    /// Parity by the matrix alone, without the library.
    fn plainly(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let byte = |row: &Vec<u8>, at: usize| row.iter().zip(data).fold(0, |sum, (&c, chunk)| sum ^ mul(c, chunk[at]));
        code.rows.iter().map(|row| (0..data[0].len()).map(|at| byte(row, at)).collect()).collect()
    }

    fn encoded(code: &Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut parity = vec![vec![0xee; data[0].len()]; code.m()];
        let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
        parity
    }

    /// Every k and m up to 8 + 3, and some beyond.
    fn sizes() -> impl Iterator<Item = (usize, usize)> {
        let small = (1..=8).flat_map(|k| (1..=3).map(move |m| (k, m)));
        small.chain([(10, 4), (21, 4), (22, 4), (5, 5), (6, 7), (28, 4), (16, 16), (1, 31), (31, 1)])
    }

    #[test]
    fn parity_is_what_the_matrix_says_at_every_length() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        for ((k, m), technique) in sizes().flat_map(|s| TECHNIQUES.map(|t| (s, t))) {
            let code = Code::new(technique, k, m);
            for len in LENGTHS {
                let data = random(&mut rng, k, len);
                assert_eq!(encoded(&code, &data), plainly(&code, &data), "{technique:?} {k}+{m}, {len} bytes");
            }
        }
    }

    #[test]
    fn one_parity_chunk_is_the_exclusive_or() {
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        for (k, technique) in (1..=31).flat_map(|k| TECHNIQUES.map(|t| (k, t))) {
            let data = random(&mut rng, k, 77);
            let xor: Vec<u8> = (0..77).map(|at| data.iter().fold(0, |sum, chunk| sum ^ chunk[at])).collect();
            assert_eq!(encoded(&Code::new(technique, k, 1), &data), [xor]);
        }
    }

    /// Loses the chunks of `pattern` (bits) and wants all back.
    fn survives(code: &Code, whole: &[Vec<u8>], pattern: u32) {
        let lost = |s: &usize| pattern >> s & 1 == 1;
        let have: Vec<(usize, &[u8])> = (0..whole.len()).filter(|s| !lost(s)).map(|s| (s, whole[s].as_slice())).collect();
        let want: Vec<usize> = (0..whole.len()).rev().filter(lost).collect();
        let got = code.rebuild(&have, &want).unwrap();
        for (shard, bytes) in want.iter().zip(got) {
            assert_eq!(bytes, whole[*shard], "chunk {shard} of {}+{}, lost {pattern:#b}", code.k(), code.m());
        }
    }

    #[test]
    fn every_loss_of_up_to_m_chunks_is_made_good() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        for ((k, m), technique) in (1..=8).flat_map(|k| (1..=3).map(move |m| (k, m))).flat_map(|s| TECHNIQUES.map(|t| (s, t))) {
            let code = Code::new(technique, k, m);
            let len = rng.random_range(0..120) * 2 + 1;
            let mut whole = random(&mut rng, k, len);
            whole.extend(encoded(&code, &whole));
            (0u32..1 << (k + m)).filter(|p| p.count_ones() as usize <= m).for_each(|p| survives(&code, &whole, p));
        }
    }

    #[test]
    fn large_codes_survive_random_losses() {
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for ((k, m), technique) in sizes().filter(|&(k, m)| k > 8 || m > 3).flat_map(|s| TECHNIQUES.map(|t| (s, t))) {
            let code = Code::new(technique, k, m);
            let mut whole = random(&mut rng, k, 65);
            whole.extend(encoded(&code, &whole));
            for _ in 0..200 {
                let mut pattern = 0u32;
                while (pattern.count_ones() as usize) < m {
                    pattern |= 1 << rng.random_range(0..k + m);
                }
                survives(&code, &whole, pattern);
            }
        }
    }

    #[test]
    fn an_update_gives_what_encoding_anew_gives() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        for ((k, m), technique) in sizes().flat_map(|s| TECHNIQUES.map(|t| (s, t))) {
            let code = Code::new(technique, k, m);
            for len in LENGTHS {
                let mut data = random(&mut rng, k, len);
                let mut parity = encoded(&code, &data);
                let (chunk, new) = (rng.random_range(0..k), random(&mut rng, 1, len).remove(0));
                let delta: Vec<u8> = data[chunk].iter().zip(&new).map(|(a, b)| a ^ b).collect();
                data[chunk] = new;
                code.update(chunk, &delta, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
                assert_eq!(parity, encoded(&code, &data), "{technique:?} {k}+{m}, chunk {chunk}, {len} bytes");
            }
        }
    }

    #[test]
    fn whoever_has_too_few_is_told_so_and_more_than_enough_does_no_harm() {
        let code = Code::new(Technique::Vandermonde, 3, 2);
        let whole: Vec<Vec<u8>> = vec![vec![1; 5], vec![2; 5], vec![4; 5]];
        let parity = encoded(&code, &whole);
        let have = [(0, &whole[0][..]), (4, &parity[1][..]), (0, &whole[0][..])];
        assert_eq!(code.rebuild(&have, &[1]), Err(TooFew { have: 2, need: 3 }));
        let have = [(4, &parity[1][..]), (3, &parity[0][..]), (2, &whole[2][..]), (0, &whole[0][..])];
        let got = code.rebuild(&have, &[1, 4, 0, 1]).unwrap();
        assert_eq!(got, [whole[1].clone(), parity[1].clone(), whole[0].clone(), whole[1].clone()]);
    }
}
