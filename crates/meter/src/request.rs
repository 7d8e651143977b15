//! The request of a call. A bounded copy of the body is read once for its facts. The copy is kept
//! until the provider reports the input tokens; otherwise its tokens are counted.

use std::sync::Arc;
use tokengauge_accounting::attribution::{Conversations, Rules, request_facts};
use tokengauge_core::background::yield_now;
use tokengauge_core::call::{Dialect, GenerationSettings, RequestFacts};
use tokengauge_core::memory::{Buffer, Memory, Share};
use tokengauge_tokenizer as tokens;
use tokengauge_wire as wire;

/// The longest request body that is read inline, in bytes. The worker reads longer ones.
pub(crate) const INLINE_BYTES: usize = 64 * 1024;
/// How many bytes of a prompt are counted before the thread yields. They take about 50 µs.
const SLICE_BYTES: usize = 4 * 1024;

#[derive(Debug)]
pub(crate) struct Request {
    dialect: Dialect,
    copy: Option<Buffer>,
    encoded: Option<Box<EncodedBody>>,
    complete: bool,
    read: bool,
    pub(crate) facts: Option<Box<RequestFacts>>,
    pub(crate) settings: Option<Box<GenerationSettings>>,
    traced: bool,
    /// Whether reading waits until the response shows a dialect.
    waits: bool,
    /// Whether there was a copy that is no longer kept.
    is_dropped: bool,
}

impl Request {
    /// Creates a request whose body is copied up to `limit` bytes. In a dialect without prompts
    /// nothing is copied.
    pub(crate) fn new(dialect: Dialect, memory: &Arc<Memory>, limit: usize) -> Request {
        let prompts = wire::DIALECTS.registration(dialect).request_in_body;
        Request {
            dialect,
            copy: prompts.then(|| Buffer::new(memory, limit)),
            encoded: None,
            complete: false,
            read: false,
            facts: None,
            settings: None,
            traced: false,
            waits: false,
            is_dropped: false,
        }
    }

    /// Creates a request to an unknown path. Its body is copied up to `limit` bytes, and read only
    /// after [`Request::is_of`] sets the dialect.
    pub(crate) fn waiting(memory: &Arc<Memory>, limit: usize) -> Request {
        Request {
            copy: Some(Buffer::new(memory, limit)),
            waits: true,
            ..Request::new(Dialect::Unknown, memory, limit)
        }
    }

    pub(crate) fn is_of(&mut self, dialect: Dialect) {
        self.dialect = dialect;
        self.waits = false;
    }

    pub(crate) fn forget(&mut self) {
        self.copy = None;
        (self.facts, self.settings) = (None, None);
    }

    /// Sets the content encodings of the body, and the `limit` in bytes for a body without any.
    pub(crate) fn encoded(
        self,
        names: Option<Box<str>>,
        memory: &Arc<Memory>,
        limit: usize,
    ) -> Request {
        let encoded = names.map(|names| EncodedBody {
            names,
            memory: Arc::clone(memory),
            limit,
        });
        Request {
            encoded: encoded.map(Box::new),
            ..self
        }
    }

    pub(crate) fn traced(self, traced: bool) -> Request {
        Request { traced, ..self }
    }

    pub(crate) fn of_message(&self, facts: RequestFacts, message: &[u8]) -> Request {
        let settings = Some(message).filter(|_| self.traced);
        Request {
            dialect: self.dialect,
            copy: None,
            encoded: None,
            complete: true,
            read: true,
            facts: Some(Box::new(facts)),
            settings: settings.and_then(wire::generation_settings).map(Box::new),
            traced: self.traced,
            waits: false,
            is_dropped: false,
        }
    }

    /// Adds a piece of the body. Returns `false` once, for the first piece that does not fit,
    /// unless the path is unknown.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let Some(copy) = &mut self.copy else {
            return true;
        };
        let fits = copy.extend(bytes).is_ok();
        if !fits {
            self.release();
        }
        fits || self.waits
    }

    pub(crate) fn complete(&mut self) {
        self.complete = true;
        if self.length() == 0 {
            self.copy = None;
        }
    }

    pub(crate) fn length(&self) -> usize {
        self.copy.as_ref().map_or(0, Buffer::len)
    }

    pub(crate) fn is_long(&self) -> bool {
        self.encoded.is_some() || self.length() > INLINE_BYTES
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.countable() && !self.read
    }

    /// Reads the facts, once. Returns `false` and drops the copy if the body cannot be decoded
    /// within its limits.
    pub(crate) fn read(&mut self, rules: &Rules) -> bool {
        if !self.is_unread() {
            return true;
        }
        self.read = true;
        let decodes = self.decode();
        let Some(copy) = &self.copy else {
            return decodes;
        };
        let _scratch = scratch(copy);
        self.facts = request_facts(self.dialect, rules, copy.as_slice()).map(Box::new);
        let body = Some(copy.as_slice()).filter(|_| self.traced);
        self.settings = body.and_then(wire::generation_settings).map(Box::new);
        decodes
    }

    pub(crate) fn guess_session(
        &mut self,
        conversations: &Conversations,
        seed: u64,
        new: impl FnOnce() -> String,
    ) {
        let (Some(copy), Some(facts)) = (&self.copy, &mut self.facts) else {
            return;
        };
        let _scratch = scratch(copy);
        let mut prefixes = conversations.prefixes(seed);
        wire::conversation_texts(copy.as_slice(), &mut |text| prefixes.push(text));
        facts.prefix_session = conversations.session(&prefixes, new);
    }

    fn decode(&mut self) -> bool {
        let Some(encoded) = self.encoded.take() else {
            return true;
        };
        let copy = self.copy.take();
        let decoded = copy.and_then(|copy| encoded.decode(copy.as_slice()));
        self.copy = decoded;
        self.copy.is_some()
    }

    /// Drops the copy, because the input tokens are known or not needed.
    pub(crate) fn release(&mut self) {
        self.is_dropped |= self.copy.is_some();
        self.copy = None;
    }

    /// Takes the copy if it is long, so that another thread can drop it.
    pub(crate) fn take_long(&mut self) -> Option<Buffer> {
        let long = self.copy.take_if(|copy| copy.len() > INLINE_BYTES);
        self.is_dropped |= long.is_some();
        long
    }

    pub(crate) fn countable(&self) -> bool {
        self.complete && !self.waits && self.copy.is_some()
    }

    /// Whether the body was dropped before the end, because it was too long or memory was short.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_dropped && self.copy.is_none()
    }

    /// Reads the body, if it is complete and there is a copy.
    pub(crate) fn body<T>(&self, read: impl FnOnce(Dialect, &[u8]) -> T) -> Option<T> {
        let copy = self.copy.as_ref().filter(|_| self.complete)?;
        let _scratch = scratch(copy);
        Some(read(self.dialect, copy.as_slice()))
    }

    /// Counts the tokens of the prompt's texts, each as one string. Returns `None` if no text was
    /// found, because such a body was not understood.
    pub(crate) fn count(&self) -> Option<u64> {
        let mut total = 0;
        self.body(|dialect, body| {
            wire::request_texts(dialect, body, &mut |text| total += count_yielding(text));
        })?;
        Some(total).filter(|total| *total > 0)
    }
}

#[derive(Debug)]
struct EncodedBody {
    names: Box<str>,
    memory: Arc<Memory>,
    limit: usize,
}

impl EncodedBody {
    fn decode(&self, body: &[u8]) -> Option<Buffer> {
        wire::decoded(&self.names, body, &self.memory, self.limit).ok()
    }
}

/// Reserves memory for the longest string of a body, which is copied if it has escapes. Only one
/// body is read at a time, so this may exceed the limit.
fn scratch(body: &Buffer) -> Option<Share> {
    (body.len() > INLINE_BYTES).then(|| {
        let mut share = body.empty_share();
        share.resize_over_limit(body.len());
        share
    })
}

/// Counts the tokens of a text as one string. A prompt may have megabytes, so this yields to
/// traffic every few kilobytes.
fn count_yielding(text: &str) -> u64 {
    let mut counter = tokens::Counter::new();
    for piece in text.as_bytes().chunks(SLICE_BYTES) {
        counter.push_bytes(piece);
        if piece.len() == SLICE_BYTES {
            yield_now();
        }
    }
    counter.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"model":"m-1","stream":true,"messages":[{"role":"user","content":"Why is the sky blue?"}]}"#;

    #[test]
    fn a_body_in_pieces_gives_its_facts_and_its_tokens() {
        let memory = Memory::new(1 << 20);
        let mut request = Request::new(Dialect::OpenaiChat, &memory, 1 << 20);
        for piece in BODY.chunks(7) {
            assert!(request.push(piece));
        }
        request.read(&Rules::default());
        assert!(request.facts.is_none(), "not before it is whole");
        request.complete();
        request.read(&Rules::default());
        let facts = request.facts.as_deref().expect("facts");
        assert_eq!(facts.model.as_deref(), Some("m-1"));
        assert_eq!(request.count(), Some(tokens::count("Why is the sky blue?")));
        request.release();
        assert_eq!((request.count(), memory.used()), (None, 0));
    }

    #[test]
    fn a_body_over_the_bound_is_dropped_and_its_memory_given_back() {
        let memory = Memory::new(1 << 20);
        let mut request = Request::new(Dialect::OpenaiChat, &memory, 50);
        assert!(request.push(&BODY[..50]));
        assert!(!request.push(&BODY[50..]));
        assert!(request.push(BODY), "says so once");
        request.complete();
        assert_eq!((request.count(), memory.used()), (None, 0));
    }

    #[test]
    fn a_body_without_a_prompt_has_an_unknown_input_not_an_empty_one() {
        let memory = Memory::new(1 << 20);
        for body in [&b"{}"[..], b"not JSON"] {
            let mut request = Request::new(Dialect::OpenaiChat, &memory, 1 << 20);
            assert!(request.push(body));
            request.complete();
            assert_eq!(request.count(), None);
        }
    }

    #[test]
    fn a_long_text_is_counted_as_one_however_it_is_cut() {
        for sign in ["a", "é", "語", "🙂", " word", "\n\n  x1"] {
            let text = sign.repeat(3 * SLICE_BYTES / sign.len() + 1);
            for text in [
                &text[..],
                &format!("x{text}"),
                &format!("xy{text}"),
                &format!("xyz{text}"),
            ] {
                assert_eq!(count_yielding(text), tokens::count(text), "{sign:?}");
            }
        }
        assert_eq!(count_yielding(""), 0);
    }

    #[test]
    fn a_request_to_an_unknown_path_is_read_once_its_dialect_is_known() {
        let memory = Memory::new(1 << 20);
        let mut request = Request::waiting(&memory, 1 << 20);
        assert!(request.push(BODY));
        request.complete();
        request.read(&Rules::default());
        assert!(request.facts.is_none() && !request.is_unread());
        request.is_of(Dialect::OpenaiChat);
        request.read(&Rules::default());
        let facts = request.facts.as_deref().expect("facts");
        assert_eq!(facts.model.as_deref(), Some("m-1"));
        assert_eq!(request.count(), Some(tokens::count("Why is the sky blue?")));
        request.forget();
        assert_eq!((request.facts.is_none(), memory.used()), (true, 0));
        let mut long = Request::waiting(&memory, 10);
        assert!(long.push(BODY), "nobody misses it");
        assert_eq!((long.length(), memory.used()), (0, 0));
    }

    #[test]
    fn nothing_is_copied_where_nothing_can_be_read() {
        let memory = Memory::new(1 << 20);
        let mut request = Request::new(Dialect::Unknown, &memory, 1 << 20);
        assert!(request.push(BODY));
        assert_eq!(memory.used(), 0);
    }
}
