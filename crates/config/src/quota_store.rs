use super::common::client_tls;
use super::file;
use super::file::DEFAULT_LEASE;
use super::file::DEFAULT_PREFIX;
use super::file::QUOTA_STORE_TIMEOUT;
use super::problems::Problems;
use super::spanned::Spanned;
use std::num::NonZeroU32;
use tokengauge_accounting::sharing::SharingSettings;
use tokengauge_quota_store::{Password, Settings};

/// Maximum number of characters of the prefix, which is part of every key.
const MAX_PREFIX: usize = 100;

pub(super) fn quota_store(
    written: Option<file::QuotaStore>,
    problems: &mut Problems<'_>,
) -> Option<Settings> {
    let written = written?;
    let address = written.url.get_ref().parse();
    let address = address.map_err(|error| problems.at(&written.url, error_text(error)));
    if let Some(prefix) = &written.prefix {
        check_prefix(prefix, problems);
    }
    let tls = client_tls(written.tls, problems);
    let prefix = written.prefix.map(Spanned::into_inner);
    let span = |span: Option<super::scalar::Span>, default| span.map_or(default, |span| span.0);
    Some(Settings {
        address: address.ok()?,
        password: written.password_file.map_or(
            Password::Variable("TOKENGAUGE_QUOTA_STORE_PASSWORD"),
            Password::File,
        ),
        tls,
        prefix: prefix.unwrap_or_else(|| DEFAULT_PREFIX.to_owned()),
        timeout: span(written.timeout, QUOTA_STORE_TIMEOUT),
        sharing: SharingSettings {
            lease: span(written.lease, DEFAULT_LEASE),
            replicas: written
                .replicas
                .and_then(NonZeroU32::new)
                .unwrap_or(NonZeroU32::MIN),
            on_error: written.on_error.unwrap_or_default(),
            mode: written.mode.unwrap_or_default(),
        },
    })
}

fn error_text(error: tokengauge_quota_store::InvalidAddress) -> String {
    error.to_string()
}

fn check_prefix(prefix: &Spanned<String>, problems: &mut Problems<'_>) {
    let text = prefix.get_ref();
    let plain = text.chars().all(|one| one.is_ascii_graphic());
    if !plain || text.is_empty() || text.len() > MAX_PREFIX {
        let reason = format!("must be 1 to {MAX_PREFIX} visible ASCII characters");
        problems.at(prefix, reason);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;
    use tokengauge_accounting::sharing::OnError;
    use tokengauge_core::caller::Mode;

    const REST: &str =
        "\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nupstream = \"u\"";

    fn parsed(text: &str) -> Result<Option<Settings>, String> {
        let config = Config::parse(&format!("[quota_store]\n{text}{REST}"), "test");
        config
            .map(|config| config.quota_store)
            .map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        let settings = parsed("url = \"redis://valkey\"")
            .expect("valid")
            .expect("a store");
        assert_eq!(settings.address.to_string(), "valkey:6379");
        assert_eq!(settings.prefix, "tokengauge:");
        let sharing = settings.sharing;
        assert_eq!((sharing.lease, sharing.replicas.get()), (DEFAULT_LEASE, 1));
        assert_eq!(
            (sharing.on_error, sharing.mode),
            (OnError::Local, Mode::Enforce)
        );
        let none = Config::parse(REST, "test").expect("valid");
        assert_eq!(none.quota_store, None);
    }

    #[test]
    fn what_is_invalid_is_reported_with_its_line() {
        for (text, expected) in [
            ("url = \"http://valkey\"", "test:2:7: url"),
            ("url = \"redis://me:secret@valkey\"", "test:2:7: url"),
            ("url = \"redis://v\"\nprefix = \"a b\"", "test:3:10: prefix"),
            ("url = \"redis://v\"\nlease = \"1ms\"", "test:3:9: lease"),
            ("url = \"redis://v\"\nlease = \"2h\"", "test:3:9: lease"),
            ("url = \"redis://v\"\nreplicas = 0", "test:3:12: replicas"),
            (
                "url = \"redis://v\"\non_error = \"shut\"",
                "test:3:12: on_error",
            ),
            (
                "url = \"redis://v\"\npassword = \"x\"",
                "test:3:1: password",
            ),
        ] {
            let problem = parsed(text).expect_err(text);
            assert!(problem.starts_with(expected), "{problem}");
            assert!(!problem.contains("secret@"), "{problem}");
        }
    }
}
