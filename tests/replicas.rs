//! Warnings of the real binary about limits with several replicas, and listening on all addresses of a host.

use crate::process::Process;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use tokio::net::TcpStream;

const CONFIG: &str = r#"
listen = "*:0"
admin.listen = "127.0.0.1:0"
[[upstream]]
name = "u"
url = "http://127.0.0.1:9"
[[route]]
upstream = "u"
[[quota]]
name = "minutes"
requests_per_minute = 5
[[budget]]
name = "hard"
usd = 5.0
period = "1d"
block = true
[[notify]]
name = "oncall"
kind = "webhook"
url = "http://127.0.0.1:9/"
"#;
const SAID: [&str; 3] = [
    "quota minutes: each replica counts separately",
    "budget hard: each replica counts separately",
    "notify oncall: each replica evaluates only its own calls",
];

#[tokio::test]
async fn check_and_the_start_say_what_limits_mean_with_several_replicas() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("proxy.toml");
    std::fs::write(&config, CONFIG).expect("written");
    let mut check = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    let checked = check.args(["check", "--config"]).arg(&config).output();
    let checked = checked.expect("ran");
    assert!(checked.status.success());
    let printed = String::from_utf8_lossy(&checked.stdout);
    let process = Process::start(&config).await;
    for said in SAID {
        assert!(printed.contains(said), "{printed}");
        process.line(said).await;
    }
}

#[tokio::test]
async fn a_star_listens_on_all_addresses() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("proxy.toml");
    std::fs::write(&config, CONFIG).expect("written");
    let process = Process::start(&config).await;
    let port = process.addresses()[0].port();
    let ipv4 = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    TcpStream::connect(ipv4).await.expect("connected");
}
