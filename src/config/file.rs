//! The configuration as written.

/// A configuration that cannot be used, with every problem found.
#[derive(Debug, thiserror::Error)]
#[error("{} problem(s) in the configuration", problems.len())]
pub struct Invalid {
    /// What is wrong, in the order of the file.
    pub problems: Vec<Problem>,
}

/// One thing wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The line, counted from 1, where it is known.
    pub line: Option<usize>,
    /// The key, dotted.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
}
