//! What a person can do to an order or a delivery. One more is a variant here,
//! with a line in each `match`.

use webhook_serializer::{
    operator::{Operator, OperatorError, PutBack, Rewinding, Rewound, Skipped, Turned},
    protocol::{
        entity::{EntityKey, Sequence},
        inbox::Unblocked,
        receipt::Settlement,
        state::{BlockReason, EntityState},
    },
};

/// An action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Lets a blocked order go on.
    Unblock,
    /// Tries what failed now.
    Retry,
    /// Sets aside what is in front.
    Skip,
    /// Keeps workers off.
    Hold,
    /// Lets them at it again.
    Resume,
    /// Puts what is parked back: one, or all of an order.
    Redrive,
    /// Removes a parked delivery for good.
    Discard,
    /// Runs what was applied once more, from this delivery on.
    Rewind,
    /// Leaves what is yet to be run once more as it was.
    EndRewind,
}

/// What an action is about.
#[derive(Debug, Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) entity: &'a EntityKey,
    /// One delivery of it; `None`: the order.
    pub(super) sequence: Option<Sequence>,
}

/// How that stands: what there is to act on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Situation<'a> {
    pub(super) state: Option<&'a EntityState>,
    /// How many deliveries are parked there.
    pub(super) parked: usize,
    /// Whether any that wait are run once more.
    pub(super) again: bool,
}

/// What was done, as a sentence; `Err`: why nothing was.
pub(super) type Done = Result<String, String>;

impl Action {
    pub(super) const ALL: [Self; 9] = [
        Self::Unblock,
        Self::Retry,
        Self::Skip,
        Self::Resume,
        Self::EndRewind,
        Self::Redrive,
        Self::Discard,
        Self::Rewind,
        Self::Hold,
    ];

    /// In addresses, and what the command is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Unblock => "unblock",
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Hold => "hold",
            Self::Resume => "resume",
            Self::Redrive => "redrive",
            Self::Discard => "discard",
            Self::Rewind => "rewind",
            Self::EndRewind => "end-rewind",
        }
    }

    /// On its button.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Unblock => "Let it go on",
            Self::Retry => "Retry now",
            Self::Skip => "Skip",
            Self::Hold => "Put on hold",
            Self::Resume => "Resume",
            Self::Redrive => "Put back",
            Self::Discard => "Discard",
            Self::Rewind => "Run again from here",
            Self::EndRewind => "Run no more of it again",
        }
    }

    /// What it will do.
    pub(super) fn says(self) -> &'static str {
        match self {
            Self::Unblock => {
                "The delivery that stopped the order is tried again, then those behind it, in their order."
            }
            Self::Retry => "It is tried now, instead of when its next attempt is due. Its attempts stay counted.",
            Self::Skip => {
                "It is parked, so that it can be put back at the end. What waits behind it goes on in order, blocked no longer."
            }
            Self::Hold => {
                "What is at work ends; nothing else starts. Webhooks are accepted and wait, in order, until it is resumed."
            }
            Self::Resume => "What waits is handled, in order.",
            Self::Redrive => "It goes to the end of its order, behind what arrived meanwhile, and is handled again.",
            Self::Rewind => {
                "What was applied from here on is handled once more, in order and before anything that waits. Its effects come again."
            }
            Self::EndRewind => "What has not been run again yet stays as it was; what waits goes on.",
            Self::Discard => "It is removed for good, body and all: it is never handled, and cannot be put back.",
        }
    }

    /// Whether it leaves nothing to go back to.
    pub(super) fn is_final(self) -> bool {
        self == Self::Discard
    }

    /// Which delivery it is about, on a page about this.
    pub(super) fn sequence(self, about: About<'_>, situation: Situation<'_>) -> Option<Sequence> {
        // Another may be in front by the time that it is done.
        let in_front = || situation.state.filter(|_| self == Self::Skip).map(EntityState::next);
        about.sequence.or_else(in_front)
    }

    /// Whether there is anything that it could do.
    pub(super) fn is_offered(self, about: About<'_>, situation: Situation<'_>) -> bool {
        match self {
            Self::Unblock => {
                let blocked = situation.state.filter(|state| state.blocked.is_some());
                blocked.is_some_and(|state| is_in_front(about, state))
            }
            Self::Retry => {
                let waits = |state: &&EntityState| {
                    state.retry_at.is_some() && state.last_error.is_some() && !state.is_stopped()
                };
                situation.state.filter(waits).is_some_and(|state| is_in_front(about, state))
            }
            Self::Skip => {
                let waits = |state: &&EntityState| !state.is_empty() && state.blocked != Some(BlockReason::Expired);
                situation.state.filter(waits).is_some_and(|state| is_in_front(about, state))
            }
            Self::Hold => {
                let goes_on = |state: &EntityState| state.hold.since().is_none() && !about.entity.is_kept_forever();
                about.sequence.is_none() && situation.state.is_some_and(goes_on)
            }
            Self::Resume => {
                about.sequence.is_none() && situation.state.is_some_and(|state| state.hold.since().is_some())
            }
            Self::Redrive => situation.parked > 0,
            Self::Discard => situation.parked > 0 && about.sequence.is_some(),
            Self::Rewind => {
                let settled = |sequence: Sequence| situation.state.is_some_and(|state| sequence <= state.head);
                situation.parked == 0 && about.sequence.is_some_and(settled)
            }
            Self::EndRewind => situation.again && about.sequence.is_none(),
        }
    }

    /// Does it.
    ///
    /// # Errors
    ///
    /// The store could not be reached.
    pub(super) async fn act(self, operator: &Operator, about: About<'_>) -> Result<Done, OperatorError> {
        let About { entity, sequence } = about;
        match (self, sequence) {
            (Self::Unblock, _) => Ok(match operator.unblock(entity).await? {
                Unblocked::Unblocked(state) => {
                    Ok(format!("{entity} goes on, from {}: {} waiting", state.next(), state.waiting()))
                }
                Unblocked::NotBlocked(Some(_)) => {
                    Ok(format!("{entity} was not blocked; a worker was woken all the same"))
                }
                Unblocked::NotBlocked(None) => Err(format!("Nothing is known of {entity}; nothing was done.")),
            }),
            (Self::Retry, _) => Ok(match operator.retry(entity).await? {
                Turned::Done(state) => Ok(format!("{entity} {} is tried now", state.next())),
                Turned::Unchanged(_) => Err(format!("{entity} does not wait for another attempt any more.")),
            }),
            (Self::Skip, Some(sequence)) => Ok(match operator.skip(entity, sequence).await? {
                Skipped::As(Settlement::Parked) => Ok(format!("{entity} {sequence} is parked, and in nobody's way")),
                Skipped::As(settlement) => Ok(format!("{entity} {sequence} is settled as {settlement}")),
                Skipped::NotInFront(_) => {
                    Err(format!("{entity} {sequence} is not the next to be handled any more; nothing was skipped."))
                }
                Skipped::NotThereYet => Err(format!("Nothing stands at {sequence} yet; nothing was skipped.")),
            }),
            (Self::Skip, None) => Ok(Err("Which delivery? Nothing was skipped.".to_owned())),
            (Self::Hold, _) => Ok(match operator.hold(entity).await? {
                Turned::Done(state) => Ok(format!("{entity} is on hold: {} waiting", state.waiting())),
                Turned::Unchanged(_) => Err(format!("{entity} was on hold already.")),
            }),
            (Self::Resume, _) => Ok(match operator.resume(entity).await? {
                Turned::Done(state) => {
                    Ok(format!("{entity} goes on, from {}: {} waiting", state.next(), state.waiting()))
                }
                Turned::Unchanged(_) => Err(format!("{entity} was not on hold.")),
            }),
            (Self::Redrive, _) => redrive(operator, entity, sequence).await,
            (Self::Discard, Some(sequence)) => discard(operator, entity, sequence).await,
            (Self::Rewind, Some(from)) => Ok(match operator.rewind(entity, from).await? {
                Rewound::Done(Rewinding { from, through, applied }) => {
                    Ok(format!("{applied} deliveries of {entity} are run again, from {from} to {through}"))
                }
                Rewound::NotSettled(_) => Err(format!("{entity} {from} is not settled; nothing was changed.")),
                Rewound::Expired(Some(first)) => Err(format!(
                    "What stood there is not kept any more; the first from which all is there is {first}. Nothing was changed."
                )),
                Rewound::Expired(None) => Err("Nothing of it is kept any more; nothing was changed.".to_owned()),
                Rewound::Nothing => Err("Nothing was applied from there on; nothing was changed.".to_owned()),
            }),
            (Self::Rewind, None) => Ok(Err("From which delivery on? Nothing was changed.".to_owned())),
            (Self::EndRewind, _) => Ok(match operator.end_rewind(entity).await? {
                Rewound::Done(Rewinding { from, through, .. }) => {
                    Ok(format!("{entity} {from} to {through} stay as they were; what waits goes on"))
                }
                _ => Err(format!("Nothing of {entity} is to be run again any more.")),
            }),
            (Self::Discard, None) => Ok(Err("Which delivery? Nothing was removed.".to_owned())),
        }
    }
}

fn is_in_front(about: About<'_>, state: &EntityState) -> bool {
    about.sequence.is_none_or(|sequence| sequence == state.next())
}

async fn redrive(operator: &Operator, entity: &EntityKey, one: Option<Sequence>) -> Result<Done, OperatorError> {
    let parked = operator.parked(entity).await?;
    let wanted = parked.iter().filter(|parked| one.is_none_or(|one| parked.sequence == one));
    let list: Vec<_> = wanted.map(|parked| (entity.clone(), parked.sequence)).collect();
    let (mut back, mut not) = (Vec::new(), Vec::new());
    operator
        .put_back(&list, |_, sequence, became| {
            match became {
                PutBack::At(_) | PutBack::Unannounced => back.push(told(sequence, became)),
                _ => not.push(told(sequence, became)),
            }
            true
        })
        .await?;
    if list.is_empty() {
        let which = one.map(|one| format!(" {one}")).unwrap_or_default();
        return Ok(Err(format!(
            "{entity}{which} is not parked any more: it was put back or discarded, by you or somebody else. Nothing was put back."
        )));
    }
    let said = [&back[..], &not[..]].concat().join("; ");
    Ok(if back.is_empty() { Err(format!("{entity}: {said}")) } else { Ok(format!("{entity}: {said}")) })
}

/// What became of one that was to be put back.
pub(super) fn told(sequence: Sequence, became: &PutBack) -> String {
    match became {
        PutBack::At(at) => format!("{sequence} is back in line, as {at}"),
        PutBack::Unannounced => {
            format!("{sequence} is back in line; no wake-up could be sent, the sweep will find it within the hour")
        }
        PutBack::NotParked => format!("{sequence}: {}", OperatorError::NotParked),
        PutBack::DecidedOtherwise(settlement) => {
            format!("{sequence}: {}", OperatorError::DecidedOtherwise(*settlement))
        }
        PutBack::Undecided => format!("{sequence}: {}; try again in a minute", OperatorError::Undecided),
        PutBack::Behind => format!("{sequence}: one in front of it is still being decided; it was not put back"),
        PutBack::Unreadable(error) => format!("{sequence} stays parked: it cannot be read: {error}"),
    }
}

async fn discard(operator: &Operator, entity: &EntityKey, sequence: Sequence) -> Result<Done, OperatorError> {
    let Some(parked) = operator.parked_at(entity, sequence).await? else {
        return Ok(Err(format!("{entity} {sequence} is not parked any more; nothing was removed.")));
    };
    match operator.discard(&parked).await {
        Ok(()) => Ok(Ok(format!("{entity} {sequence} is discarded"))),
        Err(OperatorError::Undecided) => Ok(Err(format!(
            "{entity} {sequence} is still being decided: the worker that set it aside has not settled it, or died in between. Nothing was removed; try again in a minute."
        ))),
        Err(OperatorError::DecidedOtherwise(settlement)) => Ok(Err(format!(
            "{entity} {sequence} was {settlement} after all: what was parked was left over by a worker that lost its lease. It is removed."
        ))),
        Err(error) => Err(error),
    }
}
