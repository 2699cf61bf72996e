//! Sources, and checks of a deployment.

pub mod check;
pub mod doctor;
pub mod source;
