//! The classes of characters that the splitting expression distinguishes.

/// Code points in a block of the class table.
pub const BLOCK: usize = 128;

/// What a character is to the splitting expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// Upper and title case: `\p{Lu}\p{Lt}`.
    Upper,
    /// Lower case: `\p{Ll}`.
    Lower,
    /// Letters that are both to the expression: `\p{Lm}\p{Lo}`.
    Letter,
    /// `\p{M}`: as good as `Letter` in a word, a symbol elsewhere.
    Mark,
    /// `\p{N}`.
    Number,
    /// `\r` and `\n`.
    Newline,
    /// U+0020.
    Space,
    /// The rest of `\s`.
    Blank,
    /// `'`, which may start a contraction.
    Apostrophe,
    /// `/`, which may follow line ends.
    Slash,
    /// Everything else.
    Symbol,
}

impl Class {
    /// How many there are.
    pub const COUNT: usize = 11;
    /// All of them, by their number.
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
