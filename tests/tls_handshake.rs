//! TLS on both sides of the proxy, without HTTP: our acceptor with our connector, over real sockets and with real
//! files.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_config::{ClientTls, Protocol, ServerTls};
use tokengauge_net::tls::{Acceptor, Connector, Invalid};
use tokengauge_test_support::certificates::{Authority, replace};
use tokengauge_test_support::skip::skipped;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

type Client = tokio_rustls::client::TlsStream<TcpStream>;
type Server = tokio_rustls::server::TlsStream<TcpStream>;

fn server_tls(authority: &Authority, name: &str, client_ca: Option<&Authority>) -> ServerTls {
    let (certificate, key) = authority.issue("server", name);
    ServerTls {
        certificate,
        key,
        client_ca: client_ca.map(|authority| authority.file.clone()),
    }
}

fn trusting(authority: &Authority) -> ClientTls {
    ClientTls {
        ca: Some(authority.file.clone()),
        ..ClientTls::default()
    }
}

/// One handshake over loopback, as each side saw it.
async fn handshake(
    acceptor: &Acceptor,
    connector: &Connector,
    host: &str,
) -> (io::Result<Server>, io::Result<Client>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let accept = async {
        let (tcp, _) = listener.accept().await.expect("a connection");
        acceptor.accept(tcp).await
    };
    let connect = async {
        let tcp = TcpStream::connect(address).await.expect("a connection");
        connector.connect(tcp, host).await
    };
    tokio::join!(accept, connect)
}

async fn connects(acceptor: &Acceptor, connector: &Connector, host: &str) -> Client {
    let (server, client) = handshake(acceptor, connector, host).await;
    let (mut server, mut client) = (server.expect("accepted"), client.expect("connected"));
    server.write_all(b"x").await.expect("written");
    server.flush().await.expect("flushed");
    assert_eq!(client.read_u8().await.expect("read"), b'x');
    client
}

async fn refused(acceptor: &Acceptor, connector: &Connector, host: &str) -> String {
    let (_, client) = handshake(acceptor, connector, host).await;
    client.expect_err("refused").to_string()
}

fn alpn(client: &Client) -> Option<&[u8]> {
    client.get_ref().1.alpn_protocol()
}

fn certificate(client: &Client) -> Vec<u8> {
    client
        .get_ref()
        .1
        .peer_certificates()
        .expect("a certificate")[0]
        .to_vec()
}

#[tokio::test]
async fn alpn_follows_the_protocol_towards_the_upstream() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&server_tls(&authority, "localhost", None)).expect("usable");
    let expected = [
        (Protocol::Auto, b"h2".as_slice()),
        (Protocol::Http1, b"http/1.1"),
        (Protocol::Http2, b"h2"),
    ];
    for (protocol, name) in expected {
        let connector = Connector::new(&trusting(&authority), protocol).expect("usable");
        let client = connects(&acceptor, &connector, "localhost").await;
        assert_eq!(alpn(&client), Some(name), "{protocol:?}");
    }
}

#[tokio::test]
async fn addresses_are_checked_as_addresses_with_brackets_or_without() {
    let authority = Authority::new();
    for (name, host) in [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("::1", "::1")] {
        let acceptor = Acceptor::new(&server_tls(&authority, name, None)).expect("usable");
        let connector = Connector::new(&trusting(&authority), Protocol::Auto).expect("usable");
        connects(&acceptor, &connector, host).await;
    }
}

#[tokio::test]
async fn an_upstream_that_cannot_be_trusted_is_refused_with_the_way_out() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let acceptor = Acceptor::new(&server_tls(&authority, "localhost", None)).expect("usable");

    let connector = Connector::new(&trusting(&stranger), Protocol::Auto).expect("usable");
    let said = refused(&acceptor, &connector, "localhost").await;
    assert!(said.contains("tls.ca"), "{said}");

    let connector = Connector::new(&trusting(&authority), Protocol::Auto).expect("usable");
    let said = refused(&acceptor, &connector, "elsewhere.example").await;
    assert!(
        said.contains("not for `elsewhere.example`") && said.contains("tls.server_name"),
        "{said}"
    );

    let (certificate, key) = authority.issue_expired("old", "localhost");
    let acceptor = Acceptor::new(&ServerTls {
        certificate,
        key,
        client_ca: None,
    })
    .expect("usable");
    let said = refused(&acceptor, &connector, "localhost").await;
    assert!(said.contains("expired"), "{said}");
}

#[tokio::test]
async fn the_system_roots_do_not_trust_our_authority() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&server_tls(&authority, "localhost", None)).expect("usable");
    let connector = match Connector::new(&ClientTls::default(), Protocol::Auto) {
        Err(Invalid::NoSystemRoots) => return skipped("this machine has no root certificates"),
        connector => connector.expect("usable"),
    };
    let said = refused(&acceptor, &connector, "localhost").await;
    assert!(said.contains("no trusted authority"), "{said}");
}

#[tokio::test]
async fn another_server_name_can_be_asked_for() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&server_tls(&authority, "engine.internal", None)).expect("usable");
    let tls = ClientTls {
        server_name: Some("engine.internal".to_owned()),
        ..trusting(&authority)
    };
    let connector = Connector::new(&tls, Protocol::Auto).expect("usable");
    connects(&acceptor, &connector, "127.0.0.1").await;
}

#[tokio::test]
async fn an_upstream_without_tls_has_a_separate_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let response = async {
        let (mut tcp, _) = listener.accept().await.expect("a connection");
        tcp.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .expect("written");
        tcp
    };
    let connector = Connector::new(&trusting(&Authority::new()), Protocol::Auto).expect("usable");
    let connect = async {
        connector
            .connect(
                TcpStream::connect(address).await.expect("a connection"),
                "localhost",
            )
            .await
    };
    let (_tcp, client) = tokio::join!(response, connect);
    let said = client.expect_err("refused").to_string();
    assert!(said.contains("does not speak TLS"), "{said}");
}

#[tokio::test]
async fn agents_without_the_right_certificate_are_refused() {
    let (authority, agents, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let acceptor =
        Acceptor::new(&server_tls(&authority, "localhost", Some(&agents))).expect("usable");
    let with = |identity| ClientTls {
        identity,
        ..trusting(&authority)
    };

    let known = Connector::new(&with(Some(agents.issue("agent", "agent"))), Protocol::Auto)
        .expect("usable");
    connects(&acceptor, &known, "localhost").await;

    for identity in [None, Some(strangers.issue("agent", "agent"))] {
        let connector = Connector::new(&with(identity), Protocol::Auto).expect("usable");
        let (server, _) = handshake(&acceptor, &connector, "localhost").await;
        server.expect_err("refused");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_for_new_connections_and_open_ones_continue() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&server_tls(&authority, "localhost", None)).expect("usable");
    let connector = Connector::new(&trusting(&authority), Protocol::Auto).expect("usable");

    let (server, client) = handshake(&acceptor, &connector, "localhost").await;
    let (mut server, mut client) = (server.expect("accepted"), client.expect("connected"));
    let old = certificate(&client);

    authority.issue("server", "localhost");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let new = connects(&acceptor, &connector, "localhost").await;
    assert_ne!(certificate(&new), old, "the new certificate is shown");

    server.write_all(b"still here").await.expect("written");
    server.flush().await.expect("flushed");
    let mut read = [0; 10];
    client.read_exact(&mut read).await.expect("read");
    assert_eq!(&read, b"still here");
}

#[tokio::test]
async fn renewed_trust_and_identity_towards_the_upstream_are_used() {
    let (authority, agents) = (Authority::new(), Authority::new());
    let acceptor =
        Acceptor::new(&server_tls(&authority, "localhost", Some(&agents))).expect("usable");
    let stranger = Authority::new();
    let tls = ClientTls {
        ca: Some(stranger.file.clone()),
        identity: Some(stranger.issue("agent", "agent")),
        server_name: None,
    };
    let connector = Connector::new(&tls, Protocol::Auto).expect("usable");
    refused(&acceptor, &connector, "localhost").await;

    copy(&authority.file, &stranger.file);
    let (certificate, key) = agents.issue("agent", "agent");
    let (to_certificate, to_key) = tls.identity.expect("given above");
    copy(&certificate, &to_certificate);
    copy(&key, &to_key);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    connects(&acceptor, &connector, "localhost").await;
}

#[tokio::test]
async fn files_that_became_unusable_change_nothing_until_they_are_usable_again() {
    let authority = Authority::new();
    let tls = server_tls(&authority, "localhost", None);
    let acceptor = Acceptor::new(&tls).expect("usable");
    let connector = Connector::new(&trusting(&authority), Protocol::Auto).expect("usable");
    let old = certificate(&connects(&acceptor, &connector, "localhost").await);

    replace(&tls.certificate, "half a certif");
    std::fs::remove_file(&tls.key).expect("removed");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    for _ in 0..2 {
        let client = connects(&acceptor, &connector, "localhost").await;
        assert_eq!(certificate(&client), old);
    }

    authority.issue("server", "localhost");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let client = connects(&acceptor, &connector, "localhost").await;
    assert_ne!(certificate(&client), old);
}

#[tokio::test]
async fn a_changed_file_is_looked_at_only_once_a_second() {
    let authority = Authority::new();
    let acceptor = Acceptor::new(&server_tls(&authority, "localhost", None)).expect("usable");
    let connector = Connector::new(&trusting(&authority), Protocol::Auto).expect("usable");
    authority.issue("server", "localhost");
    let first = certificate(&connects(&acceptor, &connector, "localhost").await);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let second = certificate(&connects(&acceptor, &connector, "localhost").await);
    assert_ne!(first, second);
}

#[test]
fn unusable_files_are_named_with_the_reason_and_without_their_content() {
    let (authority, other) = (Authority::new(), Authority::new());
    let tls = server_tls(&authority, "localhost", None);
    let at = |name: &str| authority.folder.path().join(name);
    let secret = "-----BEGIN PRIVATE KEY-----\nc2VjcmV0!!\n-----END PRIVATE KEY-----\n";
    replace(&at("secret"), secret);
    replace(&at("cut"), "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n");
    replace(
        &at("locked"),
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n",
    );
    replace(
        &at("junk"),
        "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n",
    );
    replace(&at("empty"), "");
    let (_, foreign_key) = other.issue("server", "localhost");

    let key = |key: &Path| ServerTls {
        key: key.to_owned(),
        ..tls.clone()
    };
    let certificate = |certificate: &Path| ServerTls {
        certificate: certificate.to_owned(),
        ..tls.clone()
    };
    let ca = |client_ca: &Path| ServerTls {
        client_ca: Some(client_ca.to_owned()),
        ..tls.clone()
    };
    let cases = [
        (key(&at("absent")), "absent: cannot be read: No such file"),
        (key(&at("secret")), "secret: a PEM section is not base64"),
        (key(&at("cut")), "cut: a PEM section has no END line"),
        (key(&at("locked")), "locked: contains no private key"),
        (key(&at("junk")), "junk: "),
        (
            key(&foreign_key),
            "the key does not belong to the certificate",
        ),
        (key(&tls.certificate), "server.pem: contains no private key"),
        (certificate(&at("empty")), "empty: contains no certificate"),
        (certificate(&tls.key), "server.key: contains no certificate"),
        (ca(&at("empty")), "empty: contains no certificate"),
    ];
    for (tls, expected) in cases {
        let said = Acceptor::new(&tls).expect_err("unusable").to_string();
        assert!(said.contains(expected), "{said:?} should say {expected:?}");
        assert!(
            !said.contains("c2Vj") && !said.contains("secret!"),
            "{said:?} quotes the file"
        );
    }
}

#[test]
fn a_server_name_that_is_none_is_refused() {
    let tls = ClientTls {
        server_name: Some("not a name".to_owned()),
        ..trusting(&Authority::new())
    };
    let refused = Connector::new(&tls, Protocol::Auto).expect_err("refused");
    assert!(matches!(refused, Invalid::ServerName { .. }), "{refused}");
}

#[tokio::test]
async fn many_connections_share_one_configuration() {
    let authority = Authority::new();
    let acceptor =
        Arc::new(Acceptor::new(&server_tls(&authority, "localhost", None)).expect("usable"));
    let connector =
        Arc::new(Connector::new(&trusting(&authority), Protocol::Auto).expect("usable"));
    let mut handshakes = tokio::task::JoinSet::new();
    for _ in 0..32 {
        let (acceptor, connector) = (Arc::clone(&acceptor), Arc::clone(&connector));
        handshakes.spawn(async move { connects(&acceptor, &connector, "localhost").await });
    }
    assert_eq!(handshakes.join_all().await.len(), 32);
}

fn copy(from: &Path, to: &Path) {
    replace(to, &std::fs::read_to_string(from).expect("read"));
}
