//! What a configuration that cannot be used was meant to forbid, read as leniently as it takes.
//! In doubt it forbids: who writes a limit counts on it.

use crate::caller::Mode;
use toml::{Table, Value};

/// Whether `text` may limit calls: it has a quota, a budget that blocks, or requests a minute.
/// What is in shadow mode does not. Where the text is no TOML, words decide.
pub(crate) fn may_limit(text: &str) -> bool {
    match text.parse::<Table>() {
        Ok(table) => limits(&table),
        Err(_) => {
            let has = |word: &str| lines(text).any(|line| line.contains(word));
            has("quota") || has("per_minute") || (has("budget") && lines(text).any(blocks_in_line))
        }
    }
}

/// Whether `text` may keep operators out who do not show a token.
pub(crate) fn may_have_token(text: &str) -> bool {
    match text.parse::<Table>() {
        Ok(table) => has_key(&table, "token"),
        Err(_) => lines(text).any(|line| {
            let mut words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.any(|word| word == "token" || word == "token_file")
        }),
    }
}

/// Whether `text` has the address for metrics ask for the token.
pub(crate) fn may_guard_metrics(text: &str) -> bool {
    let key = "metrics_token";
    match text.parse::<Table>() {
        Ok(table) => {
            let written = table.get("admin").and_then(|admin| admin.get(key));
            written.is_some_and(|written| *written != Value::Boolean(false))
        }
        Err(_) => lines(text).any(|line| line.contains(key) && !line.contains("false")),
    }
}

/// Misspelt and misplaced ones, too: they may be why the text is refused.
fn limits(table: &Table) -> bool {
    table.iter().any(|(key, value)| {
        let key = key.to_ascii_lowercase();
        if key.contains("quota") {
            any_of(value, |quota| !is_shadow(quota))
        } else if key.contains("budget") {
            any_of(value, |budget| !is_shadow(budget) && blocks(budget))
        } else if key.contains("per_minute") {
            true
        } else {
            tables(value).any(limits)
        }
    })
}

/// Whether one of the tables is so; what is neither a table nor a list of them is.
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

/// `block` is the only switch of a budget: what is `true` is meant to be it.
fn blocks(budget: &Table) -> bool {
    budget.iter().any(|(key, value)| {
        let is_block = key.to_ascii_lowercase().starts_with("block");
        *value == Value::Boolean(true) || (is_block && *value != Value::Boolean(false))
    })
}

fn has_key(table: &Table, wanted: &str) -> bool {
    table.iter().any(|(key, value)| {
        let is_it = key == wanted || key == &format!("{wanted}_file");
        is_it || tables(value).any(|table| has_key(table, wanted))
    })
}

/// Lines in lower case, without comments as far as that is certain.
fn lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| {
        let begins = |at: &usize| line[..*at].matches(['"', '\'']).count() % 2 == 0;
        let comment = line.match_indices('#').map(|(at, _)| at).find(begins);
        line[..comment.unwrap_or(line.len())].to_ascii_lowercase()
    })
}

fn blocks_in_line(line: String) -> bool {
    let after = line.split_once("block").map(|(_, after)| after);
    after
        .is_some_and(|after| after.trim_start_matches(['=', ':', ' ', '"', '\t']).trim() != "false")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: &str = "[[quota]]\nname = \"q\"\nrequests_per_minute = 5\n";
    const BUDGET: &str = "[[budget]]\nname = \"b\"\nusd = 5\n";
    /// Makes no TOML of what is before it.
    const BROKEN: &str = "\n[[upstream]\nname = \n";

    #[test]
    fn a_limit_is_found_whatever_is_wrong_beside_it() {
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
        ] {
            assert!(may_limit(limited), "{limited}");
            assert!(may_limit(&format!("unknown = 1\n{limited}")), "{limited}");
            if !limited.contains("bloc =") {
                assert!(may_limit(&format!("{limited}{BROKEN}")), "{limited}");
            }
        }
    }

    #[test]
    fn what_holds_nobody_up_is_no_limit() {
        for free in [
            "",
            "listen = 1",
            BUDGET,
            "[[budget]]\nname = \"b\"\nblock = false",
            "quota = []",
            "# [[quota]]\n[[route]]\npath = \"/a\" # no quota here",
        ] {
            assert!(!may_limit(free), "{free}");
            if !free.contains("quota = []") {
                assert!(!may_limit(&format!("{free}{BROKEN}")), "{free}");
            }
        }
        for shadow in [QUOTA, BUDGET] {
            let shadow = format!("{shadow}mode = \"shadow\"\n");
            assert!(!may_limit(&shadow), "{shadow}");
        }
        // What cannot be read as a table could belong to any of them.
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
    fn a_token_is_found_whatever_is_wrong_beside_it() {
        for guarded in [
            "[admin]\ntoken_file = \"/run/token\"",
            "admin.token = \"0123456789abcdef\"",
            "[admin]\ntoken = 5",
        ] {
            assert!(may_have_token(guarded), "{guarded}");
            assert!(may_have_token(&format!("{guarded}{BROKEN}")), "{guarded}");
        }
        for open in [
            "",
            "[admin]\nmetrics_listen = 5",
            "[[quota]]\ntokens_per_minute = 5",
        ] {
            assert!(!may_have_token(open), "{open}");
            assert!(!may_have_token(&format!("{open}{BROKEN}")), "{open}");
        }
    }
}
