//! Situations that the configurations must reach together. They show that the models check something of
//! interest.

macro_rules! situations {
    ($($name:ident),* $(,)?) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Reached {
            $($name),*
        }

        impl Reached {
            pub const ALL: &[Reached] = &[$(Reached::$name),*];
        }
    };
}

#[rustfmt::skip]
situations! {
    Void, PutFindsVoid, TakeOver, LostLease, Grown, Repeat, Spilled, SpilledToRow, SpilledAhead, SpillFailed, Retry, Park,
    Block, BlockExpired, KillerGivenUp, Yield, Exclusive, Redrive, ParkedAndApplied, Unblock, Forced, Commit,
    CommitReleases, CommitGrown, LateEffectRefused, LostClaimRecognised, LostGrantRecognised,
    LostSettleRecognised, LostReleaseRecognised, Purge, StoreOut, StartWritten, Slice, Group, Apart,
    Superseded, OnHold, Resumed, Skipped, HoldMetCommit, Rewound, RewindEnded,
}
