//! Memory of 60 concurrent compressed request bodies that are small on the wire and that a limit must read, in a cgroup
//! of 256 MiB.

use super::cgroup::Cgroup;
use super::fixture::ProxyFixture;
use super::message;
use super::script::{Peer, Script};
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::wire::encode::encode;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

const CGROUP: u64 = 256 << 20;
const MEMORY: u64 = 32 << 20;
/// Memory in addition to `memory_bytes`.
const SLACK: u64 = 32 << 20;
const REQUESTS: usize = 60;

fn quota(per: &str) -> String {
    format!("[[quota]]\nname = \"q\"\nper = \"{per}\"\nrequests_per_minute = 100000\n")
}

/// A chat of 20 MB, mostly blanks: more than the largest window of Brotli.
fn blanks() -> Vec<u8> {
    let before = r#"{"model":"m-1","user":"u","messages":[{"role":"user","content":"Hi"}]"#;
    format!("{before}{}}}", " ".repeat(20 << 20)).into_bytes()
}

/// A chat whose model name has 3 MB, less than the decompression limit at any ratio.
fn long_name() -> Vec<u8> {
    let name = "x".repeat(3 << 20);
    format!(r#"{{"model":"{name}","user":"{name}","messages":[]}}"#).into_bytes()
}

/// Applies the encodings in order; Brotli uses the largest window.
fn encoded(codings: &str, body: Vec<u8>) -> Vec<u8> {
    let codings = codings.split(", ");
    codings.fold(body, |body, coding| match coding {
        "br" => encode("br-16MB", &body),
        coding => encode(coding, &body),
    })
}

async fn costs(per: &str, codings: &str, body: &[u8]) {
    let Some(cgroup) = Cgroup::limited(CGROUP) else {
        return;
    };
    let fixture = ProxyFixture::with(|setup| {
        setup.bounds = format!("memory_bytes = {MEMORY}\n");
        setup.route = quota(per);
        setup.command = cgroup.command(env!("CARGO_BIN_EXE_tokengauge"));
    })
    .await;
    let at_rest = fixture.resident();
    fixture.forget_peak();
    let mut request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: backend\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Encoding: {codings}\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    let mut agents = JoinSet::new();
    for _ in 0..REQUESTS {
        let tcp = TcpStream::connect(fixture.proxy())
            .await
            .expect("connected");
        let script = Script::default().send(&request);
        agents.spawn(async move {
            let mut peer = Peer::new(tcp);
            if peer.play(&script).await {
                peer.receive_all().await;
            }
            message::response(&peer.received, peer.gone).what
        });
    }
    let answers = timeout(2 * TIMEOUT, agents.join_all()).await;
    let answers = answers.expect("every request is answered");
    let answered = answers.iter().filter(|response| response.is_some()).count();
    let peak = fixture.peak().saturating_sub(at_rest);
    println!(
        "per {per}, {codings}: {REQUESTS} requests of {} bytes, {answered} answered, {} KB at the peak, {} KB in the cgroup",
        body.len(),
        peak >> 10,
        cgroup.peak() >> 10
    );
    assert_eq!(answered, REQUESTS, "{codings}: {answers:?}");
    assert!(peak <= MEMORY + SLACK, "{codings}: {} KB", peak >> 10);
    fixture.next_call_works().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_a_few_bytes_that_a_limit_reads() {
    for codings in ["br", "gzip", "zstd", "deflate", "br, br", "gzip, zstd"] {
        let body = encoded(codings, blanks());
        for per in ["model", "session"] {
            costs(per, codings, &body).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_megabytes_that_a_limit_reads() {
    for codings in ["br", "gzip, br"] {
        let body = encoded(codings, long_name());
        for per in ["model", "user"] {
            costs(per, codings, &body).await;
        }
    }
}
