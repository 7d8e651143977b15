//! Guesses whether a refused configuration was meant to limit calls or access. It reads the text leniently and answers
//! yes if in doubt, because a mistake must not drop a limit.

use tokengauge_core::caller::Mode;
use toml::{Table, Value};

/// Whether `text` may limit calls outside of shadow mode: it has a quota, a budget that blocks, or a limit per minute,
/// in a table of any name. If the text is not valid TOML, its words decide.
pub fn may_limit(text: &str) -> bool {
    match text.parse::<Table>() {
        Ok(table) => limits(&table),
        Err(_) => lines(text).any(|line| {
            let has = |word: &str| line.contains(word);
            has("quota") || has("per_minute") || has("concurrent") || {
                let blocks = |(key, value): (&str, &str)| {
                    key.starts_with("block") && !value.starts_with("false")
                };
                members(&line).any(blocks) || has_escaped_key(&line)
            }
        }),
    }
}

/// Whether `text` may require a token or a certificate at the admin address, or disable it.
pub fn may_have_token(text: &str) -> bool {
    match text.parse::<Table>() {
        Ok(table) => keeps_out(&table, false),
        Err(_) => lines(text).any(|line| {
            let tokens = |(key, value): (&str, &str)| keeps_out_by(key, value, false);
            members(&line).any(tokens) || line.contains("client_ca") || has_escaped_key(&line)
        }),
    }
}

/// Whether `text` may require the token at the metrics address.
pub fn may_guard_metrics(text: &str) -> bool {
    let key = "metrics_token";
    match text.parse::<Table>() {
        Ok(table) => {
            let written = table.get("admin").and_then(|admin| admin.get(key));
            written.is_some_and(|written| *written != Value::Boolean(false))
        }
        Err(_) => lines(text).any(|line| line.contains(key) && !line.contains("false")),
    }
}

/// Whether a table has limits. Misspelt and misplaced limits count, because they may be why the text was refused.
fn limits(table: &Table) -> bool {
    let shadow = is_shadow(table);
    table.iter().any(|(key, value)| {
        let key = key.to_ascii_lowercase();
        if key == "quota_store" || key == "runaway" {
            // These tables only say where limits are counted, or set ceilings that refuse nothing by themselves.
            false
        } else if key.contains("quota") || (key.contains("limit") && key != "limits") {
            any_of(value, |quota| !is_shadow(quota))
        } else if key.contains("budget") {
            any_of(value, |budget| !is_shadow(budget) && blocks(budget))
        } else if key.contains("per_minute") || key.contains("concurrent") {
            !shadow
        } else if key.starts_with("block") {
            !shadow && *value != Value::Boolean(false)
        } else {
            tables(value).any(limits)
        }
    })
}

/// Whether `is` holds for one of the tables. True if the value is neither a table nor a list.
fn any_of(value: &Value, is: impl Fn(&Table) -> bool) -> bool {
    match value {
        Value::Table(table) => is(table),
        Value::Array(all) => all.iter().any(|one| one.as_table().is_none_or(&is)),
        _ => true,
    }
}

fn tables(value: &Value) -> impl Iterator<Item = &Table> {
    let all = match value {
        Value::Array(all) => all.as_slice(),
        one => std::slice::from_ref(one),
    };
    all.iter().filter_map(Value::as_table)
}

fn is_shadow(limit: &Table) -> bool {
    let mode = limit.get("mode").cloned();
    mode.is_some_and(|mode| mode.try_into() == Ok(Mode::Shadow))
}

/// Whether a budget blocks. `block` is the only boolean of a budget, so any `true` counts.
fn blocks(budget: &Table) -> bool {
    budget.iter().any(|(key, value)| {
        let is_block = key.to_ascii_lowercase().starts_with("block");
        *value == Value::Boolean(true) || (is_block && *value != Value::Boolean(false))
    })
}

/// Whether `table` restricts access. Some keys do so only within `admin`.
fn keeps_out(table: &Table, admin: bool) -> bool {
    table.iter().any(|(key, value)| {
        let key = key.to_ascii_lowercase();
        let below = admin || key.contains("admin");
        keeps_out_by(&key, &value.to_string(), admin)
            || tables(value).any(|table| keeps_out(table, below))
    })
}

/// Whether a key restricts access. Keys that count tokens do not.
fn keeps_out_by(key: &str, value: &str, admin: bool) -> bool {
    let token = key.contains("token") && key != "metrics_token";
    let switched_off = key.starts_with("enable") && value.starts_with("false");
    token && (admin || !key.contains("tokens")) || switched_off || key.contains("client_ca")
}

/// The lines in lower case, without comments. A `#` within quotes, or in a file with multi-line strings, does
/// not start a comment.
fn lines(text: &str) -> impl Iterator<Item = String> {
    let certain = !text.contains("\"\"\"") && !text.contains("'''");
    text.lines().map(move |line| {
        let end = comment(line).filter(|_| certain).unwrap_or(line.len());
        line[..end].to_ascii_lowercase()
    })
}

/// Byte offset at which the comment of a line starts.
fn comment(line: &str) -> Option<usize> {
    let (mut quote, mut before) = (None, ' ');
    for (at, sign) in line.char_indices() {
        match quote {
            None if sign == '#' && before.is_whitespace() => return Some(at),
            None if matches!(sign, '"' | '\'') => quote = Some(sign),
            Some(open) if sign == open && (before != '\\' || open == '\'') => quote = None,
            _ => {}
        }
        before = sign;
    }
    None
}

/// The key-value pairs of a line of TOML or YAML, as far as can be known: the text before each `=` or `:`, and all text
/// after it.
fn members(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let quotes = |sign: char| sign.is_whitespace() || matches!(sign, '"' | '\'');
    line.match_indices(['=', ':']).map(move |(at, _)| {
        let before = line[..at].trim_end_matches(quotes);
        let of_word = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '_' | '-');
        let word = before.rfind(|sign| !of_word(sign)).map_or(0, |end| {
            end + before[end..].chars().next().map_or(0, char::len_utf8)
        });
        (&before[word..], line[at + 1..].trim_start_matches(quotes))
    })
}

/// Whether a key or table name is written with escapes, so that it may be any name.
fn has_escaped_key(line: &str) -> bool {
    let key = line.split('=').next().unwrap_or_default();
    key.contains('\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: &str = "[[quota]]\nname = \"q\"\nrequests_per_minute = 5\n";
    const BUDGET: &str = "[[budget]]\nname = \"b\"\nusd = 5\n";
    const BROKEN: &str = "\n[[upstream]\nname = \n";

    #[test]
    fn a_limit_is_found_whatever_else_is_wrong() {
        for limited in [
            QUOTA,
            "[limits]\nrequests_per_minute = 5",
            "budget = [{ name = \"b\", usd = 5, block = true }]",
            "quota = 5",
            "[[quotas]]\nname = \"misspelt\"",
            "[[route.quota]]\nname = \"misplaced\"",
            "[[budget]]\nbloc = true",
            "[[budget]]\nblock = \"yes\"",
            "[[Quota]]\nmode = \"Shadow\"",
            "[[qouta]]\nconcurrent = 0",
            "[[bugdet]]\nusd = 5\nblock = true",
            "bugdet = [{ name = \"it's # 1\", block = true }]",
            "[[limit]]\nrequests_per_minute = 5",
            "[[rate_limit]]\nconcurrent = 5",
            "[[\"qu\\u006fta\"]]\nrequests = 5",
        ] {
            assert!(may_limit(limited), "{limited}");
            assert!(may_limit(&format!("unknown = 1\n{limited}")), "{limited}");
            if !limited.contains("bloc =") {
                assert!(may_limit(&format!("{limited}{BROKEN}")), "{limited}");
            }
        }
    }

    #[test]
    fn what_limits_no_call_is_no_limit() {
        for free in [
            "",
            "listen = 1",
            BUDGET,
            "[[budget]]\nname = \"b\"\nblock = false",
            "quota = []",
            "[quota_store]\nurl = \"redis://valkey\"",
            "# [[quota]]\n[[route]]\npath = \"/a\" # no quota here",
            "[[route]]\npath = \"it's\" # no quota here",
            "[[route]]\nname = \"block-1\"",
            "[[bugdet]]\nusd = 5\nblock = false",
            "[limits]\nconnections = 5",
        ] {
            assert!(!may_limit(free), "{free}");
            // Without tables, the word decides.
            if !free.starts_with("quota") && !free.starts_with("[quota") {
                assert!(!may_limit(&format!("{free}{BROKEN}")), "{free}");
            }
        }
        for shadow in [QUOTA, BUDGET, "[[qouta]]\nconcurrent = 0\n"] {
            let shadow = format!("{shadow}mode = \"shadow\"\n");
            assert!(!may_limit(&shadow), "{shadow}");
        }
        // In invalid TOML, `shadow` could belong to any table.
        assert!(may_limit(&format!("{QUOTA}mode = \"shadow\"{BROKEN}")));
    }

    #[test]
    fn metrics_are_guarded_unless_that_is_switched_off() {
        let guards = "[admin]\nmetrics_token = true";
        let open = "[admin]\nmetrics_token = false # true";
        for end in ["", BROKEN] {
            assert!(may_guard_metrics(&format!("{guards}{end}")));
            assert!(!may_guard_metrics(&format!("{open}{end}")));
        }
    }

    #[test]
    fn a_token_is_found_whatever_else_is_wrong() {
        for guarded in [
            "[admin]\ntoken_file = \"/run/token\"",
            "admin.token = \"0123456789abcdef\"",
            "[admin]\ntoken = 5",
            "[admin]\ntokenfile = \"/run/token\"",
            "[admin]\nauth_token = \"0123456789abcdef\"",
            "[admin]\n\"tok\\u0065n\" = \"0123456789abcdef\"",
            "[amdin]\ntoken_file = \"/run/token\"",
            "[admin]\nenabled = false",
            "[admin.tls]\nclient_ca = \"ca.pem\"",
            "admin = { metrics_token = true, token = \"0123456789abcdef\" }",
        ] {
            assert!(may_have_token(guarded), "{guarded}");
            assert!(may_have_token(&format!("{guarded}{BROKEN}")), "{guarded}");
        }
        for open in [
            "",
            "[admin]\nmetrics_listen = 5",
            "[[quota]]\ntokens_per_minute = 5",
            "[admin]\nmetrics_token = true\nenabled = true",
        ] {
            assert!(!may_have_token(open), "{open}");
            assert!(!may_have_token(&format!("{open}{BROKEN}")), "{open}");
        }
    }
}
