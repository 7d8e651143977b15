//! `tokengauge fleet` over the real binary: several proxies with one warehouse, shown as one.

use crate::admin_openapi::{broken, refuses_other_methods};
use crate::process::Process;
use crate::warehouse::{FakeWarehouse, Fault};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_core::time::rfc3339_millis;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::{TestResponse, fetch, request_with};
use tokengauge_test_support::sim::{self, Sim};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

struct Fixture {
    folder: TempDir,
    engine: Sim,
    warehouse: FakeWarehouse,
    /// The address of the warehouse: the one above, or a real ClickHouse.
    address: SocketAddr,
}

impl Fixture {
    async fn new() -> Fixture {
        let warehouse = FakeWarehouse::start().await;
        Fixture {
            folder: tempfile::tempdir().expect("a folder"),
            engine: sim::start("ttft=5ms,gap=1ms,tokens=12,usage=on").await,
            address: warehouse.address,
            warehouse,
        }
    }

    /// A fixture with the ClickHouse that `tests/real/test_fleet_questions.py` starts.
    async fn with_clickhouse() -> Fixture {
        Fixture {
            address: clickhouse(),
            ..Fixture::new().await
        }
    }

    fn config(&self, admin: &str) -> PathBuf {
        let path = self.folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"engine\"\n\
             [[slo]]\nname = \"fast\"\nobjective = 0.9\nwindow = \"30d\"\nttft.at_most = \"1ms\"\n\
             [[sink]]\nkind = \"clickhouse\"\nurl = \"http://{}\"\nbatch_wait = \"100ms\"\ntimeout = \"1s\"\n",
            self.engine.address, self.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    async fn pod(&self, name: &str, namespace: &str, admin: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        let attributes =
            format!("k8s.cluster.name=eu,k8s.namespace.name={namespace},k8s.pod.name={name}");
        command.env("OTEL_RESOURCE_ATTRIBUTES", attributes);
        command.args(["run", "--config"]).arg(self.config(admin));
        Process::start_by(command).await
    }

    async fn fleet(&self, pods: &[SocketAddr], more: &[&str]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command
            .arg("fleet")
            .args(["--store", &format!("http://{}", self.address)]);
        command.args(["--listen", "127.0.0.1:0"]);
        if !pods.is_empty() {
            let pods: Vec<_> = pods.iter().map(SocketAddr::to_string).collect();
            command.args(["--pods", &pods.join(",")]);
        }
        command.args(more).arg("--config").arg(self.config(""));
        Process::start_by(command).await
    }

    async fn insert(&self, rows: &[Value]) {
        let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
        let target = "/?query=INSERT+INTO+tokengauge_calls+FORMAT+JSONEachRow";
        let (status, _) = post(self.warehouse.address, target, &[], &lines).await;
        assert_eq!(status, 200);
    }
}

/// The address of a real ClickHouse.
pub fn clickhouse() -> SocketAddr {
    let address = std::env::var("TOKENGAUGE_CLICKHOUSE");
    let address = address
        .expect("TOKENGAUGE_CLICKHOUSE=HOST:PORT, as tests/real/test_fleet_questions.py sets it");
    address.parse().expect("an address")
}

async fn post(
    address: SocketAddr,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut tcp = TcpStream::connect(address).await.expect("connected");
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let request = format!(
        "POST {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    tcp.write_all(request.as_bytes()).await.expect("written");
    let mut response = String::new();
    tcp.read_to_string(&mut response).await.expect("read");
    let status = response.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), response)
}

async fn chat(proxy: &Process, session: &str, behave: &str) {
    let body =
        json!({"model": "m-1", "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    let headers = [("x-tokengauge-session", session), ("x-sim", behave)];
    let target = "/v1/chat/completions";
    let (status, _) = post(proxy.addresses()[0], target, &headers, &body.to_string()).await;
    assert_eq!(status, 200);
}

async fn get(process: &Process, path: &str) -> Value {
    let response = fetch(process.admin, &format!("/api/v1/{path}")).await;
    assert_eq!(response.status, 200, "{path}: {}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

/// Repeats a request until `is` accepts the answer, and returns the answer.
async fn until(process: &Process, path: &str, is: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + TIMEOUT;
    loop {
        let response = get(process, path).await;
        if is(&response) {
            return response;
        }
        assert!(Instant::now() < end, "{path} is {response:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn list<'a>(response: &'a Value, name: &str) -> &'a Vec<Value> {
    response[name].as_array().expect("a list")
}

fn pod_names(response: &Value, name: &str) -> Vec<String> {
    let rows = list(response, name).iter();
    let mut names: Vec<_> = rows
        .map(|row| row["pod"]["name"].as_str().unwrap_or("none").to_owned())
        .collect();
    names.sort();
    names
}

fn state_of<'a>(pods: &'a Value, name: &str) -> &'a str {
    let mut pods = list(pods, "pods").iter();
    let pod = pods.find(|pod| pod["name"] == name);
    pod.map_or("missing", |pod| pod["state"].as_str().expect("a state"))
}

#[ignore = "needs ClickHouse: make real PART=stores"]
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_pods_are_together_and_filters_tell_them_apart() {
    let fixture = Fixture::with_clickhouse().await;
    let one = fixture.pod("agent-1", "left", "").await;
    let two = fixture.pod("agent-2", "right", "").await;
    let fleet = fixture.fleet(&[one.admin, two.admin], &[]).await;
    for (pod, session) in [
        (&one, "shared"),
        (&two, "shared"),
        (&one, "shared"),
        (&two, "own"),
    ] {
        chat(pod, session, "").await;
    }
    let calls = until(&fleet, "calls", |calls| list(calls, "calls").len() == 4).await;
    let both = ["agent-1", "agent-1", "agent-2", "agent-2"];
    assert_eq!(pod_names(&calls, "calls"), both);
    let first = &list(&calls, "calls")[0]["pod"];
    assert_eq!(
        *first,
        json!({"cluster": "eu", "namespace": "right", "name": "agent-2"})
    );
    for (filter, count) in [
        ("pod=agent-1", 2),
        ("namespace=right", 2),
        ("namespace=right&session=shared", 1),
        ("cluster=eu", 4),
        ("cluster=us", 0),
        ("pod=agent-1&namespace=right", 0),
    ] {
        let calls = get(&fleet, &format!("calls?{filter}")).await;
        assert_eq!(list(&calls, "calls").len(), count, "{filter}");
        let groups = get(&fleet, &format!("groups?{filter}")).await;
        let of_groups = list(&groups, "groups")
            .first()
            .map_or(0, |row| row["calls"].as_u64().expect("a count"));
        assert_eq!(of_groups, count as u64, "{filter}");
        let series = get(&fleet, &format!("timeseries?{filter}")).await;
        let points = list(&series, "points").iter();
        let of_series: u64 = points
            .map(|point| point["calls"].as_u64().expect("a count"))
            .sum();
        assert_eq!(of_series, count as u64, "{filter}");
    }
    let by_pod = get(&fleet, "groups?by=pod").await;
    let names: Vec<_> = list(&by_pod, "groups")
        .iter()
        .map(|row| (&row["by"]["pod"], &row["calls"]))
        .collect();
    assert_eq!(names.len(), 2, "{by_pod:#}");
    let sessions = get(&fleet, "sessions?pod=agent-1").await;
    assert_eq!(list(&sessions, "sessions")[0]["id"], "shared");
    // A session that spans two pods is one session, ordered by time.
    let session = get(&fleet, "sessions/shared").await;
    assert_eq!(session["total_calls"], 3);
    let order: Vec<_> = list(&session, "calls")
        .iter()
        .map(|call| &call["pod"]["name"])
        .collect();
    assert_eq!(order, ["agent-1", "agent-2", "agent-1"]);
    let offsets: Vec<_> = list(&session, "calls")
        .iter()
        .map(|call| call["offset"].as_f64().expect("seconds"))
        .collect();
    assert!(
        offsets.is_sorted() && offsets[2] > offsets[0],
        "{offsets:?}"
    );
    let path = get(&fleet, "sessions/shared/analysis").await;
    assert!(path.to_string().contains("critical_path"), "{path:#}");
    as_documented(&fleet).await;
    let admin = fleet.admin.to_string();
    for (arguments, said) in [
        (&["report", "--since", "1h"][..], "m-1"),
        (&["report", "session", "shared"], "3 calls"),
        (&["slo", "status"], "fast"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        let output = command.args(arguments).args(["--admin", &admin]);
        let output = output.output().await.expect("runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains(said),
            "{arguments:?}: {output:?}"
        );
    }
}

async fn as_documented(fleet: &Process) {
    let document = get(fleet, "openapi.json").await;
    for (path, asked) in [
        ("about", "about"),
        ("pods", "pods"),
        ("streams", "streams"),
        ("slos", "slos"),
        ("calls", "calls"),
        ("groups", "groups?by=pod,namespace"),
        ("sessions", "sessions"),
        ("sessions~1{id}", "sessions/shared"),
    ] {
        let schema = "responses/200/content/application~1json/schema";
        let schema = format!("/paths/~1api~1v1~1{path}/get/{schema}");
        let response = get(fleet, asked).await;
        assert_eq!(
            broken(&document, &schema, &response),
            None,
            "{asked}: {response:#}"
        );
    }
}

#[ignore = "needs ClickHouse: make real PART=stores"]
#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_key_is_summed_over_all_pods() {
    const KEY: &str = "sk-of-a-fleet-0123456789";
    let fixture = Fixture::with_clickhouse().await;
    let own_use = "own_use = true";
    let one = fixture.pod("agent-1", "left", own_use).await;
    let two = fixture.pod("agent-2", "right", own_use).await;
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["fleet", "--listen", "127.0.0.1:0"]);
    command.args(["--store", &format!("http://{}", fixture.address)]);
    command.arg("--config").arg(fixture.config(own_use));
    let fleet = Process::start_by(command).await;
    let body = json!({"model": "m-1", "messages": [{"role": "user", "content": "hello"}]});
    let target = "/v1/chat/completions";
    for (pod, key) in [
        (&one, KEY),
        (&two, KEY),
        (&two, KEY),
        (&two, "sk-of-another-0123456789"),
    ] {
        let headers = [("x-api-key", key)];
        let (status, _) = post(pod.addresses()[0], target, &headers, &body.to_string()).await;
        assert_eq!(status, 200);
    }
    until(&fleet, "calls", |calls| list(calls, "calls").len() == 4).await;
    let response = request_with(fleet.admin, "GET", "/api/v1/me", &[("x-api-key", KEY)]).await;
    let used: Value = serde_json::from_str(&response.body).expect("JSON");
    assert_eq!(
        (&used["calls"], &used["limits"]),
        (&json!(3), &json!([])),
        "{used}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_all_pods_are_live_and_a_killed_pod_is_named() {
    let fixture = Fixture::new().await;
    let one = fixture.pod("agent-1", "left", "").await;
    let two = fixture.pod("agent-2", "right", "").await;
    let fleet = fixture.fleet(&[one.admin, two.admin], &[]).await;
    until(&fleet, "pods", |pods| {
        state_of(pods, "agent-2") == "connected" && state_of(pods, "agent-1") == "connected"
    })
    .await;
    let slow = "ttft=20ms,gap=50ms,tokens=2000";
    let (to_one, to_two) = (one.addresses()[0], two.addresses()[0]);
    let agents: Vec<JoinHandle<()>> = [to_one, to_two]
        .map(|to| tokio::spawn(stream(to, slow)))
        .into();
    let streams = until(&fleet, "streams", |streams| {
        list(streams, "streams").len() == 2
    })
    .await;
    assert_eq!(pod_names(&streams, "streams"), ["agent-1", "agent-2"]);
    assert_eq!(streams["total"], 2);
    let of_two = until(&fleet, "streams?namespace=right", |streams| {
        !streams["streams"][0]["tps"].is_null()
    })
    .await;
    assert_eq!(pod_names(&of_two, "streams"), ["agent-2"]);
    assert!(of_two["tokens_per_second"]["now"].as_f64().expect("a rate") > 0.0);
    until(&fleet, "timeseries?since=1h", |series| {
        let points = list(series, "points").iter();
        points
            .map(|point| point["in_flight"].as_u64().unwrap_or(0))
            .sum::<u64>()
            == 2
    })
    .await;
    two.signal(Signal::KILL);
    assert!(!two.ended().await.success());
    let pods = until(&fleet, "pods", |pods| {
        state_of(pods, "agent-2") == "unreachable"
    })
    .await;
    assert_eq!(pods["unreachable"], 1);
    let gone = &list(&pods, "pods")[0];
    assert_eq!(
        (&gone["name"], &gone["namespace"]),
        (&json!("agent-2"), &json!("right")),
        "it comes first"
    );
    assert!(
        gone["error"]
            .as_str()
            .is_some_and(|error| !error.is_empty())
    );
    assert_eq!(
        pod_names(&get(&fleet, "streams").await, "streams"),
        ["agent-1"]
    );
    let metrics = fleet.metrics().await;
    assert_eq!(metrics["tokengauge_fleet_pod_up{member=\"agent-2\"}"], 0.0);
    assert_eq!(metrics["tokengauge_fleet_pod_up{member=\"agent-1\"}"], 1.0);
    assert_eq!(metrics["tokengauge_fleet_pods{state=\"unreachable\"}"], 1.0);
    agents.iter().for_each(JoinHandle::abort);
}

async fn stream(to: SocketAddr, behave: &str) {
    let body =
        json!({"model": "m-1", "stream": true, "messages": [{"role": "user", "content": "hello"}]});
    let headers = [("x-tokengauge-session", "slow"), ("x-sim", behave)];
    post(to, "/v1/chat/completions", &headers, &body.to_string()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_finished_call_is_told_at_once_with_its_pod() {
    let fixture = Fixture::new().await;
    let pod = fixture.pod("agent-1", "left", "").await;
    let fleet = fixture.fleet(&[pod.admin], &[]).await;
    until(&fleet, "pods", |pods| {
        state_of(pods, "agent-1") == "connected"
    })
    .await;
    // The warehouse has no row of it.
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    let mut events = TcpStream::connect(fleet.admin).await.expect("connected");
    let request = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
    events.write_all(request).await.expect("written");
    let (mut text, end) = (String::new(), Instant::now() + TIMEOUT);
    let mut asked = false;
    let record = loop {
        let mut piece = [0; 4096];
        let read = tokio::time::timeout(TIMEOUT, events.read(&mut piece)).await;
        let length = read.expect("in time").expect("read");
        text.push_str(&String::from_utf8_lossy(&piece[..length]));
        // A client that has received the head gets every later event.
        if !asked && text.contains("\r\n\r\n") {
            asked = true;
            chat(&pod, "told", "").await;
        }
        let call = text.split("event: call\ndata: ").nth(1);
        if let Some((record, _)) = call.and_then(|call| call.split_once('\n')) {
            break record.to_owned();
        }
        assert!(Instant::now() < end && length > 0, "{text}");
    };
    let record: Value = serde_json::from_str(&record).expect("a record");
    assert_eq!(
        (&record["session"], &record["pod"]["name"]),
        (&json!("told"), &json!("agent-1"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warehouse_that_is_away_is_named_and_answers_again() {
    let fixture = Fixture::new().await;
    let fleet = fixture.fleet(&[], &[]).await;
    fixture.insert(&rows(3, Duration::from_secs(30), 1)).await;
    until(&fleet, "calls", |calls| list(calls, "calls").len() == 3).await;
    fixture.warehouse.fault(Fault::Reset, usize::MAX);
    let pods = until(&fleet, "pods", |pods| pods["store"]["state"] == "away").await;
    assert!(
        pods["store"]["error"]
            .as_str()
            .is_some_and(|error| error.contains("cannot be reached")),
        "{pods:#}"
    );
    let metrics = fleet.metrics().await;
    assert_eq!(metrics["tokengauge_fleet_store_up"], 0.0);
    assert!(metrics["tokengauge_fleet_store_failures_total"] >= 1.0);
    let response = fetch(fleet.admin, "/api/v1/calls").await;
    assert_eq!(
        response.status, 503,
        "nothing is shown instead of something wrong"
    );
    assert!(
        response.body.contains("cannot be reached"),
        "{}",
        response.body
    );
    fixture.warehouse.fault(Fault::Reset, 0);
    // Rows that arrive hours late are there at once.
    fixture
        .insert(&rows(40, Duration::from_secs(5 * 3600), 100))
        .await;
    until(&fleet, "pods", |pods| {
        pods["store"]["calls"] == 43 && pods["store"]["state"] == "following"
    })
    .await;
    assert_eq!(
        list(&get(&fleet, "calls?limit=1000").await, "calls").len(),
        43
    );
}

/// Rows of `count` calls that began `ago`, one second apart; their ids begin with `first`.
fn rows(count: u64, ago: Duration, first: u64) -> Vec<Value> {
    let start = SystemTime::now() - ago;
    let row = |number: u64| {
        let at = start + Duration::from_millis(number * 100);
        let ms = at
            .duration_since(SystemTime::UNIX_EPOCH)
            .expect("since 1970")
            .as_millis() as u64;
        let written = rfc3339_millis(at).to_string();
        // Ids have the form that the meter makes: the time first.
        let (high, low) = (ms >> 16, ms & 0xffff);
        json!({
            "schema_version": 1, "id": format!("{high:08x}-{low:04x}-7000-8000-{:012x}", first + number),
            "started_at": written.replace('T', " ").trim_end_matches('Z'), "route": "r", "upstream": "u",
            "dialect": "openai_chat", "operation": "chat", "operation_class": "generation", "outcome": "complete",
            "model": "m", "pod": "agent-9", "duration_seconds": 0.5, "status": 200, "warm_up": false,
        })
    };
    (0..count).map(row).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_and_a_process_name_requests_that_only_the_other_answers() {
    let fixture = Fixture::new().await;
    let pod = fixture.pod("agent-1", "left", "").await;
    let fleet = fixture.fleet(&[], &[]).await;
    for path in ["sinks", "slos/fast/budget"] {
        let response = fetch(fleet.admin, &format!("/api/v1/{path}")).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(
            response.body.contains("ask a pod"),
            "{path}: {}",
            response.body
        );
    }
    for process in [&pod, &fleet] {
        refuses_other_methods(process.admin).await;
    }
    let response = fetch(pod.admin, "/api/v1/pods").await;
    assert_eq!(response.status, 404);
    assert!(
        response.body.contains("tokengauge fleet"),
        "{}",
        response.body
    );
    let about = get(&fleet, "about").await;
    assert_eq!(about["fleet"], json!({"pods": false, "objectives": "none"}));
    assert_eq!(get(&pod, "about").await["pod"]["name"], "agent-1");
    assert_eq!(get(&fleet, "slos").await["source"], "none");
    assert_eq!(fetch(fleet.admin, "/readyz").await.status, 200);
    assert_eq!(fetch(fleet.admin, "/pods").await.status, 200);
}

const TOKEN: &str = "correct-horse-battery-staple";

#[tokio::test(flavor = "multi_thread")]
async fn pods_get_their_token_and_missing_pods_are_reported() {
    let fixture = Fixture::new().await;
    let file = fixture.folder.path().join("token");
    std::fs::write(&file, format!("{TOKEN}\n")).expect("written");
    let file = file.to_str().expect("UTF-8");
    let pod = fixture
        .pod("agent-1", "left", &format!("token = {TOKEN:?}"))
        .await;
    let without = fixture.fleet(&[pod.admin], &[]).await;
    let pods = until(&without, "pods", |pods| pods["unreachable"] == 1).await;
    let error = pods["pods"][0]["error"].as_str().expect("an error");
    assert!(
        error.contains("401") && error.contains("--pods-token-file"),
        "{error}"
    );
    let with = fixture
        .fleet(
            &[pod.admin],
            &["--pods-token-file", file, "--token-file", file],
        )
        .await;
    assert_eq!(
        fetch(with.admin, "/api/v1/pods").await.status,
        401,
        "its own address also requires a token"
    );
    let authorization = format!("Bearer {TOKEN}");
    let end = Instant::now() + TIMEOUT;
    loop {
        let headers = [("authorization", authorization.as_str())];
        let response: TestResponse =
            request_with(with.admin, "GET", "/api/v1/pods", &headers).await;
        if response.body.contains("\"connected\"") {
            break;
        }
        assert!(Instant::now() < end, "{}", response.body);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objectives_come_from_each_pod_or_from_prometheus() {
    let fixture = Fixture::new().await;
    let one = fixture.pod("agent-1", "left", "").await;
    let two = fixture.pod("agent-2", "right", "").await;
    // The first token cannot arrive within one millisecond.
    for _ in 0..3 {
        chat(&two, "late", "").await;
    }
    let fleet = fixture.fleet(&[one.admin, two.admin], &[]).await;
    let slos = until(&fleet, "slos", |slos| {
        slos["total"] == 2 && slos["slos"][0]["bad"] == 3.0
    })
    .await;
    assert_eq!(slos["source"], "pods");
    assert_eq!(pod_names(&slos, "slos"), ["agent-1", "agent-2"]);
    assert_eq!(
        slos["slos"][0]["pod"]["name"], "agent-2",
        "the least budget first"
    );
    let prometheus = prometheus().await;
    let more = ["--prometheus", &format!("http://{prometheus}")];
    let fleet = fixture.fleet(&[one.admin, two.admin], &more).await;
    let slos = until(&fleet, "slos", |slos| slos["total"] == 1).await;
    assert_eq!(slos["source"], "prometheus");
    let slo = &slos["slos"][0];
    assert_eq!(
        (&slo["name"], &slo["budget_remaining"]),
        (&json!("fast"), &json!(0.25))
    );
    assert!(
        slo["promise"]
            .as_str()
            .is_some_and(|promise| promise != "fast"),
        "by the configuration: {slo:#}"
    );
}

async fn prometheus() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let sample = |name: &str, value: &str| json!({"metric": {"__name__": name, "slo": "fast", "window": "30d"}, "value": [0, value]});
    let result = [
        sample("slo:error_budget:remaining_ratio", "0.25"),
        sample("slo:objective:ratio", "0.9"),
    ];
    let body = json!({"status": "success", "data": {"resultType": "vector", "result": result}});
    let body = body.to_string();
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            let mut head = vec![0; 8192];
            let length = tcp.read(&mut head).await.unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..length]).into_owned();
            assert!(head.starts_with("GET /api/v1/query?query="), "{head}");
            let response = format!(
                "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = tcp.write_all(response.as_bytes()).await;
        }
    });
    address
}

/// Number of calls at each of two times in the warehouse at the start: more than a page.
const STORED: u64 = 5_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_store_with_many_calls_is_read_page_by_page() {
    let fixture = Fixture::new().await;
    for (hours, first) in [(3, 1), (1, 1 + STORED)] {
        let ago = Duration::from_secs(hours * 3600);
        fixture.insert(&rows(STORED, ago, first)).await;
    }
    let fleet = fixture.fleet(&[], &[]).await;
    until(&fleet, "pods", |pods| pods["store"]["calls"] == 2 * STORED).await;
    let (mut ids, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let page = get(&fleet, &format!("calls?limit=1000{cursor}")).await;
        let calls = list(&page, "calls").iter();
        ids.extend(calls.map(|call| call["id"].to_string()));
        let Some(next) = page["next_cursor"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(ids.len() as u64, 2 * STORED);
    let newest = get(&fleet, "calls?limit=1").await;
    let last = format!("{:012x}", 2 * STORED);
    assert!(
        newest["calls"][0]["id"]
            .as_str()
            .is_some_and(|id| id.ends_with(&last))
    );
}

const MANY: usize = 1_000;
const WATCHED: Duration = Duration::from_secs(8);
const STREAMS_OF_EACH: usize = 5;

/// A thousand pods that report five streams every second and a finished call every five seconds. The test prints the
/// cost and bounds the memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_pods_are_followed_with_little_memory() {
    allow_files();
    let fixture = Fixture::new().await;
    let mut pods = Vec::new();
    for number in 0..MANY {
        pods.push(simulated(number).await);
    }
    let fleet = fixture.fleet(&pods, &[]).await;
    let began = Instant::now();
    let connected = |pods: &Value| {
        let pods = list(pods, "pods").iter();
        pods.filter(|pod| pod["state"] == "connected").count()
    };
    until(&fleet, "pods", |pods| connected(pods) == MANY).await;
    let connecting = began.elapsed();
    until(&fleet, "streams", |streams| {
        streams["total"] == MANY * STREAMS_OF_EACH
    })
    .await;
    let (cpu, from) = (cpu(fleet.id()), Instant::now());
    tokio::time::sleep(WATCHED).await;
    let share = (self::cpu(fleet.id()) - cpu).as_secs_f64() / from.elapsed().as_secs_f64();
    let memory = fleet.metrics().await["process_resident_memory_bytes"] / 1e6;
    println!(
        "{MANY} pods: connected within {connecting:?}; {memory:.0} MB, {share:.2} cores for {STREAMS_OF_EACH} streams of each"
    );
    assert!(memory < 400.0, "{memory} MB");
    let metrics = fleet.metrics().await;
    assert_eq!(
        metrics["tokengauge_fleet_pods{state=\"connected\"}"],
        MANY as f64
    );
    for reason in ["too_large", "unreadable"] {
        let dropped = format!("tokengauge_fleet_events_dropped_total{{reason=\"{reason}\"}}");
        assert_eq!(metrics[&dropped], 0.0, "{reason}");
    }
    let streams = get(&fleet, "streams?pod=pod-7&limit=1000").await;
    assert_eq!(list(&streams, "streams").len(), STREAMS_OF_EACH);
}

/// Raises the file limit: both ends of two connections to each pod are files of this process.
fn allow_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = Rlimit {
        current: maximum,
        maximum,
    };
    setrlimit(Resource::Nofile, limit).expect("raised");
}

fn cpu(id: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).expect("it runs");
    let fields: Vec<_> = stat
        .rsplit(") ")
        .next()
        .expect("fields")
        .split(' ')
        .collect();
    let ticks: u64 = [11, 12]
        .iter()
        .map(|at| fields[*at].parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(ticks * 10)
}

/// The admin address of a simulated pod with information about itself and its streams only.
async fn simulated(number: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(tell(tcp, number));
        }
    });
    address
}

async fn tell(mut tcp: TcpStream, number: usize) -> std::io::Result<()> {
    let mut head = vec![0; 4096];
    let length = tcp.read(&mut head).await?;
    if head[..length].starts_with(b"GET /api/v1/about ") {
        let about = json!({"version": "1", "pod": {"cluster": "c", "namespace": "n", "name": format!("pod-{number}")}});
        let body = about.to_string();
        let response = format!(
            "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        return tcp.write_all(response.as_bytes()).await;
    }
    tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        .await?;
    let streams: Vec<_> = (0..STREAMS_OF_EACH)
        .map(|stream| live_stream(number, stream))
        .collect();
    let spread = json!({"now": 0.0, "sustained": 0.0});
    let rates = json!({"now": 250.0, "peak": 300.0, "sustained": 200.0, "spread": spread});
    let streams = json!({"total": STREAMS_OF_EACH, "tokens_per_second": rates, "streams": streams});
    let call =
        json!({"id": "01a20838-a73b-72a1-9218-f8d414f52799", "session": "s", "model": "m-1"});
    for second in 0_u64.. {
        tcp.write_all(format!("event: streams\ndata: {streams}\n\n").as_bytes())
            .await?;
        if second % 5 == 4 {
            tcp.write_all(format!("event: call\ndata: {call}\n\n").as_bytes())
                .await?;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn live_stream(pod: usize, stream: usize) -> Value {
    json!({
        "id": format!("01a20838-a73b-72a1-9218-{pod:06}{stream:06}"), "route": "engine", "upstream": "engine",
        "model": "gpt-4.1", "workload": "chat", "session": format!("session-{pod}-{stream}"), "agent": "agent/1.0",
        "started_at": "2026-01-01T00:00:00.000Z", "seconds": 12.5, "tps": 50.0, "last_gap": 0.02, "silent": 0.01,
        "tokens": {"answer": 600, "reasoning": 0, "tool_call": 0, "output": 600}
    })
}
