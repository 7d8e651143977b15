//! Sums of each tool over prompts: tokens of definitions and results, calls, failures and waiting time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokengauge_core::prompt::{OTHER_TOOLS, PromptTool};

/// Tools that are told apart. The rest are summed up under the name `other`.
pub(crate) const MAX_TOOLS: usize = 10_000;

/// Where prompts went, which decides their price.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromptPlace {
    pub upstream: String,
    pub model: Option<String>,
    pub endpoint: Option<String>,
}

/// The sums of a tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct PromptToolSums {
    /// Calls whose prompt had the definition of the tool.
    pub prompts: u64,
    /// Tokens of the definition, added up over these calls.
    pub schema_tokens: u64,
    /// Tokens of results that were new in a call.
    pub new_result_tokens: u64,
    /// Tokens of results that an earlier turn already had, added up over the calls that sent them
    /// again.
    pub resent_result_tokens: u64,
    /// Finished calls of the tool: results that were new.
    pub calls: u64,
    /// Finished calls of the tool whose result is marked as an error.
    pub failures: u64,
    /// Microseconds that agents waited for the tool. Tools that were called together share the time.
    #[serde(skip)]
    pub wait_us: u64,
}

impl PromptToolSums {
    fn of(tool: &PromptTool) -> PromptToolSums {
        PromptToolSums {
            prompts: u64::from(tool.schema > 0),
            schema_tokens: tool.schema,
            new_result_tokens: tool.new_results,
            resent_result_tokens: tool.resent_results,
            calls: tool.calls,
            failures: tool.failures,
            wait_us: 0,
        }
    }

    fn merge(&mut self, more: &PromptToolSums) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        add(&mut self.prompts, more.prompts);
        add(&mut self.schema_tokens, more.schema_tokens);
        add(&mut self.new_result_tokens, more.new_result_tokens);
        add(&mut self.resent_result_tokens, more.resent_result_tokens);
        add(&mut self.calls, more.calls);
        add(&mut self.failures, more.failures);
        add(&mut self.wait_us, more.wait_us);
    }
}

/// Sums of a tool over the prompts that went to one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptToolUse {
    pub place: Arc<PromptPlace>,
    pub tool: String,
    pub server: Option<String>,
    pub sums: PromptToolSums,
}

type OfName = Vec<(Option<String>, PromptToolSums)>;

/// Sums the tools of prompts.
#[derive(Debug, Default)]
pub struct PromptTools {
    places: HashMap<Arc<PromptPlace>, HashMap<String, OfName>>,
    known: usize,
}

impl PromptTools {
    /// Adds the tools of a prompt. `wait` is the tools that took the time before the call, and the
    /// time in microseconds.
    pub fn add(&mut self, place: &Arc<PromptPlace>, tools: &[PromptTool], wait: (&[&str], i64)) {
        let (waited_for, us) = wait;
        let share = us.max(0).unsigned_abs() / waited_for.len().max(1) as u64;
        for tool in tools {
            let mut sums = PromptToolSums::of(tool);
            if waited_for.contains(&tool.name.as_str()) {
                sums.wait_us = share;
            }
            self.put(place, (&tool.name, tool.server.as_deref()), &sums);
        }
    }

    fn put(
        &mut self,
        place: &Arc<PromptPlace>,
        (name, server): (&str, Option<&str>),
        sums: &PromptToolSums,
    ) {
        if !self.places.contains_key(place) {
            self.places.insert(Arc::clone(place), HashMap::new());
        }
        let Some(tools) = self.places.get_mut(place) else {
            return;
        };
        let same = |(known, _): &&mut (Option<String>, _)| known.as_deref() == server;
        let found = tools
            .get_mut(name)
            .and_then(|all| all.iter_mut().find(same));
        if let Some((_, known)) = found {
            return known.merge(sums);
        }
        self.known += 1;
        let (name, server) = match self.known {
            known if known <= MAX_TOOLS => (name, server),
            _ => (OTHER_TOOLS, None),
        };
        let of_name = tools.entry(name.to_owned()).or_default();
        match of_name
            .iter_mut()
            .find(|(known, _)| known.as_deref() == server)
        {
            Some((_, known)) => known.merge(sums),
            None => of_name.push((server.map(str::to_owned), *sums)),
        }
    }

    /// All sums, in no order.
    pub fn uses(self) -> Vec<PromptToolUse> {
        let mut uses = Vec::new();
        for (place, tools) in self.places {
            for (tool, of_name) in tools {
                uses.extend(of_name.into_iter().map(|(server, sums)| PromptToolUse {
                    place: Arc::clone(&place),
                    tool: tool.clone(),
                    server,
                    sums,
                }));
            }
        }
        uses
    }
}

/// Prices of input in US dollars per token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InputPrices {
    pub uncached: f64,
    pub cached: f64,
}

/// What input tokens cost, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct InputCost {
    /// The cost if no token comes from a prompt cache.
    pub uncached: f64,
    /// The cost if every token comes from a prompt cache.
    pub cached: f64,
}

impl InputCost {
    fn add(sum: &mut Option<InputCost>, tokens: u64, prices: InputPrices) {
        let sum = sum.get_or_insert_with(InputCost::default);
        sum.uncached += tokens as f64 * prices.uncached;
        sum.cached += tokens as f64 * prices.cached;
    }
}

/// What a tool costs.
#[derive(Clone, Debug, Default, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(rename = "PromptToolSums")]
pub struct PromptToolRow {
    /// Name of the tool.
    pub tool: String,
    /// Name of its MCP server, if it is known.
    pub server: Option<String>,
    #[serde(flatten)]
    pub sums: PromptToolSums,
    /// Seconds that agents waited for the tool. Tools that were called together share the time.
    pub seconds: f64,
    /// Cost of the definition in US dollars. `null` if no price is known.
    pub schema_usd: Option<InputCost>,
    /// Cost of new results in US dollars. `null` if no price is known.
    pub new_result_usd: Option<InputCost>,
    /// Cost of results that were sent again, in US dollars. `null` if no price is known.
    pub resent_result_usd: Option<InputCost>,
    /// Tokens without a known price.
    pub unpriced_tokens: u64,
}

impl PromptToolRow {
    /// Tokens of definitions and results.
    pub fn tokens(&self) -> u64 {
        let results = self.sums.new_result_tokens + self.sums.resent_result_tokens;
        self.sums.schema_tokens + results
    }

    fn add(&mut self, sums: &PromptToolSums, prices: Option<InputPrices>) {
        self.sums.merge(sums);
        let parts = [
            (&mut self.schema_usd, sums.schema_tokens),
            (&mut self.new_result_usd, sums.new_result_tokens),
            (&mut self.resent_result_usd, sums.resent_result_tokens),
        ];
        for (usd, tokens) in parts {
            match prices {
                Some(prices) => InputCost::add(usd, tokens, prices),
                None => self.unpriced_tokens += tokens,
            }
        }
    }
}

/// The tools with their costs, the ones with the most tokens first.
pub fn priced(
    mut uses: Vec<PromptToolUse>,
    prices: impl Fn(&PromptPlace) -> Option<InputPrices>,
) -> Vec<PromptToolRow> {
    // In a fixed order, so that sums of costs do not depend on the engine.
    uses.sort_by(|one, other| one.place.cmp(&other.place));
    let mut rows: BTreeMap<(String, Option<String>), PromptToolRow> = BTreeMap::new();
    for PromptToolUse {
        place,
        tool,
        server,
        sums,
    } in uses
    {
        let row = rows.entry((tool, server)).or_default();
        row.add(&sums, prices(&place));
    }
    let mut rows: Vec<PromptToolRow> = rows
        .into_iter()
        .map(|((tool, server), row)| PromptToolRow {
            tool,
            server,
            seconds: row.sums.wait_us as f64 / 1e6,
            ..row
        })
        .collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.tokens()));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(model: &str) -> Arc<PromptPlace> {
        Arc::new(PromptPlace {
            upstream: "u".to_owned(),
            model: Some(model.to_owned()),
            endpoint: None,
        })
    }

    fn tool(name: &str, schema: u64) -> PromptTool {
        PromptTool {
            name: name.to_owned(),
            schema,
            new_results: 10,
            resent_results: 100,
            calls: 2,
            failures: 1,
            ..PromptTool::default()
        }
    }

    #[test]
    fn a_tool_has_its_tokens_costs_and_its_share_of_the_time() {
        let mut tools = PromptTools::default();
        let prompt = [tool("a", 50), tool("b", 0)];
        tools.add(&place("m"), &prompt, (&["a", "b"], 3_000_001));
        tools.add(&place("m"), &prompt, (&[], 500));
        tools.add(&place("n"), &prompt[..1], (&["c"], 500));
        let prices = |place: &PromptPlace| {
            (place.model.as_deref() == Some("m")).then_some(InputPrices {
                uncached: 1e-3,
                cached: 1e-4,
            })
        };
        let rows = priced(tools.uses(), prices);
        let a = &rows[0];
        assert_eq!(
            (a.tool.as_str(), a.sums.prompts, a.sums.schema_tokens),
            ("a", 3, 150)
        );
        assert_eq!((a.sums.calls, a.sums.failures), (6, 3));
        assert_eq!(a.sums.wait_us, 1_500_000);
        assert_eq!(a.seconds, 1.5);
        let schema = a.schema_usd.expect("priced");
        assert!((schema.uncached - 0.1).abs() < 1e-12 && (schema.cached - 0.01).abs() < 1e-12);
        assert_eq!(a.unpriced_tokens, 160, "the model n has no price");
        assert_eq!((rows[1].tool.as_str(), rows[1].sums.prompts), ("b", 0));
    }

    #[test]
    fn tools_beyond_the_bound_become_other() {
        let mut tools = PromptTools::default();
        let place = place("m");
        for number in 0..MAX_TOOLS + 50 {
            tools.add(&place, &[tool(&format!("t{number}"), 1)], (&[], 0));
        }
        let rows = priced(tools.uses(), |_| None);
        assert_eq!(rows.len(), MAX_TOOLS + 1);
        let other = rows.iter().find(|row| row.tool == OTHER_TOOLS);
        assert_eq!(other.expect("a row").sums.prompts, 50);
    }

    #[test]
    fn the_same_name_on_two_servers_is_two_tools() {
        let mut tools = PromptTools::default();
        let of = |server: &str| PromptTool {
            server: Some(server.to_owned()),
            ..tool("search", 1)
        };
        tools.add(
            &place("m"),
            &[of("one"), of("two"), tool("search", 1)],
            (&[], 0),
        );
        assert_eq!(priced(tools.uses(), |_| None).len(), 3);
    }
}
