//! Polls the logs of a stack's functions.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    time::Duration,
};

use anyhow::{Error, Result, bail};
use serde_json::{Value, json};
use serializer::{
    output,
    stack::{
        Stack,
        api::{Refusal, Service, Services},
    },
    view::activity::ActivityEvent,
};
use webhook_serializer::time::Timestamp;

/// The poll interval. CloudWatch Logs answers at least five `FilterLogEvents` requests a second, and each poll sends at
/// most [`PAGES`] requests for each of two log groups.
pub const EVERY: Duration = Duration::from_secs(2);

/// CloudWatch Logs may return a line up to this many milliseconds after newer lines.
const LATE: u64 = 20_000;

/// The largest number of pages that one poll reads of a log group. The next poll reads the remaining pages.
const PAGES: u32 = 5;
const LINES: u32 = 1000;

const REMEMBERED: usize = 10_000;

pub struct Logs {
    services: Services,
    groups: Vec<LogGroup>,
    pattern: String,
    topics: HashMap<(String, u64), String>,
    order: VecDeque<(String, u64)>,
    is_out: bool,
}

struct LogGroup {
    name: String,
    /// The start time, in milliseconds since the Unix epoch. Older log lines are skipped.
    begin: u64,
    from: u64,
    newest: u64,
    token: Option<String>,
    seen: BTreeSet<(u64, String)>,
}

impl Logs {
    pub fn of(services: Services, stack: &Stack, begin: Timestamp, entity: Option<&str>) -> Self {
        let begin = begin.as_millis();
        let group = |function: &str| LogGroup {
            name: stack.logs_of(function),
            begin,
            from: begin,
            newest: begin,
            token: None,
            seen: BTreeSet::new(),
        };
        let pattern = match entity {
            // A filter pattern quotes text as JSON does.
            Some(entity) => format!("{{ $.entity = {} }}", json!(entity)),
            None => "{ ($.entity = \"*\") || ($.source = \"*\") }".to_owned(),
        };
        let groups = ["ingest", "worker"].map(group).into();
        Self { services, groups, pattern, topics: HashMap::new(), order: VecDeque::new(), is_out: false }
    }

    pub fn is_behind(&self) -> bool {
        self.is_out || self.groups.iter().any(|group| group.token.is_some())
    }

    pub async fn look(&mut self) -> Result<Vec<ActivityEvent>> {
        let mut events = Vec::new();
        for group in &mut self.groups {
            match group.look(&self.services, &self.pattern, &mut events).await {
                Ok(()) => self.is_out = false,
                Err(refusal @ (Refusal::Throttled(_) | Refusal::Silent(_))) => {
                    if !self.is_out {
                        output::complain(format_args!("{refusal}; listen tries again until it gets an answer"));
                    }
                    self.is_out = true;
                    // The lines so far are returned; the next poll reads the rest.
                    break;
                }
                Err(Refusal::Other { code, .. }) if code == "ResourceNotFoundException" => bail!(
                    "the log group {} does not exist: check that the stack was made from this project's template.yaml, \
                     and that its deploy has finished",
                    group.name
                ),
                Err(refusal) => {
                    return Err(Error::new(refusal).context(format!("the logs in {} cannot be read", group.name)));
                }
            }
        }
        events.sort_by_key(|one| one.at);
        Ok(events.into_iter().map(|one| self.with_topic(one)).collect())
    }

    /// Adds the topic to an event whose log line lacks it. Only the log line that reports the delivery's acceptance
    /// names the topic.
    fn with_topic(&mut self, mut one: ActivityEvent) -> ActivityEvent {
        let Some(place) = one.entity.clone().zip(one.sequence) else { return one };
        match &one.topic {
            None => one.topic = self.topics.get(&place).cloned(),
            Some(topic) => {
                if self.topics.insert(place.clone(), topic.clone()).is_none() {
                    self.order.push_back(place);
                }
                if self.order.len() > REMEMBERED
                    && let Some(oldest) = self.order.pop_front()
                {
                    self.topics.remove(&oldest);
                }
            }
        }
        one
    }
}

impl LogGroup {
    /// Reads up to [`PAGES`] pages, and appends their new events to `events`. After an error, `events` has the events
    /// of the pages that were read before.
    async fn look(
        &mut self,
        services: &Services,
        pattern: &str,
        events: &mut Vec<ActivityEvent>,
    ) -> Result<(), Refusal> {
        for _ in 0..PAGES {
            let mut question = json!({
                "logGroupName": self.name, "startTime": self.from, "filterPattern": pattern, "limit": LINES,
            });
            if let Some(token) = &self.token {
                question["nextToken"] = token.as_str().into();
            }
            let page = services.json(Service::LOGS, "Logs_20140328.FilterLogEvents", &question).await?;
            for event in page["events"].as_array().into_iter().flatten() {
                events.extend(self.take(event));
            }
            self.token = page["nextToken"].as_str().map(str::to_owned);
            if self.token.is_none() {
                break;
            }
        }
        if self.token.is_none() {
            self.from = self.begin.max(self.newest.saturating_sub(LATE));
            self.seen = self.seen.split_off(&(self.from, String::new()));
        }
        Ok(())
    }

    fn take(&mut self, event: &Value) -> Option<ActivityEvent> {
        let at = event["timestamp"].as_u64()?;
        self.newest = self.newest.max(at);
        let is_new = self.seen.insert((at, event["eventId"].as_str().unwrap_or_default().to_owned()));
        let message = event["message"].as_str().filter(|_| is_new)?;
        ActivityEvent::of_line(message.trim(), Timestamp::from_millis(at))
    }
}
