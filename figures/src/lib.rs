//! Computes figures for `docs/figures.md` and `docs/scaling.md`. The benchmarks are in the
//! binary.

pub mod bill;
mod peak;
pub mod scaling;
