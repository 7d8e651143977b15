//! The caller as quotas and budgets see it: its names as far as they are known, and whether a limit
//! applies to the call.

use crate::observer::UnreadableBody;
use crate::selector::Selector;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// The name under which a limit counts all calls that it cannot distinguish: calls without a name,
/// calls whose body cannot be read, and calls with names beyond the number that the limit
/// remembers.
pub const SHARED: &str = "(shared)";

/// An attribute of a caller, such as its session or model, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownName<'a> {
    /// The attribute has this value.
    Named(&'a str),
    /// The attribute has several values, and the call counts for each.
    Several(&'a [String]),
    /// The request does not name the attribute.
    Absent,
    /// The body may name the attribute, but was not read or cannot be read.
    Unread,
}

impl<'a> From<Option<&'a str>> for KnownName<'a> {
    fn from(name: Option<&'a str>) -> Self {
        name.map_or(KnownName::Absent, KnownName::Named)
    }
}

/// The attributes of a call that limits depend on.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// Name of the route.
    pub route: &'a str,
    /// Name of the upstream.
    pub upstream: &'a str,
    /// The workload.
    pub workload: KnownName<'a>,
    /// The requested model.
    pub model: KnownName<'a>,
    /// The agent.
    pub agent: KnownName<'a>,
    /// The session.
    pub session: KnownName<'a>,
    /// The user.
    pub user: KnownName<'a>,
    /// The team that pays for the call.
    pub team: KnownName<'a>,
    /// The cost center that pays for the call.
    pub cost_center: KnownName<'a>,
    /// The tenant for whom the call is made.
    pub tenant: KnownName<'a>,
    /// Digests of the provider keys in the request. The keys themselves are not included.
    pub keys: &'a [String],
    /// Whether the request has no body, such as a request for a list of models.
    pub bodiless: bool,
    /// Why the body cannot be read, if it cannot.
    pub unread: Option<UnreadableBody>,
}

/// A budget, and the name under which a call counts towards it. Decided before the call is
/// forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// Name of the budget.
    pub budget: Arc<str>,
    /// Name under which the call counts.
    pub name: Box<str>,
}

/// The attribute by which a limit counts calls. Each name has its own limit.
#[derive(Clone, Copy, Debug)]
pub enum LimitKey<'a> {
    /// A name that does not depend on the body.
    Fixed(&'a str),
    /// A name that the body may determine.
    Name(KnownName<'a>),
    /// Each of these names.
    EachOf(&'a [String]),
}

impl<'a> LimitKey<'a> {
    /// The names under which a call counts if its body cannot be read.
    pub fn without_body(self) -> Vec<&'a str> {
        match self {
            LimitKey::Fixed(name) | LimitKey::Name(KnownName::Named(name)) => vec![name],
            LimitKey::EachOf(names) | LimitKey::Name(KnownName::Several(names))
                if !names.is_empty() =>
            {
                names.iter().map(String::as_str).collect()
            }
            _ => vec![SHARED],
        }
    }
}

/// Whether a limit applies to a call, and under which names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitMatch<'a> {
    /// The limit does not apply.
    Excluded,
    /// The limit counts the call under each of these names.
    Names(Vec<&'a str>),
    /// The result depends on the body, which was not read or cannot be read.
    DependsOnBody,
}

impl<'a> Caller<'a> {
    /// Whether a limit for calls that match `select`, counted by `key`, applies to this call.
    /// Limits by name do not apply to a call without a body and without the name, such as a probe.
    /// Any other call without the name counts under [`SHARED`].
    pub fn limit_match(&self, select: &Selector, key: LimitKey<'a>) -> LimitMatch<'a> {
        let Some(certain) = self.selected(select) else {
            return LimitMatch::Excluded;
        };
        let names = match key {
            LimitKey::Fixed(name) | LimitKey::Name(KnownName::Named(name)) => vec![name],
            LimitKey::EachOf(names) | LimitKey::Name(KnownName::Several(names))
                if !names.is_empty() =>
            {
                names.iter().map(String::as_str).collect()
            }
            LimitKey::Name(KnownName::Unread) => return LimitMatch::DependsOnBody,
            _ if self.bodiless => return LimitMatch::Excluded,
            _ => vec![SHARED],
        };
        if certain {
            LimitMatch::Names(names)
        } else {
            LimitMatch::DependsOnBody
        }
    }

    /// `Some(false)` if only the body can tell whether `select` matches. `None` if `select` does
    /// not match.
    fn selected(&self, select: &Selector) -> Option<bool> {
        let is = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|w| w == name);
        if !is(&select.route, self.route) || !is(&select.upstream, self.upstream) {
            return None;
        }
        let mut certain = true;
        let mut means = |known: KnownName<'_>, fits: &dyn Fn(&str) -> bool| match known {
            KnownName::Named(name) => fits(name),
            KnownName::Several(names) => names.iter().any(|name| fits(name)),
            KnownName::Absent => false,
            KnownName::Unread => {
                certain = false;
                true
            }
        };
        let workload = select.workload.as_ref();
        let model = select.model.as_ref();
        let agent = select.agent.as_ref();
        let is_payer = |wanted: &Option<String>, name: KnownName<'_>| {
            wanted
                .as_deref()
                .is_none_or(|w| name == KnownName::Named(w))
        };
        if !is_payer(&select.team, self.team)
            || !is_payer(&select.cost_center, self.cost_center)
            || !is_payer(&select.tenant, self.tenant)
        {
            return None;
        }
        let meant = workload.is_none_or(|wanted| means(self.workload, &|name| name == wanted))
            && model.is_none_or(|wanted| means(self.model, &|name| wanted.matches(name)))
            && agent.is_none_or(|wanted| means(self.agent, &|name| wanted.matches(name)));
        meant.then_some(certain)
    }
}

/// Whether the body may decide if a call matches `select`.
pub fn depends_on_bodies(select: &Selector) -> bool {
    select.model.is_some() || select.workload.is_some() || select.agent.is_some()
}

/// How a limit that depends on the body treats a call whose body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnreadable {
    /// Refuse the call with status 422.
    Refuse,
    /// Apply the limit, under [`SHARED`] if the call has no name.
    Count,
}

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Calls beyond the limit are refused.
    #[default]
    Enforce,
    /// Calls beyond the limit are forwarded, but counted.
    Shadow,
}

/// The refusal of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// One sentence for the log of the agent.
    pub message: String,
    /// How long to wait before a retry. `None` if retrying the same request cannot succeed.
    pub retry_after: Option<Duration>,
    /// Why the body could not be read, if that is the reason for the refusal.
    pub unread: Option<UnreadableBody>,
}

const MEMORY_AGAIN: Duration = Duration::from_secs(1);

impl Refusal {
    /// Adds to the message that the call counts under [`SHARED`] only because memory was missing,
    /// if `unread` says so.
    pub fn for_lack_of_memory(self, unread: Option<UnreadableBody>) -> Refusal {
        if unread != Some(UnreadableBody::NoMemory) {
            return self;
        }
        Refusal {
            message: format!(
                "{} (the call counts against this limit because {})",
                self.message,
                UnreadableBody::NoMemory
            ),
            retry_after: Some(MEMORY_AGAIN),
            unread,
        }
    }

    /// The refusal of a call whose body cannot be read although the limit `what` depends on it.
    pub fn unreadable(what: &str, unread: Option<UnreadableBody>) -> Refusal {
        let why = unread.unwrap_or(UnreadableBody::Malformed);
        let message = format!(
            "{what} of this proxy depends on the request body, but {why}; or ask the operator of the proxy to set `on_unreadable = \"count\"`"
        );
        Refusal {
            message,
            retry_after: (why == UnreadableBody::NoMemory).then_some(MEMORY_AGAIN),
            unread: Some(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::Pattern;

    fn caller() -> Caller<'static> {
        Caller {
            route: "r",
            upstream: "u",
            workload: KnownName::Absent,
            model: KnownName::Named("big-1"),
            agent: KnownName::Absent,
            session: KnownName::Absent,
            user: KnownName::Absent,
            team: KnownName::Named("search"),
            cost_center: KnownName::Absent,
            tenant: KnownName::Absent,
            keys: &[],
            bodiless: false,
            unread: None,
        }
    }

    #[test]
    fn an_unread_name_decides_nothing_but_what_is_known_does() {
        let big = Selector {
            model: Some(Pattern::new("big-*")),
            ..Selector::default()
        };
        let unread = Caller {
            model: KnownName::Unread,
            ..caller()
        };
        assert_eq!(
            caller().limit_match(&big, LimitKey::Fixed("all")),
            LimitMatch::Names(vec!["all"])
        );
        assert_eq!(
            unread.limit_match(&big, LimitKey::Fixed("all")),
            LimitMatch::DependsOnBody
        );
        let elsewhere = Selector {
            route: Some("other".to_owned()),
            ..big.clone()
        };
        assert_eq!(
            unread.limit_match(&elsewhere, LimitKey::Fixed("all")),
            LimitMatch::Excluded
        );
        let of_agent = Selector {
            agent: Some(Pattern::new("*")),
            ..big
        };
        assert_eq!(
            unread.limit_match(&of_agent, LimitKey::Fixed("all")),
            LimitMatch::Excluded
        );
        let by_model = LimitKey::Name(unread.model);
        assert_eq!(
            unread.limit_match(&Selector::default(), by_model),
            LimitMatch::DependsOnBody
        );
        assert_eq!(by_model.without_body(), [SHARED]);
    }

    #[test]
    fn who_pays_is_known_before_the_body_is() {
        let of = |team: &str| Selector {
            team: Some(team.to_owned()),
            ..Selector::default()
        };
        let by_team = LimitKey::Name(caller().team);
        assert_eq!(
            caller().limit_match(&of("search"), by_team),
            LimitMatch::Names(vec!["search"])
        );
        assert_eq!(
            caller().limit_match(&of("ads"), by_team),
            LimitMatch::Excluded
        );
    }

    #[test]
    fn who_names_nobody_shares_but_for_a_request_without_a_body() {
        let probe = Caller {
            bodiless: true,
            ..caller()
        };
        let all = Selector::default();
        for key in [LimitKey::Name(KnownName::Absent), LimitKey::EachOf(&[])] {
            assert_eq!(
                caller().limit_match(&all, key),
                LimitMatch::Names(vec![SHARED])
            );
            assert_eq!(probe.limit_match(&all, key), LimitMatch::Excluded);
        }
        let keys = ["one".to_owned(), "two".to_owned()];
        let each = probe.limit_match(&all, LimitKey::EachOf(&keys));
        assert_eq!(each, LimitMatch::Names(vec!["one", "two"]));
    }
}
