//! Classes of prompts and responses by length in tokens.

/// The classes of prompts in ascending order.
pub const PROMPT_LENGTHS: [&str; 5] = ["under_1k", "1k_8k", "8k_32k", "32k_128k", "over_128k"];
/// The classes of responses in ascending order.
pub const OUTPUT_LENGTHS: [&str; 5] = ["under_128", "128_512", "512_2k", "2k_8k", "over_8k"];
/// The lower bounds in tokens of all classes of prompts except the first.
pub const PROMPT_BOUNDS: [u64; 4] = [1_000, 8_000, 32_000, 128_000];
/// The lower bounds in tokens of all classes of responses except the first.
pub const OUTPUT_BOUNDS: [u64; 4] = [128, 512, 2_000, 8_000];

/// The class of a prompt with `tokens` tokens. Lower bounds are inclusive.
pub fn prompt_length(tokens: u64) -> &'static str {
    PROMPT_LENGTHS[prompt_length_class(tokens)]
}

/// The index in [`PROMPT_LENGTHS`] of the class of a prompt.
pub fn prompt_length_class(tokens: u64) -> usize {
    PROMPT_BOUNDS.partition_point(|bound| *bound <= tokens)
}

/// The class of a response with `tokens` tokens, including reasoning.
pub fn output_length(tokens: u64) -> &'static str {
    OUTPUT_LENGTHS[OUTPUT_BOUNDS.partition_point(|bound| *bound <= tokens)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_begins_with_its_lower_bound() {
        let prompts = [0, 999, 1_000, 8_000, 31_999, 32_000, 128_000].map(prompt_length);
        assert_eq!(
            prompts,
            [
                "under_1k",
                "under_1k",
                "1k_8k",
                "8k_32k",
                "8k_32k",
                "32k_128k",
                "over_128k"
            ]
        );
        let outputs = [127, 128, 511, 512, 2_000, 8_000].map(output_length);
        assert_eq!(
            outputs,
            [
                "under_128",
                "128_512",
                "128_512",
                "512_2k",
                "2k_8k",
                "over_8k"
            ]
        );
    }
}
