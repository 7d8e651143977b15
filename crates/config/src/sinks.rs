use super::common::client_tls;
use super::file;
use super::file::DEFAULT_DATABASE;
use super::file::DEFAULT_QUEUE;
use super::file::DEFAULT_TABLE;
use super::file::SINK_TIMEOUT;
use super::problems::{Problems, check_label};
use super::spanned::Spanned;
use http::Uri;
use std::collections::HashSet;
use tokengauge_sink::{ClickHouseSettings, Location, S3Settings, Secret, SinkKind, SinkSettings};

pub(super) fn sinks(
    written: Vec<Spanned<file::Sink>>,
    problems: &mut Problems<'_>,
) -> Vec<SinkSettings> {
    let mut names = HashSet::new();
    let mut all = Vec::new();
    for spanned in written {
        let sink = spanned.into_inner();
        if let Some(name) = &sink.name {
            check_label(name, problems);
        }
        let kind = *sink.kind.get_ref();
        let name = sink.name.as_ref().map(|name| name.get_ref().as_str());
        let name = name.unwrap_or(kind.as_str()).to_owned();
        if !names.insert(name.clone()) {
            let reason = format!("there are two sinks named `{name}`; give each its own `name`");
            problems.at(&sink.kind, reason);
        }
        let (batch_rows, batch_wait) = (sink.batch_rows, sink.batch_wait.as_ref());
        let batch_wait = batch_wait.map_or(kind.batch_wait(), |span| span.0);
        let queue = sink.queue.unwrap_or(DEFAULT_QUEUE);
        let location = match kind {
            SinkKind::ClickHouse => clickhouse(sink, problems),
            SinkKind::S3 => s3(sink, problems),
        };
        all.extend(location.map(|location| SinkSettings {
            name,
            location,
            batch_rows: batch_rows.unwrap_or(kind.batch_rows()),
            batch_wait,
            queue,
        }));
    }
    all
}

fn clickhouse(sink: file::Sink, problems: &mut Problems<'_>) -> Option<Location> {
    let reason = "applies only to a sink of kind s3; remove this key";
    foreign(&sink.bucket, reason, problems);
    foreign(&sink.prefix, reason, problems);
    foreign(&sink.region, reason, problems);
    foreign(&sink.access_key_id_file, reason, problems);
    foreign(&sink.secret_access_key_file, reason, problems);
    let Some(written) = &sink.url else {
        problems.at(
            &sink.kind,
            "needs a `url`, such as \"http://clickhouse:8123\"",
        );
        return None;
    };
    Some(Location::ClickHouse(ClickHouseSettings {
        url: url(written, problems)?,
        database: identifier(sink.database, DEFAULT_DATABASE, problems),
        table: identifier(sink.table, DEFAULT_TABLE, problems),
        user: sink.user.map(Spanned::into_inner),
        password: sink
            .password_file
            .map_or(Secret::Variable("CLICKHOUSE_PASSWORD"), |file| {
                Secret::File(file.into_inner())
            }),
        tls: client_tls(sink.tls, problems),
        timeout: sink.timeout.map_or(SINK_TIMEOUT, |span| span.0),
    }))
}

fn s3(sink: file::Sink, problems: &mut Problems<'_>) -> Option<Location> {
    let reason = "applies only to a sink of kind clickhouse; remove this key";
    foreign(&sink.database, reason, problems);
    foreign(&sink.table, reason, problems);
    foreign(&sink.user, reason, problems);
    foreign(&sink.password_file, reason, problems);
    let keys = match (sink.access_key_id_file, sink.secret_access_key_file) {
        (Some(key), Some(secret)) => {
            let file = |file: Spanned<_>| Secret::File(file.into_inner());
            Some((file(key), file(secret)))
        }
        (None, None) => None,
        (Some(one), None) | (None, Some(one)) => {
            problems.at(
                &one,
                "needs both `access_key_id_file` and `secret_access_key_file`",
            );
            None
        }
    };
    let Some(bucket) = sink.bucket else {
        problems.at(&sink.kind, "needs a `bucket`");
        return None;
    };
    let endpoint = match &sink.url {
        Some(written) => Some(url(written, problems)?),
        None => None,
    };
    Some(Location::S3(S3Settings {
        url: endpoint,
        bucket: bucket.into_inner(),
        prefix: sink.prefix.map(Spanned::into_inner).unwrap_or_default(),
        region: sink.region.map(Spanned::into_inner),
        keys,
        tls: client_tls(sink.tls, problems),
        timeout: sink.timeout.map_or(SINK_TIMEOUT, |span| span.0),
    }))
}

/// Reports a key that belongs to another kind of sink.
fn foreign<T>(key: &Option<Spanned<T>>, reason: &str, problems: &mut Problems<'_>) {
    if let Some(key) = key {
        problems.at(key, reason);
    }
}

fn url(written: &Spanned<String>, problems: &mut Problems<'_>) -> Option<Uri> {
    let uri =
        written.get_ref().parse::<Uri>().ok().filter(|uri| {
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
        });
    let Some(uri) = uri else {
        problems.at(
            written,
            "must be a URL that starts with http:// or https://",
        );
        return None;
    };
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        problems.at(
            written,
            "must not contain a user or password; use files or the environment for secrets",
        );
        return None;
    }
    Some(uri)
}

/// An SQL name that needs no quotes.
fn identifier(
    written: Option<Spanned<String>>,
    default: &str,
    problems: &mut Problems<'_>,
) -> String {
    let Some(written) = written else {
        return default.to_owned();
    };
    let name = written.get_ref();
    let plain = name
        .chars()
        .all(|one| one.is_ascii_alphanumeric() || one == '_');
    if !plain || name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        problems.at(
            &written,
            "must consist of letters, digits and _, and not begin with a digit",
        );
    }
    written.into_inner()
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const REST: &str =
        "\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nupstream = \"u\"";

    fn parsed(text: &str) -> Result<Vec<SinkSettings>, String> {
        let config = Config::parse(&format!("[[sink]]\n{text}{REST}"), "test");
        config
            .map(|config| config.sinks)
            .map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_is_not_written_has_the_default_of_its_kind() {
        let sinks = parsed(
            "kind = \"clickhouse\"\nurl = \"http://c:8123\"\n[[sink]]\nkind = \"s3\"\nbucket = \"b\"",
        );
        let sinks = sinks.expect("valid");
        assert_eq!(
            (sinks[0].name.as_str(), sinks[0].batch_rows),
            ("clickhouse", 5_000)
        );
        assert_eq!(sinks[0].address(), "c:8123 default.tokengauge_calls");
        assert_eq!(
            (sinks[1].name.as_str(), sinks[1].batch_wait),
            ("s3", std::time::Duration::from_secs(60))
        );
        assert_eq!(sinks[1].address(), "s3://b/");
    }

    #[test]
    fn what_is_invalid_is_reported_with_its_line() {
        for (text, expected) in [
            ("kind = \"clickhouse\"", "test:2:8: kind"),
            ("kind = \"s3\"", "test:2:8: kind"),
            (
                "kind = \"clickhouse\"\nurl = \"http://u:p@c\"",
                "test:3:7: url",
            ),
            (
                "kind = \"clickhouse\"\nurl = \"http://c\"\ntable = \"a b\"",
                "test:4:9: table",
            ),
            (
                "kind = \"clickhouse\"\nurl = \"http://c\"\nbucket = \"b\"",
                "test:4:10: bucket",
            ),
            (
                "kind = \"s3\"\nbucket = \"b\"\naccess_key_id_file = \"/f\"",
                "test:4:22: access_key_id_file",
            ),
            (
                "kind = \"s3\"\nbucket = \"b\"\n[[sink]]\nkind = \"s3\"\nbucket = \"c\"",
                "test:5:8: kind",
            ),
        ] {
            let problem = parsed(text).expect_err(text);
            assert!(problem.starts_with(expected), "{problem}");
        }
    }
}
