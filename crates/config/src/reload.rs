//! Which settings may change while the process runs, and detection of changed files.

use super::Config;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// The tables and keys that differ and need a restart.
pub fn needs_restart(now: &Config, next: &Config) -> Vec<&'static str> {
    // Without `..`, so that the compiler demands a decision here for each new field.
    let Config {
        listeners: _,
        admin,
        routes: _,
        experiments: _,
        scrapes: _,
        limits: _,
        measure,
        block_key: _,
        otlp,
        drain_timeout: _,
        slos: _,
        receivers: _,
        budgets: _,
        prices: _,
        quotas: _,
        quota_store,
        runaway: _,
        drifts: _,
        gates: _,
        state_dir,
        ledger,
        sinks,
        refusal: _,
        origin: _,
        digest: _,
        redacted: _,
        warnings: _,
    } = next;
    let differing = [
        ("admin", *admin != now.admin),
        ("otlp", *otlp != now.otlp),
        ("state_dir", *state_dir != now.state_dir),
        ("ledger", *ledger != now.ledger),
        ("sink", *sinks != now.sinks),
        ("quota_store", *quota_store != now.quota_store),
        (
            "measure.max_models",
            measure.max_models != now.measure.max_models,
        ),
    ];
    let differing = differing.into_iter().filter(|(_, differs)| *differs);
    differing.map(|(key, _)| key).collect()
}

/// The digest of a file's content. `None` if it cannot be read.
type Content = Option<[u8; 32]>;

/// A file whose content is checked at intervals. File events are not reliable: a ConfigMap changes through a symbolic
/// link, and editors replace the file.
#[derive(Debug)]
pub struct WatchedFile {
    path: PathBuf,
    /// The content that was last reported or taken.
    known: Content,
    /// The content at the last check, if it differs from `known`.
    fresh: Option<Content>,
}

impl WatchedFile {
    pub fn new(path: &Path) -> WatchedFile {
        WatchedFile {
            path: path.to_owned(),
            known: content(path),
            fresh: None,
        }
    }

    /// Whether the file has changed since the last report. A change is reported when two checks see the same content,
    /// so that a half-written file is not read. Blocks on the disk.
    pub fn changed(&mut self) -> bool {
        self.look(content(&self.path))
    }

    fn look(&mut self, content: Content) -> bool {
        if content == self.known {
            self.fresh = None;
            return false;
        }
        if self.fresh != Some(content) {
            self.fresh = Some(content);
            return false;
        }
        self.fresh = None;
        self.known = content;
        true
    }

    /// Records that the file was read for another reason, so that its current content is not reported as a change.
    pub fn taken(&mut self) {
        self.known = content(&self.path);
        self.fresh = None;
    }
}

fn content(path: &Path) -> Content {
    let bytes = std::fs::read(path).ok()?;
    Some(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_changed_once_it_stays_the_same() {
        let mut watched = WatchedFile {
            path: PathBuf::new(),
            known: Some([1; 32]),
            fresh: None,
        };
        let mut look = |byte: u8| watched.look(Some([byte; 32]));
        assert!(!look(1));
        assert!(!look(2), "it may be half written");
        assert!(!look(3), "it was");
        assert!(look(3));
        assert!(!look(3), "it is reported once");
        assert!(!look(4) && !look(3), "it went back before anybody took it");
        assert!(!look(4) && look(4));
    }

    #[test]
    fn a_file_that_went_has_changed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.toml");
        std::fs::write(&path, "listen = 1").expect("written");
        let mut watched = WatchedFile::new(&path);
        assert!(!watched.changed() && !watched.changed());
        std::fs::remove_file(&path).expect("gone");
        assert!(!watched.changed() && watched.changed() && !watched.changed());
        std::fs::write(&path, "listen = 1").expect("written");
        watched.taken();
        assert!(!watched.changed() && !watched.changed());
    }

    #[test]
    fn what_needs_a_restart_is_named() {
        let parse = |head: &str, more: &str| {
            let text = format!(
                "{head}\n[[upstream]]\nname = \"a\"\nurl = \"http://a\"\n\
                 [[route]]\nupstream = \"a\"\n{more}"
            );
            Config::parse(&text, "test").expect("a configuration")
        };
        let now = parse("", "");
        let live = parse(
            "listen = \"127.0.0.1:1\"\ndrain_timeout = \"1s\"",
            "[limits]\nconnections = 5\n[measure]\nrecent_calls = 5\n\
             [[slo]]\nname = \"s\"\navailability = true\n",
        );
        assert!(needs_restart(&now, &live).is_empty());
        let fixed = parse(
            "state_dir = \"/tmp/x\"",
            "[admin]\nlisten = \"127.0.0.1:1\"\n[otlp]\ncall_records = true\n\
             [measure]\nmax_models = 5\n",
        );
        let keys = ["admin", "otlp", "state_dir", "ledger", "measure.max_models"];
        assert_eq!(needs_restart(&now, &fixed), keys);
    }
}
