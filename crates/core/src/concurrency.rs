//! Classes of concurrency: the number of streams in flight on an upstream when a call begins,
//! including the call.

/// The classes in ascending order.
pub const CONCURRENCIES: [&str; 8] = [
    "1", "2-4", "5-8", "9-16", "17-32", "33-64", "65-128", "129+",
];
/// The largest number of streams of each class except the last.
pub const LARGEST: [u32; 7] = [1, 4, 8, 16, 32, 64, 128];

/// The class of a number of streams.
pub fn concurrency(streams: u32) -> &'static str {
    CONCURRENCIES[concurrency_class(streams)]
}

/// The index in [`CONCURRENCIES`] of the class of a number of streams.
pub fn concurrency_class(streams: u32) -> usize {
    LARGEST.partition_point(|largest| *largest < streams)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_have_the_bounds_of_the_design() {
        let all = [0, 1, 2, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129];
        let expected = [
            "1", "1", "2-4", "2-4", "5-8", "5-8", "9-16", "9-16", "17-32", "17-32", "33-64",
            "33-64", "65-128", "65-128", "129+",
        ];
        assert_eq!(all.map(concurrency), expected);
    }
}
