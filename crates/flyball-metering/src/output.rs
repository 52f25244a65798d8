//! Results as CSV and JSON.

use crate::query::Column;
use crate::store::Cell;
use flyball_core::time::{Timestamp, rfc3339};
use serde_json::{Map, Number, Value};

/// Returns the text of a cell: times as RFC 3339, numbers in full.
pub fn text(column: &Column, cell: &Cell) -> String {
    match cell {
        Cell::Null => String::new(),
        Cell::Integer(seconds) if column.kind == "timestamp" => time(*seconds),
        Cell::Integer(number) => number.to_string(),
        Cell::Real(number) => number.to_string(),
        Cell::Text(text) => text.clone(),
    }
}

fn time(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), rfc3339)
}

/// Returns a row as a JSON object. A whole number that exceeds 64 bits is a text.
pub fn json(columns: &[Column], row: &[Cell]) -> Value {
    let value = |column: &Column, cell: &Cell| match cell {
        Cell::Null => Value::Null,
        Cell::Integer(_) if column.kind == "timestamp" => text(column, cell).into(),
        Cell::Integer(number) => (*number).into(),
        Cell::Real(number) => Number::from_f64(*number).map_or(Value::Null, Value::Number),
        Cell::Text(text) => text.clone().into(),
    };
    let fields = columns.iter().zip(row).map(|(column, cell)| (column.name.clone(), value(column, cell)));
    Value::Object(fields.collect::<Map<_, _>>())
}

/// Returns the heading and rows as CSV, as in RFC 4180. A text that a spreadsheet would compute begins with an
/// apostrophe.
pub fn csv(columns: &[Column], rows: &[Vec<Cell>]) -> String {
    csv_heading(columns) + &csv_rows(columns, rows)
}

/// Returns the heading of CSV.
pub fn csv_heading(columns: &[Column]) -> String {
    let heading: Vec<String> = columns.iter().map(|column| field(&column.name)).collect();
    heading.join(",") + "\r\n"
}

/// Returns rows of CSV.
pub fn csv_rows(columns: &[Column], rows: &[Vec<Cell>]) -> String {
    let mut out = String::new();
    for row in rows {
        let cells = columns.iter().zip(row).map(|(column, cell)| match cell {
            Cell::Text(text) if !is_number(text) => field(&defused(text)),
            cell => field(&text(column, cell)),
        });
        out.push_str(&cells.collect::<Vec<_>>().join(","));
        out.push_str("\r\n");
    }
    out
}

fn is_number(text: &str) -> bool {
    text.parse::<i128>().is_ok()
}

fn defused(text: &str) -> String {
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    if clean.starts_with(['=', '+', '-', '@']) { format!("'{clean}") } else { clean }
}

fn field(text: &str) -> String {
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_is_safe_for_spreadsheets() {
        let column = |name: &str, kind: &str| Column {
            name: name.into(),
            kind: kind.into(),
            unit: String::new(),
            hidden: false,
        };
        let columns = [column("period_start", "timestamp"), column("pod", "varchar"), column("amount", "bigint")];
        let text = |text: &str| Cell::Text(text.into());
        let rows = [
            vec![Cell::Integer(0), text("a,\"b\"\r\n"), Cell::Integer(7)],
            vec![Cell::Null, text("=cmd()"), text("99999999999999999999")],
        ];
        let expected =
            "period_start,pod,amount\r\n1970-01-01T00:00:00Z,\"a,\"\"b\"\"\",7\r\n,'=cmd(),99999999999999999999\r\n";
        assert_eq!(csv(&columns, &rows), expected);
        assert_eq!(json(&columns, &rows[1])["amount"], "99999999999999999999");
    }
}
