//! The `serializer` command as people run it: its own binary, in separate processes, with real pipes and
//! signals.

mod alerts;
mod aws;
mod console;
mod doctor;
mod endpoint;
#[cfg(target_os = "linux")]
mod full_disk;
mod init;
mod invoke;
mod jobs;
mod launcher;
mod leases;
mod listen;
mod listen_to;
mod local;
mod local_queues;
mod mending;
mod orders;
mod outages;
mod personal;
mod pipes;
mod queues;
mod readings;
mod restore;
mod running;
mod source;
mod trouble;
mod variables;
mod verify;
