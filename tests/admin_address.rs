//! The paths of the admin API are answered only at the admin address.

use crate::process::Process;
use std::net::SocketAddr;
use tokengauge_test_support::http_client::fetch;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const PATHS: [&str; 10] = [
    "/",
    "/metrics",
    "/livez",
    "/readyz",
    "/api/v1/calls",
    "/api/v1/streams",
    "/api/v1/sessions",
    "/api/v1/events",
    "/api/v1/openapi.json",
    "/page/page.js",
];

/// An upstream that answers every request with a fixed word.
async fn upstream() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = tcp.read(&mut [0; 4096]).await;
                let response =
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 8\r\n\r\nupstream";
                let _ = tcp.write_all(response.as_bytes()).await;
            });
        }
    });
    address
}

async fn proxy(path: &str) -> (Process, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    let upstream = upstream().await;
    let text = format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n[[upstream]]\nname = \"u\"\n\
         url = \"http://{upstream}\"\n[[route]]\n{path}upstream = \"u\"\n"
    );
    std::fs::write(&file, text).expect("written");
    (Process::start(&file).await, folder)
}

#[tokio::test]
async fn the_traffic_address_has_no_admin_paths() {
    let (process, _folder) = proxy("").await;
    let traffic = process.addresses()[0];
    for path in PATHS {
        let response = fetch(traffic, path).await;
        assert_eq!(
            (response.status, response.body.as_str()),
            (200, "upstream"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_path_without_a_route_is_not_answered_by_the_admin_api() {
    let (process, _folder) = proxy("path = \"/open\"\n").await;
    let traffic = process.addresses()[0];
    for path in PATHS {
        let response = fetch(traffic, path).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(
            !response.body.contains("tokengauge_"),
            "{path}: {}",
            response.body
        );
    }
    assert_eq!(fetch(process.admin, "/livez").await.status, 200);
}

async fn refused(command: &[&str], address: SocketAddr) -> String {
    let mut client = tokio::process::Command::new(env!("CARGO_BIN_EXE_tokengauge"));
    client.args(command).args(["--admin", &address.to_string()]);
    let output = client.output().await.expect("it runs");
    assert!(!output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stderr).expect("UTF-8")
}

const CLIENTS: [&[&str]; 6] = [
    &["slo", "status"],
    &["report"],
    &["report", "session", "s"],
    &["gate", "g"],
    &["experiment", "e"],
    &["annotate", "note"],
];

#[tokio::test]
async fn a_client_at_the_address_of_traffic_says_so() {
    let (process, _folder) = proxy("path = \"/u\"\n").await;
    let traffic = process.addresses()[0];
    for command in CLIENTS {
        let error = refused(command, traffic).await;
        let expected = format!("http://{traffic} is the traffic address of a tokengauge proxy");
        assert!(error.contains(&expected), "{command:?}: {error}");
        assert!(error.contains("admin on ADDRESS"), "{command:?}: {error}");
    }
}

#[tokio::test]
async fn a_client_reports_that_an_upstream_is_not_an_admin_address() {
    let (process, _folder) = proxy("").await;
    for command in CLIENTS {
        let error = refused(command, process.addresses()[0]).await;
        let expected = "This is not the admin address of a tokengauge proxy";
        assert!(error.contains(expected), "{command:?}: {error}");
    }
    let error = refused(&["experiment", "unknown"], process.admin).await;
    assert!(!error.contains("not the admin address"), "{error}");
}

#[tokio::test]
async fn a_client_at_the_address_of_traffic_names_the_admin_address() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("proxy.toml");
    let upstream = upstream().await;
    // The test uses its own loopback address, because the port is the default one.
    let text = format!(
        "listen = \"127.0.9.46:0\"\n[admin]\nlisten = \"127.0.9.46:9464\"\n[[upstream]]\nname = \"u\"\n\
         url = \"http://{upstream}\"\n[[route]]\nupstream = \"u\"\n"
    );
    std::fs::write(&file, text).expect("written");
    let process = Process::start(&file).await;
    let traffic = process.addresses()[0];
    for command in CLIENTS {
        let error = refused(command, traffic).await;
        let expected = format!(
            "tokengauge: http://{traffic} is the traffic address of a tokengauge proxy; its admin address is \
             127.0.9.46:9464; use --admin 127.0.9.46:9464\n"
        );
        assert_eq!(error, expected, "{command:?}");
    }
}
