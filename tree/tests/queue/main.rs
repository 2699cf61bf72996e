//! The queue, through the real SDK.
//!
//! `sending`, `receiving`, `receipts`, `dead_letters` and `attributes` are one check list, which any server can be held
//! to: `SQS_ENDPOINT=http://127.0.0.1:5000 cargo test --test queue -- --skip own::`. `own` shows what only
//! the stand-in has.
//!
//! `moto_server` 5.2.5 passes 49 of the 64 checks. In most others it takes what SQS refuses; it also deletes by an
//! older receipt handle, hides a message anew that is visible again, and counts a chain's receives together.

mod attributes;
mod bench;
mod dead_letters;
mod own;
mod receipts;
mod receiving;
mod sending;

/// Runs each check as a test of its own name on a fresh bench.
macro_rules! check_list {
    ($($(#[$meta:meta])* async fn $name:ident($bench:ident) $body:block)*) => {
        $(
            $(#[$meta])*
            #[tokio::test]
            async fn $name() {
                let $bench = &crate::bench::Bench::start().await;
                $body
            }
        )*
    };
}
pub(crate) use check_list;
