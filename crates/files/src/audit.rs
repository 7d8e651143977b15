//! Logs of lines of JSON that are only appended to. Each line has the hash of the line before, so that a line that is changed,
//! taken out or put in shows.

use crate::private;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The key of the hash of the line before.
const PREVIOUS: &str = "previous_sha256";
/// What the first line has.
const NONE: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A log that was read whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub lines: u64,
    /// Those from before lines had hashes. The first line with one has the hash of all of them together.
    pub unchained: u64,
    /// The hash of the last line: whoever notes it can tell later whether lines at the end were taken away.
    pub head: String,
}

/// Why a log cannot be trusted.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("is empty: there is nothing to verify")]
    Empty,
    #[error("line {line} is not JSON: it was damaged, or the process ended while it wrote")]
    NotJson { line: u64 },
    /// No line has a hash.
    #[error(
        "no line has the hash of the one before: all are from a version that wrote none, or the hashes were removed"
    )]
    Unchained,
    /// A line after the first with a hash has none.
    #[error(
        "line {line} has no hash, and the line before has one: it was put in, or its hash was removed"
    )]
    NoHash { line: u64 },
    /// A line has another hash than the line before.
    #[error(
        "line {line} does not follow from what is before it: line {before} was changed, or lines between were taken out"
    )]
    Broken {
        line: u64,
        /// The number of the line before.
        before: u64,
    },
}

/// Appends lines, each an object of JSON, and returns when they are on the disk. Processes wait for each other.
///
/// # Errors
/// Where the disk refuses, and where a line is no object.
pub fn append(path: &Path, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut file = private::append_and_read(path)?;
    file.lock()?;
    let (mut previous, whole) = tail(&mut file)?;
    let mut text = if whole {
        String::new()
    } else {
        "\n".to_owned()
    };
    for line in lines {
        let Some(object) = line.trim_end().strip_suffix('}') else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no object of JSON",
            ));
        };
        let chained = format!("{object},\"{PREVIOUS}\":\"{previous}\"}}");
        previous = hash(chained.as_bytes());
        text.push_str(&chained);
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// The hash that the next line must have, and whether the last line has its end.
fn tail(file: &mut File) -> io::Result<(String, bool)> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok((NONE.to_owned(), true));
    }
    let mut reach = 64 * 1024;
    loop {
        let from = length.saturating_sub(reach);
        file.seek(SeekFrom::Start(from))?;
        let mut bytes = Vec::new();
        Read::by_ref(file)
            .take(length - from)
            .read_to_end(&mut bytes)?;
        let whole = bytes.ends_with(b"\n");
        let end = bytes.len() - usize::from(whole);
        let begin = bytes[..end].iter().rposition(|byte| *byte == b'\n');
        let Some(begin) = begin.map(|at| at + 1).or((from == 0).then_some(0)) else {
            reach *= 4;
            continue;
        };
        let last = &bytes[begin..end];
        if previous_of(last).is_some() {
            return Ok((hash(last), whole));
        }
        // Lines from before there were hashes: all of them together, as far as they will be lines.
        let mut all = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        Read::by_ref(file).take(length).read_to_end(&mut all)?;
        if !whole {
            all.push(b'\n');
        }
        return Ok((hash(&all), whole));
    }
}

/// Reads a log and checks that every line follows from the one before.
///
/// # Errors
/// At the first line that does not.
pub fn verify(path: &Path) -> Result<Verified, AuditError> {
    let bytes = std::fs::read(path)?;
    let (mut lines, mut unchained, mut at) = (0, 0, 0);
    let mut head: Option<String> = None;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = at;
        at += line.len();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        lines += 1;
        if serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(line).is_err() {
            return Err(AuditError::NotJson { line: lines });
        }
        match (previous_of(line), &head) {
            (None, None) => unchained += 1,
            (None, Some(_)) => return Err(AuditError::NoHash { line: lines }),
            (Some(previous), known) => {
                let wanted = match known {
                    Some(head) => head.clone(),
                    None if start == 0 => NONE.to_owned(),
                    None => hash(&bytes[..start]),
                };
                if previous != wanted {
                    let before = lines - 1;
                    return Err(AuditError::Broken {
                        line: lines,
                        before,
                    });
                }
                head = Some(hash(line));
            }
        }
    }
    match head {
        Some(head) => Ok(Verified {
            lines,
            unchained,
            head,
        }),
        None if lines == 0 => Err(AuditError::Empty),
        None => Err(AuditError::Unchained),
    }
}

fn previous_of(line: &[u8]) -> Option<String> {
    let object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(line).ok()?;
    Some(object.get(PREVIOUS)?.as_str()?.to_owned())
}

fn hash(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Log(tempfile::TempDir);

    impl Log {
        fn new(begin: &str) -> Log {
            let log = Log(tempfile::tempdir().expect("a folder"));
            std::fs::write(log.path(), begin).expect("written");
            log
        }

        fn path(&self) -> std::path::PathBuf {
            self.0.path().join("audit.jsonl")
        }

        fn add(&self, numbers: std::ops::Range<u32>) {
            let lines = numbers.map(|number| format!("{{\"n\":{number}}}"));
            append(&self.path(), &lines.collect::<Vec<_>>()).expect("appended");
        }

        fn change(&self, change: impl Fn(&mut Vec<String>)) -> String {
            let text = std::fs::read_to_string(self.path()).expect("readable");
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            change(&mut lines);
            let changed = Log::new(&(lines.join("\n") + "\n"));
            verify(&changed.path()).expect_err("found").to_string()
        }
    }

    #[test]
    fn whatever_is_changed_taken_out_or_put_in_is_found() {
        let log = Log::new("");
        log.add(0..2);
        log.add(2..5);
        let verified = verify(&log.path()).expect("a chain");
        assert_eq!((verified.lines, verified.unchained), (5, 0));
        let changed = log.change(|lines| lines[2] = lines[2].replace(":2,", ":7,"));
        assert!(changed.starts_with("line 4 does not follow"), "{changed}");
        let taken = log.change(|lines| drop(lines.remove(1)));
        assert!(taken.starts_with("line 2 does not follow"), "{taken}");
        let first = log.change(|lines| drop(lines.remove(0)));
        assert!(first.starts_with("line 1 does not follow"), "{first}");
        let swapped = log.change(|lines| lines.swap(1, 2));
        assert!(swapped.starts_with("line 2 does not follow"), "{swapped}");
        let put = log.change(|lines| lines.insert(2, "{\"n\":9}".to_owned()));
        assert!(put.starts_with("line 3 has no hash"), "{put}");
        let damaged = log.change(|lines| lines[4].truncate(5));
        assert!(damaged.starts_with("line 5 is not JSON"), "{damaged}");
    }

    #[test]
    fn lines_from_before_there_were_hashes_are_held_together_by_the_first_with_one() {
        let log = Log::new("{\"old\":1}\n{\"old\":2}\n");
        assert!(matches!(verify(&log.path()), Err(AuditError::Unchained)));
        log.add(0..2);
        let verified = verify(&log.path()).expect("a chain");
        assert_eq!((verified.lines, verified.unchained), (4, 2));
        let changed = log.change(|lines| lines[0] = lines[0].replace('1', "3"));
        assert!(changed.starts_with("line 3 does not follow"), "{changed}");
        assert!(matches!(
            verify(&Log::new("").path()),
            Err(AuditError::Empty)
        ));
    }

    #[test]
    fn a_line_without_its_end_is_ended_first() {
        let log = Log::new("{\"old\":1}");
        log.add(0..1);
        assert_eq!(verify(&log.path()).expect("a chain").lines, 2);
    }
}
