//! Folded stacks, the input of flame graphs.

use std::collections::BTreeMap;

/// Converts the output of `perf script` to one line per stack: the command and its functions, outermost first,
/// separated by semicolons, and the number of samples.
pub fn fold(script: &str) -> String {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    for sample in script.split("\n\n") {
        let mut lines = sample.lines().filter(|line| !line.trim().is_empty());
        let Some(command) = lines.next() else {
            continue;
        };
        let mut frames: Vec<&str> = lines.filter_map(symbol).collect();
        frames.push(command.trim());
        frames.reverse();
        *stacks.entry(frames.join(";")).or_default() += 1;
    }
    let lines = stacks
        .iter()
        .map(|(stack, count)| format!("{stack} {count}\n"));
    lines.collect()
}

/// The function in a line of a stack, which has an address and a name.
fn symbol(line: &str) -> Option<&str> {
    let (_, symbol) = line.trim().split_once(' ')?;
    Some(symbol.split("+0x").next().unwrap_or(symbol))
}
