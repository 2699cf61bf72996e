//! Runs the demonstration, a series of acts. An act posts signed sample webhooks to a local deployment, and the
//! handlers' own log decides whether the act went well.

mod acts;
mod deployment;
mod report;
mod summary;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use webhook_serializer::{
    engine::drain::DrainSettings,
    protocol::{
        entity::{EntityKey, Sequence},
        state::BlockReason,
    },
    sources::{LiveSources, Sources},
    time::Env,
};

pub use report::{ActReport, DemoOrderReport};

use crate::{
    local::{LOOPBACK, LocalOptions, LocalRun, handler_log::Journal, samples},
    output::{one_line, this_command},
    say,
    view::{
        audit::{AuditVerdict, Sent},
        lanes::{Picture, terminal},
        recording::{EventKind, EventRecorder, RecordedEvent},
    },
};
use deployment::{DemoDeployment, Script};

#[derive(Debug, Clone)]
pub struct DemoOptions {
    pub plain: bool,
    /// The file for the picture of the first act that is played.
    pub svg: Option<PathBuf>,
    pub acts: Vec<String>,
    pub data: Option<PathBuf>,
}

struct DemoAct {
    scene: Scene,
    name: &'static str,
    about: &'static str,
    lines: DemoLines,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DemoLines {
    Each,
    Summary,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scene {
    Five,
    Burst,
    Repeats,
    Retries,
    Parked,
    Group,
    Killed,
}

const ACTS: [DemoAct; 7] = [
    DemoAct {
        scene: Scene::Five,
        name: "five",
        about: "Five webhooks of two orders at once: RA2 waits for RA1, order B waits for nobody.",
        lines: DemoLines::Each,
    },
    DemoAct {
        scene: Scene::Burst,
        name: "burst",
        about: "Hundreds of webhooks at once, from Shopify, Stripe and WooCommerce.",
        lines: DemoLines::Summary,
    },
    DemoAct {
        scene: Scene::Repeats,
        name: "repeats",
        about: "A provider sends each webhook three times; each is applied once.",
        lines: DemoLines::Each,
    },
    DemoAct {
        scene: Scene::Retries,
        name: "retries",
        about: "RA1 fails twice: its own order waits for it, the others do not.",
        lines: DemoLines::Each,
    },
    DemoAct {
        scene: Scene::Parked,
        name: "parked",
        about: "RA1 is rejected and parked, RA2 continues; then RA1 is redriven, at the end.",
        lines: DemoLines::Each,
    },
    DemoAct {
        scene: Scene::Group,
        name: "group",
        about: "Five webhooks of one order, in groups of up to ten: two handler starts handle all five.",
        lines: DemoLines::Each,
    },
    DemoAct {
        scene: Scene::Killed,
        name: "killed",
        about: "A worker dies while it handles RA2: its lease expires, and another worker continues.",
        lines: DemoLines::Each,
    },
];

pub fn act_names() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|act| act.name)
}

const GROUPED: &str = "
[sources.grouped]
provider = 'shopify'
secrets = 'shopify-development-secret'
entity = 'shopify/{entity}'
handler = 'log'
deliver = { up_to = 10 }
";

/// The length of a lease: short, so that a dead worker is soon replaced.
const LEASE: Duration = Duration::from_secs(2);

const WORKERS: NonZeroUsize = NonZeroUsize::new(8).expect("eight is not zero");

/// Returns the samples' sources and the source `grouped`.
///
/// On a busy machine, ingest may exceed its time limit and defer webhooks. In this document, the WooCommerce source
/// refuses such webhooks instead, and the demonstration sends them again, because the acts are about sequence and not
/// about deferral.
fn document() -> String {
    let name = "[sources.woocommerce]\n";
    let refuses = "on_outage = \"refuse\"\n";
    format!("{}{GROUPED}", samples::SOURCES.replace(name, &format!("{name}{refuses}")))
}

pub(crate) struct RunningAct<'a> {
    deployment: &'a mut DemoDeployment,
    /// The index of the act's first event in the recording.
    from: usize,
    sources: &'a Sources,
    sent: Vec<Sent>,
    /// The ids of the deliveries that stay parked.
    excused: BTreeSet<String>,
    orders: BTreeMap<String, Vec<String>>,
}

pub async fn run(options: DemoOptions) -> Result<bool> {
    if let Some(folder) = &options.data {
        // The deliveries of an earlier run would make this one's repeats.
        let is_used = std::fs::read_dir(folder).is_ok_and(|mut files| files.next().is_some());
        ensure!(!is_used, "{} is not empty: name an empty folder, or leave out --data", folder.display());
    }
    if let Some(path) = &options.svg {
        let opened = File::options().create(true).write(true).truncate(false).open(path);
        opened.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let env = Env::system();
    let story = EventRecorder::new(env.clone());
    let journal = Journal::new(env);
    let sources = Arc::new(Sources::parse(&document())?);
    let drain = DrainSettings { lease: LEASE, ..DrainSettings::default() };
    let local_options = LocalOptions {
        data: options.data.clone(),
        listen: (LOOPBACK, 0).into(),
        queue_port: 0,
        queue_added: |_, _| {},
        workers: WORKERS,
        sources: LiveSources::from(&sources),
        sources_file: None,
        drain,
        scheduler: None,
        fair_queue: false,
        samples: true,
    };
    let local = LocalRun::start(local_options, Arc::new(story.clone())).await?;
    let mut deployment = DemoDeployment::new(local, story, journal);
    let plain = options.plain || !console::user_attended();
    if !plain {
        say!("{}\n", terminal::legend());
    }
    let mut clean = true;
    let mut svg = options.svg;
    for act in ACTS.iter().filter(|act| options.acts.is_empty() || options.acts.iter().any(|name| name == act.name)) {
        let report = run_act(act, &mut deployment, &sources, svg.take(), plain).await?;
        clean &= report.verdict.is_clean();
    }
    deployment.local.stop().await?;
    let verdict = if clean {
        console::style("every act in order, one at a time, nothing lost, nothing repeated").green()
    } else {
        console::style("the handlers' log shows mistakes, see above").red()
    };
    say!("verdict: {verdict}\n\n{}", next_steps());
    Ok(clean)
}

/// Returns the commands to try after the demonstration. If Cargo started this program (it sets the variable `CARGO`),
/// the commands begin with `cargo run`, and the repository's pages are at hand.
fn next_steps() -> String {
    let is_repository = std::env::var_os("CARGO").is_some();
    let command = if is_repository { "cargo run --".to_owned() } else { this_command() };
    let mut steps = vec![
        (format!("{command} local"), "serves on this machine, with a console"),
        (format!("{command} send --provider shopify"), "posts samples, in another terminal"),
    ];
    if is_repository {
        steps.push(("docs/your-own-project.md".to_owned(), "makes a project with your own handlers"));
    }
    let width = steps.iter().map(|(step, _)| step.len()).max().unwrap_or_default();
    let comment = |what: &str| console::style(format!("# {what}")).dim().to_string();
    let lines = steps.iter().map(|(step, what)| format!("\n  {step:width$}  {}", comment(what)));
    format!("Next:{}", lines.collect::<String>())
}

async fn run_act(
    act: &DemoAct,
    deployment: &mut DemoDeployment,
    sources: &Sources,
    svg: Option<PathBuf>,
    plain: bool,
) -> Result<ActReport> {
    say!("{}\n{}", console::style(act.name).bold(), console::style(act.about).dim());
    let from = deployment.story.since(0).len();
    let runs_before = deployment.journal.runs().len();
    let starts_before = deployment.journal.starts().len();
    let (end_of_act, ended) = tokio::sync::oneshot::channel();
    let shown = tokio::spawn(show(deployment.story.clone(), from, plain.then_some(act.lines), ended));
    let script = acts::script(act.scene);
    deployment.set_script(&script);
    let mut running =
        RunningAct { deployment, from, sources, sent: Vec::new(), excused: BTreeSet::new(), orders: BTreeMap::new() };
    acts::run(act.scene, &mut running).await?;
    let RunningAct { sent, excused, orders, .. } = running;
    let end = deployment.story.now();
    let _ = end_of_act.send(());
    shown.await?;
    let happenings = deployment.story.since(from);
    let picture = Picture::of(&happenings, end);
    if let Some(path) = svg {
        let written = std::fs::write(&path, crate::view::lanes::svg::document(&picture, act.about));
        written.with_context(|| format!("{} cannot be written", path.display()))?;
    }
    let runs = deployment.journal.runs().split_off(runs_before);
    let verdict = AuditVerdict::of(&sent, &runs, &excused);
    let starts = deployment.journal.starts().split_off(starts_before);
    let report = ActReport::new(verdict, orders, &runs, &starts, &deployment.story, &*deployment.table()).await;
    say!("{report}");
    Ok(report)
}

async fn show(
    story: EventRecorder,
    from: usize,
    lines: Option<DemoLines>,
    mut ended: tokio::sync::oneshot::Receiver<()>,
) {
    let mut length = story.length();
    let mut next = from;
    let mut arrivals = Arrivals::default();
    let mut canvas = terminal::Canvas::new();
    let env = Env::system();
    let mut is_over = false;
    loop {
        if let Some(lines) = lines {
            for happening in story.since(next) {
                next += 1;
                for happening in arrivals.after(happening) {
                    if let Some(line) = line(&happening).filter(|_| lines == DemoLines::Each) {
                        say!("{line}");
                    }
                }
            }
        } else {
            // If the terminal is gone, the act continues without drawing.
            let _ = canvas.draw(&Picture::of(&story.since(from), story.now()));
        }
        if is_over {
            if lines == Some(DemoLines::Each) {
                arrivals.early.iter().filter_map(line).for_each(|line| say!("{line}"));
            }
            if lines == Some(DemoLines::Summary) {
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

/// Buffers the events of a delivery until the event of its acceptance arrives. A worker may report a start before
/// ingest reports the acceptance.
#[derive(Default)]
struct Arrivals {
    accepted: BTreeSet<(EntityKey, Sequence)>,
    early: Vec<RecordedEvent>,
}

impl Arrivals {
    fn after(&mut self, mut happening: RecordedEvent) -> Vec<RecordedEvent> {
        let Some(sequence) = happening.sequence else { return vec![happening] };
        let place = (happening.entity.clone(), sequence);
        let is_of_place = |one: &RecordedEvent| one.entity == place.0 && one.sequence == Some(sequence);
        let is_early = self.early.iter().any(is_of_place);
        match happening.what {
            EventKind::Accepted => {
                let early: Vec<RecordedEvent>;
                (early, self.early) = std::mem::take(&mut self.early).into_iter().partition(is_of_place);
                // The delivery was accepted before its handler started.
                happening.at = early.first().map_or(happening.at, |first| first.at.min(happening.at));
                self.accepted.insert(place);
                [vec![happening], early].concat()
            }
            EventKind::Started(..) if !self.accepted.contains(&place) => {
                self.early.push(happening);
                Vec::new()
            }
            _ if is_early => {
                self.early.push(happening);
                Vec::new()
            }
            _ => vec![happening],
        }
    }
}

pub fn line(happening: &RecordedEvent) -> Option<String> {
    let what = match &happening.what {
        EventKind::Accepted => "accepted".to_owned(),
        EventKind::Ignored => "ignored: its source does not take it".to_owned(),
        EventKind::Started(1, token) => format!("started, token {token}"),
        EventKind::Started(attempt, token) => format!("started, attempt {attempt}, token {token}"),
        EventKind::Failed { attempt, wait, error } => {
            let error = if error.is_empty() { String::new() } else { format!(": {error}") };
            format!("attempt {attempt} failed, next attempt in {}{error}", crate::output::duration(*wait))
        }
        EventKind::Settled(settlement) => settlement.to_string(),
        EventKind::Blocked(BlockReason::Attempts) => "blocked after its last attempt".to_owned(),
        EventKind::Blocked(BlockReason::Expired) => {
            "blocked: the next sequence is empty, and its delivery may have expired".to_owned()
        }
        EventKind::Blocked(BlockReason::Vanished) => "blocked: workers died before the handler started".to_owned(),
        EventKind::TakenOver(_) => "taken over from a worker that died".to_owned(),
        EventKind::Lost => "lease lost".to_owned(),
        EventKind::WakeUpFailed => "wake-up not sent".to_owned(),
        EventKind::Requeued(..) => return None,
    };
    let name = if happening.name.is_empty() { String::new() } else { format!("{} ", one_line(&happening.name)) };
    Some(format!("{:>7.3} s  {:<18} {name}{what}", happening.at.as_secs_f64(), happening.entity.to_string()))
}

#[cfg(test)]
mod tests {
    use webhook_serializer::{
        protocol::{entity::FencingToken, receipt::Settlement},
        sources::OnOutage,
    };

    use super::*;

    #[test]
    fn acceptance_recorded_after_handler_start_is_shown_before_it() {
        let event = |at, sequence, what| RecordedEvent {
            at: Duration::from_millis(at),
            entity: "a/1".parse().expect("a key"),
            sequence,
            name: "RA1".to_owned(),
            what,
        };
        let at = Some(Sequence(1));
        let applied = EventKind::Settled(Settlement::Applied);
        let events = [
            event(5, at, EventKind::Started(1, FencingToken(1))),
            event(6, None, EventKind::Lost),
            event(7, at, applied.clone()),
            event(8, at, EventKind::Accepted),
            event(9, at, EventKind::Settled(Settlement::Repeat)),
        ];
        let mut arrivals = Arrivals::default();
        let shown: Vec<(u128, EventKind)> =
            events.into_iter().flat_map(|one| arrivals.after(one)).map(|one| (one.at.as_millis(), one.what)).collect();
        let expected = [
            (6, EventKind::Lost),
            (5, EventKind::Accepted),
            (5, EventKind::Started(1, FencingToken(1))),
            (7, applied),
            (9, EventKind::Settled(Settlement::Repeat)),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn demo_sources_set_on_outage_to_refuse() {
        let sources = Sources::parse(&document()).expect("it is right");
        for name in ["grouped", "shopify", "stripe", "woocommerce"] {
            assert_eq!(sources.get(name).expect("a source").on_outage(), OnOutage::Refuse, "{name}");
        }
    }
}
