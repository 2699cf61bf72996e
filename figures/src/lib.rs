//! What `docs/figures.md` shows. The benchmarks are in the binary.

pub mod bill;
