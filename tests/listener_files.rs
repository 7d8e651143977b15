//! Running out of file descriptors. Linux only, because the test needs `/proc` and `ulimit`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Duration;
use tokengauge_test_support::canned::CannedUpstream;
use tokengauge_test_support::proxy::Setup;

/// The limit applies to a process, so the test runs in its own process.
#[test]
fn without_file_descriptors_accepting_waits_without_spinning_and_continues_afterwards() {
    let run = "ulimit -n 64; exec \"$0\" --exact --ignored --nocapture listener_files::in_a_process_with_few_files";
    let this = std::env::current_exe().expect("a path");
    let output = Command::new("sh")
        .args(["-c", run])
        .arg(this)
        .output()
        .expect("run");
    let (said, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}{errors}"
    );
}

#[tokio::test]
#[ignore = "run by the test above, with a limit"]
async fn in_a_process_with_few_files() {
    let upstream = CannedUpstream::start().await;
    let proxy = Setup::to(upstream.address).start().await;
    let stat = File::open("/proc/self/stat").expect("readable");
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
        assert!(files.len() < 1000, "no limit");
    }
    // Free one descriptor for the agent's socket, and none to accept it with.
    files.pop();
    let mut agent = proxy.agent().await;
    agent.get("/hello").await;

    let before = cpu_ticks(&stat);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(proxy.shutdown.connections(), 0, "nothing to accept it with");
    let spent = cpu_ticks(&stat) - before;
    assert!(spent < 20, "{spent} of 100 ticks were spent on waiting");

    files.clear();
    assert!(
        agent
            .text_until("hello")
            .await
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
}

/// CPU time of this process in hundredths of a second.
fn cpu_ticks(stat: &File) -> u64 {
    let mut text = [0; 1024];
    let length = stat.read_at(&mut text, 0).expect("read");
    let text = String::from_utf8_lossy(&text[..length]);
    let after_name = text.rsplit(')').next().expect("a name");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    [fields[11], fields[12]]
        .iter()
        .map(|ticks| ticks.parse::<u64>().expect("a number"))
        .sum()
}
