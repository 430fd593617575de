//! Standard output that may have ended: behind `| head`, or in a terminal that is gone.
//!
//! Why not `println!`: it panics then, in the middle of stopping a cluster. What is to be done is done all the same;
//! whoever asked has heard enough.

use std::fmt::Arguments;
use std::io::Write;

/// Says a line, if somebody listens.
macro_rules! say {
    ($($text:tt)*) => { $crate::out::line(format_args!($($text)*)) };
}
pub(crate) use say;

/// A line.
pub fn line(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_fmt(text).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}

/// Text as it is.
pub fn text(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// What failed only because nobody listens any more is done.
pub fn unheard(error: anyhow::Error) -> anyhow::Result<()> {
    match error.downcast_ref::<std::io::Error>() {
        Some(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}
