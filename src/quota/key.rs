//! Whose key a request carries, without the key.

use http::HeaderMap;
use sha2::{Digest, Sha256};

/// Where providers take keys, the first wins.
const HEADERS: [&str; 4] = ["authorization", "x-api-key", "api-key", "x-goog-api-key"];

/// What stands for the key of a request: the same for the same key, and no way back.
pub fn key_of(headers: &HeaderMap) -> Option<String> {
    let mut sent = HEADERS.iter().filter_map(|name| headers.get(*name));
    let mut digest = Sha256::new();
    digest.update(b"tokengauge key\0");
    digest.update(sent.next()?.as_bytes());
    let digest = digest.finalize();
    Some(
        digest
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_is_known_again_and_cannot_be_read() {
        let of = |name: &'static str, value: &'static str| {
            let value = http::HeaderValue::from_static(value);
            key_of(&HeaderMap::from_iter([(
                name.parse().expect("a name"),
                value,
            )]))
        };
        let one = of("authorization", "Bearer sk-secret").expect("a key");
        assert_eq!(one.len(), 16);
        assert!(!one.contains("secret"));
        assert_eq!(of("authorization", "Bearer sk-secret"), Some(one.clone()));
        assert_ne!(of("x-api-key", "sk-other"), Some(one));
        assert_eq!(key_of(&HeaderMap::new()), None);
    }
}
