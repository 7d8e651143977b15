//! Names of tools and servers, which requests choose.

use std::sync::Arc;
use tokengauge_core::prompt::tool_name;

/// A bounded name with valid characters only.
pub(crate) fn name(sent: &str) -> Arc<str> {
    tool_name(sent).into()
}
