//! ISA-L's three calls, with slices instead of pointers: the only `unsafe` of the crate.
//!
//! The instructions (SSE, AVX2, AVX-512, GFNI, Neon) are chosen by the library when it is first called. It makes its own
//! form of coefficients (`ec_init_tables`), which depends on that choice: tables never leave the process.
#![allow(unsafe_code, reason = "calls into ISA-L")]

use isal_sys as _;
use std::ffi::c_int;
use std::sync::Arc;

unsafe extern "C" {
    fn ec_init_tables(k: c_int, rows: c_int, coefficients: *const u8, tables: *mut u8);
    fn ec_encode_data(len: c_int, k: c_int, rows: c_int, tables: *const u8, from: *const *const u8, to: *const *mut u8);
    fn ec_encode_data_update(len: c_int, k: c_int, rows: c_int, index: c_int, tables: *const u8, from: *const u8, to: *const *mut u8);
}

/// Bytes of a table for one coefficient, at most.
const TABLE: usize = 32;

/// Rows of coefficients, ready to be multiplied with data.
#[derive(Debug, Clone)]
pub struct Tables {
    /// How many chunks come in.
    k: usize,
    /// How many go out.
    rows: usize,
    bytes: Arc<[u8]>,
}

impl Tables {
    /// `rows` are equally long, at least one, none empty.
    pub fn new(rows: &[Vec<u8>]) -> Tables {
        let k = rows.first().map_or(0, Vec::len);
        assert!(k > 0 && rows.iter().all(|r| r.len() == k), "rows of coefficients");
        let (coefficients, mut bytes) = (rows.concat(), vec![0; TABLE * k * rows.len()]);
        // SAFETY: the call reads k * rows bytes, which the assertion says are there, and writes at most 32 for each of them.
        unsafe { ec_init_tables(int(k), int(rows.len()), coefficients.as_ptr(), bytes.as_mut_ptr()) };
        Tables { k, rows: rows.len(), bytes: bytes.into() }
    }

    /// `to[r]` becomes the sum of row `r`'s products with `from`. All slices are equally long.
    pub fn apply(&self, from: &[&[u8]], to: &mut [&mut [u8]]) {
        let len = from.first().map_or(0, |c| c.len());
        assert!(from.len() == self.k && to.len() == self.rows, "{} chunks of {}, {} of {}", from.len(), self.k, to.len(), self.rows);
        assert!(from.iter().all(|c| c.len() == len) && to.iter().all(|c| c.len() == len), "chunks are equally long");
        if len == 0 {
            return;
        }
        let from: Vec<*const u8> = from.iter().map(|c| c.as_ptr()).collect();
        let to: Vec<*mut u8> = to.iter_mut().map(|c| c.as_mut_ptr()).collect();
        // SAFETY: k pointers to read from and `rows` to write to, of `len` bytes each, as asserted; those written to are
        // exclusive borrows and so overlap nothing; the tables are of k * rows coefficients.
        unsafe { ec_encode_data(int(len), int(self.k), int(self.rows), self.bytes.as_ptr(), from.as_ptr(), to.as_ptr()) };
    }

    /// Adds to each `to[r]` row `r`'s product with `from`, taken for chunk `index`. All slices are equally long.
    pub fn add(&self, index: usize, from: &[u8], to: &mut [&mut [u8]]) {
        assert!(index < self.k && to.len() == self.rows, "chunk {index} of {}, {} of {}", self.k, to.len(), self.rows);
        assert!(to.iter().all(|c| c.len() == from.len()), "chunks are equally long");
        if from.is_empty() {
            return;
        }
        let to: Vec<*mut u8> = to.iter_mut().map(|c| c.as_mut_ptr()).collect();
        let (len, rows) = (int(from.len()), int(self.rows));
        // SAFETY: `len` bytes to read and `rows` times as many to change, as asserted, without overlap because those are
        // exclusive borrows; the tables are of k * rows coefficients and `index` is below k.
        unsafe { ec_encode_data_update(len, int(self.k), rows, int(index), self.bytes.as_ptr(), from.as_ptr(), to.as_ptr()) };
    }
}

fn int(n: usize) -> c_int {
    c_int::try_from(n).expect("chunks are smaller than 2 GiB")
}
