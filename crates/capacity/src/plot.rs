//! The growth as an SVG: one panel for each series, sizes and ratios on logarithmic axes. A shaded
//! line shows the goal. The colours are readable on light and dark pages.

use std::fmt::Write as _;

use crate::{
    growth::{Figure, MAX_PERCENT_PER_DECADE, Series},
    markdown,
};

const COLUMNS: usize = 3;
const PANEL: (f64, f64) = (320.0, 270.0);
/// The plot within its panel: left, top, width and height.
const AREA: (f64, f64, f64, f64) = (44.0, 30.0, 262.0, 130.0);
/// The ratios at the bottom and the top, and the labelled ones.
const RATIOS: (f64, f64) = (0.25, 4.0);
const TICKS: [(f64, &str); 5] = [(0.25, "¼"), (0.5, "½"), (1.0, "1"), (2.0, "2"), (4.0, "4")];
const LEGEND_LINE: f64 = 14.0;
const COLOURS: [&str; 6] = [
    "#3b82f6", "#f97316", "#16a34a", "#db2777", "#8b5cf6", "#0891b2",
];
const STYLE: &str = "<style>text{font:11px sans-serif;fill:#333}.title{font-weight:bold}\
.axis{stroke:#999;fill:none}.goal{fill:#999;opacity:.25}.line{fill:none;stroke-width:2}\
@media(prefers-color-scheme:dark){text{fill:#ddd}}</style>\n";

/// Draws all series that have a figure at two sizes.
pub(crate) fn svg(growth: &[Series]) -> String {
    let grows = |series: &&Series| series.worst_percent().is_some();
    let shown: Vec<_> = growth.iter().filter(grows).collect();
    let rows = shown.len().div_ceil(COLUMNS).max(1);
    let (width, height) = (PANEL.0 * COLUMNS as f64, PANEL.1 * rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"Growth relative to the smallest size\">\n{STYLE}"
    );
    for (index, series) in shown.into_iter().enumerate() {
        let x = (index % COLUMNS) as f64 * PANEL.0;
        let y = (index / COLUMNS) as f64 * PANEL.1;
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        panel(&mut svg, series);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

/// Where a size and a ratio are in a panel.
struct Scale {
    first: f64,
    last: f64,
}

impl Scale {
    fn x(&self, at: f64) -> f64 {
        let share = (at / self.first).log10() / (self.last / self.first).log10();
        AREA.0 + AREA.2 * share
    }

    fn y(ratio: f64) -> f64 {
        let ratio = ratio.clamp(RATIOS.0, RATIOS.1);
        let share = (ratio / RATIOS.0).log10() / (RATIOS.1 / RATIOS.0).log10();
        AREA.1 + AREA.3 * (1.0 - share)
    }
}

fn panel(svg: &mut String, series: &Series) {
    let sizes = || series.points.iter().map(|point| point.at as f64);
    let scale = Scale {
        first: sizes().fold(f64::INFINITY, f64::min),
        last: sizes().fold(1.0, f64::max),
    };
    axes(svg, series, &scale, sizes());
    let figures = series.figures().into_iter();
    let growing = figures.filter(|figure| series.percent_per_decade(*figure).is_some());
    for (index, (figure, colour)) in growing.zip(COLOURS).enumerate() {
        line(svg, series, figure, colour, &scale);
        let y = AREA.1 + AREA.3 + 34.0 + index as f64 * LEGEND_LINE;
        let percent = series.percent_per_decade(figure).unwrap_or_default();
        let _ = writeln!(
            svg,
            "<rect x=\"{}\" y=\"{}\" width=\"10\" height=\"3\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"{y}\">{}: {percent:+.0} % a decade</text>",
            AREA.0,
            y - 5.0,
            AREA.0 + 16.0,
            figure.name(),
        );
    }
}

fn axes(svg: &mut String, series: &Series, scale: &Scale, sizes: impl Iterator<Item = f64>) {
    let (left, top, width, height) = AREA;
    let _ = writeln!(
        svg,
        "<text class=\"title\" x=\"{left}\" y=\"18\">{}, {}</text>",
        series.axis.plural(),
        series.system
    );
    let decades = (scale.last / scale.first).log10();
    let goal = Scale::y((1.0 + MAX_PERCENT_PER_DECADE / 100.0).powf(decades));
    let base = Scale::y(1.0);
    let right = left + width;
    let _ = writeln!(
        svg,
        "<path class=\"goal\" d=\"M{left} {base:.1}L{right} {goal:.1}V{base:.1}Z\"/>\
         <path class=\"axis\" d=\"M{left} {top}V{}H{right}\"/>",
        top + height
    );
    for (ratio, name) in TICKS {
        let y = Scale::y(ratio) + 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{y:.1}\" text-anchor=\"end\">{name} ×</text>",
            left - 6.0
        );
    }
    for size in sizes {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            scale.x(size),
            top + height + 15.0,
            markdown::count(size)
        );
    }
}

fn line(svg: &mut String, series: &Series, figure: Figure, colour: &str, scale: &Scale) {
    let values: Vec<_> = series.compared(figure).collect();
    let first = values.first().map_or(1.0, |(_, value)| *value);
    let points = values
        .iter()
        .map(|(at, value)| format!("{:.1},{:.1}", scale.x(*at), Scale::y(value / first)));
    let points: Vec<_> = points.collect();
    let _ = writeln!(
        svg,
        "<polyline class=\"line\" stroke=\"{colour}\" points=\"{}\"/>",
        points.join(" ")
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::growth::{Axis, Point};

    #[test]
    fn panel_has_a_line_for_each_figure() {
        let mut series = Series::new(Axis::Devices, "one Redis");
        series.points = [(1_000, 100.0), (10_000, 200.0)]
            .map(|(at, value)| Point {
                at,
                figures: [(Figure::CallP50Us, value), (Figure::EdgeBytes, value)].into(),
            })
            .to_vec();
        let drawn = svg(&[series, Series::new(Axis::Edges, "one Redis")]);
        assert_eq!(drawn.matches("<polyline").count(), 2);
        assert_eq!(drawn.matches("class=\"title\"").count(), 1);
        assert!(drawn.contains("points=\"44.0,95.0 306.0,62.5\""), "{drawn}");
    }
}
