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

/// Where a delivery was accepted.
type Place = (EntityKey, Sequence);

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
    let mut rounds: [Vec<Place>; 2] = Default::default();
    for round in &mut rounds {
        for (file, webhook) in &webhooks {
            let answer = sender.post(webhook).await?;
            let accepted = Accepted::of(&answer.body);
            if let Some(topic) = accepted.ignored {
                bail!("{file}: its source does not take `{topic}`");
            }
            let (Some(sequence), Some(entity)) = (accepted.accepted, accepted.entity) else {
                bail!("{file} is answered {}: {}", answer.status, answer.body);
            };
            round.push((EntityKey::parse(&entity)?, Sequence(sequence)));
        }
    }
    let places: BTreeSet<&Place> = rounds.iter().flatten().collect();
    let settled = story.until(0, |told| places.iter().all(|place| settlement(told, place).is_some()));
    let in_time = tokio::time::timeout(PATIENCE, settled).await.is_ok();
    let told = story.since(0);
    Ok(judge(&told, &rounds, in_time))
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

fn judge(told: &[Happening], [first, again]: &[Vec<Place>; 2], in_time: bool) -> Verdict {
    let settled = |place: &Place| settlement(told, place);
    let applied = first.iter().filter(|place| settled(place) == Some(Settlement::Applied)).count();
    // A repeat either finds the place of the first, or gets one of its own.
    let repeats = again.iter().filter(|place| first.contains(place) || settled(place) == Some(Settlement::Repeat));
    let (repeats, sent) = (repeats.count(), first.len());
    if applied == sent && repeats == sent {
        let orders = first.iter().map(|(entity, _)| entity).collect::<BTreeSet<_>>().len();
        let says = format!("{sent} webhooks of {orders} orders, each sent twice: each applied once, in order");
        return Verdict { is_well: true, says };
    }
    let mut says = format!("of {sent} webhooks, each sent twice, {applied} were applied");
    for place in first.iter().filter(|place| settled(place) != Some(Settlement::Applied)) {
        let how = match settled(place) {
            Some(settlement) => settlement.as_str(),
            None if in_time => "not settled",
            None => "not settled within a minute",
        };
        says.push_str(&format!("\n  {} {}: {how}", place.0, place.1));
    }
    if repeats < sent {
        says.push_str(&format!("\n  {} repeats were not recognised", sent - repeats));
    }
    Verdict { is_well: false, says }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(order: &str, sequence: u64) -> Place {
        (EntityKey::parse(order).expect("a key"), Sequence(sequence))
    }

    fn settled((entity, sequence): Place, how: Settlement) -> Happening {
        let (at, name) = (Duration::ZERO, String::new());
        Happening { at, entity, sequence: Some(sequence), name, what: What::Settled(how) }
    }

    #[test]
    fn all_is_well_where_each_is_applied_once_and_its_repeat_is_recognised() {
        let rounds = [vec![place("a/1", 1), place("b/1", 1)], vec![place("a/1", 2), place("b/1", 2)]];
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
        let rounds = [vec![place("a/1", 1), place("a/1", 2)], vec![place("a/1", 3), place("a/1", 4)]];
        let verdict = judge(&[settled(place("a/1", 1), Settlement::Parked)], &rounds, false);
        assert!(!verdict.is_well);
        assert!(verdict.says.contains("a/1 1: parked"), "{}", verdict.says);
        assert!(verdict.says.contains("a/1 2: not settled within a minute"), "{}", verdict.says);
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
