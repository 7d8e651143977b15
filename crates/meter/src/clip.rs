//! Names and other short texts from the wire, truncated to a limit.

/// Stores a name. Most events repeat the name, so the usual cost is one comparison.
pub(crate) fn remember(kept: &mut Option<Box<str>>, name: &str, limit: usize) {
    let name = clip(name, limit);
    if kept.as_deref() != Some(name) {
        *kept = Some(name.into());
    }
}

/// The first `limit` characters of `text`.
pub(crate) fn clip(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        // A text never has more characters than bytes.
        return text;
    }
    let end = text
        .char_indices()
        .nth(limit)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}
