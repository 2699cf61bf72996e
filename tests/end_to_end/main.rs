//! The whole path on the embedded engines, through the AWS clients.

mod order;
