//! RocksDB's crc32c by the processor's own instruction.
//!
//! Why: RocksDB has to be compiled for processors that have the instruction, or computes the sum of every log record by
//! table; we ask the processor at run time. The linker leads calls of `rocksdb::crc32c::Extend` here (`--wrap`, see the
//! build script of the binary); where it is not told to, as in tests, RocksDB's own is used.

use std::ffi::c_char;

/// crc32c of what `crc` is the sum of, followed by `len` bytes at `data`.
///
/// # Safety
/// `data` must point to `len` readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __wrap__ZN7rocksdb6crc32c6ExtendEjPKcm(crc: u32, data: *const c_char, len: usize) -> u32 {
    if len == 0 {
        return crc;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), len) };
    denc::crc32c_append(crc, bytes)
}

/// Checks the function against the sum that every description of crc32c names. Also what makes the linker find it.
pub(super) fn check() {
    let (head, tail) = (b"1234", b"56789");
    let extend: unsafe extern "C" fn(u32, *const c_char, usize) -> u32 = __wrap__ZN7rocksdb6crc32c6ExtendEjPKcm;
    // SAFETY: pointers and lengths of two arrays.
    let sum = unsafe { extend(extend(0, head.as_ptr().cast(), head.len()), tail.as_ptr().cast(), tail.len()) };
    assert_eq!(sum, 0xe306_9283, "crc32c is wrong on this processor");
}
