//! `flyball meter top`: current requests and usage.

use super::ScopeArgs;
use super::collect;
use super::format::Format;
use crate::cluster::connection::block_on;
use crate::error::Result;
use crate::render::terminal::print_labeled;
use clap::{Args, ValueEnum};
use flyball_metering::meter::{Meter, Subject};
use flyball_metering::query::Column;
use flyball_metering::source::resource_metrics::Usage;
use flyball_metering::store::{Cell, Series};
use std::collections::BTreeMap;

/// Show what custom resources request and use now
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball meter top
  flyball meter top --by tenant --tenant-label team
  flyball meter top --by pod -n shop -o json")]
pub(super) struct TopArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Subjects of the rows
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// Label of pods and claims with the name of their tenant; defaults to the namespace
    #[arg(long, value_name = "LABEL")]
    tenant_label: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The subjects of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum By {
    /// Custom resources at the root of the owners of pods
    #[default]
    Resource,
    Kind,
    Operator,
    Tenant,
    Namespace,
    Node,
    Pod,
}

impl By {
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::Resource => &["namespace", "kind", "name"],
            Self::Kind => &["group", "kind"],
            Self::Operator => &["operator"],
            Self::Tenant => &["tenant"],
            Self::Namespace => &["namespace"],
            Self::Node => &["node"],
            Self::Pod => &["namespace", "pod", "node"],
        }
    }

    fn key(self, series: &Series) -> Vec<String> {
        let owner = series.owner.as_ref();
        let of =
            |read: fn(&flyball_metering::store::OwnerRecord) -> &String| owner.map(read).cloned().unwrap_or_default();
        match self {
            Self::Resource => vec![
                owner.map_or_else(|| series.namespace.clone(), |owner| owner.namespace.clone()),
                of(|owner| &owner.kind),
                of(|owner| &owner.name),
            ],
            Self::Kind => vec![of(|owner| &owner.group), of(|owner| &owner.kind)],
            Self::Operator => vec![series.operator.clone()],
            Self::Tenant => vec![series.tenant.clone()],
            Self::Namespace => vec![series.namespace.clone()],
            Self::Node => vec![series.node.clone()],
            Self::Pod => vec![series.namespace.clone(), series.name.clone(), series.node.clone()],
        }
    }
}

/// The current amounts of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Amounts {
    pods: i128,
    cpu_request: i128,
    cpu_usage: i128,
    memory_request: i128,
    memory_usage: i128,
    storage: i128,
}

pub(super) fn cmd_top(args: &TopArgs) -> Result<()> {
    block_on(async {
        let connection = args.scope.cluster.connect().await?;
        let namespace = args.scope.namespace.as_deref();
        let collection = collect::now(&connection.client, namespace, args.tenant_label.clone()).await?;
        let usage = collect::usage(&connection.client).await;
        let has_usage = usage.is_ok();
        let usage = usage.map(|list| list.usage()).unwrap_or_default();
        let mut collector = collection.collector.lock();
        collector.drain(i64::MAX, true);
        let amounts = add_up(args.by, &collector.current(), &usage);
        if !has_usage && args.output == Format::Table {
            print_labeled("note", collect::NO_USAGE);
        }
        let (columns, rows) = lay_out(args.by, &amounts, has_usage);
        args.output.print(&columns, &rows)
    })
}

type Rows = BTreeMap<Vec<String>, Amounts>;

fn add_up(by: By, current: &[(&Series, &BTreeMap<Meter, i64>)], usage: &BTreeMap<(String, String), Usage>) -> Rows {
    let mut rows = Rows::new();
    for (series, values) in current {
        let value = |meter: Meter| i128::from(values.get(&meter).copied().unwrap_or_default());
        let is_wanted = match series.subject {
            Subject::Pod => true,
            Subject::Claim => by != By::Node && by != By::Pod,
            _ => false,
        };
        if !is_wanted {
            continue;
        }
        let row = rows.entry(by.key(series)).or_default();
        row.pods += value(Meter::PodPresence);
        row.cpu_request += value(Meter::PodCpuRequest);
        row.memory_request += value(Meter::PodMemoryRequest);
        row.storage += value(Meter::ClaimRequest);
        if let Some(usage) =
            usage.get(&(series.namespace.clone(), series.name.clone())).filter(|_| series.subject == Subject::Pod)
        {
            row.cpu_usage += usage.nano_cores / 1000;
            row.memory_usage += usage.bytes;
        }
    }
    rows
}

fn lay_out(by: By, amounts: &Rows, has_usage: bool) -> (Vec<Column>, Vec<Vec<Cell>>) {
    let column =
        |name: &str, unit: &str| Column { name: name.into(), kind: String::new(), unit: unit.into(), hidden: false };
    let mut columns: Vec<Column> = by.names().iter().map(|name| column(name, "")).collect();
    for (name, unit) in [
        ("pods", ""),
        ("cpu_request_cores", "cores"),
        ("cpu_usage_cores", "cores"),
        ("memory_request_bytes", "bytes"),
        ("memory_usage_bytes", "bytes"),
        ("storage_request_bytes", "bytes"),
    ] {
        columns.push(column(name, unit));
    }
    // Descending by CPU and memory, as in kubectl top.
    let mut rows: Vec<(&Vec<String>, &Amounts)> = amounts.iter().collect();
    rows.sort_by_key(|(key, row)| {
        (-row.cpu_request.max(row.cpu_usage), -row.memory_request.max(row.memory_usage), (*key).clone())
    });
    let cells = rows.into_iter().map(|(key, row)| {
        let whole = |amount: i128| i64::try_from(amount).map_or_else(|_| Cell::Text(amount.to_string()), Cell::Integer);
        let cores = |amount: i128| Cell::Real(amount as f64 / 1e6);
        let used = |cell: Cell| if has_usage { cell } else { Cell::Null };
        let mut cells: Vec<Cell> = key.iter().map(|text| Cell::Text(text.clone())).collect();
        cells.extend([
            whole(row.pods),
            cores(row.cpu_request),
            used(cores(row.cpu_usage)),
            whole(row.memory_request),
            used(whole(row.memory_usage)),
            whole(row.storage),
        ]);
        cells
    });
    (columns, cells.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flyball_metering::store::OwnerRecord;

    #[test]
    fn rows_of_resources_add_up_to_those_of_pods() {
        let owner = OwnerRecord {
            group: "example.com".into(),
            kind: "Site".into(),
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
        };
        let series = |name: &str, owner: Option<OwnerRecord>| {
            let mut series = Series::new(Subject::Pod, name, "shop", name);
            series.owner = owner;
            series
        };
        let values = BTreeMap::from([(Meter::PodPresence, 1), (Meter::PodCpuRequest, 250_000)]);
        let pods = [series("a", Some(owner.clone())), series("b", Some(owner)), series("c", None)];
        let current: Vec<_> = pods.iter().map(|series| (series, &values)).collect();
        let usage = BTreeMap::from([(("shop".to_owned(), "a".to_owned()), Usage { nano_cores: 5_000_000, bytes: 7 })]);
        let rows = add_up(By::Resource, &current, &usage);
        let key = |kind: &str, name: &str| vec!["shop".to_owned(), kind.to_owned(), name.to_owned()];
        assert_eq!(rows[&key("Site", "web")].cpu_request, 500_000);
        assert_eq!((rows[&key("Site", "web")].cpu_usage, rows[&key("Site", "web")].memory_usage), (5000, 7));
        assert_eq!(rows[&key("", "")].pods, 1);
        let (columns, cells) = lay_out(By::Pod, &add_up(By::Pod, &current, &usage), false);
        assert_eq!((columns.len(), cells.len(), &cells[0][5]), (9, 3, &Cell::Null));
    }
}
