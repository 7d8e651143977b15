//! `tokengauge print key-hash`: the digests that stand for keys in the configuration and in records.

use crate::Error;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use tokengauge_process::output;

/// Bytes of all keys at most.
const MAX_BYTES: u64 = 1 << 20;

/// Reads keys, one a line, and prints the digest of each.
pub(super) fn key_hash() -> Result<(), Error> {
    let input = std::io::stdin();
    if input.is_terminal() {
        output::note("keys, one a line; end with Ctrl-D");
    }
    let mut found = false;
    for (at, line) in BufReader::new(input.take(MAX_BYTES)).lines().enumerate() {
        let line = line.map_err(|error| Error::Failed(format!("standard input: {error}")))?;
        let key = line.trim();
        if key.is_empty() {
            continue;
        }
        let is_of_key = |byte: u8| byte.is_ascii_graphic() && !b",'\"".contains(&byte);
        if !key.bytes().all(is_of_key) {
            let at = at + 1;
            let reason = "is no key: it has spaces, commas, quotes or letters beyond ASCII; give the key alone, one a \
                          line, without `Bearer`";
            return Err(Error::Failed(format!(
                "line {at} of standard input {reason}"
            )));
        }
        output::print(&format!(
            "{}\n",
            tokengauge_accounting::keys::digest_of(key)
        ))?;
        found = true;
    }
    if found {
        Ok(())
    } else {
        Err(Error::Failed(
            "there is no key on standard input: printf '%s' \"$KEY\" | tokengauge print key-hash"
                .to_owned(),
        ))
    }
}
