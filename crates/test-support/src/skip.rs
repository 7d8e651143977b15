//! Reports tests that cannot run on this machine. In Rust such a test can only pass.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// Reports that the current test is skipped, and why.
///
/// The line goes to the standard output. If `TOKENGAUGE_SKIPPED` names a file, the line is also
/// appended to that file: name, tab, reason. A relative path starts at the root of the
/// workspace, for tests of every package.
///
/// # Panics
/// If the file cannot be written, because the summary would not show the test.
pub fn skipped(reason: &str) {
    let thread = std::thread::current();
    // libtest names the thread of a test after the test.
    let line = skip_line(thread.name().unwrap_or("unnamed test"), reason);
    println!("SKIPPED: {line}");
    let Some(file) = std::env::var_os("TOKENGAUGE_SKIPPED") else {
        return;
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    append(&root.join(file), &line);
}

/// Name and reason on one line, because the summary has one line for each test.
fn skip_line(test: &str, reason: &str) -> String {
    let reason: Vec<&str> = reason.split_whitespace().collect();
    format!("{test}\t{}", reason.join(" "))
}

/// Tests run in several processes at once, so each line is appended in one write.
fn append(path: &Path, line: &str) {
    let mut options = OpenOptions::new();
    let opened = options.create(true).append(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    written.unwrap_or_else(|error| panic!("cannot write TOKENGAUGE_SKIPPED {path:?}: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_tests_are_lines_of_name_and_reason() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("skipped.txt");
        append(&path, &skip_line("a::b", "no\nIPv6"));
        append(&path, &skip_line("c", "no disk"));
        let written = std::fs::read_to_string(path).expect("a file");
        assert_eq!(written, "a::b\tno IPv6\nc\tno disk\n");
    }

    #[test]
    fn the_name_of_a_test_is_that_of_its_thread() {
        let thread = std::thread::current();
        let name = thread.name().expect("a name");
        assert!(
            name.ends_with("the_name_of_a_test_is_that_of_its_thread"),
            "{name}"
        );
    }
}
