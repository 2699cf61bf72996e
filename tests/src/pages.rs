//! The Rust blocks of the pages, compiled as doc tests: `cargo test -p tests --doc`. `end_to_end/pages.rs`
//! checks that no page with such a block is missing here.

#[doc = include_str!("../../README.md")]
struct Readme;

#[doc = include_str!("../../docs/handlers.md")]
struct HandlersPage;

#[doc = include_str!("../../docs/jobs.md")]
struct JobsPage;

#[doc = include_str!("../../docs/leases.md")]
struct LeasesPage;
