//! Draws lanes as an SVG document.

use std::{fmt::Write, time::Duration};

use super::{Lane, LaneSpanKind, Picture, label};
use crate::output;

const LANE: f64 = 34.0;
const AXIS: f64 = 760.0;
const NAMES: f64 = 190.0;
const TOP: f64 = 44.0;
const COLOURS: [&str; 2] = ["#2f9e8f", "#3b7dd8"];

pub fn document(picture: &Picture, title: &str) -> String {
    let below = TOP + LANE * picture.lanes.len() as f64;
    let height = below + 64.0;
    let width = NAMES + AXIS + 30.0;
    let foot = below + 14.0;
    let title = escaped(title);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,monospace\" font-size=\"12\">\n\
         <title>{title}</title>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"14\" fill=\"#1c2733\">{title}</text>\n"
    );
    for (number, lane) in picture.lanes.iter().enumerate() {
        let _ = draw(&mut svg, picture, lane, TOP + LANE * number as f64);
    }
    for tick in 0..=4 {
        let at = picture.length().mul_f64(f64::from(tick) / 4.0);
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{foot:.1}\" fill=\"#66788a\" text-anchor=\"middle\" font-size=\"11\">{}</text>",
            NAMES + AXIS * f64::from(tick) / 4.0,
            output::duration(at)
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"16\" y=\"{:.1}\" fill=\"#66788a\" font-size=\"11\">▬ running   ┄ waiting   ! failed, retrying   = repeat recognised   – left out for a newer one   P parked   » worker died, taken over</text>\n</svg>",
        foot + 26.0
    );
    svg
}

fn draw(svg: &mut String, picture: &Picture, lane: &Lane, y: f64) -> std::fmt::Result {
    let middle = y + LANE / 2.0;
    let x =
        |at: Duration| NAMES + AXIS * at.saturating_sub(picture.from).as_secs_f64() / picture.length().as_secs_f64();
    writeln!(
        svg,
        "<text x=\"16\" y=\"{:.1}\" fill=\"#1c2733\">{}</text><line x1=\"{NAMES}\" x2=\"{:.1}\" y1=\"{middle:.1}\" y2=\"{middle:.1}\" stroke=\"#e3e8ee\"/>",
        middle + 4.0,
        escaped(&label(&lane.entity, 23)),
        NAMES + AXIS
    )?;
    let mut runs = 0;
    let mut waiting = 0;
    for span in &lane.spans {
        let from = x(span.from);
        let to = x(span.to);
        let mut line = |y: f64, colour: &str, wide: f64, dashes: &str| {
            writeln!(
                svg,
                "<line x1=\"{from:.1}\" x2=\"{to:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"{colour}\" stroke-width=\"{wide}\" stroke-dasharray=\"{dashes}\"/>"
            )
        };
        match span.kind {
            LaneSpanKind::Waiting => {
                waiting += 1;
                // Several waiting deliveries are drawn side by side below the lane's middle.
                let below = y + LANE - 4.0 - f64::from(waiting % 4) * 2.0;
                line(below, "#b6c2cf", 1.2, "2 2")?;
            }
            LaneSpanKind::Retrying => line(middle, "#e0a100", 3.0, "5 3")?,
            LaneSpanKind::Orphaned => line(middle, "#d64545", 3.0, "5 3")?,
            LaneSpanKind::Running => {
                runs += 1;
                let wide = (to - from).max(1.0);
                let name = escaped(&span.name);
                writeln!(
                    svg,
                    "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" rx=\"3\" fill=\"{}\"><title>{name}</title></rect>",
                    y + 5.0,
                    LANE - 15.0,
                    COLOURS[runs % 2]
                )?;
                if wide > 7.6 * span.name.chars().count() as f64 {
                    writeln!(
                        svg,
                        "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"#ffffff\" text-anchor=\"middle\" font-size=\"11\">{name}</text>",
                        from + wide / 2.0,
                        middle + 1.0
                    )?;
                }
            }
        }
    }
    for mark in &lane.marks {
        let (sign, tone) = mark.kind.sign();
        writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{}\" font-weight=\"bold\" text-anchor=\"middle\">{sign}</text>",
            x(mark.at),
            y + 8.0,
            tone.colour()
        )?;
    }
    Ok(())
}

fn escaped(text: &str) -> String {
    output::visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
