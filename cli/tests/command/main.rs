//! The `serializer` command as people run it: its own binary, in processes of
//! their own, real pipes and signals.

mod console;
mod leases;
mod local;
mod orders;
mod pipes;
mod running;
mod source;
mod trouble;
mod verify;
