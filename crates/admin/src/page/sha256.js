// SHA-256 by FIPS 180-4. The browser's own implementation needs HTTPS or localhost.

const primes = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197, 199, 211, 223, 227, 229, 233, 239, 241, 251, 257, 263, 269, 271, 277, 281, 283, 293, 307, 311];
/** The first 32 bits of the fraction. */
const fraction = (value) => Math.floor((value - Math.floor(value)) * 2 ** 32);
const K = primes.map((prime) => fraction(Math.cbrt(prime)));
const START = primes.slice(0, 8).map((prime) => fraction(Math.sqrt(prime)));
const turned = (value, by) => (value >>> by) | (value << (32 - by));

/** The digest of a text (UTF-8) in hexadecimal digits. */
export function sha256(text) {
  const bytes = new TextEncoder().encode(text);
  const padded = new DataView(new ArrayBuffer(Math.ceil((bytes.length + 9) / 64) * 64));
  bytes.forEach((byte, at) => padded.setUint8(at, byte));
  padded.setUint8(bytes.length, 0x80);
  padded.setUint32(padded.byteLength - 8, Math.floor(bytes.length / 2 ** 29));
  padded.setUint32(padded.byteLength - 4, bytes.length << 3);
  const state = [...START];
  for (let from = 0; from < padded.byteLength; from += 64) block(state, padded, from);
  return state.map((word) => (word >>> 0).toString(16).padStart(8, "0")).join("");
}

function block(state, data, from) {
  const words = Array.from({ length: 16 }, (_, at) => data.getUint32(from + at * 4));
  for (let at = 16; at < 64; at++) {
    const [a, b] = [words[at - 15], words[at - 2]];
    const [low, high] = [turned(a, 7) ^ turned(a, 18) ^ (a >>> 3), turned(b, 17) ^ turned(b, 19) ^ (b >>> 10)];
    words.push((words[at - 16] + low + words[at - 7] + high) | 0);
  }
  let [a, b, c, d, e, f, g, last] = state;
  for (let at = 0; at < 64; at++) {
    const choice = (e & f) ^ (~e & g);
    const one = (last + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + choice + K[at] + words[at]) | 0;
    const two = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [last, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
  }
  [a, b, c, d, e, f, g, last].forEach((value, at) => (state[at] = (state[at] + value) | 0));
}
