//! The bearer token of the admin address.

use axum::http::{HeaderValue, header};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::hint::black_box;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokengauge_config::{self as config, InvalidToken, check_token};

/// The shortest interval between two checks of the token file.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const MAX_BYTES: u64 = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Missing,
    Wrong,
}

pub(super) struct Token {
    file: Option<PathBuf>,
    state: Mutex<ReadToken>,
}

struct ReadToken {
    digest: [u8; 32],
    checked: Instant,
}

#[derive(Debug, thiserror::Error)]
#[error("admin.token_file {}: {source}", path.display())]
pub struct TokenFileError {
    path: PathBuf,
    source: TokenFileProblem,
}

#[derive(Debug, thiserror::Error)]
enum TokenFileProblem {
    #[error("cannot be read: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error(transparent)]
    Invalid(#[from] InvalidToken),
}

impl Token {
    pub(super) fn new(written: &config::Token, now: Instant) -> Result<Token, TokenFileError> {
        let (file, digest) = match written {
            config::Token::Text(secret) => (None, digest(secret.reveal())),
            config::Token::File(path) => (Some(path.clone()), digest_of_file(path)?),
        };
        let checked = now;
        Ok(Token {
            file,
            state: Mutex::new(ReadToken { digest, checked }),
        })
    }

    /// Whether `authorization` contains the token. The time does not depend on the content of a token.
    pub(super) fn check(
        &self,
        authorization: Option<&HeaderValue>,
        now: Instant,
    ) -> Result<(), Refused> {
        let shown = authorization.and_then(bearer).ok_or(Refused::Missing)?;
        let (shown, wanted) = (Sha256::digest(shown), self.digest(now));
        let differing = shown.iter().zip(&wanted);
        let differing = differing.fold(0, |bits, (one, other)| black_box(bits | (one ^ other)));
        if differing == 0 {
            Ok(())
        } else {
            Err(Refused::Wrong)
        }
    }

    /// The digest of the newest valid token. If the file cannot be used, the previous token stays valid.
    fn digest(&self, now: Instant) -> [u8; 32] {
        let mut state = self.state.lock();
        if let Some(file) = &self.file
            && now.saturating_duration_since(state.checked) >= CHECK_EVERY
        {
            state.checked = now;
            match digest_of_file(file) {
                Ok(digest) => state.digest = digest,
                Err(error) => {
                    tracing::warn!(%error, "the admin token file cannot be read; the previous token stays valid");
                }
            }
        }
        state.digest
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn digest_of_file(path: &Path) -> Result<[u8; 32], TokenFileError> {
    read(path).map_err(|source| TokenFileError {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path) -> Result<[u8; 32], TokenFileProblem> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    let token = text.trim();
    check_token(token)?;
    Ok(digest(token))
}

fn bearer(authorization: &HeaderValue) -> Option<&str> {
    let (scheme, token) = authorization.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

pub(super) const HEADER: header::HeaderName = header::AUTHORIZATION;

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_config::Secret;

    const GOOD: &str = "0123456789abcdef";

    fn shows(token: &Token, text: &str, now: Instant) -> Result<(), Refused> {
        let value = HeaderValue::from_str(text).expect("a header");
        token.check(Some(&value), now)
    }

    #[test]
    fn only_the_token_itself_is_let_in() {
        let now = Instant::now();
        let token = config::Token::Text(Secret::new(GOOD));
        let token = Token::new(&token, now).expect("usable");
        assert_eq!(shows(&token, &format!("Bearer {GOOD}"), now), Ok(()));
        assert_eq!(shows(&token, &format!("bearer  {GOOD} "), now), Ok(()));
        for wrong in ["Bearer", "Basic x", GOOD, ""] {
            assert_eq!(shows(&token, wrong, now), Err(Refused::Missing), "{wrong}");
        }
        for wrong in [
            "Bearer x",
            "Bearer 0123456789abcdeF",
            "Bearer 0123456789abcdef0",
        ] {
            assert_eq!(shows(&token, wrong, now), Err(Refused::Wrong), "{wrong}");
        }
        assert_eq!(token.check(None, now), Err(Refused::Missing));
    }

    #[test]
    fn a_file_is_read_again_and_one_that_cannot_be_used_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        std::fs::write(&path, format!("{GOOD}\n")).expect("written");
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let token = Token::new(&config::Token::File(path.clone()), now).expect("usable");
        assert_eq!(shows(&token, &format!("Bearer {GOOD}"), now), Ok(()));
        std::fs::write(&path, "another-token-of-some-length").expect("written");
        let new = "Bearer another-token-of-some-length";
        assert_eq!(shows(&token, new, later(2)), Ok(()));
        std::fs::write(&path, "short").expect("written");
        assert_eq!(shows(&token, new, later(4)), Ok(()));
        let error = Token::new(&config::Token::File(path.clone()), now).err();
        let error = error.expect("too short");
        assert!(
            error.to_string().contains("at least 16") && !error.to_string().contains("short\""),
            "{error}"
        );
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(shows(&token, new, later(6)), Ok(()));
        assert!(Token::new(&config::Token::File(path), now).is_err());
    }
}
