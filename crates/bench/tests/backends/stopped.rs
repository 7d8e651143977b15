//! A client that is stopped again and again, so that it does not get the processor for a part of the time.

use super::{TENTH, closed, plan, run, simulator};
use rustix::process::{Pid, Signal, kill_process};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokengauge_bench::steady::Reason;
use tokio::time::sleep;

/// The environment variable with the address of the simulator, for the process that is stopped.
const BACKEND: &str = "TOKENGAUGE_TEST_BACKEND";

/// Runs in the process that the next test starts: a benchmark that allows a lag of 30 ms and prints why it withholds
/// figures.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a_client_that_is_stopped_has_no_figures runs it as a process"]
async fn benchmark() {
    let Ok(address) = std::env::var(BACKEND) else {
        return;
    };
    let mut wanted = plan(address.parse().expect("an address"), closed(4), TENTH);
    wanted.criteria.drift = 10.0;
    wanted.criteria.lag = Some(0.03);
    let results = run(wanted).await;
    for reason in &results.levels[0].withheld {
        println!("withheld: {:?}: {reason}", reason.reason);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_is_stopped_has_no_figures() {
    let (_simulator, address) = simulator("ttft=30ms,gap=2ms,tokens=40").await;
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "stopped::benchmark", "--ignored", "--nocapture"]);
    command.env(BACKEND, address.to_string());
    command.stdout(Stdio::piped());
    let mut client = command.spawn().expect("it runs");
    let id = i32::try_from(client.id()).expect("an id");
    let id = Pid::from_raw(id).expect("an id");
    while client.try_wait().expect("asked").is_none() {
        for (signal, milliseconds) in [(Signal::STOP, 100), (Signal::CONT, 500)] {
            // The process may have ended already.
            let _ = kill_process(id, signal);
            sleep(Duration::from_millis(milliseconds)).await;
        }
    }
    let output = client.wait_with_output().expect("it ended");
    let printed = String::from_utf8_lossy(&output.stdout);
    let wanted = format!(
        "withheld: {:?}: trial 1: this client was ",
        Reason::ClientLag
    );
    assert!(printed.contains(&wanted), "{printed}");
    assert!(printed.contains("30.0 ms are allowed"), "{printed}");
}
