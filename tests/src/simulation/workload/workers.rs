//! Worker functions. Each receives batches until its time is over, and starts anew after a crash.

use std::{sync::Arc, time::Duration};

use webhook_serializer::functions::worker::{Attributes, BatchResponse, SqsEvent, SqsRecord, Worker};

use super::{
    super::{
        handler::seconds,
        history::TraceEvent,
        node::{Node, NodeSlot, pause},
        queue::{SimulatedReceipt, is_deferred},
        random::{Draw, RandomStream, actor},
        world::{SimulatedWorld, entity_number},
    },
    WorkloadParts,
};

pub async fn run_worker(world: Arc<SimulatedWorld>, number: u32, until: Duration) {
    let slot = NodeSlot::new(&world, number);
    'booting: loop {
        let node = slot.boot();
        let parts = WorkloadParts::on(&node);
        let mut worker = parts.worker(&node);
        loop {
            if world.running_time() >= until {
                return;
            }
            if world.is_stopped() || node.generation != world.generation() {
                world.until_running().await;
                continue 'booting;
            }
            let mut draw = RandomStream::new(world.plan.seed, actor::QUEUE).draw_for(number, world.elapsed());
            let most = draw.between(1, 4);
            let changed = world.queue.changed();
            let received = world.queue.receive(&world, &mut draw, most, world.profile.function + seconds(3));
            if received.is_empty() {
                let idle = idle_time(&world).min(until.saturating_sub(world.running_time()));
                tokio::select! {
                    biased;
                    () = changed => {}
                    () = pause(idle) => {}
                }
                pause(draw.millis(0, 20)).await;
                continue;
            }
            if parts.mutator.forgets_breakers() {
                worker = parts.worker(&node);
            }
            let busy = world.begin();
            let received_wake_ups = ReceivedWakeUps::of(&world, &received);
            let response = process(&slot, &node, &parts, &worker, &received).await;
            let lost = world.is_active() && draw.happens(world.profile.copies / 3) && world.allows(draw.id);
            if let Some(response) = response.filter(|_| !lost) {
                acknowledge(&world, number, &parts, &received, &response, &mut draw);
                drop((busy, received_wake_ups));
            } else {
                world.with_history(|history| history.died = true);
                drop((busy, received_wake_ups));
                pause(draw.millis(1, 300)).await;
                continue 'booting;
            }
        }
    }
}

/// Returns the time until the queue has a message again.
fn idle_time(world: &SimulatedWorld) -> Duration {
    match world.queue.next_at() {
        Some(at) if at > world.elapsed() => at - world.elapsed(),
        Some(_) => Duration::from_millis(1),
        None => seconds(3600),
    }
}

/// Processes a batch; `None` if the function dies before it answers.
async fn process(
    slot: &NodeSlot,
    node: &Node,
    parts: &WorkloadParts,
    worker: &Worker,
    received: &[SimulatedReceipt],
) -> Option<BatchResponse> {
    let world = &node.world;
    let number = node.number;
    let function = node.world.profile.function;
    for receipt in received {
        let entity = entity_number(&receipt.entity);
        let message = receipt.id;
        let times = receipt.times;
        world.trace(TraceEvent::Received { node: number, entity, message, times });
    }
    let records = received.iter().map(|receipt| SqsRecord {
        message_id: receipt.id.to_string(),
        receipt_handle: receipt.id.to_string(),
        body: receipt.body.clone(),
        attributes: Attributes {
            approximate_receive_count: parts.mutator.times(receipt.times).to_string(),
            ..Attributes::default()
        },
    });
    let event = SqsEvent { records: records.collect() };
    let deadline = node.env.machine_now() + function;
    let failure = slot.worker_failure();
    let alive = node.run(&failure, worker.process(event, deadline));
    let mut alive = std::pin::pin!(alive);
    let ended = tokio::select! {
        biased;
        ended = &mut alive => Some(ended),
        () = pause(function) => None,
    };
    match ended {
        Some(ended) => ended,
        None if failure.outlives_deadline => alive.await,
        None => {
            world.trace(TraceEvent::DeadlineHit { node: number });
            world.record_death(number);
            world.mark("a function is killed at its deadline");
            None
        }
    }
}

/// Deletes the messages of a batch except the failed ones, as Lambda does.
fn acknowledge(
    world: &SimulatedWorld,
    number: u32,
    parts: &WorkloadParts,
    received: &[SimulatedReceipt],
    response: &BatchResponse,
    draw: &mut Draw,
) {
    for receipt in received {
        let id = receipt.id.to_string();
        let failed = response.batch_item_failures.iter().any(|failure| failure.item_identifier == id);
        let kept = failed || parts.mutator.keeps(&receipt.entity);
        world.trace(TraceEvent::Processed { node: number, message: receipt.id, kept });
        if !kept {
            world.queue.delete(world, draw, receipt.id);
        } else if draw.happens(500) {
            world.queue.show(receipt.id, world.elapsed() + Duration::from_millis(10));
        }
    }
}

struct ReceivedWakeUps(Arc<SimulatedWorld>, Vec<usize>);

impl ReceivedWakeUps {
    fn of(world: &Arc<SimulatedWorld>, received: &[SimulatedReceipt]) -> Self {
        let wake_ups = received.iter().filter(|receipt| !is_deferred(&receipt.body));
        let entities: Vec<usize> = wake_ups.map(|receipt| entity_number(&receipt.entity)).collect();
        world.with_history(|history| {
            for entity in &entities {
                *history.processing.entry(*entity).or_default() += 1;
            }
        });
        Self(world.clone(), entities)
    }
}

impl Drop for ReceivedWakeUps {
    fn drop(&mut self) {
        self.0.with_history(|history| {
            for entity in &self.1 {
                *history.processing.entry(*entity).or_default() -= 1;
            }
        });
    }
}
