//! Tables as in `kubectl get`, from the server.

use crate::error::{Result, ResultExt};
use crate::render::terminal::{Colors, Style, escape_controls, is_interactive, paint};
use http::Request;
use http::header::ACCEPT;
use kube::Client;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;

pub(crate) const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// Blanks between columns.
const GAP: usize = 3;

/// A table of the API server; see
/// <https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Table {
    column_definitions: Vec<Column>,
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    #[serde(default)]
    priority: i32,
}

#[derive(Deserialize)]
struct Row {
    cells: Vec<Value>,
    #[serde(default)]
    object: Value,
}

/// Optional columns of a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TableOptions {
    /// The columns that are of use to few.
    pub(crate) wide: bool,
    /// The namespace of each object, in front.
    pub(crate) namespaces: bool,
}

/// Fetches a table and lays it out as kubectl does.
pub(crate) async fn fetch(client: &Client, path: &str) -> Result<Vec<String>> {
    let request = Request::get(path).header(ACCEPT, TABLE).body(Vec::new()).context("cannot build the request")?;
    let table: Table = client.request(request).await.context("cannot get the table")?;
    Ok(table.lines(TableOptions::default()))
}

impl Table {
    /// Returns true if it has no rows.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Appends the rows of another table with the same columns.
    pub(crate) fn extend(&mut self, more: Self) {
        self.rows.extend(more.rows);
    }

    /// Replaces the rows by those of a watch event. Only the first event has columns.
    pub(crate) fn show_next(&mut self, event: &mut Value) -> Result<()> {
        let rows = event.get_mut("rows").map(Value::take).unwrap_or_default();
        self.rows = serde_json::from_value(rows).context("the watch event has no rows")?;
        Ok(())
    }

    /// Lays the table out as kubectl does.
    pub(crate) fn lines(&self, show: TableOptions) -> Vec<String> {
        self.lines_after(show, &mut Vec::new())
    }

    /// Formats the table below earlier lines with these column widths, which may grow; without a heading if there is
    /// one already.
    pub(crate) fn lines_after(&self, show: TableOptions, widths: &mut Vec<usize>) -> Vec<String> {
        let shown: Vec<usize> = (0..self.column_definitions.len())
            .filter(|column| show.wide || self.column_definitions[*column].priority == 0)
            .collect();
        let namespace = |name: &str| show.namespaces.then(|| name.to_owned());
        let names = shown.iter().map(|column| self.column_definitions[*column].name.to_uppercase());
        let heading = namespace("NAMESPACE").into_iter().chain(names).collect();
        let rows = self.rows.iter().map(|row| {
            let cells = shown.iter().map(|column| cell_text(row.cells.get(*column)));
            let of = row.object.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or_default();
            namespace(of).into_iter().chain(cells).collect()
        });
        let grid: Vec<Vec<String>> = std::iter::once(heading).chain(rows).collect();
        let headed = !widths.is_empty();
        widths.resize(grid[0].len(), 0);
        for (column, width) in widths.iter_mut().enumerate() {
            *width = grid.iter().map(|row| row[column].chars().count()).fold(*width, usize::max);
        }
        let lay = |row: &Vec<String>| {
            let cells = row.iter().zip(&*widths).map(|(cell, width)| {
                let blanks = " ".repeat(width + GAP - cell.chars().count());
                paint_cell(cell) + &blanks
            });
            cells.collect::<String>().trim_end().to_owned()
        };
        grid.iter().skip(usize::from(headed)).map(lay).collect()
    }
}

/// Colors the phase of an object.
fn paint_cell(cell: &str) -> String {
    match cell {
        _ if !is_interactive() => cell.to_owned(),
        "RUNNING" => paint(Style::Good, cell),
        "PENDING" => paint(Style::Busy, cell),
        "ERROR" => paint(Style::Bad, cell),
        _ => cell.to_owned(),
    }
}

/// Maximum length of a cell in characters: each row is as wide as the longest cell of its columns.
const MAX_CELL_CHARS: usize = 1000;

/// Returns the text of a cell: as in kubectl, the first line without control characters.
fn cell_text(cell: Option<&Value>) -> String {
    let text = match cell {
        None | Some(Value::Null) => return String::new(),
        Some(Value::String(text)) => Cow::Borrowed(text),
        Some(other) => Cow::Owned(other.to_string()),
    };
    let first = text.split(['\x0c', '\n', '\r']).next().unwrap_or_default();
    let cut = first.char_indices().nth(MAX_CELL_CHARS).map_or(first, |(end, _)| &first[..end]);
    let more = if cut.len() < text.len() { "..." } else { "" };
    escape_controls(cut, Colors::Escape).into_owned() + more
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_are_single_lines_without_control_characters() {
        let check = |cell: Value, expected: &str| assert_eq!(cell_text(Some(&cell)), expected);
        check(json!("first\r\nfake-line   Normal"), "first...");
        check(json!("\x1b[2Jcleared"), "^[[2Jcleared");
        check(json!("x".repeat(MAX_CELL_CHARS + 1)), &("x".repeat(MAX_CELL_CHARS) + "..."));
    }

    #[test]
    fn table_matches_kubectl() {
        let table: Table = serde_json::from_value(json!({
            "columnDefinitions": [
                {"name": "Name"}, {"name": "Phase"}, {"name": "Current"}, {"name": "Hidden", "priority": 1}, {"name": "Last_Message"},
            ],
            "rows": [
                {"cells": ["vg-1", "RUNNING", 3, "x", "successfully reconciled VmGroup"],
                    "object": {"metadata": {"namespace": "a"}}},
                {"cells": ["vg-22", "PENDING", null, "x", null]},
            ],
        }))
        .unwrap();
        assert_eq!(
            table.lines(TableOptions::default()),
            [
                "NAME    PHASE     CURRENT   LAST_MESSAGE",
                "vg-1    RUNNING   3         successfully reconciled VmGroup",
                "vg-22   PENDING",
            ]
        );
        let all = table.lines(TableOptions { wide: true, namespaces: true });
        assert_eq!(all[0], "NAMESPACE   NAME    PHASE     CURRENT   HIDDEN   LAST_MESSAGE");
        assert_eq!(all[1], "a           vg-1    RUNNING   3         x        successfully reconciled VmGroup");
    }

    #[test]
    fn lines_of_a_watch_align_with_their_headers() {
        let mut table: Table = serde_json::from_value(json!({
            "columnDefinitions": [{"name": "Name"}, {"name": "Phase"}], "rows": [{"cells": ["vg-1", "RUNNING"]}]}))
        .unwrap();
        let mut widths = Vec::new();
        assert_eq!(table.lines_after(TableOptions::default(), &mut widths), ["NAME   PHASE", "vg-1   RUNNING"]);
        let mut next = |name: &str| {
            table.show_next(&mut json!({"columnDefinitions": null, "rows": [{"cells": [name, "ERROR"]}]})).unwrap();
            table.lines_after(TableOptions::default(), &mut widths)
        };
        assert_eq!(next("a-long-one"), ["a-long-one   ERROR"]);
        assert_eq!(next("b"), ["b            ERROR"]);
        for malformed in [json!({}), json!([]), json!({"rows": "x"})] {
            assert!(table.show_next(&mut malformed.clone()).is_err(), "{malformed}");
        }
    }
}
