//! Reads facts from a request body, such as model, stream, user and session.

mod part;
mod parts;
mod raw;
mod sections;
mod settings;
mod texts;
mod tool_definitions;

pub use part::{Part, TextKind};
pub use sections::{Section, SectionKind, request_sections};
pub use settings::generation_settings;
pub use texts::{conversation_texts, request_texts};

use super::Registration;
use super::json::{Count, Object, Text, is_object};
use super::word::word;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokengauge_core::call::RequestFacts;

/// Reads the facts in a complete request body. `None` if the body cannot be read. Long
/// conversations are skipped without copying them.
pub fn request_facts(
    dialect: impl Into<&'static Registration>,
    body: &[u8],
) -> Option<RequestFacts> {
    let default_stream = dialect.into().default_stream;
    let body = Some(body).filter(|body| is_object(body))?;
    let body: Body<'_> = serde_json::from_slice(body).ok()?;
    Some(RequestFacts {
        // Some clients of Google APIs name the model as in the path.
        model: word(body.model.strip_prefix("models/").unwrap_or(&body.model)),
        stream: flag(body.stream).or(default_stream),
        choices: body.choices(),
        include_usage: body
            .stream_options
            .0
            .as_ref()
            .and_then(|options| flag(options.include_usage)),
        user: body.user(),
        session: body.session(),
        session_hint: word(&body.prompt_cache_key),
        prefix_session: None,
        service_tier: word(&body.service_tier),
        reasoning_effort: body.reasoning_effort(),
        configured: None,
    })
}

fn flag(value: Option<&RawValue>) -> Option<bool> {
    match value?.get() {
        "true" => Some(true),
        "false" => Some(false),
        _ => None,
    }
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    model: Text<'a>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(default)]
    n: Count,
    #[serde(default)]
    num_generations: Count,
    #[serde(
        borrow,
        default,
        rename = "generationConfig",
        alias = "generation_config"
    )]
    generation_config: Object<GenerationConfig<'a>>,
    #[serde(borrow, default)]
    stream_options: Object<StreamOptions<'a>>,
    #[serde(borrow, default)]
    user: Text<'a>,
    #[serde(borrow, default)]
    safety_identifier: Text<'a>,
    #[serde(borrow, default)]
    metadata: Object<Metadata<'a>>,
    #[serde(borrow, default)]
    litellm_session_id: Text<'a>,
    #[serde(borrow)]
    conversation: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "requestMetadata")]
    request_metadata: Object<Metadata<'a>>,
    #[serde(borrow, default)]
    prompt_cache_key: Text<'a>,
    #[serde(borrow, default)]
    service_tier: Text<'a>,
    #[serde(borrow, default)]
    reasoning_effort: Text<'a>,
    /// OpenAI responses and OpenRouter.
    #[serde(borrow, default)]
    reasoning: Object<Effort<'a>>,
    /// Anthropic.
    #[serde(borrow, default)]
    output_config: Object<Effort<'a>>,
    /// The arguments of the prompt template in vLLM, SGLang and llama.cpp.
    #[serde(borrow, default)]
    chat_template_kwargs: Object<Effort<'a>>,
    /// Ollama: a reasoning effort, or whether to think at all.
    #[serde(borrow, default)]
    think: Text<'a>,
    #[serde(borrow, default)]
    request: Object<Enveloped<'a>>,
}

#[derive(Deserialize)]
struct Enveloped<'a> {
    #[serde(borrow, default)]
    session_id: Text<'a>,
    #[serde(
        borrow,
        default,
        rename = "generationConfig",
        alias = "generation_config"
    )]
    generation_config: Object<GenerationConfig<'a>>,
}

#[derive(Deserialize)]
struct GenerationConfig<'a> {
    #[serde(default, rename = "candidateCount", alias = "candidate_count")]
    candidate_count: Count,
    #[serde(borrow, default, rename = "thinkingConfig", alias = "thinking_config")]
    thinking_config: Object<ThinkingConfig<'a>>,
}

#[derive(Deserialize)]
struct ThinkingConfig<'a> {
    #[serde(borrow, default, rename = "thinkingLevel", alias = "thinking_level")]
    thinking_level: Text<'a>,
}

#[derive(Deserialize)]
struct Effort<'a> {
    #[serde(borrow, default, alias = "reasoning_effort")]
    effort: Text<'a>,
}

#[derive(Deserialize)]
struct StreamOptions<'a> {
    #[serde(borrow)]
    include_usage: Option<&'a RawValue>,
}

/// Metadata from agents. Anthropic's `user_id` often also contains the session, either after
/// `_session_` or as an object, which may be encoded as a string.
#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow, alias = "userId", alias = "user")]
    user_id: Option<&'a RawValue>,
    #[serde(borrow, default, alias = "sessionId", alias = "session")]
    session_id: Text<'a>,
}

#[derive(Default, Deserialize)]
struct Identity<'a> {
    #[serde(borrow, default)]
    session_id: Text<'a>,
    #[serde(borrow, default)]
    account_uuid: Text<'a>,
    #[serde(borrow, default)]
    device_id: Text<'a>,
}

impl Metadata<'_> {
    fn identity(&self) -> (Option<String>, Option<String>) {
        let Some(sent) = self.user_id else {
            return (None, None);
        };
        let text: Text<'_> = serde_json::from_str(sent.get()).unwrap_or_default();
        let object = if text.is_empty() { sent.get() } else { &text };
        if object.starts_with('{') {
            let identity: Identity<'_> = serde_json::from_str(object).unwrap_or_default();
            let user = word(&identity.account_uuid).or_else(|| word(&identity.device_id));
            return (user, word(&identity.session_id));
        }
        match text.rsplit_once("_session_") {
            Some((user, session)) => (word(user), word(session)),
            None => (word(&text), None),
        }
    }
}

impl Body<'_> {
    fn choices(&self) -> Option<u32> {
        let config = self.generation_config();
        let candidates = config.map(|c| c.candidate_count).unwrap_or_default();
        let sent = self.n.or(self.num_generations).or(candidates);
        sent.0.and_then(|count| u32::try_from(count).ok())
    }

    fn generation_config(&self) -> Option<&GenerationConfig<'_>> {
        let enveloped = self.request.0.as_ref();
        let enveloped = enveloped.and_then(|request| request.generation_config.0.as_ref());
        self.generation_config.0.as_ref().or(enveloped)
    }

    fn reasoning_effort(&self) -> Option<String> {
        let objects = [
            &self.reasoning,
            &self.output_config,
            &self.chat_template_kwargs,
        ];
        let within = objects.into_iter().filter_map(|object| object.0.as_ref());
        let within = within.map(|object| &object.effort);
        let thinking = self
            .generation_config()
            .and_then(|config| config.thinking_config.0.as_ref())
            .map(|config| &config.thinking_level);
        let all = [&self.reasoning_effort, &self.think];
        let mut all = all.into_iter().chain(within).chain(thinking);
        let effort = all.find_map(|text| word(text))?;
        let is_word = effort.chars().all(|letter| letter.is_ascii_alphabetic());
        is_word.then(|| effort.to_ascii_lowercase())
    }

    fn metadata(&self) -> impl Iterator<Item = &Metadata<'_>> {
        let both = [&self.metadata, &self.request_metadata];
        both.into_iter().filter_map(|object| object.0.as_ref())
    }

    fn user(&self) -> Option<String> {
        word(&self.safety_identifier)
            .or_else(|| word(&self.user))
            .or_else(|| self.metadata().find_map(|metadata| metadata.identity().0))
    }

    fn session(&self) -> Option<String> {
        word(&self.litellm_session_id)
            .or_else(|| self.metadata().find_map(|m| word(&m.session_id)))
            .or_else(|| self.metadata().find_map(|metadata| metadata.identity().1))
            .or_else(|| self.conversation())
            .or_else(|| word(&self.request.0.as_ref()?.session_id))
    }

    /// The id of a conversation, which may be inside an object.
    fn conversation(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct Conversation<'a> {
            #[serde(borrow, default)]
            id: Text<'a>,
        }
        let sent = self.conversation?.get();
        if sent.starts_with('{') {
            let object: Conversation<'_> = serde_json::from_str(sent).ok()?;
            return word(&object.id);
        }
        serde_json::from_str(sent)
            .ok()
            .and_then(|text: Text<'_>| word(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_core::call::Dialect;

    fn facts(dialect: Dialect, body: &str) -> RequestFacts {
        request_facts(dialect, body.as_bytes()).expect("readable")
    }

    #[test]
    fn the_facts_are_found_wherever_they_stand() {
        let body = r#"{"messages":[{"role":"user","content":"hi","model":"not this"}],"n":2,
            "stream":true,"stream_options":{"include_usage":false},"user":"u","model":"gpt-x"}"#;
        assert_eq!(
            facts(Dialect::OpenaiChat, body),
            RequestFacts {
                model: Some("gpt-x".into()),
                stream: Some(true),
                choices: Some(2),
                include_usage: Some(false),
                user: Some("u".into()),
                ..RequestFacts::default()
            }
        );
    }

    #[test]
    fn a_missing_stream_flag_means_what_the_dialect_says() {
        assert_eq!(facts(Dialect::Ollama, "{}").stream, Some(true));
        assert_eq!(
            facts(Dialect::Ollama, r#"{"stream":false}"#).stream,
            Some(false)
        );
        assert_eq!(facts(Dialect::OpenaiChat, "{}").stream, Some(false));
        assert_eq!(facts(Dialect::Gemini, "{}").stream, None);
        assert_eq!(facts(Dialect::Gemini, r#"{"stream":"yes"}"#).stream, None);
    }

    #[test]
    fn the_effort_of_reasoning_is_found_in_each_of_its_places() {
        for body in [
            r#"{"reasoning_effort":"high"}"#,
            r#"{"reasoning":{"effort":"high","summary":null}}"#,
            r#"{"output_config":{"effort":"high"}}"#,
            r#"{"chat_template_kwargs":{"reasoning_effort":"high"}}"#,
            r#"{"think":"high"}"#,
            r#"{"generationConfig":{"thinkingConfig":{"thinkingLevel":"HIGH"}}}"#,
            r#"{"request":{"generationConfig":{"thinkingConfig":{"thinkingLevel":"HIGH"}}}}"#,
        ] {
            let effort = facts(Dialect::OpenaiChat, body).reasoning_effort;
            assert_eq!(effort.as_deref(), Some("high"), "{body}");
        }
        for body in [
            "{}",
            r#"{"think":true}"#,
            r#"{"reasoning":true,"reasoning_effort":3}"#,
            r#"{"reasoning":{"effort":null}}"#,
        ] {
            assert_eq!(
                facts(Dialect::OpenaiChat, body).reasoning_effort,
                None,
                "{body}"
            );
        }
    }

    #[test]
    fn gemini_counts_candidates() {
        let body = r#"{"contents":[],"generationConfig":{"candidateCount":3}}"#;
        assert_eq!(facts(Dialect::Gemini, body).choices, Some(3));
        let body = format!(r#"{{"model":"g","request":{body}}}"#);
        assert_eq!(facts(Dialect::Gemini, &body).choices, Some(3));
    }

    #[test]
    fn a_session_is_found_in_each_of_its_places() {
        for (body, user, session) in [
            (
                r#"{"metadata":{"user_id":"user_ab_account_cd_session_12-34"}}"#,
                Some("user_ab_account_cd"),
                Some("12-34"),
            ),
            (
                r#"{"metadata":{"user_id":"{\"device_id\":\"d\",\"account_uuid\":\"a\",\"session_id\":\"s\"}"}}"#,
                Some("a"),
                Some("s"),
            ),
            (
                r#"{"metadata":{"user_id":{"device_id":"d","session_id":"s"}}}"#,
                Some("d"),
                Some("s"),
            ),
            (
                r#"{"metadata":{"user_id":"me"},"user":"you","safety_identifier":"h"}"#,
                Some("h"),
                None,
            ),
            (
                r#"{"metadata":{"session_id":"m"},"litellm_session_id":"l"}"#,
                None,
                Some("l"),
            ),
            (
                r#"{"metadata":{"session_id":"m"},"prompt_cache_key":"k"}"#,
                None,
                Some("m"),
            ),
            (r#"{"conversation":"conv_1"}"#, None, Some("conv_1")),
            (r#"{"request":{"session_id":"s"}}"#, None, Some("s")),
            (
                r#"{"conversation":{"id":"conv_2"},"prompt_cache_key":"k"}"#,
                None,
                Some("conv_2"),
            ),
            (
                r#"{"requestMetadata":{"sessionId":"b","userId":"u"}}"#,
                Some("u"),
                Some("b"),
            ),
            (
                r#"{"prompt_cache_key":"k","metadata":null,"conversation":null}"#,
                None,
                None,
            ),
        ] {
            let found = facts(Dialect::Anthropic, body);
            assert_eq!(found.user.as_deref(), user, "{body}");
            assert_eq!(found.session.as_deref(), session, "{body}");
        }
    }

    #[test]
    fn names_are_cut_at_200_characters_and_refused_with_control_characters() {
        let long = "é".repeat(300);
        let found = facts(
            Dialect::OpenaiChat,
            &format!(r#"{{"user":"{long}","model":"a\nb"}}"#),
        );
        assert_eq!(found.user, Some("é".repeat(200)));
        assert_eq!(found.model, None);
    }

    #[test]
    fn what_is_no_json_object_has_no_facts() {
        for body in ["", "[1]", "{\"model\":", "--boundary", "\u{1f}\u{8b}"] {
            assert_eq!(request_facts(Dialect::OpenaiChat, body.as_bytes()), None);
        }
    }
}
