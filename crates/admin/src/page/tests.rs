use super::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn files(root: &Path, folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            files(root, &path, found);
        } else if path.extension().is_some_and(|kind| {
            ["html", "css", "js", "svg"].contains(&kind.to_str().unwrap_or_default())
        }) {
            let name = path.strip_prefix(root).expect("below it");
            found.insert(name.to_str().expect("a plain name").to_owned());
        }
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/page")
}

fn between<'a>(text: &'a str, before: &'a str, after: char) -> impl Iterator<Item = &'a str> {
    let pieces = text.split(before).skip(1);
    pieces.filter_map(move |piece| piece.split(after).next())
}

#[test]
fn every_file_of_the_folder_is_served_and_every_name_in_them_is_a_file() {
    let mut found = BTreeSet::new();
    files(&folder(), &folder(), &mut found);
    found.insert("dimensions.js".to_owned());
    let served: BTreeSet<_> = ASSETS.iter().map(|asset| asset.name.to_owned()).collect();
    assert_eq!(served, found);
    let index = &asset("index.html").expect("there").text;
    for start in ["href=\"page/", "src=\"page/"] {
        for name in between(index, start, '"') {
            assert!(asset(name).is_some(), "index.html names {name}");
        }
    }
    for file in ASSETS
        .iter()
        .filter(|file| !file.name.starts_with("vendor/"))
    {
        for name in between(&file.text, "from \"./", '"') {
            assert!(asset(name).is_some(), "{} imports {name}", file.name);
        }
    }
}

#[test]
fn nothing_in_the_files_needs_more_than_the_policy_allows() {
    for asset in ASSETS.iter() {
        let text = asset.text.as_ref();
        let inline = [
            "style=\"",
            "<style",
            "onclick=\"",
            "javascript:",
            "innerHTML",
        ];
        for inline in inline {
            assert!(!text.contains(inline), "{}: {inline}", asset.name);
        }
        let scripts = between(text, "<script", '>');
        for script in scripts.filter(|_| asset.name.ends_with(".html")) {
            assert!(script.contains("src=\"page/"), "{}: {script}", asset.name);
        }
    }
}

#[test]
fn vendored_files_are_as_published() {
    let readme = std::fs::read_to_string(folder().join("vendor/README.md")).expect("readable");
    for file in ASSETS
        .iter()
        .filter(|asset| asset.name.starts_with("vendor/"))
    {
        let name = file.name.trim_start_matches("vendor/");
        let digest = Sha256::digest(file.text.as_bytes());
        let digest: String = digest.iter().map(|b| format!("{b:02x}")).collect();
        assert!(
            readme.contains(&format!("{digest}  {name}")),
            "{name}: {digest}"
        );
    }
}

#[test]
fn a_file_that_is_known_is_not_sent_again() {
    let plain = serve("index.html", &HeaderMap::new());
    assert_eq!(plain.status(), StatusCode::OK);
    let tag = plain.headers()[header::ETAG].clone();
    for known in [
        tag.to_str().expect("text").to_owned(),
        format!("\"other\", W/{}", tag.to_str().expect("text")),
        "*".to_owned(),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, known.parse().expect("a header"));
        let again = serve("index.html", &headers);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{known}");
        assert_eq!(again.headers()[header::ETAG], tag);
        assert!(
            again
                .headers()
                .contains_key(header::CONTENT_SECURITY_POLICY)
        );
    }
    let mut headers = HeaderMap::new();
    headers.insert(
        header::IF_NONE_MATCH,
        "\"other\"".parse().expect("a header"),
    );
    assert_eq!(serve("index.html", &headers).status(), StatusCode::OK);
}

#[test]
fn a_browser_loads_all_of_the_page_in_200_kb() {
    let all: usize = ASSETS.iter().map(|asset| asset.gzip.len()).sum();
    assert!(all <= 200_000, "{all} bytes");
}

#[test]
fn a_file_is_compressed_for_who_takes_it() {
    let served = |accepted: &str| {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, accepted.parse().expect("a header"));
        serve("main.js", &headers)
    };
    for (accepted, compressed) in [
        ("gzip, deflate, br", true),
        ("br;q=1, GZIP;q=0.5", true),
        ("br", false),
        ("gzip;q=0", false),
        ("gzip; q=0.000, identity", false),
    ] {
        let response = served(accepted);
        let coding = response.headers().get(header::CONTENT_ENCODING);
        assert_eq!(coding.is_some(), compressed, "{accepted}");
        assert_eq!(response.headers()[header::VARY], "accept-encoding");
    }
    let tags = ["gzip", "br"].map(|accepted| served(accepted).headers()[header::ETAG].clone());
    assert_ne!(tags[0], tags[1], "other bytes, another tag");
    let asset = asset("main.js").expect("there");
    let mut plain = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&asset.gzip[..]);
    std::io::Read::read_to_string(&mut decoder, &mut plain).expect("gzip");
    assert_eq!(plain, asset.text);
}

#[test]
fn a_view_one_level_down_has_links_that_lead_up() {
    let below = BELOW.text.as_ref();
    for start in ["href=\"", "src=\""] {
        for link in between(below, start, '"') {
            assert!(link.starts_with("../") || link.starts_with('#'), "{link}");
        }
    }
    assert!(below.contains("src=\"../page/main.js\"") && below.contains("href=\"#main\""));
}

#[test]
fn only_files_of_the_page_are_open() {
    for open in [
        "/",
        "/page/index.html",
        "/page/vendor/uplot.js",
        "/sessions",
        "/sessions/a%2Fb",
        "/calls",
        "/calls/7",
        "/connect",
    ] {
        assert!(is_static(open), "{open}");
    }
    for closed in [
        "/page/",
        "/page/nothing.js",
        "/page/../metrics",
        "/metrics",
        "",
        "/page",
        "/sessions/",
        "/sessions/a/b",
        "/call",
        "/api/v1/calls",
    ] {
        assert!(!is_static(closed), "{closed}");
    }
}
