//! Drift in simulated traffic with a known answer: what is found, and how soon.

mod decomposition;
mod faults;
mod fine;
mod replaced;
mod seasons;
mod steps;
mod traffic;
