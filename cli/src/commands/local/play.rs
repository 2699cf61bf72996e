//! `serializer local --demo` in a project of one's own: its samples, each sent
//! twice, and what its handler made of them.

use std::{collections::BTreeSet, path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use serializer::{
    samples::{self, Webhook},
    sender::Sender,
    story::{Happening, Story, What},
};
use webhook_serializer::{
    protocol::{
        entity::{EntityKey, Sequence},
        receipt::Settlement,
    },
    sources::Sources,
    time::Surroundings,
};

use crate::commands::send::Accepted;

/// How long all of it may take: a handler that fails is tried again meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// Before a sample is sent again that has no place yet.
const PAUSE: Duration = Duration::from_millis(200);

/// Where a delivery was accepted.
type Place = (EntityKey, Sequence);

/// A sample that was sent until it had a place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    place: Place,
    /// Whether it took more than once. An earlier one may have been stored as well, and
    /// applied instead of this one.
    is_resent: bool,
}

/// What became of the samples, in a sentence, and whether it is well.
pub(super) struct Verdict {
    pub(super) is_well: bool,
    pub(super) says: String,
}

/// Posts the samples in `folder` to `url`, all of them and then all again, and
/// waits until what was accepted is settled.
///
/// # Errors
///
/// There are no samples, or one is not accepted.
pub(super) async fn play(folder: &Path, url: &str, sources: &Sources, story: &Story) -> Result<Verdict> {
    let sender = Sender::new(url);
    let webhooks = webhooks(folder, sources)?;
    let surroundings = Surroundings::system();
    let give_up = surroundings.monotonic() + PATIENCE;
    let mut rounds: [Vec<Sent>; 2] = Default::default();
    for round in &mut rounds {
        for (file, webhook) in &webhooks {
            round.push(send(&sender, file, webhook, give_up).await?);
        }
    }
    let places: BTreeSet<&Place> = rounds.iter().flatten().map(|sent| &sent.place).collect();
    let settled = story.until(0, |told| places.iter().all(|place| settlement(told, place).is_some()));
    let in_time = tokio::time::timeout(PATIENCE, settled).await.is_ok();
    let told = story.since(0);
    Ok(judge(&told, &rounds, in_time))
}

/// Sends a sample, until `give_up` by our monotonic clock. On a busy machine it may be
/// answered that it is not stored (503), or not yet (202): it is sent again then, as
/// senders do, for an answer that says where it stands.
async fn send(sender: &Sender, file: &str, webhook: &Webhook, give_up: Duration) -> Result<Sent> {
    let surroundings = Surroundings::system();
    let mut is_resent = false;
    loop {
        let answer = sender.post(webhook).await?;
        let accepted = Accepted::of(&answer.body);
        if let Some(topic) = accepted.ignored {
            bail!("{file}: its source does not take `{topic}`");
        }
        if let (Some(sequence), Some(entity)) = (accepted.accepted, accepted.entity) {
            return Ok(Sent { place: (EntityKey::parse(&entity)?, Sequence(sequence)), is_resent });
        }
        if !matches!(answer.status, 202 | 503) || surroundings.monotonic() >= give_up {
            bail!("{file} is answered {}: {}", answer.status, answer.body);
        }
        is_resent = true;
        surroundings.sleep(PAUSE).await;
    }
}

/// The samples in a folder, by name, signed.
fn webhooks(folder: &Path, sources: &Sources) -> Result<Vec<(String, Webhook)>> {
    let shown = folder.display();
    let files = std::fs::read_dir(folder).with_context(|| format!("{shown} cannot be read"))?;
    let mut files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    files.sort();
    let mut webhooks = Vec::new();
    for file in files {
        let event = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
        if samples::is_webhook(&event) {
            let webhook = samples::webhook(&event, sources, Surroundings::system().now());
            webhooks.push((file.display().to_string(), webhook.with_context(|| format!("{}", file.display()))?));
        }
    }
    ensure!(!webhooks.is_empty(), "{shown} has no webhook to send: an event of a Function URL, in a .json file");
    Ok(webhooks)
}

/// How a place was settled, if it was.
fn settlement(told: &[Happening], (entity, sequence): &Place) -> Option<Settlement> {
    told.iter().find_map(|happening| match happening.what {
        What::Settled(settlement) if happening.entity == *entity && happening.sequence == Some(*sequence) => {
            Some(settlement)
        }
        _ => None,
    })
}

fn judge(told: &[Happening], [first, again]: &[Vec<Sent>; 2], in_time: bool) -> Verdict {
    let settled = |sent: &Sent| settlement(told, &sent.place);
    let is_applied = |sent: &Sent| match settled(sent) {
        Some(Settlement::Applied) => true,
        // It was applied in the place of an earlier one.
        Some(Settlement::Repeat) => sent.is_resent,
        _ => false,
    };
    let applied = first.iter().filter(|sent| is_applied(sent)).count();
    // A repeat either finds the place of the first, or gets one of its own.
    let is_repeat =
        |sent: &Sent| first.iter().any(|one| one.place == sent.place) || settled(sent) == Some(Settlement::Repeat);
    let (repeats, count) = (again.iter().filter(|sent| is_repeat(sent)).count(), first.len());
    if applied == count && repeats == count {
        let orders = first.iter().map(|sent| &sent.place.0).collect::<BTreeSet<_>>().len();
        let says = format!("{count} webhooks of {orders} orders, each sent twice: each applied once, in order");
        return Verdict { is_well: true, says };
    }
    let mut says = format!("of {count} webhooks, each sent twice, {applied} were applied");
    for sent in first.iter().filter(|sent| !is_applied(sent)) {
        let how = match settled(sent) {
            Some(settlement) => settlement.as_str(),
            None if in_time => "not settled",
            None => "not settled within a minute",
        };
        says.push_str(&format!("\n  {} {}: {how}", sent.place.0, sent.place.1));
    }
    if repeats < count {
        says.push_str(&format!("\n  {} repeats were not recognised", count - repeats));
    }
    Verdict { is_well: false, says }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use axum::http::StatusCode;
    use serializer::samples::SHOPIFY;

    use super::*;

    fn place(order: &str, sequence: u64) -> Place {
        (EntityKey::parse(order).expect("a key"), Sequence(sequence))
    }

    fn sent(order: &str, sequence: u64) -> Sent {
        Sent { place: place(order, sequence), is_resent: false }
    }

    fn settled((entity, sequence): Place, how: Settlement) -> Happening {
        let (at, name) = (Duration::ZERO, String::new());
        Happening { at, entity, sequence: Some(sequence), name, what: What::Settled(how) }
    }

    #[test]
    fn all_is_well_where_each_is_applied_once_and_its_repeat_is_recognised() {
        let rounds = [vec![sent("a/1", 1), sent("b/1", 1)], vec![sent("a/1", 2), sent("b/1", 2)]];
        let told = |repeat| {
            [
                settled(place("a/1", 1), Settlement::Applied),
                settled(place("b/1", 1), Settlement::Applied),
                settled(place("a/1", 2), Settlement::Repeat),
                settled(place("b/1", 2), repeat),
            ]
        };
        let verdict = judge(&told(Settlement::Repeat), &rounds, true);
        assert!(verdict.is_well, "{}", verdict.says);
        assert_eq!(verdict.says, "2 webhooks of 2 orders, each sent twice: each applied once, in order");
        let verdict = judge(&told(Settlement::Applied), &rounds, true);
        assert!(!verdict.is_well && verdict.says.contains("1 repeats were not"), "{}", verdict.says);
    }

    #[test]
    fn what_was_not_applied_is_named() {
        let rounds = [vec![sent("a/1", 1), sent("a/1", 2)], vec![sent("a/1", 3), sent("a/1", 4)]];
        let verdict = judge(&[settled(place("a/1", 1), Settlement::Parked)], &rounds, false);
        assert!(!verdict.is_well);
        assert!(verdict.says.contains("a/1 1: parked"), "{}", verdict.says);
        assert!(verdict.says.contains("a/1 2: not settled within a minute"), "{}", verdict.says);
    }

    #[test]
    fn one_that_was_sent_again_may_have_been_applied_in_an_earlier_place() {
        let told = [settled(place("a/1", 2), Settlement::Repeat), settled(place("a/1", 3), Settlement::Repeat)];
        let judged = |is_resent| {
            let first = Sent { is_resent, ..sent("a/1", 2) };
            judge(&told, &[vec![first], vec![sent("a/1", 3)]], true)
        };
        assert!(judged(true).is_well, "{}", judged(true).says);
        assert!(judged(false).says.contains("a/1 2: repeat"), "{}", judged(false).says);
    }

    /// Answers with these one after the other, the last for ever; counts them.
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
    async fn a_sample_is_sent_again_while_a_busy_machine_has_no_place_for_it() {
        let sources = Sources::parse(samples::SOURCES).expect("the samples' own");
        let webhook = SHOPIFY[0].of_order("1", &sources, Surroundings::system().now());
        let now = || Surroundings::system().monotonic();
        let accepted = (200, r#"{"accepted":7,"entity":"shopify/order/1"}"#);
        let busy = [
            (503, r#"{"error":"not stored; send it again"}"#),
            (202, r#"{"deferred":true,"entity":"shopify/order/1"}"#),
            accepted,
        ];
        let (sender, asked) = endpoint(Box::leak(Box::new(busy))).await;
        let taken = send(&sender, "one.json", &webhook, now() + PATIENCE).await.expect("it is taken");
        assert_eq!(taken, Sent { place: place("shopify/order/1", 7), is_resent: true });
        assert_eq!(asked.load(Relaxed), 3);
        let (sender, _) = endpoint(&[(200, r#"{"accepted":7,"entity":"shopify/order/1"}"#)]).await;
        assert!(!send(&sender, "one.json", &webhook, now()).await.expect("it is taken").is_resent);
        // Not for ever, and not what no other answer comes of.
        let (sender, asked) = endpoint(&[(503, "busy")]).await;
        let error = send(&sender, "one.json", &webhook, now() + PAUSE / 2).await.expect_err("too long");
        assert_eq!((error.to_string().as_str(), asked.load(Relaxed)), ("one.json is answered 503: busy", 2));
        let (sender, asked) = endpoint(&[(401, "no")]).await;
        send(&sender, "one.json", &webhook, now() + PATIENCE).await.expect_err("it is refused");
        assert_eq!(asked.load(Relaxed), 1);
    }

    #[test]
    fn a_folder_without_a_webhook_is_told_of() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("other.json"), "{}").expect("written");
        let sources = Sources::parse(samples::SOURCES).expect("the samples' own");
        let error = webhooks(folder.path(), &sources).expect_err("there is none");
        assert!(error.to_string().contains("no webhook"), "{error}");
    }
}
