//! Embeddings and rerankings of every provider. The numbers follow from the seed.

use crate::request::SimRequest;
use crate::route::Shape;
use crate::text_gen::Random;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

/// The length of a vector if the request does not set it.
const DIMENSIONS: u64 = 64;

const MOST_DIMENSIONS: u64 = 4096;

/// The response to a request for embeddings or a ranking; `None` for other shapes.
pub fn body(shape: Shape, asked: &SimRequest, model: &str, random: &mut Random) -> Option<Value> {
    let body = &asked.body;
    let input = asked.input_tokens;
    Some(match shape {
        Shape::OpenaiEmbeddings => openai(body, model, input, random),
        Shape::CohereEmbed => {
            let texts = inputs(&body["texts"]);
            let vectors: Vec<Value> = texts.iter().map(|_| vector(body, random).into()).collect();
            json!({
                "id": format!("{:016x}", random.bits()), "texts": texts,
                "embeddings": {"float": vectors}, "response_type": "embeddings_by_type",
                "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": input}},
            })
        }
        Shape::GeminiEmbed { batch: false } => {
            json!({"embedding": {"values": vector(body, random)}})
        }
        Shape::GeminiEmbed { batch: true } => {
            let many = body["requests"].as_array().map_or(1, Vec::len);
            let all: Vec<Value> = (0..many)
                .map(|_| json!({"values": vector(body, random)}))
                .collect();
            json!({"embeddings": all})
        }
        Shape::OllamaEmbed { legacy: true } => json!({"embedding": vector(body, random)}),
        Shape::OllamaEmbed { legacy: false } => {
            let texts = inputs(&body["input"]);
            let vectors: Vec<Value> = texts.iter().map(|_| vector(body, random).into()).collect();
            json!({
                "model": model, "embeddings": vectors, "total_duration": 1_000_000,
                "load_duration": 100_000, "prompt_eval_count": input,
            })
        }
        Shape::Rerank => rerank(body, model, input, random),
        _ => return None,
    })
}

fn openai(body: &Value, model: &str, input: u64, random: &mut Random) -> Value {
    let base64 = body["encoding_format"] == "base64";
    let data: Vec<Value> = inputs(&body["input"])
        .iter()
        .enumerate()
        .map(|(index, _)| {
            let vector = vector(body, random);
            let embedding = if base64 {
                packed(&vector).into()
            } else {
                Value::from(vector)
            };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let usage = json!({"prompt_tokens": input, "total_tokens": input});
    json!({"object": "list", "data": data, "model": model, "usage": usage})
}

fn rerank(body: &Value, model: &str, input: u64, random: &mut Random) -> Value {
    let documents = body["documents"].as_array().map_or(0, Vec::len);
    let mut scores: Vec<(usize, f64)> = (0..documents)
        .map(|index| (index, random.fraction()))
        .collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let top = body["top_n"].as_u64().map_or(documents, |n| n as usize);
    let results: Vec<Value> = scores
        .iter()
        .take(top)
        .map(|(index, score)| json!({"index": index, "relevance_score": score}))
        .collect();
    json!({
        "id": format!("{:016x}", random.bits()), "model": model, "results": results,
        "meta": {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}},
        "usage": {"total_tokens": input},
    })
}

fn inputs(value: &Value) -> Vec<Value> {
    match value {
        // One text as token ids.
        Value::Array(items) if items.first().is_some_and(Value::is_number) => vec![value.clone()],
        Value::Array(items) => items.clone(),
        Value::Null => Vec::new(),
        one => vec![one.clone()],
    }
}

fn vector(body: &Value, random: &mut Random) -> Vec<f32> {
    let asked = ["dimensions", "output_dimension", "outputDimensionality"]
        .iter()
        .find_map(|key| body[*key].as_u64());
    let length = asked.unwrap_or(DIMENSIONS).clamp(1, MOST_DIMENSIONS);
    (0..length)
        .map(|_| (random.fraction() - 0.5) as f32)
        .collect()
}

fn packed(vector: &[f32]) -> String {
    STANDARD.encode(
        vector
            .iter()
            .flat_map(|number| number.to_le_bytes())
            .collect::<Vec<u8>>(),
    )
}
