//! Numbers that a seed reproduces.

use tokengauge_test_support::records::SplitMix64;

pub struct Random(SplitMix64);

impl Random {
    pub fn new(seed: u64, number: u64) -> Random {
        let mut random = Random(SplitMix64(
            seed ^ number.wrapping_mul(0xd134_2543_de82_ef95),
        ));
        random.bits();
        random
    }

    pub fn bits(&mut self) -> u64 {
        self.0.draw()
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.bits() % (high - low + 1)
    }

    pub fn once_in(&mut self, times: u64) -> bool {
        self.bits().is_multiple_of(times)
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.between(0, list.len() as u64 - 1) as usize]
    }
}
