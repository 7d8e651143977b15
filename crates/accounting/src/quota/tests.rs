use super::*;
use std::time::Duration;
use tokengauge_core::caller::KnownName;

fn quota(per: QuotaScope) -> Quota {
    Quota {
        name: "l".into(),
        per,
        select: Selector::default(),
        requests_per_minute: None,
        tokens_per_minute: None,
        concurrent: None,
        while_burning: None,
        while_runaway: false,
        mode: Mode::Enforce,
        on_unreadable: OnUnreadable::Count,
    }
}

fn caller(session: &str) -> Caller<'_> {
    Caller {
        route: "route",
        upstream: "upstream",
        workload: KnownName::Named("chat"),
        model: KnownName::Named("m"),
        agent: KnownName::Absent,
        session: KnownName::Named(session),
        user: KnownName::Absent,
        team: KnownName::Absent,
        cost_center: KnownName::Absent,
        tenant: KnownName::Absent,
        keys: &[],
        bodiless: false,
        unread: None,
    }
}

fn wait(refusal: &Refusal) -> Duration {
    refusal.retry_after.expect("it is worth another try")
}

#[test]
fn each_session_has_its_own_requests() {
    let quotas = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(2),
        ..quota(QuotaScope::Session)
    }]);
    for session in ["a", "b"] {
        assert!(quotas.admit(&caller(session)).is_ok());
        assert!(quotas.admit(&caller(session)).is_ok());
        let refusal = quotas.admit(&caller(session)).expect_err("none left");
        assert!(
            refusal
                .message
                .contains("2 requests a minute for this session"),
            "{refusal:?}"
        );
        assert!(
            !refusal.message.contains("session a"),
            "whose it is stays here"
        );
        let seconds = wait(&refusal).as_secs_f64();
        assert!((25.0..=30.0).contains(&seconds), "half a minute: {seconds}");
    }
    assert_eq!(quotas.statuses()[0].refused[0], (Resource::Requests, 2));
}

#[test]
fn places_are_given_back_when_calls_end() {
    let quotas = Quotas::new(&[Quota {
        concurrent: Some(2),
        ..quota(QuotaScope::All)
    }]);
    let one = quotas.admit(&caller("a"));
    let two = quotas.admit(&caller("b"));
    assert!(one.is_ok() && two.is_ok());
    assert!(quotas.admit(&caller("c")).is_err());
    drop(one);
    assert!(quotas.admit(&caller("c")).is_ok());
    assert_eq!(quotas.statuses()[0].refused[2], (Resource::Concurrent, 1));
}

#[test]
fn a_call_may_take_more_tokens_than_there_are_and_the_next_one_waits_for_them() {
    let quotas = Quotas::new(&[Quota {
        tokens_per_minute: NonZeroU32::new(6_000),
        ..quota(QuotaScope::Session)
    }]);
    let permit = quotas.admit(&caller("a")).expect("nothing was taken");
    (0..900).for_each(|_| permit.charge(20));
    let refusal = quotas
        .admit(&caller("a"))
        .expect_err("18,000 of 6,000 were taken");
    let seconds = wait(&refusal).as_secs_f64();
    assert!((115.0..=121.0).contains(&seconds), "two minutes: {seconds}");
    assert!(
        quotas.admit(&caller("b")).is_ok(),
        "another session has its own"
    );
    // A refused call costs nothing.
    let again = quotas.admit(&caller("a")).expect_err("still");
    assert!(wait(&again) <= wait(&refusal));
}

#[test]
fn a_debt_is_paid_with_time() {
    let quotas = Quotas::new(&[Quota {
        tokens_per_minute: NonZeroU32::new(60_000),
        ..quota(QuotaScope::Session)
    }]);
    let permit = quotas.admit(&caller("a")).expect("nothing was taken");
    permit.charge(61_000);
    let refusal = quotas.admit(&caller("a")).expect_err("1,000 too many");
    assert!(wait(&refusal) < Duration::from_millis(1_100), "{refusal:?}");
    std::thread::sleep(wait(&refusal) + Duration::from_millis(5));
    assert!(quotas.admit(&caller("a")).is_ok());
}

#[test]
fn a_limit_bound_to_an_objective_holds_only_while_it_burns() {
    let quotas = Quotas::new(&[Quota {
        concurrent: Some(0),
        while_burning: Some("voice".into()),
        ..quota(QuotaScope::All)
    }]);
    assert!(quotas.admit(&caller("a")).is_ok());
    quotas.refresh(&["other".into(), "voice".into()], &Arc::default());
    let refusal = quotas.admit(&caller("a")).expect_err("it burns");
    assert!(
        refusal.message.contains("while objective voice is missed"),
        "{refusal:?}"
    );
    assert!(quotas.statuses()[0].active);
    quotas.refresh(&["other".into()], &Arc::default());
    assert!(quotas.admit(&caller("a")).is_ok());
}

#[test]
fn a_limit_on_sessions_that_run_away_is_for_their_calls_alone() {
    let quotas = Quotas::new(&[Quota {
        concurrent: Some(0),
        while_runaway: true,
        ..quota(QuotaScope::All)
    }]);
    let of = |session| Caller {
        session,
        ..caller("a")
    };
    assert!(quotas.may_depend_on_bodies());
    assert!(
        !quotas.depend_on_body(&of(KnownName::Unread)),
        "none runs away"
    );
    assert!(quotas.admit(&caller("a")).is_ok());
    quotas.refresh(&[], &Arc::new(["a".into()].into()));
    let refusal = quotas.admit(&caller("a")).expect_err("it runs away");
    let why = "while this session runs away";
    assert!(refusal.message.contains(why), "{refusal:?}");
    assert!(quotas.admit(&caller("b")).is_ok());
    assert!(quotas.admit(&of(KnownName::Absent)).is_ok());
    assert!(quotas.depend_on_body(&of(KnownName::Unread)));
    assert!(quotas.statuses()[0].active);
    quotas.refresh(&[], &Arc::default());
    assert!(quotas.admit(&caller("a")).is_ok());
    assert!(!quotas.statuses()[0].active);
}

#[test]
fn who_is_not_selected_is_not_limited_and_who_names_nobody_shares() {
    let batch = Selector {
        workload: Some("batch".to_owned()),
        ..Selector::default()
    };
    let quotas = Quotas::new(&[Quota {
        concurrent: Some(0),
        select: batch,
        ..quota(QuotaScope::All)
    }]);
    assert!(quotas.admit(&caller("a")).is_ok());
    for per in [QuotaScope::User, QuotaScope::Key, QuotaScope::Agent] {
        let quotas = Quotas::new(&[Quota {
            requests_per_minute: NonZeroU32::new(1),
            ..quota(per)
        }]);
        assert!(quotas.admit(&caller("a")).is_ok());
        let refusal = quotas.admit(&caller("b")).expect_err("the same");
        let whose = format!("for all calls without a known {}", per.as_str());
        assert!(refusal.message.contains(&whose), "{refusal:?}");
        let probe = Caller {
            bodiless: true,
            ..caller("a")
        };
        assert!(quotas.admit(&probe).is_ok(), "it asks for nothing");
        let standing = &quotas.statuses()[0];
        assert_eq!(standing.shared[0], (SharedReason::Nameless, 2));
    }
}

#[test]
fn a_call_counts_for_each_key_that_it_carries() {
    let quotas = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(1),
        ..quota(QuotaScope::Key)
    }]);
    let admitted = |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        let with = Caller {
            keys: &keys,
            ..caller("a")
        };
        quotas.admit(&with).is_ok()
    };
    assert!(admitted(&["own"]));
    assert!(!admitted(&["own"]));
    assert!(!admitted(&["made-up", "own"]), "another beside it");
    assert!(!admitted(&["own", "made-up too"]));
    assert!(admitted(&["another's"]));
}

#[test]
fn a_body_that_cannot_be_read_is_refused_or_counts_as_what_the_limit_is_for() {
    let unread = Caller {
        model: KnownName::Unread,
        unread: Some(tokengauge_core::observer::UnreadableBody::Malformed),
        ..caller("a")
    };
    let of_model = |model: &str, per, on_unreadable| {
        Quotas::new(&[Quota {
            requests_per_minute: NonZeroU32::new(1),
            select: Selector {
                model: Some(tokengauge_core::pattern::Pattern::new(model)),
                ..Selector::default()
            },
            on_unreadable,
            ..quota(per)
        }])
    };
    let quotas = of_model("big", QuotaScope::All, OnUnreadable::Refuse);
    assert!(quotas.depend_on_body(&unread));
    let refusal = quotas.admit(&unread).expect_err("it cannot be read");
    assert_eq!(refusal.retry_after, None);
    assert!(refusal.message.contains("strict JSON"), "{refusal:?}");
    assert_eq!(quotas.statuses()[0].refused[3], (Resource::ReadableBody, 1));
    let quotas = of_model("big", QuotaScope::All, OnUnreadable::Count);
    assert!(quotas.admit(&unread).is_ok());
    let big = Caller {
        model: KnownName::Named("big"),
        ..caller("b")
    };
    assert!(quotas.admit(&big).is_err(), "it counted as one of these");
    let quotas = of_model("*", QuotaScope::Model, OnUnreadable::Count);
    assert!(quotas.admit(&unread).is_ok());
    assert!(quotas.admit(&big).is_ok());
    assert!(quotas.admit(&unread).is_err(), "all of them count together");
    assert_eq!(
        quotas.statuses()[0].shared[2],
        (SharedReason::UnreadableBody, 2)
    );
}

#[test]
fn shadow_mode_refuses_nothing_and_counts_what_it_would_have() {
    let shadow = Quota {
        requests_per_minute: NonZeroU32::new(2),
        mode: Mode::Shadow,
        ..quota(QuotaScope::Session)
    };
    let quotas = Quotas::new(std::slice::from_ref(&shadow));
    for _ in 0..5 {
        assert!(quotas.admit(&caller("a")).is_ok());
    }
    let standing = &quotas.statuses()[0];
    assert_eq!(standing.shadow_refused[0], (Resource::Requests, 3));
    assert_eq!(standing.refused[0], (Resource::Requests, 0));
    let enforced = Quotas::new(&[Quota {
        mode: Mode::Enforce,
        ..shadow
    }]);
    let enforced = enforced.carry_over(&quotas);
    assert!(
        enforced.admit(&caller("a")).is_err(),
        "what was taken stays"
    );
    let standing = &enforced.statuses()[0];
    assert_eq!(standing.shadow_refused[0], (Resource::Requests, 3));
    assert_eq!(standing.refused[0], (Resource::Requests, 1));
}

#[test]
fn names_are_bounded_and_who_comes_beyond_shares() {
    let quotas = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(1),
        tokens_per_minute: NonZeroU32::new(10),
        ..quota(QuotaScope::Session)
    }]);
    for number in 0..MAX_NAMES {
        let session = format!("session-{number}");
        let permit = quotas.admit(&caller(&session)).expect("the first");
        permit.charge(if number < 10 { 100 } else { 1 });
    }
    assert!(
        quotas.admit(&caller("session-1")).is_err(),
        "who is known is limited"
    );
    assert!(quotas.admit(&caller("another")).is_ok());
    for beyond in ["another", "and another"] {
        assert!(quotas.admit(&caller(beyond)).is_err(), "{beyond}");
    }
    let standing = &quotas.statuses()[0];
    assert_eq!(standing.shared[1], (SharedReason::TooManyNames, 3));
    // After two minutes there is room, but debts remain.
    (0..200).for_each(|_| quotas.refresh(&[], &Arc::default()));
    assert!(quotas.admit(&caller("another")).is_ok());
    assert!(
        quotas.admit(&caller("another")).is_err(),
        "and known from now on"
    );
    let owing = quotas
        .admit(&caller("session-1"))
        .expect_err("it owes 90 of 10 a minute");
    assert!(wait(&owing) > Duration::from_secs(400), "{owing:?}");
}

#[test]
fn what_did_not_change_keeps_what_was_taken() {
    let one = Quota {
        requests_per_minute: NonZeroU32::new(1),
        ..quota(QuotaScope::All)
    };
    let quotas = Quotas::new(std::slice::from_ref(&one));
    assert!(quotas.admit(&caller("a")).is_ok());
    let other = Quota {
        name: "other".into(),
        ..quota(QuotaScope::All)
    };
    let next = Quotas::new(&[other, one.clone()]).carry_over(&quotas);
    assert!(next.admit(&caller("a")).is_err());
    let next = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(5),
        ..one
    }]);
    assert!(next.carry_over(&quotas).admit(&caller("a")).is_ok());
}
