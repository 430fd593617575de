//! When changes of the osdmap are published: at once, unless epochs would follow each other too closely.
//!
//! Owns: [`Pace`].   Why: an epoch goes to everybody, and every OSD looks at all its PGs for it. But what a PG waits for stops clients.

use std::time::Duration;
use types::Mono;

/// Changes that come closer than this to the last epoch are gathered into one.
const DELAY: Duration = Duration::from_millis(50);
/// What PGs wait for is gathered for so long. One epoch in `DELAY` may come early for that.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Debug, Default)]
pub(crate) struct Pace {
    published: Mono,
    /// The last epoch came early.
    hurried: bool,
    /// Since when PGs wait for what is to be published.
    waited_for: Option<Mono>,
}

impl Pace {
    /// A PG cannot go on without a change that was made just now.
    pub fn waits(&mut self, now: Mono) {
        self.waited_for.get_or_insert(now);
    }

    /// When changes are to be published.
    pub fn due(&self) -> Mono {
        let gathered = self.published + DELAY;
        let early = self.waited_for.filter(|_| !self.hurried).map(|since| since + GATHER);
        early.map_or(gathered, |early| early.min(gathered))
    }

    /// They are published.
    pub fn publishes(&mut self, now: Mono) {
        self.hurried = now < self.published + DELAY;
        (self.published, self.waited_for) = (now, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Mono {
        Mono(ms * 1_000_000)
    }

    #[test]
    fn epochs_keep_apart_and_one_in_between_comes_early_if_a_pg_waits() {
        let mut p = Pace::default();
        p.publishes(ms(1000));
        assert_eq!(p.due(), ms(1050));
        p.waits(ms(1003));
        p.waits(ms(1006));
        assert_eq!(p.due(), ms(1008), "by the first that waits");
        p.publishes(ms(1008));
        p.waits(ms(1009));
        assert_eq!(p.due(), ms(1058), "not two early ones in a row");
        p.publishes(ms(1058));
        p.waits(ms(1107));
        assert_eq!(p.due(), ms(1108), "never later for that");
        p.publishes(ms(1108));
        assert_eq!(p.due(), ms(1158));
    }
}
