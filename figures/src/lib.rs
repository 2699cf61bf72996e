//! Computes figures for `docs/figures.md`, `docs/scaling.md` and `docs/deploying.md`. The benchmarks are in the
//! binary.

pub mod bill;
pub mod flood;
#[cfg(test)]
#[path = "../../tests/src/made.rs"]
mod made;
mod peak;
pub mod scaling;
pub mod sheet;
