//! Settings that each process counts separately, so that several replicas allow more.

use super::Config;
use tokengauge_accounting::sharing::OnError;
use tokengauge_core::caller::Mode;

const THROUGH: &str = "each replica counts separately, so N replicas allow N times as much";

impl Config {
    /// One sentence for each limit and receiver, for operators of several replicas.
    pub fn of_each_replica(&self) -> Vec<String> {
        let shared = self.quota_store.as_ref();
        let shared = shared.is_some_and(|settings| settings.sharing.mode == Mode::Enforce);
        let enforced = self
            .quotas
            .iter()
            .filter(|quota| quota.mode == Mode::Enforce && !shared);
        let quotas = enforced.map(|quota| format!("quota {}: {THROUGH}", quota.name));
        let rate = self.limits.requests_per_minute;
        let rate = rate.map(|_| format!("limits.requests_per_minute: {THROUGH}"));
        let blocking = self
            .budgets
            .iter()
            .filter(|budget| budget.block && budget.mode == Mode::Enforce && !shared);
        let budgets = blocking.map(|budget| {
            format!(
                "budget {}: each replica counts separately, so N replicas block at N times the amount or later",
                budget.name
            )
        });
        let receivers = self.receivers.iter().filter(|_| self.quota_store.is_none());
        let receivers = receivers.map(|receiver| {
            let again = "each replica evaluates only its own calls";
            format!(
                "notify {}: {again}, so N replicas may send an alert N times",
                receiver.name
            )
        });
        let alone = self.quota_store.as_ref().filter(|settings| {
            settings.sharing.on_error == OnError::Local && settings.sharing.replicas.get() == 1
        });
        let alone = alone.map(|_| {
            "quota_store: while the quota store does not answer, each replica admits the whole limit, because `replicas` \
             is 1; set `replicas` to the number of replicas"
                .to_owned()
        });
        rate.into_iter()
            .chain(alone)
            .chain(quotas)
            .chain(budgets)
            .chain(receivers)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn every_limit_and_receiver_says_what_it_means_with_several_replicas() {
        let text = r#"
            [[upstream]]
            name = "u"
            url = "http://127.0.0.1:1"
            [[route]]
            upstream = "u"
            [[quota]]
            name = "minutes"
            requests_per_minute = 5
            [[budget]]
            name = "hard"
            usd = 5.0
            period = "1d"
            block = true
            [[quota]]
            name = "tried"
            requests_per_minute = 5
            mode = "shadow"
            [limits]
            requests_per_minute = 5
            [[budget]]
            name = "soft"
            usd = 5.0
            period = "1d"
            [[notify]]
            name = "oncall"
            kind = "webhook"
            url = "http://127.0.0.1:2/"
        "#;
        let shared = |keys: &str| {
            let table = format!("[quota_store]\nurl = \"redis://valkey\"\n{keys}{text}");
            let config = Config::parse(&table, "test").expect("valid");
            config.of_each_replica()
        };
        let of_process = "limits.requests_per_minute: each replica counts";
        let said = shared("");
        assert!(said[0].starts_with(of_process), "{said:?}");
        assert!(said[1].contains("because `replicas` is 1"), "{said:?}");
        for keys in ["replicas = 5\n", "on_error = \"closed\"\n"] {
            let said = shared(keys);
            assert_eq!(said.len(), 1, "{said:?}");
            assert!(said[0].starts_with(of_process), "{said:?}");
        }
        let config = Config::parse(text, "test").expect("valid");
        let said = config.of_each_replica();
        let named: Vec<_> = said
            .iter()
            .filter_map(|one| one.split(':').next())
            .collect();
        assert_eq!(
            named,
            [
                "limits.requests_per_minute",
                "quota minutes",
                "budget hard",
                "notify oncall"
            ]
        );
    }
}
