//! Exclusion in time: at most one holder of an entity works, whatever the clocks show.

use std::{sync::Arc, time::Duration};

use webhook_serializer::protocol::entity::EntityKey;

use super::{
    history::SimulationHistory,
    node::Node,
    world::{SimulatedWorld, relative},
};

/// A handler start, an exclusive holder's work, or a job's run.
#[derive(Debug, Clone)]
pub struct ExclusiveWork {
    entity: EntityKey,
    token: u64,
    node: u32,
    generation: u32,
    from: Duration,
    /// `None` if the work has not ended.
    until: Option<Duration>,
}

/// Records the end of work when it is dropped.
#[derive(Debug)]
pub struct WorkUnderWay {
    world: Arc<SimulatedWorld>,
    number: usize,
}

impl WorkUnderWay {
    pub fn begin(node: &Node, entity: &EntityKey, token: u64) -> Self {
        let world = node.world.clone();
        let from = node.world.elapsed();
        let number = world.with_history(|history| {
            let entity = entity.clone();
            let generation = node.generation;
            let node = node.number;
            history.works.push(ExclusiveWork { entity, token, node, generation, from, until: None });
            history.works.len() - 1
        });
        Self { world, number }
    }
}

impl Drop for WorkUnderWay {
    fn drop(&mut self) {
        let now = self.world.elapsed();
        self.world.with_history(|history| history.works[self.number].until = Some(now));
    }
}

/// Finds work that began while other work on its entity was under way. Excused is work whose process froze, or whose
/// lease an operator took away: no clock can show either.
pub fn audit(history: &SimulationHistory, mistakes: &mut Vec<String>) {
    for (number, earlier) in history.works.iter().enumerate() {
        let is_beside = |later: &&ExclusiveWork| {
            let is_other = later.entity == earlier.entity && later.generation == earlier.generation;
            is_other && later.from >= earlier.from && earlier.until.is_none_or(|until| later.from < until)
        };
        for later in history.works[number + 1..].iter().filter(is_beside) {
            let froze =
                |(node, at): &(u32, Duration)| *node == earlier.node && (earlier.from..=later.from).contains(at);
            let [older, newer] = if earlier.token < later.token { [earlier, later] } else { [later, earlier] };
            let forced = |(entity, token): &(EntityKey, u64)| {
                *entity == earlier.entity && (older.token + 1..=newer.token).contains(token)
            };
            if !history.freezes.iter().any(froze) && !history.forced.iter().any(forced) {
                mistakes.push(format!(
                    "{}: work under token {} began while work under token {} was under way",
                    earlier.entity.as_str().trim_end_matches('/'),
                    relative(later.token),
                    relative(earlier.token)
                ));
            }
        }
    }
}
