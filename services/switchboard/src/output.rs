//! The output of lists and documents: tables for users, lines and JSON for programs.
//!
//! Invariant: a cell is one line without tabs, whatever a device or a user put into it.

use std::{
    collections::HashMap,
    io::{IsTerminal as _, stdout},
    iter::Empty,
    ops::ControlFlow,
    time::Duration,
};

use anyhow::Context as _;
use comfy_table::{Table, presets::NOTHING};
use serde_json::{Value, value::RawValue};
use switchboard_tools::text::escape;

use crate::{
    api::ApiArguments,
    exit::{self, Failure},
    resources::Pages,
};

/// Interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// A column of a list.
pub(crate) struct Column {
    pub(crate) header: &'static str,
    /// The member: `a.b` is within an object, `a×b` are two members, `a%` is a share in percent.
    path: &'static str,
    /// Whether only `-o wide` shows it.
    pub(crate) is_wide: bool,
}

/// How a list or a document is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// One JSON document; a list is an array
    Json,
    /// Each element as one line of JSON
    Jsonl,
    /// A table with headers
    Table,
    /// A table with more columns
    Wide,
    /// Lines with tabs between the columns, without headers
    Tsv,
}

/// Arguments of commands that print one document.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub(crate) struct FormatArguments {
    /// Format of the output. Default: json, indented on a terminal
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
}

/// Arguments of `list` subcommands.
#[derive(Debug, clap::Args)]
pub(crate) struct ListArguments {
    /// Print each element as a JSON object: the same as -o jsonl
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Format of the output. Default: table on a terminal, otherwise tsv
    #[arg(short = 'o', long = "output", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// Print at most this many elements. Default: all pages
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Show changes as they happen, until Ctrl-C: a terminal shows the list, otherwise each new or
    /// changed element is printed
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    api: ApiArguments,
}

impl Column {
    /// A column of every table.
    pub(crate) const fn new(header: &'static str, path: &'static str) -> Self {
        Self {
            header,
            path,
            is_wide: false,
        }
    }

    /// A column of wide tables.
    pub(crate) const fn wide(header: &'static str, path: &'static str) -> Self {
        Self {
            header,
            path,
            is_wide: true,
        }
    }

    fn cell(&self, element: &Value) -> String {
        if let Some((one, other)) = self.path.split_once('×') {
            let one = member_of(element, one).map_or(String::new(), cell);
            return format!(
                "{one}x{}",
                member_of(element, other).map_or(String::new(), cell)
            );
        }
        if let Some(share) = self.path.strip_suffix('%') {
            let share = member_of(element, share).and_then(Value::as_f64);
            return format!("{:.0}", share.unwrap_or_default() * 100.0);
        }
        member_of(element, self.path).map_or(String::new(), cell)
    }
}

/// Returns a member, `a.b` within an object.
pub(crate) fn member_of<'a>(element: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.')
        .try_fold(element, |value, name| value.get(name))
}

/// A value as one line: lists and the names of an object's members are joined by commas.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
        Value::Object(members) => members.keys().cloned().collect::<Vec<_>>().join(","),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    text.replace(['\t', '\n', '\r'], " ")
}

/// Elements that are printed one by one, or together at the end.
pub(crate) struct Printer<'a> {
    format: Format,
    columns: &'a [Column],
    rows: Vec<Vec<String>>,
    documents: Vec<Box<RawValue>>,
}

impl<'a> Printer<'a> {
    /// A printer; without a format, a table on a terminal, otherwise lines with tabs.
    pub(crate) fn new(format: Option<Format>, columns: &'a [Column]) -> Self {
        let default = if stdout().is_terminal() {
            Format::Table
        } else {
            Format::Tsv
        };
        Self {
            format: format.unwrap_or(default),
            columns,
            rows: Vec::new(),
            documents: Vec::new(),
        }
    }

    fn shown(&self) -> impl Iterator<Item = &'a Column> + use<'a> {
        let is_wide = self.format == Format::Wide;
        self.columns
            .iter()
            .filter(move |column| is_wide || !column.is_wide)
    }

    /// Prints an element, or keeps it for [`Self::finish`].
    ///
    /// # Errors
    /// When the element is malformed or stdout is closed.
    pub(crate) fn add(&mut self, element: Box<RawValue>) -> Result<(), Failure> {
        match self.format {
            Format::Json => self.documents.push(element),
            Format::Jsonl => return exit::print_json_line(&element),
            Format::Table | Format::Wide | Format::Tsv => {
                let element: Value = serde_json::from_str(element.get())
                    .context("an element has an unexpected form")?;
                let cells: Vec<_> = self.shown().map(|column| column.cell(&element)).collect();
                if self.format == Format::Tsv {
                    return exit::print(&cells.join("\t"));
                }
                self.rows.push(cells);
            }
        }
        Ok(())
    }

    /// Prints what was kept.
    ///
    /// # Errors
    /// When stdout is closed.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.format {
            Format::Json => {
                let documents = serde_json::value::to_raw_value(&self.documents);
                exit::print_json(&documents.context("cannot write JSON")?)
            }
            Format::Table | Format::Wide => exit::print(&table(
                Some(self.shown().map(|column| column.header)),
                &self.rows,
            )),
            Format::Jsonl | Format::Tsv => Ok(()),
        }
    }
}

/// Aligned columns. Characters that have no visible form are escaped before they are measured.
fn table<'a>(header: Option<impl Iterator<Item = &'a str>>, rows: &[Vec<String>]) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    if let Some(header) = header {
        table.set_header(header);
    }
    for row in rows {
        table.add_row(row.iter().map(|cell| escape(cell).into_owned()));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt()
}

/// The members of an object, each as a row of its name and its value. Those of members are named
/// `a.b`; lists of objects are separate.
#[derive(Default)]
struct Members {
    rows: Vec<Vec<String>>,
    lists: Vec<(String, Vec<Value>)>,
}

impl Members {
    fn of(object: &Value) -> Self {
        let mut members = Self::default();
        members.add("", object);
        members
    }

    fn add(&mut self, name: &str, value: &Value) {
        let is_object = |value: &Value| value.as_object().is_some_and(|object| !object.is_empty());
        match value {
            Value::Object(object) if is_object(value) => {
                let dot = if name.is_empty() { "" } else { "." };
                for (member, value) in object {
                    self.add(&format!("{name}{dot}{member}"), value);
                }
            }
            Value::Array(list) if !list.is_empty() && list.iter().all(is_object) => {
                self.lists.push((name.to_owned(), list.clone()));
            }
            _ => self.rows.push(vec![name.to_owned(), cell(value)]),
        }
    }

    /// A table of two columns, and one below it for each list.
    fn tables(&self) -> String {
        let own = (!self.rows.is_empty()).then(|| table(None::<Empty<&str>>, &self.rows));
        let lists = self.lists.iter().map(|(name, list)| {
            let (header, rows) = list_table(list);
            let header = header.iter().map(String::as_str);
            format!("{}\n{}", heading(name), table(Some(header), &rows))
        });
        own.into_iter()
            .chain(lists)
            .collect::<Vec<_>>()
            .join("\n\n")
    }

    /// Lines of a name, with the number of the element in a list, and its value.
    fn lines(&self, name: &str) -> Vec<String> {
        let mut lines: Vec<_> = self
            .rows
            .iter()
            .map(|row| name.to_owned() + &row.join("\t"))
            .collect();
        for (list, elements) in &self.lists {
            for (number, element) in elements.iter().enumerate() {
                lines.extend(Self::of(element).lines(&format!("{name}{list}.{number}.")));
            }
        }
        lines
    }
}

/// The columns of a list of objects, texts before numbers, and its rows.
fn list_table(list: &[Value]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut header: Vec<String> = Vec::new();
    let elements = list.iter().map(|element| {
        let Members { rows, lists } = Members::of(element);
        let counts = lists
            .into_iter()
            .map(|(name, list)| vec![name, list.len().to_string()]);
        let cells: HashMap<_, _> = rows
            .into_iter()
            .chain(counts)
            .filter_map(|row| {
                let [name, cell] = <[String; 2]>::try_from(row).ok()?;
                Some((name, cell))
            })
            .collect();
        let mut names: Vec<_> = cells
            .keys()
            .filter(|name| !header.contains(name))
            .cloned()
            .collect();
        names.sort();
        header.extend(names);
        cells
    });
    let elements: Vec<_> = elements.collect();
    let is_number = |name: &String| {
        let mut cells = elements.iter().filter_map(|cells| cells.get(name));
        cells.all(|cell| cell == "-" || cell.parse::<f64>().is_ok())
    };
    header.sort_by_key(|name| is_number(name));
    let rows = elements.iter().map(|cells| {
        let cell = |name: &String| cells.get(name).map_or("-", String::as_str).to_owned();
        header.iter().map(cell).collect()
    });
    let rows = rows.collect();
    (header.iter().map(|name| heading(name)).collect(), rows)
}

/// A name as the header of a column.
fn heading(name: &str) -> String {
    name.to_uppercase().replace('_', " ")
}

impl FormatArguments {
    /// Whether a format is given.
    pub(crate) const fn is_given(self) -> bool {
        self.format.is_some()
    }

    /// The given format, or JSON on one line if `is_json`.
    pub(crate) fn or_json(self, is_json: bool) -> Self {
        let json = is_json.then_some(Format::Jsonl);
        Self {
            format: self.format.or(json),
        }
    }

    /// Prints a document; as a table, its members.
    ///
    /// # Errors
    /// When it is malformed or stdout is closed.
    pub(crate) fn print(self, document: &RawValue) -> Result<(), Failure> {
        let format = match self.format {
            None | Some(Format::Json) => return exit::print_json(document),
            Some(Format::Jsonl) => return exit::print_json_line(document),
            Some(format) => format,
        };
        let document: Value =
            serde_json::from_str(document.get()).context("the response is not JSON")?;
        let members = Members::of(&document);
        if format == Format::Tsv {
            let lines = members.lines("");
            return lines.iter().try_for_each(|line| exit::print(line));
        }
        exit::print(&members.tables())
    }
}

impl ListArguments {
    /// Prints the elements of a list, once or as they change.
    ///
    /// # Errors
    /// When the API is unreachable or rejects the request, or stdout is closed.
    pub(crate) async fn print(&self, columns: &[Column], pages: &Pages<'_>) -> Result<(), Failure> {
        if !self.watch {
            let mut printer = self.printer(columns);
            self.elements(pages, |element| printer.add(element)).await?;
            return printer.finish();
        }
        if self.format == Some(Format::Json) {
            return Err(Failure::usage(
                "--watch has no end, which -o json needs: use -o jsonl",
            ));
        }
        let mut seen: Option<HashMap<String, String>> = None;
        loop {
            let mut printer = self.printer(columns);
            let is_redrawn =
                stdout().is_terminal() && !matches!(printer.format, Format::Jsonl | Format::Tsv);
            let mut current = HashMap::new();
            self.elements(pages, |element| {
                let id = pages.resource.identity(&element)?;
                let before = seen.as_ref().and_then(|seen| seen.get(&id));
                let is_new = before.is_none_or(|text| *text != element.get());
                current.insert(id, element.get().to_owned());
                if is_redrawn || is_new {
                    printer.add(element)
                } else {
                    Ok(())
                }
            })
            .await?;
            let is_changed = seen.as_ref() != Some(&current);
            if is_redrawn && is_changed {
                // A terminal that cannot be cleared shows the lists below each other.
                let _ = console::Term::stdout().clear_screen();
            }
            if is_changed {
                printer.finish()?;
            }
            seen = Some(current);
            tokio::time::sleep(WATCH_INTERVAL).await;
        }
    }

    fn printer<'a>(&self, columns: &'a [Column]) -> Printer<'a> {
        Printer::new(self.format.or(self.json.then_some(Format::Jsonl)), columns)
    }

    async fn elements(
        &self,
        pages: &Pages<'_>,
        mut take: impl FnMut(Box<RawValue>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut left = self.limit.unwrap_or(u32::MAX);
        pages
            .for_each(|element| {
                take(element)?;
                left -= 1;
                Ok(if left == 0 {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cell_is_one_line() {
        fn check(path: &'static str, expected: &str) {
            let element = json!({
                "name": "a\tb\nc", "none": null, "list": ["x", "y"], "share": 0.345,
                "width": 2, "height": 3, "in": {"name": true},
            });
            assert_eq!(Column::new("", path).cell(&element), expected, "{path}");
        }
        check("name", "a b c");
        check("none", "-");
        check("missing", "");
        check("list", "x,y");
        check("share%", "34");
        check("width×height", "2x3");
        check("in.name", "true");
        check("in", "name");
    }

    #[test]
    fn document_has_a_table_for_each_list() {
        let document = json!({
            "from": "2026-01-01",
            "now": {"devices": 2, "labels": ["a", "b"]},
            "none": [],
            "periods": [
                {"calls": 3, "by_outcome": {"succeeded": 3}, "start": "d1"},
                {"calls": 1, "by_outcome": {"offline": 1}, "start": "d2"},
            ],
        });
        let members = Members::of(&document);
        let tables = members.tables();
        let lines: Vec<Vec<_>> = tables
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        let expected: [&[&str]; 9] = [
            &["from", "2026-01-01"],
            &["none"],
            &["now.devices", "2"],
            &["now.labels", "a,b"],
            &[],
            &["PERIODS"],
            &[
                "START",
                "BY",
                "OUTCOME.SUCCEEDED",
                "CALLS",
                "BY",
                "OUTCOME.OFFLINE",
            ],
            &["d1", "3", "3", "-"],
            &["d2", "-", "1", "1"],
        ];
        assert_eq!(lines, expected, "{tables}");
        let lines = members.lines("");
        assert!(
            lines.contains(&"periods.1.by_outcome.offline\t1".to_owned()),
            "{lines:?}"
        );
        assert!(lines.contains(&"now.devices\t2".to_owned()), "{lines:?}");
    }

    #[test]
    fn table_is_aligned_and_escaped() {
        let rows = [
            vec!["小白".to_owned(), "a".to_owned()],
            vec!["x\u{1b}[2J".to_owned(), "b".to_owned()],
        ];
        let drawn = table(Some(["NAME", "B"].into_iter()), &rows);
        let lines: Vec<_> = drawn.lines().collect();
        assert_eq!(lines, ["NAME        B", "小白        a", "x\\u{1b}[2J  b"]);
    }
}
