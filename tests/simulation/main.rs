//! The simulation in CI.
