//! Access rules of the admin address, and its answers while traffic threads are busy.

use crate::admin_api::Server;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokengauge_admin::{self as admin, Access, AdminRuntime, ProcessServices, Services};
use tokengauge_config::{
    self as config, ClientTls, Config, Measure, Protocol, Secret, ServerTls, Token,
};
use tokengauge_net::tls::Connector;
use tokengauge_slo::Slos;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::http_client::{TestResponse, exchange, fetch, request_with};
use tokengauge_test_support::meter::Bench;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const TOKEN: &str = "correct-horse-battery-staple";

fn access(admin: &config::Admin) -> Access {
    Access::new(admin, Instant::now()).unwrap_or_else(|error| panic!("{error}"))
}

fn with_token() -> config::Admin {
    config::Admin {
        token: Some(Token::Text(Secret::new(TOKEN))),
        ..config::Admin::default()
    }
}

fn message(response: &TestResponse) -> String {
    let error: Value = serde_json::from_str(&response.body).expect("JSON");
    error["error"]["message"]
        .as_str()
        .expect("a text")
        .to_owned()
}

#[tokio::test]
async fn a_token_opens_everything_but_health_and_the_pages_files_are_open_to_all() {
    let server = Server::with_access(access(&with_token())).await;
    server.readiness.listening();
    for open in ["/livez", "/readyz", "/", "/page/vendor/uplot.js"] {
        assert_eq!(fetch(server.address, open).await.status, 200, "{open}");
    }
    let closed = [
        "/metrics",
        "/api/v1/about",
        "/api/v1/calls",
        "/api/v1/streams",
        "/nothing",
        "/page/nothing",
        "/page/../metrics",
        "/livez/../metrics",
    ];
    for path in closed {
        let response = fetch(server.address, path).await;
        assert_eq!(response.status, 401, "{path}");
        assert!(
            response
                .head
                .contains("www-authenticate: bearer realm=\"tokengauge\"\r\n")
        );
        assert!(
            message(&response).contains("authorization: Bearer"),
            "{path}"
        );
        let wrong = [("authorization", "Bearer correct-horse-battery-stapler")];
        let response = request_with(server.address, "GET", path, &wrong).await;
        assert_eq!(response.status, 401, "{path}");
        assert!(response.head.contains("error=\"invalid_token\""));
        assert!(!response.body.contains("horse"), "tokens are not repeated");
    }
    let bearer = format!("Bearer {TOKEN}");
    for path in ["/metrics", "/", "/api/v1/calls"] {
        let headers = [("authorization", bearer.as_str())];
        let response = request_with(server.address, "GET", path, &headers).await;
        assert_eq!(response.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_foreign_host_name_that_resolves_here_is_refused() {
    let local = config::Admin {
        address: Some(([127, 0, 0, 1], 9464).into()),
        ..config::Admin::default()
    };
    let status = async |server: &Server, host: &str| {
        let headers = [("host", host)];
        request_with(server.address, "GET", "/api/v1/calls", &headers)
            .await
            .status
    };
    let server = Server::with_access(access(&local)).await;
    for ours in [
        "localhost",
        "LocalHost:9464",
        "127.0.0.1:9464",
        "[::1]:9464",
        "10.1.2.3",
    ] {
        assert_eq!(status(&server, ours).await, 200, "{ours}");
    }
    for theirs in [
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "",
    ] {
        assert_eq!(status(&server, theirs).await, 421, "{theirs}");
    }
}

#[tokio::test]
async fn no_name_made_to_lead_to_a_clusters_address_opens_it_either() {
    let of_cluster = config::Admin {
        address: Some(([0, 0, 0, 0], 9464).into()),
        hosts: vec!["gauge.example.com".to_owned()],
        ..config::Admin::default()
    };
    let server = Server::with_access(access(&of_cluster)).await;
    let ask = async |path: &str, host: &str| {
        let headers = [("host", host)];
        request_with(server.address, "GET", path, &headers).await
    };
    for ours in [
        "10.1.2.3:9464",
        "[fd00::1]:9464",
        "localhost:9464",
        "tokengauge-admin:9464",
        "tokengauge-admin.monitoring.svc",
        "tokengauge-admin.monitoring.svc.cluster.local:9464",
        "gauge.example.com",
    ] {
        for path in ["/livez", "/metrics", "/api/v1/calls"] {
            assert_eq!(ask(path, ours).await.status, 200, "{ours}{path}");
        }
    }
    for theirs in [
        "evil.example",
        "rebound.evil.example:9464",
        "10.1.2.3.nip.io",
    ] {
        for path in [
            "/livez",
            "/",
            "/page/main.js",
            "/metrics",
            "/api/v1/calls",
            "/no",
        ] {
            let response = ask(path, theirs).await;
            assert_eq!(response.status, 421, "{theirs}{path}");
            let message = message(&response);
            assert!(
                message.contains("`hosts` of [admin]") && message.contains("`token`"),
                "{message}"
            );
        }
    }
    // HTTP/1.0 health checks may omit the host. Browsers always send it.
    let mut tcp = TcpStream::connect(server.address).await.expect("connect");
    tcp.write_all(b"GET /livez HTTP/1.0\r\n\r\n")
        .await
        .expect("written");
    let mut body = String::new();
    tcp.read_to_string(&mut body).await.expect("read");
    assert!(body.starts_with("HTTP/1.0 200"), "{body}");
    let server = Server::with_access(access(&with_token())).await;
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("host", "any.example"), ("authorization", bearer.as_str())];
    let response = request_with(server.address, "GET", "/metrics", &headers).await;
    assert_eq!(response.status, 200, "with a token by any name");
}

#[tokio::test]
async fn the_admin_address_speaks_tls_where_configured() {
    let authority = Authority::new();
    let (certificate, key) = authority.issue("admin", "localhost");
    let tls = ServerTls {
        certificate,
        key,
        client_ca: None,
    };
    let settings = config::Admin {
        tls: Some(tls),
        ..with_token()
    };
    let server = Server::with_access(access(&settings)).await;
    let client = ClientTls {
        ca: Some(authority.file.clone()),
        ..ClientTls::default()
    };
    let connector = Connector::new(&client, Protocol::Http1).expect("usable");
    let bearer = format!("Bearer {TOKEN}");
    for (headers, status) in [
        (&[][..], 401),
        (&[("authorization", bearer.as_str())][..], 200),
    ] {
        let tcp = TcpStream::connect(server.address).await.expect("connect");
        let stream = connector.connect(tcp, "localhost").await.expect("TLS");
        let response = exchange(stream, "GET", "/metrics", headers).await;
        assert_eq!(response.status, status);
    }
}

#[test]
fn an_unusable_token_or_certificate_is_refused_at_start() {
    let config = |admin: &str| {
        let text = format!(
            "[admin]\n{admin}\n[[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\nupstream = \"u\"\n"
        );
        Config::parse(&text, "test")
    };
    let reason = |admin: &str| {
        let invalid = config(admin).expect_err("not valid").to_string();
        assert!(invalid.starts_with("test:2:9: token: "), "{invalid}");
        invalid
    };
    assert!(reason("token = \"short\"").contains("at least 16 characters"));
    assert!(reason("token = \"with blanks in between them\"").contains("without blanks"));
    assert!(reason("token = \"0123456789abcdef\"\ntoken_file = \"f\"").contains("not both"));
    assert!(
        !reason("token = \"sesame\"").contains("sesame"),
        "it is not repeated"
    );
    for wrong in [
        "",
        "https://gauge.example.com",
        "gauge.example.com:9464",
        "a b",
    ] {
        let invalid = config(&format!("hosts = [{wrong:?}]")).expect_err("no name");
        let invalid = invalid.to_string();
        assert!(
            invalid.starts_with("test:2:") && invalid.contains("is not a host name"),
            "{invalid}"
        );
    }
    let hosts = config("hosts = [\"Gauge.Example.com.\"]").expect("a name");
    assert_eq!(hosts.admin.hosts, ["gauge.example.com"]);
    let config = config("token_file = \"/nonexistent/token\"").expect("a file may come later");
    let error = Access::new(&config.admin, Instant::now())
        .err()
        .expect("no file")
        .to_string();
    assert!(
        error.contains("admin.token_file /nonexistent/token: cannot be read"),
        "{error}"
    );
    let missing = ServerTls {
        certificate: "/nonexistent/c.pem".into(),
        key: "/nonexistent/c.key".into(),
        client_ca: None,
    };
    let admin = config::Admin {
        tls: Some(missing),
        ..config::Admin::default()
    };
    let error = Access::new(&admin, Instant::now())
        .err()
        .expect("no file")
        .to_string();
    assert!(
        error.starts_with("admin.tls: /nonexistent/c.pem"),
        "{error}"
    );
    assert!(
        !format!("{:?}", with_token()).contains("horse"),
        "it is not shown"
    );
}

/// Occupies all traffic threads.
fn saturate(runtime: &tokio::runtime::Runtime, workers: usize, stop: &Arc<AtomicBool>) {
    let running = Arc::new(std::sync::Barrier::new(workers + 1));
    for _ in 0..workers {
        let (stop, running) = (Arc::clone(stop), Arc::clone(&running));
        runtime.spawn(async move {
            running.wait();
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
    running.wait();
}

#[test]
fn metrics_are_answered_while_every_traffic_thread_is_taken() {
    const WORKERS: usize = 2;
    let traffic = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .expect("threads");
    let admin_runtime = AdminRuntime::start().expect("a thread");
    let bench = Bench::default();
    let measure = Measure::default();
    let slos = Slos::new(&[], &measure, Instant::now(), SystemTime::now());
    let state = Services {
        live: Arc::new(ProcessServices::new(Arc::clone(&bench.meter), slos)),
        call_source: admin::CallSource::new(None, &bench.recent, &Arc::default()),
        prometheus: Prometheus::new(&[], &measure),
        about: Arc::default(),
        experiments: Arc::default(),
        readiness: Arc::default(),
        marks: Arc::default(),
        scores: Arc::default(),
        event_bus: tokengauge_admin::EventBus::new(),
        clock: Instant::now,
        verdicts: Arc::default(),
        wall: SystemTime::now,
    };
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("an address");
    admin_runtime.handle().spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
        admin::serve(listener, state, Access::default(), std::future::pending()).await;
    });
    let stop = Arc::new(AtomicBool::new(false));
    saturate(&traffic, WORKERS, &stop);
    let here = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let response = here.block_on(async {
        let scrape = tokio::time::timeout(TIMEOUT, fetch(address, "/metrics"));
        scrape.await.expect("an answer while traffic is stuck")
    });
    assert_eq!(response.status, 200);
    assert!(response.body.contains("tokengauge_build_info"));
    stop.store(true, Ordering::Relaxed);
}
