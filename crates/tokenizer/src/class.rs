//! The classes of characters that the splitting expression distinguishes.

pub const BLOCK: usize = 128;

/// The class of a character in the splitting expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Upper,
    Lower,
    /// Letters that match as upper and as lower case: `\p{Lm}\p{Lo}`.
    Letter,
    /// `\p{M}`: a letter inside a word, a symbol elsewhere.
    Mark,
    /// `\p{N}`.
    Number,
    /// `\r` and `\n`.
    Newline,
    /// U+0020.
    Space,
    /// White space other than U+0020 and line ends.
    Blank,
    /// `'`, which may start a contraction.
    Apostrophe,
    /// `/`, which may follow the line ends after symbols.
    Slash,
    /// Everything else.
    Symbol,
}

impl Class {
    /// The number of classes.
    pub const COUNT: usize = 11;
    /// Every class, indexed by its number.
    pub const ALL: [Class; Class::COUNT] = [
        Class::Upper,
        Class::Lower,
        Class::Letter,
        Class::Mark,
        Class::Number,
        Class::Newline,
        Class::Space,
        Class::Blank,
        Class::Apostrophe,
        Class::Slash,
        Class::Symbol,
    ];
}
