//! Secrets of a configuration appear in no error and in no `Debug` output.

use tokengauge_config::Config;
use tokengauge_telemetry::export::otlp::settings::Settings;

const PLANTED: &str = "PLANTED-SECRET-91c2";

const BASE: &str = "[[upstream]]\nname = \"u\"\nurl = \"http://127.0.0.1:1\"\n";

fn every_secret() -> String {
    format!(
        "{BASE}[[route]]\nupstream = \"u\"\nheaders = {{ authorization = \"{PLANTED}\" }}\n\
         [admin]\ntoken = \"{PLANTED}\"\n\
         [[workload]]\nname = \"w\"\nheaders = {{ x-api-key = \"{PLANTED}\" }}\n\
         [[notify]]\nkind = \"slack\"\nurl = \"https://hooks.slack.com/services/{PLANTED}\"\n"
    )
}

#[test]
fn debug_shows_no_secret_of_a_configuration() {
    let config = Config::parse(&every_secret(), "test").unwrap_or_else(|error| panic!("{error}"));
    let shown = format!("{config:?}");
    assert!(
        shown.contains("hooks") || shown.contains("slack"),
        "{shown}"
    );
    assert!(!shown.contains(PLANTED), "{shown}");
}

#[test]
fn debug_shows_no_header_of_an_exporter() {
    let variables = |name: &str| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some("http://collector:4318".to_owned()),
        "OTEL_EXPORTER_OTLP_HEADERS" => Some(format!("api-key={PLANTED}")),
        _ => None,
    };
    let (settings, problems) = Settings::read(&variables, true);
    assert!(settings.traces.is_some() && problems.is_empty());
    let shown = format!("{settings:?}");
    assert!(
        shown.contains("api-key") && !shown.contains(PLANTED),
        "{shown}"
    );
}

#[test]
fn errors_quote_no_secret() {
    for wrong in [
        // Too short, and with a character that a token cannot have.
        "[admin]\ntoken = \"PLANTED\"\n".to_owned(),
        format!("[admin]\ntoken = \"{PLANTED} and more\"\n"),
        format!("[admin]\ntoken = \"{PLANTED}\"\ntoken_file = \"f\"\n"),
        // Unquoted, unterminated, with another type, and over several lines.
        format!("[admin]\ntoken = {PLANTED}\n"),
        format!("[admin]\ntoken = \"{PLANTED}\n"),
        format!("[admin]\ntoken = [\"{PLANTED}\"]\n"),
        format!("[admin]\ntoken = '''\n{PLANTED}\n'''\n"),
        format!("[[upstream]]\nname = \"b\"\nurl = \"http://user:{PLANTED}@host\"\n"),
        format!("[[upstream]]\nname = \"b\"\nurl = \"http://host/?key={PLANTED}\"\n"),
        format!(
            "[[route]]\nupstream = \"u\"\nheaders = {{ authorization = \"{PLANTED}\\u0000\" }}\n"
        ),
        format!("[[notify]]\nkind = \"slack\"\nurl = \"ftp://hooks/{PLANTED}\"\n"),
        format!(
            "[[notify]]\nkind = \"slack\"\nurl = \"https://hooks/{PLANTED}\"\nurl_file = \"f\"\n"
        ),
    ] {
        let error = Config::parse(&format!("{BASE}{wrong}"), "test").expect_err(&wrong);
        assert!(!error.to_string().contains("PLANTED"), "{wrong}\n{error}");
    }
}

#[test]
fn no_upstream_is_the_operators_address() {
    for (admin, url) in [
        ("127.0.0.1:9464", "http://127.0.0.1:9464"),
        ("127.0.0.1:9464", "http://localhost:9464/base"),
        ("127.0.0.1:9464", "http://0.0.0.0:9464"),
        ("0.0.0.0:9464", "http://127.0.0.1:9464"),
        ("[::]:9464", "https://[::1]:9464"),
        ("10.0.0.7:80", "http://10.0.0.7"),
    ] {
        let text = format!(
            "[admin]\nlisten = \"{admin}\"\n[[upstream]]\nname = \"u\"\nurls = [\"http://10.0.0.9\", \"{url}\"]\n\
             [[route]]\nupstream = \"u\"\n"
        );
        let error = Config::parse(&text, "test").expect_err(url).to_string();
        assert!(
            error.contains("`u` is the admin or metrics address"),
            "{error}"
        );
    }
    for url in [
        "http://127.0.0.1:9465",
        "http://127.0.0.2:9464",
        "http://10.0.0.7:9464",
        "http://engine:9464",
    ] {
        let text = format!(
            "[admin]\nlisten = \"127.0.0.1:9464\"\n[[upstream]]\nname = \"u\"\nurl = \"{url}\"\n[[route]]\nupstream = \"u\"\n"
        );
        Config::parse(&text, "test").unwrap_or_else(|error| panic!("{error}"));
    }
}
