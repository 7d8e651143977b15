//! SVG plots for reports. Their five colours are placeholders that [`STYLE`] replaces, so that the page chooses light or
//! dark.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

/// The style sheet that replaces the colours below with the page's variables.
pub const STYLE: &str = "\
svg{max-width:100%;height:auto}\
svg [fill='#010101'],svg text{fill:var(--ink)}\
svg [stroke='#010101']{stroke:var(--ink)}\
svg [stroke='#020202']{stroke:var(--grid)}\
svg [fill='#030303']{fill:var(--one)}svg [stroke='#030303']{stroke:var(--one)}\
svg [fill='#040404']{fill:var(--two)}svg [stroke='#040404']{stroke:var(--two)}\
svg [fill='#050505']{fill:var(--three)}svg [stroke='#050505']{stroke:var(--three)}";

const INK: RGBColor = RGBColor(1, 1, 1);
const GRID: RGBColor = RGBColor(2, 2, 2);
const ROLES: [RGBColor; 3] = [RGBColor(3, 3, 3), RGBColor(4, 4, 4), RGBColor(5, 5, 5)];
const WIDTH: u32 = 860;
const FONT: &str = "sans-serif";
const NAME: usize = 34;

/// Up to three values of one name, such as percentiles. Unknown values are not drawn.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    pub name: String,
    pub values: [Option<f64>; 3],
}

/// A plot of horizontal bars, up to three for each name, with `unit` as its axis label. Empty if there is no value.
pub fn bars(rows: &[Bars], unit: &str) -> String {
    let all = rows.iter().flat_map(|row| row.values).flatten();
    let largest = all.fold(0.0, f64::max);
    if largest <= 0.0 {
        return String::new();
    }
    let height = 46 * rows.len() as u32 + 50;
    drawn(height, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(6)
            .x_label_area_size(38)
            .y_label_area_size(230)
            .build_cartesian_2d(0.0..largest * 1.12, 0.0..rows.len() as f64)?;
        let mut mesh = chart.configure_mesh();
        mesh.disable_y_mesh().y_labels(0).x_desc(unit);
        mesh.x_label_formatter(&|value| rounded(*value));
        plain(&mut mesh);
        mesh.draw()?;
        let end = Pos::new(HPos::Right, VPos::Center);
        let names = (FONT, 13).into_text_style(root).color(&INK).pos(end);
        for (at, row) in rows.iter().enumerate() {
            let top = (rows.len() - at) as f64;
            let place = chart.backend_coord(&(0.0, top - 0.5));
            root.draw(&Text::new(
                short(&row.name),
                (place.0 - 8, place.1),
                names.clone(),
            ))?;
            for (number, value) in row.values.iter().enumerate() {
                let Some(value) = value else { continue };
                let upper = top - 0.12 - 0.26 * number as f64;
                let corners = [(0.0, upper), (*value, upper - 0.22)];
                let bar = Rectangle::new(corners, ROLES[number].filled());
                chart.draw_series([bar])?;
                let place = chart.backend_coord(&(*value, upper - 0.11));
                let label = (FONT, 11).into_text_style(root).color(&INK);
                let label = label.pos(Pos::new(HPos::Left, VPos::Center));
                root.draw(&Text::new(rounded(*value), (place.0 + 5, place.1), label))?;
            }
        }
        Ok(())
    })
}

/// The points of a curve: seconds and value. The curve is interrupted if a value is unknown.
pub type Series = Vec<(f64, Option<f64>)>;

/// A plot of up to three curves over time, with a vertical line at each of `marks`. `clock` formats the labels of the time
/// axis. Empty if there is no value.
pub fn lines(lines: &[Series], marks: &[f64], unit: &str, clock: &dyn Fn(f64) -> String) -> String {
    let known = || {
        lines
            .iter()
            .flatten()
            .filter_map(|(at, value)| Some((*at, (*value)?)))
    };
    let Some(times) = range(known().map(|(at, _)| at)) else {
        return String::new();
    };
    let values = || known().map(|(_, value)| value);
    let (least, largest) = (values().fold(0.0, f64::min), values().fold(0.0, f64::max));
    drawn(280, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin(10)
            .x_label_area_size(30)
            .y_label_area_size(64)
            .build_cartesian_2d(times.clone(), least * 1.1..(largest * 1.1).max(1e-3))?;
        let mut mesh = chart.configure_mesh();
        mesh.x_labels(6).y_labels(5).y_desc(unit);
        let written = |at: &f64| clock(*at);
        mesh.x_label_formatter(&written);
        mesh.y_label_formatter(&|value| rounded(*value));
        plain(&mut mesh);
        mesh.draw()?;
        let heights = chart.y_range();
        for at in marks.iter().filter(|at| times.contains(at)) {
            let ends = [(*at, heights.start), (*at, heights.end)];
            let line = LineSeries::new(ends, INK.stroke_width(1));
            chart.draw_series(line)?;
        }
        for (line, colour) in lines.iter().zip(ROLES) {
            for run in line.split(|(_, value)| value.is_none()) {
                let points = || run.iter().filter_map(|(at, value)| Some((*at, (*value)?)));
                let style = colour.stroke_width(2);
                chart.draw_series(LineSeries::new(points(), style))?;
                // A single point has no line, so it is drawn as a dot.
                let dots = points().take(usize::from(run.len() == 1));
                chart.draw_series(dots.map(|point| Circle::new(point, 3, colour.filled())))?;
            }
        }
        Ok(())
    })
}

type Canvas<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type DrawingError<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

fn drawn(
    height: u32,
    draw: impl for<'a> FnOnce(&Canvas<'a>) -> Result<(), DrawingError<'a>>,
) -> String {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
    // Drawing into a string cannot fail.
    let done = draw(&root).and_then(|()| root.present());
    debug_assert!(done.is_ok(), "{done:?}");
    drop(root);
    svg
}

fn plain<X, Y>(mesh: &mut plotters::chart::MeshStyle<'_, '_, X, Y, SVGBackend<'_>>)
where
    X: Ranged,
    Y: Ranged,
{
    mesh.max_light_lines(0)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .axis_desc_style((FONT, 12, &INK))
        .label_style((FONT, 11, &INK));
}

fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let found = values.fold(None, |found: Option<(f64, f64)>, value| {
        let (least, most) = found.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    });
    found.map(|(least, most)| least..most.max(least + 1.0))
}

fn rounded(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{value:.2}"),
        ..10.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn short(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    let kept: String = name.chars().take(NAME - 1).collect();
    format!("{kept}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_what_is_unknown_has_none() {
        let rows = [
            Bars {
                name: "a <b>".to_owned(),
                values: [Some(100.0), Some(50.0), None],
            },
            Bars {
                name: "x".repeat(60),
                values: [Some(25.0), None, None],
            },
        ];
        let svg = bars(&rows, "tokens/s");
        assert!(
            svg.contains("a &lt;b&gt;") && svg.contains("tokens/s"),
            "{svg}"
        );
        assert!(svg.contains(&format!("{}…", "x".repeat(33))));
        let widths = |colour: &str| {
            let rects = svg
                .lines()
                .filter(|line| line.starts_with("<rect") && line.contains(colour));
            let width = |line: &str| {
                line.split("width=\"")
                    .nth(1)?
                    .split('"')
                    .next()?
                    .parse::<f64>()
                    .ok()
            };
            rects.filter_map(width).collect::<Vec<_>>()
        };
        let (first, second) = (widths("#030303"), widths("#040404"));
        assert_eq!(
            (first.len(), second.len(), widths("#050505").len()),
            (2, 1, 0)
        );
        assert!(
            (first[0] / second[0] - 2.0).abs() < 0.02,
            "{first:?} {second:?}"
        );
        assert!((first[0] / first[1] - 4.0).abs() < 0.05, "{first:?}");
        assert_eq!(bars(&[], "s"), "");
    }

    #[test]
    fn a_line_is_broken_where_nothing_is_known() {
        let line = vec![
            (0.0, Some(1.0)),
            (60.0, Some(2.0)),
            (120.0, None),
            (180.0, Some(3.0)),
        ];
        let svg = lines(&[line], &[], "s", &|at| format!("at {at}"));
        assert_eq!(
            svg.matches("<polyline").filter(|_| true).count() - grid(&svg),
            2
        );
        assert_eq!(svg.matches("<circle").count(), 1, "the lonely value");
        assert!(svg.contains("at 0"), "{svg}");
        assert_eq!(
            lines(&[vec![(0.0, None)]], &[], "s", &|_| String::new()),
            ""
        );
    }

    fn grid(svg: &str) -> usize {
        let lines = svg.lines().filter(|line| line.starts_with("<polyline"));
        lines.filter(|line| line.contains("#020202")).count()
    }

    #[test]
    fn every_colour_is_a_role_that_the_style_sheet_knows() {
        let rows = [Bars {
            name: "a".to_owned(),
            values: [Some(3.0), Some(2.0), Some(1.0)],
        }];
        for svg in [
            bars(&rows, "s"),
            lines(
                &[vec![(0.0, Some(1.0)), (9.0, Some(2.0))]],
                &[],
                "s",
                &|_| String::new(),
            ),
        ] {
            for colour in svg.split("=\"#").skip(1).map(|rest| &rest[..6]) {
                assert!(STYLE.contains(colour), "{colour}");
            }
        }
    }
}
