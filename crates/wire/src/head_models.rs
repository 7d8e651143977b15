//! The models that a request names outside of its body. Limits use all of them, because an upstream
//! may serve any of them.

use super::DIALECTS;
use super::detect::{detect, percent_decoded, segments};
use super::word::word;
use http::{HeaderMap, Method, Uri};

/// Path segments that precede a model name.
const BEFORE_NAMES: [&str; 5] = ["models", "tunedmodels", "model", "deployments", "engines"];
/// Path segments that are verbs and never part of a name.
const BEHIND_NAMES: [&str; 20] = [
    "async-invoke",
    "audio",
    "chat",
    "completions",
    "converse",
    "converse-stream",
    "count-tokens",
    "embed",
    "embeddings",
    "generate",
    "images",
    "infer",
    "invoke",
    "invoke-with-bidirectional-stream",
    "invoke-with-response-stream",
    "messages",
    "pipeline",
    "rerank",
    "responses",
    "versions",
];
const PARAMETERS: [&str; 5] = ["model", "deployment", "model_id", "modelid", "model-id"];
/// Headers by which servers choose one of several models.
const HEADERS: [&str; 3] = [
    "azureml-model-deployment",
    "x-amzn-sagemaker-inference-component",
    "x-amzn-sagemaker-target-model",
];

/// The models that a request head names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeadModels {
    /// Names of the models.
    pub names: Vec<String>,
    /// Whether servers may read the path differently and find other names in it.
    pub ambiguous: bool,
    /// Whether only the path decides the model, whatever the body contains.
    pub decides: bool,
}

impl HeadModels {
    /// The models that the head of a request with a body names.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> HeadModels {
        let detected = detect(method, uri);
        // The paths of Code Assist contain no model.
        let is_named = detected.model.is_some();
        let decides = is_named && DIALECTS.registration(detected.dialect).model_in_path;
        let path = percent_decoded(uri.path());
        let in_path = in_path(&segments(&path));
        // Double escapes, parameters of segments and control characters.
        let odd = |sign: char| matches!(sign, '%' | ';' | '\\') || sign.is_control();
        let ambiguous = path.contains(odd) || !in_path.iter().all(|name| is_plain(name));
        let mut names: Vec<String> = detected.model.into_iter().collect();
        names.extend(in_path);
        let pairs = uri.query().unwrap_or_default().split('&');
        for (key, value) in pairs.filter_map(|pair| pair.split_once('=')) {
            let key = percent_decoded(key).to_ascii_lowercase();
            if PARAMETERS.contains(&&*key) {
                names.push(percent_decoded(&value.replace('+', " ")));
            }
        }
        for name in HEADERS {
            let lines = headers.get_all(name).iter();
            names.extend(lines.map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned()));
        }
        HeadModels {
            names: names.iter().filter_map(|name| word(name)).collect(),
            ambiguous,
            decides,
        }
    }
}

fn in_path(path: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, segment) in path.iter().enumerate() {
        let segment = segment.to_ascii_lowercase();
        if BEFORE_NAMES.contains(&&*segment) {
            found.extend(behind(&segment, &path[at + 1..]));
        }
    }
    found
}

/// The name that follows `word`. Names of deployments and engines contain no slashes.
fn behind(word: &str, rest: &[&str]) -> Option<String> {
    let ends = |segment: &&str| is_version(segment) || is_behind_names(segment);
    let end = rest.iter().position(ends);
    let name = match (word, end) {
        ("deployments", None | Some(1..)) => rest.get(..1)?.join("/"),
        // Docker Model Runner's `/engines/llama.cpp/v1/…` names an engine, not a model.
        ("engines", _) if rest.iter().take(2).any(|segment| is_version(segment)) => return None,
        ("engines", None | Some(1..)) => rest.get(..1)?.join("/"),
        (_, Some(end)) => rest[..end].join("/"),
        ("model", None) if rest.len() > 1 => rest[..rest.len() - 1].join("/"),
        (_, None) => rest.join("/"),
    };
    let named = match name.rsplit_once(':') {
        Some((named, verb)) if end.is_none() && is_verb(verb) => named,
        _ => &name,
    };
    (!named.is_empty()).then(|| named.to_owned())
}

fn is_verb(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_behind_names(segment: &str) -> bool {
    let known = |word: &&str| segment.eq_ignore_ascii_case(word);
    BEHIND_NAMES.iter().any(known)
}

fn is_version(segment: &str) -> bool {
    let behind = segment.strip_prefix(['v', 'V']).unwrap_or_default();
    behind.starts_with(|sign: char| sign.is_ascii_digit())
        && behind.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Whether every server reads the same name from the text.
fn is_plain(name: &str) -> bool {
    let plain = |sign: char| sign.is_ascii_alphanumeric() || "-_.:@/+=~".contains(sign);
    name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(target: &str) -> HeadModels {
        let target = target.parse().expect("a valid target");
        HeadModels::of(&Method::POST, &target, &HeaderMap::new())
    }

    #[test]
    fn a_model_is_found_in_paths_that_are_not_known() {
        for (target, name) in [
            (
                "/openai/deployments/big-1/images/generations?api-version=1",
                "big-1",
            ),
            ("/openai/Deployments/big-1/audio/speech", "big-1"),
            ("/v1beta/models/big-1:countTokens", "big-1"),
            (
                "/v1/publishers/google/models/big-1:predictLongRunning",
                "big-1",
            ),
            ("/v1beta/tunedModels/big-1:unheardOf", "big-1"),
            ("/model/big-1/invoke-with-bidirectional-stream", "big-1"),
            ("/model/us.big-1-v1%3A0/unheard-of", "us.big-1-v1:0"),
            ("/v2/models/big-1/versions/3/infer", "big-1"),
            (
                "/hf-inference/models/org/big-1/v1/chat/completions",
                "org/big-1",
            ),
            ("/models/org/big-1", "org/big-1"),
            ("/v1/speak?Model_id=big-1", "big-1"),
        ] {
            let found = of(target);
            assert!(
                found.names.iter().any(|found| found == name),
                "{target}: {found:?}"
            );
            assert!(!found.ambiguous, "{target}");
        }
    }

    #[test]
    fn a_path_without_a_model_does_not_decide() {
        assert!(of("/v1beta/models/big-1:generateContent").decides);
        assert!(!of("/v1internal:generateContent").decides);
        assert!(!of("/v1/chat/completions?model=big-1").decides);
    }

    #[test]
    fn what_is_no_model_is_not_found() {
        for target in [
            "/v1/chat/completions",
            "/models/chat/completions",
            "/engines/v1/chat/completions",
            "/engines/llama.cpp/v1/chat/completions",
            "/engine/v1/chat/completions",
            "/openai/v1/responses?api-version=preview",
            "/v1/models",
            "/v1internal:streamGenerateContent?alt=sse",
        ] {
            assert_eq!(of(target), HeadModels::default(), "{target}");
        }
    }

    #[test]
    fn a_spelling_that_servers_read_differently_is_ambiguous() {
        for target in [
            "/openai/deployments/%2562ig-1/chat/completions",
            "/openai/deployments/big-1;x/chat/completions",
            "/openai/deployments;x/big-1/chat/completions",
            "/openai/deployments/big-1%3bx/audio/speech",
            "/openai/deployments/big-1%20/audio/speech",
            "/openai/%2564eployments/big-1/chat/completions",
            "/openai%5Cdeployments%5Cbig-1/chat/completions",
            "/v1beta/models/big-1%00:generateContent",
        ] {
            assert!(of(target).ambiguous, "{target}");
        }
    }
}
