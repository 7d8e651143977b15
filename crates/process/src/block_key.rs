//! The key of block hashes. Without a configured key it is random, and kept in the state directory
//! so that hashes stay comparable after a restart.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::OnceLock;
use tokengauge_config::{Config, Measure, Token, block_key, check_token};
use tokengauge_files::private;
use uuid::Uuid;

const FILE: &str = "block-key";

/// The measurement settings of a configuration with the key of block hashes.
pub(crate) fn measure(config: &Config) -> Measure {
    let mut measure = config.measure.clone();
    if measure.analysis.enabled {
        measure.analysis.block_key = key(config);
    }
    measure
}

fn key(config: &Config) -> [u8; 32] {
    let read = match (&config.block_key, &config.state_dir) {
        (Some(Token::Text(text)), _) => return block_key(text.reveal()),
        (Some(Token::File(path)), _) => valid(path).map_err(|error| (path.clone(), error)),
        (None, Some(folder)) => {
            let path = folder.join(FILE);
            kept(&path).map_err(|error| (path, error))
        }
        (None, None) => return of_process(),
    };
    read.unwrap_or_else(|(path, error)| {
        let file = path.display();
        tracing::warn!(%error, %file, "the key of block hashes cannot be read or written; \
            block hashes use a random key until the next restart");
        of_process()
    })
}

fn valid(path: &Path) -> io::Result<[u8; 32]> {
    let text = std::fs::read_to_string(path)?;
    check_token(text.trim()).map_err(|reason| io::Error::new(ErrorKind::InvalidData, reason))?;
    Ok(block_key(&text))
}

/// Reads the key of a state directory, or creates it.
fn kept(path: &Path) -> io::Result<[u8; 32]> {
    match valid(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        read => return read,
    }
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    private::replace(path, random().as_bytes())?;
    // Another process may have created the key at the same time.
    valid(path)
}

/// A random key that lasts as long as the process, also across reloads.
fn of_process() -> [u8; 32] {
    static KEY: OnceLock<[u8; 32]> = OnceLock::new();
    *KEY.get_or_init(|| block_key(&random()))
}

fn random() -> String {
    let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
    format!("{}{}", one.simple(), other.simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(head: &str, analysis: &str) -> Config {
        let text = format!(
            "{head}\n[analysis]\n{analysis}\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n\
             [[route]]\nupstream = \"u\""
        );
        Config::parse(&text, "test").expect("valid")
    }

    fn key_of(head: &str, analysis: &str) -> [u8; 32] {
        measure(&config(head, analysis)).analysis.block_key
    }

    #[test]
    fn a_random_key_is_kept_in_the_state_directory() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("deep");
        let head = format!("state_dir = {:?}", state.display().to_string());
        let first = key_of(&head, "");
        assert_eq!(key_of(&head, ""), first, "it is read again");
        assert_ne!(key_of("", ""), first);
        assert_eq!(key_of("", ""), key_of("", ""), "it survives a reload");
        let other = folder.path().join("other");
        let other = format!("state_dir = {:?}", other.display().to_string());
        assert_ne!(key_of(&other, ""), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let file = std::fs::metadata(state.join(FILE)).expect("a file");
            assert_eq!(file.permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_configured_key_has_priority_and_a_bad_file_is_replaced_by_a_random_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "0123456789abcdef\n").expect("written");
        let file = format!("block_key_file = {:?}", path.display().to_string());
        let text = key_of("", "block_key = \"0123456789abcdef\"");
        assert_eq!(key_of("", &file), text);
        std::fs::write(&path, "short").expect("written");
        assert_eq!(key_of("", &file), of_process());
        assert_eq!(key_of("", "enabled = false"), [0; 32], "nothing needs it");
    }
}
