//! Names that an operator assigns to agents by port, path and key, for SDKs whose user agent does
//! not identify them.

use std::sync::Arc;

pub const MAX_AGENT_NAMES: usize = 256;
const KEY_DIGITS: usize = 16;

/// Assigns a name to calls that match all conditions of the rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentNameRule {
    pub name: Arc<str>,
    pub port: Option<u16>,
    pub path: Option<String>,
    /// The digest of one of the call's keys, as [`crate::keys::keys_of`] returns it.
    pub key: Option<String>,
}

impl AgentNameRule {
    fn means(&self, port: Option<u16>, path: &str, keys: &[String]) -> bool {
        self.port.is_none_or(|wanted| port == Some(wanted))
            && self
                .path
                .as_deref()
                .is_none_or(|wanted| under(wanted, path))
            && self.key.as_ref().is_none_or(|wanted| keys.contains(wanted))
    }
}

/// The name from the first rule that matches a call to `port` for `path`. `keys` is called at most
/// once, and only if a rule depends on it.
pub(super) fn name_of<'a>(
    names: &'a [AgentNameRule],
    port: Option<u16>,
    path: &str,
    keys: impl FnOnce() -> Vec<String>,
) -> Option<&'a Arc<str>> {
    let by_key = names.iter().any(|name| name.key.is_some());
    let keys = if by_key { keys() } else { Vec::new() };
    let found = names.iter().find(|name| name.means(port, path, &keys));
    found.map(|found| &found.name)
}

pub(super) fn under(prefix: &str, path: &str) -> bool {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Checks that `text` can be the digest of a key. A key itself fails the check, so that no key can
/// stand in the configuration.
///
/// # Errors
/// The reason, without the text.
pub fn check_key(text: &str) -> Result<(), &'static str> {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() == KEY_DIGITS && text.bytes().all(digit) {
        return Ok(());
    }
    Err(
        "must be the 16 hexadecimal digits that `tokengauge print key-hash` prints for a key, not the key itself",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_has_all_that_is_asked_for_wins_and_keys_are_looked_at_only_where_needed() {
        let given = |name: &str, port, path: Option<&str>, key: Option<&str>| AgentNameRule {
            name: name.into(),
            port,
            path: path.map(str::to_owned),
            key: key.map(str::to_owned),
        };
        let plain = [
            given("a", Some(81), Some("/x/"), None),
            given("b", Some(81), None, None),
        ];
        let of = |names: &[AgentNameRule], port, path: &str| {
            let keys = || panic!("no name depends on a key");
            name_of(names, port, path, keys).map(|name| name.to_string())
        };
        assert_eq!(of(&plain, Some(81), "/x/y").as_deref(), Some("a"));
        assert_eq!(of(&plain, Some(81), "/xy").as_deref(), Some("b"));
        assert_eq!(of(&plain, Some(82), "/x"), None);
        assert_eq!(of(&plain, None, "/x"), None);
        let by_key = [given("k", None, Some("/x"), Some("0123456789abcdef"))];
        let with = |key: &str| name_of(&by_key, None, "/x", || vec![key.to_owned()]).is_some();
        assert!(with("0123456789abcdef") && !with("f123456789abcdef"));
    }

    #[test]
    fn what_stands_for_a_key_is_no_key() {
        assert_eq!(check_key("0123456789abcdef"), Ok(()));
        for key in [
            "",
            "0123456789abcde",
            "0123456789ABCDEF",
            "sk-0123456789abc",
        ] {
            assert!(check_key(key).is_err(), "{key}");
        }
    }
}
