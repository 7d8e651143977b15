//! Finds files that a configuration names and that cannot be read, with their lines.

use super::problems::{Invalid, Problem};
use std::fs::File;
use toml::de::{DeTable, DeValue};

/// Keys whose values are files that must exist.
const KEYS: [&str; 11] = [
    "access_key_id_file",
    "block_key_file",
    "ca",
    "certificate",
    "client_ca",
    "key",
    "password_file",
    "routing_key_file",
    "secret_access_key_file",
    "token_file",
    "url_file",
];

/// Returns an error that lists every named file of `text` that cannot be opened.
pub fn check(text: &str, origin: &str) -> Result<(), Invalid> {
    let mut found = Vec::new();
    if let Ok(table) = DeTable::parse(text) {
        look(text, table.get_ref(), &mut found);
    }
    found.sort_by_key(|problem| (problem.line, problem.column));
    if found.is_empty() {
        Ok(())
    } else {
        Err(Invalid::new(origin, found))
    }
}

fn look(text: &str, table: &DeTable<'_>, found: &mut Vec<Problem>) {
    for (key, value) in table {
        match value.get_ref() {
            // The keys of `headers` are header names, not settings.
            DeValue::Table(_) if *key.get_ref() == "headers" => {}
            DeValue::Table(table) => look(text, table, found),
            DeValue::Array(items) => {
                let tables = items.iter().filter_map(|item| item.get_ref().as_table());
                tables.for_each(|table| look(text, table, found));
            }
            DeValue::String(path) if KEYS.contains(&&**key.get_ref()) => {
                if let Err(error) = File::open(&**path) {
                    let reason = format!("{path} cannot be read: {error}");
                    found.push(Problem::at(text, value.span().start, reason));
                }
            }
            _ => {}
        }
    }
}
