//! Payers of calls: attribution, showback by month, limits, and what the holder of a key sees.

use crate::admin_openapi::broken;
use crate::process::Process;
use crate::warehouse::FakeWarehouse;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant, SystemTime};
use tempfile::TempDir;
use tokengauge_config::Config;
use tokengauge_core::time::rfc3339_seconds;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokengauge_test_support::http_client::{TestResponse, fetch_json, request_with};
use tokengauge_test_support::sim::{self, Sim};
use tokio::process::Command;

const SEARCH: &str = "sk-search-0123456789abcdef";
const OTHER: &str = "sk-other-0123456789abcdef";
const UNUSED: &str = "sk-unused-0123456789abcdef";
const TOKEN: &str = "token-of-the-operators";
/// The id of an AWS key, which is not a secret.
const AWS_ID: &str = "AKIA0123456789ABCDEF";

struct Fixture {
    folder: TempDir,
    engine: Sim,
    warehouse: FakeWarehouse,
}

impl Fixture {
    async fn new() -> Fixture {
        Fixture {
            folder: tempfile::tempdir().expect("a folder"),
            engine: sim::start("tokens=20,ttft=1ms,gap=1ms,usage=on,seed=3").await,
            warehouse: FakeWarehouse::start().await,
        }
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn config(&self, admin: &str, tables: &str) -> PathBuf {
        let path = self.folder.path().join("proxy.toml");
        let text = format!(
            "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n{admin}\n\
             [[upstream]]\nname = \"engine\"\nurl = \"http://{}\"\n\
             [[route]]\nname = \"ads\"\npath = \"/ads\"\nupstream = \"engine\"\n\
             [[route]]\nname = \"all\"\nupstream = \"engine\"\n\
             [[price]]\nmodel = \"m*\"\noutput = 1000\n\
             [[sink]]\nkind = \"clickhouse\"\nurl = \"http://{}\"\nbatch_wait = \"50ms\"\n{tables}",
            self.state(),
            self.engine.address,
            self.warehouse.address,
        );
        std::fs::write(&path, text).expect("written");
        path
    }

    /// All output of the process.
    fn written(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.state()).expect("a folder");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|path| path.is_file());
        files
            .flat_map(|path| std::fs::read(path).expect("read"))
            .collect()
    }
}

fn run(config: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["run", "--config"]).arg(config);
    command
}

fn key_hashes(keys: &str) -> Output {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["print", "key-hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(keys.as_bytes()).expect("written");
    drop(input);
    child.wait_with_output().expect("it ends")
}

fn key_hash(key: &str) -> String {
    let output = key_hashes(key);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout)
        .expect("text")
        .trim()
        .to_owned()
}

async fn chat(process: &Process, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let body = json!({"model": "m-1", "messages": [{"role": "user", "content": "Hi"}]}).to_string();
    let headers = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    let mut agent = RawConnection::connect(process.addresses()[0]).await;
    agent
        .write(format!(
            "POST {path}/v1/chat/completions HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-type: application/json\r\n\
             {}content-length: {}\r\n\r\n{body}",
            headers.collect::<String>(),
            body.len()
        ))
        .await;
    let response = agent.text_to_end().await;
    let status = response.split(' ').nth(1).expect("a status");
    (status.parse().expect("a number"), response)
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

async fn get(process: &Process, path: &str) -> Value {
    let token = bearer(TOKEN);
    let headers = [("authorization", token.as_str())];
    fetch_json(process.admin, &format!("/api/v1/{path}"), &headers).await
}

async fn calls(process: &Process, count: usize) -> Vec<Value> {
    let end = Instant::now() + TIMEOUT;
    loop {
        let mut response = get(process, "calls").await;
        let calls = response["calls"].as_array_mut().expect("calls");
        if calls.len() >= count {
            calls.sort_by_key(|call| {
                format!("{} {} {}", call["route"], call["team"], call["tenant"])
            });
            return std::mem::take(calls);
        }
        assert!(Instant::now() < end, "{} of {count}", calls.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn own_use(process: &Process, query: &str, headers: &[(&str, &str)]) -> TestResponse {
    request_with(process.admin, "GET", &format!("/api/v1/me{query}"), headers).await
}

async fn used(process: &Process, key: &str) -> Value {
    let bearer = bearer(key);
    let response = own_use(process, "", &[("authorization", &bearer)]).await;
    assert_eq!(response.status, 200, "{}", response.body);
    serde_json::from_str(&response.body).expect("JSON")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_has_the_payer_of_its_key_path_or_headers_or_else_of_the_process() {
    let fixture = Fixture::new().await;
    let hash = key_hash(SEARCH);
    let tables = format!(
        "[attribution]\nteam = \"platform\"\ncost_center = \"1\"\ntenant = \"unseen\"\ntenant_headers = [\"x-tenant-id\"]\n\
         [[payer]]\nteam = \"search\"\ncost_center = \"4711\"\nkeys = [\"{hash}\"]\n\
         [[payer]]\nteam = \"ads\"\nroute = \"ads\"\npath = \"/ads\"\n"
    );
    let mut command = run(&fixture.config(&format!("token = \"{TOKEN}\""), &tables));
    command
        .env("TOKENGAUGE_TENANT", "house")
        .env("TOKENGAUGE_TEAM", "");
    let process = Process::start_by(command).await;
    let key = bearer(SEARCH);
    for (path, headers) in [
        ("", vec![("authorization", key.as_str())]),
        ("/ads", vec![("x-api-key", SEARCH)]),
        ("/ads", vec![("x-api-key", OTHER)]),
        ("", vec![("x-tenant-id", "acme")]),
        ("", vec![]),
    ] {
        assert_eq!(chat(&process, path, &headers).await.0, 200);
    }
    let found = calls(&process, 5).await;
    let payer = |call: &Value| {
        let names = ["route", "team", "cost_center", "tenant"];
        names.map(|name| call[name].as_str().unwrap_or("-").to_owned())
    };
    let expected = [
        ["ads", "ads", "-", "house"],
        ["ads", "search", "4711", "house"],
        ["all", "platform", "1", "acme"],
        ["all", "platform", "1", "house"],
        ["all", "search", "4711", "house"],
    ];
    assert_eq!(found.iter().map(payer).collect::<Vec<_>>(), expected);
    assert!(
        found.iter().all(|call| call["key_hash"].is_null()),
        "nobody asked for it"
    );
    let groups = get(&process, "groups?by=team,tenant&team=search").await;
    let group = &groups["groups"][0];
    assert_eq!(group["by"], json!({"team": "search", "tenant": "house"}));
    assert_eq!(
        (
            group["calls"].as_u64(),
            groups["groups"].as_array().map(Vec::len)
        ),
        (Some(2), Some(1))
    );
    let by_tenant = get(&process, "calls?tenant=acme").await;
    assert_eq!(by_tenant["calls"].as_array().map(Vec::len), Some(1));
    assert_eq!(get(&process, "streams?team=search").await["total"], 0);
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let written = fixture.written();
    for key in [SEARCH, OTHER] {
        assert!(
            !written
                .windows(key.len())
                .any(|part| part == key.as_bytes()),
            "a key is in a file"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_month_is_the_same_from_ledger_and_store_and_its_shares_are_a_whole() {
    let fixture = Fixture::new().await;
    let tables = "[[payer]]\nteam = \"=ads, \\\"eu\\\"\"\nroute = \"ads\"\n";
    let process =
        Process::start_by(run(&fixture.config(&format!("token = \"{TOKEN}\""), tables))).await;
    for path in ["/ads", "/ads", "/ads", ""] {
        assert_eq!(chat(&process, path, &[]).await.0, 200);
    }
    calls(&process, 4).await;
    let month = rfc3339_seconds(SystemTime::now()).to_string()[..7].to_owned();
    let end = Instant::now() + TIMEOUT;
    while fixture.warehouse.ids().len() < 4 {
        assert!(Instant::now() < end, "calls in the store");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    let ledger = fixture.state().join("ledger.sqlite");
    let url = format!("http://{}/default", fixture.warehouse.address);
    let report = |options: Vec<String>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command.args(["report", "--format", "csv"]).args(options);
        command.output().expect("it runs")
    };
    let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let by_team = format!("--by team --month {month}");
    let of_ledger = report(words(&format!("{by_team} --ledger {}", ledger.display())));
    assert!(of_ledger.status.success(), "{of_ledger:?}");
    let text = String::from_utf8(of_ledger.stdout.clone()).expect("text");
    let lines: Vec<&str> = text.split_terminator("\r\n").collect();
    let head = "team,month,calls,errors,input_tokens,cached_input_tokens,output_tokens,reasoning_tokens,cost_usd,cost_share,\
                calls_without_price";
    assert_eq!((lines.len(), lines[0]), (3, head), "{text}");
    // Three of four calls, with 20 tokens at 0.001 USD each.
    let ads: Vec<&str> = lines[1]
        .strip_prefix("\"=ads, \"\"eu\"\"\",")
        .expect("quoted")
        .split(',')
        .collect();
    assert_eq!(
        (ads[0], ads[1], ads[2], ads[5]),
        (month.as_str(), "3", "0", "60"),
        "{text}"
    );
    assert_eq!(
        (ads[7], ads[8], ads[9]),
        ("0.060000000", "0.750000", "0"),
        "{text}"
    );
    assert!(
        lines[2].starts_with(&format!(",{month},1,0,")),
        "nobody pays: {text}"
    );
    assert!(lines[2].ends_with(",0.020000000,0.250000,0"), "{text}");
    let of_warehouse = report(words(&format!("{by_team} --store {url}")));
    assert_eq!(
        String::from_utf8_lossy(&of_warehouse.stdout),
        text,
        "{of_warehouse:?}"
    );
    let safe = report(words(&format!(
        "{by_team} --spreadsheet --ledger {}",
        ledger.display()
    )));
    assert!(
        String::from_utf8_lossy(&safe.stdout).contains("\r\n\"'=ads, "),
        "{safe:?}"
    );
    let empty = report(words(&format!(
        "--by team --month 2020-02 --ledger {}",
        ledger.display()
    )));
    assert!(!empty.status.success());
    let message = String::from_utf8_lossy(&empty.stderr).into_owned();
    assert!(
        message.contains("no finished calls in this period"),
        "{message}"
    );
    let wrong = report(words("--by team --month 2026-13"));
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("must be a month such as 2026-11"),
        "{wrong:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_team_has_its_own_quota_that_needs_no_body() {
    let fixture = Fixture::new().await;
    let tables = "[attribution]\nteam_headers = [\"x-team\"]\n\
        [[quota]]\nname = \"by-team\"\nper = \"team\"\nrequests_per_minute = 2\nselect.tenant = \"acme\"\n\
        [[payer]]\ntenant = \"acme\"\nroute = \"all\"\n";
    let process =
        Process::start_by(run(&fixture.config(&format!("token = \"{TOKEN}\""), tables))).await;
    let mut answers = Vec::new();
    for (path, team) in [("", "a"), ("", "a"), ("", "b"), ("", "a"), ("/ads", "a")] {
        answers.push(chat(&process, path, &[("x-team", team)]).await);
    }
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 200]);
    assert!(
        answers[3].1.contains("2 requests a minute for this team"),
        "{}",
        answers[3].1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holder_of_a_key_sees_only_its_own_use() {
    let fixture = Fixture::new().await;
    let tables = format!(
        "[[quota]]\nname = \"by-key\"\nper = \"key\"\nrequests_per_minute = 10\nconcurrent = 5\n\
         [[payer]]\nteam = \"search\"\nkeys = [\"{}\"]\n",
        key_hash(UNUSED)
    );
    let config = fixture.config(&format!("token = \"{TOKEN}\"\nown_use = true"), &tables);
    let process = Process::start_by(run(&config)).await;
    let (search, other) = (bearer(SEARCH), bearer(OTHER));
    let signed = format!(
        "AWS4-HMAC-SHA256 Credential={AWS_ID}/20260101/us-east-1/bedrock/aws4_request, SignedHeaders=host, Signature=aa"
    );
    for (name, value) in [
        ("authorization", search.as_str()),
        ("x-api-key", SEARCH),
        ("authorization", &other),
        ("authorization", &signed),
    ] {
        assert_eq!(chat(&process, "", &[(name, value)]).await.0, 200);
    }
    let all = calls(&process, 4).await;
    let hashes: BTreeSet<_> = all
        .iter()
        .filter_map(|call| call["key_hash"].as_str())
        .collect();
    assert_eq!(
        hashes,
        BTreeSet::from([&*key_hash(SEARCH), &*key_hash(OTHER)])
    );

    let own = used(&process, SEARCH).await;
    assert_eq!(
        (own["calls"].as_u64(), own["tokens"]["output"].as_u64()),
        (Some(2), Some(40))
    );
    assert!(
        (own["cost_usd"].as_f64().expect("a cost") - 0.04).abs() < 1e-9,
        "{own}"
    );
    assert_eq!(own["models"][0]["model"], "m-1");
    assert_eq!(
        (
            own["models"].as_array().map(Vec::len),
            own["models"][0]["calls"].as_u64()
        ),
        (Some(1), Some(2))
    );
    let days = own["days"].as_array().expect("days");
    assert_eq!(
        days.iter()
            .filter_map(|day| day["calls"].as_u64())
            .sum::<u64>(),
        2
    );
    let document = get(&process, "openapi.json").await;
    let schema = "/paths/~1api~1v1~1me/get/responses/200/content/application~1json/schema";
    assert_eq!(broken(&document, schema, &own), None, "{own:#}");
    let limits = &own["limits"][0];
    assert_eq!(limits["quota"], "by-key");
    let requests = &limits["limits"][0];
    assert_eq!(
        (&requests["resource"], &requests["limit"]),
        (&json!("requests"), &json!(10))
    );
    // The quota gains one request every six seconds.
    let left = requests["remaining"].as_u64().expect("a number");
    assert!((8..=10).contains(&left), "{left}");
    assert_eq!(
        limits["limits"][1],
        json!({"resource": "concurrent", "limit": 5, "remaining": 5})
    );
    assert_eq!(used(&process, OTHER).await["calls"], 1);
    for name in ["x-api-key", "api-key", "x-goog-api-key"] {
        let response = own_use(&process, "?since=1h", &[(name, SEARCH)]).await;
        assert!(
            response.body.contains("\"calls\":2"),
            "{name}: {}",
            response.body
        );
    }

    let with_key = [("authorization", search.as_str())];
    let early = own_use(&process, "?until=1970-01-02T00:00:00Z", &with_key).await;
    assert_eq!(early.status, 200, "{}", early.body);
    assert!(early.body.contains("\"calls\":0"), "{}", early.body);

    // An unknown key, a key without usage, and a value that is not a key get the same answer.
    let time = |mut body: Value| {
        body["since"] = Value::Null;
        body["until"] = Value::Null;
        body
    };
    let unknown = time(used(&process, "sk-nobody-0123456789abcdef").await);
    assert_eq!(unknown["calls"], 0);
    assert_eq!(unknown["limits"], json!([]), "nor is it told of quotas");
    assert_eq!(time(used(&process, UNUSED).await), unknown);
    assert_eq!(time(used(&process, TOKEN).await), unknown);
    assert_eq!(time(used(&process, &key_hash(SEARCH)).await), unknown);
    for (query, headers, status) in [
        (
            format!("?key_hash={}", key_hash(OTHER)),
            vec![("authorization", search.as_str())],
            400,
        ),
        ("?by=user".to_owned(), vec![("authorization", &search)], 400),
        (format!("?key={SEARCH}"), vec![], 400),
        (
            "?since=60d".to_owned(),
            vec![("authorization", &search)],
            400,
        ),
        (String::new(), vec![], 401),
        (String::new(), vec![("authorization", &signed)], 401),
        (String::new(), vec![("x-api-key", "sk-1234")], 401),
        // The id of a key is not the key.
        (String::new(), vec![("x-api-key", AWS_ID)], 401),
    ] {
        let response = own_use(&process, &query, &headers).await;
        assert_eq!(response.status, status, "{query}: {}", response.body);
        let error = serde_json::from_str(&response.body).expect("JSON");
        let problem = "/components/schemas/Problem";
        assert_eq!(broken(&document, problem, &error), None, "{error:#}");
        assert!(!response.body.contains("sk-"), "{}", response.body);
    }
    // All other paths require the admin token.
    for path in [
        "/api/v1/calls",
        "/api/v1/groups?by=key_hash",
        "/metrics",
        "/api/v1/me/x",
    ] {
        let response =
            request_with(process.admin, "GET", path, &[("authorization", &search)]).await;
        assert_eq!(response.status, 401, "{path}");
    }
    let mut statuses = BTreeSet::new();
    for _ in 0..60 {
        statuses.insert(
            own_use(&process, "", &[("authorization", &search)])
                .await
                .status,
        );
    }
    assert!(statuses.contains(&429), "{statuses:?}");
    assert!(process.find(SEARCH).is_none(), "a key is in the log");
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    // The answer comes from the ledger, so another process gives the same one.
    let process = Process::start_by(run(&config)).await;
    assert_eq!(used(&process, SEARCH).await["calls"], 2);
    let written = fixture.written();
    assert!(
        !written
            .windows(SEARCH.len())
            .any(|part| part == SEARCH.as_bytes())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_keys_is_shown_only_if_enabled() {
    let fixture = Fixture::new().await;
    let process =
        Process::start_by(run(&fixture.config(&format!("token = \"{TOKEN}\""), ""))).await;
    for key in [SEARCH, TOKEN] {
        let bearer = bearer(key);
        let response = own_use(&process, "", &[("authorization", &bearer)]).await;
        assert_eq!(response.status, 404, "{}", response.body);
        assert!(response.body.contains("own_use"), "{}", response.body);
    }
}

#[test]
fn a_payer_that_cannot_be_is_refused_and_a_key_is_not_repeated() {
    let problem = |table: &str| {
        let text = format!(
            "listen = \"127.0.0.1:8080\"\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n\
             [[route]]\nname = \"r\"\nupstream = \"u\"\n{table}\n"
        );
        let result = Config::parse(&text, "test.toml");
        result.map_or_else(|error| error.to_string(), |_| "fine".to_owned())
    };
    for (table, message) in [
        (
            "[[payer]]\nteam = \"a\"\nroute = \"r\"\nport = 8080",
            "fine",
        ),
        (
            "[[payer]]\ntenant = \"a\"\nkeys = [\"0123456789abcdef\"]",
            "fine",
        ),
        (
            "[attribution]\nteam = \"a\"\ntenant_headers = [\"x-tenant-id\"]",
            "fine",
        ),
        (
            "[[payer]]\nroute = \"r\"",
            "needs `team`, `cost_center` or `tenant`",
        ),
        (
            "[[payer]]\nteam = \"a\"",
            "needs `keys`, `path`, `port` or `route`",
        ),
        (
            "[[payer]]\nteam = \"a\"\nroute = \"x\"",
            "there is no route named `x`",
        ),
        (
            "[[payer]]\nteam = \"a\"\nport = 8081",
            "`listen` has no port 8081",
        ),
        (
            "[[payer]]\nteam = \"\"\nroute = \"r\"",
            "1 to 100 printable characters",
        ),
        (
            "[attribution]\nteam_headers = [\"authorization\"]",
            "holds a secret",
        ),
        (
            "[[slo]]\nname = \"s\"\nthroughput.at_least = 1\nselect.upstream = \"u\"\nselect.team = \"a\"",
            "is not measured per team",
        ),
        (
            &format!("[[payer]]\nteam = \"a\"\nkeys = [\"{SEARCH}\"]"),
            "not the key itself",
        ),
    ] {
        let problem = problem(table);
        assert!(problem.contains(message), "{table}: {problem}");
        assert!(!problem.contains(SEARCH), "{problem}");
    }
}

#[test]
fn digests_are_printed_for_the_keys_on_standard_input() {
    let two = key_hashes(&format!("{SEARCH}\n\n  {OTHER}\r\n"));
    let lines = String::from_utf8(two.stdout).expect("text");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines, [key_hash(SEARCH), key_hash(OTHER)]);
    assert!(
        lines
            .iter()
            .all(|line| line.len() == 16 && line.bytes().all(|byte| byte.is_ascii_hexdigit()))
    );
    for (input, message) in [
        ("", "there is no key on standard input"),
        (&*bearer(SEARCH), "write one key per line, without `Bearer`"),
        (&*format!("\"{SEARCH}\""), "quotes"),
        (&*format!("{SEARCH},{OTHER}"), "commas"),
    ] {
        let output = key_hashes(input);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(message), "{text}");
        assert!(!text.contains(SEARCH), "{text}");
    }
}
