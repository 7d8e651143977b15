//! Append-only logs with one JSON object per line.

use crate::private;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// Appends lines under an exclusive file lock and returns when they are on the disk. If a crash left the last line
/// incomplete, a newline is added first.
///
/// # Errors
/// Returns an error if the file cannot be opened, locked or written.
pub fn append(path: &Path, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut file = private::append_and_read(path)?;
    file.lock()?;
    let mut text = String::new();
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.push('\n');
        }
    }
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_appended_and_a_line_without_its_end_is_ended_first() {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("audit.jsonl");
        std::fs::write(&log, "{\"old\":1}").expect("written");
        for lines in [&["{\"n\":1}", "{\"n\":2}\n"][..], &["{\"n\":3}"], &[]] {
            let lines: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
            append(&log, &lines).expect("appended");
        }
        let text = std::fs::read_to_string(&log).expect("readable");
        assert_eq!(text, "{\"old\":1}\n{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n");
    }
}
