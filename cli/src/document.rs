//! A sources document as it is changed from the command line: its text, where
//! it stands, what a change shows.

mod change;
mod json;
mod place;
mod shown;
mod text;

pub use change::{Change, Changed, accepted, apply, fits};
pub use place::{Found, Place, Written};
pub use shown::difference;
pub use text::Text;
