//! Configuration reloads on the real binary while streams run.

use crate::process::{Listener, Process, SteppedBackend};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_config::{ClientTls, Protocol};
use tokengauge_net::tls::Connector;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::http_client::{exchange, fetch, request};
use tokengauge_test_support::port::HeldPort;
use tokio::net::TcpStream;

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";
const ANY: &str = "listen = \"127.0.0.1:0\"\n";

fn route(name: &str, upstream: SocketAddr) -> String {
    format!(
        "[[upstream]]\nname = \"{name}\"\nurl = \"http://{upstream}\"\n\
         [[route]]\npath = \"/{name}\"\nupstream = \"{name}\"\n"
    )
}

fn objective(name: &str, more: &str) -> String {
    format!("[[slo]]\nname = \"{name}\"\navailability = true\n{more}\n")
}

struct ConfigFile {
    folder: TempDir,
}

impl ConfigFile {
    fn new(text: &str) -> ConfigFile {
        let file = ConfigFile {
            folder: TempDir::new().expect("a folder"),
        };
        file.write(text);
        file
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("proxy-config.toml")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).expect("written");
    }
}

/// Each generation changes every setting that may change, and moves everything that streams use.
fn generation(number: usize, upstream: SocketAddr, spare: &[SocketAddr]) -> String {
    let listen = match number % 2 {
        0 => "[\"127.0.0.1:0\"]".to_owned(),
        _ => format!("[\"127.0.0.1:0\", \"{}\"]", spare[number % spare.len()]),
    };
    let connections = 300 + 100 * (number % 3);
    format!(
        "listen = {listen}\ndrain_timeout = \"{}s\"\n{ADMIN}[limits]\nconnections = {connections}\n\
         head_bytes = \"{}KiB\"\n[measure]\nstall_threshold = \"{}s\"\nrecent_calls = {}\n{}{}\
         [[workload]]\nname = \"w{number}\"\nagent = \"x*\"\n",
        10 + number,
        64 + number,
        1 + number,
        500 + number,
        route(&format!("r{number}"), upstream),
        objective(&format!("s{}", number % 3), ""),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_reloads_under_two_hundred_streams_drop_none_of_them() {
    const STREAMS: usize = 200;
    const RELOADS: usize = 20;
    let upstream = SteppedBackend::start().await;
    let (_held, spare) = held_ports(4);
    let file = ConfigFile::new(&generation(0, upstream.address, &spare));
    let process = Process::start(&file.path()).await;
    let address = process.addresses()[0];
    let mut streams = Vec::new();
    for number in 0..STREAMS {
        streams.push(Listener::open(address, "/r0", format!("stream{number}")).await);
    }
    for reload in 1..=RELOADS {
        file.write(&generation(reload, upstream.address, &spare));
        process.signal(Signal::HUP);
        process.has_reloaded("applied", reload as f64).await;
        let hello =
            |route: usize| async move { fetch(address, &format!("/r{route}/hello")).await.status };
        assert_eq!((hello(reload).await, hello(reload - 1).await), (200, 404));
        upstream.next();
        for stream in &mut streams {
            stream.step(reload).await;
        }
    }
    assert_eq!(process.addresses().len(), 1 + RELOADS / 2);
    upstream.end();
    for stream in streams {
        let (id, body) = stream.whole().await;
        assert_eq!(body, SteppedBackend::whole(&id, RELOADS));
    }
    // Records are made after the streams end.
    let end = Instant::now() + TIMEOUT;
    let whole = loop {
        let calls = fetch(
            process.admin,
            "/api/v1/calls?limit=1000&operation_class=all",
        )
        .await
        .body;
        let calls: serde_json::Value = serde_json::from_str(&calls).expect("JSON");
        let calls = calls["calls"].as_array().expect("calls").iter();
        let whole = calls
            .filter(|call| call["route"] == "r0" && call["outcome"] == "complete")
            .count();
        if whole == STREAMS || Instant::now() >= end {
            break whole;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(
        whole, STREAMS,
        "each is recorded under the route it began on"
    );
    assert_eq!(process.reloads("refused").await, 0.0);
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
}

/// Ports that the kernel does not give to others, and their addresses.
fn held_ports(count: usize) -> (Vec<HeldPort>, Vec<SocketAddr>) {
    let held: Vec<_> = std::iter::repeat_with(HeldPort::take).take(count).collect();
    let addresses = held.iter().map(|port| port.address).collect();
    (held, addresses)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_file_is_refused_with_place_and_reason() {
    let upstream = SteppedBackend::start().await;
    let good = format!("{ANY}{ADMIN}{}", route("a", upstream.address));
    let file = ConfigFile::new(&good);
    let process = Process::start(&file.path()).await;
    let address = process.addresses()[0];
    let metrics = process.metrics().await;
    let successful = "tokengauge_config_last_reload_successful";
    assert_eq!(metrics[successful], 1.0);
    for result in ["applied", "refused"] {
        assert_eq!(process.reloads(result).await, 0.0);
    }
    let missing = file.folder.path().join("missing.pem");
    let tls = format!(
        "{ANY}[tls]\ncertificate = \"{0}\"\nkey = \"{0}\"\n{ADMIN}{1}",
        missing.display(),
        route("b", upstream.address)
    );
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = taken
        .local_addr()
        .map(|address| (taken, address))
        .expect("an address");
    let refused = [
        (
            good.replace("upstream = \"a\"", "upstream = \"x\""),
            "proxy-config.toml:9:12: upstream: there is no upstream named `x`".to_owned(),
        ),
        (
            "listen = 1".to_owned(),
            "proxy-config.toml:1:10: listen".to_owned(),
        ),
        (tls, missing.display().to_string()),
        (
            good.replacen(ANY, &format!("listen = \"{}\"\n", taken.1), 1),
            format!("cannot listen on {}", taken.1),
        ),
        (
            format!(
                "state_dir = \"/tmp\"\n{}",
                good.replace(
                    "[admin]",
                    "[otlp]\ncall_records = true\n[admin]\ntoken = \"0123456789abcdef\""
                )
            ),
            "`admin`, `otlp`, `state_dir`, `ledger` cannot change while the process runs"
                .to_owned(),
        ),
        (
            format!(
                "{good}[[notify]]\nkind = \"slack\"\nurl_file = \"{}\"\n",
                missing.display()
            ),
            "notify `slack`".to_owned(),
        ),
    ];
    for (count, (text, reason)) in refused.iter().enumerate() {
        file.write(text);
        process.signal(Signal::HUP);
        process.has_reloaded("refused", (count + 1) as f64).await;
        let line = process.line(reason).await;
        assert!(
            line.contains("\"ERROR\"") && line.contains("was refused"),
            "{line}"
        );
        assert_eq!(process.metrics().await[successful], 0.0);
        assert_eq!(fetch(address, "/a/hello").await.body, "hello");
        assert_eq!(fetch(process.admin, "/readyz").await.status, 200);
    }
    file.write(&good);
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    assert_eq!(process.metrics().await[successful], 1.0);
}

/// Updates like the kubelet: a new folder, and one rename of a link to it.
fn mount(folder: &Path, version: &str, text: &str) {
    let data = folder.join(version);
    std::fs::create_dir(&data).expect("made");
    std::fs::write(data.join("proxy-config.toml"), text).expect("written");
    symlink(version, folder.join("..data_tmp")).expect("linked");
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("renamed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_map_that_changes_is_used_without_a_signal() {
    let upstream = SteppedBackend::start().await;
    let text = |name| format!("{ANY}{ADMIN}{}", route(name, upstream.address));
    let folder = TempDir::new().expect("a folder");
    mount(folder.path(), "..1", &text("a"));
    let path = folder.path().join("proxy-config.toml");
    symlink("..data/proxy-config.toml", &path).expect("linked");
    let process = Process::start(&path).await;
    let address = process.addresses()[0];
    let mut stream = Listener::open(address, "/a", "s".to_owned()).await;
    mount(folder.path(), "..2", &text("b"));
    process.has_reloaded("applied", 1.0).await;
    assert_eq!(fetch(address, "/b/hello").await.body, "hello");
    assert_eq!(fetch(address, "/a/hello").await.status, 404);
    mount(folder.path(), "..3", "listen = 1");
    process.has_reloaded("refused", 1.0).await;
    assert_eq!(fetch(address, "/b/hello").await.body, "hello");
    mount(folder.path(), "..4", &text("a"));
    process.has_reloaded("applied", 2.0).await;
    upstream.next();
    stream.step(1).await;
    upstream.end();
    assert_eq!(stream.whole().await.1, SteppedBackend::whole("s", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_did_not_change_keeps_its_connections_and_its_counts() {
    let (one, other) = (SteppedBackend::start().await, SteppedBackend::start().await);
    let text = |more: String| format!("{ANY}{ADMIN}{}{more}", route("a", one.address));
    let file = ConfigFile::new(&text(objective("kept", "") + &objective("gone", "")));
    let process = Process::start(&file.path()).await;
    let address = process.addresses()[0];
    // All requests use one connection. Each follows the routes of its time.
    let agent = TcpStream::connect(address).await.expect("connected");
    assert_eq!(
        request(address, "POST", "/a/v1/embeddings").await.body,
        "hello"
    );
    let good = |slo: &str| {
        format!("tokengauge_slo_events_total{{slo=\"{slo}\",verdict=\"good\",reason=\"met\"}}")
    };
    let kept = good("kept");
    // Calls are counted a moment after their agents have the answer.
    let counts = async |wanted: f64| {
        let end = Instant::now() + TIMEOUT;
        let mut counted = process.metrics().await[&kept];
        while counted < wanted && Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(50)).await;
            counted = process.metrics().await[&kept];
        }
        assert_eq!(counted, wanted);
    };
    counts(1.0).await;
    // One objective changes its target, one is removed, one is added, and one more upstream exists.
    let more = objective("kept", "objective = 0.5") + &objective("new", "select.route = \"b\"");
    file.write(&text(route("b", other.address) + &more));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    let metrics = process.metrics().await;
    assert_eq!((metrics[&kept], metrics[&good("new")]), (1.0, 0.0));
    assert!(!metrics.keys().any(|series| series.contains("slo=\"gone\"")));
    assert_eq!(metrics["tokengauge_slo_objective_ratio{slo=\"kept\"}"], 0.5);
    assert_eq!(
        metrics["tokengauge_streams_in_flight{upstream=\"b\",route=\"b\"}"],
        0.0
    );
    assert_eq!(
        metrics["tokengauge_rate_limited_total{upstream=\"b\",route=\"b\"}"],
        0.0
    );
    assert_eq!(exchange(agent, "GET", "/b/hello", &[]).await.body, "hello");
    assert_eq!(fetch(address, "/a/hello").await.body, "hello");
    assert_eq!(
        (one.connections(), other.connections()),
        (1, 1),
        "one was open already"
    );
    for route in ["a", "b"] {
        let path = format!("/{route}/v1/embeddings");
        assert_eq!(request(address, "POST", &path).await.body, "hello");
    }
    counts(3.0).await;
    // An objective that is removed and added again finds its earlier counts.
    file.write(&text(objective("gone", "")));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 2.0).await;
    let slos: serde_json::Value =
        serde_json::from_str(&fetch(process.admin, "/api/v1/slos").await.body).expect("JSON");
    assert_eq!(
        (&slos["slos"][0]["name"], &slos["slos"][0]["good"]),
        (&"gone".into(), &1.0.into())
    );
    // After another reload, nothing uses the series of `b`.
    file.write(&text(objective("gone", "description = \"x\"")));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 3.0).await;
    let metrics = process.metrics().await;
    assert!(!metrics.keys().any(|series| series.contains("route=\"b\"")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_address_accepts_nothing_and_its_streams_continue() {
    let upstream = SteppedBackend::start().await;
    let text = |listen: &[SocketAddr]| {
        format!(
            "listen = {:?}\n{ADMIN}{}",
            listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
            route("a", upstream.address)
        )
    };
    let (_held, spare) = held_ports(2);
    let file = ConfigFile::new(&text(&spare[..1]));
    let process = Process::start(&file.path()).await;
    let stream = Listener::open(spare[0], "/a", "s".to_owned()).await;
    file.write(&text(&spare[1..]));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    assert!(
        TcpStream::connect(spare[0]).await.is_err(),
        "nobody listens"
    );
    assert_eq!(fetch(spare[1], "/a/hello").await.body, "hello");
    let about: serde_json::Value =
        serde_json::from_str(&fetch(process.admin, "/api/v1/about").await.body).expect("JSON");
    assert_eq!(about["listeners"][0]["address"], spare[1].to_string());
    upstream.next();
    let mut stream = stream;
    stream.step(1).await;
    upstream.end();
    assert_eq!(stream.whole().await.1, SteppedBackend::whole("s", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_fewer_connections_allowed_none_is_accepted_until_enough_have_closed() {
    let upstream = SteppedBackend::start().await;
    let text = |connections: usize| {
        format!(
            "{ANY}{ADMIN}[limits]\nconnections = {connections}\n{}",
            route("a", upstream.address)
        )
    };
    let file = ConfigFile::new(&text(10));
    let process = Process::start(&file.path()).await;
    let address = process.addresses()[0];
    let mut streams = Vec::new();
    for number in 0..3 {
        streams.push(Listener::open(address, "/a", format!("s{number}")).await);
    }
    file.write(&text(2));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    let late = tokio::spawn(async move { fetch(address, "/a/hello").await.body });
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!late.is_finished(), "{} are open", streams.len());
        streams.pop();
    }
    assert_eq!(late.await.expect("no panic"), "hello");
    file.write(&text(50));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 2.0).await;
    for number in 0..40 {
        streams.push(Listener::open(address, "/a", format!("t{number}")).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_gets_tls_and_loses_it_again() {
    let upstream = SteppedBackend::start().await;
    let authority = Authority::new();
    let (certificate, key) = authority.issue("server", "localhost");
    let held = HeldPort::take();
    let spare = held.address;
    let text = |tls: &str| {
        format!(
            "listen = \"{spare}\"\n{tls}{ADMIN}{}",
            route("a", upstream.address)
        )
    };
    let file = ConfigFile::new(&text(""));
    let process = Process::start(&file.path()).await;
    let mut plain = Listener::open(spare, "/a", "s".to_owned()).await;
    file.write(&text(&format!(
        "[tls]\ncertificate = \"{}\"\nkey = \"{}\"\n",
        certificate.display(),
        key.display()
    )));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    let trusting = ClientTls {
        ca: Some(authority.file.clone()),
        ..ClientTls::default()
    };
    let connector = Connector::new(&trusting, Protocol::Http1).expect("usable");
    let tcp = TcpStream::connect(spare).await.expect("connected");
    let tls = connector.connect(tcp, "localhost").await.expect("TLS");
    assert_eq!(exchange(tls, "GET", "/a/hello", &[]).await.body, "hello");
    upstream.next();
    plain.step(1).await;
    file.write(&text(""));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 2.0).await;
    assert_eq!(fetch(spare, "/a/hello").await.body, "hello");
    assert_eq!(
        process.addresses(),
        [spare],
        "it was listened on all the time"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn more_connections_to_an_upstream_are_allowed_without_closing_those_that_are_open() {
    let upstream = SteppedBackend::start().await;
    let text = |connections: usize| {
        let route = route("r", upstream.address);
        let more = format!("max_connections = {connections}\n[[route]]");
        format!("{ANY}{ADMIN}{}", route.replacen("[[route]]", &more, 1))
    };
    let file = ConfigFile::new(&text(1));
    let process = Process::start(&file.path()).await;
    let address = process.addresses()[0];
    let mut first = Listener::open(address, "/r", "first".to_owned()).await;
    let waiting = tokio::spawn(async move { fetch(address, "/r/hello").await.status });
    const PENDING: &str = "tokengauge_upstream_pending_requests{upstream=\"r\"}";
    while process.metrics().await[PENDING] < 1.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    file.write(&text(2));
    process.signal(Signal::HUP);
    process.has_reloaded("applied", 1.0).await;
    assert_eq!(fetch(address, "/r/hello").await.status, 200);
    // The call uses the second connection, which is now idle.
    assert_eq!(waiting.await.expect("no panic"), 200);
    assert_eq!(upstream.connections(), 2);
    upstream.next();
    first.step(1).await;
    upstream.end();
    first.whole().await;
}
