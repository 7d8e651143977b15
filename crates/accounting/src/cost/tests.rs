use super::*;
use serde_json::json;
use tokengauge_core::call::UsageDetails;

/// A complete call with this number of reported input and output tokens.
pub(super) fn record(model: &str, input: u64, output: u64) -> CallRecord {
    serde_json::from_value(json!({
        "id": "", "started_at": "2026-01-31T09:30:00.000Z", "route": "r", "upstream": "u", "endpoint": "host:443",
        "dialect": "openai_chat", "operation": "chat", "model": model, "status": 200,
        "outcome": "complete", "finish_reasons": [], "warm_up": false,
        "tokens": {"normalised": {}, "reported": {"input": input, "output": output}},
        "seconds": {}, "tps": {}, "frames": 0, "stalls": 0, "bytes": {"request": 0, "response": 0},
    }))
    .expect("a record")
}

fn price(model: &str, upstream: Option<&str>, input: f64) -> Price {
    Price {
        model: Pattern::new(model),
        upstream: upstream.map(Arc::from),
        above: None,
        tariff: Tariff {
            input: Some(input),
            ..Tariff::default()
        },
    }
}

fn cost(prices: &Prices, record: &CallRecord) -> Option<(f64, CostSource)> {
    let found = prices.cost(record, DirectCosts::default()).ok();
    found.map(|(cost, source)| ((cost * 1e9).round() / 1e9, source))
}

#[test]
fn a_configured_price_goes_before_the_shipped_one_and_the_first_that_matches_wins() {
    let call = record("gpt-4.1", 1_000_000, 1_000_000);
    assert_eq!(
        cost(&Prices::default(), &call),
        Some((10.0, CostSource::List))
    );
    let prices = Prices {
        configured: vec![
            price("gpt-4.1", Some("elsewhere"), 7.0),
            price("gpt-*", Some("u"), 1.5),
            price("gpt-4.1", None, 3.0),
        ],
        ..Prices::default()
    };
    assert_eq!(cost(&prices, &call), Some((1.5, CostSource::Configured)));
}

#[test]
fn an_unknown_model_has_no_cost_and_the_shipped_table_can_be_switched_off() {
    let prices = Prices::default();
    assert_eq!(cost(&prices, &record("my-own-model", 10, 10)), None);
    let off = Prices {
        shipped: false,
        ..Prices::default()
    };
    assert_eq!(cost(&off, &record("gpt-4.1", 10, 10)), None);
}

#[test]
fn the_model_that_answered_decides_else_the_one_asked_for() {
    let mut call = record("gpt-4.1-2025-04-14", 1_000_000, 0);
    call.model_requested = Some("gpt-4.1-mini".to_owned());
    assert_eq!(
        cost(&Prices::default(), &call).map(|found| found.0),
        Some(2.0)
    );
    call.model = Some("deployment-7".to_owned());
    assert_eq!(
        cost(&Prices::default(), &call).map(|found| found.0),
        Some(0.4)
    );
}

#[test]
fn a_long_prompt_has_a_price_of_its_own() {
    let prices = Prices::default();
    let at = |input| cost(&prices, &record("gemini-2.5-pro", input, 0)).map(|found| found.0);
    assert_eq!((at(200_000), at(200_001)), (Some(0.25), Some(0.500_002_5)));
}

#[test]
fn a_price_for_some_hosts_is_for_no_other() {
    let mut call = record("mistral-large-2512", 1_000_000, 0);
    assert_eq!(cost(&Prices::default(), &call), None);
    call.endpoint = Some("api.mistral.ai:443".to_owned());
    assert_eq!(
        cost(&Prices::default(), &call),
        Some((0.5, CostSource::List))
    );
}

#[test]
fn input_has_a_price_with_and_without_a_cache() {
    let of = |prices: &Prices, upstream: &str, model: &str| {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_770_000_000);
        prices.input_prices(upstream, Some("host:443"), model, at)
    };
    let mut prices = Prices::default();
    assert_eq!(of(&prices, "u", "gpt-4.1"), Some((2.0 / 1e6, 0.5 / 1e6)));
    assert_eq!(of(&prices, "u", "my-own-model"), None);
    let long = Price {
        above: Some(200_000),
        ..price("gpt-4.1", None, 9.0)
    };
    prices.configured = vec![long, price("gpt-4.1", Some("u"), 3.0)];
    let configured = 3.0 / 1e6;
    assert_eq!(of(&prices, "u", "gpt-4.1"), Some((configured, configured)));
    assert_eq!(of(&prices, "v", "gpt-4.1"), Some((2.0 / 1e6, 0.5 / 1e6)));
    let gpu = GpuPrice {
        usd_per_hour: 1.0,
        count: 1,
    };
    prices.gpus = HashMap::from([(Arc::from("v"), Gpus::new(gpu))]);
    assert_eq!(of(&prices, "v", "gpt-4.1"), None, "hours cost, not tokens");
    let off = Prices {
        shipped: false,
        ..Prices::default()
    };
    assert_eq!(of(&off, "u", "gpt-4.1"), None);
}

#[test]
fn own_gpus_go_before_the_list_and_behind_what_is_configured() {
    let gpus = HashMap::from([(
        Arc::from("u"),
        Gpus::new(GpuPrice {
            usd_per_hour: 1.0,
            count: 1,
        }),
    )]);
    let mut prices = Prices {
        gpus,
        ..Prices::default()
    };
    let call = record("gpt-4.1", 1_000_000, 0);
    let with_gpu = DirectCosts {
        gpu: Some(0.25),
        reported: Some(9.0),
    };
    let share = |prices: &Prices| prices.cost(&call, with_gpu);
    assert_eq!(share(&prices), Ok((0.25, CostSource::Gpu)));
    prices.configured = vec![price("gpt-4.1", None, 3.0)];
    assert_eq!(share(&prices), Ok((3.0, CostSource::Configured)));
}

#[test]
fn what_streamed_before_a_bad_end_costs_and_what_was_refused_does_not() {
    let prices = Prices::default();
    let mut call = record("gpt-4.1", 0, 0);
    call.tokens.reported = Usage::default();
    call.tokens.normalised.input = Some(1_000_000);
    call.tokens.normalised.output = Some(1_000_000);
    call.outcome = Outcome::UpstreamReset;
    assert_eq!(cost(&prices, &call), Some((10.0, CostSource::List)));
    call.outcome = Outcome::HttpError;
    call.tokens.normalised.output = None;
    assert_eq!(cost(&prices, &call), None);
}

#[test]
fn vectors_cost_their_input_alone() {
    let prices = Prices::default();
    let mut call = record("text-embedding-3-small", 1_000_000, 0);
    call.dialect = Dialect::Embeddings;
    call.tokens.reported.output = None;
    assert_eq!(cost(&prices, &call), Some((0.02, CostSource::List)));
    call.status = None;
    call.tokens.reported = Usage::default();
    assert_eq!(cost(&prices, &call), None, "nothing came");
}

#[test]
fn what_the_provider_says_goes_before_the_list_and_behind_what_is_configured() {
    let call = record("gpt-4.1", 1_000_000, 0);
    let said = DirectCosts {
        reported: Some(0.125),
        gpu: None,
    };
    let mut prices = Prices::default();
    assert_eq!(prices.cost(&call, said), Ok((0.125, CostSource::Reported)));
    prices.configured = vec![price("gpt-4.1", None, 3.0)];
    assert_eq!(prices.cost(&call, said), Ok((3.0, CostSource::Configured)));
}

#[test]
fn a_gateway_writes_the_vendor_before_the_name() {
    let cost_at = |host: &str, model: &str| {
        let mut call = record(model, 1_000_000, 0);
        call.endpoint = Some(format!("{host}:443"));
        cost(&Prices::default(), &call).map(|found| found.0)
    };
    let at = |model| cost_at("openrouter.ai", model);
    assert_eq!(at("openai/gpt-4.1"), Some(2.0));
    assert_eq!(at("anthropic/claude-opus-4.8"), Some(5.0));
    assert_eq!(at("x-ai/grok-4.7"), Some(4.0), "above 200,000");
    assert_eq!(at("mistralai/mistral-large-2512"), Some(0.5));
    assert_eq!(at("openai/gpt-4.1:free"), None);
    assert_eq!(at("somebody/gpt-4.1"), None);
    assert_eq!(
        cost_at("api.together.xyz", "mistralai/mistral-large-2512"),
        None,
        "another's price for the same weights"
    );
    assert_eq!(cost_at("api.groq.com", "openai/gpt-oss-120b"), Some(0.15));
}

#[test]
fn bedrock_and_vertex_write_models_in_their_own_way() {
    let at =
        |model: &str| cost(&Prices::default(), &record(model, 1_000_000, 0)).map(|found| found.0);
    let haiku = "anthropic.claude-haiku-4-5-20251001-v1:0";
    assert_eq!(at(&format!("global.{haiku}")), Some(1.0));
    assert_eq!(at(&format!("us.{haiku}")), Some(1.1));
    assert_eq!(at("amazon.nova-pro-v1:0"), Some(0.8));
    assert_eq!(at("claude-haiku-4-5@20251001"), Some(1.0));
}

#[test]
fn a_price_can_depend_on_the_hour() {
    let at = |started_at: &str| {
        let mut call = record("deepseek-v4-pro", 1_000_000, 0);
        call.endpoint = Some("api.deepseek.com:443".to_owned());
        call.started_at = started_at.parse().expect(started_at);
        cost(&Prices::default(), &call).map(|found| found.0)
    };
    assert_eq!(at("2026-11-23T00:59:59.999Z"), Some(0.66));
    assert_eq!(at("2026-11-23T01:00:00.000Z"), Some(1.32));
    assert_eq!(at("2026-11-23T04:00:00.000Z"), Some(0.66));
    assert_eq!(at("2026-11-23T09:59:59.999Z"), Some(1.32));
}

/// A call of this model with 10,000 input tokens, 100 output tokens and these details.
fn with_details(model: &str, details: UsageDetails) -> CallRecord {
    let mut call = record(model, 10_000, 100);
    call.tokens.reported.details = details;
    call
}

#[test]
fn what_a_list_price_does_not_cover_is_priced_apart_or_has_no_cost() {
    let none = UsageDetails::default();
    let cost = |call: &CallRecord| {
        let cost = Prices::default().cost(call, DirectCosts::default());
        cost.map(|(usd, _)| (usd * 1e9).round() / 1e9)
    };
    let audio = UsageDetails {
        audio_input: Some(10_000),
        ..none
    };
    // The price is 0.3 USD per million tokens of text, and 1 USD per million of audio.
    assert_eq!(cost(&with_details("gemini-2.5-flash", none)), Ok(0.003_25));
    assert_eq!(cost(&with_details("gemini-2.5-flash", audio)), Ok(0.010_25));
    let cached = UsageDetails {
        cached_audio_input: Some(10_000),
        ..audio
    };
    let mut call = with_details("gemini-2.5-flash", cached);
    call.tokens.reported.cached_input = Some(10_000);
    assert_eq!(cost(&call), Ok(0.001_25));
    let unknown = with_details("gemini-3.5-flash", audio);
    assert_eq!(cost(&unknown), Err(CostUnavailable::Modality));
    let drawn = UsageDetails {
        image_output: Some(90),
        ..none
    };
    let drawn = with_details("gemini-2.5-flash", drawn);
    assert_eq!(cost(&drawn), Err(CostUnavailable::Modality));

    let searched = UsageDetails {
        searches: Some(3),
        ..none
    };
    let plain = cost(&with_details("claude-sonnet-4-6", none)).expect("a price");
    let more = cost(&with_details("claude-sonnet-4-6", searched)).expect("a price");
    assert!((more - plain - 0.03).abs() < 1e-9, "{more} {plain}");
    let other = cost(&with_details("gpt-5", searched));
    assert_eq!(other, Err(CostUnavailable::HostedTools));

    let regional = UsageDetails {
        regional: Some(true),
        ..none
    };
    let there = cost(&with_details("claude-sonnet-4-6", regional)).expect("a price");
    assert!((there - 1.1 * plain).abs() < 1e-9, "{there} {plain}");
    let mut vertex = with_details("claude-sonnet-4-6", none);
    for (host, factor) in [
        ("us-east5-aiplatform.googleapis.com:443", 1.1),
        ("aiplatform.googleapis.com:443", 1.0),
    ] {
        vertex.endpoint = Some(host.to_owned());
        let there = cost(&vertex).expect("a price");
        assert!((there - factor * plain).abs() < 1e-9, "{host}: {there}");
    }
    let mut resident = with_details("gpt-5", none);
    resident.endpoint = Some("eu.api.openai.com:443".to_owned());
    assert_eq!(cost(&resident), Err(CostUnavailable::Region));
}

#[test]
fn billed_units_decide_the_cost_where_there_are_any() {
    let call = with_details(
        "gpt-4.1",
        UsageDetails {
            billed_input: Some(1_000),
            billed_output: Some(50),
            ..UsageDetails::default()
        },
    );
    let usd = (1_000.0 * 2.0 + 50.0 * 8.0) / 1e6;
    let should = Some((usd, CostSource::List));
    assert_eq!(cost(&Prices::default(), &call), should);
}
