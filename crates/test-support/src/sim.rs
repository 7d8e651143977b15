//! A simulator on a free port, and a real client for it.
pub mod realtime;

use crate::TIMEOUT;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokengauge_sim::{Profile, Simulator, Truth};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

pub struct Sim {
    pub address: SocketAddr,
    pub simulator: Arc<Simulator>,
    _stop: oneshot::Sender<()>,
}

#[derive(Debug)]
pub struct SimResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub chunks: Vec<(Instant, Bytes)>,
    pub error: Option<hyper::Error>,
}

impl SimResponse {
    pub fn body(&self) -> Vec<u8> {
        self.chunks
            .iter()
            .flat_map(|(_, bytes)| bytes.to_vec())
            .collect()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body()).expect("text")
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).expect("JSON")
    }

    /// The JSON of every `data:` line except `[DONE]`.
    pub fn events(&self) -> Vec<Value> {
        let text = self.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        data.filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).expect(data))
            .collect()
    }
}

pub async fn start(settings: &str) -> Sim {
    serve(simulator(settings)).await
}

pub fn start_on(listener: TcpListener, settings: &str) -> Sim {
    serve_on(listener, simulator(settings))
}

fn simulator(settings: &str) -> Arc<Simulator> {
    Simulator::new(settings.parse::<Profile>().expect(settings))
}

pub async fn serve(simulator: Arc<Simulator>) -> Sim {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    serve_on(listener, simulator)
}

pub fn serve_on(listener: TcpListener, simulator: Arc<Simulator>) -> Sim {
    let address = listener.local_addr().expect("bound");
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async move { drop(stopped.await) };
    tokio::spawn(Arc::clone(&simulator).serve(listener, stopped));
    Sim {
        address,
        simulator,
        _stop: stop,
    }
}

pub fn post(path: &str, settings: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::builder()
        .method(Method::POST)
        .uri(path)
        .header("host", "simulator")
        .header("content-type", "application/json")
        .header("x-sim", settings)
        .header("x-sim-id", "one")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request")
}

pub fn get(path: &str) -> Request<Full<Bytes>> {
    let request = Request::get(path).header("host", "simulator");
    request.body(Full::default()).expect("a request")
}

impl Sim {
    pub async fn send(&self, request: Request<Full<Bytes>>) -> SimResponse {
        let stream = TcpStream::connect(self.address).await.expect("listening");
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .expect("HTTP/1.1");
        tokio::spawn(connection);
        read(sender.send_request(request).await.expect("a response head")).await
    }

    pub async fn send_h2(&self, mut request: Request<Full<Bytes>>) -> SimResponse {
        let stream = TcpStream::connect(self.address).await.expect("listening");
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .expect("HTTP/2");
        tokio::spawn(connection);
        let path = request.uri().path_and_query().expect("a path").as_str();
        *request.uri_mut() = format!("http://{}{path}", self.address)
            .parse()
            .expect("a URI");
        request.headers_mut().remove("host");
        read(sender.send_request(request).await.expect("a response head")).await
    }

    pub async fn post(&self, path: &str, settings: &str, body: Value) -> SimResponse {
        self.send(post(path, settings, &body)).await
    }

    /// The ground truth of the call with this response, after it has been written.
    pub async fn truth_of(&self, response: &SimResponse) -> Truth {
        let bytes = response.body().len() as u64;
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end {
            let newest = self.simulator.truths().first().cloned();
            if let Some(truth) =
                newest.filter(|truth| truth.bytes == bytes && self.simulator.in_flight() == 0)
            {
                return Truth::clone(&truth);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the simulator did not report the truth of a call with {bytes} bytes in time");
    }

    /// The ground truth of the newest call, after it has been written.
    pub async fn truth(&self) -> Arc<Truth> {
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end {
            if let Some(truth) = self.simulator.truths().first() {
                return Arc::clone(truth);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the simulator did not report the truth of the call in time");
    }
}

async fn read(response: http::Response<hyper::body::Incoming>) -> SimResponse {
    let (head, mut body) = response.into_parts();
    let mut received = SimResponse {
        status: head.status,
        headers: head.headers,
        chunks: Vec::new(),
        error: None,
    };
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => {
                if let Ok(bytes) = frame.into_data() {
                    received.chunks.push((Instant::now(), bytes));
                }
            }
            Err(error) => {
                received.error = Some(error);
                break;
            }
        }
    }
    received
}
