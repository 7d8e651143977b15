use super::operators::token;
use super::problems::Problems;
use super::{Token, file};
use sha2::{Digest, Sha256};
use tokengauge_meter::settings::Analysis;

/// Resolves the analysis and its key of block hashes. The caller reads or creates the key.
pub(super) fn analysis(
    written: file::Analysis,
    problems: &mut Problems<'_>,
) -> (Analysis, Option<Token>) {
    let default = Analysis::default();
    let names = ("block_key", "block_key_file");
    let key = token(written.block_key, written.block_key_file, names, problems);
    let analysis = Analysis {
        enabled: written.enabled.unwrap_or(default.enabled),
        prompt_blocks: written.prompt_blocks,
        block_key: default.block_key,
        memory_bytes: written
            .memory_bytes
            .map_or(default.memory_bytes, |size| size.into_inner().0),
    };
    (analysis, key)
}

/// The key of block hashes that a text stands for. Its hashes differ from all other hashes of the text.
pub fn block_key(text: &str) -> [u8; 32] {
    Sha256::new()
        .chain_update("tokengauge block key\0")
        .chain_update(text.trim())
        .finalize()
        .into()
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const REST: &str =
        "\n[[upstream]]\nname = \"u\"\nurl = \"http://h\"\n[[route]]\nupstream = \"u\"";

    fn parsed(keys: &str) -> Result<Config, String> {
        let text = format!("[analysis]\n{keys}{REST}");
        Config::parse(&text, "test").map_err(|invalid| invalid.to_string())
    }

    #[test]
    fn hashes_are_not_stored_unless_that_is_configured() {
        let default = parsed("").expect("valid").measure.analysis;
        assert!(default.enabled && !default.prompt_blocks);
        assert_eq!(default.memory_bytes, 32 << 20);
        let written = "enabled = false\nprompt_blocks = true\nmemory_bytes = \"2MiB\"";
        let analysis = parsed(written).expect("valid").measure.analysis;
        assert!(!analysis.enabled && analysis.prompt_blocks);
        assert_eq!(analysis.memory_bytes, 2 << 20);
    }

    #[test]
    fn a_short_key_and_two_keys_are_refused_without_quoting_them() {
        let refused = |keys: &str| parsed(keys).expect_err("refused");
        let short = refused("block_key = \"secret-a\"");
        assert!(short.contains("at least 16"), "{short}");
        let two = refused("block_key = \"0123456789abcdef\"\nblock_key_file = \"/f\"");
        assert!(two.contains("`block_key` or `block_key_file`"), "{two}");
        assert!(refused("memory_bytes = 5").contains("memory_bytes"));
        let valid = parsed("block_key = \"0123456789abcdef\"").expect("valid");
        assert!(!valid.redacted.contains("0123456789abcdef"));
        assert!(!format!("{valid:?}").contains("0123456789abcdef"));
    }

    #[test]
    fn equal_texts_are_equal_keys() {
        assert_eq!(block_key("a-key\n"), block_key("a-key"));
        assert_ne!(block_key("a-key"), block_key("b-key"));
    }
}
