//! Which parity: the coefficients of a code. They are a format: what is on disks was made with them.

use crate::MAX_CHUNKS;
use crate::gf::{inverse, mul, power};

/// How parity is made of data.
///
/// Every chunk is ours alone: neither technique has to be, and `Cauchy` is not, the layout that a plugin of Ceph's
/// of that name gives its chunks. What a name stands for with operators is in [`Profile::parse`](crate::Profile::parse).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Technique {
    /// ISA-L's: powers of 2, 4, 8 ... below a row of ones. Not every `k + m` of them can lose any `m` ([`is_mds`]);
    /// those that cannot get the matrix of `Cauchy`.
    Vandermonde,
    /// A Cauchy matrix, its columns scaled so that the first row is ones.
    Cauchy,
}

/// Whether ISA-L's Vandermonde matrix survives every loss of `m` of `k + m` chunks: the limits that the plugin `isa` has.
pub fn is_mds(k: usize, m: usize) -> bool {
    m <= 3 || (m == 4 && k <= 21)
}

/// The rows of parity: `m` of them with `k` coefficients each. The first is ones for every technique, so one parity
/// chunk is always the exclusive or of the data.
///
/// # Panics
/// If not `1 <= k`, `1 <= m`, `k + m <= 32`.
pub(crate) fn parity_rows(technique: Technique, k: usize, m: usize) -> Vec<Vec<u8>> {
    assert!(k >= 1 && m >= 1 && k + m <= MAX_CHUNKS, "no code of {k}+{m}");
    match technique {
        Technique::Vandermonde if is_mds(k, m) => vandermonde(k, m),
        Technique::Vandermonde | Technique::Cauchy => cauchy(k, m),
    }
}

fn vandermonde(k: usize, m: usize) -> Vec<Vec<u8>> {
    (0..m).map(|row| (0..k).map(|column| power(power(2, row), column)).collect()).collect()
}

/// 1 / (row + column) with rows numbered from `k`, each column divided by its first number: that keeps every minor's
/// being 0 or not as it is.
fn cauchy(k: usize, m: usize) -> Vec<Vec<u8>> {
    let at = |row: usize, column: usize| inverse((k + row) as u8 ^ column as u8);
    (0..m).map(|row| (0..k).map(|column| mul(at(row, column), inverse(at(0, column)))).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gf::invert;

    /// All choices of `n` of `0..of`.
    fn choices(of: usize, n: usize) -> Vec<Vec<usize>> {
        (0u32..1 << of).filter(|bits| bits.count_ones() as usize == n).map(|bits| (0..of).filter(|i| bits >> i & 1 == 1).collect()).collect()
    }

    /// A systematic code survives every loss if every square part of its parity rows has an inverse.
    fn every_minor_is_invertible(rows: &[Vec<u8>]) -> bool {
        let (m, k) = (rows.len(), rows[0].len());
        (1..=m.min(k)).all(|n| {
            let columns = choices(k, n);
            choices(m, n).iter().all(|chosen| {
                let part = |columns: &Vec<usize>| chosen.iter().map(|&r| columns.iter().map(|&c| rows[r][c]).collect()).collect();
                columns.iter().all(|columns| invert(part(columns)).is_some())
            })
        })
    }

    #[test]
    fn vandermonde_is_mds_exactly_as_far_as_it_is_used() {
        for (k, m) in [(29, 3), (21, 4)] {
            assert!(every_minor_is_invertible(&vandermonde(k, m)), "{k}+{m}");
        }
        assert!(!every_minor_is_invertible(&vandermonde(22, 4)));
        assert!(!every_minor_is_invertible(&vandermonde(6, 5)));
    }

    #[test]
    fn cauchy_is_mds() {
        for (k, m) in [(28, 4), (21, 4), (22, 4), (10, 5), (8, 8), (4, 12)] {
            assert!(every_minor_is_invertible(&cauchy(k, m)), "{k}+{m}");
        }
    }

    #[test]
    fn the_first_row_is_ones() {
        for k in 1..MAX_CHUNKS {
            for m in 1..=MAX_CHUNKS - k {
                for technique in [Technique::Vandermonde, Technique::Cauchy] {
                    let rows = parity_rows(technique, k, m);
                    assert_eq!(rows[0], vec![1; k]);
                    assert!(rows.len() == m && rows.iter().all(|r| r.len() == k && !r.contains(&0)), "{technique:?} {k}+{m}");
                }
            }
        }
    }

    /// Chunks on disks were made with these.
    #[test]
    fn coefficients_stay_as_they_are() {
        assert_eq!(parity_rows(Technique::Vandermonde, 4, 3)[1..], [[1, 2, 4, 8], [1, 4, 16, 64]]);
        assert_eq!(parity_rows(Technique::Vandermonde, 8, 3)[2], [1, 4, 16, 64, 29, 116, 205, 19]);
        assert_eq!(parity_rows(Technique::Cauchy, 4, 3)[1..], [[166, 70, 187, 123], [245, 104, 143, 82]]);
        assert_eq!(parity_rows(Technique::Vandermonde, 5, 5), parity_rows(Technique::Cauchy, 5, 5));
    }
}
