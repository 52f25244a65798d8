//! The tables of the inputs of a query: results of reports, sources and other queries.

use super::budget::Budget;
use super::functions::{SharedInputs, Value};
use super::growth::{self, Size, Sizes};
use super::period::Period;
use super::request::{Request, Source, selected_sql, unprepared};
use super::sandbox::{self, check_text};
use super::{Definition, Error, InputDefinition, InputKind, MAX_DEPTH, builtin, totals, views};
use crate::store::Store;
use flyball_core::time::parse_rfc3339;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// The tables of inputs, while they are defined.
pub(super) struct Tables<'t> {
    pub(super) store: &'t Store,
    pub(super) request: &'t Request<'t>,
    pub(super) connection: &'t mut Connection,
    /// The definition of each table, to find contradictions.
    pub(super) targets: BTreeMap<String, String>,
    /// The sizes of the tables.
    pub(super) sizes: Sizes,
    pub(super) inputs: SharedInputs,
    pub(super) budget: &'t Budget,
    pub(super) period: &'t Period,
    /// False if the query is only checked.
    pub(super) reads_data: bool,
    /// True if the source of totals exists.
    pub(super) has_totals: bool,
}

impl Tables<'_> {
    /// Defines the inputs of a query: values, and tables of reports, sources and other queries.
    pub(super) fn define(&mut self, query: &Definition, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let problem = format!("it reads from more than {MAX_DEPTH} queries in a row: remove the cycle");
            return Err(Error::Rejected { query: query.name.clone(), problem });
        }
        for input in &query.inputs {
            check_name(&input.name)?;
            let set = self.request.inputs.get(&input.name).or(input.default.as_ref()).cloned();
            let implicit = match input.name.as_str() {
                "ReportingStart" => Some(Value::Integer(self.request.since)),
                "ReportingEnd" => Some(Value::Integer(self.request.until)),
                _ => None,
            };
            match (set, implicit) {
                (Some(value), _) => self.define_input(input, value, depth)?,
                (None, Some(value)) => drop(self.inputs.lock().insert(input.name.clone(), value)),
                (None, None) if input.required => {
                    return Err(Error::MissingInput { query: query.name.clone(), name: input.name.clone() });
                }
                (None, None) => drop(self.inputs.lock().entry(input.name.clone()).or_insert(Value::Null)),
            }
        }
        Ok(())
    }

    fn define_input(&mut self, input: &InputDefinition, value: String, depth: usize) -> Result<(), Error> {
        let invalid = |expected| Error::InvalidInput { name: input.name.clone(), value: value.clone(), expected };
        let parsed = match input.kind {
            InputKind::Time => {
                let time = parse_rfc3339(&value).ok_or_else(|| invalid("a time such as 2026-07-01T00:00:00Z"))?;
                Value::Integer(time.as_second())
            }
            InputKind::Integer => Value::Integer(value.parse().map_err(|_| invalid("a whole number"))?),
            InputKind::Text => Value::Text(value),
            InputKind::Report => return self.define_report(&input.name, &value),
            InputKind::DataSource => return self.define_source(&input.name, &value, depth),
            InputKind::Query => {
                let query = self.request.catalog.query(&value).or_else(|| builtin(&value));
                let query = query.ok_or_else(|| Error::UnknownQuery { name: value.clone() })?;
                return self.define_query(&input.name, &query, depth);
            }
        };
        self.inputs.lock().insert(input.name.clone(), parsed);
        Ok(())
    }

    fn define_report(&mut self, input: &str, name: &str) -> Result<(), Error> {
        let found = self.store.report(self.request.namespace, name)?;
        let report = found.ok_or_else(|| Error::UnknownReport { input: input.to_owned(), name: name.to_owned() })?;
        let mut columns = Vec::new();
        for (at, column) in report.columns.iter().enumerate() {
            check_name(column)?;
            columns.push(format!("json_extract(cells, '$[{at}]') AS \"{column}\""));
        }
        let columns = columns.join(", ");
        // Only periods that lie in that of this report: a roll-up never counts a part of a period.
        let (id, since, until) = (report.id, self.request.since, self.request.until);
        let select = format!(
            "SELECT {columns} FROM flyball_result r JOIN flyball_period p ON p.report = r.report AND p.until = r.until
             WHERE r.report = {id} AND p.since >= {since} AND p.until <= {until}"
        );
        self.create(input, &format!("report {name}"), &views::fenced(&select))
    }

    fn define_source(&mut self, input: &str, name: &str, depth: usize) -> Result<(), Error> {
        check_name(name)?;
        match self.request.catalog.source(name) {
            Some(Source::Series { namespace, name }) => {
                check_name(&namespace)?;
                check_name(&name)?;
                let select = format!(
                    "SELECT * FROM \"datasource-raw\" WHERE datasource = '{name}' AND namespace = '{namespace}'"
                );
                self.create(input, &format!("source {name}"), &select)
            }
            Some(Source::View(query)) => self.define_query(input, &query, depth),
            None => {
                if name.eq_ignore_ascii_case(totals::SOURCE) {
                    self.define_totals()?;
                }
                let select = format!("SELECT * FROM \"{name}\"");
                self.sizes.insert(input.to_ascii_lowercase(), growth::size(&select, &self.sizes));
                self.create(input, &format!("source {name}"), &select)
            }
        }
    }

    /// Creates the source of totals, if it does not exist.
    fn define_totals(&mut self) -> Result<(), Error> {
        if self.has_totals {
            return Ok(());
        }
        let failed = |source| unprepared(&self.request.query.name, source, self.budget);
        sandbox::open(self.connection).map_err(failed)?;
        let created = totals::create(self.connection, self.request.is_scoped).and_then(|()| match self.reads_data {
            true => totals::fill(self.connection, self.period, self.request.is_scoped),
            false => Ok(()),
        });
        sandbox::restrict(self.connection).map_err(failed)?;
        self.has_totals = true;
        created.map_err(failed)
    }

    fn define_query(&mut self, input: &str, query: &Definition, depth: usize) -> Result<(), Error> {
        self.define(query, depth + 1)?;
        let sql = selected_sql(query, self.request.inputs);
        let size = self.check(query, sql)?;
        // It is a single statement, so that nothing follows the view that it becomes.
        let failed = |source| unprepared(&query.name, source, self.budget);
        let select = format!("SELECT * FROM (\n{}\n)", sql.trim_end().trim_end_matches(';'));
        drop(self.connection.prepare(&select).map_err(failed)?);
        self.sizes.insert(input.to_ascii_lowercase(), size.fenced());
        self.create(input, &format!("query {}", query.name), &views::fenced(&select))
    }

    /// Checks the text of a query before SQLite parses it, and returns its size.
    pub(super) fn check(&self, query: &Definition, sql: &str) -> Result<Size, Error> {
        check_text(query, sql)?;
        let size = growth::size(sql, &self.sizes);
        if size.is_allowed() {
            return Ok(size);
        }
        let problem = format!(
            "its SQL becomes larger than {} nodes when its tables are expanded, or its parentheses do not match: read \
             each table and name each column less often, or add AS MATERIALIZED to common table expressions",
            growth::MAX_NODES
        );
        Err(Error::Rejected { query: query.name.clone(), problem })
    }

    fn create(&mut self, name: &str, target: &str, select: &str) -> Result<(), Error> {
        match self.targets.get(name) {
            Some(known) if known == target => return Ok(()),
            Some(known) => {
                let problem = format!("input {name:?} means both {known} and {target}: rename one of them");
                return Err(Error::Rejected { query: self.request.query.name.clone(), problem });
            }
            None => drop(self.targets.insert(name.to_owned(), target.to_owned())),
        }
        let failed = |source| Error::Sql { query: self.request.query.name.clone(), source };
        sandbox::open(self.connection).map_err(failed)?;
        // Only text that the restricted connection has parsed as one statement.
        let created = self.connection.execute(&format!("CREATE TEMP VIEW \"{name}\" AS {select}"), []);
        sandbox::restrict(self.connection).map_err(failed)?;
        created.map(drop).map_err(failed)
    }
}

/// Checks a name that becomes that of a table or column.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_valid = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c.is_ascii_digit())
        && !name.to_ascii_lowercase().starts_with("sqlite_")
        && !name.to_ascii_lowercase().contains(crate::store::TABLE_PREFIX);
    if is_valid { Ok(()) } else { Err(Error::InvalidName { name: name.to_owned() }) }
}
