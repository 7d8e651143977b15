//! The server that answers AdmissionReviews (admission.k8s.io/v1).

use super::error::InjectError;
use super::settings::Settings;
use super::{InjectBy, Outcome, inject, patch};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::sync::Arc;
use tokengauge_admin::{FairShares, Share, Source};
use tokengauge_core::printable::printable;
use tokengauge_telemetry::export::registry::Registry;
use tokengauge_telemetry::export::text::{self, Format};
use tokengauge_telemetry::export::{labels, names};

/// The largest review in bytes. An API server accepts requests of at most 3 MiB.
const MAX_BYTES: usize = 3 << 20;
/// The largest number of JSON values in a review; a pod has some hundreds. A parsed value may take 300 bytes, and twice
/// that while it changes. The chart's memory limit is 64 MiB.
const MAX_VALUES: usize = 50_000;
/// The size in kilobytes of all reviews that are read concurrently. A review of a pod has about 20.
const ALL_KILOBYTES: usize = 8 << 10;
const KILOBYTES_PER_SOURCE: usize = MAX_BYTES >> 10;
/// The number of reviews that are answered concurrently. Each takes milliseconds.
const AT_ONCE: usize = 1;
/// The number of characters of a warning that API servers show.
const MAX_WARNING: usize = 250;
const MAX_WARNINGS: usize = 10;

pub struct Injector {
    settings: Settings,
    registry: Registry,
    room: FairShares,
    turns: FairShares,
}

impl Injector {
    pub fn new(settings: Settings) -> Arc<Injector> {
        let registry = Registry::new(&[]);
        for result in ["injected", "left", "refused", "unreadable"] {
            registry.series(&names::INJECTIONS, &labels::ByResult { result });
        }
        let version = env!("CARGO_PKG_VERSION");
        let labels = labels::Version { version };
        registry.series(&names::BUILD_INFO, &labels).set(1.0);
        Arc::new(Injector {
            settings,
            registry,
            room: FairShares::new(ALL_KILOBYTES, KILOBYTES_PER_SOURCE),
            turns: FairShares::new(AT_ONCE, AT_ONCE),
        })
    }

    /// Answers a review. Every pod is allowed: a pod that cannot be injected runs without a sidecar.
    ///
    /// # Errors
    /// Fails if `body` is not a review. The text says what is missing.
    pub fn answer(&self, body: &[u8], by: InjectBy) -> Result<Value, InjectError> {
        let Review {
            uid,
            namespace,
            pod: before,
        } = read(body).inspect_err(|_| self.count("unreadable"))?;
        let outcome = inject(&before, by, &self.settings);
        let id = Identity::of(&before, &namespace);
        let mut response = json!({ "uid": uid, "allowed": true });
        match outcome {
            Outcome::Left => self.count("left"),
            Outcome::Refused(reason) => {
                self.count("refused");
                tracing::warn!(
                    namespace = &*id.namespace,
                    pod = &*id.name,
                    owner = &*id.owner,
                    reason,
                    "not injected"
                );
                let warning = format!("tokengauge: not injected: {reason}");
                response["warnings"] = json!([shortened(&warning)]);
            }
            Outcome::Injected { pod, warnings } => {
                self.count("injected");
                tracing::info!(
                    namespace = &*id.namespace,
                    pod = &*id.name,
                    owner = &*id.owner,
                    warnings = warnings.len(),
                    "injected"
                );
                let patch = Value::Array(patch::diff(&before, &pod)).to_string();
                response["patchType"] = json!("JSONPatch");
                response["patch"] = json!(STANDARD.encode(patch));
                if !warnings.is_empty() {
                    let warnings = warnings.iter().take(MAX_WARNINGS);
                    let warnings = warnings.map(|text| shortened(&format!("tokengauge: {text}")));
                    response["warnings"] = warnings.collect::<Vec<_>>().into();
                }
            }
        }
        Ok(json!({
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }))
    }

    fn count(&self, result: &'static str) {
        self.registry
            .series(&names::INJECTIONS, &labels::ByResult { result })
            .increment(1);
    }
}

struct Review {
    uid: String,
    /// The namespace of the request. The pod of a Deployment has no namespace at that time.
    namespace: String,
    pod: Value,
}

fn read(body: &[u8]) -> Result<Review, InjectError> {
    // Every value except the first follows one of these characters.
    let values = body.iter().filter(|byte| b",[{".contains(byte)).count();
    if values > MAX_VALUES {
        return Err(InjectError::Refused(format!(
            "the review may have {values} values, and at most {MAX_VALUES} are accepted"
        )));
    }
    let mut review: Value = serde_json::from_slice(body)
        .map_err(|error| InjectError::text("the AdmissionReview is not JSON", error))?;
    let (version, kind) = (&review["apiVersion"], &review["kind"]);
    if *version != "admission.k8s.io/v1" || *kind != "AdmissionReview" {
        return Err(InjectError::Refused(format!(
            "the body is a {version} {kind}; send an AdmissionReview of admission.k8s.io/v1"
        )));
    }
    let mut request = review["request"].take();
    let uid = request["uid"]
        .as_str()
        .ok_or("the AdmissionReview has no `request.uid`")?;
    let uid = uid.to_owned();
    if request["kind"]["kind"] != "Pod" {
        return Err(InjectError::Refused(format!(
            "the AdmissionReview is for a {}; only pods are injected",
            request["kind"]["kind"]
        )));
    }
    let namespace = request["namespace"].as_str().unwrap_or_default();
    Ok(Review {
        uid,
        namespace: namespace.to_owned(),
        pod: request["object"].take(),
    })
}

/// The pod's identity for the log. These strings are untrusted.
struct Identity<'a> {
    namespace: Cow<'a, str>,
    name: Cow<'a, str>,
    /// Kind and name of the pod's owner, such as `ReplicaSet/bot-6f7c9d5b8`.
    owner: Cow<'a, str>,
}

impl<'a> Identity<'a> {
    fn of(pod: &'a Value, namespace: &'a str) -> Identity<'a> {
        let metadata = &pod["metadata"];
        let texts = |keys: &[&str]| {
            let texts = keys.iter().filter_map(|key| metadata[key].as_str());
            texts.into_iter().find(|text| !text.is_empty())
        };
        let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
        let owner = owners.max_by_key(|owner| owner["controller"] == true);
        let owner = owner.map(|owner| {
            let part = |key: &str| owner[key].as_str().unwrap_or_default();
            format!("{}/{}", part("kind"), part("name"))
        });
        let namespace = match namespace {
            "" => texts(&["namespace"]).unwrap_or_default(),
            known => known,
        };
        Identity {
            namespace: logged(namespace),
            name: logged(texts(&["name", "generateName"]).unwrap_or_default()),
            owner: Cow::Owned(logged(&owner.unwrap_or_default()).into_owned()),
        }
    }
}

/// A name for the log, cut to 253 characters, the limit for names of objects.
fn logged(text: &str) -> Cow<'_, str> {
    let end = text
        .char_indices()
        .nth(253)
        .map_or(text.len(), |(end, _)| end);
    printable(&text[..end])
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MAX_WARNING) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Serves `/mutate` for pods of namespaces that opt in, `/mutate/annotated` for pods that opt in themselves, health checks
/// and metrics.
pub fn router(injector: Arc<Injector>) -> Router {
    let around = |State(injector): State<Arc<Injector>>, request: Request| async move {
        respond(injector, request, InjectBy::Namespace).await
    };
    let by_pod = |State(injector): State<Arc<Injector>>, request: Request| async move {
        respond(injector, request, InjectBy::Annotation).await
    };
    Router::new()
        .route("/mutate", post(around))
        .route("/mutate/annotated", post(by_pod))
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(|| async { "ready\n" }))
        .route("/metrics", get(metrics))
        .with_state(injector)
}

async fn respond(injector: Arc<Injector>, request: Request, by: InjectBy) -> Response {
    let source = request.extensions().get::<Source>().copied();
    let room = &injector.room;
    let (body, _room) = match whole(request.into_body(), |more| room.take(source, more)).await {
        Ok(body) => body,
        Err(refused) => return refused,
    };
    let _turn = injector.turns.wait(source).await;
    let reviewer = Arc::clone(&injector);
    // A review may take long, and health checks must not wait for it.
    let answer = tokio::task::spawn_blocking(move || answer(&reviewer, &body, by));
    let failed = || StatusCode::INTERNAL_SERVER_ERROR.into_response();
    answer.await.unwrap_or_else(|_| failed())
}

/// Reads the body of a review. The share of kilobytes grows with the body.
async fn whole(
    body: Body,
    take: impl Fn(u32) -> Option<Share>,
) -> Result<(Vec<u8>, Share), Response> {
    let mut body = Limited::new(body, MAX_BYTES);
    let (mut bytes, mut room) = (Vec::new(), take(0).ok_or_else(no_room)?);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE.into_response())?;
        let Ok(piece) = frame.into_data() else {
            continue;
        };
        bytes.extend_from_slice(&piece);
        let more = (bytes.len() / 1024).saturating_sub(room.count());
        let more = take(u32::try_from(more).unwrap_or(u32::MAX));
        room.merge(more.ok_or_else(no_room)?);
    }
    Ok((bytes, room))
}

fn no_room() -> Response {
    let message = "too many AdmissionReviews are being read at the same time; try again\n";
    (StatusCode::SERVICE_UNAVAILABLE, message).into_response()
}

fn answer(injector: &Injector, body: &[u8], by: InjectBy) -> Response {
    match injector.answer(body, by) {
        Ok(review) => axum::Json(review).into_response(),
        Err(error) => {
            tracing::warn!(reason = %error, "cannot answer an AdmissionReview request");
            (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response()
        }
    }
}

async fn metrics(State(injector): State<Arc<Injector>>) -> Response {
    let text = text::render(&injector.registry, Format::Classic, true);
    (
        [(header::CONTENT_TYPE, Format::Classic.content_type())],
        text,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_names_namespace_pod_and_owner() {
        let pod = json!({ "metadata": {
            "name": "", "generateName": "bot-6f7-", "namespace": "elsewhere",
            "ownerReferences": [
                { "kind": "Other", "name": "o" },
                { "kind": "ReplicaSet", "name": "bot-6f7", "controller": true },
            ],
        } });
        let id = Identity::of(&pod, "research");
        let all = [&*id.namespace, &*id.name, &*id.owner];
        assert_eq!(all, ["research", "bot-6f7-", "ReplicaSet/bot-6f7"]);
        let id = Identity::of(&pod, "");
        assert_eq!(id.namespace, "elsewhere");
        let pod = json!({ "metadata": { "name": "a\u{1b}[2J".repeat(100) } });
        let id = Identity::of(&pod, "");
        assert!(!id.name.contains('\u{1b}') && id.name.len() < 2000);
        assert_eq!((&*id.namespace, &*id.owner), ("", ""));
    }
}
