//! Output of the real binary's commands: to a reader that closes early, and to a terminal that would interpret control
//! characters in model and session names.

use crate::process::SteppedBackend;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use tokengauge_store::ledger::{LedgerCall, LedgerDatabase};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::fetch;
use tokengauge_test_support::records::Records;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpStream;

/// Clears a terminal and changes its title in 7-bit and 8-bit codes, forges a line, and reverses the direction of the
/// following text.
const MODEL: &str = "m\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}2J\r\nFORGED LINE\u{202e}";
/// Control characters for other names in requests and answers, and a table cell, a link and a tag in Markdown.
const NAME: &str = "n\nFORGED \u{1b}[31m\u{2067}|[x](http://evil.example)<img src=x>";
const SESSION: &str = "=HYPERLINK(\"http://evil.example\",\"open\")";

struct OutputFixture {
    folder: TempDir,
    ledger: PathBuf,
    log: PathBuf,
    config: PathBuf,
}

impl OutputFixture {
    fn new() -> OutputFixture {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let (ledger, log, config) = (path("ledger.sqlite"), path("log.jsonl"), path("proxy.toml"));
        let records = Records::new(SystemTime::now() - Duration::from_secs(600), 10.0);
        let mut records: Vec<_> = records.take(2_000).collect();
        for record in &mut records {
            record.model = Some(MODEL.to_owned());
            record.session = Some(SESSION.to_owned());
            let names = [
                &mut record.agent,
                &mut record.user,
                &mut record.team,
                &mut record.tenant,
                &mut record.tools,
                &mut record.error_type,
            ];
            for name in names {
                *name = Some(NAME.to_owned());
            }
        }
        let kept: Vec<_> = records
            .iter()
            .filter_map(|record| LedgerCall::of_record(record, None))
            .collect();
        let mut database = LedgerDatabase::open(&ledger).expect("opens");
        database.write(&kept).expect("written");
        let lines = records
            .iter()
            .map(|record| serde_json::to_string(record).expect("JSON") + "\n");
        std::fs::write(&log, lines.collect::<String>()).expect("written");
        let text = "[[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n\
             [[route]]\nupstream = \"u\"\n\
             [[slo]]\nname = \"s\"\nobjective = 0.9\nwindow = \"1h\"\navailability = true\n";
        std::fs::write(&config, text).expect("written");
        OutputFixture {
            ledger,
            log,
            config,
            folder,
        }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        for word in line.split(' ') {
            command.arg(match word {
                "LEDGER" => text(&self.ledger),
                "LOG" => text(&self.log),
                "CONFIG" => text(&self.config),
                "FOLDER" => text(self.folder.path()),
                "SESSION" => SESSION.to_owned(),
                word => word.to_owned(),
            });
        }
        command.stdin(Stdio::null());
        command
    }

    fn output(&self, line: &str) -> Output {
        let output = self.command(line).output().expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {stderr}");
        output
    }
}

const COMMANDS: [&str; 17] = [
    "check --config CONFIG",
    "export --ledger LEDGER --format csv --since 1h",
    "export --ledger LEDGER --format jsonl --since 1h",
    "export --ledger LEDGER --format parquet --since 1h",
    "report --ledger LEDGER --with-warm-up",
    "report --call-log LOG --with-warm-up --format html",
    "slo suggest LOG",
    "slo test --config CONFIG LOG",
    "slo export --config CONFIG",
    "print rules --config CONFIG",
    "print metrics",
    "print keys --json",
    "print dashboards",
    "print dashboards speed",
    "print record LOG",
    "slo suggest --ledger LEDGER",
    "slo test --config CONFIG --ledger LEDGER --json",
];

#[test]
fn every_command_ends_quietly_when_its_output_is_closed() {
    let fixture = OutputFixture::new();
    for line in COMMANDS {
        let closed = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer
        };
        let output = fixture.command(line).stdout(closed()).output();
        let output = output.expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {stderr}");
        assert!(
            !stderr.contains("panicked") && !stderr.contains("pipe"),
            "{line}: {stderr}"
        );
        let mut command = fixture.command(line);
        let status = command.stdout(closed()).stderr(closed()).status();
        assert!(status.expect("it runs").success(), "{line}");
    }
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = fixture.command("check --config /nonexistent");
    let status = command.stderr(writer).status().expect("it runs");
    assert_eq!(
        status.code(),
        Some(78),
        "an error is one where nobody reads it"
    );
}

fn on_terminal(command: Command) -> String {
    on_terminal_of(None, command)
}

/// Opens a terminal with these rows and columns. Returns the reading end and the end for a command.
pub fn terminal(size: Option<[u16; 2]>) -> (OwnedFd, OwnedFd) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("granted");
    unlockpt(&terminal).expect("unlocked");
    let name = ptsname(&terminal, Vec::new()).expect("its name");
    let other = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty())
        .expect("its other end");
    if let Some([ws_row, ws_col]) = size {
        let size = Winsize {
            ws_row,
            ws_col,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&other, size).expect("a size");
    }
    (terminal, other)
}

/// Standard output and standard error of the command on a terminal with this number of columns.
fn on_terminal_of(columns: Option<u16>, mut command: Command) -> String {
    let (terminal, other) = terminal(columns.map(|columns| [24, columns]));
    command
        .stdout(other.try_clone().expect("twice"))
        .stderr(other);
    let mut child = command.spawn().expect("it runs");
    drop(command);
    let mut shown = Vec::new();
    let mut terminal = std::fs::File::from(terminal);
    let mut piece = [0; 4096];
    // On Linux, a read at the end of a pseudo-terminal fails instead of returning 0.
    while let Ok(length @ 1..) = terminal.read(&mut piece) {
        shown.extend_from_slice(&piece[..length]);
    }
    child.wait().expect("it ends");
    String::from_utf8_lossy(&shown).into_owned()
}

/// Removes progress lines, which a slow machine shows.
fn without_progress(shown: &str) -> String {
    let mut parts = shown.split("\r\u{1b}[K");
    let first = parts.next().unwrap_or_default();
    first.to_owned() + parts.last().unwrap_or_default()
}

fn harmless(line: &str, shown: &str) {
    let harmful = |c: char| c.is_control() && c != '\n' && c != '\r' && c != '\t';
    assert!(!shown.contains(harmful), "{line}: {shown:?}");
    assert!(
        !shown.contains(['\u{202e}', '\u{2067}']),
        "{line}: {shown:?}"
    );
    let forged = shown.lines().any(|line| line.starts_with("FORGED"));
    assert!(!forged, "{line}: {shown}");
}

const FOR_PEOPLE: [&str; 11] = [
    "report --ledger LEDGER --with-warm-up",
    "report --ledger LEDGER --with-warm-up --by agent,user,team,tenant,tool",
    "report --ledger LEDGER --with-warm-up --format markdown",
    "report --ledger LEDGER --with-warm-up --by model,agent --format markdown",
    "report --ledger LEDGER --with-warm-up --by model,agent --format html",
    "report session SESSION --ledger LEDGER --config CONFIG",
    "report session SESSION --ledger LEDGER --config CONFIG --format html",
    "slo incident --ledger LEDGER --config CONFIG --since 1h",
    "drift --ledger LEDGER --config CONFIG",
    "drift --ledger LEDGER --config CONFIG --format markdown",
    "slo suggest LOG",
];

#[test]
fn output_for_people_has_only_our_own_lines() {
    let fixture = OutputFixture::new();
    for line in FOR_PEOPLE {
        let shown = String::from_utf8(fixture.output(line).stdout).expect("UTF-8");
        assert!(shown.contains("calls"), "{line}: {shown}");
        harmless(line, &shown);
        if line.contains("markdown") {
            let bare = shown
                .replace("\\<", "")
                .replace("\\[", "")
                .replace("\\|", "");
            let markup = ["<img", "[x", "[31m", "|\\"]
                .iter()
                .any(|markup| bare.contains(markup));
            assert!(!markup, "{line}: {shown}");
        }
    }
}

#[test]
fn no_name_commands_a_terminal() {
    let fixture = OutputFixture::new();
    let for_programs = [
        "report --ledger LEDGER --with-warm-up --format json",
        "export --ledger LEDGER --format jsonl --since 1h",
    ];
    for line in FOR_PEOPLE.into_iter().chain(for_programs) {
        let shown = without_progress(&on_terminal(fixture.command(line)));
        assert!(
            shown.contains("tokens") || shown.contains("calls"),
            "{line}: {shown}"
        );
        harmless(line, &shown);
    }
    let line = "export --ledger LEDGER --format csv --since 1h";
    let shown = on_terminal(fixture.command(line));
    assert!(shown.contains("m\\u{1b}[2J"), "{shown}");
    assert!(!shown.contains(['\u{1b}', '\u{9b}', '\u{7}']), "{shown:?}");
    let line = "check --config no\u{1b}[2Jwhere";
    let shown = on_terminal(fixture.command(line));
    assert!(shown.contains("no\\u{1b}[2Jwhere"), "{shown}");
    harmless(line, &shown);
}

#[test]
fn a_table_has_no_control_characters_and_a_file_has_the_original_names() {
    let fixture = OutputFixture::new();
    let table = fixture.output("report --ledger LEDGER --with-warm-up");
    let table = String::from_utf8(table.stdout).expect("UTF-8");
    assert!(table.contains("m\\u{1b}[2J"), "{table}");
    harmless("report", &table);
    let csv = fixture.output("export --ledger LEDGER --format csv --since 1h");
    let csv = String::from_utf8(csv.stdout).expect("UTF-8");
    assert!(csv.contains(MODEL), "a pipe gets what is in the ledger");
}

#[test]
fn a_spreadsheet_gets_no_formulas() {
    let fixture = OutputFixture::new();
    let quoted = format!("\"{}\"", SESSION.replace('"', "\"\""));
    let line = "export --ledger LEDGER --format csv --since 1h";
    let csv = |output: Output| String::from_utf8(output.stdout).expect("UTF-8");
    assert!(csv(fixture.output(line)).contains(&quoted));
    let safe = csv(fixture.output(&format!("{line} --spreadsheet")));
    assert!(safe.contains(&quoted.replace("\"=", "\"'=")), "{safe}");
    assert!(!safe.contains(&quoted));
    let refused = fixture
        .command("export --ledger LEDGER --format jsonl --since 1h --spreadsheet")
        .output()
        .expect("it runs");
    assert_eq!(refused.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr.contains("--format csv"), "{stderr}");
}

#[tokio::test]
async fn a_proxy_continues_when_its_log_is_closed() {
    let upstream = SteppedBackend::start().await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"u\"\n",
        upstream.address
    );
    std::fs::write(&file, text).expect("written");
    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"))
        .args(["run", "--config"])
        .arg(&file)
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let mut address = async |start: &str| loop {
        let line = tokio::time::timeout(TIMEOUT, lines.next_line()).await;
        let line = line.expect("a line").expect("read").expect("it listens");
        if let Some(address) = line.strip_prefix(start) {
            return address.parse::<std::net::SocketAddr>().expect("an address");
        }
    };
    let traffic = address("listening on ").await;
    let admin = address("admin on ").await;
    drop(lines);
    for _ in 0..20 {
        assert_eq!(fetch(traffic, "/hello").await.status, 200);
    }
    drop(TcpStream::connect(traffic).await.expect("connected"));
    let metrics = fetch(admin, "/metrics").await.body;
    assert!(
        metrics.contains("tokengauge_meter_panics_total 0"),
        "{metrics}"
    );
    assert!(
        metrics.contains("tokengauge_observer_panics_total 0"),
        "{metrics}"
    );
    assert!(child.try_wait().expect("known").is_none(), "it runs");
}

#[test]
fn a_report_keeps_to_the_width_of_its_terminal() {
    let fixture = OutputFixture::new();
    for columns in [80_u16, 200] {
        let line = "report --ledger LEDGER --with-warm-up --by user,model";
        let shown = without_progress(&on_terminal_of(Some(columns), fixture.command(line)));
        let widest = shown.lines().map(|line| line.chars().count()).max();
        assert!(widest.expect("lines") <= usize::from(columns), "{shown}");
        for head in ["USER", "CALLS", "TTFT P50", "PER 1M OUT", "BANDS %"] {
            assert!(shown.contains(head), "{head}: {shown}");
        }
    }
    let piped = fixture.output("report --ledger LEDGER --with-warm-up");
    let piped = String::from_utf8(piped.stdout).expect("UTF-8");
    let heads = piped.lines().next().expect("heads");
    assert!(
        heads.contains("CALLS") && heads.ends_with("BANDS %"),
        "{heads}"
    );
}

#[test]
fn long_work_shows_on_a_terminal_how_far_it_is() {
    let fixture = OutputFixture::new();
    let pipe = fixture.folder.path().join("pipe.jsonl");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let log = std::fs::read_to_string(&fixture.log).expect("read");
    let writer = std::thread::spawn({
        let pipe = pipe.clone();
        move || {
            let mut pipe = std::fs::OpenOptions::new()
                .write(true)
                .open(pipe)
                .expect("opens");
            for line in log.lines().take(15) {
                writeln!(pipe, "{line}").expect("written");
                std::thread::sleep(Duration::from_millis(120));
            }
        }
    });
    let mut command = fixture.command("report --with-warm-up --call-log");
    command.arg(&pipe);
    let shown = on_terminal(command);
    writer.join().expect("no panic");
    let (progress, report) = shown.rsplit_once("\u{1b}[K").expect("a line that changes");
    assert!(
        progress.contains("report: ") && progress.contains(" calls, 1s"),
        "{progress:?}"
    );
    assert!(
        report.contains("CALLS") && report.contains("15 calls from"),
        "{report}"
    );
}

#[test]
fn objectives_are_judged_by_a_ledger_as_by_its_calls_in_a_log() {
    let fixture = OutputFixture::new();
    let exported = fixture.output("export --ledger LEDGER --since 1h");
    std::fs::write(&fixture.log, exported.stdout).expect("written");
    let text = |line: &str| String::from_utf8(fixture.output(line).stdout).expect("UTF-8");
    let suggested = text("slo suggest --ledger LEDGER");
    assert!(suggested.contains("[[slo]]"), "{suggested}");
    assert_eq!(suggested, text("slo suggest LOG"));
    let judged = text("slo test --config CONFIG --ledger LEDGER");
    assert!(judged.contains("s (no upstream error, 90%): "), "{judged}");
    assert_eq!(judged, text("slo test --config CONFIG LOG"));

    let json = |line: &str| -> serde_json::Value {
        serde_json::from_str(&text(line)).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let suggested_json = json("slo suggest --ledger LEDGER --json");
    let objectives = suggested_json["objectives"].as_array().expect("a list");
    assert_eq!(objectives.len(), suggested.matches("[[slo]]").count());
    assert!(
        objectives[0]["slo"]["name"].is_string(),
        "{suggested_json:#}"
    );
    let judged = json("slo test --config CONFIG --ledger LEDGER --format json");
    let objective = &judged["objectives"][0];
    assert_eq!(objective["slo"]["availability"], true, "{judged:#}");
    assert!(objective["good"].as_u64() > Some(0), "{judged:#}");
    for both in ["slo suggest LOG --ledger LEDGER", "slo suggest"] {
        let output = fixture.command(both).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{both}: {output:?}");
    }
}

#[test]
fn a_report_by_outcome_has_a_row_for_each_outcome() {
    let fixture = OutputFixture::new();
    let line = "report --ledger LEDGER --with-warm-up --by outcome";
    let shown = String::from_utf8(fixture.output(line).stdout).expect("UTF-8");
    assert!(shown.starts_with("OUTCOME "), "{shown}");
    let json = fixture.output("report --ledger LEDGER --by outcome,model --json");
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    for outcome in ["complete", "http_error", "upstream_reset"] {
        let row = shown.lines().any(|line| line.starts_with(outcome));
        assert!(row, "{outcome}: {shown}");
        assert!(json.to_string().contains(outcome), "{outcome}: {json}");
    }
}
