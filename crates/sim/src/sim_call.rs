//! One call, from its request to its response.

use super::dialects::{self, vectors};
use super::gzip::Gzip;
use super::pace::{Pace, time_to_first_token};
use super::plan::{self, GenerationRequest, Plan, PlannedResponse};
use super::prefix_cache::PrefixCache;
use super::profile::{FaultKind, Profile};
use super::recorded::{RecordedChunks, Recording};
use super::request::SimRequest;
use super::response;
use super::route::Target;
use super::script::{Script, ScriptSource};
use super::socket::ConnectionState;
use super::stream::{Body, BodyAborted, CompleteBody, Source, Stage, Stream};
use super::text_gen::Random;
use super::truth::{Call, ChunkTokens, Ending};
use crate::clock;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub struct SimCall {
    pub target: Target,
    pub profile: Profile,
    pub connection: Arc<ConnectionState>,
    pub call: Arc<Call>,
    pub random: Random,
    pub cache: Arc<PrefixCache>,
    pub id: String,
    pub http1: bool,
    pub calls_before: u64,
    pub recording: Option<String>,
    pub bodies: Option<PathBuf>,
}

impl SimCall {
    /// Answers after the request body has been read, or could not be read.
    pub async fn request_read(
        &mut self,
        body: Option<Bytes>,
    ) -> Result<Response<Body>, BodyAborted> {
        let read_at = self.connection.last_read();
        self.call
            .note(|truth| truth.instants.request_read = read_at);
        if let Some(name) = self.recording.take() {
            return Ok(self.play(&name, read_at).await);
        }
        let Some(asked) = body.and_then(|body| SimRequest::read(&self.target, &body)) else {
            return Ok(self.refuse(StatusCode::BAD_REQUEST, "the body is not JSON"));
        };
        self.call.note(|truth| {
            truth.model = asked.model.clone();
            truth.streamed = asked.stream;
        });
        tokio::time::sleep_until((read_at + self.profile.head).into()).await;
        if let Some(status) = self.profile.status {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            return Ok(self.refuse(status, "simulated error"));
        }
        self.generate(&asked, read_at).await
    }

    async fn generate(
        &mut self,
        asked: &SimRequest,
        read_at: Instant,
    ) -> Result<Response<Body>, BodyAborted> {
        let shape = self.target.shape;
        let model = asked.model.clone().unwrap_or_else(|| "simulated".into());
        let cached = self.profile.cache.map(|kept| {
            let prompt = (model.as_str(), &asked.body);
            self.cache.take(prompt, asked.input_tokens, kept, read_at)
        });
        let ttft = time_to_first_token(
            &self.profile,
            asked.input_tokens - cached.unwrap_or(0),
            self.call.concurrency(),
            self.calls_before,
        );
        let first_token = read_at + ttft;
        if let Some(vectors) = vectors::body(shape, asked, &model, &mut self.random) {
            tokio::time::sleep_until(first_token.into()).await;
            self.call.note(|truth| truth.outcome = Ending::Complete);
            let body = vectors.to_string().into_bytes();
            return Ok(self.piece(StatusCode::OK, body, ChunkTokens::default()));
        }
        dialects::restrict(&mut self.profile, shape, &model);
        let wanted = GenerationRequest {
            model,
            choices: asked.choices,
            tool_name: asked.tool_name.clone(),
            input_tokens: asked.input_tokens,
            cached_tokens: cached,
            reports_usage: asked.reports_usage(shape),
        };
        let planned = Arc::new(plan::response(
            &self.profile,
            &wanted,
            now(),
            &mut self.random,
        ));
        let Some(script) = dialects::script(shape, &planned) else {
            return Ok(self.refuse(
                StatusCode::NOT_FOUND,
                "this path does not generate an answer",
            ));
        };
        let plan = plan::plan(&self.profile, &planned, script.whole_calls());
        let pace = Pace::new(&self.profile, first_token, self.random.clone());
        if !asked.stream {
            return self.whole(script, &planned, &plan, pace).await;
        }
        let content_type = script.content_type().to_owned();
        let source = Box::new(ScriptSource {
            script,
            planned,
            plan,
        });
        Ok(self.stream(source, &content_type, pace))
    }

    async fn play(&mut self, name: &str, read_at: Instant) -> Response<Body> {
        let Some(folder) = self.bodies.clone() else {
            return self.refuse(
                StatusCode::BAD_REQUEST,
                "x-sim-body: the simulator was started without --bodies",
            );
        };
        let Ok(recording) = Recording::read(&folder, name).await else {
            return self.refuse(
                StatusCode::BAD_REQUEST,
                "x-sim-body: there is no such recording",
            );
        };
        let status = recording
            .meta
            .status
            .and_then(|status| StatusCode::from_u16(status).ok())
            .unwrap_or(StatusCode::OK);
        self.call.note(|truth| {
            truth.streamed = recording.meta.stream;
            truth.status = status.as_u16();
            truth.tokens = None;
        });
        let source = Box::new(RecordedChunks::new(
            &recording,
            &self.profile,
            &mut self.random,
        ));
        let pace = Pace::new(
            &self.profile,
            read_at + self.profile.ttft,
            self.random.clone(),
        );
        let mut response = self.stream(source, &recording.content_type(), pace);
        *response.status_mut() = status;
        let encoding = recording.meta.content_encoding.as_deref();
        if let Some(encoding) = encoding.and_then(|encoding| HeaderValue::from_str(encoding).ok()) {
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, encoding);
        }
        response
    }

    fn stream(
        &self,
        source: Box<dyn Source>,
        content_type: &str,
        mut pace: Pace,
    ) -> Response<Body> {
        if let Some((_, pause)) = source.step(0) {
            pace.delay(pause);
        }
        let mut response = Response::new(Body::Stream(Box::new(Stream {
            source,
            sleep: Box::pin(tokio::time::sleep_until(pace.due().into())),
            pace,
            ping: self.profile.ping,
            gzip: self.profile.gzip.then(Gzip::new),
            call: Arc::clone(&self.call),
            connection: Arc::clone(&self.connection),
            http1: self.http1,
            last_chunk: clock::now(),
            stage: Stage::Opening,
        })));
        let headers = response.headers_mut();
        if let Ok(content_type) = HeaderValue::from_str(content_type) {
            headers.insert(header::CONTENT_TYPE, content_type);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        self.label(response)
    }

    /// The whole response as one body, after the time of its generation.
    async fn whole(
        &self,
        mut script: Box<dyn Script>,
        planned: &PlannedResponse,
        plan: &Plan,
        mut pace: Pace,
    ) -> Result<Response<Body>, BodyAborted> {
        for step in &plan.steps {
            pace.advance(step.position, step.pause, self.call.concurrency());
        }
        tokio::time::sleep_until(pace.due().into()).await;
        match plan.fault.as_ref().map(|fault| &fault.kind) {
            None => {}
            Some(FaultKind::Error(_)) => {
                return Ok(self.refuse(StatusCode::INTERNAL_SERVER_ERROR, "simulated error"));
            }
            Some(kind) => {
                let reset = *kind == FaultKind::Reset;
                if reset && self.http1 {
                    self.connection.reset();
                }
                let ending = if reset { Ending::Reset } else { Ending::Closed };
                self.call.note(|truth| truth.outcome = ending);
                return Err(BodyAborted);
            }
        }
        let mut carried = ChunkTokens::default();
        planned
            .texts
            .iter()
            .for_each(|text| carried.add(text.channel, text.units.len() as u64));
        self.call
            .note(|truth| truth.complete(script.summary(false)));
        Ok(self.piece(StatusCode::OK, script.whole(), carried))
    }

    fn refuse(&self, status: StatusCode, message: &str) -> Response<Body> {
        self.call.note(|truth| {
            truth.status = status.as_u16();
            truth.outcome = Ending::HttpError;
            truth.streamed = false;
        });
        let body = response::error_body(Some(self.target.shape), status, message).to_string();
        self.piece(status, body.into_bytes(), ChunkTokens::default())
    }

    fn piece(&self, status: StatusCode, body: Vec<u8>, carried: ChunkTokens) -> Response<Body> {
        let mut bytes = Bytes::from(body);
        if let Some(mut gzip) = self.profile.gzip.then(Gzip::new) {
            bytes = gzip.chunk(&bytes, true).unwrap_or_default();
        }
        let call = Some((
            Arc::clone(&self.connection),
            Arc::clone(&self.call),
            carried,
        ));
        let mut response = Response::new(Body::Whole(Some(CompleteBody { bytes, call })));
        *response.status_mut() = status;
        let content_type = HeaderValue::from_static("application/json");
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, content_type);
        self.label(response)
    }

    /// Adds the headers that every response has.
    fn label(&self, mut response: Response<Body>) -> Response<Body> {
        if let Ok(id) = HeaderValue::from_str(&self.id) {
            response.headers_mut().insert("x-sim-id", id);
        }
        if self.profile.gzip {
            let gzip = HeaderValue::from_static("gzip");
            response
                .headers_mut()
                .insert(header::CONTENT_ENCODING, gzip);
        }
        response
    }
}

pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
