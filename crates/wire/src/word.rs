/// Maximum length of the name of a model, user or session, in characters.
const MAX_WORD: usize = 200;

/// A valid name: not empty, without control characters, and truncated if it is too long.
pub(super) fn word(text: &str) -> Option<String> {
    let text = text.trim();
    let fit = !text.is_empty() && !text.chars().any(char::is_control);
    fit.then(|| text.chars().take(MAX_WORD).collect())
}
