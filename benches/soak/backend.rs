//! The backends behind the proxy, which record every byte they send: the simulator, which
//! reports a ground truth, and a rogue backend that violates HTTP.

use crate::verify::SentCall;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_sim::{Profile, Seen, Setup, Simulator, Witness};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Bytes that the backends sent for each unverified call, by call id.
#[derive(Clone, Default)]
pub struct SentCalls(Arc<Mutex<HashMap<String, SentCall>>>);

impl SentCalls {
    pub fn with<T>(&self, id: &str, access: impl FnOnce(&mut SentCall) -> T) -> T {
        let mut calls = self.0.lock();
        access(calls.entry(id.to_owned()).or_default())
    }

    pub fn take(&self, id: &str) -> SentCall {
        let mut calls = self.0.lock();
        calls.remove(id).unwrap_or_default()
    }

    /// Ids of calls that reached a backend and were never verified.
    pub fn unclaimed(&self) -> Vec<String> {
        let calls = self.0.lock();
        let reached = calls.iter().filter(|(_, written)| written.begun > 0);
        reached.map(|(id, _)| id.clone()).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Backend {
    pub simulator: SocketAddr,
    pub rogue: SocketAddr,
    /// A port on which connections are refused.
    pub closed: SocketAddr,
}

/// Starts the backends. The recordings are in `bodies`.
pub async fn start(sent_calls: &SentCalls, bodies: &Path) -> anyhow::Result<Backend> {
    let simulated = sent_calls.clone();
    let witness = Witness::new(move |id, seen| {
        simulated.with(id, |written| match seen {
            Seen::Began => written.begun += 1,
            Seen::Body(bytes) => written.bytes.extend_from_slice(bytes),
            Seen::Ended(truth) => written.truths.push(truth.clone()),
        });
    });
    let simulator = Simulator::with(Setup {
        profile: Profile::default(),
        bodies: Some(bodies.to_owned()),
        print: false,
        witness: Some(witness),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let rogue = TcpListener::bind("127.0.0.1:0").await?;
    let closed = TcpSocket::new_v4()?;
    closed.bind(([127, 0, 0, 1], 0).into())?;
    let backend = Backend {
        simulator: listener.local_addr()?,
        rogue: rogue.local_addr()?,
        closed: closed.local_addr()?,
    };
    // The socket stays bound without listening, so that no other process can listen there.
    std::mem::forget(closed);
    tokio::spawn(simulator.serve(listener, std::future::pending()));
    let sent_calls = sent_calls.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = rogue.accept().await {
            tokio::spawn(misbehave(stream, sent_calls.clone()));
        }
    });
    Ok(backend)
}

struct RogueRequest {
    behaviour: String,
    id: String,
}

/// Answers requests until a behaviour ends the connection.
async fn misbehave(mut stream: TcpStream, sent_calls: SentCalls) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some(request) = read_request(&mut stream).await? {
        if request.behaviour == "metrics" {
            engine_metrics(&mut stream).await?;
            continue;
        }
        sent_calls.with(&request.id, |written| written.begun += 1);
        let body = |bytes: &[u8]| {
            sent_calls.with(&request.id, |written| {
                written.bytes.extend_from_slice(bytes)
            });
        };
        match request.behaviour.as_str() {
            "garbage" => return stream.write_all(b"\x16\x03 this is no HTTP\r\n\r\n").await,
            "hang-up" => return Ok(()),
            "short" => {
                let bytes = chat(20, true);
                body(&bytes);
                let head = head("text/event-stream", Some(bytes.len() + 500));
                stream.write_all(head.as_bytes()).await?;
                return stream.write_all(&bytes).await;
            }
            "interim" => {
                let bytes = chat(30, true);
                body(&bytes);
                for _ in 0..5 {
                    stream
                        .write_all(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n")
                        .await?;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                let head = head("text/event-stream", Some(bytes.len()));
                stream.write_all(head.as_bytes()).await?;
                stream.write_all(&bytes).await?;
            }
            "bare" => {
                stream
                    .write_all(head("text/event-stream", None).as_bytes())
                    .await?;
                for piece in chat(40, true).chunks(700) {
                    body(piece);
                    stream.write_all(piece).await?;
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
                return Ok(());
            }
            // "silent": until the proxy's timeout.
            _ => {
                let _ = stream.read(&mut [0; 64]).await;
                return Ok(());
            }
        }
    }
    Ok(())
}

fn head(content_type: &str, length: Option<usize>) -> String {
    let length = match length {
        Some(length) => format!("content-length: {length}"),
        None => "connection: close".to_owned(),
    };
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\n{length}\r\n\r\n")
}

/// Metrics as vLLM exposes them, which the proxy scrapes.
async fn engine_metrics(stream: &mut TcpStream) -> std::io::Result<()> {
    let text = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 3\n\
                # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} 1\n";
    let head = head("text/plain; version=0.0.4", Some(text.len()));
    stream.write_all(format!("{head}{text}").as_bytes()).await
}

/// Reads one request; `None` if the connection was closed between two requests.
async fn read_request(stream: &mut TcpStream) -> std::io::Result<Option<RogueRequest>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = memchr::memmem::find(&bytes, b"\r\n\r\n") {
            break at + 4;
        }
        let mut piece = [0; 4096];
        match stream.read(&mut piece).await? {
            0 => return Ok(None),
            read => bytes.extend_from_slice(&piece[..read]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let header = |name: &str| {
        let pairs = head.lines().filter_map(|line| line.split_once(':'));
        let mut found = pairs.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = header("content-length").map_or(0, |value| value.parse().unwrap_or(0));
    let mut rest = vec![0; (end + length).saturating_sub(bytes.len())];
    stream.read_exact(&mut rest).await?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    Ok(Some(RogueRequest {
        behaviour: path.split('/').nth(1).unwrap_or_default().to_owned(),
        id: header("x-sim-id").unwrap_or_default(),
    }))
}

fn chat(tokens: usize, terminated: bool) -> Vec<u8> {
    let mut text = String::new();
    for _ in 0..tokens {
        text += &delta(" the");
    }
    if terminated {
        text += "data: {\"id\":\"c\",\"model\":\"rogue\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    }
    text.into_bytes()
}

fn delta(text: &str) -> String {
    format!(
        "data: {{\"id\":\"c\",\"model\":\"rogue\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n"
    )
}

/// The tokens of a behaviour or recording by its name; `None` if they are not checked.
pub fn tokens_of(name: &str) -> Option<u64> {
    Some(match name {
        "short" => 20,
        "interim" => 30,
        "bare" => 40,
        "trickle" => 25,
        "giant-event" => 250_000,
        _ => return None,
    })
}

pub fn record(bodies: &Path) -> anyhow::Result<()> {
    let mut invalid = chat(10, false);
    invalid.extend(
        b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" \xff\xfe\xc3(\"}}]}\n\n",
    );
    invalid.extend(b"data: \xf0\x9f\n\n: \xff\n\n");
    invalid.extend(chat(10, true));
    let mut giant = delta(&" the".repeat(250_000)).into_bytes();
    giant.extend(chat(0, true));
    let gzip: Vec<u8> = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3]
        .into_iter()
        .chain((0..2000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8))
        .collect();
    for (name, bytes, encoding) in [
        ("invalid-text", invalid, "null"),
        ("giant-event", giant, "null"),
        ("trickle", chat(25, true), "null"),
        ("broken-gzip", gzip, "\"gzip\""),
    ] {
        let folder = bodies.join(name);
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("response.body"), bytes)?;
        let meta = format!(
            "{{\"status\":200,\"content_type\":\"text/event-stream\",\"content_encoding\":{encoding},\"framing\":\"sse\",\"stream\":true}}"
        );
        std::fs::write(folder.join("meta.json"), meta)?;
    }
    Ok(())
}
