//! Figures for `docs/figures.md`. The benchmarks are in the binary.

pub mod bill;
