//! Edits the sources document: its text, its location, and the difference that an edit makes. The reference of the
//! document is generated here too.

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
