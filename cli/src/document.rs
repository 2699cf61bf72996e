//! A sources document as it is changed from the command line: its text, where
//! it stands, what a change shows.

pub mod advice;
mod change;
mod json;
mod place;
pub mod reference;
mod shown;
mod text;

pub use change::{Change, Changed, accepted, apply, fits};
pub use place::{Found, Place, Written};
pub use shown::difference;
pub use text::Text;
