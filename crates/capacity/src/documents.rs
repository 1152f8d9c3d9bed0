//! The parts of the documents that are computed, between two comments.

use std::{fs, io, path::Path};

use crate::{
    coefficients::{Coefficients, Role},
    load::{Load, Machine, Prices},
    markdown,
    plan::Plan,
    plot,
};

const SCALE: &str = "docs/scale.md";
const PERFORMANCE: &str = "docs/performance.md";
const PLOT: &str = "docs/pictures/growth.svg";
const DEVICES: [(f64, &str); 4] = [(1e5, "10⁵"), (1e6, "10⁶"), (1e7, "10⁷"), (1e8, "10⁸")];
const CALLS: [f64; 2] = [0.01, 1.0];
const RETURNS: [f64; 2] = [0.01, 1.0];

/// Writes the plot, and the computed parts of docs/performance.md and docs/scale.md.
///
/// # Errors
/// A file is not readable, is not writable or lacks a comment.
pub fn write(root: &Path, coefficients: &Coefficients) -> io::Result<()> {
    fs::write(root.join(PLOT), plot::svg(&coefficients.growth))?;
    for (file, section, text) in sections(coefficients) {
        let path = root.join(file);
        let document = fs::read_to_string(&path)?;
        let replaced = replace(&document, section, &text);
        let missing = || io::Error::other(format!("{file} lacks the comments of `{section}`"));
        fs::write(&path, replaced.ok_or_else(missing)?)?;
    }
    Ok(())
}

/// File, name and text of each computed part.
fn sections(coefficients: &Coefficients) -> [(&'static str, &'static str, String); 4] {
    [
        (PERFORMANCE, "growth", growth(coefficients)),
        (SCALE, "nodes", nodes(coefficients)),
        (SCALE, "limits", limits(coefficients)),
        (SCALE, "costs", costs(coefficients)),
    ]
}

/// The document with the text between `<!-- section -->` and `<!-- end of section -->`.
fn replace(document: &str, section: &str, text: &str) -> Option<String> {
    let (start, end) = (
        format!("<!-- {section} -->\n"),
        format!("<!-- end of {section} -->"),
    );
    let (before, rest) = document.split_once(&start)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{start}\n{text}\n{end}{after}"))
}

fn growth(coefficients: &Coefficients) -> String {
    let tables = coefficients.growth.iter().map(crate::Series::table);
    let tables: Vec<_> = tables.collect();
    format!("{}.\n\n{}", coefficients.measured, tables.join("\n"))
}

fn profiles() -> impl Iterator<Item = (f64, f64)> {
    CALLS
        .into_iter()
        .flat_map(|calls| RETURNS.map(|returns| (calls, returns)))
}

fn plan(coefficients: &Coefficients, devices: f64, (calls, returns): (f64, f64)) -> Plan {
    let load = Load {
        devices,
        calls_per_device_second: calls,
        reconnect_fraction: returns,
        ..Load::default()
    };
    Plan::new(coefficients, &load, &Machine::default(), &Prices::default())
}

/// A row for each number of devices and each load.
fn nodes(coefficients: &Coefficients) -> String {
    let head = [
        "devices",
        "calls per device and s",
        "back within a minute",
        "edges",
        "gateways",
        "control",
        "Redis shards",
        "PostgreSQL writers",
        "cores",
        "GiB",
        "$ per device and month",
        "breaks first",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (devices, name) in DEVICES {
        for profile in profiles() {
            let plan = plan(coefficients, devices, profile);
            let number =
                |count: Option<f64>| count.map_or_else(|| "none".to_owned(), markdown::count);
            let count = |role| number(plan.count(role));
            let first = plan.limits.first().filter(|limit| limit.devices < devices);
            rows.push(vec![
                name.to_owned(),
                profile.0.to_string(),
                percent(profile.1),
                count(Role::Edge),
                count(Role::Gateway),
                count(Role::Control),
                count(Role::Redis),
                count(Role::Postgres),
                number(plan.machine_cores),
                number(plan.machine_gib),
                plan.device_month
                    .map_or_else(|| "none".to_owned(), |dollars| format!("{dollars:.5}")),
                first.map_or("nothing", |limit| limit.what).to_owned(),
            ]);
        }
    }
    markdown::table(&rows)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// The devices that each single part carries, at each load. The order is that of the first load.
fn limits(coefficients: &Coefficients) -> String {
    let plans: Vec<_> = profiles()
        .map(|profile| (profile, plan(coefficients, 1e6, profile)))
        .collect();
    let mut head = vec!["what there is one of".to_owned()];
    head.extend(plans.iter().map(|((calls, returns), _)| {
        format!(
            "calls per device and s: {calls}; back: {}",
            percent(*returns)
        )
    }));
    let mut rows = vec![head];
    let named = plans.first().map(|(_, plan)| plan.limits.clone());
    for named in named.unwrap_or_default() {
        let mut row = vec![named.what.to_owned()];
        row.extend(plans.iter().map(|(_, plan)| {
            let found = plan.limits.iter().find(|limit| limit.what == named.what);
            found.map_or_else(String::new, |limit| markdown::about(limit.devices))
        }));
        rows.push(row);
    }
    markdown::table(&rows)
}

/// The coefficients.
fn costs(coefficients: &Coefficients) -> String {
    let head = [
        "process",
        "MB of its own",
        "µs of its own per s",
        "bytes per device",
        "µs of a call, alone",
        "µs of a call, busy",
        "µs of a look-up",
        "µs per idle device and s",
        "µs of a return",
        "µs of a turn",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for role in Role::ALL {
        let of = coefficients.of(role);
        let mut row = vec![
            role.plural().to_owned(),
            markdown::number(of.base_bytes / 1e6),
            markdown::count(of.base_us),
            markdown::count(of.device_bytes),
        ];
        row.extend(
            [
                of.call_alone_us,
                of.call_busy_us,
                of.lookup_us,
                of.idle_us,
                of.return_us,
                of.turn_us,
            ]
            .map(markdown::number),
        );
        rows.push(row);
    }
    format!(
        "{}. The kernel has {} bytes more for each connection of an edge.\n\n{}",
        coefficients.measured,
        markdown::count(coefficients.kernel_bytes),
        markdown::table(&rows)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_is_replaced_between_its_comments() {
        let document = "a\n<!-- x -->\nold\n<!-- end of x -->\nb\n";
        let expected = "a\n<!-- x -->\n\nnew\n\n<!-- end of x -->\nb\n";
        assert_eq!(replace(document, "x", "new\n").as_deref(), Some(expected));
        assert_eq!(replace(expected, "x", "new\n").as_deref(), Some(expected));
        assert_eq!(replace(document, "y", "new\n"), None);
    }

    #[test]
    fn documents_have_what_the_committed_coefficients_give() {
        let coefficients = Coefficients::committed().unwrap();
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
        let hint = "run `cargo xtask capacity --write-documents`";
        for (file, section, text) in sections(&coefficients) {
            let document = fs::read_to_string(root.join(file)).unwrap();
            let replaced = replace(&document, section, &text);
            assert!(
                replaced.as_ref() == Some(&document),
                "{file}, {section}: {hint}"
            );
        }
        let plot = fs::read_to_string(root.join(PLOT)).unwrap();
        assert!(plot == plot::svg(&coefficients.growth), "{PLOT}: {hint}");
    }
}
