//! The hashes of the tables of the vocabulary. The build script, which writes the tables, also
//! compiles this file.

/// The bits of a slot that hold a token. The other bits are a fingerprint of the hash.
pub const TOKEN_BITS: u32 = 18;
pub const TOKEN_MASK: u32 = (1 << TOKEN_BITS) - 1;
/// A slot without a token.
pub const EMPTY: u32 = u32::MAX;

const FIRST: u64 = 0x9E37_79B9_7F4A_7C15;
const SECOND: u64 = 0xD1B5_4A32_D192_ED03;

#[inline]
pub fn bytes(bytes: &[u8]) -> u64 {
    let n = bytes.len();
    let (first, second) = match n {
        0 => (0, 0),
        1..4 => {
            let [start, middle, end] = [bytes[0], bytes[n / 2], bytes[n - 1]].map(u64::from);
            (start | middle << 8 | end << 16, 0)
        }
        4..8 => (word32(bytes), word32(&bytes[n - 4..])),
        8..=16 => (word64(bytes), word64(&bytes[n - 8..])),
        _ => {
            let folded = bytes
                .chunks_exact(8)
                .fold(0, |sum, chunk| mix(sum ^ word64(chunk) ^ FIRST, SECOND));
            (folded, word64(&bytes[n - 8..]))
        }
    };
    mix(first ^ FIRST ^ n as u64, second ^ SECOND)
}

#[inline]
pub fn pair(left: u32, right: u32) -> u64 {
    (u64::from(left) << 32 | u64::from(right)).wrapping_mul(FIRST)
}

#[inline]
pub fn border(bytes: [u8; 2]) -> usize {
    usize::from(u16::from_be_bytes(bytes))
}

#[inline]
pub fn slot(hash: u64, token: u32) -> u32 {
    fingerprint(hash) | token
}

/// A token, and a length in the bits above the token.
pub fn with_length(token: u32, len: usize) -> u32 {
    (len as u32) << TOKEN_BITS | token
}

#[inline]
pub fn matches(slot: u32, hash: u64) -> bool {
    (slot ^ fingerprint(hash)) >> TOKEN_BITS == 0
}

/// The slot at which the search for this hash starts.
#[inline]
pub fn home(hash: u64, slots: usize) -> usize {
    (hash >> (64 - slots.trailing_zeros())) as usize
}

/// The byte and the bit of a hash in a bit set of `bytes` bytes.
#[inline]
pub fn bit(hash: u64, bytes: usize) -> (usize, u8) {
    (home(hash, bytes), 1 << (hash >> 32 & 7))
}

fn fingerprint(hash: u64) -> u32 {
    // These bits are below the ones that select the slot.
    ((hash >> 24) as u32) << TOKEN_BITS
}

fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn word64(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |&word| u64::from_le_bytes(word))
}

fn word32(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |&word| u64::from(u32::from_le_bytes(word)))
}
