//! Finds files of a crate that use each other in a circle.
//!
//! The check reads tokens, not types. It follows paths that begin with `crate`, `super` or `self`, and names that
//! another module imports. It does not see names from a glob import, or which file a method is in.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Path of a module or an item after `crate`.
type Parts = Vec<String>;

#[derive(Default)]
struct Code {
    /// The paths that each module's file uses.
    uses: BTreeMap<Parts, Vec<Parts>>,
    /// The imported path for each imported name.
    imports: BTreeMap<Parts, Parts>,
}

/// The circles among the files in `root`, the `src` of a crate. A file and its descendants may use each other.
pub fn circles(root: &Path) -> Vec<String> {
    let mut code = Code::default();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).expect("a folder");
            paths.extend(entries.map(|entry| entry.expect("an entry").path()));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let module = path.strip_prefix(root).expect("a file in the folder");
            let module = module.with_extension("");
            let mut module: Parts = module
                .iter()
                .map(|part| part.to_string_lossy().into())
                .collect();
            module.pop_if(|last| ["lib", "main"].contains(&last.as_str()));
            let text = std::fs::read_to_string(&path).expect("a source file");
            code.read(module, &text);
        }
    }
    code.circles()
}

impl Code {
    fn read(&mut self, module: Parts, text: &str) {
        // Without escapes, a quote always ends its string.
        let text = text.replace("\\\\", "").replace("\\\"", "");
        let tokens = tokens(&text);
        let (mut tokens, mut uses) = (&tokens[..], Vec::new());
        while let [first, rest @ ..] = tokens {
            tokens = match (*first, rest) {
                (
                    "#",
                    ["[", "cfg", "(", "test", ..] | ["[", "cfg", "(", "all", "(", "test", ..],
                ) => after_item(rest),
                ("use", _) => {
                    let (paths, rest) = paths(rest, &[]);
                    for (name, path) in paths {
                        let path = absolute(&module, path);
                        self.imports
                            .insert([&module[..], &[name]].concat(), path.clone());
                        uses.push(path);
                    }
                    rest
                }
                ("crate" | "super" | "self", ["::", ..]) => {
                    let (paths, rest) = paths(tokens, &[]);
                    uses.extend(paths.into_iter().map(|(_, path)| absolute(&module, path)));
                    rest
                }
                _ => rest,
            };
        }
        self.uses.insert(module, uses);
    }

    /// The module whose file has the item at `path`, after at most `steps` imports.
    fn file_of(&self, path: &[String], steps: u8) -> Parts {
        let mut lengths = (0..=path.len()).rev();
        let module = lengths.find(|length| self.uses.contains_key(&path[..*length]));
        let module = module.unwrap_or_default();
        let name = path.len().min(module + 1);
        match self.imports.get(&path[..name]).filter(|_| steps > 0) {
            Some(imported) => self.file_of(&[imported, &path[name..]].concat(), steps - 1),
            None => path[..module].to_vec(),
        }
    }

    fn circles(&self) -> Vec<String> {
        let targets = |(from, paths): (&Parts, &Vec<Parts>)| {
            let targets = paths.iter().map(|path| self.file_of(path, 9));
            let apart = |to: &Parts| !to.starts_with(from) && !from.starts_with(to);
            (from.clone(), targets.filter(apart).collect())
        };
        let targets: BTreeMap<Parts, BTreeSet<Parts>> = self.uses.iter().map(targets).collect();
        let mut reached = BTreeMap::new();
        for from in targets.keys() {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(file) = open.pop() {
                open.extend(targets[file].iter().filter(|to| seen.insert(*to)));
            }
            reached.insert(from, seen);
        }
        let circle = |from: &Parts| {
            let inside =
                |file: &Parts| reached[from].contains(file) && reached[file].contains(from);
            let edges = targets.iter().filter(|(file, _)| inside(file));
            let edges = edges
                .flat_map(|(file, to)| to.iter().map(move |to| (file, to)))
                .filter(|(_, to)| inside(to))
                .map(|(file, to)| format!("{} uses {}", file.join("::"), to.join("::")));
            edges.collect::<Vec<_>>().join(", ")
        };
        let mut circles: BTreeSet<_> = targets.keys().map(circle).collect();
        circles.remove("");
        circles.into_iter().collect()
    }
}

/// Parses the path or the tree of paths at the start of `tokens`. Returns each path, prefixed with `start`, with the
/// name that an import gives it, and the remaining tokens.
fn paths<'t>(mut tokens: &'t [&'t str], start: &[String]) -> (Vec<(String, Parts)>, &'t [&'t str]) {
    let mut path = start.to_vec();
    loop {
        match tokens {
            ["{", ..] => {
                let mut all = Vec::new();
                while let ["{" | ",", rest @ ..] = tokens {
                    let (more, rest) = paths(rest, &path);
                    all.extend(more);
                    tokens = rest;
                }
                return (all, tokens.get(1..).unwrap_or_default());
            }
            [part, rest @ ..]
                if part.starts_with(|first: char| first.is_alphanumeric() || first == '_') =>
            {
                if path.is_empty() || *part != "self" {
                    path.push((*part).to_owned());
                }
                tokens = rest;
            }
            _ => break,
        }
        let ["::", rest @ ..] = tokens else { break };
        tokens = rest;
    }
    let name = path.last().cloned().unwrap_or_default();
    match tokens {
        ["as", name, rest @ ..] => (vec![((*name).to_owned(), path)], rest),
        ["*", rest @ ..] => (vec![("*".to_owned(), path)], rest),
        _ => (vec![(name, path)], tokens),
    }
}

/// The path from the root of the crate of `path` in `module`.
fn absolute(module: &[String], mut path: Parts) -> Parts {
    let ups = path.iter().take_while(|part| *part == "super").count();
    let above = match path.first().map(String::as_str) {
        Some("crate") => &[],
        _ => &module[..module.len().saturating_sub(ups)],
    };
    let named = path
        .iter()
        .position(|part| !["crate", "super", "self"].contains(&part.as_str()));
    [above, &path.split_off(named.unwrap_or(path.len()))].concat()
}

/// The tokens after the first item in `tokens` and its attributes.
fn after_item<'t>(tokens: &'t [&'t str]) -> &'t [&'t str] {
    let mut depth = 0;
    let end = tokens.iter().position(|token| {
        depth += i32::from(["(", "[", "{"].contains(token));
        depth -= i32::from([")", "]", "}"].contains(token));
        depth < 0 || depth == 0 && ["}", ";"].contains(token)
    });
    &tokens[end.map_or(tokens.len(), |end| end + 1)..]
}

/// Splits into words, `::` and single characters, without comments, strings and character literals.
fn tokens(mut text: &str) -> Vec<&str> {
    const SKIPPED: [(&str, &str); 5] = [
        ("//", "\n"),
        ("/*", "*/"),
        ("r#\"", "\"#"),
        ("r\"", "\""),
        ("\"", "\""),
    ];
    let mut tokens = Vec::new();
    while let Some(first) = text.chars().next() {
        let skipped = SKIPPED.iter().find(|(open, _)| text.starts_with(open));
        let is_character = first == '\'' && text.chars().nth(2) == Some('\'');
        if let Some((open, close)) = skipped.or(is_character.then_some(&("'", "'"))) {
            let after = text[open.len()..].split_once(close);
            text = after.map_or("", |(_, after)| after);
            continue;
        }
        let word = text.find(|next: char| !next.is_alphanumeric() && next != '_');
        let length = match word.unwrap_or(text.len()) {
            0 if text.starts_with("::") => 2,
            0 => first.len_utf8(),
            word => word,
        };
        let (token, rest) = text.split_at(length);
        tokens.extend(Some(token).filter(|token| !token.trim().is_empty()));
        text = rest;
    }
    tokens
}

#[test]
fn a_circle_is_found_over_groups_imports_and_other_files() {
    let circles = |files: &[(&str, &str)]| {
        let mut code = Code::default();
        for (module, text) in files {
            let parts = module.split("::").filter(|part| !part.is_empty());
            code.read(parts.map(str::to_owned).collect(), text);
        }
        code.circles()
    };
    let found = circles(&[
        ("", "mod a; mod b; mod c; pub use c::Third;"),
        ("a", "use crate::{b::{self, Second}, x};"),
        (
            "b",
            "fn f() -> char { let quote = '\"'; super::Third::new(quote) }",
        ),
        (
            "c",
            "impl crate::a::First { const TEXT: &str = r#\" \"crate::b\" \"#; }",
        ),
    ]);
    assert_eq!(found, ["a uses b, b uses c, c uses a"]);
    let none = circles(&[
        ("a", "use self::inner::I; use super::b;"),
        ("a::inner", "use super::A;"),
        (
            "b",
            "// crate::a\n/* crate::a */ #[cfg(test)] mod tests { use crate::a; } const B: &str = \"crate::a\";",
        ),
    ]);
    assert!(none.is_empty(), "{none:?}");
}
