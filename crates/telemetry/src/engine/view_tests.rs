//! Samples of every engine's format, written by hand after real output.

use super::*;

fn spent(seconds: f64, times: f64) -> Option<Spent> {
    Some(Spent { seconds, times })
}

#[test]
fn vllm() {
    let text = r#"# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.
# TYPE process_start_time_seconds gauge
process_start_time_seconds 1.76371002113e+09
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/model"} 8.0
vllm:num_requests_running{engine="1",model_name="org/model"} 4.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/model"} 3.0
vllm:num_requests_waiting{engine="1",model_name="org/model"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/model"} 0.75
vllm:kv_cache_usage_perc{engine="1",model_name="org/model"} 0.25
# HELP vllm:request_queue_time_seconds Histogram of time spent in WAITING phase for request.
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="org/model"} 10.0
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="org/model"} 12.0
vllm:request_queue_time_seconds_count{engine="0",model_name="org/model"} 12.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="org/model"} 3.5
# TYPE vllm:request_prefill_time_seconds histogram
vllm:request_prefill_time_seconds_count{engine="0",model_name="org/model"} 12.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="org/model"} 1.5
"#;
    let view = View::read(text);
    assert_eq!((view.queue_depth, view.running), (Some(3.0), Some(12.0)));
    assert_eq!(view.kv_cache, Some(0.5));
    assert_eq!(view.started, Some(1_763_710_021.13));
    assert_eq!(
        (view.queue, view.prefill),
        (spent(3.5, 12.0), spent(1.5, 12.0))
    );
    let old = View::read("vllm:gpu_cache_usage_perc{model_name=\"m\"} 0.125\n");
    assert_eq!(old.kv_cache, Some(0.125));
    let relabelled = View::read("vllm_num_requests_waiting{model_name=\"m\"} 2\n");
    assert_eq!(relabelled.queue_depth, Some(2.0));
}

#[test]
fn sglang() {
    let text = r#"# HELP sglang:token_usage The token usage.
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 0.28
sglang:token_usage{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 0.99
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 162.0
sglang:num_running_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="1"} 162.0
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 2826.0
# TYPE sglang:queue_time_seconds histogram
sglang:queue_time_seconds_sum{model_name="m",tp_rank="0"} 40.0
sglang:queue_time_seconds_bucket{le="+Inf",model_name="m",tp_rank="0"} 80.0
sglang:queue_time_seconds_count{model_name="m",tp_rank="0"} 80.0
# TYPE sglang:per_stage_req_latency_seconds histogram
sglang:per_stage_req_latency_seconds_sum{model_name="m",stage="prefill_forward",tp_rank="0"} 9.0
sglang:per_stage_req_latency_seconds_count{model_name="m",stage="prefill_forward",tp_rank="0"} 90.0
sglang:per_stage_req_latency_seconds_sum{model_name="m",stage="decode_forward",tp_rank="0"} 900.0
sglang:per_stage_req_latency_seconds_count{model_name="m",stage="decode_forward",tp_rank="0"} 90.0
"#;
    let view = View::read(text);
    let gauges = (view.queue_depth, view.running, view.kv_cache);
    assert_eq!(gauges, (Some(2826.0), Some(162.0), Some(0.28)));
    assert_eq!(
        (view.queue, view.prefill),
        (spent(40.0, 80.0), spent(9.0, 90.0))
    );
    assert_eq!(view.started, None, "its processes share a registry");
}

#[test]
fn tgi() {
    let text = r#"# TYPE tgi_request_count counter
tgi_request_count 41
# TYPE tgi_batch_current_size gauge
tgi_batch_current_size 7
# TYPE tgi_queue_size gauge
tgi_queue_size 5
# TYPE tgi_request_queue_duration histogram
tgi_request_queue_duration_bucket{le="0.001"} 3
tgi_request_queue_duration_sum 0.75
tgi_request_queue_duration_count 41
# TYPE tgi_batch_inference_duration histogram
tgi_batch_inference_duration_sum{method="prefill"} 2.5
tgi_batch_inference_duration_count{method="prefill"} 40
tgi_batch_inference_duration_sum{method="decode"} 99.5
tgi_batch_inference_duration_count{method="decode"} 4000
"#;
    let view = View::read(text);
    assert_eq!((view.queue_depth, view.running), (Some(5.0), Some(7.0)));
    assert_eq!(view.kv_cache, None);
    assert_eq!(
        (view.queue, view.prefill),
        (spent(0.75, 41.0), spent(2.5, 40.0))
    );
}

#[test]
fn llama_cpp() {
    let text = "# HELP llamacpp:prompt_tokens_total Number of prompt tokens processed.
# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 6886
# HELP llamacpp:prompt_seconds_total Prompt process time
# TYPE llamacpp:prompt_seconds_total counter
llamacpp:prompt_seconds_total 2.90363
# HELP llamacpp:requests_processing Number of requests processing.
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# HELP llamacpp:requests_deferred Number of requests deferred.
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
";
    let view = View::read(text);
    assert_eq!((view.queue_depth, view.running), (Some(1.0), Some(2.0)));
    assert_eq!(
        (view.kv_cache, view.queue, view.prefill),
        (None, None, None)
    );
    let old = View::read("llamacpp:kv_cache_usage_ratio 0.5\n");
    assert_eq!(old.kv_cache, Some(0.5));
}

#[test]
fn triton_with_tensorrt_llm() {
    let text = r#"# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="tensorrt_llm",version="1"} 50
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="tensorrt_llm",version="1"} 2500000
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="tensorrt_llm",version="1"} 9
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 6
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 10
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 1600
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="tensorrt_llm",version="1"} 6400
"#;
    let view = View::read(text);
    assert_eq!((view.queue_depth, view.running), (Some(4.0), Some(6.0)));
    assert_eq!((view.kv_cache, view.queue), (Some(0.25), spent(2.5, 50.0)));
    let plain = View::read("nv_inference_pending_request_count{model=\"m\",version=\"1\"} 9\n");
    assert_eq!(plain.queue_depth, Some(9.0));
}

#[test]
fn trtllm_serve_and_dynamo() {
    let text = r#"trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 1
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 2
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.62
trtllm_request_queue_time_seconds_sum{model_name="m"} 0.5
trtllm_request_queue_time_seconds_count{model_name="m"} 4
"#;
    let view = View::read(text);
    let gauges = (view.queue_depth, view.running, view.kv_cache);
    assert_eq!(gauges, (Some(1.0), Some(2.0), Some(0.62)));
    assert_eq!(view.queue, spent(0.5, 4.0));
    let text = r#"dynamo_frontend_inflight_requests{model="m"} 12
dynamo_frontend_queued_requests{model="m"} 3
dynamo_component_kvstats_gpu_cache_usage_percent{dynamo_component="backend"} 40
"#;
    let view = View::read(text);
    let gauges = (view.queue_depth, view.running, view.kv_cache);
    assert_eq!(gauges, (Some(3.0), Some(12.0), Some(0.4)));
}

#[test]
fn another_programs_metrics_are_not_an_engines() {
    let view = View::read("process_start_time_seconds 1.7e9\nhttp_requests_total 5\n");
    assert!(!view.is_known() && view.started.is_some());
    assert!(!View::read("<html>not found</html>").is_known());
    assert!(View::read("tgi_queue_size 0").is_known());
}

#[test]
fn what_was_spent_since_is_never_negative() {
    let at = |seconds, times| Spent { seconds, times };
    assert_eq!(at(3.0, 6.0).since(at(1.0, 2.0)), at(2.0, 4.0));
    assert_eq!(at(3.0, 6.0).since(at(3.0, 6.0)), Spent::NONE);
    assert_eq!(at(0.5, 1.0).since(at(3.0, 6.0)), Spent::NONE);
}

#[test]
fn llama_cpp_started_anew_where_its_counters_fell() {
    let read = |prompt: u32, predicted: u32| {
        View::read(&format!(
            "llamacpp:prompt_tokens_total {prompt}\nllamacpp:tokens_predicted_total {predicted}\n"
        ))
    };
    assert!(!read(10, 10).restarted_since(&read(10, 10)));
    assert!(!read(11, 12).restarted_since(&read(10, 10)));
    assert!(read(11, 9).restarted_since(&read(10, 10)));
    assert!(read(9, 11).restarted_since(&read(10, 10)));
    assert!(!read(9, 11).restarted_since(&View::default()));
}
