//! The controls: small changes to the protocol, each of which must make the
//! model fail. They switch things in the model; production code has no such
//! switches.

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Change {
    ReceiversIgnoreTokens,
    OneTokenForADrain,
    ReleaseWithoutTail,
    StepOverGaps,
    VoidUnconditionally,
    DeleteAtExpiredEmptyLease,
    DropWhileDrained,
    ForgetOwedAfterVoid,
    RetryClaimWithoutDoubt,
    ReleaseRecognisedWithoutToken,
    FailKeepsItsMessage,
    ReceivedAgainAcquiresAtOnce,
    FailWithoutHead,
    HolderFromRequest,
    ReceiptNotMadeSure,
    RedriveKeepsItsNumber,
    RedriveForgetsFirst,
    UnblockWithoutWakeUp,
    HandOverWithoutWakeUp,
    AnswerBeforeWakeUp,
    PurgedRowsStartAtTheSame,
    ClaimKeepsPurgeAt,
    ReceiptBesideParking,
    RedriveUnasked,
    CommitYieldsToReceipts,
    ReleaseRecognisedWithoutHead,
    DoubtfulCommitFails,
    NoWakeUpDuringARatesWait,
}

/// A set of changes; empty: the protocol as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Changes(u64);

impl Changes {
    pub fn of(changes: &[Change]) -> Self {
        Self(changes.iter().fold(0, |set, change| set | 1 << *change as u8))
    }

    pub fn has(self, change: Change) -> bool {
        self.0 & 1 << change as u8 != 0
    }
}
