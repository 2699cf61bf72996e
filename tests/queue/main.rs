//! The local queue follows SQS's rules, as AWS's own client sees them.

mod dead_letters;
mod fairness;
mod fifo;
mod fixture;
mod receipts;
mod receiving;
mod sending;
mod stand_in;
