//! Traffic whose truth is known: what is found of it, and how soon.

mod decomposition;
mod faults;
mod seasons;
mod steps;
mod traffic;
