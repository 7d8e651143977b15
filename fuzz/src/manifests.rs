//! Manifests for `tokengauge inject -f`: the output can be parsed again, and injecting it again changes nothing.

use std::sync::LazyLock;
use tokengauge_inject::manifest::inject_all;
use tokengauge_inject::{InjectBy, Settings};

static SETTINGS: LazyLock<Settings> = LazyLock::new(Settings::default);

pub fn run(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else {
        return;
    };
    let Ok(all) = inject_all(text, InjectBy::Namespace, &SETTINGS) else {
        return;
    };
    if all.injected == 0 {
        assert_eq!(all.text, text, "nothing to do, and nothing done");
    }
    let again = inject_all(&all.text, InjectBy::Namespace, &SETTINGS)
        .unwrap_or_else(|reason| panic!("{reason}\n{}", all.text));
    assert_eq!((again.injected, &again.text), (0, &all.text));
    assert_eq!(again.refused, all.refused);
}
