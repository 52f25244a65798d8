//! `flyball get`: prints objects of a cluster, as tables or for programs.

mod watch;

use crate::cluster::connection::{Connection, block_on};
use crate::cluster::kinds::{Kind, Kinds};
use crate::cluster::selection::{Selection, SelectionArgs, fail_if_missing};
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::table::{TABLE, Table, TableOptions};
use crate::render::terminal::{print_labeled, print_line};
use clap::{Args, ValueEnum};
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use serde_json::{Value, json};

/// List objects, with the columns of their kind
#[derive(Args, Debug)]
#[command(mut_arg("targets", |arg| arg.required(true)), after_help = "Examples:
  flyball get pods
  flyball get vmgroups -A
  flyball get deployment web -o yaml
  flyball get deploy/web svc/web
  flyball get pods,services -l app=web
  flyball get crds -o name
  flyball get vmgroups -w             and their changes, until Ctrl-C")]
pub(crate) struct GetArgs {
    #[command(flatten)]
    objects: SelectionArgs,
    /// Watch for changes, of one kind or one object
    #[arg(short, long)]
    watch: bool,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// More columns
    Wide,
    /// Kind and name, one object per line
    Name,
    Json,
    Yaml,
}

pub(crate) fn cmd_get(args: &GetArgs) -> Result<()> {
    block_on(async {
        let connection = args.objects.connection.connect().await?;
        let selections = args.objects.resolve(&Kinds::discover(&connection.client).await?)?;
        if selections.is_empty() {
            return Err(Error::new("no kind given").hint("try: flyball get pods"));
        }
        match args.output {
            _ if args.watch => watch::watch(args, &connection, &selections).await,
            None => tables(args, &connection, &selections, false).await,
            Some(Format::Wide) => tables(args, &connection, &selections, true).await,
            Some(Format::Name) => names(args, &connection, &selections).await,
            Some(Format::Json) => objects(args, &connection, &selections, Output::Json).await,
            Some(Format::Yaml) => objects(args, &connection, &selections, Output::Yaml).await,
        }
    })
}

async fn tables(args: &GetArgs, connection: &Connection, selections: &[Selection], wide: bool) -> Result<()> {
    let headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(TABLE))]);
    let (mut shown, mut missing) = (0, Vec::new());
    for selection in selections {
        let tables: Vec<Table> = args.objects.fetch(connection, selection, &headers, &mut missing).await?;
        let whole = tables.into_iter().reduce(|mut whole, table| {
            whole.extend(table);
            whole
        });
        let Some(table) = whole.filter(|table| !table.is_empty()) else { continue };
        if shown > 0 {
            print_line("");
        }
        shown += 1;
        let namespaces = args.objects.all_namespaces && selection.kind.namespaced;
        table.lines(TableOptions { wide, namespaces }).iter().for_each(|line| print_line(line));
    }
    if shown == 0 && selections.iter().all(|selection| selection.names.is_empty()) {
        let is_anywhere = selections.iter().all(|selection| !selection.kind.namespaced);
        let place = args.objects.namespace(connection).filter(|_| !is_anywhere);
        let place = place.map(|namespace| format!(" in namespace {namespace}")).unwrap_or_default();
        print_labeled("note", &format!("no {} found{place}", args.objects.targets[0]));
    }
    fail_if_missing(missing)
}

/// Fetches objects with their kinds. Names without an object are errors in `missing`.
async fn fetch(
    args: &GetArgs,
    connection: &Connection,
    selections: &[Selection],
    missing: &mut Vec<Error>,
) -> Result<Vec<(Kind, Value)>> {
    let mut found = Vec::new();
    for selection in selections {
        for response in args.objects.fetch(connection, selection, &HeaderMap::new(), missing).await? {
            found.extend(selection.kind.items(response).into_iter().map(|object| (selection.kind.clone(), object)));
        }
    }
    Ok(found)
}

fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

async fn names(args: &GetArgs, connection: &Connection, selections: &[Selection]) -> Result<()> {
    let mut missing = Vec::new();
    for (kind, object) in fetch(args, connection, selections, &mut missing).await? {
        print_line(&kind.object_name(object["metadata"]["name"].as_str().unwrap_or_default()));
    }
    fail_if_missing(missing)
}

async fn objects(args: &GetArgs, connection: &Connection, selections: &[Selection], output: Output) -> Result<()> {
    let mut missing = Vec::new();
    let found = fetch(args, connection, selections, &mut missing).await?;
    let mut found: Vec<Value> = found.into_iter().map(|(_, object)| object).collect();
    found.iter_mut().for_each(remove_managed_fields);
    let is_single = matches!(selections, [Selection { names, .. }] if names.len() == 1);
    match found.pop() {
        Some(object) if is_single => output.print(&object)?,
        None if is_single => {}
        last => {
            found.extend(last);
            output.print(&json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": found}))?;
        }
    }
    fail_if_missing(missing)
}
