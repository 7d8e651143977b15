//! The schemas of what is answered.

mod call;
mod finished;
mod live;

use super::words::{object, of, words};
use serde_json::{Value, json};

/// All of them by name.
pub(super) fn all() -> Value {
    let mut all = json!({
        "Problem": object(&[("error", of("Error"), "What is wrong.")]),
        "Error": {
            "type": "object",
            "properties": {
                "status": {"type": "integer", "minimum": 400, "maximum": 599},
                "message": {"type": "string", "description": "What happened and what to do."},
                "parameter": {"type": "string", "description": "The parameter at fault."},
            },
            "required": ["status", "message"],
            "additionalProperties": false,
        },
        "Store": words(&["memory", "ledger"]),
    });
    for (name, schema) in [call::schemas(), finished::schemas(), live::schemas()].concat() {
        all[name] = schema;
    }
    all
}

/// Schemas by name.
type Named = Vec<(&'static str, Value)>;
