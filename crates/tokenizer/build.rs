//! Converts the o200k_base vocabulary and the Unicode classes of its splitting expression into
//! compact tables. The tables are embedded in the binary, so they need no heap and no work at
//! start, and processes share their pages.

use regex_syntax::hir::{Class, HirKind};
use std::collections::{HashMap, VecDeque};
use std::{env, fs, io, path::Path};
use trie::Node;

#[path = "src/class.rs"]
#[allow(dead_code)]
mod class;
#[path = "src/hash.rs"]
#[allow(dead_code)]
mod hash;
#[path = "src/trie.rs"]
#[allow(dead_code)]
mod trie;

/// The number of tokens without the special tokens, which count as plain text.
const TOKENS: u32 = 199_998;
/// Slots of the hash table of all tokens, 38% full.
const SLOTS: usize = 1 << 19;

/// Bytes of the bit set of the pairs that merge.
const MERGES: usize = 1 << 18;

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["class", "hash", "trie"] {
        println!("cargo::rerun-if-changed=src/{file}.rs");
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
    write("merges.bin", merges(&halves))?;
    write(
        "halves.bin",
        words(halves.iter().flat_map(|&(left, right)| [left, right])),
    )?;

    write("borders.bin", words(borders(&vocabulary, &halves)))?;
    write("shorter.bin", words(shorter(&vocabulary, &ids)))?;
    write("suffixes.bin", suffix_trie(&vocabulary))?;

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

/// A bit set with a bit for the hash of each pair that merges, 9% full.
fn merges(halves: &[(u32, u32)]) -> Vec<u8> {
    let mut bits = vec![0; MERGES];
    for (id, &(left, right)) in (0..).zip(halves) {
        if left != id {
            let (byte, bit) = hash::bit(hash::pair(left, right), bits.len());
            bits[byte] |= bit;
        }
    }
    bits
}

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

fn borders(vocabulary: &[Vec<u8>], halves: &[(u32, u32)]) -> Vec<u32> {
    let mut borders = vec![u32::MAX; 1 << 16];
    for (id, &(left, right)) in (0..).zip(halves) {
        if left != id {
            let [left, right] = [left, right].map(|token| &vocabulary[token as usize]);
            let first = &mut borders[hash::border([left[left.len() - 1], right[0]])];
            *first = id.min(*first);
        }
    }
    borders
}

fn shorter(vocabulary: &[Vec<u8>], ids: &HashMap<&[u8], u32>) -> Vec<u32> {
    let shorter = |token: &Vec<u8>| {
        let ends = (1..token.len()).map(|start| &token[start..]);
        let end = ends.chain([&token[..]]).find(|end| ids.contains_key(end));
        end.map_or(0, |end| hash::with_length(ids[end], end.len()))
    };
    vocabulary.iter().map(shorter).collect()
}

fn suffix_trie(vocabulary: &[Vec<u8>]) -> Vec<u8> {
    let reversed = |token: &Vec<u8>| token.iter().rev().copied().collect();
    let mut backwards: Vec<(Vec<u8>, u32)> = vocabulary.iter().map(reversed).zip(0..).collect();
    backwards.sort_unstable();

    let mut places = Places::new();
    let mut nodes = Vec::new();
    let mut open = VecDeque::from([(&backwards[..], 0, None)]);
    while let Some((mut below, depth, place)) = open.pop_front() {
        // The entries are sorted, so a token that ends at this node comes first.
        let mut token = trie::NO_TOKEN;
        if let Some(((bytes, id), rest)) = below.split_first()
            && bytes.len() == depth
        {
            (token, below) = (*id, rest);
        }
        let children: Vec<_> = below
            .chunk_by(|(a, _), (b, _)| a[depth] == b[depth])
            .collect();
        let bytes: Vec<u8> = children.iter().map(|child| child[0].0[depth]).collect();
        let base = match depth {
            0 => trie::ROOT,
            _ if bytes.is_empty() => trie::LEAF,
            _ => places.take(&bytes),
        };
        if let Some((byte, at)) = place {
            nodes.resize(nodes.len().max(at + 1), Node::EMPTY);
            nodes[at] = Node::new(token, byte, base);
        }
        let below = bytes.into_iter().zip(children);
        open.extend(
            below.map(|(byte, child)| (child, depth + 1, Some((byte, base + usize::from(byte))))),
        );
    }
    // Adds slots so that base plus byte is always in bounds.
    nodes.resize(places.bases.len() + (1 << 8), Node::EMPTY);
    nodes.iter().flat_map(|node| node.0.to_le_bytes()).collect()
}

/// The slots of a double array that are taken, and its bases.
#[derive(Default)]
struct Places {
    taken: Vec<bool>,
    bases: Vec<bool>,
    /// The slot at which to start the search, by number of children.
    from: HashMap<usize, usize>,
}

impl Places {
    fn new() -> Places {
        let mut places = Places::default();
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(
            [places.take(&all), places.take(&all)],
            [trie::ROOT, trie::LEAF]
        );
        places.from.clear();
        places
    }

    /// Takes the first free base with a free slot for each of these children.
    fn take(&mut self, bytes: &[u8]) -> usize {
        let from = *self.from.entry(bytes.len()).or_default();
        let is_free = |places: &[bool], at| places.get(at).is_none_or(|taken| !taken);
        let base = (from..).find(|base| {
            let mut places = bytes.iter().map(|&byte| base + usize::from(byte));
            is_free(&self.bases, *base) && places.all(|at| is_free(&self.taken, at))
        });
        let base = base.expect("there is room after the last");
        self.from.insert(bytes.len(), base);
        let last = base + usize::from(bytes.last().copied().unwrap_or_default());
        self.taken.resize(self.taken.len().max(last + 1), false);
        self.bases.resize(self.bases.len().max(base + 1), false);
        self.bases[base] = true;
        bytes
            .iter()
            .for_each(|&byte| self.taken[base + usize::from(byte)] = true);
        base
    }
}

// The reference tokenizer splits with the regex crate, so its Unicode tables apply.
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

/// A two-stage table: the block number of each 128 code points, and the distinct blocks.
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
