pub mod local;
pub mod send;
pub mod sign;
pub mod verify;
pub mod webhook;
