//! Prints the processor time of the analysis for a first prompt and for the next turn, and the
//! memory of one session: `cargo run --release -p tokengauge-analysis --example turns`.

use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use tokengauge_analysis::{Analysis, BlockKey, Scope};
use tokengauge_core::call::{CallRecord, Dialect};

const REPEATED: u32 = 20;
const TEXT: &str =
    "fn main() {\n    let lines = read(\"src/lib.rs\")?; // the 42 files of the crate\n}\n";

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The request of an agent after `turns` turns, each of which has about 1,000 tokens.
fn body(turns: usize) -> String {
    let mut messages = Vec::new();
    for turn in 0..turns {
        let text = |lines: usize| serde_json::Value::from(TEXT.repeat(lines)).to_string();
        messages.push(format!(
            r#"{{"role":"assistant","content":[{{"type":"text","text":"Reading file {turn}."}},{{"type":"tool_use","id":"toolu_{turn}","name":"read","input":{{"path":"src/{turn}.rs"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"toolu_{turn}","content":{}}}]}}"#,
            text(41)
        ));
    }
    format!(
        r#"{{"model":"m","system":"You are a coding agent.","messages":[{{"role":"user","content":"Fix it."}},{}],"tools":[{{"name":"read","input_schema":{{"type":"object"}}}}]}}"#,
        messages.join(",")
    )
}

fn record() -> CallRecord {
    let json = include_str!("../tests/record.json");
    serde_json::from_str(json).expect("a record")
}

fn main() {
    println!("tokens   body KB  first ms  next ms  session KB");
    for turns in [1, 10, 100] {
        let (first, next) = (body(turns), body(turns + 1));
        let (mut cold, mut warm, mut held, mut tokens) = (Duration::MAX, Duration::MAX, 0, 0);
        for _ in 0..REPEATED {
            let mut analysis = Analysis::new(1 << 30, BlockKey::new(b"k"));
            let at = Instant::now();
            let mut turn = |body: &str| {
                let begun = processor_time();
                let scope = Scope::default();
                let prompt = analysis.read(
                    Dialect::Anthropic,
                    body.as_bytes(),
                    &scope,
                    Instant::now(),
                    &mut || {},
                );
                let prompt = prompt.expect("a prompt");
                tokens = prompt.parts().total();
                analysis.finish(prompt, &mut record(), at, |_, _| None);
                held = analysis.counts().held_bytes;
                processor_time() - begun
            };
            cold = cold.min(turn(&first));
            warm = warm.min(turn(&next));
        }
        println!(
            "{tokens:>6} {:>10} {:>9.2} {:>8.3} {:>11}",
            next.len() / 1000,
            cold.as_secs_f64() * 1e3,
            warm.as_secs_f64() * 1e3,
            held / 1000
        );
    }
}
