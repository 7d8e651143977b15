//! Only the owner can read files that the real binary writes.

use crate::process::{Process, SteppedBackend};
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::http_client::request;

fn mode(path: &Path) -> u32 {
    let file =
        std::fs::metadata(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file.permissions().mode() & 0o777
}

async fn exists(path: &Path) {
    let end = Instant::now() + TIMEOUT;
    while !path.exists() {
        assert!(Instant::now() < end, "{} never comes", path.display());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn files_about_calls_are_readable_by_the_owner_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let upstream = SteppedBackend::start().await;
    let state = folder.path().join("state");
    let log = folder.path().join("calls.jsonl");
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {state:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://{}\"\n[[route]]\nupstream = \"u\"\n\
         [[slo]]\nname = \"s\"\nobjective = 0.9\nwindow = \"1h\"\navailability = true\n\
         [[budget]]\nname = \"b\"\nusd = 1.0\n",
        upstream.address
    );
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["run", "--config"]).arg(&file);
    command.arg("--call-log").arg(&log);
    let process = Process::start_by(command.into()).await;
    assert_eq!(
        request(process.addresses()[0], "POST", "/v1/embeddings")
            .await
            .status,
        200
    );
    for ending in ["", "-wal", "-shm", ".lock"] {
        let path = state.join(format!("ledger.sqlite{ending}"));
        exists(&path).await;
        assert_eq!(mode(&path), 0o600);
    }
    process.signal(Signal::TERM);
    assert!(process.ended().await.success());
    assert_eq!(mode(&log), 0o600, "the call log");
    let state_files = std::fs::read_dir(&state).expect("a folder");
    let mut names = Vec::new();
    for file in state_files {
        let path = file.expect("an entry").path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        names.push(path.file_name().expect("a name").to_owned());
    }
    for name in [
        "slo-state.json",
        "slo-audit.jsonl",
        "spending.json",
        "ledger.sqlite",
    ] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    let ledger = state.join("ledger.sqlite");
    for (command, more) in [
        ("export", &["--format", "csv", "--since", "1h"][..]),
        ("export", &["--format", "parquet", "--since", "1h"][..]),
        ("report", &["--format", "html", "--with-warm-up"][..]),
    ] {
        let path = folder.path().join("written");
        let output = Command::new(env!("CARGO_BIN_EXE_tokengauge"))
            .arg(command)
            .args(more)
            .arg("--ledger")
            .arg(&ledger)
            .arg("-o")
            .arg(&path)
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command}: {stderr}");
        assert_eq!(mode(&path), 0o600, "{command} {more:?}");
        std::fs::remove_file(&path).expect("removed");
    }
}

#[tokio::test]
async fn a_proxy_starts_despite_a_damaged_file_of_spending() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    std::fs::create_dir(&state).expect("a folder");
    std::fs::write(state.join("spending.json"), "{\"b\":").expect("written");
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {state:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\nupstream = \"u\"\n\
         [[budget]]\nname = \"b\"\nusd = 1.0\n"
    );
    std::fs::write(&file, text).expect("written");
    let process = Process::start(&file).await;
    process.line("spending.json").await;
    let aside = std::fs::read(state.join("spending.json.unreadable"));
    assert_eq!(aside.expect("put aside"), b"{\"b\":");
    let second = Process::start(&file).await;
    second.line("another process writes spending.json").await;
}
