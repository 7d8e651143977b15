//! Who is behind the proxy, and remembers every byte of it: the simulator, whose truth
//! is known, and a rogue that does what no HTTP server would.

use crate::judge::Written;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokengauge::sim::{Profile, Seen, Setup, Simulator, Witness};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// What was written for each call that is not settled.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<HashMap<String, Written>>>);

impl Book {
    /// Looks at what was written for a call, or changes it.
    pub fn with<T>(&self, id: &str, look: impl FnOnce(&mut Written) -> T) -> T {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        look(calls.entry(id.to_owned()).or_default())
    }

    /// Takes a call out.
    pub fn take(&self, id: &str) -> Written {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        calls.remove(id).unwrap_or_default()
    }

    /// Calls that reached the backend and that nobody asked about.
    pub fn unclaimed(&self) -> Vec<String> {
        let calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = calls.iter().filter(|(_, written)| written.begun > 0);
        reached.map(|(id, _)| id.clone()).collect()
    }
}

/// Where the parts of the backend listen.
#[derive(Clone, Copy, Debug)]
pub struct Backend {
    pub simulator: SocketAddr,
    pub rogue: SocketAddr,
    /// Nobody listens there.
    pub nobody: SocketAddr,
}

/// Starts the backend. The recordings are in `bodies`.
pub async fn start(book: &Book, bodies: &Path) -> anyhow::Result<Backend> {
    let book_of_simulator = book.clone();
    let witness = Witness::new(move |id, seen| {
        book_of_simulator.with(id, |written| match seen {
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
    let nobody = TcpSocket::new_v4()?;
    nobody.bind(([127, 0, 0, 1], 0).into())?;
    let backend = Backend {
        simulator: listener.local_addr()?,
        rogue: rogue.local_addr()?,
        nobody: nobody.local_addr()?,
    };
    // Bound and never listening: nobody else can come to listen there.
    std::mem::forget(nobody);
    tokio::spawn(simulator.serve(listener, std::future::pending()));
    let book = book.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = rogue.accept().await {
            tokio::spawn(misbehave(stream, book.clone()));
        }
    });
    Ok(backend)
}

/// A request as the rogue reads it: which behaviour, and whose call.
struct Asked {
    behaviour: String,
    id: String,
}

/// Answers requests until a behaviour ends the connection.
async fn misbehave(mut stream: TcpStream, book: Book) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    while let Some(asked) = asked(&mut stream).await? {
        if asked.behaviour == "metrics" {
            engine_metrics(&mut stream).await?;
            continue;
        }
        book.with(&asked.id, |written| written.begun += 1);
        let body = |bytes: &[u8]| {
            book.with(&asked.id, |written| written.bytes.extend_from_slice(bytes));
        };
        match asked.behaviour.as_str() {
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
            // "silent": until the proxy has lost patience.
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

/// What vLLM says of itself, for the proxy's own look at its upstreams.
async fn engine_metrics(stream: &mut TcpStream) -> std::io::Result<()> {
    let text = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 3\n\
                # TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} 1\n";
    let head = head("text/plain; version=0.0.4", Some(text.len()));
    stream.write_all(format!("{head}{text}").as_bytes()).await
}

/// Reads one request whole; none where the connection was closed between two.
async fn asked(stream: &mut TcpStream) -> std::io::Result<Option<Asked>> {
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
    Ok(Some(Asked {
        behaviour: path.split('/').nth(1).unwrap_or_default().to_owned(),
        id: header("x-sim-id").unwrap_or_default(),
    }))
}

/// A chat of so many tokens: ` the` is one, beside any other.
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

/// Tokens of the behaviours and recordings that have any, by name.
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

/// Writes the recordings that the simulator serves.
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
