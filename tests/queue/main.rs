//! The local queue follows SQS's rules, through AWS's own client.

mod dead_letters;
mod fixture;
mod receipts;
mod receiving;
mod sending;
mod stand_in;
