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
    ReceiptMadeSure,
    ReceiptWithoutSettle,
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
    LateEffectRefused,
    LostClaimRecognised,
    LostGrantRecognised,
    LostSettleRecognised,
    LostReleaseRecognised,
    Purge,
}

impl Reached {
    pub const ALL: [Reached; 26] = {
        use Reached::*;
        [
            Void,
            PutFindsVoid,
            TakeOver,
            LostLease,
            Grown,
            Repeat,
            ReceiptMadeSure,
            ReceiptWithoutSettle,
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
            LateEffectRefused,
            LostClaimRecognised,
            LostGrantRecognised,
            LostSettleRecognised,
            LostReleaseRecognised,
            Purge,
        ]
    };
}
