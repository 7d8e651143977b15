//! Looks for fixed texts in payloads.

use memchr::memmem::Finder;
use std::sync::LazyLock;

/// What finds a text. It is made once, because that takes longer than to use it.
pub(super) type Text = LazyLock<Finder<'static>>;

/// The texts that are looked for in many payloads.
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
