use super::file::DEFAULT_AGE;
use super::file::DEFAULT_BYTES;
use super::problems::Problems;
use super::{Ledger, file};
use std::path::{Path, PathBuf};

const FILE: &str = "ledger.sqlite";

impl Ledger {
    /// A ledger at `path` with the default retention.
    pub fn new(path: PathBuf) -> Ledger {
        Ledger {
            path,
            retention_age: DEFAULT_AGE,
            retention_bytes: DEFAULT_BYTES,
        }
    }
}

/// Resolves the ledger. It is enabled if there is a `path` or a `state_dir`, because a state directory is for data that
/// must survive a restart.
pub(super) fn ledger(
    written: file::Ledger,
    state_dir: Option<&Path>,
    problems: &mut Problems<'_>,
) -> Option<Ledger> {
    let path = written
        .path
        .or_else(|| state_dir.map(|folder| folder.join(FILE)));
    let wanted = written.enabled.as_ref().map(|enabled| *enabled.get_ref());
    if let (Some(enabled), Some(true), None) = (&written.enabled, wanted, &path) {
        problems.at(
            enabled,
            "a ledger needs a `path`, or a `state_dir` at the top of the file",
        );
    }
    let path = path.filter(|_| wanted.unwrap_or(true))?;
    Some(Ledger {
        path,
        retention_age: written.retention_age.map_or(DEFAULT_AGE, |age| age.0),
        retention_bytes: written
            .retention_bytes
            .map_or(DEFAULT_BYTES, |bytes| bytes.0 as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const REST: &str =
        "\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nupstream = \"u\"";

    fn parsed(text: &str) -> Result<Option<Ledger>, String> {
        let config = Config::parse(&format!("{text}{REST}"), "test");
        config
            .map(|config| config.ledger)
            .map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn a_ledger_is_written_where_a_path_is_set() {
        let there = |path: &str| Ok(Some(Ledger::new(path.into())));
        assert_eq!(parsed(""), Ok(None));
        assert_eq!(parsed("state_dir = \"/s\""), there("/s/ledger.sqlite"));
        assert_eq!(
            parsed("state_dir = \"/s\"\n[ledger]\npath = \"/a\""),
            there("/a")
        );
        assert_eq!(parsed("[ledger]\npath = \"/a\""), there("/a"));
        assert_eq!(
            parsed("state_dir = \"/s\"\n[ledger]\nenabled = false"),
            Ok(None)
        );
        let limits = "[ledger]\npath = \"/a\"\nretention_age = \"7d\"\nretention_bytes = \"1GiB\"";
        let ledger = parsed(limits).expect("valid").expect("a ledger");
        assert_eq!(
            ledger.retention_age,
            std::time::Duration::from_secs(7 * 86_400)
        );
        assert_eq!(ledger.retention_bytes, 1 << 30);
    }

    #[test]
    fn what_is_invalid_is_reported_with_its_line() {
        for (text, key) in [
            ("[ledger]\nenabled = true", "test:2:11: enabled"),
            (
                "[ledger]\nretention_age = \"1m\"",
                "test:2:17: retention_age",
            ),
            (
                "[ledger]\nretention_bytes = 5",
                "test:2:19: retention_bytes",
            ),
            ("[ledger]\nsize = 5", "test:2:1: size"),
        ] {
            let problem = parsed(text).expect_err(text);
            assert!(problem.starts_with(key), "{problem}");
        }
    }
}
