//! What an exploration comes by: each is named, so that a model that checks
//! nothing of interest is found out.

/// One situation of interest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reached {
    Void,
    PutFindsVoid,
    TakeOver,
    LostLease,
    Grown,
    Repeat,
    Spilled,
    SpilledAhead,
    SpillPutOff,
    Retry,
    Park,
    Block,
    BlockExpired,
    KillerGivenUp,
    Yield,
    Exclusive,
    Redrive,
    ParkedAndApplied,
    Unblock,
    Forced,
    Commit,
    CommitReleases,
    CommitGrown,
    LateEffectRefused,
    LostClaimRecognised,
    LostGrantRecognised,
    LostSettleRecognised,
    LostReleaseRecognised,
    Purge,
    StoreOut,
    StartWritten,
    Slice,
}

impl Reached {
    pub const ALL: [Reached; 32] = {
        use Reached::*;
        [
            Void,
            PutFindsVoid,
            TakeOver,
            LostLease,
            Grown,
            Repeat,
            Spilled,
            SpilledAhead,
            SpillPutOff,
            Retry,
            Park,
            Block,
            BlockExpired,
            KillerGivenUp,
            Yield,
            Exclusive,
            Redrive,
            ParkedAndApplied,
            Unblock,
            Forced,
            Commit,
            CommitReleases,
            CommitGrown,
            LateEffectRefused,
            LostClaimRecognised,
            LostGrantRecognised,
            LostSettleRecognised,
            LostReleaseRecognised,
            Purge,
            StoreOut,
            StartWritten,
            Slice,
        ]
    };
}
