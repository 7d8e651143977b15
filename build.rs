//! Turns the o200k_base vocabulary, and the Unicode classes that its splitting
//! expression names, into compact tables. They are embedded in the binary, so
//! they cost no heap and no work at start, and processes share their pages.

use regex_syntax::hir::{Class, HirKind};
use std::collections::{HashMap, VecDeque};
use std::{env, fs, io, path::Path};
use trie::Node;

#[path = "src/tokens/class.rs"]
#[allow(dead_code)]
mod class;
#[path = "src/tokens/hash.rs"]
#[allow(dead_code)]
mod hash;
#[path = "src/tokens/trie.rs"]
#[allow(dead_code)]
mod trie;

/// Tokens without the special ones, which are plain text to the counter.
const TOKENS: u32 = 199_998;
/// Slots of a hash table of all tokens: 38% full.
const SLOTS: usize = 1 << 19;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["class", "hash", "trie"] {
        println!("cargo::rerun-if-changed=src/tokens/{file}.rs");
    }
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    let write = |name: &str, table: Vec<u8>| fs::write(Path::new(&out).join(name), table);

    let vocabulary = vocabulary()?;
    let ids: HashMap<&[u8], u32> = (0..).zip(&vocabulary).map(|(id, t)| (&t[..], id)).collect();
    let halves = halves(&vocabulary, &ids);

    write("bytes.bin", vocabulary.concat())?;
    write("starts.bin", words(starts(&vocabulary)))?;
    write(
        "tokens.bin",
        words(hash_table(
            (0..).zip(vocabulary.iter().map(|t| hash::bytes(t))),
        )),
    )?;
    let pairs = (0..).zip(&halves).filter(|(id, (left, _))| id != left);
    write(
        "pairs.bin",
        words(hash_table(
            pairs.map(|(id, &(l, r))| (id, hash::pair(l, r))),
        )),
    )?;
    write(
        "halves.bin",
        words(halves.iter().flat_map(|&(left, right)| [left, right])),
    )?;

    write("shorter.bin", words(shorter(&vocabulary, &ids)))?;
    let (nodes, labels) = suffix_trie(&vocabulary);
    write("suffix_nodes.bin", nodes)?;
    write("suffix_labels.bin", labels)?;

    let (index, blocks) = class_table(&classes()?);
    write("class_index.bin", index)?;
    write("class_blocks.bin", blocks)
}

fn vocabulary() -> io::Result<Vec<Vec<u8>>> {
    let reference = tiktoken_rs::o200k_base().map_err(io::Error::other)?;
    (0..TOKENS)
        .map(|id| reference.decode_bytes(&[id]).map_err(io::Error::other))
        .collect()
}

fn words(values: impl IntoIterator<Item = u32>) -> Vec<u8> {
    values.into_iter().flat_map(u32::to_le_bytes).collect()
}

fn starts(vocabulary: &[Vec<u8>]) -> Vec<u32> {
    let mut starts = vec![0];
    for token in vocabulary {
        starts.push(starts[starts.len() - 1] + token.len() as u32);
    }
    starts
}

/// Open addressing, linear probing.
fn hash_table(entries: impl Iterator<Item = (u32, u64)>) -> Vec<u32> {
    let mut table = vec![hash::EMPTY; SLOTS];
    for (token, hash) in entries {
        let mut at = hash::home(hash, SLOTS);
        while table[at] != hash::EMPTY {
            at = (at + 1) % SLOTS;
        }
        table[at] = hash::slot(hash, token);
    }
    table
}

/// The two tokens that the last merge to each token joins; a token that no merge
/// makes, such as a single byte, has itself.
fn halves(vocabulary: &[Vec<u8>], ids: &HashMap<&[u8], u32>) -> Vec<(u32, u32)> {
    let halves = |(id, token): (u32, &Vec<u8>)| {
        let mut ends: Vec<usize> = (0..=token.len()).collect();
        let rank = |ends: &[usize], i: usize| ids.get(&token[ends[i]..ends[i + 2]]).copied();
        while ends.len() > 3 {
            let merges = (0..ends.len() - 2).filter_map(|i| Some((rank(&ends, i)?, i)));
            match merges.min() {
                Some((rank, i)) if rank < id => ends.remove(i + 1),
                _ => return (id, id),
            };
        }
        match ends[..] {
            [start, middle, end] => (ids[&token[start..middle]], ids[&token[middle..end]]),
            _ => (id, id),
        }
    };
    (0..).zip(vocabulary).map(halves).collect()
}

/// For each token the longest shorter one that it ends with, and that one's length; a
/// single byte has itself.
fn shorter(vocabulary: &[Vec<u8>], ids: &HashMap<&[u8], u32>) -> Vec<u32> {
    let shorter = |token: &Vec<u8>| {
        let ends = (1..token.len()).map(|start| &token[start..]);
        let end = ends.chain([&token[..]]).find(|end| ids.contains_key(end));
        end.map_or(0, |end| hash::with_length(ids[end], end.len()))
    };
    vocabulary.iter().map(shorter).collect()
}

/// The trie of the tokens read backwards: its nodes, and the byte that leads to each.
fn suffix_trie(vocabulary: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let reversed = |token: &Vec<u8>| token.iter().rev().copied().collect();
    let mut backwards: Vec<(Vec<u8>, u32)> = vocabulary.iter().map(reversed).zip(0..).collect();
    backwards.sort_unstable();

    let (mut nodes, mut labels) = (Vec::new(), vec![0]);
    let mut open = VecDeque::from([(&backwards[..], 0)]);
    while let Some((mut below, depth)) = open.pop_front() {
        // Sorted, so a token that ends here comes first.
        let mut token = trie::NO_TOKEN;
        if let Some(((bytes, id), rest)) = below.split_first()
            && bytes.len() == depth
        {
            (token, below) = (*id, rest);
        }
        let first = labels.len();
        for child in below.chunk_by(|(a, _), (b, _)| a[depth] == b[depth]) {
            labels.push(child[0].0[depth]);
            open.push_back((child, depth + 1));
        }
        nodes.push(Node::new(token, labels.len() - first, first));
    }
    let nodes = nodes.iter().flat_map(|node| node.0.to_le_bytes());
    (nodes.collect(), labels)
}

/// The class of every code point, by the tables of the regex crate: the reference
/// splits by an expression that it compiles.
fn classes() -> io::Result<Vec<u8>> {
    use class::Class::*;
    let mut classes = vec![Symbol as u8; 0x11_0000];
    let expressions = [
        (r"[\p{Lu}\p{Lt}]", Upper),
        (r"\p{Ll}", Lower),
        (r"[\p{Lm}\p{Lo}]", Letter),
        (r"\p{M}", Mark),
        (r"\p{N}", Number),
        (r"\s", Blank),
        (r"[\r\n]", Newline),
        (r" ", Space),
        (r"'", Apostrophe),
        (r"/", Slash),
    ];
    for (expression, class) in expressions {
        let hir = regex_syntax::parse(expression).map_err(io::Error::other)?;
        for range in ranges(hir.kind()) {
            classes[range].fill(class as u8);
        }
    }
    Ok(classes)
}

fn ranges(kind: &HirKind) -> Vec<std::ops::RangeInclusive<usize>> {
    match kind {
        HirKind::Class(Class::Unicode(class)) => class
            .iter()
            .map(|r| r.start() as usize..=r.end() as usize)
            .collect(),
        HirKind::Class(Class::Bytes(class)) => class
            .iter()
            .map(|r| usize::from(r.start())..=usize::from(r.end()))
            .collect(),
        HirKind::Literal(literal) => literal.0.iter().map(|&b| b.into()..=b.into()).collect(),
        other => unreachable!("the expressions are classes, not {other:?}"),
    }
}

/// Two stages: the block of each 128 code points, and the blocks, each once.
fn class_table(classes: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let mut index = Vec::new();
    let mut blocks: Vec<&[u8]> = Vec::new();
    for block in classes.chunks(class::BLOCK) {
        let at = blocks
            .iter()
            .position(|known| *known == block)
            .unwrap_or_else(|| {
                blocks.push(block);
                blocks.len() - 1
            });
        index.push(u8::try_from(at).expect("there are fewer than 256 different blocks"));
    }
    (index, blocks.concat())
}
