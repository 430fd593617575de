//! GF(2^8) with the polynomial 0x11d, as ISA-L and jerasure (w=8) have it: for matrices, not for data.

const POLYNOMIAL: u16 = 0x11d;

/// `EXP[i]` is 2^i, twice over so that sums of two logarithms need no remainder; `LOG` is its inverse, of 1 to 255.
const TABLES: ([u8; 510], [u8; 256]) = {
    let (mut exp, mut log) = ([0; 510], [0; 256]);
    let (mut x, mut i) = (1u16, 0);
    while i < 255 {
        exp[i] = x as u8;
        exp[i + 255] = x as u8;
        log[x as usize] = i as u8;
        x <<= 1;
        if x & 0x100 != 0 {
            x ^= POLYNOMIAL;
        }
        i += 1;
    }
    (exp, log)
};

/// The product; the sum is `^`.
pub fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    TABLES.0[usize::from(TABLES.1[usize::from(a)]) + usize::from(TABLES.1[usize::from(b)])]
}

/// What `a` times it is 1. `a` is not 0.
pub fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "0 has no inverse");
    TABLES.0[255 - usize::from(TABLES.1[usize::from(a)])]
}

/// `base` to the power of `exponent`.
pub fn power(base: u8, exponent: usize) -> u8 {
    (0..exponent).fold(1, |product, _| mul(product, base))
}

/// The inverse of a square matrix given by rows, or None if it has none.
pub fn invert(mut rows: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let n = rows.len();
    let mut inverted: Vec<Vec<u8>> = (0..n).map(|i| (0..n).map(|j| u8::from(i == j)).collect()).collect();
    for column in 0..n {
        let pivot = (column..n).find(|&r| rows[r][column] != 0)?;
        rows.swap(column, pivot);
        inverted.swap(column, pivot);
        let scale = inverse(rows[column][column]);
        for m in [&mut rows, &mut inverted] {
            m[column].iter_mut().for_each(|x| *x = mul(*x, scale));
        }
        let factors: Vec<u8> = rows.iter().map(|row| row[column]).collect();
        for m in [&mut rows, &mut inverted] {
            let pivot = m[column].clone();
            for (row, factor) in m.iter_mut().zip(&factors).enumerate().filter(|(r, _)| *r != column).map(|(_, pair)| pair) {
                row.iter_mut().zip(&pivot).for_each(|(x, p)| *x ^= mul(*factor, *p));
            }
        }
    }
    Some(inverted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_but_zero_has_an_inverse_and_products_distribute() {
        for a in 1..=255u8 {
            assert_eq!(mul(a, inverse(a)), 1);
            for b in 0..=255u8 {
                assert_eq!(mul(a, b), mul(b, a));
                assert_eq!(mul(a, b ^ 0x5a), mul(a, b) ^ mul(a, 0x5a));
            }
        }
        assert_eq!((mul(0, 7), mul(0x80, 2), power(2, 8), power(3, 0)), (0, 0x1d, 0x1d, 1));
    }

    #[test]
    fn an_inverse_undoes_its_matrix_and_a_singular_one_has_none() {
        let rows = vec![vec![0, 1, 1], vec![1, 2, 4], vec![1, 4, 16]];
        let inverted = invert(rows.clone()).unwrap();
        for (i, row) in rows.iter().enumerate() {
            let product = |j: usize| row.iter().zip(&inverted).fold(0, |sum, (&a, b)| sum ^ mul(a, b[j]));
            assert_eq!((0..3).map(product).collect::<Vec<_>>(), (0..3).map(|j| u8::from(i == j)).collect::<Vec<_>>());
        }
        assert_eq!(invert(vec![vec![3, 5], vec![3, 5]]), None);
    }
}
