//! Facts about a call from its body, including the names at the configured paths.

use super::rules::Rules;
use tokengauge_core::call::{BodyNames, Dialect, RequestFacts};
use tokengauge_core::observer::UnreadableBody;
use tokengauge_wire as wire;

pub fn request_facts(dialect: Dialect, rules: &Rules, body: &[u8]) -> Option<RequestFacts> {
    let mut facts = wire::request_facts(dialect, body)?;
    facts.configured = configured(rules, body);
    Some(facts)
}

pub(crate) struct StrictFacts {
    pub(crate) facts: RequestFacts,
    pub(crate) models: Vec<String>,
    pub(crate) unread: Option<UnreadableBody>,
}

/// Reads the facts of a body on which a limit depends.
///
/// # Errors
/// The reason why it cannot be read, for example because upstreams could read it differently.
pub(crate) fn strict_facts(
    dialect: Dialect,
    rules: &Rules,
    body: &[u8],
) -> Result<StrictFacts, UnreadableBody> {
    let kinds = [&rules.session, &rules.agent, &rules.user];
    let paths = kinds.iter().flat_map(|kind| &kind.paths);
    let configured: Vec<_> = paths.map(|path| path.first()).collect();
    let differences = wire::differences(body, &configured)?;
    let unread = if differences.model {
        UnreadableBody::SeveralModels
    } else {
        UnreadableBody::Malformed
    };
    let facts = request_facts(dialect, rules, body).ok_or(unread)?;
    let mut models: Vec<_> = facts.model.iter().cloned().collect();
    models.extend(differences.names);
    let takes_one =
        wire::DIALECTS.registration(dialect).needs_model && !differences.modelless.of(dialect);
    let nameless = models.is_empty() && takes_one;
    let unread = if differences.model {
        Some(UnreadableBody::SeveralModels)
    } else {
        nameless.then_some(UnreadableBody::NoModel)
    };
    Ok(StrictFacts {
        facts,
        models,
        unread,
    })
}

fn configured(rules: &Rules, body: &[u8]) -> Option<Box<BodyNames>> {
    let kinds = [&rules.session, &rules.agent, &rules.user];
    let paths: Vec<_> = kinds.iter().flat_map(|kind| &kind.paths).collect();
    if paths.is_empty() {
        return None;
    }
    let mut found = wire::pick(&paths, body).into_iter();
    let [session, agent, user] = kinds.map(|kind| {
        let of_kind: Vec<_> = found.by_ref().take(kind.paths.len()).collect();
        of_kind.into_iter().flatten().next()
    });
    Some(Box::new(BodyNames {
        session,
        agent,
        user,
    }))
}
