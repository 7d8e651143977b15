//! Maps the metrics of each engine to common figures.
//!
//! The metric names are from vLLM 0.6 to 0.32 (`docs.vllm.ai`, Production Metrics), SGLang
//! (`docs.sglang.io`, Production Metrics), TGI 2 and 3 (`huggingface.co/docs`, Metrics),
//! llama.cpp's server (`tools/server/README.md`), Triton with and without TensorRT-LLM
//! (`docs.nvidia.com`, Metrics), trtllm-serve and Dynamo's frontend and workers.

use super::text::{Sample, samples};

/// The figures of a scrape; `None` if the engine does not report one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct View {
    pub queue_depth: Option<f64>,
    pub running: Option<f64>,
    /// Share of the KV cache in use; 1 is full.
    pub kv_cache: Option<f64>,
    pub started: Option<f64>,
    pub queue: Option<Spent>,
    pub prefill: Option<Spent>,
    pub prompt_tokens: Option<f64>,
    pub output_tokens: Option<f64>,
    pub requests: Option<f64>,
}

/// Time spent since the engine started.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    pub seconds: f64,
    /// Number of requests that spent this time.
    pub times: f64,
}

impl Spent {
    pub(super) const NONE: Spent = Spent {
        seconds: 0.0,
        times: 0.0,
    };

    pub(super) fn since(self, before: Spent) -> Spent {
        Spent {
            seconds: (self.seconds - before.seconds).max(0.0),
            times: (self.times - before.times).max(0.0),
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Figure {
    QueueDepth,
    Running,
    KvCache,
    KvUsed,
    KvMax,
    Started,
    QueueSeconds,
    QueueTimes,
    PrefillSeconds,
    PrefillTimes,
    PromptTokens,
    OutputTokens,
    Requests,
}

/// The metric names for a figure; the first that is present is used.
struct Rule {
    figure: Figure,
    name: &'static str,
    label: Option<(&'static str, &'static str)>,
    scale: f64,
}

const fn rule(figure: Figure, name: &'static str) -> Rule {
    Rule {
        figure,
        name,
        label: None,
        scale: 1.0,
    }
}

const fn of(figure: Figure, name: &'static str, label: &'static str, is: &'static str) -> Rule {
    Rule {
        figure,
        name,
        label: Some((label, is)),
        scale: 1.0,
    }
}

use Figure::{
    KvCache, KvMax, KvUsed, OutputTokens, PrefillSeconds, PrefillTimes, PromptTokens, QueueDepth,
    QueueSeconds, QueueTimes, Requests, Running, Started,
};

const TRITON_REQUESTS: &str = "nv_trt_llm_request_metrics";
const TRITON_BLOCKS: &str = "nv_trt_llm_kv_cache_block_metrics";
const BLOCKS: &str = "kv_cache_block_type";
const SGLANG_STAGES: [&str; 2] = [
    "sglang:per_stage_req_latency_seconds_sum",
    "sglang:per_stage_req_latency_seconds_count",
];
const TGI_BATCHES: [&str; 2] = [
    "tgi_batch_inference_duration_sum",
    "tgi_batch_inference_duration_count",
];

const RULES: &[Rule] = &[
    rule(QueueDepth, "vllm:num_requests_waiting"),
    rule(QueueDepth, "sglang:num_queue_reqs"),
    rule(QueueDepth, "tgi_queue_size"),
    rule(QueueDepth, "llamacpp:requests_deferred"),
    of(QueueDepth, TRITON_REQUESTS, "request_type", "waiting"),
    rule(QueueDepth, "nv_inference_pending_request_count"),
    rule(QueueDepth, "trtllm_num_requests_waiting"),
    rule(QueueDepth, "dynamo_frontend_queued_requests"),
    rule(Running, "vllm:num_requests_running"),
    rule(Running, "sglang:num_running_reqs"),
    rule(Running, "tgi_batch_current_size"),
    rule(Running, "llamacpp:requests_processing"),
    of(Running, TRITON_REQUESTS, "request_type", "scheduled"),
    rule(Running, "trtllm_num_requests_running"),
    rule(Running, "dynamo_frontend_inflight_requests"),
    rule(KvCache, "vllm:kv_cache_usage_perc"),
    rule(KvCache, "vllm:gpu_cache_usage_perc"),
    rule(KvCache, "sglang:token_usage"),
    rule(KvCache, "llamacpp:kv_cache_usage_ratio"),
    of(KvCache, TRITON_BLOCKS, BLOCKS, "fraction"),
    rule(KvCache, "trtllm_kv_cache_utilization"),
    rule(KvCache, "dynamo_component_kvstats_gpu_cache_usage_percent"),
    rule(KvCache, "dynamo_component_gpu_cache_usage_percent"),
    of(KvUsed, TRITON_BLOCKS, BLOCKS, "used"),
    of(KvMax, TRITON_BLOCKS, BLOCKS, "max"),
    rule(Started, "process_start_time_seconds"),
    rule(QueueSeconds, "vllm:request_queue_time_seconds_sum"),
    rule(QueueTimes, "vllm:request_queue_time_seconds_count"),
    rule(QueueSeconds, "sglang:queue_time_seconds_sum"),
    rule(QueueTimes, "sglang:queue_time_seconds_count"),
    rule(QueueSeconds, "tgi_request_queue_duration_sum"),
    rule(QueueTimes, "tgi_request_queue_duration_count"),
    rule(QueueSeconds, "trtllm_request_queue_time_seconds_sum"),
    rule(QueueTimes, "trtllm_request_queue_time_seconds_count"),
    Rule {
        figure: QueueSeconds,
        name: "nv_inference_queue_duration_us",
        label: None,
        scale: 1e-6,
    },
    rule(QueueTimes, "nv_inference_request_success"),
    rule(PrefillSeconds, "vllm:request_prefill_time_seconds_sum"),
    rule(PrefillTimes, "vllm:request_prefill_time_seconds_count"),
    of(PrefillSeconds, SGLANG_STAGES[0], "stage", "prefill_forward"),
    of(PrefillTimes, SGLANG_STAGES[1], "stage", "prefill_forward"),
    of(PrefillSeconds, TGI_BATCHES[0], "method", "prefill"),
    of(PrefillTimes, TGI_BATCHES[1], "method", "prefill"),
    rule(PromptTokens, "vllm:prompt_tokens_total"),
    rule(PromptTokens, "sglang:prompt_tokens_total"),
    rule(PromptTokens, "llamacpp:prompt_tokens_total"),
    rule(OutputTokens, "vllm:generation_tokens_total"),
    rule(OutputTokens, "sglang:generation_tokens_total"),
    rule(OutputTokens, "llamacpp:tokens_predicted_total"),
    rule(Requests, "tgi_request_count"),
    rule(Requests, "nv_inference_request_success"),
    rule(Requests, "trtllm_request_success_total"),
    rule(Requests, "dynamo_frontend_requests_total"),
];

impl View {
    pub fn read(text: &str) -> View {
        let mut found = vec![Found::default(); RULES.len()];
        for sample in samples(text).filter(first_rank) {
            for (rule, found) in RULES.iter().zip(&mut found) {
                if rule.takes(&sample) {
                    found.add(sample.value * rule.scale);
                }
            }
        }
        let figure = |figure| {
            let mut all = RULES.iter().zip(&found);
            let (_, found) = all.find(|(rule, found)| rule.figure == figure && found.count > 0)?;
            Some(*found)
        };
        let sum = |of| figure(of).map(|found| found.sum);
        let spent = |seconds, times| {
            let (seconds, times) = (sum(seconds)?, sum(times)?);
            Some(Spent { seconds, times })
        };
        let share = figure(KvCache).map(|found| found.sum / f64::from(found.count));
        let blocks = || Some(sum(KvUsed)? / sum(KvMax).filter(|max| *max > 0.0)?);
        View {
            queue_depth: sum(QueueDepth),
            running: sum(Running),
            kv_cache: share.or_else(blocks).map(ratio),
            started: figure(Started).map(|found| found.max),
            queue: spent(QueueSeconds, QueueTimes),
            prefill: spent(PrefillSeconds, PrefillTimes),
            prompt_tokens: sum(PromptTokens),
            output_tokens: sum(OutputTokens),
            requests: sum(Requests),
        }
    }

    /// Whether the engine has restarted since `before`: its start time changed, or a counter fell.
    pub(super) fn restarted_since(&self, before: &View) -> bool {
        let starts = before.started.zip(self.started);
        let mut counters = before.counters().into_iter().zip(self.counters());
        starts.is_some_and(|(one, other)| one != other)
            || counters.any(|(before, now)| before.zip(now).is_some_and(|(one, other)| other < one))
    }

    fn counters(&self) -> [Option<f64>; 7] {
        let [queue, prefill] = [self.queue, self.prefill];
        [
            queue.map(|spent| spent.seconds),
            queue.map(|spent| spent.times),
            prefill.map(|spent| spent.seconds),
            prefill.map(|spent| spent.times),
            self.prompt_tokens,
            self.output_tokens,
            self.requests,
        ]
    }

    pub(super) fn is_known(&self) -> bool {
        let figures = View {
            started: None,
            ..*self
        };
        figures != View::default()
    }
}

impl Rule {
    fn takes(&self, sample: &Sample<'_>) -> bool {
        let labelled = |(name, is): (&str, &str)| sample.label(name) == Some(is);
        same_name(self.name, sample.name)
            && self.label.is_none_or(labelled)
            && sample.value.is_finite()
    }
}

/// Some collectors replace `:` with `_`.
fn same_name(ours: &str, theirs: &str) -> bool {
    let mut pairs = ours.bytes().zip(theirs.bytes());
    ours.len() == theirs.len()
        && pairs.all(|(our, their)| our == their || (our == b':' && their == b'_'))
}

/// In SGLang every rank of a model may report a figure, so only rank 0 is read.
fn first_rank(sample: &Sample<'_>) -> bool {
    let first = |name| sample.label(name).is_none_or(|rank| rank == "0");
    !sample.name.starts_with("sglang") || (first("tp_rank") && first("pp_rank"))
}

/// Some engines report a share as a percentage.
fn ratio(value: f64) -> f64 {
    if value > 1.5 { value / 100.0 } else { value }
}

#[derive(Clone, Copy, Default)]
struct Found {
    sum: f64,
    max: f64,
    count: u32,
}

impl Found {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.max = self.max.max(value);
        self.count += 1;
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
