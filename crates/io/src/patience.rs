//! What a daemon that was killed still holds: for a moment after its end its sockets, locks and files are taken.
//!
//! Why: a process whose first thread has ended is a zombie to everyone, while the kernel still takes its other threads
//! and its rings down. A new daemon comes before that is done.

use std::time::{Duration, Instant};

/// How long another user of a resource may take to be gone.
const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// Tries again while `is_held` says of the error that someone has the resource; the last error if that lasts.
pub(crate) fn until_free<T, E>(is_held: impl Fn(&E) -> bool, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let start = Instant::now();
    loop {
        match attempt() {
            Err(e) if is_held(&e) && start.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_free_is_taken_and_other_errors_are_told_at_once() {
        let mut left = 3;
        let taken = until_free(|held| *held, || {
            left -= 1;
            if left > 0 { Err(true) } else { Ok(()) }
        });
        assert_eq!((taken, left), (Ok(()), 0));
        assert_eq!(until_free(|held| *held, || Err::<(), bool>(false)), Err(false));
    }
}
