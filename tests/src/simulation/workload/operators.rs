//! Operators: they hold, skip, rewind, unblock, redrive and erase, one at a time or two at once.

use std::{sync::Arc, time::Duration};

use webhook_serializer::{
    operator::{Operator, OperatorError, RewindOutcome, SkipOutcome},
    protocol::{
        entity::{Identity, Sequence},
        lease::{ForceRelease, Forced},
        maintain::Reason,
        receipt::Settlement,
        state::HolderInfo,
    },
};

use super::{
    super::{
        history::TraceEvent,
        node::{NodeSlot, pause},
        random::{Draw, RandomStream, actor},
        world::{SimulatedWorld, key, name_of},
    },
    PATIENCE, WorkloadParts, record_answer, record_call,
};
use crate::rules::ViolatedRule;

pub async fn run_operator(world: Arc<SimulatedWorld>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    let busy = world.begin();
    let stream = RandomStream::new(world.plan.seed, actor::OPERATOR);
    let mut company = stream.at(5000 + number);
    if company.happens(world.profile.erases) && world.allows(company.id) {
        world.mark("two operators at once");
        let second = operator_visit(&world, 500 + number, entity, company.id.number, true);
        let first = operator_visit(&world, 80 + number, entity, 1000 + number, true);
        futures_util::join!(first, second);
    } else {
        operator_visit(&world, 80 + number, entity, 1000 + number, false).await;
    }
    drop(busy);
}

pub async fn run_eraser(world: Arc<SimulatedWorld>, number: u32, entity: usize, at: Duration) {
    world.pause_until(at).await;
    if !world.profile.may_erase() {
        return;
    }
    let busy = world.begin();
    let node = NodeSlot::new(&world, 700 + number).boot();
    let parts = WorkloadParts::on(&node);
    erase(&world, &parts, &parts.operator(), entity).await;
    drop(busy);
}

async fn operator_visit(world: &Arc<SimulatedWorld>, place: u32, entity: usize, decision: u32, may_erase: bool) {
    let node = NodeSlot::new(world, place).boot();
    let parts = WorkloadParts::on(&node);
    let operator = parts.operator();
    let mut draw = RandomStream::new(world.plan.seed, actor::OPERATOR).at(decision);
    let wanted = key(entity);
    let state = parts.store.entity(&wanted, PATIENCE).await.ok().flatten();
    if draw.happens(300)
        && let Some(seen) = state.filter(|state| state.held.is_some())
    {
        let force = ForceRelease { seen: &seen, record: HolderInfo::new(&format!("operator {place}")) };
        if let Ok(Forced::Released(state)) = parts.store.run(&force, PATIENCE).await {
            world.trace(TraceEvent::Operator { entity, how: "took a lease away" });
            if !state.is_empty() {
                let _ = parts.waker.wake(&wanted, Duration::ZERO, PATIENCE).await;
            }
        }
    }
    let erases = may_erase && world.profile.may_erase();
    if erases && draw.happens(500) {
        erase(world, &parts, &operator, entity).await;
    }
    hold_and_skip(world, &parts, entity, 9000 + decision).await;
    unblock_and_redrive(world, &parts, entity, place).await;
    if erases && draw.happens(500) {
        erase(world, &parts, &operator, entity).await;
    }
}

async fn erase(world: &Arc<SimulatedWorld>, parts: &WorkloadParts, operator: &Operator, entity: usize) {
    let observed = world.observed(entity);
    if !observed.present {
        // The row was erased or purged earlier; this erase removes the rest.
        world.record_erase(entity, observed.tail);
    }
    let node = parts.node;
    world.set_erasing(node, true);
    let erased = operator.erase(&key(entity)).await;
    world.set_erasing(node, false);
    if erased.is_ok() && parts.mutator.erases_all() {
        world.forget_settled(entity);
    }
}

async fn hold_and_skip(world: &Arc<SimulatedWorld>, parts: &WorkloadParts, entity: usize, decision: u32) {
    let mut draw = RandomStream::new(world.plan.seed, actor::OPERATOR).at(decision);
    let operator = parts.operator().because(Reason::new("ada", "to see it"));
    let wanted = key(entity);
    let holds = draw.happens(400);
    let skips = draw.happens(400);
    if holds && world.allows(draw.id) {
        let _ = operator.hold(&wanted).await;
        pause(draw.millis(0, 20_000)).await;
    }
    if skips
        && world.allows(draw.id)
        && let Ok(Some(state)) = parts.store.entity(&wanted, PATIENCE).await
        && !state.is_empty()
    {
        let sequence = state.next();
        world.with_history(|history| history.attempts.expect_skip(entity, sequence.0));
        let skipped = with_pending_wake_up(world, entity, operator.skip(&wanted, sequence)).await;
        if let Some(SkipOutcome::As(Settlement::Parked)) = skipped {
            world.mark("a delivery is skipped");
        }
    }
    // The other mutations run without rewinds, because their known seeds were found before there were
    // rewinds.
    if world.profile.rewinds > 0 && world.plan.mutation.is_none_or(|rule| rule == ViolatedRule::RepeatsItself) {
        runs_again(
            world,
            parts,
            &operator,
            entity,
            RandomStream::new(world.plan.seed, actor::OPERATOR).at(decision + 50_000),
        )
        .await;
    }
    if holds {
        with_pending_wake_up(world, entity, operator.resume(&wanted)).await;
    }
}

async fn runs_again(
    world: &Arc<SimulatedWorld>,
    parts: &WorkloadParts,
    operator: &Operator,
    entity: usize,
    mut draw: Draw,
) {
    if !draw.happens(world.profile.rewinds) || !world.allows(draw.id) {
        return;
    }
    let wanted = key(entity);
    let back = draw.between(0, 6);
    let ends = draw.happens(300);
    let Ok(Some(state)) = parts.store.entity(&wanted, PATIENCE).await else { return };
    let from = Sequence(state.head.0.saturating_sub(back).max(1));
    world.with_history(|history| history.rewinds.entry(entity).or_default().0 += 1);
    if let Some(RewindOutcome::Done(_)) = with_pending_wake_up(world, entity, operator.rewind(&wanted, from)).await {
        world.mark("what was applied is run again");
    }
    if ends {
        pause(draw.millis(0, 2000)).await;
        if let Some(RewindOutcome::Done(_)) = with_pending_wake_up(world, entity, operator.end_rewind(&wanted)).await {
            world.mark("what is run again is ended early");
        }
    }
}

/// Runs an operation that sends its wake-up last. If the operation fails, only the sweep finds the waiting
/// deliveries.
pub async fn with_pending_wake_up<T>(
    world: &Arc<SimulatedWorld>,
    entity: usize,
    work: impl Future<Output = Result<T, OperatorError>>,
) -> Option<T> {
    world.with_history(|history| *history.unblocking.entry(entity).or_default() += 1);
    let done = work.await;
    world.with_history(|history| *history.unblocking.entry(entity).or_default() -= 1);
    if done.is_err() {
        world.trace(TraceEvent::Operator { entity, how: "lets it go on without certainty" });
        world.with_history(|history| history.excused.insert(entity));
    }
    done.ok()
}

pub async fn unblock_and_redrive(world: &Arc<SimulatedWorld>, parts: &WorkloadParts, entity: usize, node: u32) {
    let wanted = key(entity);
    let operator = &parts.operator();
    with_pending_wake_up(world, entity, operator.unblock(&wanted)).await;
    for parked in operator.parked(&wanted).await.unwrap_or_default() {
        let identity = Identity { redrive: parked.delivery().redrive() + 1, ..parked.delivery().identity().clone() };
        let name = name_of(&identity);
        world.register_identity(&identity);
        record_call(world, name, entity, node);
        match operator.redrive(&parked, None).await {
            Ok(appended) => {
                world.mark("a parked delivery is redriven");
                record_answer(world, parts.generation, name, appended.sequence.0, true);
            }
            Err(OperatorError::Queue(_)) => {
                world.with_history(|history| history.excused.insert(entity));
            }
            Err(_) => {
                world.with_history(|history| history.unwoken.insert(entity));
            }
        }
    }
}

pub fn healthy_operator(world: &Arc<SimulatedWorld>) -> Operator {
    let node = NodeSlot::new(world, 99).boot();
    let parts = WorkloadParts::on(&node);
    parts.operator()
}
