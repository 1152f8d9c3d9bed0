//! How the costs grow with the size of an installation.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::markdown;

/// The goal: no figure grows by more than this with each decade of an axis.
pub const MAX_PERCENT_PER_DECADE: f64 = 15.0;

/// What is multiplied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Axis {
    /// Connected devices, with a socket each.
    Devices,
    /// Entries in the directory.
    Entries,
    /// Edges.
    Edges,
    /// Organisations.
    Organisations,
    /// Devices that the control plane has stored.
    Stored,
}

impl Axis {
    /// What is multiplied, in the plural.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Devices => "devices",
            Self::Entries => "directory entries",
            Self::Edges => "edges",
            Self::Organisations => "organisations",
            Self::Stored => "stored devices",
        }
    }
}

/// What is measured at each size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Median latency of a call at 1 in flight.
    CallP50Us,
    /// CPU of a call of caller, edges and Redis, at 64 in flight for each edge.
    CallCpuUs,
    /// Reads of the directory for each call.
    LookupsPerCall,
    /// Median latency of a look-up at 1 in flight.
    LookupP50Us,
    /// CPU of Redis for a look-up, at 64 in flight.
    LookupRedisUs,
    /// CPU of edges and Redis for a device that connects.
    ConnectCpuUs,
    /// Memory of the edges for each device.
    EdgeBytes,
    /// Memory of Redis for each device.
    RedisBytes,
    /// Rows of PostgreSQL for each device.
    PostgresRows,
    /// Bytes of PostgreSQL's tables and indexes for each device.
    PostgresBytes,
    /// CPU of control and PostgreSQL for a stored device that comes back.
    StoreCpuUs,
}

impl Figure {
    /// Values below this are noise, and compared as this.
    const fn floor(self) -> f64 {
        match self {
            Self::LookupsPerCall => 0.01,
            _ => 0.0,
        }
    }

    /// Its name in tables and in the plot.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::CallP50Us => "p50 µs of a call",
            Self::CallCpuUs => "CPU µs of a call",
            Self::LookupsPerCall => "look-ups for each call",
            Self::LookupP50Us => "p50 µs of a look-up",
            Self::LookupRedisUs => "Redis µs of a look-up",
            Self::ConnectCpuUs => "CPU µs of a connect",
            Self::EdgeBytes => "bytes at the edge",
            Self::RedisBytes => "bytes in Redis",
            Self::PostgresRows => "rows in PostgreSQL",
            Self::PostgresBytes => "bytes in PostgreSQL",
            Self::StoreCpuUs => "control and PostgreSQL µs of a return",
        }
    }
}

/// The figures at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The size.
    pub at: u64,
    /// What was measured.
    pub figures: BTreeMap<Figure, f64>,
}

/// The figures at growing sizes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What is multiplied.
    pub axis: Axis,
    /// What it was measured with.
    pub system: String,
    /// In order of their sizes.
    pub points: Vec<Point>,
}

impl Series {
    /// A series without points.
    #[must_use]
    pub fn new(axis: Axis, system: impl Into<String>) -> Self {
        Self {
            axis,
            system: system.into(),
            points: Vec::new(),
        }
    }

    /// The figures that it has, in the order of columns.
    #[must_use]
    pub fn figures(&self) -> Vec<Figure> {
        let all = self.points.iter().flat_map(|point| point.figures.keys());
        let mut figures: Vec<_> = all.copied().collect();
        figures.sort_unstable();
        figures.dedup();
        figures
    }

    /// The sizes and values of a figure.
    pub fn values(&self, figure: Figure) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().filter_map(move |point| {
            let value = point.figures.get(&figure)?;
            Some((point.at as f64, *value))
        })
    }

    /// The sizes and values of a figure whose growth is compared: those above 0, of at least the
    /// figure's floor.
    pub(crate) fn compared(&self, figure: Figure) -> impl Iterator<Item = (f64, f64)> {
        self.values(figure)
            .map(move |(at, value)| (at, value.max(figure.floor())))
            .filter(|(_, value)| *value > 0.0)
    }

    /// How many percent a figure grows with each decade: the slope of the straight line through the
    /// logarithms of sizes and values. Absent with fewer than two values above 0. Look-ups for each
    /// call are compared from 0.01 on: fewer are noise.
    #[must_use]
    pub fn percent_per_decade(&self, figure: Figure) -> Option<f64> {
        let points: Vec<_> = self
            .compared(figure)
            .map(|(at, value)| (at.log10(), value.ln()))
            .collect();
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let products = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y));
        let squares = points
            .iter()
            .map(|(x, _)| (x - mean_x).powi(2))
            .sum::<f64>();
        let slope = products.sum::<f64>() / squares;
        (points.len() > 1 && squares > 0.0).then(|| (slope.exp() - 1.0) * 100.0)
    }

    /// The most that any figure grows with each decade, in percent.
    #[must_use]
    pub fn worst_percent(&self) -> Option<f64> {
        let all = self.figures().into_iter();
        let percents = all.filter_map(|figure| self.percent_per_decade(figure));
        percents.max_by(f64::total_cmp)
    }

    /// A Markdown table: a row for each size, and the growth.
    #[must_use]
    pub fn table(&self) -> String {
        let figures = self.figures();
        let title = format!("{}, {}", self.axis.plural(), self.system);
        let names = figures.iter().map(|figure| figure.name().to_owned());
        let mut rows: Vec<Vec<String>> = vec![[title].into_iter().chain(names).collect()];
        for point in &self.points {
            let value = |figure| point.figures.get(figure).copied();
            let cells = figures
                .iter()
                .map(|figure| value(figure).map_or_else(String::new, markdown::number));
            rows.push(
                [markdown::count(point.at as f64)]
                    .into_iter()
                    .chain(cells)
                    .collect(),
            );
        }
        let growth = figures.iter().map(|figure| {
            let percent = self.percent_per_decade(*figure);
            percent.map_or_else(String::new, |percent| format!("{percent:+.0} %"))
        });
        let last = ["with each decade".to_owned()].into_iter().chain(growth);
        rows.push(last.collect());
        markdown::table(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(values: &[(u64, f64)]) -> Series {
        let mut series = Series::new(Axis::Devices, "one Redis");
        series.points = values
            .iter()
            .map(|(at, value)| Point {
                at: *at,
                figures: [(Figure::CallP50Us, *value)].into(),
            })
            .collect();
        series
    }

    #[test]
    fn growth_is_the_slope_over_decades() {
        fn check(values: &[(u64, f64)], expected: Option<f64>) {
            let percent = series(values).percent_per_decade(Figure::CallP50Us);
            assert_eq!(percent.map(f64::round), expected, "{values:?}");
        }
        check(
            &[(1_000, 100.0), (10_000, 110.0), (100_000, 121.0)],
            Some(10.0),
        );
        check(&[(1_000, 100.0), (100_000, 100.0)], Some(0.0));
        check(&[(1, 100.0), (10, 50.0)], Some(-50.0));
        check(&[(1_000, 100.0)], None);
        check(&[(1_000, 0.0), (10_000, 0.0)], None);
        check(&[], None);
    }

    #[test]
    fn noise_below_the_floor_does_not_grow() {
        fn check(values: [f64; 2], expected: f64) {
            let mut series = series(&[]);
            series.points = [(1_000, values[0]), (10_000, values[1])]
                .map(|(at, value)| Point {
                    at,
                    figures: [(Figure::LookupsPerCall, value)].into(),
                })
                .to_vec();
            let percent = series.worst_percent().map(f64::round);
            assert_eq!(percent, Some(expected), "{values:?}");
        }
        check([0.0, 0.0004], 0.0);
        check([0.0001, 0.009], 0.0);
        check([0.0, 0.02], 100.0);
    }

    #[test]
    fn table_ends_with_the_growth() {
        let table = series(&[(1_000, 1_000.0), (10_000, 1_100.0)]).table();
        let expected = "\
| devices, one Redis | p50 µs of a call |
|--------------------|------------------|
| 1,000              | 1,000            |
| 10,000             | 1,100            |
| with each decade   | +10 %            |
";
        assert_eq!(table, expected);
    }
}
