//! `tokengauge print key-hash`: prints the digests that represent keys in the configuration and in records.

use super::error::CommandError;
use crate::Error;
use std::io::{BufRead, BufReader, IsTerminal, Read};
use tokengauge_process::output;

const MAX_BYTES: u64 = 1 << 20;

pub(super) fn key_hash() -> Result<(), Error> {
    let input = std::io::stdin();
    if input.is_terminal() {
        output::note("Enter one key per line; end with Ctrl-D");
    }
    let mut found = false;
    for (at, line) in BufReader::new(input.take(MAX_BYTES)).lines().enumerate() {
        let line = line.map_err(|error| CommandError::refused("standard input", error))?;
        let key = line.trim();
        if key.is_empty() {
            continue;
        }
        let is_of_key = |byte: u8| byte.is_ascii_graphic() && !b",'\"".contains(&byte);
        if !key.bytes().all(is_of_key) {
            return Err(CommandError::InvalidKey(at + 1).into());
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
        Err(CommandError::NoKey.into())
    }
}
