//! The report of a verb about one target: a sentence, a JSON object, and the commands that an operator can run next.

use serde_json::{Value, json};
use webhook_serializer::{
    leases::LeaseError,
    operator::{OperatorError, StateChange},
    protocol::{
        entity::{EntityKey, Sequence},
        maintain::Reason,
        state::EntityState,
    },
};

use crate::{
    output::{counted, this_command},
    view::order_status::NextCommand,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Done,
    /// Done, but the order is still blocked or on hold, for another reason than the one that ended.
    StaysStopped,
    /// Nothing was left to do: the order was already in the wanted state, another operator was faster, or the delivery
    /// was settled in another way.
    Nothing,
    Refused,
    /// Refused, because no such order is stored.
    Unknown,
}

impl Effect {
    pub fn is_done(self) -> bool {
        matches!(self, Self::Done | Self::StaysStopped)
    }

    pub fn is_refused(self) -> bool {
        matches!(self, Self::Refused | Self::Unknown)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub effect: Effect,
    pub sentence: String,
    pub next: Vec<NextCommand>,
    json: Value,
}

impl Report {
    pub fn new(effect: Effect, sentence: String, json: Value) -> Self {
        Self { effect, sentence, next: Vec::new(), json }
    }

    pub fn then(self, command: &'static str, arguments: &[&str], purpose: &'static str) -> Self {
        self.then_command(NextCommand::new(command, arguments, purpose))
    }

    pub fn then_command(mut self, next: NextCommand) -> Self {
        self.next.push(next);
        self
    }

    pub fn json(&self, reason: &Reason) -> Value {
        let mut json = self.json.clone();
        json["by"] = json!(reason.by);
        json["why"] = json!(reason.why);
        json
    }

    /// Reports a change of an order's row.
    pub fn of_change(
        verb: &str,
        order: &EntityKey,
        change: &StateChange,
        done: impl Fn(&EntityState) -> String,
        unchanged: impl Fn(&EntityState) -> String,
    ) -> Self {
        let (effect, state, sentence) = match change {
            StateChange::Done(state) => (Effect::Done, Some(state), done(state)),
            StateChange::Unchanged(Some(state)) => (Effect::Nothing, Some(state), unchanged(state)),
            StateChange::Unchanged(None) => (Effect::Unknown, None, unknown(order)),
        };
        let json = json!({
            "entity": order, "done": effect.is_done().then_some(verb),
            "on_hold": state.and_then(|state| state.hold.since()), "waiting": state.map_or(0, EntityState::waiting),
            "known": state.is_some(),
        });
        Self::new(effect, sentence, json)
    }

    pub fn without_sequence(verb: &str, order: &EntityKey) -> Self {
        let sentence =
            format!("{verb} needs the SEQUENCE of a delivery of {order}; `{} show {order}` lists them", this_command());
        Self::refused(Effect::Refused, order, None, sentence)
    }

    fn refused(effect: Effect, order: &EntityKey, sequence: Option<Sequence>, sentence: String) -> Self {
        Self::new(effect, sentence, json!({ "entity": order, "sequence": sequence, "done": null }))
    }

    /// Reports that a verb did not get the order's lease. Returns any other error as it is.
    pub fn not_leased(
        order: &EntityKey,
        sequence: Option<Sequence>,
        error: OperatorError,
    ) -> Result<Self, OperatorError> {
        let refused = |effect, sentence| Self::refused(effect, order, sequence, sentence);
        match error {
            OperatorError::Unknown => Ok(refused(Effect::Unknown, unknown(order))),
            OperatorError::Lease(LeaseError::Contended { by, until }) => {
                let sentence =
                    format!("nothing was changed: {by} holds the lease of {order} until {until}. Try again then");
                let why = &["--why", "TEXT"];
                Ok(refused(Effect::Refused, sentence)
                    .then("hold", why, "if the order is always busy, run this first: no further handler starts")
                    .then("lease release", why, "takes the lease away"))
            }
            OperatorError::Lease(LeaseError::Lost) => {
                let sentence =
                    format!("the lease of {order} was lost during the operation, which may have taken effect");
                Ok(refused(Effect::Refused, sentence).then("show", &[], "shows whether it did"))
            }
            error => Err(error),
        }
    }
}

fn unknown(order: &EntityKey) -> String {
    format!("there is no order {order}: no webhook has arrived for this key, or the order has expired or was erased")
}

pub fn waiting(state: &EntityState) -> String {
    match state.waiting() {
        0 => "nothing waits".to_owned(),
        waiting => counted(waiting, "delivery waits", "deliveries wait"),
    }
}
