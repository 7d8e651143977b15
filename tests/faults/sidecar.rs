//! An injected sidecar under its default memory limit, without `memory_bytes` in its configuration.

use super::cgroup::Cgroup;
use super::fixture::ProxyFixture;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokengauge_test_support::TIMEOUT;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The memory limit in `inject::Settings::default().resources`, in bytes.
const LIMIT: u64 = 384 << 20;
/// Resident memory that may remain after the load, in addition to the memory before it.
const LEFT: u64 = 32 << 20;

/// Reads each request to its end, begins an answer, and never ends it.
async fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(answer(tcp));
        }
    });
    address
}

async fn answer(mut tcp: TcpStream) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match tcp.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let head = String::from_utf8(head).expect("text").to_lowercase();
    let length = head.split("content-length: ").nth(1).expect("a length");
    let length: u64 = length
        .split("\r\n")
        .next()
        .and_then(|text| text.parse().ok())
        .expect("a number");
    let mut body = (&mut tcp).take(length);
    tokio::io::copy(&mut body, &mut tokio::io::sink())
        .await
        .expect("read");
    let stream = format!(
        "{}{}",
        super::fixture::STREAM,
        "f\r\ndata: {\"x\":1}\n\n\r\n"
    );
    let _ = tcp.write_all(stream.as_bytes()).await;
    let _ = tcp.read_u8().await;
}

fn question(bytes: usize) -> Vec<u8> {
    let before = "{\"model\":\"m-1\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":[\
                  {\"type\":\"text\",\"text\":\"What is this?\"},{\"type\":\"image_url\",\
                  \"image_url\":{\"url\":\"data:image/png;base64,";
    let behind = "\"}}]}]}";
    let image = "iVBORw0KGgo".repeat((bytes - before.len() - behind.len()) / 11);
    let body = [before, &image, behind].concat();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head, body].concat().into_bytes()
}

async fn survives(agents: usize, bytes: usize, route: &str) {
    let Some(cgroup) = Cgroup::limited(LIMIT) else {
        return;
    };
    let address = backend().await;
    let fixture = ProxyFixture::with_upstream(|setup| {
        setup.url = format!("http://{address}");
        setup.bounds = String::new();
        setup.route = route.to_owned();
        setup.command = cgroup.command(env!("CARGO_BIN_EXE_tokengauge"));
    })
    .await;
    let at_rest = fixture.resident();
    let question = std::sync::Arc::new(question(bytes));
    let mut unread = 0;
    for round in 0..2 {
        let mut asked = Vec::new();
        for _ in 0..agents {
            let mut tcp = TcpStream::connect(fixture.proxy())
                .await
                .expect("connected");
            let question = std::sync::Arc::clone(&question);
            asked.push(tokio::spawn(async move {
                tcp.write_all(&question).await.expect("it lives");
                let mut begun = [0; 12];
                tcp.read_exact(&mut begun).await.expect("it lives");
                assert_eq!(&begun, b"HTTP/1.1 200");
                tcp
            }));
        }
        let mut open = Vec::new();
        for agent in asked {
            open.push(
                tokio::time::timeout(2 * TIMEOUT, agent)
                    .await
                    .expect("in time")
                    .expect("answered"),
            );
        }
        let held = fixture.metric("tokengauge_meter_queue_bytes").await as u64;
        let most = LIMIT / 4 + (tokengauge_wire::COPIES * bytes) as u64;
        assert!(held <= most, "{held} bytes held, {most} allowed");
        println!(
            "round {round}: {agents} requests of {} KB open: {} KB resident, {} KB in the cgroup at most, {} KB held",
            bytes >> 10,
            fixture.resident() >> 10,
            cgroup.peak() >> 10,
            held >> 10,
        );
        if route == BY_MODEL {
            // Copies of open calls that measuring holds do not prevent later calls from being read.
            let all_unread = fixture.metric(UNREAD).await as usize;
            let of_round = all_unread - unread;
            assert!(of_round <= agents / 4, "{of_round} were not read");
            unread = all_unread;
        }
        assert!(cgroup.peak() < LIMIT / 10 * 9, "{} bytes", cgroup.peak());
        drop(open);
        fixture.returns_to_idle("a load of questions").await;
    }
    let end = Instant::now() + Duration::from_secs(10);
    while fixture.resident() > at_rest + LEFT {
        assert!(
            Instant::now() < end,
            "{} KB of {} KB",
            fixture.resident() >> 10,
            at_rest >> 10
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(fixture);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_24_questions_of_8_megabytes_at_once() {
    survives(24, 8 << 20, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_200_questions_of_a_megabyte_at_once() {
    survives(200, 1 << 20, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_200_questions_of_a_megabyte_that_it_rewrites() {
    survives(200, 1 << 20, "inject_usage = true\n").await;
}

/// Reads every body. All calls whose bodies cannot be held count as one caller and are admitted.
const BY_MODEL: &str = "[[quota]]\nname = \"q\"\nper = \"model\"\nrequests_per_minute = 100000\n";

const UNREAD: &str = "tokengauge_quota_shared_total{quota=\"q\",reason=\"unreadable_body\"}";

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_24_questions_of_8_megabytes_that_a_quota_reads() {
    survives(24, 8 << 20, BY_MODEL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_200_questions_of_a_megabyte_that_a_quota_reads() {
    survives(200, 1 << 20, BY_MODEL).await;
}

#[test]
fn the_limit_is_the_one_that_injection_gives() {
    let resources = tokengauge_inject::Settings::default().resources;
    let limit = format!("{}Mi", LIMIT >> 20);
    assert_eq!(resources["limits"]["memory"], limit);
}
