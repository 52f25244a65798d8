//! Formats of results.

use crate::error::{Result, ResultExt};
use crate::render::terminal::{Colors, columns, escape_controls, print_line, print_text};
use clap::ValueEnum;
use flyball_metering::output;
use flyball_metering::query::Column;
use flyball_metering::store::Cell;

/// The text of an empty value in a table.
const NONE: &str = "(none)";

/// The format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    #[default]
    Table,
    Csv,
    Json,
}

impl Format {
    /// Prints results.
    pub(super) fn print(self, columns: &[Column], rows: &[Vec<Cell>]) -> Result<()> {
        match self {
            Self::Table => table(columns, rows).iter().for_each(|line| print_line(line)),
            Self::Csv => print_text(&output::csv(columns, rows)),
            Self::Json => {
                let rows: Vec<_> = rows.iter().map(|row| output::json(columns, row)).collect();
                print_line(&serde_json::to_string_pretty(&rows).context("cannot write JSON")?);
            }
        }
        Ok(())
    }
}

/// Lays a table out for people: whole numbers of microseconds have a column in seconds as well.
fn table(declared: &[Column], rows: &[Vec<Cell>]) -> Vec<String> {
    let is_shown = |column: &Column| !column.hidden && !column.name.ends_with("core_microseconds");
    let heading = declared.iter().filter(|column| is_shown(column)).map(|column| column.name.to_uppercase());
    let mut grid: Vec<Vec<String>> = vec![heading.collect()];
    for row in rows {
        let cells = declared.iter().zip(row).filter(|(column, _)| is_shown(column));
        let text = |(column, cell): (&Column, &Cell)| match cell {
            Cell::Text(text) if text.is_empty() => NONE.to_owned(),
            cell => escape_controls(&output::text(column, cell), Colors::Escape).replace(['\n', '\t'], " "),
        };
        grid.push(cells.map(text).collect());
    }
    columns(grid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_contain_no_control_characters() {
        let column = |name: &str| Column { name: name.into(), kind: String::new(), unit: String::new(), hidden: false };
        let columns = [column("pod"), column("x_core_microseconds"), column("x_core_seconds")];
        let rows = [vec![Cell::Text("\x1b[2Jweb\n".into()), Cell::Integer(1_500_000), Cell::Real(1.5)]];
        assert_eq!(table(&columns, &rows), ["POD         X_CORE_SECONDS", "^[[2Jweb    1.5"]);
    }

    #[test]
    fn empty_names_are_visible_and_unknown_amounts_are_not() {
        let column = |name: &str| Column { name: name.into(), kind: String::new(), unit: String::new(), hidden: false };
        let rows = [vec![Cell::Text(String::new()), Cell::Null, Cell::Integer(2)]];
        let lines = table(&[column("operator"), column("usage"), column("pods")], &rows);
        assert_eq!(lines, ["OPERATOR   USAGE   PODS", "(none)             2"]);
    }
}
