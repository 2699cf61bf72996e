//! The read units that commands and pages spend unless somebody agrees to more.

/// The most read units of a reading.
pub const FREE: u64 = 1000;

/// The read units for the other orders, once those in trouble are known.
pub const OTHERS: u64 = 40;

/// The rows that one request for the other orders reads.
pub const OTHERS_AT_ONCE: u32 = 100;

/// The read units of such a request, if each row has at most 1 KB.
pub const UNITS_OF_OTHERS: u64 = 16;
