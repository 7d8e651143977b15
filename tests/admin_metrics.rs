//! The metrics address serves `/metrics` and health checks only.

use crate::process::Process;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::process::Command;
use tempfile::TempDir;
use tokengauge_config::Config;
use tokengauge_test_support::http_client::{fetch, request_with};

const TOKEN: &str = "correct-horse-battery-staple";
const ROUTE: &str =
    "[[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\nupstream = \"u\"\n";
/// Paths of the admin address that show calls or the page.
const ELSEWHERE: [&str; 9] = [
    "/api/v1/live",
    "/api/v1/sessions",
    "/api/v1/calls",
    "/api/v1/about",
    "/api/v1/events",
    "/api/v1/openapi.json",
    "/",
    "/page/main.js",
    "/metrics/../api/v1/calls",
];

fn text(admin: &str) -> String {
    let any = "listen = \"127.0.0.1:0\"\n";
    format!("{any}[admin]\n{any}metrics_listen = \"127.0.0.1:0\"\n{admin}{ROUTE}")
}

async fn proxy(admin: &str) -> (Process, SocketAddr, TempDir) {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    std::fs::write(&file, text(admin)).expect("written");
    let process = Process::start(&file).await;
    let line = process.line("metrics on ").await;
    let metrics = line["metrics on ".len()..].parse().expect("an address");
    assert_ne!(metrics, process.admin);
    (process, metrics, folder)
}

#[tokio::test]
async fn it_answers_metrics_and_health_and_nothing_about_calls() {
    let (process, metrics, _folder) = proxy("").await;
    for (path, mark) in [
        ("/metrics", "tokengauge_build_info{"),
        ("/livez", "ok"),
        ("/readyz", "ready"),
    ] {
        let response = fetch(metrics, path).await;
        assert_eq!(response.status, 200, "{path}");
        assert!(response.body.contains(mark), "{path}: {}", response.body);
        assert!(
            response.head.contains("x-content-type-options: nosniff"),
            "{path}"
        );
    }
    for path in ELSEWHERE {
        let response = fetch(metrics, path).await;
        assert_eq!(response.status, 404, "{path}: {}", response.body);
    }
    for path in &ELSEWHERE[1..4] {
        assert_eq!(
            fetch(process.admin, path).await.status,
            200,
            "{path} is here"
        );
    }
    assert_eq!(
        request_with(metrics, "POST", "/metrics", &[]).await.status,
        405
    );
    let rebound = [("host", "evil.example")];
    let response = request_with(metrics, "GET", "/metrics", &rebound).await;
    assert_eq!(response.status, 421, "{}", response.body);
    let both = process.metrics().await["tokengauge_admin_connections"];
    assert!(both >= 1.0, "{both}");
}

#[tokio::test]
async fn its_metrics_ask_for_the_token_where_the_operator_wants_it() {
    let bearer = format!("Bearer {TOKEN}");
    let shown = [("authorization", bearer.as_str())];
    for (more, status) in [("", 200), ("metrics_token = true\n", 401)] {
        let (process, metrics, _folder) = proxy(&format!("token = \"{TOKEN}\"\n{more}")).await;
        assert_eq!(fetch(metrics, "/metrics").await.status, status, "{more}");
        let response = request_with(metrics, "GET", "/metrics", &shown).await;
        assert_eq!(response.status, 200, "{more}");
        for path in ["/livez", "/readyz"] {
            assert_eq!(fetch(metrics, path).await.status, 200, "{path}");
        }
        for path in ELSEWHERE {
            let response = request_with(metrics, "GET", path, &shown).await;
            assert_eq!(response.status, 404, "{path} even with the token");
        }
        assert_eq!(fetch(process.admin, "/metrics").await.status, 401);
    }
}

#[tokio::test]
async fn it_changes_with_a_restart_as_the_admin_address_does() {
    let (process, metrics, folder) = proxy("").await;
    let file = folder.path().join("proxy-config.toml");
    std::fs::write(&file, text("metrics_token = true\n")).expect("written");
    process.signal(Signal::HUP);
    process
        .line("`admin` cannot change while the process runs")
        .await;
    assert_eq!(fetch(metrics, "/metrics").await.status, 200);
}

#[test]
fn what_cannot_be_meant_is_refused() {
    let wrong = |admin: &str, upstream: &str| {
        let route = ROUTE.replace("127.0.0.1:9", upstream);
        let text = format!("[admin]\n{admin}{route}");
        let refused = Config::parse(&text, "test").expect_err(admin);
        refused.to_string()
    };
    let same = "listen = \"127.0.0.1:9464\"\nmetrics_listen = \"127.0.0.1:9464\"\n";
    assert!(wrong(same, "h").contains("test:3:18: metrics_listen"));
    let open = "metrics_listen = \"0.0.0.0:15464\"\n";
    assert!(wrong(open, "127.0.0.1:15464").contains("the admin or metrics address 0.0.0.0:15464"));
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    let check = |admin: &str| {
        std::fs::write(&file, text(admin)).expect("written");
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        let output = command.arg("check").arg("--config").arg(&file).output();
        let output = output.expect("it runs");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let (code, said) = check("metrics_token = true\n");
    assert_eq!(code, Some(78), "{said}");
    assert!(said.contains("admin.metrics_token"), "{said}");
    let (code, said) = check("");
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("health checks and metrics are at 127.0.0.1:0"),
        "{said}"
    );
}

#[tokio::test]
async fn without_classic_histograms_text_has_sums_and_counts_and_protobuf_native_buckets() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("proxy-config.toml");
    for classic in [true, false] {
        let listen = "listen = \"127.0.0.1:0\"\n";
        let text = format!("{listen}[admin]\n{listen}classic_histograms = {classic}\n{ROUTE}");
        std::fs::write(&file, text).expect("written");
        let process = Process::start(&file).await;
        let text = fetch(process.admin, "/metrics").await.body;
        let buckets = text.lines().filter(|line| line.contains("_bucket{"));
        let (all, bounded) = (
            buckets.clone(),
            buckets.filter(|line| !line.contains("le=\"+Inf\"")),
        );
        assert!(all.count() > 0);
        assert_eq!(bounded.count() > 0, classic);
        let kind = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";
        let stream = tokio::net::TcpStream::connect(process.admin).await;
        let (_, head, body) = tokengauge_test_support::http_client::exchange_bytes(
            stream.expect("connected"),
            "GET",
            "/metrics",
            &[("accept", kind)],
        )
        .await;
        assert!(
            head.contains(&format!("content-type: {}", kind.to_lowercase())),
            "{head}"
        );
        assert!(body.len() > 1_000);
    }
}
