//! The audit of each change of an entity's row.

use std::time::Duration;

use webhook_serializer::protocol::{
    format::attribute as a,
    receipt::{Receipt, Settlement},
    state::{EntityState, LeaseKind},
    table::Row,
};

use super::{
    super::{
        attempt_audit::AuditedChange,
        history::{AppendCall, ObservedRow, RecordedRewind, SettledRecord, TraceEvent, TraceLine},
        loss::RESTORER,
        outage::SimulatedService,
        workload::RETENTION,
    },
    SimulatedWorld, WorldState, key, label,
    loss::GivenOut,
    relative,
};

/// A write to an entity's row that landed, and the row as it was observed before.
struct RowChange<'a> {
    node: u32,
    entity: usize,
    how: &'static str,
    old: ObservedRow,
    was: Option<&'a Row>,
    row: &'a Row,
    head: u64,
    tail: u64,
    token: u64,
    holder: Option<&'a str>,
    /// The receipts of sequences after the old head.
    newly: Vec<Receipt>,
    last: Option<Receipt>,
    by_hand: bool,
    is_restored: bool,
}

fn is_of(row: &Row, kind: LeaseKind) -> bool {
    row.text(a::KIND) == Some(kind.as_str())
}

fn is_on_hold(row: &Row) -> bool {
    row.number(a::HOLD).is_some()
}

impl<'a> RowChange<'a> {
    fn of(world: &SimulatedWorld, node: u32, entity: usize, was: Option<&'a Row>, row: &'a Row) -> Self {
        let number = |name| row.number(name).unwrap_or(0);
        let old = world.observed(entity);
        let recent = EntityState::parse(row).map(|state| state.recent).unwrap_or_default();
        let change = Self {
            node,
            entity,
            how: "changed",
            was,
            row,
            head: number(a::HEAD),
            tail: number(a::TAIL),
            token: number(a::TOKEN),
            holder: row.text(a::HOLDER),
            newly: recent.iter().filter(|receipt| receipt.sequence.0 > old.head).cloned().collect(),
            last: recent.last().cloned(),
            by_hand: was.is_some_and(|was| is_of(was, LeaseKind::Exclusive)),
            is_restored: world.is_raised(was, row),
            old,
        };
        Self { how: change.how(), ..change }
    }

    fn how(&self) -> &'static str {
        let Self { old, was, row, .. } = self;
        let was_without = |name| was.is_some_and(|was| was.get(name).is_none());
        let was_with = |name| was.is_some_and(|was| was.get(name).is_some());
        let is_held = self.holder.is_some();
        let was_held = old.holder.is_some();
        let has_other_holder = is_held && self.holder != old.holder.as_deref();
        match () {
            () if self.is_restored => "raised",
            () if was.is_some() && self.head < old.head && is_of(row, LeaseKind::Exclusive) => "set back",
            () if was.is_some() && old.head != self.head => "settled",
            () if has_other_holder && was_held => "taken over",
            () if has_other_holder => "acquired",
            () if old.tail != self.tail => "claimed",
            () if was_without(a::BLOCKED) && row.get(a::BLOCKED).is_some() => "blocked",
            () if !is_held && was_held && old.token != self.token => "force released",
            () if !is_held && was_held => "released",
            () if was.is_some_and(|was| was.get(a::EXPIRES_AT) != row.get(a::EXPIRES_AT)) => "renewed",
            () if was_with(a::BLOCKED) && row.get(a::BLOCKED).is_none() => "unblocked",
            () => "changed",
        }
    }

    fn is_grant(&self) -> bool {
        self.how == "acquired" || self.how == "taken over"
    }

    fn settlement(&self) -> &'static str {
        self.last.as_ref().map_or("", |receipt| receipt.settlement.as_str())
    }

    /// Returns mistakes in head, tail and token. None of them may go back, except the head in a rewind, and
    /// one settle may decide at most `most` sequences.
    fn wrong_numbers(&self, most: u64) -> Vec<String> {
        let Self { old, how, head, tail, token, .. } = self;
        let mut mistakes = Vec::new();
        if old.tail == 0 {
            return mistakes;
        }
        let which = if old.present { "" } else { " in the new row" };
        if *token < old.token {
            mistakes.push(format!("the token went back{which}: {} to {}", relative(old.token), relative(*token)));
        }
        if *tail < old.tail || *head < old.head && *how != "set back" {
            mistakes.push(format!("head or tail went back{which}"));
        }
        if (self.is_grant() || *how == "settled") && *token <= old.token {
            mistakes.push(format!("{how} without a greater token: {}", relative(*token)));
        }
        let places = head.saturating_sub(old.head);
        // An operator who ends a rewind settles the remaining sequences at once.
        let is_by_a_worker = old.present && !self.by_hand && !self.is_restored;
        if is_by_a_worker && (places > most || places != self.newly.len() as u64) {
            mistakes.push(format!("head went from {} to {}", relative(old.head), relative(*head)));
        }
        mistakes
    }

    /// Returns the name of the situation that this change shows, if at least one run must reach that
    /// situation.
    fn reached(&self, is_of_another_period: bool) -> Option<&'static str> {
        let settlement = self.settlement();
        match self.how {
            "taken over" | "force released" | "blocked" | "unblocked" | "set back" | "raised" => Some(self.how),
            "settled" if settlement == "repeat" && is_of_another_period => {
                Some("a repeat of another period is settled")
            }
            "settled" if settlement == "repeat" => Some("a repeat is settled"),
            "settled" if settlement == "parked" => Some("a delivery is parked"),
            "settled" if self.newly.len() > 1 && self.newly[0].settlement == Settlement::Superseded => {
                Some("a latest is settled")
            }
            "settled" if self.newly.len() > 1 => Some("a group is settled"),
            "settled" if self.holder.is_some() => Some("settled and held on"),
            "released" if self.row.get(a::ONE_BY_ONE).is_some() => Some("a group fails"),
            _ => None,
        }
    }
}

impl SimulatedWorld {
    pub(super) fn changed(&self, node: u32, entity: usize, before: Option<Row>, row: &Row) {
        let change = RowChange::of(self, node, entity, before.as_ref(), row);
        let RowChange { how, head, tail, token, .. } = change;
        let [place, end, number] = [head, tail, token].map(relative);
        let at = self.trace(TraceEvent::RowChanged { entity, node, how, head: place, tail: end, token: number });
        let mut mistakes = change.wrong_numbers(self.profile.deliver.most() as u64);
        mistakes.extend(self.given_out_again(node, entity, &change.old, GivenOut { tail, token }, change.is_restored));
        let was_on_hold = before.as_ref().is_some_and(is_on_hold);
        if is_on_hold(row) != was_on_hold {
            self.inner().held_at.insert(entity, token);
            self.mark(if was_on_hold { "resumed" } else { "put on hold" });
        }
        if how == "claimed" && change.old.present && row.get(a::BLOCKED).is_none() && !is_on_hold(row) {
            mistakes.extend(self.waits_unseen(entity, change.old.head));
        }
        self.note_wake_ups(&change);
        let fits = |state: EntityState| state.waits.is_some() == state.due_waits().is_some();
        // A restore settles the deliveries of a blocked order before it ends the block.
        if node != RESTORER && !EntityState::parse(row).is_ok_and(fits) {
            mistakes.push(format!("`waits` does not fit the row, once it is {how}"));
        }
        if head > tail {
            mistakes.push("head is beyond tail".into());
        }
        let mut inner = self.inner();
        let at_time = self.start.elapsed();
        if how == "force released" {
            inner.history.forced.push((key(entity), token));
        }
        if how == "set back" {
            let rewound = RecordedRewind { entity, from: head + 1, through: change.old.head, token, at };
            mistakes.extend(inner.history.record_rewind(rewound));
        }
        let name = change.last.as_ref().and_then(|receipt| inner.history.names.get(&receipt.identity?).copied());
        let is_of_another_period =
            name.is_some_and(|name| inner.history.names.values().filter(|other| **other == name).count() > 2);
        let again = inner.history.decided_last((entity, head)).map(|before| before.settlement.clone());
        let attempt = AuditedChange {
            again: again.filter(|_| how == "settled"),
            entity,
            node,
            before: before.as_ref(),
            after: row,
            settled: name.map(|name| (name, change.settlement())),
            granted: change.old.granted,
            is_late: inner.history.is_late,
            is_restoring: node == RESTORER,
            clocks_lie: self.profile.takes_over_live_leases(),
            is_mute: inner.outages.iter().any(|outage| outage.service == SimulatedService::EntityWrites),
            time: at_time,
            seed: self.plan.seed,
        };
        let (charged, wrong) = inner.history.attempts.follow(&attempt);
        inner.trace.extend(charged.map(|what| TraceLine { at: at_time, what }));
        mistakes.extend(wrong);
        if how == "settled" {
            mistakes.extend(inner.record_settled(&change, at, at_time));
        }
        let (granted, by) = if change.is_grant() { (token, node) } else { (change.old.granted, change.old.node) };
        let holder = change.holder.map(str::to_owned);
        inner.observed_rows.insert(entity, ObservedRow { present: true, head, tail, token, holder, granted, node: by });
        let reached = change.reached(is_of_another_period);
        let name = label(entity);
        inner.history.mistakes.extend(mistakes.into_iter().map(|mistake| format!("{name}: {mistake} (node {node})")));
        inner.before.insert(entity, (at_time, before));
        drop(inner);
        if let Some(reached) = reached {
            self.mark(reached);
        }
    }

    /// Notes which orders may have to wait for the sweep.
    fn note_wake_ups(&self, change: &RowChange<'_>) {
        let RowChange { entity, token, head, tail, .. } = *change;
        let drained = change.holder.is_some() && is_of(change.row, LeaseKind::Drain);
        self.with_history(|history| match change.how {
            // The lease is orphaned: see "What is left to the sweep" in docs/decisions.md.
            "acquired" | "taken over" if history.is_late => {
                history.excused.insert(entity);
            }
            // The lease was taken over from an exclusive holder. Otherwise a drain does not acquire an empty
            // inbox.
            "taken over" if drained && head == tail => {
                history.idle.insert(entity, token);
            }
            // The retry's wake-up is spent, or the lease was acquired for a duplicate message.
            "claimed" if history.is_late || (drained && history.idle.get(&entity) == Some(&token)) => {
                history.unwoken.insert(entity);
            }
            _ => {}
        });
    }

    /// Finds a delivery that waits without a wake-up and without a worker. This check comes before the next
    /// claim, whose wake-up would hide the mistake.
    fn waits_unseen(&self, entity: usize, head: u64) -> Option<String> {
        let under_way = self.queue.holds(&key(entity));
        self.with_history(|history| {
            let processing = history.processing.get(&entity).is_some_and(|workers| *workers > 0);
            if under_way
                || processing
                || history.unblocking.get(&entity).is_some_and(|operators| *operators > 0)
                || history.leaves_to_sweep(entity)
            {
                return None;
            }
            let waits =
                |call: &&AppendCall| call.entity == entity && call.acked.iter().any(|(_, sequence)| *sequence > head);
            let call = history.calls.values().find(waits)?;
            Some(format!("stuck: {} was answered 2xx and waits, and no wake-up is left to find it", call.name))
        })
    }
}

impl WorldState {
    /// Records the settlements of a change, and returns the mistakes in them.
    fn record_settled(&mut self, change: &RowChange<'_>, at: usize, at_time: Duration) -> Vec<String> {
        let RowChange { entity, node, head, by_hand, newly, old, .. } = change;
        let entity = *entity;
        let head = *head;
        let is_kept = *by_hand;
        let mut mistakes = Vec::new();
        // An operator who ends a rewind may settle more than the row remembers.
        let first = newly.first().map_or(head + 1, |receipt| receipt.sequence.0);
        for place in (old.head + 1..first).filter(|_| is_kept) {
            match self.history.decided_last((entity, place)).cloned() {
                Some(before) => {
                    let kept = SettledRecord { at, time: at_time, is_kept: true, ..before };
                    self.history.decided.insert((entity, place), kept);
                }
                None => mistakes.push(format!("{} was left out by hand", relative(place))),
            }
        }
        for receipt in newly {
            let place = (entity, receipt.sequence.0);
            let name = receipt.identity.and_then(|identity| self.history.names.get(&identity).copied());
            let settlement = receipt.settlement.as_str().into();
            let mut decided = SettledRecord { at, time: at_time, settlement, name, by: head, is_kept };
            if let Some(before) = self.history.decided_last(place).cloned() {
                let erased = self.history.has_erased(entity, place.1, at_time);
                mistakes.extend(runs_again(&before, &decided, erased));
                decided.is_kept &= before.settlement == decided.settlement;
                decided.by = if before.settlement == decided.settlement { before.by } else { decided.by };
            } else if *node == RESTORER {
                let same = |(at, before): &&((usize, u64), SettledRecord)| {
                    *at == place && before.settlement == decided.settlement
                };
                let before = self.history.lost.iter().rev().find(same);
                decided.by = before.map_or(decided.by, |(_, before)| before.by);
            }
            if self.history.decided.insert(place, decided).is_some() {
                mistakes.push(format!("sequence {} was decided twice", relative(place.1)));
            }
        }
        mistakes
    }
}

/// Checks that only an applied delivery runs again. Others keep their settlement for as long as it is
/// remembered.
fn runs_again(before: &SettledRecord, now: &SettledRecord, erased: bool) -> Option<String> {
    let as_it_was = before.settlement == now.settlement && before.name == now.name;
    let fails_now = before.settlement == "applied" && now.settlement == "parked";
    let is_old = now.time.saturating_sub(before.time) > RETENTION / 3;
    let name = before.name.map_or_else(|| "a void".to_owned(), |name| name.to_string());
    (!as_it_was && !fails_now && !is_old && !erased)
        .then(|| format!("{name} was {}, and is {} when it is run again", before.settlement, now.settlement))
}
