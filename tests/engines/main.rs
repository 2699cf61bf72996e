//! The promises on the embedded DynamoDB and queue, through the AWS clients and by the
//! machine's clock: many workers poll, leases run out, and senders wait for at most 2.5 s.

mod bodies;
mod dead_engines;
mod one_order;
mod order;
