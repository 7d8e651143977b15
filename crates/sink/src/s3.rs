//! Writes to S3: a batch is one Parquet file for each hour in which its calls began.

use crate::http_service::Connector;
use crate::s3_credentials::{CredentialSource, KeyFiles, ToldApart};
use crate::s3_error::Said;
use crate::settings::S3Settings;
use crate::sink::{Row, SendError, SendErrorKind, Sink};
use crate::table::{Origin, fields, id, started_ms};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::SystemTime;
use tokengauge_store::columns::Value;
use tokengauge_store::parquet_table::{Table, texts};
use tokengauge_store::warehouse::instant;

const HOUR: i64 = 3_600_000;
/// Number of hours whose calls a replay remembers. Calls are sorted by their end, so hours overlap.
const KNOWN_HOURS: usize = 4;

#[derive(Debug)]
pub struct S3 {
    bucket: AmazonS3,
    prefix: String,
    address: String,
    credentials: CredentialSource,
    origin: Vec<Value>,
    /// Ids of the calls that the files of each hour contain, for the hours that were last queried.
    known: Mutex<BTreeMap<i64, Arc<HashSet<String>>>>,
}

impl S3 {
    /// A client for the bucket.
    ///
    /// # Errors
    /// Returns an error if the settings cannot be used.
    pub fn new(settings: &S3Settings, origin: &Origin) -> Result<S3, object_store::Error> {
        let connector = Connector {
            tls: settings.tls.clone(),
            timeout: settings.timeout,
        };
        // The delivery retries: it stops with the process, and reports the error meanwhile.
        let retry = RetryConfig {
            max_retries: 0,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&settings.bucket)
            .with_http_connector(connector)
            .with_retry(retry);
        if let Some(region) = &settings.region {
            builder = builder.with_region(region);
        }
        if let Some(url) = &settings.url {
            let plain = url.scheme_str() == Some("http");
            let endpoint = url.to_string();
            builder = builder
                // This key overrides AWS_ENDPOINT_URL_S3, which overrides `with_endpoint`.
                .with_config(
                    AmazonS3ConfigKey::S3Endpoint,
                    endpoint.trim_end_matches('/'),
                )
                .with_virtual_hosted_style_request(false)
                .with_allow_http(plain);
        }
        if let Some((key, secret)) = &settings.keys {
            builder = builder.with_credentials(Arc::new(KeyFiles {
                key: key.clone(),
                secret: secret.clone(),
            }));
        }
        let credentials = CredentialSource::of(settings, &builder);
        let given = Arc::clone(builder.clone().build()?.credentials());
        Ok(S3 {
            bucket: builder
                .with_credentials(Arc::new(ToldApart(given)))
                .build()?,
            credentials,
            prefix: settings.prefix.trim_matches('/').to_owned(),
            address: format!("s3://{}", settings.bucket),
            origin: origin.values().into(),
            known: Mutex::default(),
        })
    }

    /// The name of the file with these calls, which began within one hour: Hive partitions by day
    /// and hour, then the ids of the first and the last call.
    fn name(&self, hour: i64, rows: &[&Row]) -> Path {
        let first = rows.first().map_or("", |row| id(row));
        let last = rows.last().map_or("", |row| id(row));
        self.folder(hour).join(format!("{first}-{last}.parquet"))
    }

    fn folder(&self, hour: i64) -> Path {
        let at = instant(hour * HOUR);
        let (day, clock) = at.split_once(' ').unwrap_or((&at, "00"));
        let folder = format!("day={day}/hour={}", &clock[..2]);
        match self.prefix.as_str() {
            "" => Path::from(folder),
            prefix => Path::from(format!("{prefix}/{folder}")),
        }
    }

    /// The ids of the calls that the files of an hour contain.
    async fn known(&self, hour: i64) -> Result<Arc<HashSet<String>>, SendError> {
        if let Some(known) = self.known.lock().get(&hour) {
            return Ok(Arc::clone(known));
        }
        let unread = |error| {
            let mut error = self.explain(&error);
            error.message += "; a replay skips calls that the bucket already has, and needs s3:ListBucket and \
                 s3:GetObject for that";
            error
        };
        let mut known = HashSet::new();
        let folder = self.folder(hour);
        let files = self.bucket.list_with_delimiter(Some(&folder)).await;
        for file in files.map_err(unread)?.objects {
            let body = self.bucket.get(&file.location).await.map_err(unread)?;
            let body = body.bytes().await.map_err(unread)?;
            known.extend(texts(body, "id").map_err(|error| {
                let message = format!("{}/{}: {error}", self.address, file.location);
                SendError::new(SendErrorKind::Unavailable, message)
            })?);
        }
        let known = Arc::new(known);
        let mut hours = self.known.lock();
        if hours.len() == KNOWN_HOURS {
            hours.pop_first();
        }
        hours.insert(hour, Arc::clone(&known));
        Ok(known)
    }

    fn file(&self, rows: &[&Row]) -> io::Result<Vec<u8>> {
        let mut table = Table::begin(Vec::new(), fields())?;
        for row in rows {
            table.row(self.origin.iter().cloned().chain(row.iter().cloned()))?;
        }
        table.end()
    }

    /// Returns an error if the clock is before 1970: `object_store` would panic while signing a
    /// request, which would end the sink.
    fn can_sign(&self) -> Result<(), SendError> {
        if SystemTime::now() >= SystemTime::UNIX_EPOCH {
            return Ok(());
        }
        let message = format!(
            "{}: the clock of this machine is before 1970, so S3 would refuse requests; set the \
             clock",
            self.address
        );
        Err(SendError::new(SendErrorKind::Denied, message))
    }

    fn explain(&self, error: &object_store::Error) -> SendError {
        let said = Said::by(error);
        let CredentialSource { name, advice } = self.credentials;
        let (address, text) = (&self.address, said.text);
        if said.of_credentials {
            let message = format!("{address}: no credentials from {name}: {text}; {advice}");
            return SendError::new(said.kind.unwrap_or(SendErrorKind::Denied), message);
        }
        let kind = said.kind.unwrap_or(SendErrorKind::Unavailable);
        let todo = match kind {
            SendErrorKind::Denied => format!(
                "; check the bucket and the region, and allow s3:PutObject for the credentials \
                 from {name}"
            ),
            _ => String::new(),
        };
        SendError::new(kind, format!("{address}: {text}{todo}"))
    }
}

impl Sink for S3 {
    async fn send(&self, rows: &[Row]) -> Result<(), SendError> {
        self.can_sign()?;
        let mut hours: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            hours.entry(hour(row)).or_default().push(row);
        }
        for (hour, rows) in hours {
            let name = self.name(hour, &rows);
            let file = self.file(&rows).map_err(|error| {
                let message = format!("the Parquet file cannot be written: {error}");
                SendError::new(SendErrorKind::Refused, message)
            })?;
            let create = PutOptions::from(PutMode::Create);
            let put = self.bucket.put_opts(&name, PutPayload::from(file), create);
            match put.await {
                // The file was stored earlier, but the response was lost or the process was killed.
                Err(object_store::Error::AlreadyExists { .. }) => {}
                put => drop(put.map_err(|error| self.explain(&error))?),
            }
        }
        Ok(())
    }

    async fn missing(&self, rows: Vec<Row>) -> Result<Vec<Row>, SendError> {
        self.can_sign()?;
        let mut missing = Vec::with_capacity(rows.len());
        for row in rows {
            if !self.known(hour(&row)).await?.contains(id(&row)) {
                missing.push(row);
            }
        }
        Ok(missing)
    }
}

fn hour(row: &Row) -> i64 {
    started_ms(row).div_euclid(HOUR)
}
