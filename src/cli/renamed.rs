//! The old names of commands, which work until the next minor version.

use std::ffi::OsString;

/// The version that removes the old names.
const GONE_WITH: &str = "0.4";

/// Old and new names of commands. Old names of two words precede their first word.
pub const RENAMED: &[(&str, &str)] = &[
    ("ab", "experiment"),
    ("capsule", "slo incident"),
    ("completions", "print completions"),
    ("config reference", "print keys"),
    ("config schema", "print schema"),
    ("config", "print"),
    ("dashboards", "print dashboards"),
    ("injector", "inject serve"),
    ("key-hash", "print key-hash"),
    ("man", "print man"),
    ("mark", "annotate"),
    ("metrics", "print metrics"),
    ("replay", "print record"),
    ("rules", "print rules"),
    ("session", "report session"),
    ("sim", "demo backend"),
    ("sink", "export sink"),
];

/// Replaces an old command name in the arguments of the process. Also returns a deprecation notice.
pub fn with_present_names(
    arguments: impl IntoIterator<Item = OsString>,
) -> (Vec<OsString>, Option<String>) {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    // The first argument is the name of the program.
    let at = match arguments.get(1) {
        Some(first) if first == "help" => 2,
        _ => 1,
    };
    let given = arguments.get(at..).unwrap_or_default();
    let found = RENAMED
        .iter()
        .find(|(old, _)| old.split(' ').eq(given.iter().take(old.split(' ').count())));
    let Some((old, new)) = found else {
        return (arguments, None);
    };
    let words = old.split(' ').count();
    arguments.splice(at..at + words, new.split(' ').map(OsString::from));
    let note = format!(
        "`tokengauge {old}` is now `tokengauge {new}`; version {GONE_WITH} removes the old name"
    );
    (arguments, Some(note))
}
