//! Splits text into pieces, which o200k_base encodes one by one. The text may arrive in chunks that
//! are cut anywhere. The result equals the matches of this expression. Each alternative is greedy,
//! and the first alternative that matches wins:
//!
//! ```text
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! [^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//! \p{N}{1,3}
//!  ?[^\s\p{L}\p{N}]+[\r\n/]*
//! \s*[\r\n]+
//! \s+(?!\S)
//! \s+
//! ```

use super::class::Class;
use super::vocabulary;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum PieceState {
    Start,
    /// An upper-case word so far.
    Upper,
    /// A word that may end here or continue in either case.
    Letter,
    /// A word as in `Letter`, then upper case. The upper case becomes a separate piece unless the
    /// word continues.
    LetterUpper,
    /// A word with at least one lower-case letter.
    Lower,
    /// A word and `'`.
    Contraction,
    /// A word and `'r`.
    ContractionR,
    /// A word and `'v`.
    ContractionV,
    /// A word and `'l`.
    ContractionL,
    Number1,
    Number2,
    /// One symbol, which may start a word.
    Symbol1,
    Symbols,
    /// Symbols, then line ends and slashes.
    SymbolsNewlines,
    /// U+0020, which may start a word or a run of symbols.
    Space1,
    /// A blank other than U+0020, which may start a word.
    Blank1,
    /// Blanks, the last of which may belong to the next piece.
    Blanks,
    /// Blanks up to a line end.
    Newlines,
    /// Blanks up to a line end, then one more blank. The blank joins the piece only if another line
    /// end follows.
    NewlinesBlank1,
    /// Blanks up to a line end, then several more blanks.
    NewlinesBlanks,
}

#[derive(Clone, Copy)]
enum Step {
    Join(PieceState),
    /// The character joins the piece for now. A cut before it becomes a piece boundary if the text
    /// ends or the continuation does not match.
    Cut(PieceState),
    /// The character is the last of the piece.
    Last,
    /// The character starts the next piece.
    Next,
    /// A rare case that needs more than the class of the character.
    Rare,
}

const STATES: usize = 20;
static STEPS: [[Step; Class::COUNT]; STATES] = steps();

const fn steps() -> [[Step; Class::COUNT]; STATES] {
    use PieceState::*;
    const ALL: [PieceState; STATES] = [
        Start,
        Upper,
        Letter,
        LetterUpper,
        Lower,
        Contraction,
        ContractionR,
        ContractionV,
        ContractionL,
        Number1,
        Number2,
        Symbol1,
        Symbols,
        SymbolsNewlines,
        Space1,
        Blank1,
        Blanks,
        Newlines,
        NewlinesBlank1,
        NewlinesBlanks,
    ];
    let mut steps = [[Step::Rare; Class::COUNT]; STATES];
    let mut state = 0;
    while state < STATES {
        let mut class = 0;
        while class < Class::COUNT {
            steps[state][class] = step(ALL[state], Class::ALL[class]);
            class += 1;
        }
        state += 1;
    }
    steps
}

const fn step(state: PieceState, class: Class) -> Step {
    use PieceState::*;
    use Step::*;
    match state {
        Start => Join(first(class)),
        Upper | Letter | LetterUpper | Lower => word(state, class),
        Contraction | ContractionR | ContractionV | ContractionL => Rare,
        Number1 | Number2 => match (class, state) {
            (Class::Number, Number1) => Join(Number2),
            (Class::Number, _) => Last,
            _ => Next,
        },
        Symbol1 | Space1 | Blank1 if is_letter(class) => Join(first(class)),
        Symbol1 | Symbols | SymbolsNewlines | Space1 => symbols(state, class),
        Blank1 | Blanks | Newlines | NewlinesBlank1 | NewlinesBlanks => blanks(state, class),
    }
}

const fn first(class: Class) -> PieceState {
    match class {
        Class::Upper => PieceState::Upper,
        Class::Lower => PieceState::Lower,
        Class::Letter | Class::Mark => PieceState::Letter,
        Class::Number => PieceState::Number1,
        Class::Newline => PieceState::Newlines,
        Class::Space => PieceState::Space1,
        Class::Blank => PieceState::Blank1,
        Class::Apostrophe | Class::Slash | Class::Symbol => PieceState::Symbol1,
    }
}

const fn is_letter(class: Class) -> bool {
    matches!(
        class,
        Class::Upper | Class::Lower | Class::Letter | Class::Mark
    )
}

const fn word(state: PieceState, class: Class) -> Step {
    match (class, state) {
        (Class::Lower, _) => Step::Join(PieceState::Lower),
        (Class::Letter | Class::Mark, PieceState::Lower) => Step::Join(PieceState::Lower),
        (Class::Letter | Class::Mark, _) => Step::Join(PieceState::Letter),
        (Class::Upper, PieceState::Upper | PieceState::LetterUpper) => Step::Join(state),
        (Class::Upper, PieceState::Letter) => Step::Cut(PieceState::LetterUpper),
        (_, PieceState::LetterUpper) => Step::Rare,
        (Class::Apostrophe, _) => Step::Join(PieceState::Contraction),
        _ => Step::Next,
    }
}

const fn symbols(state: PieceState, class: Class) -> Step {
    match (class, state) {
        (Class::Space | Class::Blank | Class::Newline, PieceState::Space1) => blanks(state, class),
        (Class::Newline, _) | (Class::Slash, PieceState::SymbolsNewlines) => {
            Step::Join(PieceState::SymbolsNewlines)
        }
        (_, PieceState::SymbolsNewlines) => Step::Next,
        (Class::Mark | Class::Apostrophe | Class::Slash | Class::Symbol, _) => {
            Step::Join(PieceState::Symbols)
        }
        _ => Step::Next,
    }
}

const fn blanks(state: PieceState, class: Class) -> Step {
    match (class, state) {
        (Class::Newline, _) => Step::Join(PieceState::Newlines),
        (Class::Space | Class::Blank, PieceState::Newlines) => {
            Step::Cut(PieceState::NewlinesBlank1)
        }
        (Class::Space | Class::Blank, PieceState::NewlinesBlank1) => {
            Step::Join(PieceState::NewlinesBlanks)
        }
        (Class::Space | Class::Blank, PieceState::NewlinesBlanks) => Step::Join(state),
        (Class::Space | Class::Blank, _) => Step::Join(PieceState::Blanks),
        (_, PieceState::Blanks | PieceState::NewlinesBlank1 | PieceState::NewlinesBlanks) => {
            Step::Rare
        }
        _ => Step::Next,
    }
}

/// Splits one text. Positions are byte offsets. During a scan they count from the start of the
/// chunk that was pushed last, between scans from its end. Positions in earlier chunks are
/// negative.
#[derive(Clone)]
pub(super) struct Pieces {
    state: PieceState,
    start: isize,
    /// The position of the tentative cut, in states that have one.
    cut: isize,
    /// The last character of the previous chunk.
    previous: char,
}

impl Default for Pieces {
    fn default() -> Pieces {
        Pieces {
            state: PieceState::Start,
            start: 0,
            cut: 0,
            previous: '\0',
        }
    }
}

impl Pieces {
    /// Scans a chunk. Calls `piece` with the start and the end of each piece that later text cannot
    /// change.
    #[inline]
    pub(super) fn push(&mut self, text: &str, mut piece: impl FnMut(isize, isize)) {
        let bytes = text.as_bytes();
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let (class, width) = if byte < 0x80 {
                (ASCII[usize::from(byte)], 1)
            } else {
                let character = text[at..].chars().next().unwrap_or_default();
                (vocabulary::class(character), character.len_utf8())
            };
            let position = at as isize;
            at += width;
            match STEPS[self.state as usize][class as usize] {
                Step::Join(state) => self.state = state,
                Step::Cut(state) => (self.state, self.cut) = (state, position),
                Step::Last => self.end(position + width as isize, PieceState::Start, &mut piece),
                Step::Next => self.end(position, first(class), &mut piece),
                Step::Rare => {
                    if self.rare(text, at - width, &mut piece) {
                        at -= width;
                    }
                }
            }
        }
        if let Some(last) = text.chars().next_back() {
            self.previous = last;
        }
        self.start -= bytes.len() as isize;
        self.cut -= bytes.len() as isize;
    }

    /// The offset, from the start of the unfinished text, at which that text is cut in two if
    /// nothing follows. Returns the length of the unfinished text if it is one piece.
    pub(super) fn cut(&self) -> usize {
        let len = self.start.unsigned_abs();
        match self.state {
            PieceState::LetterUpper | PieceState::NewlinesBlank1 | PieceState::NewlinesBlanks => {
                len - self.cut.unsigned_abs()
            }
            PieceState::Contraction => len - 1,
            PieceState::ContractionR | PieceState::ContractionV | PieceState::ContractionL => {
                len - 2
            }
            _ => len,
        }
    }

    fn end(&mut self, end: isize, state: PieceState, piece: &mut impl FnMut(isize, isize)) {
        piece(self.start, end);
        self.start = end;
        self.state = state;
    }

    /// Handles a step that depends on more than the class. Returns true if the character must be
    /// processed again in the new state.
    #[cold]
    fn rare(&mut self, text: &str, at: usize, piece: &mut impl FnMut(isize, isize)) -> bool {
        let position = at as isize;
        let previous = text[..at].chars().next_back().unwrap_or(self.previous);
        match self.state {
            PieceState::LetterUpper => {
                self.end(self.cut, PieceState::Upper, piece);
                true
            }
            PieceState::Contraction
            | PieceState::ContractionR
            | PieceState::ContractionV
            | PieceState::ContractionL => {
                let character = text[at..].chars().next().unwrap_or_default();
                self.contraction(position, character, previous, piece)
            }
            _ => {
                if self.state != PieceState::Blanks {
                    self.end(self.cut, PieceState::Blanks, piece);
                }
                let last = position - previous.len_utf8() as isize;
                let class = vocabulary::class(previous);
                if self.start < last {
                    self.end(last, first(class), piece);
                }
                self.state = first(class);
                true
            }
        }
    }

    fn contraction(
        &mut self,
        position: isize,
        character: char,
        previous: char,
        piece: &mut impl FnMut(isize, isize),
    ) -> bool {
        use PieceState::*;
        match (self.state, character) {
            (Contraction, 's' | 'S' | 'ſ' | 't' | 'T' | 'm' | 'M' | 'd' | 'D')
            | (ContractionR | ContractionV, 'e' | 'E')
            | (ContractionL, 'l' | 'L') => {
                self.end(position + character.len_utf8() as isize, Start, piece);
                return false;
            }
            (Contraction, 'r' | 'R') => self.state = ContractionR,
            (Contraction, 'v' | 'V') => self.state = ContractionV,
            (Contraction, 'l' | 'L') => self.state = ContractionL,
            (Contraction, _) => {
                self.end(position - 1, Symbol1, piece);
                return true;
            }
            _ => {
                self.end(position - 2, first(vocabulary::class(previous)), piece);
                return true;
            }
        }
        false
    }
}

static ASCII: [Class; 128] = ascii();

const fn ascii() -> [Class; 128] {
    let mut classes = [Class::Symbol; 128];
    let mut byte = 0;
    while byte < 128 {
        classes[byte] = match byte as u8 {
            b'A'..=b'Z' => Class::Upper,
            b'a'..=b'z' => Class::Lower,
            b'0'..=b'9' => Class::Number,
            b'\r' | b'\n' => Class::Newline,
            b' ' => Class::Space,
            b'\t' | 0x0b | 0x0c => Class::Blank,
            b'\'' => Class::Apostrophe,
            b'/' => Class::Slash,
            _ => Class::Symbol,
        };
        byte += 1;
    }
    classes
}
