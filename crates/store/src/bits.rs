//! A bit for each block of a region of the device, in memory only where they differ.

/// `WORDS` times 64 bits.
pub(crate) enum Bits<const WORDS: usize> {
    Clear,
    Set,
    Mixed(Box<Words<WORDS>>),
}

pub(crate) struct Words<const WORDS: usize> {
    /// Bits that are set.
    set: usize,
    pub words: [u64; WORDS],
}

impl<const WORDS: usize> Bits<WORDS> {
    pub fn word(&self, at: usize) -> u64 {
        match self {
            Bits::Clear => 0,
            Bits::Set => u64::MAX,
            Bits::Mixed(mixed) => mixed.words[at],
        }
    }

    /// Inverts the bits of a word that `flipped` has.
    pub fn flip(&mut self, at: usize, flipped: u64) {
        if flipped == 0 {
            return;
        }
        let mixed = self.mixed();
        let word = mixed.words[at] ^ flipped;
        mixed.set = mixed.set + word.count_ones() as usize - mixed.words[at].count_ones() as usize;
        mixed.words[at] = word;
        if mixed.set == 0 {
            *self = Bits::Clear;
        } else if mixed.set == 64 * WORDS {
            *self = Bits::Set;
        }
    }

    fn mixed(&mut self) -> &mut Words<WORDS> {
        if !matches!(self, Bits::Mixed(_)) {
            let word = self.word(0);
            *self = Bits::Mixed(Box::new(Words { set: word.count_ones() as usize * WORDS, words: [word; WORDS] }));
        }
        let Bits::Mixed(mixed) = self else { unreachable!() };
        mixed
    }
}
