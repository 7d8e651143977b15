use super::*;
use crate::cost::tests::record;

const DAY: u64 = 24 * 3600;
const NOON: u64 = 20_000 * DAY + DAY / 2;

fn budget(per: BudgetScope, block: bool) -> Budget {
    Budget {
        name: "b".into(),
        per,
        select: Selector::default(),
        usd: 1.0,
        period: Period::Every(Duration::from_secs(DAY)),
        warn_at: vec![0.5, 0.8, 1.0],
        block,
        mode: Mode::Enforce,
        on_unreadable: OnUnreadable::Refuse,
    }
}

fn cost(session: &str, usd: f64) -> CallRecord {
    CallRecord {
        session: Some(session.to_owned()),
        cost_usd: Some(usd),
        ..record("m", 1, 1)
    }
}

fn refused(budgets: &Budgets, record: &CallRecord, now: u64) -> Option<Refusal> {
    budgets
        .admit(&caller(record), AdmissionStage::Final, now)
        .err()
}

fn counts(budgets: &Budgets, now: u64) -> Vec<u64> {
    let status = &budgets.statuses(now)[0];
    status.warnings.iter().map(|(_, count)| *count).collect()
}

#[test]
fn each_session_has_its_own_money_and_each_threshold_is_told_once() {
    let budgets = Budgets::new(&[budget(BudgetScope::Session, false)]);
    for _ in 0..4 {
        budgets.spend(&cost("a", 0.2), &[], NOON);
        budgets.spend(&cost("b", 0.1), &[], NOON);
    }
    assert_eq!(counts(&budgets, NOON), [1, 1, 0]);
    budgets.spend(&cost("a", 5.0), &[], NOON);
    assert_eq!(counts(&budgets, NOON), [1, 1, 1]);
    let status = &budgets.statuses(NOON)[0];
    assert!((status.spent_ratio - 5.8).abs() < 1e-9);
    assert!((status.usd - 6.2).abs() < 1e-6);
}

#[test]
fn a_call_without_a_cost_or_without_the_name_costs_nothing() {
    let budgets = Budgets::new(&[budget(BudgetScope::Session, false)]);
    let unpriced = CallRecord {
        cost_usd: None,
        ..cost("a", 0.0)
    };
    let nameless = CallRecord {
        session: None,
        ..cost("a", 3.0)
    };
    budgets.spend(&unpriced, &[], NOON);
    budgets.spend(&nameless, &[], NOON);
    assert_eq!(budgets.statuses(NOON)[0].spent_ratio, 0.0);
}

#[test]
fn only_selected_calls_count() {
    let mut narrow = budget(BudgetScope::All, false);
    narrow.select.model = Some(tokengauge_core::pattern::Pattern::new("gpt-*"));
    let budgets = Budgets::new(&[narrow]);
    budgets.spend(&cost("a", 0.6), &[], NOON);
    assert_eq!(counts(&budgets, NOON), [0, 0, 0]);
    let gpt = CallRecord {
        model_requested: Some("gpt-5".to_owned()),
        ..cost("a", 0.6)
    };
    budgets.spend(&gpt, &[], NOON);
    assert_eq!(counts(&budgets, NOON), [1, 0, 0]);
}

#[test]
fn spent_budgets_refuse_only_where_configured_and_until_there_is_new_money() {
    let blocking = Budgets::new(&[budget(BudgetScope::Session, true)]);
    let warning = Budgets::new(&[budget(BudgetScope::Session, false)]);
    let (a, b) = (cost("a", 1.0), cost("b", 0.9));
    for budgets in [&blocking, &warning] {
        budgets.spend(&a, &[], NOON);
        budgets.spend(&b, &[], NOON);
    }
    let refusal = refused(&blocking, &a, NOON + 60).expect("it is spent");
    let wait = Duration::from_secs(DAY / 2 - 60);
    assert_eq!(refusal.retry_after, Some(wait));
    assert!(
        refusal.message.contains("budget b of this session"),
        "{refusal:?}"
    );
    assert_eq!(refused(&blocking, &b, NOON), None);
    assert_eq!(refused(&warning, &a, NOON), None);
    assert_eq!(refused(&blocking, &a, NOON + DAY), None);
    assert_eq!(blocking.statuses(NOON + DAY)[0].blocked, 1);
}

#[test]
fn the_body_is_asked_for_only_where_it_decides() {
    let record = cost("a", 1.0);
    let known = caller(&record);
    let nameless = Caller {
        session: KnownName::Unread,
        ..known
    };
    let modelless = Caller {
        model: KnownName::Unread,
        ..known
    };
    let per = |per, block| Budgets::new(&[budget(per, block)]);
    assert!(per(BudgetScope::Session, true).depend_on_body(&nameless));
    assert!(!per(BudgetScope::Session, true).depend_on_body(&known));
    assert!(!per(BudgetScope::Session, true).depend_on_body(&modelless));
    assert!(!per(BudgetScope::Session, false).depend_on_body(&nameless));
    assert!(per(BudgetScope::Model, true).depend_on_body(&modelless));
    let mut narrow = budget(BudgetScope::All, true);
    narrow.select.model = Some(tokengauge_core::pattern::Pattern::new("gpt-*"));
    assert!(Budgets::new(&[narrow]).depend_on_body(&modelless));
}

#[test]
fn a_notice_names_who_spent_most_and_is_a_page_only_where_calls_are_refused() {
    for (block, severity) in [(false, "ticket"), (true, "page")] {
        let budgets = Budgets::new(&[budget(BudgetScope::Session, block)]);
        budgets.spend(&cost("small", 0.4), &[], NOON);
        assert_eq!(budgets.notifications(NOON), []);
        budgets.spend(&cost("a", 0.9), &[], NOON);
        assert_eq!(budgets.notifications(NOON)[0].severity, "ticket");
        budgets.spend(&cost("b", 1.3), &[], NOON);
        let notifications = budgets.notifications(NOON);
        let [notice] = &notifications[..] else {
            panic!("one for all of them: {notifications:?}")
        };
        assert_eq!(notice.severity, severity);
        assert!(
            notice.summary.contains("130% of 1 USD per 1day spent"),
            "{notice:?}"
        );
        let begin = "Names over the first threshold: 2 (by session). Highest spending: b: 1.30 USD \
                     (130%), a: 0.90";
        assert!(notice.description.starts_with(begin), "{notice:?}");
        assert_eq!(
            budgets.notifications(NOON + DAY),
            [],
            "over with the period"
        );
    }
}

#[test]
fn another_limit_keeps_what_was_spent_and_another_scope_does_not() {
    let budgets = Budgets::new(&[budget(BudgetScope::Session, true)]);
    let record = cost("a", 1.2);
    budgets.spend(&record, &[], NOON);
    let refused = || super::tests::refused(&budgets, &record, NOON).is_some();
    budgets.change(&[Budget {
        usd: 2.0,
        ..budget(BudgetScope::Session, true)
    }]);
    assert!(!refused(), "there is more now");
    assert!((budgets.statuses(NOON)[0].spent_ratio - 0.6).abs() < 1e-9);
    budgets.change(&[budget(BudgetScope::Session, true)]);
    assert!(refused());
    budgets.change(&[budget(BudgetScope::Agent, true)]);
    assert_eq!(budgets.statuses(NOON)[0].spent_ratio, 0.0);
    budgets.change(&[]);
    assert!(budgets.is_empty());
}

#[test]
fn what_was_spent_survives_a_restart_within_its_period() {
    let directory = tempfile::tempdir().expect("a directory");
    let before = Budgets::new(&[budget(BudgetScope::Session, true)]);
    before.spend(&cost("a", 1.2), &[], NOON);
    let mut saved = SpendingFile::open(directory.path(), &before, NOON).expect("opened");
    assert!(saved.save(&before, NOON).expect("saved"));
    drop(saved);
    let after = Budgets::new(&[budget(BudgetScope::Session, true)]);
    drop(SpendingFile::open(directory.path(), &after, NOON + 10).expect("opened"));
    let record = cost("a", 0.0);
    assert!(refused(&after, &record, NOON + 10).is_some());
    assert_eq!(counts(&after, NOON + 10), [0, 0, 0], "reported before");
    let tomorrow = Budgets::new(&[budget(BudgetScope::Session, true)]);
    drop(SpendingFile::open(directory.path(), &tomorrow, NOON + DAY).expect("opened"));
    assert_eq!(refused(&tomorrow, &record, NOON + DAY), None);
    // The clock may be wrong, so a file written then contains both periods.
    let ahead = Budgets::new(&[budget(BudgetScope::Session, true)]);
    let wrong = NOON + 40 * DAY;
    let mut saved = SpendingFile::open(directory.path(), &ahead, wrong).expect("opened");
    assert_eq!(refused(&ahead, &record, wrong), None);
    ahead.spend(&cost("b", 1.2), &[], wrong);
    assert!(saved.save(&ahead, wrong).expect("saved"));
    assert!(refused(&ahead, &record, NOON + 20).is_some());
    drop(saved);
    let right = Budgets::new(&[budget(BudgetScope::Session, true)]);
    drop(SpendingFile::open(directory.path(), &right, NOON + 20).expect("opened"));
    assert!(refused(&right, &record, NOON + 20).is_some());
    assert!(refused(&right, &cost("b", 0.0), wrong).is_some());
}

#[test]
fn a_damaged_file_is_put_aside_and_the_budgets_begin_anew() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("spending.json");
    std::fs::write(&file, "{").expect("written");
    let budgets = Budgets::new(&[budget(BudgetScope::Session, true)]);
    let mut saved = SpendingFile::open(directory.path(), &budgets, NOON).expect("opened");
    let aside = std::fs::read(directory.path().join("spending.json.unreadable"));
    assert_eq!(aside.expect("put aside"), b"{");
    assert!(saved.save(&budgets, NOON).expect("saved"));
    let text = std::fs::read_to_string(&file).expect("a new one");
    assert!(text.contains("period"), "{text}");
}

#[test]
fn a_process_that_takes_over_counts_what_the_other_spent_and_nothing_twice() {
    let directory = tempfile::tempdir().expect("a directory");
    let open =
        |budgets: &Budgets| SpendingFile::open(directory.path(), budgets, NOON).expect("opened");
    let budgets = || Budgets::new(&[budget(BudgetScope::Session, false)]);
    let (old, new, last) = (budgets(), budgets(), budgets());
    let mut olds = open(&old);
    old.spend(&cost("a", 0.25), &[], NOON);
    assert!(olds.save(&old, NOON).expect("saved"));
    let mut news = open(&new);
    assert!(news.is_locked_elsewhere());
    new.spend(&cost("a", 0.125), &[], NOON);
    assert!(
        !news.save(&new, NOON).expect("the other's"),
        "it is not overwritten"
    );
    old.spend(&cost("a", 0.5), &[], NOON);
    old.spend(&cost("b", 1.0), &[], NOON);
    assert!(olds.save(&old, NOON).expect("saved"));
    drop(olds);
    assert!(news.save(&new, NOON).expect("ours now"));
    assert!(news.save(&new, NOON).expect("again"));
    drop(news);
    drop(open(&last));
    let spent = |usd: f64, session| {
        let all = last.saved(NOON);
        let text = serde_json::to_value(all).expect("JSON");
        let found = text.as_object().and_then(|all| all.values().next());
        assert_eq!(found.expect("a budget")["spent"][session], usd, "{text}");
    };
    spent(0.25 + 0.125 + 0.5, "a");
    spent(1.0, "b");
}

#[test]
fn a_call_counts_under_the_name_by_which_it_was_let_in() {
    let budgets = Budgets::new(&[Budget {
        on_unreadable: OnUnreadable::Count,
        ..budget(BudgetScope::Session, true)
    }]);
    let record = cost("what the record says", 0.6);
    let unread = Caller {
        session: KnownName::Unread,
        ..caller(&record)
    };
    for _ in 0..2 {
        let charges = budgets.admit(&unread, AdmissionStage::Final, NOON);
        let charges = charges.expect("there is money");
        budgets.spend(&record, &charges, NOON);
    }
    let refusal = budgets.admit(&unread, AdmissionStage::Final, NOON);
    assert!(refusal.is_err(), "all that cannot be read share one");
    assert_eq!(refused(&budgets, &record, NOON), None, "and nobody else's");
    assert_eq!(budgets.statuses(NOON)[0].unreadable, 3);
    let strict = Budgets::new(&[budget(BudgetScope::Session, true)]);
    assert_eq!(
        strict.admit(&unread, AdmissionStage::Early, NOON),
        Ok(vec![])
    );
    let refusal = strict
        .admit(&unread, AdmissionStage::Final, NOON)
        .expect_err("422");
    assert_eq!(refusal.retry_after, None);
}

#[test]
fn shadow_mode_lets_calls_go_on_counts_them_once_and_stays_spent_when_enforced() {
    let shadow = Budget {
        mode: Mode::Shadow,
        ..budget(BudgetScope::Session, true)
    };
    let budgets = Budgets::new(std::slice::from_ref(&shadow));
    let record = cost("a", 1.2);
    budgets.spend(&record, &[], NOON);
    for stage in [AdmissionStage::Early, AdmissionStage::Final] {
        let charges = budgets.admit(&caller(&record), stage, NOON);
        assert_eq!(charges.expect("it goes on").len(), 1);
    }
    let status = &budgets.statuses(NOON)[0];
    assert_eq!((status.blocked, status.shadow_blocked), (0, 1));
    assert_eq!(budgets.notifications(NOON)[0].severity, "ticket");
    budgets.change(&[Budget {
        mode: Mode::Enforce,
        ..shadow
    }]);
    assert!(refused(&budgets, &record, NOON).is_some());
    let status = &budgets.statuses(NOON)[0];
    assert_eq!((status.blocked, status.shadow_blocked), (1, 1));
}

#[test]
fn what_those_count_for_who_were_forgotten_survives_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let before = Budgets::new(&[budget(BudgetScope::Session, true)]);
    for number in 0..2 * spent::MAX_NAMES {
        before.spend(&cost(&format!("s-{number}"), 1.5), &[], NOON);
    }
    let record = cost("s-0", 0.0);
    assert!(refused(&before, &record, NOON).is_some());
    let mut saved = SpendingFile::open(directory.path(), &before, NOON).expect("opened");
    assert!(saved.save(&before, NOON).expect("saved"));
    drop(saved);
    let after = Budgets::new(&[budget(BudgetScope::Session, true)]);
    drop(SpendingFile::open(directory.path(), &after, NOON).expect("opened"));
    assert!(refused(&after, &record, NOON).is_some());
}
