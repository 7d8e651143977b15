//! Searches payloads for fixed texts.

use memchr::memmem::Finder;
use std::sync::LazyLock;

/// A finder of a fixed text. Making a finder is more expensive than using it.
pub(super) type Text = LazyLock<Finder<'static>>;

macro_rules! texts {
    ($($name:ident = $text:literal;)*) => {
        $(pub(super) static $name: Text = LazyLock::new(|| Finder::new($text));)*
    };
}

texts! {
    BASE_RESP = "\"base_resp\"";
    DETAIL = "\"detail\"";
    ERROR = "\"error\"";
    ERROR_CODE = "\"error_code\"";
    INVOCATION_METRICS = "\"amazon-bedrock-invocationMetrics\"";
    MESSAGE = "\"message\"";
    MSG = "\"msg\"";
    OBJECT = "\"object\"";
    SUCCESS = "\"success\"";
    USAGE = "\"usage\"";
    USAGE_BEGIN = "\"usage";
}

pub(super) fn contains(payload: &[u8], text: &Text) -> bool {
    text.find(payload).is_some()
}
