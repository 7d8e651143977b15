use super::CapacityPoint;
use tokengauge_core::throughput::BusySecond;

/// Concurrencies up to this value are kept separately, higher ones in steps of an eighth.
const EXACT: u32 = 32;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CapacitySums {
    /// Milliseconds with streams in flight.
    pub(crate) busy_millis: u64,
    pub(crate) tokens: u64,
    /// Tokens after first chunks and the milliseconds they took, summed over streams.
    pub(crate) decoded: u64,
    pub(crate) decode_millis: u64,
}

impl CapacitySums {
    /// The concurrency of a second: its average. If the average is below one, there was one stream
    /// for a part of the second.
    pub(crate) fn concurrency(second: &BusySecond) -> u32 {
        let streams = (second.millis + 500) / 1000;
        class_of_concurrency(u32::try_from(streams.max(1)).unwrap_or(u32::MAX))
    }

    pub(crate) fn add(&mut self, second: &BusySecond) {
        self.busy_millis += second.millis.min(1000);
        self.tokens += second.tokens;
        self.decoded += second.decoded;
        self.decode_millis += second.decode_millis;
    }

    pub(crate) fn merge(&mut self, other: &CapacitySums) {
        self.busy_millis += other.busy_millis;
        self.tokens += other.tokens;
        self.decoded += other.decoded;
        self.decode_millis += other.decode_millis;
    }

    pub(crate) fn point(&self, concurrency: u32) -> CapacityPoint {
        let per_second = |tokens: u64, millis: u64| tokens as f64 * 1000.0 / millis as f64;
        CapacityPoint {
            concurrency,
            system_tps: per_second(self.tokens, self.busy_millis.max(1)),
            request_tps: (self.decode_millis > 0)
                .then(|| per_second(self.decoded, self.decode_millis)),
            seconds: self.busy_millis.div_ceil(1000),
        }
    }
}

/// The smallest concurrency that is kept together with this one.
pub(crate) fn class_of_concurrency(streams: u32) -> u32 {
    if streams <= EXACT {
        return streams;
    }
    let step = 1 << (streams.ilog2() - 3);
    streams / step * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_streams_share_a_class() {
        let classes: Vec<_> = [1, 32, 33, 35, 36, 63, 64, 71, 72, 1000]
            .map(class_of_concurrency)
            .into();
        assert_eq!(classes, [1, 32, 32, 32, 36, 60, 64, 64, 72, 960]);
    }
}
