//! The scenarios that the command line selects.

use crate::neighbours::Neighbours;
use crate::options::{Options, Scene};
use crate::recorded_files::dialects;
use crate::scenario::{AgentProtocol, BackendProtocol, Pace, Scenario, Setup, Work};

const AGENTS: usize = 8;
const MODELS: u32 = 100;

impl Options {
    pub fn groups(&self) -> Vec<Vec<Scenario>> {
        if self.noisy_neighbours {
            let scenarios = Neighbours::ALL.map(|kind| Work::Noisy(kind).into());
            return vec![scenarios.into()];
        }
        let mut groups = Vec::new();
        for &workers in &self.workers {
            for mut group in self.groups_of_scenes() {
                for scenario in &mut group {
                    scenario.setup.workers = workers;
                }
                groups.push(group);
            }
        }
        groups
    }

    fn groups_of_scenes(&self) -> Vec<Vec<Scenario>> {
        let mut groups = Vec::new();
        let mut add = |scene: Scene, scenarios: Vec<Scenario>| {
            if self.has(scene) {
                groups.extend(scenarios.into_iter().map(|scenario| vec![scenario]));
            }
        };
        let tls = self.over(AgentProtocol::Http1, BackendProtocol::Tls);
        add(Scene::Short, vec![short_calls()]);
        add(Scene::FirstToken, self.first_tokens());
        add(Scene::Paced, self.paced());
        add(Scene::FlatOut, flat_out());
        add(Scene::Recorded, self.recorded());
        add(Scene::Tls, tls);
        add(Scene::Http2, self.http2());
        if self.has(Scene::Metrics) {
            groups.push([false, true].map(scraped).into());
        }
        groups
    }

    fn first_tokens(&self) -> Vec<Scenario> {
        let calls = if self.long { 5000 } else { 2000 };
        let work = [1, AGENTS].map(|agents| Work::FirstToken { agents, calls });
        work.map(Scenario::from).into()
    }

    fn paced(&self) -> Vec<Scenario> {
        let per_call = match (self.per_call.is_empty(), self.long) {
            (true, true) => &[0, 100, 2000],
            (true, false) => &[100][..],
            _ => &self.per_call[..],
        };
        let mut paces = Vec::new();
        for &streams in &self.streams {
            let usual = match streams {
                ..=50 => 100,
                51..=500 => 50,
                _ => 20,
            };
            paces.extend(per_call.iter().map(|&events| Pace {
                streams,
                per_second: self.pace.unwrap_or(usual),
                per_call: (events > 0).then_some(events),
            }));
        }
        paces
            .into_iter()
            .map(|pace| Work::Paced(pace).into())
            .collect()
    }

    fn recorded(&self) -> Vec<Scenario> {
        let dialects: Vec<Option<String>> = match self.dialects.as_slice() {
            [] => vec![None],
            [all] if all == "all" => dialects().map(|name| Some(name.to_owned())).collect(),
            some => some.iter().cloned().map(Some).collect(),
        };
        let mut scenarios = Vec::new();
        for dialect in dialects {
            for repeated in [false, true] {
                for per_write in [1, 48] {
                    let work = Work::Recorded {
                        dialect: dialect.clone(),
                        per_write,
                        repeated,
                    };
                    scenarios.push(work.into());
                }
            }
        }
        scenarios
    }

    fn http2(&self) -> Vec<Scenario> {
        use BackendProtocol as Backend;
        let mut scenarios = self.over(AgentProtocol::Http2, Backend::Http1);
        scenarios.extend(self.over(AgentProtocol::Http1, Backend::Http2));
        if self.long {
            scenarios.extend(self.over(AgentProtocol::Http2, Backend::Http2));
        }
        scenarios
    }

    fn over(&self, agents: AgentProtocol, backend: BackendProtocol) -> Vec<Scenario> {
        let setup = Setup {
            agents,
            backend,
            ..Setup::default()
        };
        let paced = self
            .paced()
            .into_iter()
            .take(if self.long { usize::MAX } else { 1 });
        let scenarios = [short_calls()].into_iter().chain(paced);
        let with_setup = scenarios.map(|scenario| Scenario {
            setup: setup.clone(),
            ..scenario
        });
        with_setup.collect()
    }
}

pub fn short_calls() -> Scenario {
    let work = Work::Short {
        agents: AGENTS,
        silent: 0,
    };
    work.into()
}

fn flat_out() -> Vec<Scenario> {
    let work = [1, 48].map(|per_write| Work::FlatOut {
        streams: 32,
        per_write,
    });
    work.map(Scenario::from).into()
}

fn scraped(scraped: bool) -> Scenario {
    Scenario {
        models: MODELS,
        ..Work::Scraped(scraped).into()
    }
}
