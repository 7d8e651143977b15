//! Upstream host names that change or that resolve to several servers.

use super::backend::Backend;
use super::fixture::{ProxyFixture, Setup, ask, ordinary, request};
use super::message::MessageEnd;
use super::upstream::recorded;
use std::path::Path;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::skip::skipped;
use tokio::process::Command;

/// Longer than the proxy uses a resolved address to open connections.
const ADDRESSES_LAST: Duration = Duration::from_millis(1_200);

/// Whether this machine allows a process its own `/etc/hosts`. CI must allow it.
fn names_can_be_given() -> bool {
    let allowed = std::process::Command::new("unshare")
        .args(["-m", "true"])
        .status()
        .is_ok_and(|status| status.success());
    assert!(
        allowed || std::env::var("CI").is_err(),
        "CI can give a process its own host names"
    );
    if !allowed {
        skipped("mount namespaces are not allowed here");
    }
    allowed
}

fn proxy_with_names(names: &Path) -> Command {
    let mut command = Command::new("unshare");
    let script = with_names(names, "exec \"$0\" \"$@\"");
    command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tokengauge")]);
    command
}

/// Shell commands that mount `file` over `/etc/hosts`.
fn with_names(file: &Path, then: &str) -> String {
    format!("mount --bind {} /etc/hosts && {then}", file.display())
}

/// Resolves the name in a process without the proxy, as an agent would.
async fn resolved(names: &Path) -> Option<String> {
    let script = with_names(names, "exec getent ahostsv4 engine.test");
    let mut command = Command::new("unshare");
    let output = command.args(["-m", "sh", "-c", &script]).output().await;
    let output = output.expect("getent runs");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().next().map(str::to_owned)
}

/// Returns the number of requests of each server once their sum is `count`. A server counts a request a moment after
/// its answer has left.
async fn received(servers: &[&Backend], count: usize) -> Vec<usize> {
    let mut found = vec![0; servers.len()];
    let end = Instant::now() + TIMEOUT;
    while found.iter().sum::<usize>() < count && Instant::now() < end {
        for (found, server) in found.iter_mut().zip(servers) {
            *found += server.received().len();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    found
}

/// The process has its own `/etc/hosts`.
#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_whose_name_changes_is_followed() {
    if !names_can_be_given() {
        return;
    }
    let first = Backend::start().await;
    let second = Backend::bind(([127, 0, 0, 2], first.address.port()).into()).await;
    first.set_script(&ordinary());
    second.set_script(&ordinary());
    let folder = tempfile::tempdir().expect("a folder");
    let names = folder.path().join("hosts");
    let resolves = |line: &str| std::fs::write(&names, format!("127.0.0.1 localhost\n{line}\n"));
    resolves("127.0.0.1 engine.test").expect("written");
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("http://engine.test:{}", first.address.port());
        setup.command = proxy_with_names(&names);
    });
    let fixture = fixture.await;
    let whole = |session: &'static str| {
        let script = request(session);
        let proxy = fixture.proxy();
        async move { ask(proxy, &script).await }
    };
    assert_eq!(resolved(&names).await.as_deref(), Some("127.0.0.1"));
    assert_eq!(whole("one").await.end, MessageEnd::Whole);
    assert_eq!(received(&[&first, &second], 1).await, [1, 0]);
    // After this time the proxy uses neither the kept connection nor the resolved address.
    tokio::time::sleep(ADDRESSES_LAST).await;
    resolves("").expect("written");
    assert_eq!(resolved(&names).await, None);
    let seen = whole("nowhere").await;
    assert_eq!(seen.what.as_deref(), Some("502"), "{seen:?}");
    let record = fixture.record("nowhere").await;
    assert!(
        recorded("unreachable", Some("upstream_dns"), None).is(&record),
        "{record}"
    );
    fixture.returns_to_idle("a name that is gone").await;
    resolves("127.0.0.2 engine.test").expect("written");
    assert_eq!(resolved(&names).await.as_deref(), Some("127.0.0.2"));
    assert_eq!(whole("two").await.end, MessageEnd::Whole);
    assert_eq!(received(&[&first, &second], 1).await, [0, 1]);
    fixture.returns_to_idle("a name that moved").await;
}

/// Servers at 127.0.0.1, 127.0.0.2 and so on, on one port, behind one name like a headless Service.
struct Service {
    servers: Vec<Backend>,
    port: u16,
    folder: tempfile::TempDir,
}

impl Service {
    async fn start(count: u8) -> Service {
        let first = Backend::start().await;
        let port = first.address.port();
        let mut servers = vec![first];
        for number in 2..=count {
            servers.push(Backend::bind(([127, 0, 0, number], port).into()).await);
        }
        servers
            .iter()
            .for_each(|server| server.set_script(&ordinary()));
        let folder = tempfile::tempdir().expect("a folder");
        Service {
            servers,
            port,
            folder,
        }
    }

    fn names(&self) -> std::path::PathBuf {
        self.folder.path().join("hosts")
    }

    /// Sets the last bytes of the addresses that the name resolves to.
    fn resolves(&self, last: &[u8]) {
        let lines = last
            .iter()
            .map(|last| format!("127.0.0.{last} engine.test\n"));
        let text: String = lines.collect();
        std::fs::write(self.names(), format!("127.0.0.1 localhost\n{text}")).expect("written");
    }

    /// A proxy in front of the service that keeps connections, unless agents ask to close them.
    async fn proxy(&self) -> ProxyFixture {
        let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
            setup.url = format!("http://engine.test:{}", self.port);
            setup.command = proxy_with_names(&self.names());
        });
        fixture.await
    }

    /// Makes `count` calls one after the other, and returns how many each server got.
    async fn calls(&self, fixture: &ProxyFixture, session: &str, count: usize) -> Vec<usize> {
        for _ in 0..count {
            let seen = ask(fixture.proxy(), &request(session)).await;
            assert_eq!(seen.end, MessageEnd::Whole, "{seen:?}");
        }
        received(&self.servers.iter().collect::<Vec<_>>(), count).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_behind_a_name_gets_its_share_as_long_as_it_is_there() {
    if !names_can_be_given() {
        return;
    }
    let service = Service::start(3).await;
    service.resolves(&[1, 2, 3]);
    let fixture = service.proxy().await;
    assert_eq!(service.calls(&fixture, "three", 30).await, [10, 10, 10]);
    service.resolves(&[1, 3]);
    tokio::time::sleep(ADDRESSES_LAST).await;
    assert_eq!(service.calls(&fixture, "two", 20).await, [10, 0, 10]);
    service.resolves(&[1, 2, 3]);
    tokio::time::sleep(ADDRESSES_LAST).await;
    // The first call opens a connection and discovers the new server.
    let again = service.calls(&fixture, "again", 31).await;
    assert!(again.iter().all(|calls| *calls >= 10), "{again:?}");
    fixture.returns_to_idle("three servers behind a name").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusing_server_of_a_name_is_skipped_and_no_call_fails() {
    if !names_can_be_given() {
        return;
    }
    let service = Service::start(2).await;
    service.resolves(&[1, 2, 9]);
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("http://engine.test:{}", service.port);
        setup.command = proxy_with_names(&service.names());
        setup.eject_for = "10s";
    });
    let fixture = fixture.await;
    assert_eq!(service.calls(&fixture, "refused", 20).await, [10, 10]);
    let refused = "cannot be connected to";
    let line = fixture.process.line(refused).await;
    assert!(line.contains("(127.0.0.9)"), "{line}");
    fixture.returns_to_idle("a dead address").await;
}

/// A new server gets calls even if all calls could use kept connections.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_joins_gets_its_share_though_no_connection_has_to_be_opened() {
    if !names_can_be_given() {
        return;
    }
    let service = Service::start(2).await;
    service.resolves(&[1]);
    let fixture = ProxyFixture::with_upstream(|setup: &mut Setup| {
        setup.url = format!("http://engine.test:{}", service.port);
        setup.command = proxy_with_names(&service.names());
        setup.idle_for = "30s";
    });
    let fixture = fixture.await;
    assert_eq!(service.calls(&fixture, "before", 5).await, [5, 0]);
    service.resolves(&[1, 2]);
    let end = std::time::Instant::now() + TIMEOUT;
    loop {
        let calls = service.calls(&fixture, "after", 2).await;
        if calls[1] > 0 {
            break;
        }
        assert!(std::time::Instant::now() < end, "never asked for again");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
