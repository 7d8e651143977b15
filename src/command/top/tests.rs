//! Tests of screen and keys on ratatui's test backend.

use super::draw::draw;
use super::poller::Update;
use super::state::{Action, TopState};
use super::views::Content;
use crate::command::api_client::ApiError;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use tokengauge_meter::{StreamNow, TokensNow};
use tokengauge_sessions::{Runaway, RunawayFigure, RunawayReason};
use tokengauge_store::query::{GroupRow, SessionRow};

fn stream(model: &str, tps: Option<f64>, agent: &str) -> StreamNow {
    StreamNow {
        id: "0".to_owned(),
        route: "r".to_owned(),
        upstream: "engine".to_owned(),
        model: Some(model.to_owned()),
        workload: None,
        session: Some("s-1".to_owned()),
        agent: Some(agent.to_owned()),
        started_at: "2026-01-01T00:00:00.000Z".parse().expect("a timestamp"),
        seconds: 2.5,
        tokens: TokensNow {
            output: 120,
            reasoning: 20,
            ..TokensNow::default()
        },
        tps,
        last_gap: None,
        silent: Some(0.02),
        repetition: None,
        team: None,
        cost_center: None,
        tenant: None,
        pod: None,
    }
}

fn runaway() -> Runaway {
    Runaway {
        session: "new".to_owned(),
        agent: Some("coder/1".to_owned()),
        workload: None,
        guessed: false,
        since: "2026-01-02T10:00:00.000Z".parse().expect("a timestamp"),
        figures: vec![RunawayFigure {
            reason: RunawayReason::SameToolCall,
            value: 20.0,
            limit: 20.0,
            usual: None,
        }],
    }
}

fn update(content: Content) -> Result<Update, ApiError> {
    Ok(Update {
        in_flight: 3,
        tps: 61.25,
        firing: Vec::new(),
        content,
    })
}

fn streams() -> TopState {
    let mut state = TopState::new("http://127.0.0.1:9464");
    state.take(update(Content::Streams(vec![
        stream("slow-1", Some(3.25), "coder/1"),
        stream("fast-1", Some(58.0), "chat/1"),
        stream("new-1", None, "coder/1"),
    ])));
    state
}

fn screen(state: &TopState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    terminal.draw(|frame| draw(frame, state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let line = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..height).map(|y| line(y).trim_end().to_owned()).collect()
}

fn press(state: &mut TopState, keys: &str) {
    for key in keys.chars() {
        state.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE));
    }
}

#[test]
fn streams_are_shown_fastest_first_and_what_is_unknown_last() {
    assert_eq!(
        screen(&streams(), 100, 8),
        [
            "tokengauge  http://127.0.0.1:9464  3 streams  61 tokens/s",
            " 1 Streams  2 Models  3 SLOs  4 Sessions  5 Upstreams",
            "MODEL            TPS↓  TOKENS  REASONING    TIME  SILENT AGENT      SESSION    UPSTREAM   WORKLOAD",
            "fast-1           58.0     120         20    2.5s    20ms chat/1     s-1        engine     –",
            "slow-1            3.2     120         20    2.5s    20ms coder/1    s-1        engine     –",
            "new-1               –     120         20    2.5s    20ms coder/1    s-1        engine     –",
            "",
            "1-5 tab view  s sort  r reverse  / filter  enter details  ? help  q quit",
        ]
    );
}

#[test]
fn a_filter_is_typed_applied_and_removed() {
    let mut state = streams();
    press(&mut state, "/CODER");
    let lines = screen(&state, 100, 8);
    assert!(
        lines[3].starts_with("slow-1") && lines[4].starts_with("new-1"),
        "{lines:#?}"
    );
    assert_eq!(lines[5], "");
    assert_eq!(lines[7], "/CODER▏ enter applies the filter, esc clears it");
    state.key(KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE));
    assert!(screen(&state, 100, 8)[7].starts_with("filter: CODER (esc clears it)"));
    press(&mut state, "/x");
    assert!(screen(&state, 100, 8)[2].starts_with("no row contains the filter text"));
    state.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    assert!(screen(&state, 100, 8)[3].starts_with("fast-1"));
}

#[test]
fn rows_are_sorted_by_any_column_either_way() {
    let mut state = streams();
    let first = |state: &TopState| screen(state, 100, 8)[3].clone();
    press(&mut state, "r");
    assert!(first(&state).starts_with("slow-1"), "the slowest first");
    press(&mut state, "sssssss");
    let lines = screen(&state, 100, 8);
    assert!(lines[2].contains("UPSTREAM↓"), "{lines:#?}");
    press(&mut state, "ss");
    assert!(
        first(&state).starts_with("slow-1"),
        "by name, the last first"
    );
    press(&mut state, "r");
    assert!(first(&state).starts_with("fast-1"));
}

#[test]
fn the_other_views_are_asked_for_and_shown() {
    let mut state = streams();
    assert_eq!(
        state.key(KeyEvent::new(KeyCode::Tab, KeyModifiers::NONE)),
        Action::Ask
    );
    assert_eq!(
        screen(&state, 100, 8)[2],
        "…",
        "nothing of models is known yet"
    );
    let mut row = GroupRow {
        name: Some("big-1".to_owned()),
        calls: 12,
        errors: 2,
        ..GroupRow::default()
    };
    row.tps.p50 = Some(14.9);
    row.tps.calls = 9;
    row.requests_per_second = Some(0.25);
    state.take(update(Content::Models("memory".to_owned(), vec![row])));
    let lines = screen(&state, 110, 6);
    assert!(lines[0].ends_with("from memory"), "{lines:#?}");
    let cells: Vec<_> = lines[3].split_whitespace().collect();
    assert_eq!(
        cells,
        [
            "big-1", "12", "0.25", "2", "14.9", "–", "9", "of", "12", "–", "–", "–", "–"
        ]
    );
    assert_eq!(
        state.key(KeyEvent::new(KeyCode::Char('4'), KeyModifiers::NONE)),
        Action::Ask
    );
    let session = |id: &str, last: &str| SessionRow {
        id: id.to_owned(),
        last_at: last.parse().expect(last),
        agents: vec!["coder/1".to_owned(), "helper".to_owned()],
        ..SessionRow::default()
    };
    let sessions = vec![
        session("old", "2026-01-01T10:00:00.000Z"),
        session("new", "2026-01-02T10:00:00.000Z"),
    ];
    state.take(update(Content::Sessions(
        "ledger".to_owned(),
        sessions,
        vec![runaway()],
    )));
    let lines = screen(&state, 120, 8);
    let below = "runs away: new of coder/1: the same tool call 20 times (limit 20)";
    assert_eq!(lines[6], below, "{lines:#?}");
    assert!(
        lines[3].starts_with("new") && lines[3].contains("coder/1, helper"),
        "{lines:#?}"
    );
    assert!(lines[3].contains("ago"), "{lines:#?}");
    assert_eq!(
        state.key(KeyEvent::new(KeyCode::Char('3'), KeyModifiers::NONE)),
        Action::Ask
    );
    let empty = |source: Option<&str>| {
        let response = serde_json::json!({ "slos": [], "source": source });
        Content::Slos(serde_json::from_value(response).expect("an answer"))
    };
    state.take(update(empty(None)));
    assert_eq!(screen(&state, 100, 6)[2], "no [[slo]] is configured");
    state.take(update(empty(Some("pods"))));
    let of_a_fleet = "no reachable pod has an objective yet";
    assert_eq!(screen(&state, 100, 6)[2], of_a_fleet);
}

#[test]
fn a_proxy_that_does_not_answer_is_reported_and_the_last_figures_stay() {
    let mut state = streams();
    state.take(Err(ApiError::NoResponse {
        url: "http://127.0.0.1:9464".to_owned(),
        source: std::io::ErrorKind::ConnectionRefused.into(),
    }));
    let lines = screen(&state, 100, 10);
    assert!(lines[2].contains("connection refused"), "{lines:#?}");
    assert!(lines[5].starts_with("fast-1"), "{lines:#?}");
    state.take(update(Content::Streams(Vec::new())));
    let lines = screen(&state, 100, 10);
    assert!(lines[2].starts_with("no call is in flight"), "{lines:#?}");
}

#[test]
fn no_name_and_no_error_commands_the_terminal() {
    let mut state = TopState::new("http://127.0.0.1:9464");
    let name = "m\u{1b}[2J\u{9b}2J\nline";
    state.take(update(Content::Streams(vec![stream(
        name,
        Some(1.0),
        name,
    )])));
    state.take(Err(ApiError::Status {
        url: "http://127.0.0.1:9464".to_owned(),
        status: 503,
        reason: ": \u{1b}[2J\u{9b}2J".to_owned(),
    }));
    let lines = screen(&state, 120, 8);
    let all = lines.concat();
    assert!(!all.contains(char::is_control), "{lines:#?}");
    assert!(
        all.contains("m\\u{1b}[2J") && all.contains("503"),
        "{lines:#?}"
    );
}

#[test]
fn the_cause_of_a_missed_objective_is_below_the_table() {
    let slo = serde_json::json!({
        "name": "chat", "promise": "ttft ≤ 0.5 s", "objective": 0.99, "window": "30d", "good": 90.0,
        "bad": 10.0, "ratio": 0.9, "budget_remaining": -9.0, "exhausted_in_seconds": 0.0, "burn": [],
        "alerts": [], "cause": { "at": "2026-11-25T22:05:00Z", "sentence": "92 % of bad calls are upstream vllm-a." },
    });
    let mut state = TopState::new("h");
    let response = serde_json::from_value(serde_json::json!({ "slos": [slo] })).expect("an answer");
    state.take(update(Content::Slos(response)));
    press(&mut state, "3");
    let lines = screen(&state, 100, 10);
    assert_eq!(
        lines[8], "chat: 92 % of bad calls are upstream vllm-a.",
        "{lines:#?}"
    );
}

#[test]
fn an_alert_that_fires_is_said_above_every_view() {
    let mut state = streams();
    let mut alert = update(Content::Streams(Vec::new())).expect("an update");
    alert.firing = vec!["page chat".to_owned()];
    state.take(Ok(alert));
    let begin = "tokengauge  ALERT page chat  http://";
    assert!(
        screen(&state, 80, 10)[0].starts_with(begin),
        "{:?}",
        screen(&state, 80, 10)
    );
    state.take(update(Content::Streams(Vec::new())));
    assert!(!screen(&state, 80, 10)[0].contains("ALERT"));
}

#[test]
fn slow_streams_are_red_and_the_chosen_row_stands_out() {
    let mut state = streams();
    press(&mut state, "j");
    let mut terminal = Terminal::new(TestBackend::new(100, 8)).expect("a terminal");
    terminal.draw(|frame| draw(frame, &state)).expect("drawn");
    let buffer = terminal.backend().buffer();
    let tps = |y: u16| buffer[(20, y)].style();
    assert_eq!(
        (tps(3).fg, tps(4).fg),
        (Some(Color::Green), Some(Color::Red))
    );
    let reversed = |y: u16| {
        tps(y)
            .add_modifier
            .contains(ratatui::style::Modifier::REVERSED)
    };
    assert!(reversed(4) && !reversed(3));
}

#[test]
fn it_ends_with_q_and_with_control_c_but_not_while_typing() {
    let mut state = streams();
    let key = |code, modifiers| KeyEvent::new(code, modifiers);
    let q = key(KeyCode::Char('q'), KeyModifiers::NONE);
    assert_eq!(state.key(q), Action::End);
    press(&mut state, "/");
    assert_eq!(state.key(q), Action::Stay);
    assert_eq!(state.filter, "q");
    assert_eq!(
        state.key(key(KeyCode::Char('c'), KeyModifiers::CONTROL)),
        Action::End
    );
}

#[test]
fn heads_are_whole_at_any_width_and_more_room_has_more_columns() {
    let columns = |width: u16, digit: char, content: Content| {
        let mut state = streams();
        press(&mut state, &digit.to_string());
        state.take(update(content));
        let lines = screen(&state, width, 24);
        let heads: Vec<&'static str> = state
            .table()
            .expect("a table")
            .columns
            .iter()
            .map(|c| c.head)
            .collect();
        let line = lines[2].replace(['↓', '↑'], " ");
        let shown: Vec<&str> = heads
            .iter()
            .copied()
            .filter(|head| line.contains(head))
            .collect();
        let mut rest = line.clone();
        for head in &shown {
            rest = rest.replacen(head, "", 1);
        }
        assert_eq!(rest.trim(), "", "a head that is cut off: {line}");
        assert_eq!(
            lines
                .iter()
                .map(|line| line.chars().count())
                .max()
                .map(|w| w <= usize::from(width)),
            Some(true)
        );
        (shown.len(), heads.len())
    };
    let contents = || {
        let stream = stream("model", Some(3.25), "coder/1");
        let session = SessionRow {
            id: "s".to_owned(),
            last_at: "2026-01-02T10:00:00.000Z".parse().expect("a timestamp"),
            ..SessionRow::default()
        };
        [
            ('1', Content::Streams(vec![stream])),
            (
                '2',
                Content::Models("ledger".to_owned(), vec![GroupRow::default()]),
            ),
            (
                '4',
                Content::Sessions("ledger".to_owned(), vec![session], Vec::new()),
            ),
            (
                '5',
                Content::Upstreams("ledger".to_owned(), vec![GroupRow::default()]),
            ),
        ]
    };
    for (digit, content) in contents() {
        let (shown, all) = columns(80, digit, content);
        assert!(shown >= 7 && shown < all, "{digit}: {shown} of {all}");
    }
    for (digit, content) in contents() {
        let (shown, all) = columns(200, digit, content);
        assert_eq!(shown, all, "{digit}");
    }
}

#[test]
fn enter_shows_all_of_a_row_as_it_goes_on_and_help_names_keys_and_columns() {
    let enter = || KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
    let mut state = streams();
    let with_id = |id: &str, model: &str| StreamNow {
        id: id.to_owned(),
        workload: Some("chat".to_owned()),
        ..stream(model, Some(58.0), "coder/1")
    };
    state.take(update(Content::Streams(vec![
        with_id("a", "one"),
        with_id("b", "two"),
    ])));
    press(&mut state, "j");
    assert_eq!(state.key(enter()), Action::Stay);
    let shown = screen(&state, 80, 24);
    let line = |head: &str, text: &str| {
        let mut lines = shown.iter();
        lines.any(|line| line.starts_with(head) && line.ends_with(text))
    };
    assert!(line("CALL", " b") && line("MODEL", "two"), "{shown:#?}");
    assert!(line("WORKLOAD", "chat") && line("STARTED AT", "2026-01-01T00:00:00.000Z"));
    let mut later = with_id("b", "two");
    later.tokens.output = 777;
    state.take(update(Content::Streams(vec![later])));
    assert!(screen(&state, 80, 24).concat().contains("777"));
    state.take(update(Content::Streams(vec![with_id("a", "one")])));
    assert!(screen(&state, 80, 24)[2].starts_with("this row no longer exists"));
    state.key(KeyEvent::new(KeyCode::Esc, KeyModifiers::NONE));
    assert!(screen(&state, 80, 24)[2].starts_with("MODEL"));
    press(&mut state, "?");
    let help = screen(&state, 80, 24).concat();
    assert!(
        help.contains("since the last token")
            && help.contains("show only rows that contain the text you type")
    );
    press(&mut state, "q");
    assert!(
        screen(&state, 80, 24)[2].starts_with("MODEL"),
        "q only closes the help"
    );
}
