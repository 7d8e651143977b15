//! A panic while measuring costs one measurement. Its message is not logged, because it may quote
//! the measured text.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static MEASURING: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn guarded<T>(act: impl FnOnce() -> T) -> Option<T> {
    let before = MEASURING.replace(true);
    let done = catch_unwind(AssertUnwindSafe(act));
    MEASURING.set(before);
    done.ok()
}

/// Logs only the location of a panic while measuring. Other panics are logged as before.
pub(crate) fn hide_messages() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let others = take_hook();
        set_hook(Box::new(move |panic| {
            if MEASURING.get() {
                let place = panic.location().map(ToString::to_string);
                let place = place.unwrap_or_default();
                tracing::error!(
                    place,
                    "measuring a call panicked; the call is forwarded, but not measured"
                );
            } else {
                others(panic);
            }
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_ends_at_the_guard_and_guards_nest() {
        assert_eq!(guarded(|| 1), Some(1));
        let outer = guarded(|| {
            let inner: Option<()> = guarded(|| panic!("a text that nobody may see"));
            assert!(MEASURING.get(), "the outer guard is still active");
            inner
        });
        assert_eq!(outer, Some(None));
        assert!(!MEASURING.get());
    }
}
