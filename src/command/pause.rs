//! `tokengauge pause`: a `preStop` hook for images without a shell, on clusters without the `sleep` action.

use crate::cli::PauseArgs;

pub(super) fn pause(args: &PauseArgs) {
    std::thread::sleep(args.time);
}
