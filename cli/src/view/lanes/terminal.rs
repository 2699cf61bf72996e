//! Draws lanes in a terminal, with a summary and a legend.

use std::time::Duration;

use console::{Style, Term, measure_text_width, pad_str};

use super::{Lane, LaneSpanKind, LaneTotals, MarkKind, Picture, label};
use crate::{output, view::tone::Tone};

const NARROWEST_AXIS: usize = 20;

#[derive(Clone)]
struct Cell {
    glyph: char,
    style: Style,
}

/// Returns the style of an order's run with this number. Neighbouring runs differ.
fn running(run: usize) -> Style {
    let style = Style::new().black();
    if run.is_multiple_of(2) { style.on_green() } else { style.on_cyan() }
}

pub fn lines(picture: &Picture, width: usize, height: usize) -> Vec<String> {
    let widest = picture.lanes.iter().map(|lane| lane.entity.as_str().chars().count()).max().unwrap_or(0);
    let names = widest.min((width / 4).max(8));
    let counts = if width >= 60 { 10 } else { 0 };
    let axis = width.saturating_sub(names + 3 + counts).max(NARROWEST_AXIS.min(width));
    let shown = picture.lanes.len().min(height.saturating_sub(2).max(1));
    // If there are more lanes than lines, unsettled ones come first.
    let mut order: Vec<&Lane> = picture.lanes.iter().collect();
    if shown < order.len() {
        order.sort_by_key(|lane| lane.totals.settled == lane.totals.accepted);
    }
    let mut lines: Vec<String> = order[..shown]
        .iter()
        .map(|lane| {
            let count = format!(" {}/{}", lane.totals.settled, lane.totals.accepted);
            let count = if counts > 0 { pad_str(&count, counts, console::Alignment::Right, None) } else { "".into() };
            let name = pad_str(&label(&lane.entity, names), names, console::Alignment::Left, None).into_owned();
            format!("{name} │{}│{count}", painted(&cells(lane, picture, axis)))
        })
        .collect();
    if shown < picture.lanes.len() {
        let rest = picture.lanes.len() - shown;
        lines.push(Style::new().dim().apply_to(format!("… and {rest} more orders")).to_string());
    }
    lines.push(summary(&picture.totals, picture.lanes.len(), picture.length(), width));
    lines
}

fn summary(totals: &LaneTotals, orders: usize, time: Duration, width: usize) -> String {
    let mut parts = vec![
        format!("{}/{} settled", totals.settled, totals.accepted),
        format!("{orders} {}", if orders == 1 { "order" } else { "orders" }),
        output::duration(time),
    ];
    for (count, what) in [
        (totals.repeats, "repeats"),
        (totals.superseded, "superseded"),
        (totals.retries, "retries"),
        (totals.parked, "parked"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    let text = parts.join(" · ");
    let bar = width.saturating_sub(measure_text_width(&text) + 4).min(30);
    let filled = (bar * totals.settled).checked_div(totals.accepted).unwrap_or(0).min(bar);
    let bar = format!("{}{}", "━".repeat(filled), Style::new().dim().apply_to("─".repeat(bar - filled)));
    format!("{bar} {text}")
}

fn cells(lane: &Lane, picture: &Picture, axis: usize) -> Vec<Cell> {
    let length = picture.length().as_secs_f64();
    let column = |at: Duration| {
        let share = at.saturating_sub(picture.from).as_secs_f64() / length;
        ((share * axis as f64) as usize).min(axis.saturating_sub(1))
    };
    let mut cells = vec![Cell { glyph: ' ', style: Style::new() }; axis];
    let mut runs = 0;
    for kind in [LaneSpanKind::Waiting, LaneSpanKind::Retrying, LaneSpanKind::Orphaned, LaneSpanKind::Running] {
        for span in lane.spans.iter().filter(|span| span.kind == kind) {
            let from = column(span.from);
            let to = column(span.to);
            let (glyph, style) = match kind {
                LaneSpanKind::Waiting => ('·', Tone::Quiet.style()),
                LaneSpanKind::Retrying => ('~', Tone::Warn.style()),
                LaneSpanKind::Orphaned => ('×', Tone::Bad.style()),
                LaneSpanKind::Running => {
                    runs += 1;
                    ('█', running(runs))
                }
            };
            let wide = to.saturating_sub(from) + 1;
            // A name is written if it fits. Its cells keep the span's colour.
            let fits = span.name.chars().count() <= wide && kind == LaneSpanKind::Running;
            let mut name = span.name.chars().filter(|_| fits);
            for cell in &mut cells[from..=to] {
                let blank = if kind == LaneSpanKind::Running && console::colors_enabled() { ' ' } else { glyph };
                *cell = Cell { glyph: name.next().unwrap_or(blank), style: style.clone() };
            }
        }
    }
    for mark in &lane.marks {
        let (glyph, tone) = mark.kind.sign();
        // The sign is drawn one column earlier, so that a name that starts here stays readable.
        cells[column(mark.at).saturating_sub(1)] = Cell { glyph, style: tone.style() };
    }
    cells
}

fn painted(cells: &[Cell]) -> String {
    cells
        .chunk_by(|left, right| left.style == right.style)
        .map(|chunk| {
            let text: String = chunk.iter().map(|cell| cell.glyph).collect();
            chunk[0].style.apply_to(text).to_string()
        })
        .collect()
}

pub fn legend() -> String {
    let sample = |glyph: &str, style: Style, meaning: &str| format!("{} {meaning}", style.apply_to(glyph));
    let mark = |kind: MarkKind, meaning: &str| {
        let (glyph, tone) = kind.sign();
        sample(&glyph.to_string(), tone.style(), meaning)
    };
    let run = if console::colors_enabled() { "  " } else { "█" };
    let lines = [
        &[
            sample("·", Tone::Quiet.style(), "waiting"),
            sample(run, running(1), "running"),
            sample("!~", Tone::Warn.style(), "failed, retrying"),
            mark(MarkKind::Repeat, "repeat recognised"),
        ][..],
        &[
            mark(MarkKind::Superseded, "left out for a newer one"),
            mark(MarkKind::Parked, "parked"),
            mark(MarkKind::Blocked, "blocked"),
            sample("×", Tone::Bad.style(), "worker died"),
            mark(MarkKind::TakenOver, "taken over"),
        ],
    ];
    lines.map(|line| line.join("   ")).join("\n")
}

#[derive(Debug)]
pub struct Canvas {
    term: Term,
    drawn: usize,
}

impl Canvas {
    pub fn new() -> Self {
        Self { term: Term::stdout(), drawn: 0 }
    }

    pub fn draw(&mut self, picture: &Picture) -> std::io::Result<()> {
        let (height, width) = self.term.size();
        let lines = lines(picture, usize::from(width).saturating_sub(1), usize::from(height).saturating_sub(2));
        self.term.clear_last_lines(self.drawn)?;
        self.drawn = lines.len();
        self.term.write_line(&output::escaped(&lines.join("\n")))
    }
}

impl Default for Canvas {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::recording::{EventKind, RecordedEvent};
    use webhook_serializer::protocol::{
        entity::{EntityKey, FencingToken, Sequence},
        receipt::Settlement,
    };

    fn picture(orders: usize) -> Picture {
        let mut happenings = Vec::new();
        for order in 0..orders {
            for (at, what) in [
                (0, EventKind::Accepted),
                (20, EventKind::Started(1, FencingToken(1))),
                (100, EventKind::Settled(Settlement::Applied)),
            ] {
                happenings.push(RecordedEvent {
                    at: Duration::from_millis(at),
                    entity: EntityKey::parse(&format!("shop/order/{order}")).unwrap(),
                    sequence: Some(Sequence(1)),
                    name: "RA1".into(),
                    what,
                });
            }
        }
        Picture::of(&happenings, Duration::from_millis(100))
    }

    #[test]
    fn lane_lines_fit_the_terminal_width() {
        for width in [24, 40, 80, 200] {
            for line in lines(&picture(3), width, 30) {
                assert!(measure_text_width(&line) <= width.max(NARROWEST_AXIS + 12), "{width}: {line}");
            }
        }
    }

    #[test]
    fn lanes_beyond_terminal_height_are_counted() {
        let lines = lines(&picture(300), 80, 20);
        assert_eq!(lines.len(), 20);
        assert!(lines[18].contains("and 282 more orders"), "{}", lines[18]);
    }

    #[test]
    fn lane_draws_wait_as_dots_and_run_as_named_bar() {
        console::set_colors_enabled(false);
        let lines = lines(&picture(1), 80, 30);
        assert!(lines[0].contains("···"), "{}", lines[0]);
        assert!(lines[0].contains("RA1██"), "{}", lines[0]);
    }
}
