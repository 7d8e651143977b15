//! OTLP receivers that use TLS and require a client certificate.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use std::path::PathBuf;
use std::sync::Arc;
use tokengauge_config::{Conventions, Measure};
use tokengauge_core::observer::End;
use tokengauge_test_support::TIMEOUT;
use tokengauge_test_support::certificates::Authority;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};
use tokengauge_test_support::otlp::{Receiver, exporters};

async fn receiver(authority: &Authority) -> Receiver {
    let (certificate, key) = authority.issue("receiver", "localhost");
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_file(&authority.file).expect("a certificate");
    roots.add(root).expect("a root");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(verifier.build().expect("a verifier"))
        .with_single_cert(
            vec![CertificateDer::from_pem_file(certificate).expect("a certificate")],
            PrivateKeyDer::from_pem_file(key).expect("a key"),
        )
        .expect("an identity");
    tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Receiver::start_tls(tls).await
}

/// The names of the spans of one call that arrived, and whether any were lost.
async fn spans(
    receiver: &Receiver,
    protocol: &str,
    files: &[(&'static str, PathBuf)],
) -> (Vec<String>, bool) {
    let url = format!("https://localhost:{}", receiver.address.port());
    let mut variables = vec![
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol.to_owned()),
        ("OTEL_METRICS_EXPORTER", "none".to_owned()),
    ];
    let files = files.iter();
    variables.extend(files.map(|(name, file)| (*name, file.display().to_string())));
    let (otlp, lost) = exporters(&variables, Conventions::Current);
    let bench = Bench::tracing(Measure::default(), otlp.subscribers(), otlp.tracer());
    let call = bench.chat();
    bench.chunk(&*call, 100, words(10));
    bench.chunk(&*call, 200, finish(Some(10)) + DONE);
    bench.end(&*call, 300, End::Complete);
    assert!(bench.meter.flush(TIMEOUT));
    let shutdown = tokio::task::spawn_blocking(move || otlp.shutdown(TIMEOUT));
    shutdown.await.expect("no panic");
    let names = receiver.spans().into_iter().map(|span| span.name).collect();
    let lost = !lost.lock().unwrap().is_empty();
    (names, lost)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_asks_for_a_certificate_gets_ours() {
    for protocol in ["http/protobuf", "grpc"] {
        let authority = Authority::new();
        let receiver = receiver(&authority).await;
        let (certificate, key) = authority.issue("exporter", "tokengauge");
        let trust = ("OTEL_EXPORTER_OTLP_CERTIFICATE", authority.file.clone());
        let ours = [
            trust.clone(),
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certificate),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", key),
        ];
        let (names, lost) = spans(&receiver, protocol, &[trust]).await;
        assert!(names.is_empty() && lost, "{protocol}: {names:?}");
        let (names, lost) = spans(&receiver, protocol, &ours).await;
        assert!(names.len() == 2 && !lost, "{protocol}: {names:?}");
    }
}
