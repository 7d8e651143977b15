//! Turns the o200k_base vocabulary into the table the counter reads.
fn main() {}
