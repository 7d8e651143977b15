//! Names of keys in the quota store. Names of sessions, users and API keys appear as digests: the first 32 hexadecimal
//! digits of their SHA-256. This hides names from readers of the quota store, but does not protect against guessing a
//! name and hashing it.

use sha2::{Digest, Sha256};
use tokengauge_accounting::cost::budget::SpendingId;
use tokengauge_accounting::quota::LimitId;

pub(crate) fn limit(prefix: &str, id: &LimitId) -> String {
    let digest = digest(&["limit", &id.quota, &id.name]);
    format!(
        "{prefix}limit:{}:{}:{digest}",
        id.quota,
        id.resource.as_str()
    )
}

pub(crate) fn spending(prefix: &str, id: &SpendingId) -> String {
    let digest = digest(&["spending", &id.budget, &id.name]);
    let (begin, end) = id.period;
    format!(
        "{prefix}spent:{}:{}:{begin}-{end}:{digest}",
        id.budget, id.per
    )
}

pub(crate) fn alert(prefix: &str, receiver: &str, alert: &str) -> String {
    format!("{prefix}alert:{}", digest(&["alert", receiver, alert]))
}

fn digest(parts: &[&str]) -> String {
    let mut digest = Sha256::new();
    digest.update(b"tokengauge quota store");
    for part in parts {
        digest.update(b"\0");
        digest.update(part.as_bytes());
    }
    let digest = digest.finalize();
    let bytes = digest.iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokengauge_accounting::quota::Resource;

    #[test]
    fn a_key_names_the_limit_and_hides_whose_it_is() {
        let id = |quota: &str, name: &str| LimitId {
            quota: quota.into(),
            resource: Resource::Tokens,
            name: name.into(),
        };
        let key = limit("p:", &id("minute", "ada@example.org"));
        assert!(key.starts_with("p:limit:minute:tokens:"), "{key}");
        assert!(!key.contains("ada"), "{key}");
        assert_eq!(key, limit("p:", &id("minute", "ada@example.org")));
        assert_ne!(key, limit("p:", &id("minute", "bob@example.org")));
        assert_ne!(key, limit("p:", &id("other", "ada@example.org")));
    }

    #[test]
    fn periods_have_keys_of_their_own() {
        let id = |begin: u64| SpendingId {
            budget: "day".into(),
            per: "user",
            period: (begin, begin + 60),
            name: "ada".into(),
        };
        assert_ne!(spending("p:", &id(0)), spending("p:", &id(60)));
        assert!(!spending("p:", &id(0)).contains("ada"));
    }
}
