use super::*;
use crate::DIALECTS;
use tokengauge_core::call::Channel;

/// What the events of a stream, or with one payload also a body, are read as, without what comes
/// with every event.
fn read_by(dialect: Dialect, take: impl Fn(&mut EventReader, Sink<'_>)) -> Vec<String> {
    let mut said = Vec::new();
    let sink: Sink<'_> = &mut |event| match event {
        Event::Message => {}
        Event::Delta { segment, text } => said.push(match segment.channel {
            Channel::Answer => text.to_owned(),
            Channel::Reasoning => format!("({text})"),
            Channel::ToolCall => format!("<{text}>"),
        }),
        event => said.push(format!("{event:?}")),
    };
    take(&mut EventReader::new(dialect.into()), sink);
    said
}

fn stream(dialect: Dialect, payloads: &[&str]) -> Vec<String> {
    read_by(dialect, |reader, sink| {
        for payload in payloads {
            let payload = payload.as_bytes();
            reader.take(Item::Event { name: "", payload }, sink);
        }
    })
}

fn body(dialect: Dialect, payload: &str) -> Vec<String> {
    read_by(dialect, |reader, sink| {
        reader.whole(payload.as_bytes(), sink);
    })
}

#[test]
fn a_list_is_no_event_of_any_dialect() {
    for dialect in DIALECTS.iter().map(|dialect| dialect.dialect) {
        for list in [
            r#"["error"]"#,
            r#"["x","evil-model"]"#,
            "[]",
            "[1]",
            r#"["response.completed"]"#,
            r#"["message_stop","message_stop"]"#,
            r#"["x",{"error":"y"}]"#,
        ] {
            let said = stream(dialect, &[list]);
            if dialect == Dialect::Embeddings || dialect == Dialect::Rerank {
                continue;
            }
            assert_eq!(said, ["Skipped"], "{dialect:?}: {list}");
        }
    }
    let nested = [
        (
            Dialect::Anthropic,
            r#"{"type":"message_start","message":["id","evil-model"]}"#,
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"type":"response.created","response":["","id","evil-model"]}"#,
        ),
        (Dialect::Gemini, r#"{"promptFeedback":["SAFETY"]}"#),
        (Dialect::Ollama, r#"{"done":false,"message":["evil"]}"#),
    ];
    for (dialect, event) in nested {
        let said = stream(dialect, &[event]).join(" ");
        assert!(said.is_empty() || said == "Damaged", "{event}: {said}");
    }
}
