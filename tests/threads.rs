//! Priorities of the real binary's threads, and which of them serve agents. Linux only, where each thread has a
//! priority.

use crate::process::Process;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::canned::CannedUpstream;
use tokengauge_test_support::connection::RawConnection;
use tokio::process::Command;

/// Threads, and by how much their nice value exceeds the value of traffic threads. Probes have the priority of traffic.
const EXPECTED: [(&str, i64); 15] = [
    ("admin", 0),
    ("call-log", 5),
    ("drift", 5),
    ("experiments", 5),
    ("gates", 5),
    ("subscribers", 5),
    ("ledger", 5),
    ("ledger-look", 5),
    ("meter", 10),
    ("sink", 19),
    ("sink-queue", 5),
    ("slo", 5),
    ("slo-cause", 5),
    ("slo-state", 5),
    ("traffic", 0),
];

/// SCHED_IDLE of `linux/sched.h`, whose threads yield at once. All others have SCHED_OTHER.
const IDLE_POLICY: i64 = 5;

/// The lowest priority.
const NICEST: i64 = 19;

#[tokio::test]
async fn what_measures_makes_way_for_traffic() {
    makes_way(0).await;
}

/// In a sidecar of a batch job, for example, measuring still has a lower priority than traffic.
#[tokio::test]
async fn what_measures_makes_way_in_a_process_that_is_nice_itself() {
    makes_way(15).await;
}

/// Runs the check in a process whose nice value is higher by `nicer`.
async fn makes_way(nicer: i64) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\nstate_dir = {:?}\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:9\"\n[[route]]\nupstream = \"u\"\n\
         [[slo]]\nname = \"s\"\navailability = true\n\
         [[sink]]\nname = \"c\"\nkind = \"clickhouse\"\nurl = \"http://127.0.0.1:9\"\n",
        folder.path().join("state"),
    );
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new("nice");
    command.args(["-n", &nicer.to_string()]);
    command.arg(env!("CARGO_BIN_EXE_tokengauge"));
    command.args(["run", "--config"]).arg(&file);
    command.arg("--call-log").arg(folder.path().join("calls"));
    let process = Process::start_by(command).await;

    let own = of_thread(Path::new("/proc/self")).expect("it runs").1.0;
    let base = (own + nicer).min(NICEST);
    let expected = EXPECTED.map(|(name, nice)| {
        let policy = if name == "sink" { IDLE_POLICY } else { 0 };
        (name.to_owned(), ((base + nice).min(NICEST), policy))
    });
    let expected = BTreeMap::from(expected);
    // A thread sets its name and priority a moment after it starts.
    let end = Instant::now() + TIMEOUT;
    loop {
        let mut threads = priorities(process.id());
        threads.retain(|name, _| expected.contains_key(name));
        if threads == expected {
            return;
        }
        assert!(Instant::now() < end, "{threads:?} instead of {expected:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn start(threads: usize, upstream: &CannedUpstream) -> (Process, TempDir) {
    Process::start_threads(threads, &format!("http://{}", upstream.address), "").await
}

/// Returns the only traffic thread that was scheduled more than half of `turns` times during `work`.
async fn busy_thread(process: &Process, turns: usize, work: impl Future<Output = ()>) -> u32 {
    let before = traffic_turns(process.id());
    work.await;
    let after = traffic_turns(process.id());
    let more = after.iter().map(|(id, after)| (*id, after - before[id]));
    let busy: Vec<_> = more.filter(|(_, more)| *more > turns / 2).collect();
    assert_eq!(busy.len(), 1, "{before:?} {after:?}");
    busy[0].0
}

const CALLS: usize = 200;

async fn call(agent: &mut RawConnection) {
    for _ in 0..CALLS {
        agent.get("/u/hello").await;
        agent.text_until("hello").await;
    }
}

/// Each of two agents has its own thread, which does no work for the other.
#[tokio::test]
async fn agents_are_spread_over_the_threads_of_traffic() {
    let upstream = CannedUpstream::start().await;
    let (process, _folder) = start(3, &upstream).await;
    let metrics = process.metrics().await;
    assert_eq!(
        metrics["tokengauge_runtime_workers{runtime=\"traffic\"}"],
        3.0
    );
    let address = process.addresses()[0];
    let mut first = RawConnection::connect(address).await;
    let mut second = RawConnection::connect(address).await;
    let of_first = busy_thread(&process, CALLS, call(&mut first)).await;
    let of_second = busy_thread(&process, CALLS, call(&mut second)).await;
    assert_ne!(of_first, of_second);
}

#[tokio::test]
async fn a_tunnel_counts_as_a_connection_of_its_thread() {
    let upstream = CannedUpstream::start().await;
    let (process, _folder) = start(2, &upstream).await;
    let address = process.addresses()[0];
    let mut tunnel = RawConnection::connect(address).await;
    tunnel
        .write(
            "GET /u/tunnel HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .await;
    assert!(tunnel.read_head().await.starts_with("HTTP/1.1 101 "));
    let of_tunnel = busy_thread(&process, CALLS, async {
        for _ in 0..CALLS {
            tunnel.write("x").await;
            tunnel.read_exact(1).await;
        }
    });
    let of_tunnel = of_tunnel.await;
    // The other thread has served a connection last, and has none now.
    let mut other = RawConnection::connect(address).await;
    other.get("/u/hello").await;
    other.text_until("hello").await;
    let tasks = async || {
        let metrics = process.metrics().await;
        metrics["tokengauge_runtime_alive_tasks{runtime=\"traffic\"}"]
    };
    let open = tasks().await;
    drop(other);
    let end = Instant::now() + TIMEOUT;
    while tasks().await >= open {
        assert!(Instant::now() < end, "it is still served");
    }
    let mut next = RawConnection::connect(address).await;
    let of_next = busy_thread(&process, CALLS, call(&mut next)).await;
    assert_ne!(of_next, of_tunnel);
}

/// How often each traffic thread was scheduled, by thread id; see `Documentation/scheduler/sched-stats`.
fn traffic_turns(process: u32) -> BTreeMap<u32, usize> {
    let folder = format!("/proc/{process}/task");
    let threads = std::fs::read_dir(folder).expect("it runs");
    let turns = |thread: std::fs::DirEntry| {
        let file = |name: &str| std::fs::read_to_string(thread.path().join(name)).ok();
        if file("comm")?.trim() != "traffic" {
            return None;
        }
        let turns = file("schedstat")?.split_whitespace().nth(2)?.parse().ok()?;
        Some((thread.file_name().to_str()?.parse().ok()?, turns))
    };
    threads.filter_map(|thread| turns(thread.ok()?)).collect()
}

/// Nice values and policies by thread name.
fn priorities(process: u32) -> BTreeMap<String, (i64, i64)> {
    let folder = format!("/proc/{process}/task");
    let threads = std::fs::read_dir(folder).expect("it runs");
    let threads = threads.filter_map(|thread| of_thread(&thread.ok()?.path()));
    threads.collect()
}

/// The fields of `proc_pid_stat(5)`.
fn of_thread(folder: &Path) -> Option<(String, (i64, i64))> {
    // A thread that has just ended has no file.
    let stat = std::fs::read_to_string(folder.join("stat")).ok()?;
    let (before, after) = stat.rsplit_once(')')?;
    let name = before.split_once('(')?.1;
    let field = |number: usize| after.split_whitespace().nth(number)?.parse().ok();
    Some((name.to_owned(), (field(16)?, field(38)?)))
}
