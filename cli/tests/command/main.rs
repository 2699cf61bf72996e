//! The `serializer` command as people run it: its own binary, in processes of
//! their own, real pipes and signals.

mod aws;
mod console;
mod doctor;
mod endpoint;
mod invoke;
mod leases;
mod local;
mod orders;
mod pipes;
mod replay;
mod restore;
mod running;
mod source;
mod tail;
mod trouble;
mod verify;
