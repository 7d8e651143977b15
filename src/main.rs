//! Command line, run, exit code.

fn main() {}
