//! A configuration for display: without comments, and without values that are or may be secrets.

use toml::{Table, Value};

/// Replaces a hidden text.
const HIDDEN: &str = "(hidden)";
/// Parts of keys whose texts are hidden.
const SECRET: [&str; 6] = [
    "token",
    "password",
    "secret",
    "credential",
    "authorization",
    "key",
];

/// Returns the text of a configuration with its tables in alphabetical order. Empty if the text is not valid TOML.
pub(super) fn redacted(text: &str) -> String {
    let Ok(mut table) = text.parse::<Table>() else {
        return String::new();
    };
    hide_in(&mut table, "");
    toml::to_string(&table).unwrap_or_default()
}

fn hide_in(table: &mut Table, name: &str) {
    for (key, value) in table.iter_mut() {
        hide(value, name, &key.to_ascii_lowercase());
    }
}

fn hide(value: &mut Value, table: &str, key: &str) {
    match value {
        Value::Table(inner) => hide_in(inner, key),
        Value::Array(all) => all.iter_mut().for_each(|one| hide(one, table, key)),
        Value::String(text) if is_secret(table, key) => HIDDEN.clone_into(text),
        Value::String(text) if text.contains("://") => *text = address(text, table == "notify"),
        _ => {}
    }
}

/// Whether a string may be a secret. File names are not secrets.
fn is_secret(table: &str, key: &str) -> bool {
    let named = SECRET.iter().any(|part| key.contains(part));
    table == "headers" || named && !key.ends_with("_file")
}

/// A URL without user, password and query. `host_alone` also removes the path, because the path of a receiver's URL may
/// be a secret.
fn address(url: &str, host_alone: bool) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let host = authority.rsplit('@').next().unwrap_or_default();
    match (host_alone, path) {
        (_, "") => format!("{scheme}://{host}"),
        (true, _) => format!("{scheme}://{host}/{HIDDEN}"),
        (false, path) => format!("{scheme}://{host}/{path}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANTED: &str = "PLANTED-SECRET-91c2";

    #[test]
    fn what_may_be_a_secret_is_not_shown() {
        let text = format!(
            "# {PLANTED} in a comment\n[[upstream]]\nname = \"u\"\nurl = \"http://me:{PLANTED}@host:81/base?k={PLANTED}\"\n\
             [[route]]\nupstream = \"u\"\nheaders = {{ authorization = \"{PLANTED}\", x-team = \"{PLANTED}\" }}\n\
             [admin]\ntoken = \"{PLANTED}\"\ntoken_file = \"/etc/token\"\n\
             [[agent]]\nname = \"a\"\nkey = \"{PLANTED}\"\n\
             [[workload]]\nname = \"w\"\nheaders = {{ x-api-key = \"{PLANTED}\" }}\n\
             [[notify]]\nkind = \"slack\"\nurl = \"https://hooks.slack.com/services/{PLANTED}\"\n\
             [[quota]]\nname = \"q\"\ntokens_per_minute = 5\n"
        );
        let shown = redacted(&text);
        assert!(!shown.contains(PLANTED), "{shown}");
        for kept in [
            "url = \"http://host:81/base\"",
            "x-team = \"(hidden)\"",
            "token_file = \"/etc/token\"",
            "https://hooks.slack.com/(hidden)",
            "tokens_per_minute = 5",
            "name = \"a\"",
        ] {
            assert!(shown.contains(kept), "{kept}\n{shown}");
        }
        assert!(shown.parse::<Table>().is_ok(), "{shown}");
        assert_eq!(redacted(&format!("token = {PLANTED}")), "");
    }
}
