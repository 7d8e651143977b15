//! Names and other short texts off the wire, kept up to a length.

/// Stores a name. Most events repeat it, which costs only a comparison.
pub(crate) fn remember(kept: &mut Option<Box<str>>, name: &str, limit: usize) {
    let name = clip(name, limit);
    if kept.as_deref() != Some(name) {
        *kept = Some(name.into());
    }
}

/// At most `limit` characters of `text`.
pub(crate) fn clip(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        // Characters are no more than bytes.
        return text;
    }
    let end = text
        .char_indices()
        .nth(limit)
        .map_or(text.len(), |(at, _)| at);
    &text[..end]
}
