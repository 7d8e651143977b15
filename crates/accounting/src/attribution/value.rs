//! Values that agents send: their validation, and pseudonyms of users.

use sha2::{Digest, Sha256};

/// The most characters that are kept of a value.
pub(super) const MAX_VALUE: usize = 200;

/// The value with the lowest rank so far.
#[derive(Debug, Default)]
pub(super) struct RankedValue(Option<(usize, String)>);

impl RankedValue {
    /// Takes `value` if it is valid and its rank is lower than that of the current one.
    pub(super) fn offer(&mut self, rank: usize, value: &str) {
        if self.0.as_ref().is_none_or(|(best, _)| rank < *best)
            && let Some(value) = clean(value)
        {
            self.0 = Some((rank, value));
        }
    }

    pub(super) fn value(self) -> Option<String> {
        self.0.map(|(_, value)| value)
    }
}

/// A valid value: trimmed, not empty, without control characters, cut to the maximum.
pub(super) fn clean(value: &str) -> Option<String> {
    let value = value.trim();
    let usable = !value.is_empty() && !value.contains(char::is_control);
    usable.then(|| {
        if value.len() > MAX_VALUE {
            value.chars().take(MAX_VALUE).collect()
        } else {
            value.to_owned()
        }
    })
}

/// The first product of a user agent: its name and version. A name may have two words, as in
/// `Codex Desktop/1`; `Grafana k6/1.3` is k6, and `Python/3.11 aiohttp/3.14` is aiohttp.
pub(super) fn product(user_agent: &str) -> &str {
    let user_agent = user_agent.trim();
    let user_agent = user_agent.strip_prefix("Grafana ").unwrap_or(user_agent);
    let behind = user_agent.split_once(char::is_whitespace);
    let behind = behind.filter(|(first, _)| first.starts_with("Python/"));
    let user_agent = behind.map_or(user_agent, |(_, library)| library.trim_start());
    let ends = user_agent
        .match_indices(char::is_whitespace)
        .map(|(at, _)| at);
    let mut words = ends.chain([user_agent.len()]);
    let first = &user_agent[..words.next().unwrap_or_default()];
    let two = words.next().map(|end| &user_agent[..end]);
    let named = two.filter(|two| !first.contains('/') && two.contains('/'));
    named.unwrap_or(first)
}

pub(super) fn without_version(product: &str) -> &str {
    product.split_once('/').map_or(product, |(name, _)| name)
}

/// The user as records name it: the first 32 hexadecimal digits of the SHA-256 of the name,
/// stable over restarts and pods so that calls of one user belong together. This hides names
/// from readers of records; it does not protect against guessing a name and hashing it.
pub fn pseudonym(user: String, hashed: bool) -> String {
    if !hashed {
        return user;
    }
    let mut digest = Sha256::new();
    digest.update(b"tokengauge user\0");
    digest.update(user.as_bytes());
    let digest = digest.finalize();
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
