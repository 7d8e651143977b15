//! The parts of prompts as a blob of a rollup: the counts of [`PromptSums`], without zeros at the
//! end. `NULL` if no prompt was analyzed.

use crate::varint;
use tokengauge_core::prompt::PromptSums;

pub(super) fn encode(sums: &PromptSums) -> Option<Vec<u8>> {
    let counts = sums.known()?.counts();
    let length = counts.iter().rposition(|count| *count > 0)? + 1;
    let mut bytes = Vec::new();
    for count in &counts[..length] {
        varint::put(&mut bytes, *count);
    }
    Some(bytes)
}

/// Adds the counts of a blob.
pub(super) fn merge(sums: &mut PromptSums, mut bytes: &[u8]) {
    for sum in sums.counts_mut() {
        let Some(count) = varint::take(&mut bytes) else {
            return;
        };
        *sum = sum.saturating_add(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tokengauge_core::prompt::PROMPT_SUMS;

    proptest! {
        #[test]
        fn what_was_encoded_is_added(counts: [u64; PROMPT_SUMS]) {
            let mut sums = PromptSums::default();
            for (place, count) in sums.counts_mut().into_iter().zip(counts) {
                *place = count;
            }
            sums.calls |= 1;
            let mut read = PromptSums::default();
            merge(&mut read, &encode(&sums).expect("not empty"));
            prop_assert_eq!(read, sums);
        }

        #[test]
        fn any_bytes_are_read_without_harm(bytes: Vec<u8>) {
            merge(&mut PromptSums::default(), &bytes);
        }
    }

    #[test]
    fn calls_without_analysis_take_no_space() {
        assert_eq!(encode(&PromptSums::default()), None);
    }
}
