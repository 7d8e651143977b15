//! Validates values that agents send, and makes pseudonyms of users.

use sha2::{Digest, Sha256};

/// The limit for a value, in characters.
pub(super) const MAX_VALUE: usize = 200;

#[derive(Debug, Default)]
pub(super) struct RankedValue(Option<(usize, String)>);

impl RankedValue {
    /// Takes `value` if it is valid and its rank is lower than the current one.
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

/// The value trimmed and truncated; `None` if it is empty or has control characters.
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

/// The name and version of the first product in a user agent. A name may have two words, as in
/// `Codex Desktop/1`. `Grafana k6/1.3` is k6, and `Python/3.11 aiohttp/3.14` is aiohttp.
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

/// The user in records: the first 32 hexadecimal digits of the SHA-256 of the name. It is stable
/// over restarts and pods, so calls of one user belong together. It hides names from readers of
/// records, but anyone can guess a name and hash it.
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
