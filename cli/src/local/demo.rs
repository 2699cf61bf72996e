//! The demonstration: a few acts on the embedded engines, each with signed
//! sample webhooks, real clients and the real handlers, judged by the handlers'
//! own journal.

mod acts;
mod report;
mod stagehand;
mod summary;

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use webhook_serializer::{
    engine::drain::DrainSettings,
    protocol::state::BlockReason,
    sources::{LiveSources, Sources},
    time::Env,
};

pub use report::{ActReport, OrderReport};

use crate::{
    local::{Local, Options, handler_log::Journal, samples},
    output::one_line,
    say,
    view::{
        audit::{Sent, Verdict},
        lanes::{Picture, terminal},
        recording::{Happening, Story, What},
    },
};
use stagehand::{Script, Stagehand};

/// How to show it.
#[derive(Debug, Clone)]
pub struct DemoOptions {
    /// Plain lines instead of lanes.
    pub plain: bool,
    /// Where the picture of the act called `of` is to be written.
    pub svg: Option<PathBuf>,
    /// The acts to play, by name; none: all.
    pub acts: Vec<String>,
    /// Where tables and queue are kept; `None`: in memory.
    pub data: Option<PathBuf>,
}

/// An act: a name, a sentence, and what is sent.
struct Act {
    name: &'static str,
    about: &'static str,
    /// In plain lines each thing that happens has one, or there are too many.
    lines: Lines,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lines {
    Each,
    Summed,
}

/// The acts, in order.
const ACTS: [Act; 7] = [
    Act {
        name: "five",
        about: "Five webhooks of two orders at once: RA2 waits for RA1, order B for nobody.",
        lines: Lines::Each,
    },
    Act { name: "burst", about: "A burst of hundreds over Shopify, Stripe and WooCommerce.", lines: Lines::Summed },
    Act { name: "repeats", about: "A provider that sends everything three times: each runs once.", lines: Lines::Each },
    Act {
        name: "retries",
        about: "RA1 fails twice: its own order waits for it, the others do not.",
        lines: Lines::Each,
    },
    Act {
        name: "parked",
        about: "RA1 is rejected and parked, RA2 goes on; an operator puts RA1 back, at the end.",
        lines: Lines::Each,
    },
    Act {
        name: "group",
        about: "A burst of one order at a source that delivers up to ten at once: two starts for five.",
        lines: Lines::Each,
    },
    Act { name: "killed", about: "A worker dies in RA2: its lease runs out, a successor goes on.", lines: Lines::Each },
];

/// The names of the acts.
pub fn act_names() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|act| act.name)
}

/// A source of Shopify's that delivers several at once.
const GROUPED: &str = "
[sources.grouped]
provider = 'shopify'
secrets = 'shopify-development-secret'
entity = 'shopify/{entity}'
handler = 'log'
deliver = { up_to = 10 }
";

/// Short, so that nobody has to wait long for a dead worker's successor.
const LEASE: Duration = Duration::from_secs(2);

const WORKERS: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");

/// The samples' own sources, and one more. On a busy machine hundreds at once may take
/// longer than a sender's patience; what is not stored then is sent again, as the
/// others' is, rather than deferred: the acts are about order.
fn document() -> String {
    let (name, refuses) = ("[sources.woocommerce]\n", "on_outage = \"refuse\"\n");
    format!("{}{GROUPED}", samples::SOURCES.replace(name, &format!("{name}{refuses}")))
}

/// One act under way.
pub(crate) struct Play<'a> {
    stagehand: &'a mut Stagehand,
    /// Where this act begins in the story.
    from: usize,
    sources: &'a Sources,
    /// What was sent.
    sent: Vec<Sent>,
    /// What was parked and stays so.
    excused: BTreeSet<String>,
    /// Orders in order of appearance, with their deliveries' names in order of
    /// arrival.
    orders: BTreeMap<String, Vec<String>>,
}

/// Plays the demonstration. `true`: every act ended as it should.
///
/// # Errors
///
/// The engines do not start, or a picture cannot be written.
pub async fn play(options: DemoOptions) -> Result<bool> {
    let env = Env::system();
    let story = Story::new(env.clone());
    let journal = Journal::new(env);
    let sources = Arc::new(Sources::parse(&document())?);
    let drain = DrainSettings { lease: LEASE, ..DrainSettings::default() };
    let local_options = Options {
        data: options.data.clone(),
        port: 0,
        workers: WORKERS,
        sources: LiveSources::from(&sources),
        sources_file: None,
        drain,
        scheduler: None,
        samples: true,
    };
    let local = Local::start(local_options, Arc::new(story.clone())).await?;
    let mut stagehand = Stagehand::new(local, story, journal);
    let plain = options.plain || !console::user_attended();
    if !plain {
        say!("{}\n", terminal::legend());
    }
    let mut clean = true;
    for act in ACTS.iter().filter(|act| options.acts.is_empty() || options.acts.iter().any(|name| name == act.name)) {
        let report = play_act(act, &mut stagehand, &sources, &options, plain).await?;
        clean &= report.verdict.is_clean();
    }
    stagehand.local.stop().await?;
    let verdict = if clean {
        console::style("every act in order, one at a time, nothing lost, nothing repeated").green()
    } else {
        console::style("the handlers' journal shows mistakes, see above").red()
    };
    say!("verdict: {verdict}");
    Ok(clean)
}

async fn play_act(
    act: &Act,
    stagehand: &mut Stagehand,
    sources: &Sources,
    options: &DemoOptions,
    plain: bool,
) -> Result<ActReport> {
    say!("{} {}", console::style(act.name).bold(), console::style(act.about).dim());
    let from = stagehand.story.since(0).len();
    let (runs_before, starts_before) = (stagehand.journal.runs().len(), stagehand.journal.starts().len());
    let (end_of_act, ended) = tokio::sync::oneshot::channel();
    let shown = tokio::spawn(show(stagehand.story.clone(), from, plain.then_some(act.lines), ended));
    let script = acts::script(act.name);
    stagehand.prepare(&script);
    let mut play =
        Play { stagehand, from, sources, sent: Vec::new(), excused: BTreeSet::new(), orders: BTreeMap::new() };
    acts::play(act.name, &mut play).await?;
    let Play { sent, excused, orders, .. } = play;
    let end = stagehand.story.now();
    let _ = end_of_act.send(());
    shown.await?;
    let happenings = stagehand.story.since(from);
    let picture = Picture::of(&happenings, end);
    if let Some(path) = &options.svg
        && (options.acts.len() == 1 || act.name == "five")
    {
        std::fs::write(path, crate::view::lanes::svg::document(&picture, act.about))?;
    }
    let runs = stagehand.journal.runs().split_off(runs_before);
    let verdict = Verdict::of(&sent, &runs, &excused);
    let starts = stagehand.journal.starts().split_off(starts_before);
    let report = ActReport::new(verdict, orders, &runs, &starts, &stagehand.story, &*stagehand.table()).await;
    say!("{report}");
    Ok(report)
}

/// Shows an act while it is played, until it has ended: in lines, or as lanes.
async fn show(story: Story, from: usize, lines: Option<Lines>, mut ended: tokio::sync::oneshot::Receiver<()>) {
    let mut length = story.length();
    let mut next = from;
    let mut canvas = terminal::Canvas::new();
    let env = Env::system();
    let mut is_over = false;
    loop {
        if let Some(lines) = lines {
            for happening in story.since(next) {
                next += 1;
                if let Some(line) = line(&happening).filter(|_| lines == Lines::Each) {
                    say!("{line}");
                }
            }
        } else {
            // A terminal that is gone is no reason to stop the act.
            let _ = canvas.draw(&Picture::of(&story.since(from), story.now()));
        }
        if is_over {
            if lines == Some(Lines::Summed) {
                say!("{}", summary::Summary::of(&story.since(from)));
            }
            return;
        }
        tokio::select! {
            biased;
            _ = &mut ended => is_over = true,
            _ = length.changed(), if lines.is_some() => {}
            () = env.sleep(Duration::from_millis(60)), if lines.is_none() => {}
        }
    }
}

/// One happening as a plain line; `None`: not worth one.
pub fn line(happening: &Happening) -> Option<String> {
    let what = match &happening.what {
        What::Accepted => "accepted".to_owned(),
        What::Ignored => "ignored: its source does not take this topic".to_owned(),
        What::Started(1, token) => format!("started, token {token}"),
        What::Started(attempt, token) => format!("started, attempt {attempt}, token {token}"),
        What::Failed { attempt, wait, error } => {
            let error = if error.is_empty() { String::new() } else { format!(": {error}") };
            format!("attempt {attempt} failed, again in {}{error}", crate::output::duration(*wait))
        }
        What::Settled(settlement) => settlement.to_string(),
        What::Blocked(BlockReason::Attempts) => "blocked after its last attempt".to_owned(),
        What::Blocked(BlockReason::Expired) => "blocked: the next place is empty, and old".to_owned(),
        What::Blocked(BlockReason::Vanished) => "blocked: workers died before its handler was started".to_owned(),
        What::TakenOver(_) => "taken over from a worker that died".to_owned(),
        What::Lost => "lease lost".to_owned(),
        What::WakeUpFailed => "wake-up not sent".to_owned(),
        What::PutOff(..) => return None,
    };
    let name = if happening.name.is_empty() { String::new() } else { format!("{} ", one_line(&happening.name)) };
    Some(format!("{:>9.3} s  {:<28} {name}{what}", happening.at.as_secs_f64(), happening.entity.to_string()))
}

#[cfg(test)]
mod tests {
    use webhook_serializer::sources::OnOutage;

    use super::*;

    #[test]
    fn demonstration_defers_nothing() {
        let sources = Sources::parse(&document()).expect("it is right");
        for name in ["grouped", "shopify", "stripe", "woocommerce"] {
            assert_eq!(sources.get(name).expect("a source").on_outage(), OnOutage::Refuse, "{name}");
        }
    }
}
