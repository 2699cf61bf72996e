//! `serializer local --demo` in a user's own project: posts the project's samples, each twice, and checks the results.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serializer::{
    local::{
        samples::{self, SignedWebhook},
        sender::Sender,
    },
    view::{
        position::marked,
        recording::{EventKind, EventRecorder, RecordedEvent},
    },
};
use webhook_serializer::{
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::Settlement,
    },
    sources::Sources,
    time::Env,
};

use crate::commands::tryout::send::AcceptedAnswer;

/// The time limit for sending the samples. The same limit applies to settling the samples, including the retries of
/// failed handlers.
const PATIENCE: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(200);

type DeliveryPlace = (EntityKey, Sequence);

/// A sample that was sent until an answer named its sequence. If the sample was sent more than once, an earlier copy
/// may be stored under a sequence that no answer named.
#[derive(Debug, Clone)]
struct SentSample {
    place: DeliveryPlace,
    /// The name of the sample in the recording. All copies of the sample have this name, because names are recorded by
    /// delivery id.
    name: String,
}

pub(super) struct PlayVerdict {
    pub(super) is_well: bool,
    pub(super) says: String,
}

/// Posts all samples in `folder` to `url`, twice, and waits until the accepted samples are settled.
pub(super) async fn play(folder: &Path, url: &str, sources: &Sources, story: &EventRecorder) -> Result<PlayVerdict> {
    let sender = Sender::new(url);
    let webhooks = webhooks(folder, sources)?;
    let env = Env::system();
    // Samples of one order may have the same topic, so each sample is named after its file.
    for (file, webhook) in &webhooks {
        let name = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        story.call(webhook.incoming.identity.delivery_id.as_str(), &name);
    }
    let give_up = env.monotonic() + PATIENCE;
    let mut rounds: [Vec<SentSample>; 2] = Default::default();
    for round in &mut rounds {
        for (file, webhook) in &webhooks {
            let place = send(&sender, file, webhook, give_up).await?;
            let name = story.name(webhook.incoming.identity.delivery_id.as_str(), &webhook.incoming.topic);
            round.push(SentSample { place, name });
        }
    }
    let is_settled = |told: &[RecordedEvent], sent: &SentSample| {
        settlement(told, &sent.place).is_some() && outcomes(told, sent).next().is_some()
    };
    let settled = story.until(0, |told| rounds.iter().flatten().all(|sent| is_settled(told, sent)));
    let in_time = tokio::time::timeout(PATIENCE, settled).await.is_ok();
    let told = story.since(0);
    Ok(judge(&told, &rounds, in_time))
}

/// Sends a sample until an answer names its sequence, or until the monotonic time `give_up`. A busy machine may answer
/// 503 or 202. The sample is then sent again, as senders do.
async fn send(sender: &Sender, file: &str, webhook: &SignedWebhook, give_up: Duration) -> Result<DeliveryPlace> {
    let env = Env::system();
    loop {
        let answer = sender.post(webhook).await?;
        let accepted = AcceptedAnswer::of(&answer.body);
        if let Some(topic) = accepted.ignored {
            bail!(
                "{file} was ignored, because its source does not take `{topic}`: change its `topics`, or remove the \
                 file"
            );
        }
        if let (Some(sequence), Some(entity)) = (accepted.accepted, accepted.entity) {
            return Ok((EntityKey::parse(&entity)?, Sequence(sequence)));
        }
        if !matches!(answer.status, 202 | 503) || env.monotonic() >= give_up {
            bail!("{file} is answered {}: {}", answer.status, answer.body);
        }
        env.sleep(PAUSE).await;
    }
}

/// Reads and signs the samples in a folder, sorted by file name. Two samples of one order with the same delivery id are
/// refused, because the second one would be settled as a repeat.
fn webhooks(folder: &Path, sources: &Sources) -> Result<Vec<(String, SignedWebhook)>> {
    let shown = folder.display();
    let files = std::fs::read_dir(folder).with_context(|| format!("{shown} cannot be read"))?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut webhooks = Vec::new();
    let mut known = BTreeMap::new();
    for file in files {
        let event = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        if samples::is_webhook(&event) {
            let webhook = samples::webhook(&event, sources, Env::system().now());
            let webhook = webhook.with_context(|| format!("{}", file.display()))?;
            let file = file.display().to_string();
            let entity = &webhook.incoming.entity;
            let id = &webhook.incoming.identity.delivery_id;
            if let Some(other) = known.insert((entity.clone(), id.as_str().to_owned()), file.clone()) {
                bail!("{file} has the same delivery id as {other} and would count as a repeat: give it another id");
            }
            webhooks.push((file, webhook));
        }
    }
    ensure!(!webhooks.is_empty(), "{shown} has no sample: add an event of a Function URL as a .json file");
    Ok(webhooks)
}

fn settlement(told: &[RecordedEvent], (entity, sequence): &DeliveryPlace) -> Option<Settlement> {
    told.iter().find_map(|happening| match happening.what {
        EventKind::Settled(settlement) if happening.entity == *entity && happening.sequence == Some(*sequence) => {
            Some(settlement)
        }
        _ => None,
    })
}

/// Returns how each stored copy of a delivery was settled. Copies that were settled as repeats are left out, because a
/// repeat does not tell whether another copy was applied or parked.
fn outcomes(told: &[RecordedEvent], sent: &SentSample) -> impl Iterator<Item = Settlement> {
    let of_it = told.iter().filter(|happening| happening.entity == sent.place.0 && happening.name == sent.name);
    of_it.filter_map(|happening| match happening.what {
        EventKind::Settled(settlement) if settlement != Settlement::Repeat => Some(settlement),
        _ => None,
    })
}

fn judge(told: &[RecordedEvent], [first, again]: &[Vec<SentSample>; 2], in_time: bool) -> PlayVerdict {
    let settled = |sent: &SentSample| settlement(told, &sent.place);
    let times = |sent: &SentSample| outcomes(told, sent).filter(|outcome| *outcome == Settlement::Applied).count();
    let applied = first.iter().filter(|sent| times(sent) == 1).count();
    // A resent webhook is answered with the sequence of the first copy, or gets a new sequence and is settled as a
    // repeat.
    let is_repeat = |sent: &SentSample| {
        first.iter().any(|one| one.place == sent.place) || settled(sent) == Some(Settlement::Repeat)
    };
    let repeats = again.iter().filter(|sent| is_repeat(sent)).count();
    let count = first.len();
    if applied == count && repeats == count {
        let orders = first.iter().map(|sent| &sent.place.0).collect::<BTreeSet<_>>().len();
        let says = format!("{count} webhooks of {orders} orders, each sent twice: each applied once, in order");
        return PlayVerdict { is_well: true, says };
    }
    let mut says = format!("of {count} webhooks, each sent twice, {applied} were applied once");
    for sent in first.iter().filter(|sent| times(sent) != 1) {
        let how = match (times(sent), outcomes(told, sent).next().or(settled(sent))) {
            (2.., _) => format!("applied {} times", times(sent)),
            (_, Some(settlement)) => settlement.as_str().to_owned(),
            (_, None) if in_time => "not settled".to_owned(),
            (_, None) => format!("not settled {} s after the last webhook was sent", PATIENCE.as_secs()),
        };
        says.push_str(&format!("\n  {} {}: {how}", sent.place.0, marked(sent.place.1)));
    }
    if repeats < count {
        says.push_str(&format!("\n  {} repeats were not recognised", count - repeats));
    }
    PlayVerdict { is_well: false, says }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use axum::http::StatusCode;
    use serializer::local::samples::SHOPIFY;

    use super::*;

    fn place(order: &str, sequence: u64) -> DeliveryPlace {
        (EntityKey::parse(order).expect("a key"), Sequence(sequence))
    }

    fn sent(order: &str, sequence: u64, name: &str) -> SentSample {
        SentSample { place: place(order, sequence), name: name.into() }
    }

    fn settled(sent: &SentSample, how: Settlement) -> RecordedEvent {
        let SentSample { place: (entity, sequence), name } = sent.clone();
        RecordedEvent { at: Duration::ZERO, entity, sequence: Some(sequence), name, what: EventKind::Settled(how) }
    }

    #[test]
    fn sample_applied_twice_is_reported_as_failure() {
        // Equal names in two orders are two deliveries.
        let rounds = [1, 2].map(|at| vec![sent("a/1", at, "made"), sent("b/1", at, "made")]);
        let told = |repeat| {
            [
                settled(&rounds[0][0], Settlement::Applied),
                settled(&rounds[0][1], Settlement::Applied),
                settled(&rounds[1][0], Settlement::Repeat),
                settled(&rounds[1][1], repeat),
            ]
        };
        let verdict = judge(&told(Settlement::Repeat), &rounds, true);
        assert!(verdict.is_well, "{}", verdict.says);
        assert_eq!(verdict.says, "2 webhooks of 2 orders, each sent twice: each applied once, in order");
        let verdict = judge(&told(Settlement::Applied), &rounds, true);
        assert!(!verdict.is_well && verdict.says.contains("1 repeats were not"), "{}", verdict.says);
        assert!(verdict.says.contains("b/1 #1: applied 2 times"), "{}", verdict.says);
    }

    #[test]
    fn unapplied_samples_are_named_in_the_verdict() {
        let rounds = [1, 3].map(|at| vec![sent("a/1", at, "made"), sent("a/1", at + 1, "paid")]);
        let verdict = judge(&[settled(&rounds[0][0], Settlement::Parked)], &rounds, false);
        assert!(!verdict.is_well);
        assert!(verdict.says.contains("a/1 #1: parked"), "{}", verdict.says);
        assert!(verdict.says.contains("a/1 #2: not settled 60 s after"), "{}", verdict.says);
    }

    #[test]
    fn resent_sample_must_be_applied_exactly_once() {
        let rounds = [vec![sent("a/1", 2, "made")], vec![sent("a/1", 3, "made")]];
        // The first copy was answered 503 or 202 and was stored nevertheless.
        let judged = |first, sent_again| {
            let told = [
                settled(&sent("a/1", 1, "made"), first),
                settled(&rounds[0][0], sent_again),
                settled(&rounds[1][0], Settlement::Repeat),
            ];
            judge(&told, &rounds, true)
        };
        let well = judged(Settlement::Applied, Settlement::Repeat);
        assert!(well.is_well, "{}", well.says);
        for (first, sent_again, how) in [
            (Settlement::Parked, Settlement::Repeat, "a/1 #2: parked"),
            (Settlement::Superseded, Settlement::Repeat, "a/1 #2: superseded"),
            (Settlement::Applied, Settlement::Applied, "a/1 #2: applied 2 times"),
        ] {
            let verdict = judged(first, sent_again);
            assert!(!verdict.is_well && verdict.says.contains(how), "{}", verdict.says);
        }
        let nowhere = judge(&[settled(&rounds[0][0], Settlement::Repeat)], &rounds, true);
        assert!(nowhere.says.contains("a/1 #2: repeat"), "{}", nowhere.says);
    }

    async fn endpoint(answers: &'static [(u16, &'static str)]) -> (Sender, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = asked.clone();
        let answer = move || {
            let (status, body) = answers[counted.fetch_add(1, Relaxed).min(answers.len() - 1)];
            async move { (StatusCode::from_u16(status).expect("a status"), body) }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let router = axum::Router::new().fallback(answer);
        tokio::spawn(async move { axum::serve(listener, router).await });
        (Sender::new(url), asked)
    }

    #[tokio::test]
    async fn sample_is_resent_after_503_or_202() {
        let sources = Sources::parse(samples::SOURCES).expect("the samples' own");
        let webhook = SHOPIFY[0].of_order("1", &sources, Env::system().now());
        let now = || Env::system().monotonic();
        let accepted = (200, r#"{"accepted":7,"entity":"shopify/order/1"}"#);
        let busy = [
            (503, r#"{"error":"not stored; send the webhook again"}"#),
            (202, r#"{"deferred":true,"entity":"shopify/order/1"}"#),
            accepted,
        ];
        let (sender, asked) = endpoint(Box::leak(Box::new(busy))).await;
        let taken = send(&sender, "one.json", &webhook, now() + PATIENCE).await.expect("it is taken");
        assert_eq!(taken, place("shopify/order/1", 7));
        assert_eq!(asked.load(Relaxed), 3);
        // `send` gives up in time. It gives up at once if no retry can change the answer.
        let (sender, asked) = endpoint(&[(503, "busy")]).await;
        let error = send(&sender, "one.json", &webhook, now()).await.expect_err("too long");
        assert_eq!((error.to_string().as_str(), asked.load(Relaxed)), ("one.json is answered 503: busy", 1));
        let (sender, asked) = endpoint(&[(401, "no")]).await;
        send(&sender, "one.json", &webhook, now() + PATIENCE).await.expect_err("it is refused");
        assert_eq!(asked.load(Relaxed), 1);
    }

    #[test]
    fn sample_folder_without_webhooks_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("other.json"), "{}").expect("written");
        let sources = Sources::parse(samples::SOURCES).expect("the samples' own");
        let error = webhooks(folder.path(), &sources).expect_err("there is none");
        assert!(error.to_string().contains("no sample"), "{error}");
    }

    #[test]
    fn two_samples_with_equal_delivery_id_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (_, event) = samples::of_provider("shopify")[0];
        let sources = Sources::parse(samples::SOURCES).expect("the samples' own");
        let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("events");
        assert_eq!(webhooks(&all, &sources).expect("each is its own").len(), samples::ALL.len());
        std::fs::write(folder.path().join("one.json"), event).expect("written");
        assert_eq!(webhooks(folder.path(), &sources).expect("there is one").len(), 1);
        std::fs::write(folder.path().join("two.json"), event).expect("written");
        let error = webhooks(folder.path(), &sources).expect_err("they are one").to_string();
        assert!(error.contains("two.json has the same delivery id as") && error.contains("one.json"), "{error}");
    }
}
