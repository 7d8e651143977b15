//! Decodes UTF-8 that may be cut inside a character. Invalid bytes are replaced as by
//! [`String::from_utf8_lossy`] on the whole text.

#[derive(Clone, Copy, Default)]
pub(super) struct Utf8 {
    held: [u8; 4],
    len: u8,
}

impl Utf8 {
    /// Calls `text` with all complete text, starting with the held bytes.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut text: impl FnMut(&str)) {
        while self.len > 0 {
            let Some((&byte, rest)) = bytes.split_first() else {
                return;
            };
            let len = usize::from(self.len);
            self.held[len] = byte;
            match std::str::from_utf8(&self.held[..=len]) {
                Ok(character) => {
                    text(character);
                    (self.len, bytes) = (0, rest);
                }
                Err(error) if error.error_len().is_none() => {
                    (self.len, bytes) = (self.len + 1, rest);
                }
                // The new byte does not continue the held character, so the loop reads it again.
                Err(_) => self.finish(&mut text),
            }
        }
        for chunk in bytes.utf8_chunks() {
            text(chunk.valid());
            bytes = &bytes[chunk.valid().len() + chunk.invalid().len()..];
            if bytes.is_empty() && is_incomplete(chunk.invalid()) {
                self.held[..chunk.invalid().len()].copy_from_slice(chunk.invalid());
                self.len = chunk.invalid().len() as u8;
            } else if !chunk.invalid().is_empty() {
                text("\u{FFFD}");
            }
        }
    }

    pub(super) fn finish(&mut self, mut text: impl FnMut(&str)) {
        if self.len > 0 {
            text("\u{FFFD}");
        }
        self.len = 0;
    }
}

/// Whether more bytes could complete these invalid bytes to a character.
fn is_incomplete(invalid: &[u8]) -> bool {
    std::str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none())
}
