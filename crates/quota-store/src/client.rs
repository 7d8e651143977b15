//! The connection to the quota store, over which scripts run in batches. After any failure, a new connection is opened.

use crate::bounded_stream::{BoundedStream, ReadAllowance};
use crate::settings::{Password, Settings};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, RedisConnectionInfo, RedisError, Value};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokengauge_net::tls::{Connector, Invalid};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// A limit per minute.
    Rate,
    /// A limit on concurrent calls.
    Slots,
    Spending,
    /// Which process sends an alert.
    Claim,
    Sent,
}

impl Script {
    const ALL: [Script; 5] = [
        Script::Rate,
        Script::Slots,
        Script::Spending,
        Script::Claim,
        Script::Sent,
    ];

    fn source(self) -> &'static str {
        match self {
            Script::Rate => include_str!("scripts/rate.lua"),
            Script::Slots => include_str!("scripts/slots.lua"),
            Script::Spending => include_str!("scripts/spending.lua"),
            Script::Claim => include_str!("scripts/claim.lua"),
            Script::Sent => include_str!("scripts/sent.lua"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Invocation {
    pub(crate) script: Script,
    pub(crate) key: String,
    pub(crate) arguments: Vec<String>,
}

/// Why the quota store did not answer. The texts contain no secrets.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("password_file {}: {error}", .file.display())]
    Password { file: PathBuf, error: io::Error },
    /// The connection or its TLS handshake failed.
    #[error("cannot be reached: {0}")]
    Connect(io::Error),
    #[error("no answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// The quota store returned an error, or the connection was lost.
    #[error("{0}")]
    QuotaStore(#[from] RedisError),
    /// A script returned a value of the wrong type.
    #[error(
        "returned {0}, which no script does; another program may write to the keys of the quota store"
    )]
    Response(&'static str),
}

#[derive(Debug)]
pub(crate) struct Client {
    settings: Arc<Settings>,
    tls: Option<Connector>,
    connection: Mutex<Option<Connection>>,
}

struct Connection {
    redis: MultiplexedConnection,
    allowance: ReadAllowance,
    digests: Vec<String>,
    /// The task that drives the connection. Dropping the task ends the connection.
    _driver: JoinSet<()>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Connection")
    }
}

impl Client {
    /// Creates a client that is not connected yet.
    ///
    /// # Errors
    /// Returns an error if a TLS file cannot be used.
    pub(crate) fn new(settings: &Arc<Settings>) -> Result<Client, Invalid> {
        let tls = settings.address.tls;
        let tls = tls.then(|| Connector::without_alpn(&settings.tls));
        Ok(Client {
            settings: Arc::clone(settings),
            tls: tls.transpose()?,
            connection: Mutex::default(),
        })
    }

    /// Runs scripts in order and returns their responses in the same order. Without scripts, it sends a ping. Takes at
    /// most two timeouts.
    ///
    /// # Errors
    /// Returns an error if a script gets no response. Other scripts of the batch may have run.
    pub(crate) async fn run(&self, scripts: &[Invocation]) -> Result<Vec<Value>, ClientError> {
        let mut kept = self.connection.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => self.in_time(self.connect()).await?,
        };
        let answers = self.in_time(connection.run(scripts)).await?;
        *kept = Some(connection);
        Ok(answers)
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let timeout = self.settings.timeout;
        let done = tokio::time::timeout(timeout, work).await;
        done.unwrap_or(Err(ClientError::Timeout(timeout)))
    }

    async fn connect(&self) -> Result<Connection, ClientError> {
        let address = &self.settings.address;
        let password = self.password()?;
        let tcp = TcpStream::connect((address.host.as_str(), address.port));
        let tcp = tcp.await.map_err(ClientError::Connect)?;
        let _ = tcp.set_nodelay(true);
        match &self.tls {
            None => self.greet(tcp, password).await,
            Some(tls) => {
                let stream = tls.connect(tcp, &address.host).await;
                self.greet(stream.map_err(ClientError::Connect)?, password)
                    .await
            }
        }
    }

    fn password(&self) -> Result<Option<String>, ClientError> {
        match &self.settings.password {
            Password::Variable(name) => Ok(std::env::var(name).ok()),
            Password::File(file) => {
                let text =
                    std::fs::read_to_string(file).map_err(|error| ClientError::Password {
                        file: file.clone(),
                        error,
                    })?;
                Ok(Some(text.trim().to_owned()))
            }
        }
    }

    /// Authenticates, selects the database and loads the scripts.
    async fn greet<S>(&self, stream: S, password: Option<String>) -> Result<Connection, ClientError>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let address = &self.settings.address;
        let mut about = RedisConnectionInfo::default()
            .set_db(address.database)
            .set_skip_set_lib_name();
        if let Some(user) = &address.user {
            about = about.set_username(user);
        }
        if let Some(password) = password {
            about = about.set_password(password);
        }
        // The caller applies its own timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let allowance = ReadAllowance::default();
        let stream = BoundedStream {
            stream,
            allowance: allowance.clone(),
        };
        let made = MultiplexedConnection::new_with_config(&about, stream, config).await;
        let (mut redis, drive) = made?;
        let mut driver = JoinSet::new();
        driver.spawn(drive);
        let mut load = redis::pipe();
        for script in Script::ALL {
            load.cmd("SCRIPT").arg("LOAD").arg(script.source());
        }
        Ok(Connection {
            digests: load.query_async(&mut redis).await?,
            redis,
            allowance,
            _driver: driver,
        })
    }
}

impl Connection {
    async fn run(&mut self, scripts: &[Invocation]) -> Result<Vec<Value>, ClientError> {
        self.allowance.renew();
        if scripts.is_empty() {
            let _: Value = redis::cmd("PING").query_async(&mut self.redis).await?;
            return Ok(Vec::new());
        }
        let mut batch = redis::pipe();
        for run in scripts {
            let digest = &self.digests[run.script as usize];
            let command = batch.cmd("EVALSHA").arg(digest).arg(1).arg(&run.key);
            command.arg(&run.arguments);
        }
        Ok(batch.query_async(&mut self.redis).await?)
    }
}

pub(crate) fn numbers<const N: usize>(response: &Value) -> Result<[i64; N], ClientError> {
    let Value::Array(items) = response else {
        return Err(ClientError::Response("no list"));
    };
    let numbers = items
        .iter()
        .map(|item| match item {
            Value::Int(number) => Some(*number),
            _ => None,
        })
        .collect::<Option<Vec<i64>>>()
        .and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or(ClientError::Response("values that are not numbers"))
}

/// Parses a whole number that a script returns as text.
pub(crate) fn text_number(response: &Value) -> Result<u64, ClientError> {
    let Value::BulkString(text) = response else {
        return Err(ClientError::Response("no text"));
    };
    let text = std::str::from_utf8(text).ok();
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or(ClientError::Response("no number"))
}
