//! `gate --prometheus` with a Prometheus that requires authentication: credentials come from files or the environment
//! and appear in no message.

use std::net::SocketAddr;
use tempfile::TempDir;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::connection::RawConnection;
use tokio::net::TcpListener;
use tokio::process::Command;

const SECRET: &str = "a-secret-that-nobody-reads";
/// `grafana:a-secret-that-nobody-reads`.
const BASIC: &str = "Basic Z3JhZmFuYTphLXNlY3JldC10aGF0LW5vYm9keS1yZWFkcw==";

/// A Prometheus with a passing gate, for clients that send this header.
async fn prometheus(authorization: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let mut peer = RawConnection::new(tcp);
            let Some(head) = peer.next_head().await else {
                continue;
            };
            let shown = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("authorization").then_some(value)
            });
            let (status, body) = if shown == Some(authorization) {
                (
                    "200 OK",
                    "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{},\"value\":[1,\"1\"]}]}}",
                )
            } else {
                ("401 Unauthorized", "Unauthorized")
            };
            peer.write(format!(
                "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            ))
            .await;
        }
    });
    address
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("secret"), format!("{SECRET}\n")).expect("written");
        std::fs::write(folder.path().join("empty"), "\n").expect("written");
        std::fs::write(
            folder.path().join("two-lines"),
            format!("{SECRET}\n{SECRET}\n"),
        )
        .expect("written");
        Folder(folder)
    }

    /// The exit code and everything that was written.
    async fn gate(
        &self,
        url: &str,
        more: &[&str],
        variables: &[(&str, &str)],
    ) -> (Option<i32>, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tokengauge"));
        command
            .args(["gate", "rollout", "--prometheus", url])
            .args(more);
        command
            .env_remove("TOKENGAUGE_PROMETHEUS_TOKEN")
            .env_remove("TOKENGAUGE_PROMETHEUS_PASSWORD");
        command
            .envs(variables.iter().copied())
            .env("TOKENGAUGE_LOG", "debug")
            .current_dir(self.0.path());
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = output.expect("in time").expect("it runs");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        assert!(!text.contains(SECRET), "{text}");
        assert!(!text.contains(BASIC), "{text}");
        (output.status.code(), text)
    }
}

const TOKEN: (&str, &str) = ("TOKENGAUGE_PROMETHEUS_TOKEN", SECRET);
const PASSWORD: (&str, &str) = ("TOKENGAUGE_PROMETHEUS_PASSWORD", SECRET);

#[tokio::test(flavor = "multi_thread")]
async fn credentials_come_from_files_and_the_environment() {
    let folder = Folder::new();
    let bearer = format!(
        "http://{}",
        prometheus("Bearer a-secret-that-nobody-reads").await
    );
    let basic = format!("http://{}/", prometheus(BASIC).await);
    for (url, more, variables) in [
        (&bearer, vec!["--prometheus-token-file", "secret"], vec![]),
        (&bearer, vec![], vec![TOKEN]),
        (
            &bearer,
            vec!["--prometheus-token-file", "secret"],
            vec![("TOKENGAUGE_PROMETHEUS_TOKEN", "another")],
        ),
        (
            &basic,
            vec![
                "--prometheus-user",
                "grafana",
                "--prometheus-password-file",
                "secret",
            ],
            vec![],
        ),
        (
            &basic,
            vec!["--prometheus-user", "grafana"],
            vec![PASSWORD, TOKEN],
        ),
    ] {
        let (code, said) = folder.gate(url, &more, &variables).await;
        assert_eq!(code, Some(0), "{more:?}: {said}");
        assert!(
            said.contains("gate rollout: pass: every proxy reports this verdict"),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_credentials_do_not_show_them() {
    let folder = Folder::new();
    let bearer = format!(
        "http://{}",
        prometheus("Bearer a-secret-that-nobody-reads").await
    );
    let in_url = format!("http://grafana:{SECRET}@127.0.0.1:9/");
    let user = ["--prometheus-user", "grafana"];
    for (url, more, variables, expected) in [
        (
            &bearer,
            vec![],
            vec![],
            "answered 401: the credentials are missing or wrong; set them with --prometheus-token-file",
        ),
        (&bearer, user.to_vec(), vec![PASSWORD], "answered 401"),
        (
            &bearer,
            user.to_vec(),
            vec![TOKEN],
            "there is no password; name a file with --prometheus-password-file",
        ),
        (
            &bearer,
            vec!["--prometheus-user", "a:b"],
            vec![PASSWORD],
            "must not contain a colon",
        ),
        (
            &bearer,
            vec!["--prometheus-token-file", "empty"],
            vec![TOKEN],
            "empty is empty",
        ),
        (
            &bearer,
            vec!["--prometheus-token-file", "none"],
            vec![TOKEN],
            "none: No such file",
        ),
        (
            &bearer,
            vec!["--prometheus-token-file", "two-lines"],
            vec![],
            "contain characters that are not allowed in a header",
        ),
        (
            &in_url,
            vec![],
            vec![],
            "--prometheus: the URL contains a user or a password",
        ),
    ] {
        let (code, said) = folder.gate(url, &more, &variables).await;
        assert_eq!(code, Some(1), "{more:?}: {said}");
        assert!(said.contains(expected), "{more:?}: {said}");
    }
    let both = [
        "--prometheus-token-file",
        "secret",
        "--prometheus-user",
        "grafana",
    ];
    let (code, said) = folder.gate(&bearer, &both, &[]).await;
    assert_eq!(code, Some(2), "{said}");
}
