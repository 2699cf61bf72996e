//! Edits of the sources document: its text, its location, and the difference that an
//! edit makes; and its reference.

pub mod advice;
mod change;
mod place;
pub mod reference;
mod shown;
mod text;

pub use change::{Change, Changed, accepted, apply, fits};
pub use place::{Found, Place, Written};
pub use shown::difference;
pub use text::Text;
