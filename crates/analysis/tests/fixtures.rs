//! The parts of the handwritten requests of all dialects add up to the counted input.

use serde_json::Value;
use std::time::Instant;
use tokengauge_analysis::{Analysis, BlockKey, Scope};
use tokengauge_core::call::Dialect;
use tokengauge_tokenizer as tokens;
use tokengauge_wire::request_texts;

#[test]
fn the_parts_of_every_request_add_up_to_the_counted_input() {
    let requests: Vec<Value> =
        serde_json::from_str(include_str!("../../../tests/fixtures/requests.json"))
            .expect("requests");
    let mut analysis = Analysis::new(8 << 20, BlockKey::new(b"key"));
    for request in &requests {
        let dialect: Dialect =
            serde_json::from_value(request["dialect"].clone()).expect("a dialect");
        let body = request["body"].to_string();
        let mut counted = 0;
        request_texts(dialect, body.as_bytes(), &mut |text| {
            counted += tokens::count(text)
        });
        let read = analysis.read(
            dialect,
            body.as_bytes(),
            &Scope::default(),
            Instant::now(),
            &mut || {},
        );
        let parts = read
            .map(|prompt| prompt.parts().clone())
            .unwrap_or_default();
        assert_eq!(parts.total(), counted, "{}", request["path"]);
        let tools: u64 = parts.tools.iter().map(|tool| tool.schema).sum();
        assert_eq!(tools, parts.tool_schemas, "{}", request["path"]);
        let results = parts
            .tools
            .iter()
            .map(|tool| tool.new_results + tool.resent_results);
        assert_eq!(
            results.sum::<u64>(),
            parts.tool_results,
            "{}",
            request["path"]
        );
    }
    assert!(requests.len() > 40);
}
