//! The cost of a call, from its bytes to its record, the metrics and the objectives.

use crate::objectives::config;
use std::sync::Arc;
use std::time::Instant;
use tokengauge_accounting::cost::Prices;
use tokengauge_core::call::{CallRecord, CostSource, Source};
use tokengauge_core::observer::End;
use tokengauge_meter::Subscriber;
use tokengauge_telemetry::export::prometheus::Prometheus;
use tokengauge_telemetry::export::text::Format;
use tokengauge_test_support::meter::{Bench, DONE, finish, header_map, thoughts, words};

const PRICE: &str = "[[price]]\nmodel = \"m-*\"\ninput = 1000\noutput = 2000\nreasoning = 8000\n";

fn bench(text: &str) -> (Bench, Arc<Prometheus>) {
    let config = config(text);
    let prometheus = Prometheus::new(&[], &config.measure);
    let subscriber: Arc<dyn Subscriber> = prometheus.clone();
    (
        crate::objectives::bench(&config, vec![subscriber]),
        prometheus,
    )
}

fn cost(record: &CallRecord) -> Option<f64> {
    record.cost_usd.map(|usd| (usd * 1e9).round() / 1e9)
}

#[test]
fn a_call_costs_what_the_provider_reported() {
    let (bench, _) = bench(PRICE);
    let call = bench.chat();
    bench.chunk(&*call, 100, words(8));
    bench.chunk(&*call, 200, finish(Some(50)) + DONE);
    let record = bench.end(&*call, 300, End::Complete);
    assert_eq!(cost(&record), Some((7.0 * 1000.0 + 50.0 * 2000.0) / 1e6));
    assert_eq!(record.cost_source, Some(CostSource::Configured));
    assert_eq!(record.tokens.source, Some(Source::Reported));
}

#[test]
fn tokens_before_a_bad_end_cost_by_our_own_count_which_is_an_estimate() {
    let (bench, prometheus) = bench(PRICE);
    let call = bench.begin("/v1/chat/completions", &[]);
    let body = br#"{"model":"m-1","stream":true,"messages":[{"role":"user","content":"Hi"}]}"#;
    bench.send(&*call, body);
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 100, thoughts(3));
    bench.chunk(&*call, 200, words(8));
    let record = bench.end(&*call, 300, End::UpstreamReset);
    let input = record.tokens.normalised.input.expect("counted") as f64;
    let tokens = input * 1000.0 + 8.0 * 2000.0 + 3.0 * 8000.0;
    assert_eq!(cost(&record), Some(tokens / 1e6));
    assert_eq!(record.tokens.source, Some(Source::Estimated));
    let now = Instant::now();
    let scraped = prometheus.render(now, &bench.meter.stats(now), Format::OpenMetrics);
    let labels = "upstream=\"upstream\",route=\"route\",model=\"m-1\",workload=\"none\",operation_class=\"generation\",source=\"estimated\",price=\"configured\"";
    let line = format!("tokengauge_cost_usd_total{{{labels}}} {}", tokens / 1e6);
    assert!(
        scraped.lines().any(|found| found == line),
        "{line}\n{scraped}"
    );
}

#[test]
fn a_model_without_a_price_has_no_cost_and_no_series() {
    let (bench, prometheus) = bench("");
    let call = bench.chat();
    bench.chunk(&*call, 100, words(8));
    bench.chunk(&*call, 200, finish(Some(50)) + DONE);
    let record = bench.end(&*call, 300, End::Complete);
    assert_eq!((record.cost_usd, record.cost_source), (None, None));
    let now = Instant::now();
    let scraped = prometheus.render(now, &bench.meter.stats(now), Format::OpenMetrics);
    assert!(!scraped.contains("cost_usd_total{"));
}

#[test]
fn a_call_of_a_batch_costs_its_share() {
    let (bench, _) = bench(&format!("{PRICE}batch = 0.5\n"));
    let cost_of = |tier: &str| {
        let call = bench.begin("/v1/chat/completions", &[]);
        let body =
            format!(r#"{{"model":"m-1","stream":true,"service_tier":"{tier}","messages":[]}}"#);
        bench.send(&*call, body.as_bytes());
        bench.answer(&*call, 200, "text/event-stream");
        bench.chunk(&*call, 100, words(8));
        bench.chunk(&*call, 200, finish(Some(50)) + DONE);
        cost(&bench.end(&*call, 300, End::Complete))
    };
    assert_eq!(cost_of("default"), Some(0.107));
    assert_eq!(cost_of("flex"), Some(0.0535));
    assert_eq!(cost_of("priority"), None);
}

#[test]
fn concurrent_calls_on_own_gpus_share_the_cost_of_time() {
    let priced = Prices::new(&config(PRICE).prices);
    let own = "[[upstream]]\nname = \"upstream\"\nurl = \"http://127.0.0.1:9\"\n\
               gpu_usd_per_hour = 900\ngpus = 4\n[[route]]\nname = \"route\"\nupstream = \"upstream\"\n";
    let config = tokengauge_config::Config::parse(own, "test").expect("valid");
    assert!(priced.gpus("upstream").is_none());
    let bench = crate::objectives::bench(&config, Vec::new());
    // One dollar per second, from 2 ms on, when the upstream was reached.
    let one = bench.chat();
    let two = bench.chat();
    bench.chunk(&*one, 100, words(8) + &finish(Some(50)) + DONE);
    let record = bench.end(&*one, 1002, End::Complete);
    assert_eq!(
        (cost(&record), record.cost_source),
        (Some(0.5), Some(CostSource::Gpu))
    );
    let record = bench.end(&*two, 2002, End::ClientCancelled);
    assert_eq!(
        cost(&record),
        Some(1.5),
        "half of one second and all of the next"
    );
    assert_eq!(record.tokens.source, Some(Source::Counted));
}

#[test]
fn a_connection_of_several_turns_pays_for_its_time_once() {
    let own = "[[upstream]]\nname = \"upstream\"\nurl = \"http://127.0.0.1:9\"\n\
               gpu_usd_per_hour = 3600\n[[route]]\nname = \"route\"\nupstream = \"upstream\"\n";
    let config = tokengauge_config::Config::parse(own, "test").expect("valid");
    let bench = crate::objectives::bench(&config, Vec::new());
    let call = bench.begin("/v1/realtime?model=m-1", &[("upgrade", "websocket")]);
    bench.send(&*call, b"");
    let switching = http::StatusCode::SWITCHING_PROTOCOLS;
    call.head(bench.at(10), switching, &header_map(&[]));
    let event = |millis, text: &str| {
        let text = text.as_bytes();
        let mut frame = vec![0x81, text.len() as u8];
        frame.extend_from_slice(text);
        bench.tunnel(
            &*call,
            tokengauge_core::observer::Side::Upstream,
            millis,
            frame,
        );
    };
    for millis in [1_000, 2_000] {
        event(millis, r#"{"type":"response.created","response":{}}"#);
        event(
            millis + 2,
            r#"{"type":"response.output_text.delta","delta":"Hello there"}"#,
        );
        event(
            millis + 502,
            r#"{"type":"response.done","response":{"status":"completed"}}"#,
        );
    }
    call.ended(bench.at(5_000), End::Complete);
    let costs: Vec<_> = bench
        .finished_calls()
        .iter()
        .map(|found| cost(&found.record))
        .collect();
    assert_eq!(costs, [Some(1.0), Some(1.5)], "the newest first");
}

fn chat_with(bench: &Bench, asked: &str, members: &str) -> CallRecord {
    let call = bench.begin("/v1/chat/completions", &[]);
    let body = format!(r#"{{"model":"m-1","stream":true,{asked}"messages":[]}}"#);
    bench.send(&*call, body.as_bytes());
    bench.answer(&*call, 200, "text/event-stream");
    bench.chunk(&*call, 100, words(8));
    let last = format!("data: {{\"model\":\"m-1\",\"choices\":[],{members}}}\n\n");
    bench.chunk(&*call, 200, finish(None) + &last + DONE);
    bench.end(&*call, 300, End::Complete)
}

const USAGE: &str = r#""prompt_tokens":7,"completion_tokens":50"#;

#[test]
fn the_tier_that_was_served_decides_else_the_one_that_was_asked_for() {
    let (bench, _) = bench(&format!("{PRICE}batch = 0.5\n"));
    let served = |asked: &str, served: &str| {
        let members = format!(r#"{served}"usage":{{{USAGE}}}"#);
        let record = chat_with(&bench, asked, &members);
        (cost(&record), record.service_tier)
    };
    let flex = r#""service_tier":"flex","#;
    let default = r#""service_tier":"default","#;
    let said = |tier: &str| Some(tier.to_owned());
    assert_eq!(served(flex, default), (Some(0.107), said("default")));
    assert_eq!(served("", flex), (Some(0.0535), said("flex")));
    assert_eq!(served(flex, ""), (Some(0.0535), said("flex")));
    assert_eq!(served("", ""), (Some(0.107), None));
}

#[test]
fn the_providers_cost_is_used_without_a_configured_price() {
    let (bench, _) = bench("");
    let of = |cost: &str| {
        let members = format!(r#""usage":{{{USAGE},{cost}}}"#);
        let record = chat_with(&bench, "", &members);
        (record.cost_usd, record.cost_source)
    };
    let reported = |usd| (Some(usd), Some(CostSource::Reported));
    assert_eq!(
        of(r#""cost":0.000764,"is_byok":false"#),
        reported(0.000_764)
    );
    assert_eq!(of(r#""cost":0"#), reported(0.0));
    let perplexity =
        r#""cost":{"input_tokens_cost":0.001,"request_cost":0.005,"total_cost":0.006}"#;
    assert_eq!(of(perplexity), reported(0.006));
    assert_eq!(of(r#""cost_in_usd_ticks":37756000"#), reported(0.003_775_6));
    let own_key = r#""cost":0.001,"is_byok":true,"cost_details":{"upstream_inference_cost":0.02}"#;
    assert_eq!(of(own_key), reported(0.021));
    assert_eq!(of(r#""cost":{"total_cost":0}"#), (None, None));
    assert_eq!(of(r#""cost":"free""#), (None, None));
}

#[test]
fn litellm_reports_the_cost_of_a_whole_answer_in_a_header() {
    let (bench, _) = bench("");
    let of = |usd: &str| {
        let call = bench.begin("/v1/chat/completions", &[]);
        bench.send(&*call, br#"{"model":"m-1","messages":[]}"#);
        let headers = [
            ("content-type", "application/json"),
            ("x-litellm-response-cost", usd),
        ];
        call.head(bench.at(50), http::StatusCode::OK, &header_map(&headers));
        let body = format!(
            r#"{{"choices":[{{"message":{{"content":"Hello"}},"finish_reason":"stop"}}],"usage":{{{USAGE}}}}}"#
        );
        bench.chunk(&*call, 100, body);
        let record = bench.end(&*call, 200, End::Complete);
        (record.cost_usd, record.cost_source)
    };
    assert_eq!(of("0.0025"), (Some(0.0025), Some(CostSource::Reported)));
    assert_eq!(of("0.0"), (None, None));
    assert_eq!(of("None"), (None, None));
}

#[test]
fn what_tools_put_into_geminis_prompt_is_input() {
    let (bench, _) =
        bench("[[price]]\nmodel = \"g-*\"\ninput = 1000\noutput = 2000\nbatch = 0.5\n");
    let call = bench.begin("/v1beta/models/g-1:streamGenerateContent?alt=sse", &[]);
    bench.send(&*call, b"{}");
    bench.answer(&*call, 200, "text/event-stream");
    // Several events of one shape use the fast path, which must add the same cost.
    for event in 1..=4 {
        let finish = if event == 4 {
            r#","finishReason":"STOP""#
        } else {
            ""
        };
        let text = format!(
            r#"data: {{"candidates":[{{"content":{{"parts":[{{"text":" word{event}"}}]}}{finish}}}],"usageMetadata":{{"promptTokenCount":17,"candidatesTokenCount":{event},"totalTokenCount":{},"trafficType":"ON_DEMAND_FLEX","toolUsePromptTokenCount":102}},"modelVersion":"g-1"}}"#,
            119 + event
        );
        bench.chunk(&*call, 100 * event, text + "\n\n");
    }
    let record = bench.end(&*call, 500, End::Complete);
    assert_eq!(record.tokens.reported.input, Some(119));
    assert_eq!(record.tokens.reported.output, Some(4));
    assert_eq!(record.service_tier.as_deref(), Some("ON_DEMAND_FLEX"));
    assert_eq!(cost(&record), Some((119.0 * 1000.0 + 4.0 * 2000.0) / 2e6));
}
