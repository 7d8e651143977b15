//! Dependencies of tokengauge, beyond what `cargo deny` checks (deny.toml).

use crate::module_circles;
use std::path::Path;
use toml::Table;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const OURS: &str = "tokengauge-";
/// Our crates that each crate may depend on, except in tests. Crates further up may depend on crates further down.
const MAY_USE: &[(&str, &[&str])] = &[
    (
        "admin",
        &[
            "accounting",
            "config",
            "core",
            "drift",
            "experiments",
            "files",
            "fleet",
            "gate",
            "html",
            "meter",
            "net",
            "proxy",
            "sessions",
            "sink",
            "slo",
            "store",
            "telemetry",
        ],
    ),
    ("core", &[]),
    (
        "config",
        &[
            "accounting",
            "core",
            "drift",
            "experiments",
            "gate",
            "meter",
            "net",
            "proxy",
            "quota-store",
            "sessions",
            "sink",
            "slo",
            "store",
            "telemetry",
            "wire",
        ],
    ),
    ("analysis", &["core", "tokenizer", "wire"]),
    ("tokenizer", &[]),
    ("wire", &["core"]),
    ("sim", &["core"]),
    ("cause", &["core", "stats"]),
    ("drift", &["core", "stats", "store"]),
    ("gate", &["core", "experiments", "slo", "stats", "store"]),
    ("html", &["core", "sessions", "slo", "store"]),
    ("fleet", &["core", "meter", "net", "sink", "store"]),
    (
        "inject",
        &["admin", "config", "core", "net", "proxy", "telemetry"],
    ),
    (
        "process",
        &[
            "accounting",
            "admin",
            "config",
            "core",
            "drift",
            "experiments",
            "files",
            "gate",
            "meter",
            "net",
            "proxy",
            "quota-store",
            "sessions",
            "sink",
            "slo",
            "store",
            "telemetry",
        ],
    ),
    ("files", &[]),
    ("net", &[]),
    ("proxy", &["core", "net"]),
    ("slo", &["cause", "core", "files", "meter"]),
    ("sink", &["core", "net", "store"]),
    ("stats", &[]),
    ("experiments", &["stats", "store"]),
    ("quota-store", &["accounting", "core", "net"]),
    ("sessions", &["core", "store"]),
    ("store", &["core", "files", "meter", "stats"]),
    (
        "telemetry",
        &[
            "accounting",
            "core",
            "files",
            "meter",
            "net",
            "proxy",
            "slo",
        ],
    ),
    ("accounting", &["core", "files", "wire"]),
    (
        "meter",
        &["accounting", "analysis", "core", "tokenizer", "wire"],
    ),
    (
        "bench",
        &["core", "meter", "net", "stats", "store", "tokenizer"],
    ),
    (
        "test-support",
        &[
            "accounting",
            "core",
            "meter",
            "proxy",
            "sim",
            "telemetry",
            "wire",
        ],
    ),
];

fn file(name: &str) -> String {
    let path = Path::new(ROOT).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn toml(name: &str) -> Table {
    file(name)
        .parse()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The lines of a section that are neither blank nor a comment.
fn lines<'a>(text: &'a str, section: &str) -> Vec<&'a str> {
    let lines = text
        .lines()
        .skip_while(|line| *line != section)
        .skip(1)
        .take_while(|line| !line.starts_with('['));
    lines
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
        .collect()
}

#[test]
fn every_dependency_states_its_purpose() {
    let manifest = file("Cargo.toml");
    let named = lines(&manifest, "[workspace.dependencies]");
    let known = toml("Cargo.toml")["workspace"]["dependencies"]
        .as_table()
        .map_or(0, Table::len);
    assert!(known > 50);
    assert_eq!(named.len(), known, "one line each");
    for line in named.iter().filter(|line| !line.starts_with(OURS)) {
        let reason = line.split_once(" # ").map(|(_, reason)| reason.trim());
        assert!(
            reason.is_some_and(|reason| reason.len() > 5),
            "no reason: {line}"
        );
    }
}

/// A `path` would be a private copy, and the content of a `git` reference can change.
#[test]
fn dependencies_come_from_the_registry_with_a_version_and_a_sum() {
    let manifest = toml("Cargo.toml");
    let table = manifest["workspace"]["dependencies"].as_table();
    let table = table.expect("dependencies").iter();
    for (name, wanted) in table.filter(|(name, _)| !name.starts_with(OURS)) {
        let version = wanted
            .as_str()
            .or_else(|| wanted.get("version")?.as_str())
            .unwrap_or_default();
        assert!(
            version.starts_with(|first: char| first.is_ascii_digit()),
            "{name}: {wanted}"
        );
        for elsewhere in ["git", "path", "registry"] {
            assert!(wanted.get(elsewhere).is_none(), "{name}: {wanted}");
        }
    }
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let packages = toml(lock);
        let packages = packages["package"].as_array().expect("packages");
        assert!(packages.len() > 100, "{lock}");
        for package in packages {
            let name = package["name"].as_str().unwrap_or_default();
            if name.starts_with("tokengauge") {
                continue;
            }
            let source = package.get("source").and_then(toml::Value::as_str);
            assert_eq!(
                source,
                Some("registry+https://github.com/rust-lang/crates.io-index"),
                "{lock}: {name}"
            );
            let sum = package.get("checksum").and_then(toml::Value::as_str);
            assert!(sum.is_some_and(|sum| sum.len() == 64), "{lock}: {name}");
        }
    }
}

/// Cargo refuses circles. This test keeps the direction, and keeps versions in one place.
#[test]
fn crates_depend_one_way_and_take_versions_from_the_workspace() {
    let folders = std::fs::read_dir(Path::new(ROOT).join("crates")).expect("crates");
    let mut names: Vec<_> = folders
        .map(|folder| folder.expect("a folder").file_name())
        .map(|name| name.into_string().expect("a name"))
        .collect();
    names.sort();
    let mut known: Vec<_> = MAY_USE.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(names, known, "a new crate has its line in MAY_USE");
    for (name, may_use) in MAY_USE {
        let manifest = toml(&format!("crates/{name}/Cargo.toml"));
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true));
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let table = manifest.get(section).and_then(toml::Value::as_table);
            for (dependency, wanted) in table.into_iter().flatten() {
                let shared = wanted.get("workspace").and_then(toml::Value::as_bool);
                assert_eq!(shared, Some(true), "{name}: {dependency}");
                let ours = dependency.strip_prefix(OURS);
                if let Some(ours) = ours.filter(|_| section == "dependencies") {
                    assert!(may_use.contains(&ours), "{name} uses {ours}");
                }
            }
        }
        let readme = file(&format!("crates/{name}/README.md"));
        assert!(readme.contains("```rust"), "{name}: an example that runs");
        let root = file(&format!("crates/{name}/src/lib.rs"));
        assert!(
            root.starts_with("#![doc = include_str!(\"../README.md\")]"),
            "{name}"
        );
    }
}

/// Cargo refuses circles between crates, but not between the files of a crate.
#[test]
fn files_of_a_crate_use_each_other_one_way() {
    let root = Path::new(ROOT);
    let folders = std::fs::read_dir(root.join("crates")).expect("crates");
    let folders = folders.map(|folder| folder.expect("a folder").path());
    let mut circles = Vec::new();
    for folder in folders.chain([root.to_owned()]) {
        let found = module_circles::circles(&folder.join("src"));
        circles.extend(
            found
                .iter()
                .map(|found| format!("{}: {found}", folder.display())),
        );
    }
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// Every exception states its reason, and every build uses the lock file.
#[test]
fn exceptions_have_reasons_and_builds_are_locked() {
    let deny = toml("deny.toml");
    assert_eq!(deny["bans"]["multiple-versions"].as_str(), Some("deny"));
    assert_eq!(deny["bans"]["wildcards"].as_str(), Some("deny"));
    for list in ["skip", "deny"] {
        for entry in deny["bans"][list].as_array().expect(list) {
            let reason = entry.get("reason").and_then(toml::Value::as_str);
            assert!(reason.is_some_and(|reason| !reason.is_empty()), "{entry}");
        }
    }
    for script in ["Makefile", "Dockerfile"] {
        let text = file(script);
        let builds = text.lines().filter(|line| {
            // Skip descriptions of Makefile targets.
            !line.contains("## ")
                && !line.starts_with('#')
                && ["build", "rustc", "test", "bench", "clippy", "install"]
                    .iter()
                    .any(|verb| line.contains(&format!("cargo {verb}")))
        });
        for line in builds {
            assert!(line.contains("--locked"), "{script}: {line}");
        }
    }
}
