//! Edits the sources document and shows what an edit changes. Also generates the reference of the document's fields.

pub mod advice;
mod change;
mod place;
pub mod reference;
pub mod routing;
mod shown;
mod text;

pub use change::{ChangeOutcome, DocumentChange, accepted, apply, fits};
pub use place::{DocumentPlace, DocumentWrite, FoundDocument, read_text};
pub use shown::difference;
pub use text::DocumentText;
