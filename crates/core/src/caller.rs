//! Who makes a call, as quotas and budgets see it: what is known of each name, and whether
//! a limit is for the call.

use crate::observer::UnreadableBody;
use crate::selector::Selector;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// The name under which a limit counts calls together that it cannot tell apart: those that
/// name nobody, those whose body cannot be read, and those of more names than it remembers.
pub const SHARED: &str = "(shared)";

/// What is known of one name of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownName<'a> {
    /// It has this one.
    Named(&'a str),
    /// It has all of these: any of them may be the one that counts.
    Several(&'a [String]),
    /// The call carries no such name.
    Absent,
    /// The body may tell, and has not been read or cannot be.
    Unread,
}

impl<'a> From<Option<&'a str>> for KnownName<'a> {
    fn from(name: Option<&'a str>) -> Self {
        name.map_or(KnownName::Absent, KnownName::Named)
    }
}

/// Who makes a call, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The route.
    pub route: &'a str,
    /// The upstream.
    pub upstream: &'a str,
    /// The workload.
    pub workload: KnownName<'a>,
    /// The model that is asked for.
    pub model: KnownName<'a>,
    /// The agent.
    pub agent: KnownName<'a>,
    /// The session.
    pub session: KnownName<'a>,
    /// The user.
    pub user: KnownName<'a>,
    /// What stands for the provider's keys; never a key itself.
    pub keys: &'a [String],
    /// Whether the request has no body, as one for a list of models.
    pub bodiless: bool,
    /// Why its body cannot be read, where that is so.
    pub unread: Option<UnreadableBody>,
}

/// The name under which a call counts for a budget, as that was decided before it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The budget.
    pub budget: Arc<str>,
    /// The name.
    pub name: Box<str>,
}

/// Who has a limit of their own.
#[derive(Clone, Copy, Debug)]
pub enum LimitKey<'a> {
    /// Whoever has this name, which no body decides.
    Fixed(&'a str),
    /// Whoever has this name.
    Name(KnownName<'a>),
    /// Each of these.
    EachOf(&'a [String]),
}

impl<'a> LimitKey<'a> {
    /// The names under which a call counts whose body cannot be read.
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

/// What a limit is to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitMatch<'a> {
    /// It is for other calls.
    Excluded,
    /// It counts the call under each of these names.
    Names(Vec<&'a str>),
    /// The body decides, and has not been read or cannot be.
    DependsOnBody,
}

impl<'a> Caller<'a> {
    /// What a limit of calls like `select`, one for each of `scope`, is to this call. One
    /// without a body that does not name itself, such as a probe, falls under no limit that
    /// is for each name; any other falls under [`SHARED`].
    pub fn limit_match(&self, select: &Selector, scope: LimitKey<'a>) -> LimitMatch<'a> {
        let Some(certain) = self.selected(select) else {
            return LimitMatch::Excluded;
        };
        let names = match scope {
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
        match certain {
            true => LimitMatch::Names(names),
            false => LimitMatch::DependsOnBody,
        }
    }

    /// Whether `select` means this call; `Some(false)` where only the body could tell.
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
        let meant = workload.is_none_or(|wanted| means(self.workload, &|name| name == wanted))
            && model.is_none_or(|wanted| means(self.model, &|name| wanted.matches(name)))
            && agent.is_none_or(|wanted| means(self.agent, &|name| wanted.matches(name)));
        meant.then_some(certain)
    }
}

/// Whether a body may tell if calls are like `select`.
pub fn depends_on_bodies(select: &Selector) -> bool {
    select.model.is_some() || select.workload.is_some() || select.agent.is_some()
}

/// What becomes of a call whose body cannot be read, where that decides on a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnreadable {
    /// It is refused with 422.
    Refuse,
    /// It counts as one that the limit is for, under [`SHARED`] where it has no name.
    Count,
}

/// Whether a limit refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// The limit refuses.
    #[default]
    Enforce,
    /// It only counts what it would have refused.
    Shadow,
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// One sentence for the agent's log.
    pub message: String,
    /// How long until it is worth a try; `None` where it never will be as it is.
    pub retry_after: Option<Duration>,
    /// Why its body could not be read, where it is refused for that.
    pub unread: Option<UnreadableBody>,
}

/// When there may be memory again.
const MEMORY_AGAIN: Duration = Duration::from_secs(1);

impl Refusal {
    /// Of a call that counts together with others since its body could not be read for
    /// `unread`: where it was memory that lacked, that is what it is refused for.
    pub fn for_lack_of_memory(self, unread: Option<UnreadableBody>) -> Refusal {
        if unread != Some(UnreadableBody::NoMemory) {
            return self;
        }
        Refusal {
            message: format!(
                "{} (it counts there since {})",
                self.message,
                UnreadableBody::NoMemory
            ),
            retry_after: Some(MEMORY_AGAIN),
            unread,
        }
    }

    /// Of a call whose body decides on the limit `what` and could not be read.
    pub fn unreadable(what: &str, unread: Option<UnreadableBody>) -> Refusal {
        let why = unread.unwrap_or(UnreadableBody::Malformed);
        let message = format!(
            "{what} of this proxy depends on what the request body says, and {why}; or ask its operator for `on_unreadable = \"count\"`"
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
    fn who_names_nobody_shares_but_for_a_request_without_a_body() {
        let probe = Caller {
            bodiless: true,
            ..caller()
        };
        let all = Selector::default();
        for scope in [LimitKey::Name(KnownName::Absent), LimitKey::EachOf(&[])] {
            assert_eq!(
                caller().limit_match(&all, scope),
                LimitMatch::Names(vec![SHARED])
            );
            assert_eq!(probe.limit_match(&all, scope), LimitMatch::Excluded);
        }
        let keys = ["one".to_owned(), "two".to_owned()];
        let each = probe.limit_match(&all, LimitKey::EachOf(&keys));
        assert_eq!(each, LimitMatch::Names(vec!["one", "two"]));
    }
}
