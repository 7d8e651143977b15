//! Drift found in made-up traffic, where the right answer is known: what is found, and how soon.

mod decomposition;
mod faults;
mod fine;
mod replaced;
mod seasons;
mod steps;
mod traffic;
