//! `tokengauge pause`: a `preStop` hook for images without a shell, where the cluster has
//! no `sleep` of its own.

use crate::cli::PauseArgs;

pub(super) fn pause(args: &PauseArgs) {
    std::thread::sleep(args.time);
}
