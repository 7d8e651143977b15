//! What quotas let in, and what they refuse.

use super::*;

fn quota(per: Per) -> Quota {
    Quota {
        name: "l".into(),
        per,
        select: Selector::default(),
        requests_per_minute: None,
        tokens_per_minute: None,
        concurrent: None,
        while_burning: None,
    }
}

fn caller(session: &str) -> Caller<'_> {
    Caller {
        names: Names {
            workload: Some("chat"),
            route: "route",
            upstream: "upstream",
            model: Some("m"),
            agent: None,
        },
        session: Some(session),
        user: None,
        key: None,
    }
}

#[test]
fn each_session_has_its_own_requests() {
    let quotas = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(2),
        ..quota(Per::Session)
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
        let wait = refusal.retry_after.as_secs_f64();
        assert!((25.0..=30.0).contains(&wait), "half a minute: {wait}");
    }
    assert_eq!(quotas.standings()[0].refused[0], (Resource::Requests, 2));
}

#[test]
fn places_are_given_back_when_calls_end() {
    let quotas = Quotas::new(&[Quota {
        concurrent: Some(2),
        ..quota(Per::All)
    }]);
    let one = quotas.admit(&caller("a"));
    let two = quotas.admit(&caller("b"));
    assert!(one.is_ok() && two.is_ok());
    assert!(quotas.admit(&caller("c")).is_err());
    drop(one);
    assert!(quotas.admit(&caller("c")).is_ok());
    assert_eq!(quotas.standings()[0].refused[2], (Resource::Concurrent, 1));
}

#[test]
fn a_call_may_take_more_tokens_than_there_are_and_the_next_one_waits_for_them() {
    let quotas = Quotas::new(&[Quota {
        tokens_per_minute: NonZeroU32::new(6_000),
        ..quota(Per::Session)
    }]);
    let permit = quotas.admit(&caller("a")).expect("nothing was taken");
    (0..900).for_each(|_| permit.charge(20));
    let refusal = quotas
        .admit(&caller("a"))
        .expect_err("18,000 of 6,000 were taken");
    let wait = refusal.retry_after.as_secs_f64();
    assert!((115.0..=121.0).contains(&wait), "two minutes: {wait}");
    assert!(
        quotas.admit(&caller("b")).is_ok(),
        "another session has its own"
    );
    // What is refused costs nothing.
    let again = quotas.admit(&caller("a")).expect_err("still");
    assert!(again.retry_after <= refusal.retry_after);
}

#[test]
fn a_debt_is_paid_with_time() {
    let quotas = Quotas::new(&[Quota {
        tokens_per_minute: NonZeroU32::new(60_000),
        ..quota(Per::Session)
    }]);
    let permit = quotas.admit(&caller("a")).expect("nothing was taken");
    permit.charge(60_050);
    let refusal = quotas.admit(&caller("a")).expect_err("50 too many");
    assert!(
        refusal.retry_after < Duration::from_millis(100),
        "{refusal:?}"
    );
    std::thread::sleep(refusal.retry_after + Duration::from_millis(5));
    assert!(quotas.admit(&caller("a")).is_ok());
}

#[test]
fn a_limit_bound_to_an_objective_holds_only_while_it_burns() {
    let quotas = Quotas::new(&[Quota {
        concurrent: Some(0),
        while_burning: Some("voice".into()),
        ..quota(Per::All)
    }]);
    assert!(quotas.admit(&caller("a")).is_ok());
    quotas.follow(&["other".into(), "voice".into()]);
    let refusal = quotas.admit(&caller("a")).expect_err("it burns");
    assert!(
        refusal.message.contains("while objective voice is missed"),
        "{refusal:?}"
    );
    assert!(quotas.standings()[0].holds);
    quotas.follow(&["other".into()]);
    assert!(quotas.admit(&caller("a")).is_ok());
}

#[test]
fn who_is_not_selected_or_has_no_name_is_not_limited() {
    let nobody = |quota: Quota| {
        let quotas = Quotas::new(&[Quota {
            concurrent: Some(0),
            ..quota
        }]);
        assert!(quotas.admit(&caller("a")).is_ok());
    };
    nobody(quota(Per::User));
    nobody(quota(Per::Key));
    nobody(Quota {
        select: Selector {
            workload: Some("batch".to_owned()),
            ..Selector::default()
        },
        ..quota(Per::All)
    });
}

#[test]
fn names_are_bounded_and_who_comes_beyond_is_let_in_and_counted() {
    let quotas = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(1),
        tokens_per_minute: NonZeroU32::new(10),
        ..quota(Per::Session)
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
    assert!(quotas.admit(&caller("another")).is_ok());
    assert_eq!(quotas.standings()[0].unlimited, 2);
    // Two minutes later there is room, but nobody got rid of a debt.
    (0..200).for_each(|_| quotas.follow(&[]));
    assert!(quotas.admit(&caller("another")).is_ok());
    assert!(
        quotas.admit(&caller("another")).is_err(),
        "and known from now on"
    );
    let owing = quotas
        .admit(&caller("session-1"))
        .expect_err("it owes 90 of 10 a minute");
    assert!(owing.retry_after > Duration::from_secs(400), "{owing:?}");
}

#[test]
fn what_did_not_change_keeps_what_was_taken() {
    let one = Quota {
        requests_per_minute: NonZeroU32::new(1),
        ..quota(Per::All)
    };
    let quotas = Quotas::new(std::slice::from_ref(&one));
    assert!(quotas.admit(&caller("a")).is_ok());
    let other = Quota {
        name: "other".into(),
        ..quota(Per::All)
    };
    let next = Quotas::new(&[other, one.clone()]).after(&quotas);
    assert!(next.admit(&caller("a")).is_err());
    let next = Quotas::new(&[Quota {
        requests_per_minute: NonZeroU32::new(5),
        ..one
    }]);
    assert!(next.after(&quotas).admit(&caller("a")).is_ok());
}
