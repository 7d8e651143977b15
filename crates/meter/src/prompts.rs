//! The analysis that the prompts of all calls share.

use super::guard::guarded;
use crate::settings;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokengauge_analysis::{Analysis, AnalysisCounts, BlockKey, CachePotential, Prompt, Scope};
use tokengauge_core::background::yield_now;
use tokengauge_core::call::{CallRecord, Dialect};
use tokengauge_core::memory::{Memory, Share};

/// The analysis that all calls share.
pub(crate) struct Prompts {
    analysis: Mutex<Analysis>,
    /// The memory that the analysis holds.
    share: Mutex<Share>,
    skipped: AtomicU64,
}

/// What the analysis of prompts holds, knows and left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnalysisStats {
    /// What the analysis holds and forgot.
    pub counts: AnalysisCounts,
    /// Calls that were not analyzed, because the queue was full, memory was short, or the request was
    /// too large.
    pub skipped: u64,
    /// The savings of simulated caches, by upstream.
    pub potentials: Vec<CachePotential>,
}

/// A prompt that was read at the end of its call.
pub(crate) struct ReadPrompt(Prompt);

impl ReadPrompt {
    /// The o200k_base tokens of the prompt.
    pub(crate) fn tokens(&self) -> u64 {
        self.0.parts().total()
    }
}

impl Prompts {
    pub(crate) fn new(settings: &settings::Analysis, memory: &Arc<Memory>) -> Prompts {
        Prompts {
            analysis: Mutex::new(analysis(settings)),
            share: Mutex::new(Share::empty(memory)),
            skipped: AtomicU64::new(0),
        }
    }

    /// Applies new settings. With another key, all hashes are others.
    pub(crate) fn change(&self, before: &settings::Analysis, now: &settings::Analysis) {
        let mut running = self.analysis.lock();
        if before.block_key != now.block_key || !now.enabled {
            *running = analysis(now);
        }
        running.resize(now.memory_bytes);
        self.hold(&mut running);
    }

    /// Counts a call that is not analyzed.
    pub(crate) fn skipped(&self) {
        self.skipped.fetch_add(1, Ordering::Relaxed);
    }

    /// The bytes of the shared memory that the analysis takes.
    pub(crate) fn held(&self) -> usize {
        self.share.lock().bytes()
    }

    pub(crate) fn stats(&self) -> AnalysisStats {
        let analysis = self.analysis.lock();
        let counts = analysis.counts();
        AnalysisStats {
            skipped: self.skipped.load(Ordering::Relaxed) + counts.skipped,
            counts,
            potentials: analysis.potentials(),
        }
    }

    /// Reads the prompt of a call. The outer `None` means a panic.
    pub(crate) fn read(
        &self,
        (dialect, body): (Dialect, &[u8]),
        scope: &Scope<'_>,
        started: Instant,
    ) -> Option<Option<ReadPrompt>> {
        let read = guarded(|| {
            let mut analysis = self.analysis.lock();
            analysis.read(dialect, body, scope, started, &mut yield_now)
        });
        read.map(|prompt| prompt.map(ReadPrompt))
    }

    /// Sets what is known from the prompt about an ended call. `None` means a panic.
    pub(crate) fn finish(
        &self,
        ReadPrompt(prompt): ReadPrompt,
        record: &mut CallRecord,
        ended: Instant,
        has_blocks: bool,
        price: impl Fn(&CallRecord, u64) -> Option<f64>,
    ) -> Option<()> {
        guarded(|| {
            let mut analysis = self.analysis.lock();
            if has_blocks {
                record.prompt_blocks = Some(analysis.blocks(&prompt));
            }
            analysis.finish(prompt, record, ended, price);
            self.hold(&mut analysis);
        })
    }

    /// Begins again, because a panic may have left the analysis half changed.
    pub(crate) fn reset(&self, settings: &settings::Analysis) {
        *self.analysis.lock() = analysis(settings);
    }

    /// Accounts for the memory of the analysis. If measurement has none left, half is forgotten.
    fn hold(&self, analysis: &mut Analysis) {
        let mut share = self.share.lock();
        let held = analysis.counts().held_bytes;
        if !share.resize(held) {
            analysis.shrink_to(held / 2);
            let _ = share.resize(analysis.counts().held_bytes);
        }
    }
}

fn analysis(settings: &settings::Analysis) -> Analysis {
    Analysis::new(settings.memory_bytes, BlockKey::new(&settings.block_key))
}
