//! The text whose pieces are still undecided: its bytes while it is short, else
//! only what its count depends on.

use super::bpe;
use super::run::Run;
use super::vocabulary::LONGEST;

/// At most two pieces: the second starts at the cut that the scanner knows.
#[derive(Clone, Debug)]
pub(super) enum Pending {
    Short { bytes: [u8; LONGEST], len: usize },
    Long(Box<Long>),
}

#[derive(Clone, Debug)]
pub(super) struct Long {
    /// All of it as one piece, which it may yet become.
    whole: Run,
    cut: Option<Cut>,
}

#[derive(Clone, Debug)]
struct Cut {
    at: usize,
    /// The tokens before it.
    before: u64,
    after: Run,
}

impl Default for Pending {
    fn default() -> Pending {
        Pending::Short {
            bytes: [0; LONGEST],
            len: 0,
        }
    }
}

impl Pending {
    /// Appends text; `cut` is where all of it then is cut, its length if it is not.
    pub(super) fn append(&mut self, text: &[u8], cut: usize) {
        match self {
            Pending::Short { bytes, len } => match bytes.get_mut(*len..*len + text.len()) {
                Some(free) => {
                    free.copy_from_slice(text);
                    *len += text.len();
                }
                None => {
                    let mut long = Box::new(Long {
                        whole: Run::new(),
                        cut: None,
                    });
                    long.append(&bytes[..*len], cut);
                    long.append(text, cut);
                    *self = Pending::Long(long);
                }
            },
            Pending::Long(long) => long.append(text, cut),
        }
    }

    /// The tokens of all of it, cut here, or not where that is its length.
    pub(super) fn count(&self, cut: usize) -> u64 {
        match self {
            Pending::Short { bytes, len } => {
                bpe::count(&bytes[..cut]) + bpe::count(&bytes[cut..*len])
            }
            Pending::Long(long) => match &long.cut {
                Some(Cut { before, after, .. }) => before + after.count(),
                None => long.whole.count(),
            },
        }
    }

    /// Appends the rest of the first piece, which is all of it: gives its tokens
    /// and starts anew.
    pub(super) fn finish(&mut self, text: &[u8]) -> u64 {
        self.append(text, usize::MAX);
        let tokens = self.count(self.len());
        match self {
            Pending::Short { len, .. } => *len = 0,
            Pending::Long(_) => *self = Pending::default(),
        }
        tokens
    }

    /// All but the last bytes is a finished piece: gives its tokens and keeps those.
    pub(super) fn split(&mut self, rest: usize) -> u64 {
        let end = self.len() - rest;
        match self {
            Pending::Short { bytes, len } => {
                let tokens = bpe::count(&bytes[..end]);
                bytes.copy_within(end..*len, 0);
                *len = rest;
                tokens
            }
            Pending::Long(long) => {
                let (tokens, run) = match long.cut.take() {
                    Some(cut) if cut.at == end => (cut.before, cut.after),
                    _ => (long.whole.count_without(rest), long.whole.clone()),
                };
                if rest <= LONGEST {
                    let mut bytes = [0; LONGEST];
                    bytes
                        .iter_mut()
                        .zip(run.end(rest))
                        .for_each(|(to, byte)| *to = byte);
                    *self = Pending::Short { bytes, len: rest };
                } else {
                    long.whole = run;
                }
                tokens
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Pending::Short { len, .. } => *len,
            Pending::Long(long) => long.whole.len(),
        }
    }
}

impl Long {
    fn append(&mut self, text: &[u8], cut: usize) {
        let len = self.whole.len();
        match &mut self.cut {
            Some(known) if known.at == cut => {
                self.whole.extend(text);
                known.after.extend(text);
            }
            // Cuts are never older than the text that is appended.
            _ if (len..len + text.len()).contains(&cut) => {
                let (before, after) = text.split_at(cut - len);
                self.whole.extend(before);
                let before = self.whole.count();
                let mut second = Run::new();
                second.extend(after);
                self.whole.extend(after);
                self.cut = Some(Cut {
                    at: cut,
                    before,
                    after: second,
                });
            }
            _ => {
                self.whole.extend(text);
                self.cut = None;
            }
        }
    }
}
