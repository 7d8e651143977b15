//! A sidecar whose configuration cannot be used at its start, on the real binary. Calls use the fallback routes of the
//! injection, unless the refused configuration may contain a limit.

use crate::process::{Process, SteppedBackend};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{TestResponse, fetch, request_with};
use tokio::process::Command;

const SUCCESSFUL: &str = "tokengauge_config_last_reload_successful";
const FORWARDED: &str = "tokengauge_config_fallback{calls=\"forwarded\"}";
const REFUSED: &str = "tokengauge_config_fallback{calls=\"refused\"}";
const QUOTA: &str = "[[quota]]\nname = \"q\"\nconcurrent = 1\n";
/// Makes the text before it invalid TOML.
const BROKEN: &str = "[[upstream]\n";

fn route(name: &str, upstream: SocketAddr) -> String {
    format!(
        "[[upstream]]\nname = \"{name}\"\nurl = \"http://{upstream}\"\n\
         [[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
    )
}

/// A pod's ConfigMap, and the engine of the fallback's only route, `/engine`.
struct PodFixture {
    folder: TempDir,
    engine: SteppedBackend,
}

impl PodFixture {
    async fn new(text: Option<&str>) -> PodFixture {
        let pod = PodFixture {
            folder: TempDir::new().expect("a folder"),
            engine: SteppedBackend::start().await,
        };
        if let Some(text) = text {
            pod.write(text);
        }
        pod
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("proxy-config.toml")
    }

    fn write(&self, text: impl AsRef<[u8]>) {
        std::fs::write(self.path(), text).expect("written");
    }

    /// The command line that injection writes.
    fn command(&self) -> Command {
        let mut command = run(&self.path());
        let fallback = route("engine", self.engine.address);
        command.env("TOKENGAUGE_FALLBACK_CONFIG", fallback);
        command
    }

    async fn start(&self) -> Process {
        Process::start_by(self.command()).await
    }

    async fn start_with(&self, policy: &str) -> Process {
        let mut command = self.command();
        command.env("TOKENGAUGE_ON_REFUSED_CONFIG", policy);
        Process::start_by(command).await
    }
}

fn run(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.arg("run").arg("--config").arg(config);
    command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
    command
}

async fn hello(process: &Process) -> TestResponse {
    fetch(process.addresses()[0], "/engine/hello").await
}

async fn gauges(process: &Process) -> [f64; 3] {
    let metrics = process.metrics().await;
    [SUCCESSFUL, FORWARDED, REFUSED].map(|name| metrics[name])
}

/// Waits until the gauges have these values.
async fn wait_for(process: &Process, wanted: [f64; 3]) {
    let end = Instant::now() + TIMEOUT;
    while gauges(process).await != wanted {
        assert!(Instant::now() < end, "never {wanted:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn verbose(process: &Process) -> String {
    let response = fetch(process.admin, "/readyz?verbose").await;
    assert_eq!(response.status, 200, "still ready: {}", response.body);
    assert_eq!(fetch(process.admin, "/readyz").await.body, "ready\n");
    response.body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_passes_calls_whatever_its_configuration_is_refused_for() {
    let somewhere = "127.0.0.1:9".parse().expect("an address");
    let own = route("own", somewhere);
    for (text, reason) in [
        (Some(format!("{own}{BROKEN}")), "proxy-config.toml:7"),
        (
            Some(format!("{own}colour = \"red\"\n")),
            "unknown field `colour`",
        ),
        (
            Some(own.replace("http:", "nothing:")),
            "must start with `http://`",
        ),
        (Some(String::new()), "there is none; add a [[route]]"),
        (None, "cannot be read"),
        (
            Some(format!(
                "{own}[[notify]]\nkind = \"slack\"\nurl_file = \"/no/file\"\n"
            )),
            "/no/file",
        ),
        (
            Some(format!(
                "{own}[admin.tls]\ncertificate = \"/no/file\"\nkey = \"/no/key\"\n"
            )),
            "/no/file",
        ),
        (
            Some(format!("state_dir = \"/proc/no\"\n{own}")),
            "state_dir /proc/no",
        ),
    ] {
        let pod = PodFixture::new(text.as_deref()).await;
        let process = pod.start().await;
        let line = process.line("was refused at the start").await;
        assert!(
            line.contains("\"ERROR\"") && line.contains(reason),
            "{line}"
        );
        assert!(line.contains("calls are forwarded"), "{line}");
        assert_eq!(hello(&process).await.body, "hello", "{text:?}");
        assert_eq!(gauges(&process).await, [0.0, 1.0, 0.0], "{text:?}");
        let ready = verbose(&process).await;
        assert!(
            ready.contains("refused at the start") && ready.contains("forwarded"),
            "{ready}"
        );
        let end = Instant::now() + TIMEOUT;
        let series = "tokengauge_streams_in_flight{upstream=\"engine\",route=\"engine\"}";
        assert!(process.metrics().await.contains_key(series));
        while !fetch(process.admin, "/api/v1/calls?operation_class=all")
            .await
            .body
            .contains("\"engine\"")
        {
            assert!(Instant::now() < end, "no record of the call");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_corrected_configuration_is_used_and_the_gauge_falls() {
    let pod = PodFixture::new(Some(BROKEN)).await;
    let other = SteppedBackend::start().await;
    let process = pod.start().await;
    assert_eq!(gauges(&process).await, [0.0, 1.0, 0.0]);
    pod.write("still = \"wrong\"\n");
    process.signal(Signal::HUP);
    process.has_reloaded("refused", 1.0).await;
    assert_eq!(gauges(&process).await, [0.0, 1.0, 0.0]);
    assert_eq!(hello(&process).await.body, "hello");
    pod.write(route("other", other.address));
    process.has_reloaded("applied", 1.0).await;
    assert_eq!(gauges(&process).await, [1.0, 0.0, 0.0]);
    assert!(verbose(&process).await.contains("is in use"));
    assert_eq!(
        hello(&process).await.status,
        404,
        "the fallback's route is gone"
    );
    let own = fetch(process.addresses()[0], "/other/hello").await;
    assert_eq!(own.body, "hello");
    // From now on the sidecar behaves like any proxy and keeps the previous configuration.
    pod.write(BROKEN);
    process.signal(Signal::HUP);
    process.has_reloaded("refused", 2.0).await;
    assert_eq!(gauges(&process).await, [0.0, 0.0, 0.0]);
    assert!(verbose(&process).await.contains("the previous one remains"));
    let own = fetch(process.addresses()[0], "/other/hello").await;
    assert_eq!(own.body, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_cannot_be_loaded_refuses_calls_in_the_words_of_their_dialect() {
    let budget = "[[budget]]\nname = \"b\"\nusd = 1.0\nblock = true\n";
    for text in [
        format!("{QUOTA}colour = \"red\"\n"),
        format!("{QUOTA}{BROKEN}"),
        format!("colour = \"red\"\n{budget}"),
        format!("{BROKEN}{budget}"),
        "[limits]\nrequests_per_minute = 5\n".to_owned(),
        QUOTA.replace("quota", "qouta"),
        budget.replace("budget", "bugdet"),
        format!("{}{BROKEN}", QUOTA.replace("quota", "limit")),
        "[[rate_limit]]\nrequests = 5\n".to_owned(),
        format!("bugdet = [{{ name = \"it's # 1\", block = true }}]\n{BROKEN}"),
    ] {
        let pod = PodFixture::new(Some(&text)).await;
        let process = pod.start().await;
        let address = process.addresses()[0];
        for (path, mark) in [
            ("/engine/v1/chat/completions", "\"code\":\"config_refused\""),
            ("/engine/v1/messages", "{\"type\":\"error\""),
        ] {
            let response = request_with(address, "POST", path, &[]).await;
            assert_eq!(response.status, 503, "{text}: {}", response.body);
            assert!(
                response
                    .head
                    .contains("x-tokengauge-error: config_refused\r\n")
            );
            assert!(response.body.contains(mark), "{}", response.body);
            for part in [
                "proxy-config.toml",
                "not of the caller",
                "on-refused-config",
            ] {
                assert!(response.body.contains(part), "{}", response.body);
            }
        }
        assert_eq!(pod.engine.connections(), 0);
        assert_eq!(gauges(&process).await, [0.0, 0.0, 1.0], "{text}");
        assert!(verbose(&process).await.contains("calls are refused"));
        let line = process.line("was refused at the start").await;
        assert!(line.contains("calls are refused"), "{line}");
    }
}

fn utf16(text: &str, mark: bool) -> Vec<u8> {
    let mark = mark.then_some(0xfeff).into_iter();
    let units = mark.chain(text.encode_utf16());
    units.flat_map(u16::to_le_bytes).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_in_another_encoding_may_limit_and_guard() {
    for mark in [true, false] {
        let pod = PodFixture::new(None).await;
        pod.write(utf16(
            &format!("{QUOTA}[admin]\ntoken = \"0123456789abcdef\"\n"),
            mark,
        ));
        let process = pod.start().await;
        assert_eq!(hello(&process).await.status, 503, "{mark}");
        assert_eq!(fetch(process.admin, "/api/v1/calls").await.status, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_guards_the_api_closes_it_when_it_cannot_be_loaded() {
    for text in [
        "[admin]\nenabled = false\n",
        "[admin.tls]\nclient_ca = \"ca.pem\"\n",
        "[admin]\ntokenfile = \"/run/token\"\n",
        "[admin]\nauth_token = \"0123456789abcdef\"\n",
        "[admin]\n\"tok\\u0065n\" = \"0123456789abcdef\"\n",
    ] {
        for end in ["colour = \"red\"\n", BROKEN] {
            let pod = PodFixture::new(Some(&format!("{text}{end}"))).await;
            let process = pod.start().await;
            // In invalid TOML, an escaped key may also be the key of a limit.
            if !(text.contains('\\') && end == BROKEN) {
                assert_eq!(hello(&process).await.body, "hello", "{text}{end}");
            }
            let status = fetch(process.admin, "/api/v1/calls").await.status;
            assert_eq!(status, 404, "{text}{end}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_injection_decides_whether_calls_are_forwarded() {
    let limited = PodFixture::new(Some(&format!("{QUOTA}{BROKEN}"))).await;
    let process = limited.start_with("pass").await;
    assert_eq!(hello(&process).await.body, "hello");
    assert_eq!(gauges(&process).await, [0.0, 1.0, 0.0]);
    let free = PodFixture::new(Some(BROKEN)).await;
    let process = free.start_with("refuse").await;
    assert_eq!(hello(&process).await.status, 503);
    assert_eq!(gauges(&process).await, [0.0, 0.0, 1.0]);
    free.write(route("engine", free.engine.address));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    assert_eq!(hello(&process).await.body, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_comes_later_and_cannot_be_loaded_refuses_until_it_can() {
    let pod = PodFixture::new(None).await;
    let process = pod.start().await;
    assert_eq!(hello(&process).await.body, "hello");
    let own = route("engine", pod.engine.address);
    pod.write(format!("{own}{QUOTA}colour = \"red\"\n"));
    wait_for(&process, [0.0, 0.0, 1.0]).await;
    assert_eq!(hello(&process).await.status, 503);
    // The file is valid, but its changes need a restart.
    pod.write(format!("[otlp]\ncall_records = true\n{own}{QUOTA}"));
    process.signal(Signal::HUP);
    process
        .line("`otlp` cannot change while the process runs")
        .await;
    assert_eq!(hello(&process).await.status, 503);
    pod.write(format!("{own}{QUOTA}"));
    wait_for(&process, [1.0, 0.0, 0.0]).await;
    assert_eq!(hello(&process).await.body, "hello");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_cannot_be_loaded_closes_what_it_guards() {
    let text = format!("[admin]\ntoken_file = \"/no/token\"\n{BROKEN}");
    let pod = PodFixture::new(Some(&text)).await;
    let process = pod.start().await;
    assert_eq!(hello(&process).await.body, "hello");
    for (path, status) in [("/api/v1/calls", 404), ("/", 404), ("/livez", 200)] {
        assert_eq!(fetch(process.admin, path).await.status, status, "{path}");
    }
    assert_eq!(gauges(&process).await, [0.0, 1.0, 0.0], "metrics stay");
    let guarded = "[admin]\nmetrics_token = true\n";
    pod.write(format!("{guarded}{BROKEN}"));
    let mut command = pod.command();
    command.env("TOKENGAUGE_ADMIN_TOKEN", "0123456789abcdef");
    command.args(["--metrics-listen", "127.0.0.1:0"]);
    let process = Process::start_by(command).await;
    let shown = [("authorization", "Bearer 0123456789abcdef")];
    for (headers, status) in [(&[][..], 401), (&shown[..], 200)] {
        let response = request_with(process.admin, "GET", "/api/v1/calls", headers).await;
        assert_eq!(response.status, status, "it is known: {}", response.body);
        let line = process.line("metrics on ").await;
        let address = line["metrics on ".len()..].parse().expect("an address");
        let response = request_with(address, "GET", "/metrics", headers).await;
        assert_eq!(response.status, status, "{}", response.body);
    }
    // The admin token does not come from the file, so the corrected file is used.
    pod.write(format!("{guarded}{}", route("engine", pod.engine.address)));
    process.signal(Signal::HUP);
    process.line("the configuration was reloaded").await;
}

/// The exit code and the output of the command.
async fn ends(mut command: Command) -> (Option<i32>, String) {
    let child = command.stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(TIMEOUT, child).await;
    let output = output.expect("it ends").expect("started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_exits_with_78_and_so_does_a_fallback_that_cannot_be_used() {
    let pod = PodFixture::new(Some("colour = \"red\"\n")).await;
    let (code, said) = ends(run(&pod.path())).await;
    assert_eq!(code, Some(78), "{said}");
    let mut command = run(&pod.path());
    command.env("TOKENGAUGE_FALLBACK_CONFIG", "flavour = \"sweet\"\n");
    let (code, said) = ends(command).await;
    assert_eq!(code, Some(78), "{said}");
    assert!(
        said.contains("`colour`") && said.contains("`flavour`"),
        "{said}"
    );
    // An address in use is not an error of the configuration.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = taken
        .local_addr()
        .map(|at| (at, taken))
        .expect("an address");
    pod.write(route("engine", pod.engine.address));
    let mut command = pod.command();
    command.args(["--metrics-listen", &taken.0.to_string()]);
    let (code, said) = ends(command).await;
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("--metrics-listen") && !said.contains("fallback"),
        "{said}"
    );
    // Other commands of the image ignore the variables.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["pause", "1ms"]);
    command.env("TOKENGAUGE_FALLBACK_CONFIG", "x = 1");
    command.env("TOKENGAUGE_ON_REFUSED_CONFIG", "pass");
    assert_eq!(ends(command).await.0, Some(0));
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn what_was_begun_for_the_refused_configuration_is_over() {
    let pod = PodFixture::new(None).await;
    let own = route("engine", pod.engine.address);
    let threads = |process: &Process| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).expect("tasks");
        let names = tasks.map(|task| {
            let name = std::fs::read_to_string(task.expect("a task").path().join("comm"));
            name.unwrap_or_default()
        });
        let mut names: Vec<_> = names.filter(|name| !name.starts_with("traffic")).collect();
        names.sort();
        names
    };
    pod.write(&own);
    let plain = pod.start().await;
    assert_eq!(hello(&plain).await.body, "hello");
    let ledger = pod.folder.path().join("ledger.sqlite");
    pod.write(format!(
        "state_dir = \"/proc/no\"\n{own}[ledger]\npath = {ledger:?}\n"
    ));
    let fallen_back = pod.start().await;
    assert_eq!(hello(&fallen_back).await.body, "hello");
    let end = Instant::now() + TIMEOUT;
    while threads(&plain) != threads(&fallen_back) {
        let both = [threads(&plain), threads(&fallen_back)];
        assert!(Instant::now() < end, "{both:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
