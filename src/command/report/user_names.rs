//! `--user-names`: a local file with names of users, whose hashes are in the records.

use super::ReportCommandError;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use tokengauge_accounting::attribution::pseudonym;
use tokengauge_core::call::CallRecord;

#[derive(Debug, Default)]
pub(super) struct UserNames(HashMap<String, String>);

impl UserNames {
    /// Reads a file. Each line is a user as agents send it, or `USER = NAME`. `#` begins a comment.
    pub(super) fn read(path: &Path) -> Result<UserNames, ReportCommandError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ReportCommandError::UserNames(path.to_owned(), error))?;
        Ok(UserNames::of(&text))
    }

    fn of(text: &str) -> UserNames {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let named = lines.map(|line| {
            let (user, name) = line.split_once(" = ").unwrap_or((line, line));
            let hash = pseudonym(user.trim_end().to_owned(), true);
            (hash, name.trim_start().to_owned())
        });
        UserNames(named.collect())
    }

    pub(super) fn named<'a>(&self, call: &'a CallRecord) -> Cow<'a, CallRecord> {
        let name = call.user.as_ref().and_then(|user| self.0.get(user));
        match name {
            None => Cow::Borrowed(call),
            Some(name) => Cow::Owned(CallRecord {
                user: Some(name.clone()),
                ..call.clone()
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_the_hash_of_what_agents_send() {
        let names = UserNames::of("# ours\nann@example.com\n\n  u-17 = Bob B.\n");
        let hash = |user: &str| pseudonym(user.to_owned(), true);
        assert_eq!(names.0[&hash("ann@example.com")], "ann@example.com");
        assert_eq!(names.0[&hash("u-17")], "Bob B.");
        assert_eq!(names.0.len(), 2);
    }
}
