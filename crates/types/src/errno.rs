//! Errors as Ceph clients expect them: Linux errno values, negative on the wire.

use std::fmt;

/// A positive Linux errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $value:literal $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// The symbolic name, `"ENOENT"`; `"E?"` for a number not in the table.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "E?" }
            }

            /// What `strerror` says of it.
            pub fn text(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "Unknown error" }
            }
        }
    };
}
errnos! {
    EPERM 1 "Operation not permitted";
    ENOENT 2 "No such file or directory";
    EINTR 4 "Interrupted system call";
    EIO 5 "Input/output error";
    ENXIO 6 "No such device or address";
    E2BIG 7 "Argument list too long";
    ENOEXEC 8 "Exec format error";
    EAGAIN 11 "Resource temporarily unavailable";
    ENOMEM 12 "Cannot allocate memory";
    EACCES 13 "Permission denied";
    EBUSY 16 "Device or resource busy";
    EEXIST 17 "File exists";
    EXDEV 18 "Invalid cross-device link";
    ENODEV 19 "No such device";
    ENOTDIR 20 "Not a directory";
    EISDIR 21 "Is a directory";
    EINVAL 22 "Invalid argument";
    EFBIG 27 "File too large";
    ENOSPC 28 "No space left on device";
    EROFS 30 "Read-only file system";
    EPIPE 32 "Broken pipe";
    EDOM 33 "Numerical argument out of domain";
    ERANGE 34 "Numerical result out of range";
    ENAMETOOLONG 36 "File name too long";
    ENOSYS 38 "Function not implemented";
    ENOTEMPTY 39 "Directory not empty";
    ENODATA 61 "No data available";
    EPROTO 71 "Protocol error";
    EBADMSG 74 "Bad message";
    EOVERFLOW 75 "Value too large for defined data type";
    EILSEQ 84 "Invalid or incomplete multibyte or wide character";
    EOLDSNAPC 85 "Interrupted system call should be restarted";
    EOPNOTSUPP 95 "Operation not supported";
    EADDRINUSE 98 "Address already in use";
    EISCONN 106 "Transport endpoint is already connected";
    ENOTCONN 107 "Transport endpoint is not connected";
    ESHUTDOWN 108 "Cannot send after transport endpoint shutdown";
    ETIMEDOUT 110 "Connection timed out";
    ECONNREFUSED 111 "Connection refused";
    EALREADY 114 "Operation already in progress";
    EINPROGRESS 115 "Operation now in progress";
    ESTALE 116 "Stale file handle";
    EDQUOT 122 "Disk quota exceeded";
    ECANCELED 125 "Operation canceled";
    EKEYREJECTED 129 "Key was rejected by service";
}

impl Errno {
    /// The value as results carry it on the wire: negative.
    pub fn wire(self) -> i32 {
        -self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}) {}", self.0, self.text())
    }
}

impl std::error::Error for Errno {}
