//! Ways around quotas and blocking budgets, tried on the real binary over sockets: keys, invented names, paths, and
//! bodies that servers read differently.

use crate::process::Process;
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustix::process::Signal;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::agent::{http2, whole};
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::soon;
use tokengauge_test_support::upstream::Upstream;
use tokengauge_test_support::wire::encode::{CODINGS, encode};
use tokio::net::TcpListener;

/// The answer of an OpenAI-like upstream. Its 100 tokens cost 0.1 USD below.
const ANSWER: &str = r#"{"id":"c","object":"chat.completion","created":1,"model":"big-1","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":100,"total_tokens":101}}"#;

/// An upstream that accepts any request and keeps the last body.
struct LenientUpstream {
    address: SocketAddr,
    bodies: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl LenientUpstream {
    async fn start() -> LenientUpstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        let bodies: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let accepting = Arc::clone(&bodies);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let bodies = Arc::clone(&accepting);
                let response = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let bodies = Arc::clone(&bodies);
                    async move {
                        let body = request.into_body().collect().await;
                        let body = body.map(|body| body.to_bytes().to_vec());
                        bodies.lock().expect("no panic").extend(body);
                        let response =
                            Response::builder().header("content-type", "application/json");
                        let response = response.body(Full::new(ANSWER.as_bytes()));
                        Ok::<_, Infallible>(response.expect("an answer"))
                    }
                });
                let serving = http1::Builder::new().serve_connection(TokioIo::new(tcp), response);
                tokio::spawn(serving);
            }
        });
        LenientUpstream { address, bodies }
    }

    fn seen(&self) -> usize {
        self.bodies.lock().expect("no panic").len()
    }
}

struct LimitsFixture {
    process: Process,
    upstream: LenientUpstream,
    file: PathBuf,
    _folder: TempDir,
}

impl LimitsFixture {
    async fn start(limits: &str) -> LimitsFixture {
        let (upstream, folder) = (
            LenientUpstream::start().await,
            TempDir::new().expect("a folder"),
        );
        let file = folder.path().join("proxy-config.toml");
        std::fs::write(&file, configuration(upstream.address, limits)).expect("written");
        LimitsFixture {
            process: Process::start(&file).await,
            upstream,
            file,
            _folder: folder,
        }
    }

    fn address(&self) -> SocketAddr {
        self.process.addresses()[0]
    }

    async fn ask(&self, asked: &InjectBy) -> HttpResponse {
        let mut agent = RawConnection::connect(self.address()).await;
        agent.write(asked.bytes()).await;
        HttpResponse::read(&mut agent).await
    }

    async fn ask_owned(&self, asked: InjectBy) -> HttpResponse {
        self.ask(&asked).await
    }

    async fn metric(&self, series: &str) -> f64 {
        let metrics = self.process.metrics().await;
        let found = metrics.get(series);
        *found.unwrap_or_else(|| panic!("no {series}"))
    }

    /// Waits for a metric that changes after the end of a call.
    async fn becomes(&self, series: &str, value: f64) {
        let end = Instant::now() + TIMEOUT;
        while self.metric(series).await < value {
            assert!(Instant::now() < end, "{series} never {value}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn configuration(upstream: SocketAddr, limits: &str) -> String {
    let routes = ["count", "refuse", "free"].map(|name| {
        format!("[[route]]\nname = \"{name}\"\npath = \"/{name}\"\nupstream = \"u\"\n")
    });
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[measure]\nbody_bytes = \"2MiB\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{upstream}\"\n{}\
         [[price]]\nmodel = \"big*\"\noutput = 1000\n{limits}",
        routes.concat()
    )
}

#[derive(Clone)]
struct InjectBy {
    what: String,
    line: String,
    headers: String,
    body: Vec<u8>,
    chunked: bool,
}

impl InjectBy {
    fn chat(route: &str, what: &str, headers: &str, body: impl AsRef<[u8]>) -> InjectBy {
        InjectBy {
            what: what.to_owned(),
            line: format!("POST /{route}/v1/chat/completions"),
            headers: headers.to_owned(),
            body: body.as_ref().to_vec(),
            chunked: false,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let InjectBy {
            line,
            headers,
            body,
            ..
        } = self;
        let upgrade = headers.contains("upgrade");
        let close = if upgrade { "" } else { "connection: close\r\n" };
        let head = format!("{line} HTTP/1.1\r\nhost: h\r\n{close}{headers}");
        let length = body.len();
        if self.chunked {
            let framing = format!("transfer-encoding: chunked\r\n\r\n{length:x}\r\n");
            return [
                head.as_bytes(),
                framing.as_bytes(),
                body,
                b"\r\n0\r\nx-more: 1\r\n\r\n",
            ]
            .concat();
        }
        let framing = match length {
            0 => "\r\n".to_owned(),
            _ => format!("content-length: {length}\r\n\r\n"),
        };
        [head.as_bytes(), framing.as_bytes(), body].concat()
    }
}

struct HttpResponse {
    status: u16,
    head: String,
    body: String,
}

impl HttpResponse {
    async fn read(agent: &mut RawConnection) -> HttpResponse {
        let head = agent.read_head().await.to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.expect("a length").parse().expect("a number");
        let body = String::from_utf8(agent.read_exact(length).await).expect("text");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .expect("a status");
        HttpResponse { status, head, body }
    }

    fn error(&self) -> Option<&str> {
        let mut lines = self.head.lines();
        lines.find_map(|line| line.strip_prefix("x-tokengauge-error: "))
    }
}

const FORM: &str = "content-type: application/x-www-form-urlencoded\r\n";
const JSON: &str = "content-type: application/json\r\n";
const BIG: &str = r#"{"model":"big-1","messages":[{"role":"user","content":"Hi"}]}"#;
const SMALL: &str = r#"{"model":"small","messages":[{"role":"user","content":"Hi"}]}"#;
const REALTIME: &str = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: x3JJHMbDL1EzLkh9GBhXDw==\r\n";

fn utf16(text: &str) -> Vec<u8> {
    let units = std::iter::once(0xfeff).chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

/// Requests for the big model that are recognised as such, however they are written.
fn readable(route: &str) -> Vec<InjectBy> {
    let chat = |what: &str, headers: &str, body: &[u8]| InjectBy::chat(route, what, headers, body);
    let padded = |padding: &str| BIG.replacen('{', &format!("{{{padding}"), 1).into_bytes();
    let mut all = vec![
        chat("plain", JSON, BIG.as_bytes()),
        chat("text/plain", "content-type: text/plain\r\n", BIG.as_bytes()),
        chat("no content type", "", BIG.as_bytes()),
        chat(
            "a vendor's type",
            "content-type: application/vnd.x+json\r\n",
            BIG.as_bytes(),
        ),
        chat(
            "identity",
            &format!("{JSON}content-encoding: identity\r\n"),
            BIG.as_bytes(),
        ),
        chat("spaces before it", JSON, &padded(&" ".repeat(1_200_000))),
        chat(
            "members before it",
            JSON,
            &padded(&format!("\"x\":\"{}\",", "y".repeat(1_200_000))),
        ),
        chat(
            "escapes in the name",
            JSON,
            BIG.replace("model", r"mod\u0065l").as_bytes(),
        ),
        chat(
            "escapes in the value",
            JSON,
            BIG.replace("big-1", r"\u0062ig-1").as_bytes(),
        ),
        chat(
            "another case",
            JSON,
            BIG.replace("big-1", "BIG-1").as_bytes(),
        ),
        chat(
            "spaces around the model",
            JSON,
            BIG.replace("big-1", " big-1 ").as_bytes(),
        ),
        InjectBy {
            chunked: true,
            ..chat("trailers", JSON, BIG.as_bytes())
        },
        InjectBy {
            line: format!("PUT /{route}/v1/chat/completions"),
            ..chat("another method", JSON, BIG.as_bytes())
        },
        InjectBy {
            line: format!("POST /{route}/v1/chat/completion%73"),
            ..chat("an escape in the path", JSON, BIG.as_bytes())
        },
    ];
    for coding in CODINGS {
        let headers = format!("{JSON}content-encoding: {coding}\r\n");
        all.push(chat(coding, &headers, &encode(coding, BIG.as_bytes())));
    }
    for path in [
        "openai/deployments/big-1/chat/completions",
        "openai/Deployments/Big-1/Chat/Completions",
        "openai/deployments/./big-1/chat/completions",
        "openai%2Fdeployments/big-1/chat/completions",
        "engines/big-1/chat/completions",
        "openai/deployments/big-1/images/generations?api-version=1",
        "openai/deployments/big-1/audio/speech",
        "v1beta/models/big-1:batchGenerateContent",
        "v1beta/models/big-1:predictLongRunning",
        "v1beta/models/big-1:predict",
        "v1beta/models/big-1:countTokens",
        "v1beta/models/big-1:unheardOf",
        "model/big-1/invoke-with-bidirectional-stream",
        "model/big-1/unheard-of",
        "hf-inference/models/big-1/v1/chat/completions",
        "v1/speak?model=big-1",
        "v1beta/models/big-1:generateContent",
        "v1beta/models%2Fbig-1:generateContent",
        "model/big-1/converse",
    ] {
        all.push(InjectBy {
            line: format!("POST /{route}/{path}"),
            ..chat(path, JSON, SMALL.as_bytes())
        });
    }
    // The path names another model, which counts as well.
    for path in [
        "openai/deployments/x/chat/completions",
        "openai/deployments/x/images/generations",
        "engines/cheap/chat/completions",
        "engines/v1/chat/completions",
        "v1/publishers/mistralai/models/x:rawPredict",
        "openai/deployments/x/audio/speech?model=y",
    ] {
        all.push(InjectBy {
            line: format!("POST /{route}/{path}"),
            ..chat(path, JSON, BIG.as_bytes())
        });
    }
    for (path, body) in [
        ("async-invoke", r#"{"modelId":"big-1"}"#),
        ("v1/text/chat", r#"{"model_id":"big-1"}"#),
        (
            "v1/realtime/client_secrets",
            r#"{"session":{"type":"realtime","model":"big-1"}}"#,
        ),
    ] {
        all.push(InjectBy {
            line: format!("POST /{route}/{path}"),
            ..chat(path, JSON, body.as_bytes())
        });
    }
    all.push(InjectBy {
        line: format!("POST /{route}/api/chat"),
        ..chat("Ollama, as curl sends it", FORM, BIG.as_bytes())
    });
    all.push(chat(
        "a parameter of the media type",
        "content-type: application/json; platform=x\r\n",
        BIG.as_bytes(),
    ));
    all.push(InjectBy {
        line: format!("GET /{route}/v1/realtime?mod%65l=big-1"),
        ..chat("realtime", REALTIME, b"")
    });
    all
}

/// Requests that some upstreams read as requests for the big model, and others do not.
fn unreadable(route: &str) -> Vec<InjectBy> {
    let chat = |what: &str, headers: &str, body: &[u8]| InjectBy::chat(route, what, headers, body);
    let with = |member: &str| SMALL.replacen('{', &format!("{{{member},"), 1).into_bytes();
    let multipart = "content-type: multipart/form-data; boundary=x\r\n";
    let part = "--x\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nbig-1\r\n--x--\r\n";
    let gzip = format!("{JSON}content-encoding: gzip\r\n");
    let mut all = vec![
        chat(
            "UTF-16",
            "content-type: application/json; charset=utf-16\r\n",
            &utf16(BIG),
        ),
        chat("UTF-16 unsaid", JSON, &utf16(BIG)),
        chat(
            "UTF-7",
            "content-type: application/json; charset=utf-7\r\n",
            &with(r#""+AG0-odel":"big-1""#),
        ),
        chat("a BOM", JSON, format!("\u{feff}{BIG}").as_bytes()),
        chat("the model twice", JSON, &with(r#""model":"big-1""#)),
        chat(
            "the model twice, escaped",
            JSON,
            &with(r#""mod\u0065l":"big-1""#),
        ),
        chat(
            "the model in another case",
            JSON,
            &with(r#""Model":"big-1""#),
        ),
        chat("further models", JSON, &with(r#""models":["big-1"]"#)),
        chat(
            "fallbacks",
            JSON,
            &with(r#""fallbacks":[{"model":"big-1"}]"#),
        ),
        chat(
            "a body that another body is put over",
            JSON,
            &with(r#""extra_body":{"model":"big-1"}"#),
        ),
        chat(
            "NaN",
            JSON,
            BIG.replacen('{', r#"{"temperature":NaN,"#, 1).as_bytes(),
        ),
        chat(
            "Infinity",
            JSON,
            BIG.replacen('{', r#"{"top_p":-Infinity,"#, 1).as_bytes(),
        ),
        chat("a comment", JSON, format!("/* */{BIG}").as_bytes()),
        chat("trailing bytes", JSON, format!("{BIG}]").as_bytes()),
        chat("two bodies", JSON, format!("{SMALL}\n{BIG}").as_bytes()),
        chat("no model", JSON, br#"{"messages":[]}"#),
        chat(
            "a list as model",
            JSON,
            br#"{"model":["big-1"],"messages":[]}"#,
        ),
        chat(
            "too long",
            JSON,
            format!("{}{BIG}", " ".repeat(2_500_000)).as_bytes(),
        ),
        chat("a form", FORM, &with(r#""x":"&model=big-1&""#)),
        chat("multipart", multipart, part.as_bytes()),
        chat("an encoding that is not there", &gzip, SMALL.as_bytes()),
        chat(
            "an unknown encoding",
            &format!("{JSON}content-encoding: compress\r\n"),
            b"\x1f\x9d",
        ),
        chat("a bomb", &gzip, &encode("gzip", &vec![b' '; 3 << 20])),
    ];
    for path in [
        "openai/deployments/big-1;x/images/generations",
        "openai/deployments;x/big-1/chat/completions",
        "openai/deployments/big-1%3bx/chat/completions",
        "openai/deployments/%2562ig-1/chat/completions",
        "v1beta/models/%2562ig-1:generateContent",
        "openai%5Cdeployments%5Cbig-1/images/generations",
        "openai/deployments/b%C3%ADg-1/chat/completions",
    ] {
        all.push(InjectBy {
            line: format!("POST /{route}/{path}"),
            ..chat(path, JSON, SMALL.as_bytes())
        });
    }
    for (what, target) in [
        (
            "two models in the query",
            "v1/realtime?model=small&model=big-1",
        ),
        ("messages that name it", "v1/responses"),
    ] {
        all.push(InjectBy {
            line: format!("GET /{route}/{target}"),
            ..chat(what, REALTIME, b"")
        });
    }
    all
}

/// Refuses all calls of the big model for any caller, so that all refusals happen at once.
const NONE_OF_BIG: &str = "
[[quota]]
name = \"count\"
select = { route = \"count\", model = \"big*\" }
concurrent = 0
[[quota]]
name = \"refuse\"
select = { route = \"refuse\", model = \"big*\" }
concurrent = 0
on_unreadable = \"refuse\"
";

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_by_model_holds_however_the_request_is_written() {
    let fixture = LimitsFixture::start(NONE_OF_BIG).await;
    let mut wrong = Vec::new();
    for route in ["count", "refuse"] {
        for (asked, of_body) in (readable(route).iter().map(|asked| (asked, false)))
            .chain(unreadable(route).iter().map(|asked| (asked, true)))
        {
            let response = fixture.ask(asked).await;
            let expected = match (route, of_body) {
                ("refuse", true) => (422, Some("unreadable_body")),
                _ => (429, Some("rate_limited")),
            };
            if (response.status, response.error()) != expected {
                wrong.push(format!(
                    "{route}, {}: {} {:?}",
                    asked.what,
                    response.status,
                    response.error()
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(fixture.upstream.seen(), 0, "nothing reached the upstream");
    let refused = |resource| {
        format!("tokengauge_quota_refused_total{{quota=\"refuse\",resource=\"{resource}\"}}")
    };
    assert_eq!(
        fixture.metric(&refused("readable_body")).await,
        unreadable("").len() as f64
    );
    assert_eq!(
        fixture.metric(&refused("concurrent")).await,
        readable("").len() as f64
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_for_other_models_or_paths_are_forwarded_unchanged() {
    let fixture = LimitsFixture::start(NONE_OF_BIG).await;
    let small =
        |what: &str, headers: &str, body: &[u8]| InjectBy::chat("refuse", what, headers, body);
    let long = format!("{{\"x\":\"{}\",{}", "y".repeat(1_500_000), &SMALL[1..]);
    let mut fine = vec![
        small("plain", JSON, SMALL.as_bytes()),
        small(
            "text/plain",
            "content-type: text/plain\r\n",
            SMALL.as_bytes(),
        ),
        small("long", JSON, long.as_bytes()),
        small(
            "gzip",
            &format!("{JSON}content-encoding: gzip\r\n"),
            &encode("gzip", SMALL.as_bytes()),
        ),
        InjectBy {
            chunked: true,
            ..small("trailers", JSON, SMALL.as_bytes())
        },
        InjectBy {
            line: "GET /refuse/v1/models".to_owned(),
            ..small("a list of models", "", b"")
        },
        // Azure clients name the deployment in the path, and often another model in the body.
        InjectBy {
            line: "POST /refuse/openai/deployments/my-chat/chat/completions".to_owned(),
            ..small("Azure", JSON, SMALL.as_bytes())
        },
        InjectBy {
            line: "POST /refuse/openai/deployments/my-chat/chat/completions".to_owned(),
            ..small("Azure, without a model", JSON, br#"{"messages":[]}"#)
        },
        InjectBy {
            line: "POST /refuse/v1beta/models/small:countTokens".to_owned(),
            ..small("count tokens", JSON, br#"{"contents":[]}"#)
        },
        InjectBy {
            line: "POST /refuse/api/chat".to_owned(),
            ..small("Ollama, as curl sends it", FORM, SMALL.as_bytes())
        },
        small(
            "a parameter of the media type",
            "content-type: application/json; platform=x\r\n",
            SMALL.as_bytes(),
        ),
        InjectBy {
            line: "GET /refuse/v1/models/big-1".to_owned(),
            ..small("what is known of a model", "", b"")
        },
        InjectBy {
            line: "POST /refuse/v1/vector_stores".to_owned(),
            ..small("no model to name", JSON, b"{\"name\":\"x\"}")
        },
    ];
    // Hugging Face servers accept requests without a model.
    for (path, body) in [
        ("generate", r#"{"inputs":"Hi"}"#),
        ("generate_stream", r#"{"inputs":"Hi","parameters":{}}"#),
        ("embed", r#"{"inputs":["Hi"]}"#),
        ("rerank", r#"{"query":"a","texts":["b"]}"#),
    ] {
        fine.push(InjectBy {
            line: format!("POST /refuse/{path}"),
            ..small(path, JSON, body.as_bytes())
        });
    }
    fine.extend(
        unreadable("free")
            .into_iter()
            .filter(|asked| !asked.body.is_empty()),
    );
    for asked in &fine {
        let response = fixture.ask(asked).await;
        assert_eq!(response.status, 200, "{}: {}", asked.what, response.body);
        let bodies = fixture.upstream.bodies.lock().expect("no panic");
        assert!(
            bodies.last() == Some(&asked.body),
            "{} came otherwise",
            asked.what
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_because_of_the_body_is_an_error_of_the_dialect_with_a_remedy() {
    let fixture = LimitsFixture::start(NONE_OF_BIG).await;
    let asked = InjectBy {
        line: "POST /refuse/v1/messages".to_owned(),
        ..InjectBy::chat("refuse", "NaN", JSON, br#"{"model":"small","x":NaN}"#)
    };
    let response = fixture.ask(&asked).await;
    assert_eq!(response.status, 422);
    assert!(!response.head.contains("retry-after"), "{}", response.head);
    let body: serde_json::Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(body["type"], "error");
    assert_eq!(body["error"]["type"], "invalid_request_error");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("quota refuse") && message.contains("strict JSON"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_by_model_holds_over_http2() {
    let fixture = LimitsFixture::start(NONE_OF_BIG).await;
    let mut agent = http2(fixture.address()).await;
    for (body, expected) in [(BIG, 429), (&*format!("\u{feff}{BIG}"), 422), (SMALL, 200)] {
        let request = Request::post("http://h/refuse/v1/chat/completions");
        let request = request.body(whole(body.to_owned())).expect("a request");
        let response = soon("an answer", agent.send_request(request)).await;
        assert_eq!(response.expect("an answer").status(), expected, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_no_limit_depends_on_is_not_waited_for() {
    let upstream = Upstream::bind().await;
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    // Shadow mode must not wait for more bytes either.
    let shadow = NONE_OF_BIG.replace("concurrent = 0\n", "concurrent = 0\nmode = \"shadow\"\n");
    for limits in [NONE_OF_BIG, &shadow] {
        std::fs::write(&file, configuration(upstream.address, limits)).expect("written");
        let process = Process::start(&file).await;
        let mut agent = RawConnection::connect(process.addresses()[0]).await;
        let asked = InjectBy::chat("free", "half", JSON, BIG).bytes();
        let half = asked.len() - BIG.len() / 2;
        agent.write(&asked[..half]).await;
        let mut backend = upstream.accept().await;
        backend.read_head().await;
        backend.read_exact(BIG.len() - BIG.len() / 2).await;
        agent.write(&asked[half..]).await;
        backend.read_exact(BIG.len() / 2).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_for_which_there_is_no_memory_waits_and_is_not_let_in_unread() {
    let fixture = LimitsFixture::start(NONE_OF_BIG).await;
    let text = configuration(fixture.upstream.address, NONE_OF_BIG)
        .replace("body_bytes", "memory_bytes = \"2MiB\"\nbody_bytes");
    std::fs::write(&fixture.file, text).expect("written");
    fixture.process.signal(Signal::HUP);
    fixture.process.has_reloaded("applied", 1.0).await;
    let long = |model: &str| {
        SMALL
            .replace("small", model)
            .replace("Hi", &"x".repeat(600_000))
    };
    let never = long("small").replace("xxx", "yyyyyyy");
    let response = fixture
        .ask(&InjectBy::chat("refuse", "more than there is", JSON, never))
        .await;
    assert_eq!(response.status, 422, "{}", response.body);
    // Half of the memory is reserved for bodies that decide a limit. This body takes most of it, and arrives fast
    // enough to keep it.
    let held = InjectBy::chat("refuse", "held", JSON, long("small")).bytes();
    let (beginning, rest) = held.split_at(100_000);
    let mut first = RawConnection::connect(fixture.address()).await;
    first.write(beginning).await;
    let holds = "tokengauge_meter_queue_bytes";
    fixture.becomes(holds, 600_000.0).await;
    let fast = async {
        // Catch up with late ticks.
        let mut due = tokio::time::interval(Duration::from_millis(60));
        for piece in rest.chunks(10_000) {
            due.tick().await;
            first.write(piece).await;
        }
        HttpResponse::read(&mut first).await.status
    };
    let another = |route| fixture.ask_owned(InjectBy::chat(route, "another", JSON, long("big-1")));
    let (first, counted, refused) = tokio::join!(fast, another("count"), another("refuse"));
    assert_eq!(first, 200);
    for response in [counted, refused] {
        let expected = (503, Some("overloaded"));
        assert_eq!(
            (response.status, response.error()),
            expected,
            "{}",
            response.body
        );
        assert!(
            response.head.contains("retry-after: 1\r\n"),
            "{}",
            response.head
        );
    }
    assert_eq!(fixture.upstream.seen(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_sender_does_not_take_memory_from_others() {
    let fixture = LimitsFixture::start(NONE_OF_BIG).await;
    let text = configuration(fixture.upstream.address, NONE_OF_BIG)
        .replace("body_bytes", "memory_bytes = \"4MiB\"\nbody_bytes");
    std::fs::write(&fixture.file, text).expect("written");
    fixture.process.signal(Signal::HUP);
    fixture.process.has_reloaded("applied", 1.0).await;
    // Long and short bodies, each as many as memory allows at once.
    let long = SMALL.replace("Hi", &"x".repeat(600_000));
    let mut slow = Vec::new();
    for (size, count) in [(600_000, 3), (200_000, 12)] {
        let body = SMALL.replace("Hi", &"x".repeat(size));
        for _ in 0..count {
            let asked = InjectBy::chat("refuse", "slow", JSON, &body).bytes();
            let mut agent = RawConnection::connect(fixture.address()).await;
            agent.write(&asked[..100_000]).await;
            slow.push(agent);
        }
    }
    let holds = "tokengauge_meter_queue_bytes";
    fixture.becomes(holds, 1_500_000.0).await;
    let trickle = async {
        loop {
            for agent in &mut slow {
                let _ = agent.io.try_write(b"x");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let small = InjectBy::chat("refuse", "small", JSON, SMALL);
    let long = InjectBy::chat("refuse", "long", JSON, long);
    // On a busy machine an agent may be slow for half a second, and the proxy then asks it to retry.
    let asks = async {
        let end = Instant::now() + TIMEOUT;
        for asked in [&small, &long] {
            while fixture.ask(asked).await.status != 200 {
                assert!(Instant::now() < end, "no memory for others");
            }
        }
    };
    tokio::select! { () = asks => {} () = trickle => {} }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_for_each_key_holds_whatever_else_is_sent() {
    let limits = "[[quota]]\nname = \"k\"\nper = \"key\"\nrequests_per_minute = 1\n";
    let fixture = LimitsFixture::start(limits).await;
    let ask = |target: &'static str, headers: &'static str| {
        let asked = InjectBy {
            line: format!("POST {target}"),
            ..InjectBy::chat("free", "", headers, BIG)
        };
        let fixture = &fixture;
        async move { fixture.ask(&asked).await.status }
    };
    let chat = "/free/v1/chat/completions";
    assert_eq!(ask(chat, "authorization: Bearer own\r\n").await, 200);
    let mut passed = Vec::new();
    for headers in [
        "authorization: Bearer own\r\n",
        "authorization: bearer  own \r\n",
        "authorization: BEARER\town\r\n",
        "authorization: Bearer made-up-1\r\nx-api-key: own\r\n",
        "x-api-key: made-up-2\r\nauthorization: Bearer own\r\n",
        "authorization: Bearer made-up-3\r\nauthorization: Bearer own\r\n",
        "authorization: Bearer made-up-4, Bearer own\r\n",
        "authorization: Bearer own made-up-5\r\n",
        "authorization: Basic made-up-6\r\napi-key: own\r\n",
        "authorization: Bearer made-up-7\r\nx-goog-api-key: own\r\n",
    ] {
        if ask(chat, headers).await != 429 {
            passed.push(headers);
        }
    }
    for line in [
        &b"x-api-key: own\xa0"[..],
        b"x-api-key: \x85own",
        b"authorization: Bearer own\xc2\xa0",
        b"authorization: Bearer Bearer own",
        b"authorization: Basic bWFkZS11cC05Om93bg==",
        b"authorization: Basic b3duOm1hZGUtdXAtMTA=",
        b"authorization: Basic b3!duOm1,hZGUt dXAtMTE=",
        b"authorization: AWS4 Credential=Z/ own",
        b"authorization: AWS4-HMAC-SHA256 XCredential=Z/, Credential=own/x",
        b"sec-websocket-protocol: realtime, openai-insecure-api-key.own",
    ] {
        let asked = InjectBy::chat("free", "", "", BIG).bytes();
        let behind = asked
            .windows(2)
            .position(|at| at == b"\r\n")
            .expect("a line")
            + 2;
        let mut agent = RawConnection::connect(fixture.address()).await;
        let (first, rest) = asked.split_at(behind);
        agent.write([first, line, b"\r\n", rest].concat()).await;
        if HttpResponse::read(&mut agent).await.status != 429 {
            passed.push(std::str::from_utf8(line).unwrap_or("spaces beyond ASCII"));
        }
    }
    let gemini = "/free/v1beta/models/m:generateContent?alt=sse&key=own";
    if ask(gemini, "x-goog-api-key: made-up-8\r\n").await != 429 {
        passed.push(gemini);
    }
    let signed = "authorization: AWS4-HMAC-SHA256 Credential=AKIA/20260101/r/bedrock/aws4_request, SignedHeaders=host, Signature=1\r\n";
    let again = "authorization: AWS4-HMAC-SHA256 Credential=AKIA/20260101/r/bedrock/aws4_request, SignedHeaders=host, Signature=2\r\n";
    assert_eq!(ask("/free/model/m/converse", signed).await, 200);
    if ask("/free/model/m/converse", again).await != 429 {
        passed.push(again);
    }
    assert_eq!(ask(chat, "").await, 200, "without a key, once");
    if ask(chat, "").await != 429 {
        passed.push("no key");
    }
    assert_eq!(passed, Vec::<&str>::new());
    assert_eq!(ask(chat, "authorization: Bearer another's\r\n").await, 200);
    let nameless = "tokengauge_quota_shared_total{quota=\"k\",reason=\"nameless\"}";
    assert_eq!(fixture.metric(nameless).await, 2.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn made_up_names_beyond_those_that_are_remembered_share_one() {
    let limits = "[[quota]]\nname = \"s\"\nper = \"session\"\nrequests_per_minute = 1\n";
    let fixture = LimitsFixture::start(limits).await;
    let mut agent = RawConnection::connect(fixture.address()).await;
    let request = |number: usize| {
        format!(
            "GET /free/v1/models HTTP/1.1\r\nhost: h\r\nx-tokengauge-session: s-{number}\r\n\r\n"
        )
    };
    for first in (0..tokengauge_accounting::quota::MAX_NAMES).step_by(100) {
        let many: String = (first..first + 100).map(request).collect();
        agent.write(many).await;
        for _ in 0..100 {
            assert_eq!(HttpResponse::read(&mut agent).await.status, 200);
        }
    }
    let mut statuses = Vec::new();
    for number in 0..4 {
        agent.write(request(1_000_000 + number)).await;
        statuses.push(HttpResponse::read(&mut agent).await.status);
    }
    assert_eq!(statuses, [200, 429, 429, 429]);
    let beyond = "tokengauge_quota_shared_total{quota=\"s\",reason=\"too_many_names\"}";
    assert_eq!(fixture.metric(beyond).await, 4.0);
}

#[test]
fn check_says_what_refuses_and_what_only_counts() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 9));
    let check = |limits: &str| {
        std::fs::write(&file, configuration(nowhere, limits)).expect("written");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        let output = command.arg("check").arg("--config").arg(&file).output();
        let output = output.expect("run");
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).expect("text")
    };
    let shadow = NONE_OF_BIG.replacen("concurrent", "mode = \"shadow\"\nconcurrent", 1);
    let text = check(&format!("{shadow}{SPENT_BY_TWO}"));
    for line in [
        "quota count, per all: shadow mode, refuses nothing; unreadable bodies are counted",
        "quota refuse, per all: refuses with 429; unreadable bodies are refused with 422",
        "budget big, per all: refuses with 429; unreadable bodies are refused with 422",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for key in ["mode = \"shadow\"", "on_unreadable = \"count\""] {
        let text = check(&SPENT_BY_TWO.replace("block = true", key));
        assert!(text.contains("needs `block = true`"), "{text}");
    }
    let text = check(&NONE_OF_BIG.replacen("concurrent", "mode = \"dry\"\nconcurrent", 1));
    assert!(text.contains("unknown variant `dry`"), "{text}");
}

/// Two calls of the big model spend each of these budgets: an answer costs 0.1 USD.
const SPENT_BY_TWO: &str = "
[[budget]]
name = \"big\"
select = { model = \"big*\" }
usd = 0.15
period = \"400d\"
block = true
";

#[tokio::test(flavor = "multi_thread")]
async fn a_budget_by_model_blocks_however_the_request_is_written() {
    let fixture = LimitsFixture::start(SPENT_BY_TWO).await;
    let plain = InjectBy::chat("free", "plain", JSON, BIG);
    for _ in 0..2 {
        assert_eq!(fixture.ask(&plain).await.status, 200);
    }
    fixture
        .becomes("tokengauge_budget_spent_usd_total{budget=\"big\"}", 0.19)
        .await;
    let mut wrong = Vec::new();
    for (all, expected) in [
        (readable("free"), (429, Some("budget_spent"))),
        (unreadable("free"), (422, Some("unreadable_body"))),
    ] {
        for asked in all {
            let response = fixture.ask(&asked).await;
            if (response.status, response.error()) != expected {
                wrong.push(format!(
                    "{}: {} {:?}",
                    asked.what,
                    response.status,
                    response.error()
                ));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert_eq!(
        fixture
            .ask(&InjectBy::chat("free", "small", JSON, SMALL))
            .await
            .status,
        200
    );
    let unreadable = unreadable("free").len() as f64;
    assert_eq!(
        fixture
            .metric("tokengauge_budget_unreadable_total{budget=\"big\"}")
            .await,
        unreadable
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_spends_from_the_budgets_of_all_models_that_it_names() {
    let limits = SPENT_BY_TWO.replace("block", "per = \"model\"\nblock");
    let fixture =
        LimitsFixture::start(&limits.replace("select = { model = \"big*\" }\n", "")).await;
    let deployment = |name: &str, body: &str| InjectBy {
        line: format!("POST /free/openai/deployments/{name}/chat/completions"),
        ..InjectBy::chat("free", "", JSON, body)
    };
    for name in ["a", "b"] {
        assert_eq!(fixture.ask(&deployment(name, BIG)).await.status, 200);
    }
    let spends = "tokengauge_budget_spent_usd_total{budget=\"big\"}";
    fixture.becomes(spends, 0.19).await;
    assert!(fixture.metric(spends).await < 0.3, "each call is paid once");
    assert_eq!(
        fixture.ask(&deployment("c", BIG)).await.status,
        429,
        "big-1 is spent"
    );
    assert_eq!(
        fixture.ask(&deployment("a", SMALL)).await.status,
        200,
        "a is not"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn money_is_spent_under_the_name_by_which_the_call_was_let_in() {
    let budget = "[[budget]]\nname = \"b\"\nper = \"user\"\nusd = 0.15\nperiod = \"400d\"\nblock = true\non_unreadable = \"count\"\n";
    let fixture = LimitsFixture::start(budget).await;
    let of_ada = BIG.replacen('{', r#"{"user":"ada","#, 1);
    let gzip = format!("{JSON}content-encoding: gzip\r\n");
    let packed = InjectBy::chat("free", "gzip", &gzip, encode("gzip", of_ada.as_bytes()));
    let broken = InjectBy::chat("free", "NaN", JSON, of_ada.replacen('{', "{\"x\":NaN,", 1));
    for (asked, spent) in [(&packed, 0.19), (&broken, 0.39)] {
        for _ in 0..2 {
            assert_eq!(fixture.ask(asked).await.status, 200, "{}", asked.what);
        }
        let spends = "tokengauge_budget_spent_usd_total{budget=\"b\"}";
        fixture.becomes(spends, spent).await;
        assert_eq!(fixture.ask(asked).await.status, 429, "{}", asked.what);
    }
    let plain = InjectBy::chat("free", "plain", JSON, &of_ada);
    assert_eq!(fixture.ask(&plain).await.status, 429, "it is the same user");
    let other = InjectBy::chat("free", "bob", JSON, of_ada.replace("ada", "bob"));
    assert_eq!(fixture.ask(&other).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_mode_counts_would_be_refusals_and_enforcement_continues_its_counts() {
    let shadow = format!("{NONE_OF_BIG}{SPENT_BY_TWO}")
        .replace(
            "concurrent = 0\n",
            "requests_per_minute = 1\nmode = \"shadow\"\n",
        )
        .replace("block = true\n", "block = true\nmode = \"shadow\"\n");
    let fixture = LimitsFixture::start(&shadow).await;
    let plain = InjectBy::chat("count", "plain", JSON, BIG);
    for _ in 0..2 {
        assert_eq!(fixture.ask(&plain).await.status, 200);
    }
    fixture
        .becomes("tokengauge_budget_spent_usd_total{budget=\"big\"}", 0.19)
        .await;
    let broken = InjectBy::chat("refuse", "NaN", JSON, BIG.replacen('{', "{\"x\":NaN,", 1));
    for asked in [&plain, &broken] {
        assert_eq!(fixture.ask(asked).await.status, 200);
    }
    let quota = |name: &str, mode: &str, resource: &str| {
        format!("tokengauge_quota_{mode}refused_total{{quota=\"{name}\",resource=\"{resource}\"}}")
    };
    let of_budget = |mode: &str| format!("tokengauge_budget_{mode}blocked_total{{budget=\"big\"}}");
    assert_eq!(
        fixture.metric(&quota("count", "shadow_", "requests")).await,
        2.0
    );
    assert_eq!(
        fixture
            .metric(&quota("refuse", "shadow_", "readable_body"))
            .await,
        1.0
    );
    assert_eq!(fixture.metric(&quota("count", "", "requests")).await, 0.0);
    // One budget counts spent money, the other reads the body.
    assert_eq!(fixture.metric(&of_budget("shadow_")).await, 2.0);
    assert_eq!(fixture.metric(&of_budget("")).await, 0.0);
    fixture
        .process
        .line("a quota in shadow mode would refuse calls")
        .await;
    let enforced = configuration(
        fixture.upstream.address,
        &shadow.replace("mode = \"shadow\"\n", ""),
    );
    std::fs::write(&fixture.file, enforced).expect("written");
    fixture.process.signal(Signal::HUP);
    fixture.process.has_reloaded("applied", 1.0).await;
    let response = fixture.ask(&plain).await;
    assert_eq!(
        (response.status, response.error()),
        (429, Some("budget_spent"))
    );
    assert_eq!(fixture.metric(&of_budget("shadow_")).await, 2.0);
    assert_eq!(
        fixture.metric(&quota("count", "shadow_", "requests")).await,
        2.0
    );
}

/// An agent that writes its whole request before it reads gets the answer, not a reset.
#[tokio::test]
async fn a_refusal_reaches_an_agent_that_is_still_sending() {
    let limits = "[[quota]]\nname = \"none\"\nselect = { route = \"count\" }\nconcurrent = 0\n\
         [[quota]]\nname = \"big\"\nselect = { route = \"refuse\", model = \"big*\" }\nconcurrent = 9\n\
         on_unreadable = \"refuse\"\n";
    let fixture = LimitsFixture::start(limits).await;
    let body = vec![b' '; 8 << 20];
    for (route, status) in [("count", " 429 "), ("refuse", " 422 ")] {
        let head = format!(
            "POST /{route}/v1/chat/completions HTTP/1.1\r\nHost: h\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let mut agent = RawConnection::connect(fixture.address()).await;
        agent.write(head).await;
        agent.write(&body).await;
        let head = agent.read_head().await;
        assert!(head.contains(status), "{head}");
    }
}
