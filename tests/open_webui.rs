//! Recorded requests of Open WebUI name their chats, users and the agent.

use serde_json::Value;
use std::collections::BTreeMap;
use tokengauge_core::observer::End;
use tokengauge_test_support::meter::{Bench, DONE, finish, words};

const RECORDED: &str = include_str!("fixtures/clients/open-webui-0.12.4.json");

#[test]
fn every_chat_is_a_session_of_its_user() {
    let recorded: Value = serde_json::from_str(RECORDED).expect("JSON");
    let bench = Bench::default();
    let mut sessions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let requests = recorded["requests"].as_array().expect("requests");
    for request in requests
        .iter()
        .filter(|request| request["method"] == "POST")
    {
        let headers = request["headers"].as_array().expect("headers");
        let headers: Vec<_> = headers
            .iter()
            .map(|pair| {
                (
                    pair[0].as_str().expect("a name"),
                    pair[1].as_str().expect("a value"),
                )
            })
            .collect();
        let call = bench.begin(request["path"].as_str().expect("a path"), &headers);
        bench.send(&*call, request["body"].to_string().as_bytes());
        bench.answer(&*call, 200, "text/event-stream");
        bench.chunk(&*call, 100, words(8) + &finish(Some(8)) + DONE);
        let record = bench.end(&*call, 200, End::Complete);
        assert_eq!(record.agent.as_deref(), Some("open-webui"));
        let user = record.user.expect("a user");
        assert_eq!(user.len(), 32, "hashed");
        sessions
            .entry(record.session.expect("a session"))
            .or_default()
            .push(user);
    }
    let calls: Vec<_> = sessions.values().map(Vec::len).collect();
    assert_eq!((calls.len(), calls.iter().sum::<usize>()), (3, 16));
    assert!(
        sessions
            .values()
            .all(|users| users.iter().all(|user| *user == users[0]))
    );
    let users: std::collections::BTreeSet<_> = sessions.values().map(|users| &users[0]).collect();
    assert_eq!(users.len(), 2);
}
