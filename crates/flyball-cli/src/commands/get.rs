//! `flyball get`: prints objects of a cluster, as tables or for programs.

mod watch;

use crate::cluster::connection::{Connection, ConnectionArgs, block_on};
use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::table::{TABLE, Table, TableOptions};
use crate::render::terminal::{complain, say};
use clap::{Args, ValueEnum};
use http::header::ACCEPT;
use http::{HeaderValue, Request};
use kube::api::{GetParams, ListParams};
use serde_json::{Value, json};

/// List objects, with the columns of their kind
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball get pods
  flyball get vmgroups -A
  flyball get deployment web -o yaml
  flyball get pods,services -l app=web
  flyball get crds -o name
  flyball get vmgroups -w             and their changes, until Ctrl-C")]
pub(crate) struct GetArgs {
    /// Kinds, separated by commas: pods, deploy, vmgroups.vm.codeconnect.vmworld.com, all
    kinds: String,
    /// Names of objects; defaults to all objects
    names: Vec<String>,
    #[command(flatten)]
    connection: ConnectionArgs,
    /// List objects in all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Label selector, such as app=web,tier!=test
    #[arg(short = 'l', long, conflicts_with = "names")]
    selector: Option<String>,
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

impl GetArgs {
    /// Returns the namespace of the request; `None` for all namespaces.
    fn namespace<'a>(&self, connection: &'a Connection) -> Option<&'a str> {
        (!self.all_namespaces).then_some(connection.namespace.as_str())
    }
}

pub(crate) fn cmd_get(args: &GetArgs) -> Result<()> {
    block_on(async {
        let connection = args.connection.connect().await?;
        let served = Kinds::discover(&connection.client).await?;
        let mut kinds = Vec::new();
        for word in args.kinds.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            kinds.extend(served.named(word)?.into_iter().cloned());
        }
        if kinds.is_empty() {
            return Err(Error::new("no kind given").hint("try: flyball get pods"));
        }
        match args.output {
            _ if args.watch => watch::watch(args, &connection, &kinds).await,
            None => tables(args, &connection, &kinds, false).await,
            Some(Format::Wide) => tables(args, &connection, &kinds, true).await,
            Some(Format::Name) => names(args, &connection, &kinds).await,
            Some(Format::Json) => objects(args, &connection, &kinds, Output::Json).await,
            Some(Format::Yaml) => objects(args, &connection, &kinds, Output::Yaml).await,
        }
    })
}

/// Returns the requests: one for all objects, or one for each named object.
fn requests(args: &GetArgs, connection: &Connection, kind: &Kind) -> Result<Vec<Request<Vec<u8>>>> {
    if !args.names.is_empty() && args.all_namespaces && kind.namespaced {
        return Err(Error::new("a name cannot be combined with -A").hint("choose a namespace with -n"));
    }
    let objects = kube::core::Request::new(kind.path(args.namespace(connection), None));
    let what = || format!("cannot get {}", kind.plural);
    if args.names.is_empty() {
        let params = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
        return Ok(vec![objects.list(&params).when(what())?]);
    }
    args.names.iter().map(|name| objects.get(name, &GetParams::default()).when(what())).collect()
}

async fn tables(args: &GetArgs, connection: &Connection, kinds: &[Kind], wide: bool) -> Result<()> {
    let mut shown = 0;
    for kind in kinds {
        let mut whole: Option<Table> = None;
        for mut request in requests(args, connection, kind)? {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(TABLE));
            let table: Table = connection.client.request(request).await.when(format!("cannot get {}", kind.plural))?;
            match &mut whole {
                Some(whole) => whole.extend(table),
                None => whole = Some(table),
            }
        }
        let Some(table) = whole.filter(|table| !table.is_empty()) else { continue };
        if shown > 0 {
            say("");
        }
        shown += 1;
        let show = TableOptions { wide, namespaces: args.all_namespaces && kind.namespaced };
        table.lines(show).iter().for_each(|line| say(line));
    }
    if shown == 0 {
        let place = match args.all_namespaces || kinds.iter().all(|kind| !kind.namespaced) {
            true => String::new(),
            false => format!(" in namespace {}", connection.namespace),
        };
        complain("note", &format!("no {} found{place}", args.kinds));
    }
    Ok(())
}

/// Fetches objects with their kinds.
async fn fetch(args: &GetArgs, connection: &Connection, kinds: &[Kind]) -> Result<Vec<(Kind, Value)>> {
    let mut found = Vec::new();
    for kind in kinds {
        for request in requests(args, connection, kind)? {
            let mut answer: Value =
                connection.client.request(request).await.when(format!("cannot get {}", kind.plural))?;
            let version = answer["apiVersion"].clone();
            match answer.get_mut("items").map(Value::take) {
                Some(Value::Array(items)) => {
                    for mut item in items {
                        // Items of lists have no kind and apiVersion.
                        item["apiVersion"] = version.clone();
                        item["kind"] = kind.kind.as_str().into();
                        found.push((kind.clone(), item));
                    }
                }
                _ => found.push((kind.clone(), answer)),
            }
        }
    }
    Ok(found)
}

/// Removes managed fields.
fn tidy(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
}

async fn names(args: &GetArgs, connection: &Connection, kinds: &[Kind]) -> Result<()> {
    for (kind, object) in fetch(args, connection, kinds).await? {
        say(&kind.object_name(object["metadata"]["name"].as_str().unwrap_or_default()));
    }
    Ok(())
}

async fn objects(args: &GetArgs, connection: &Connection, kinds: &[Kind], output: Output) -> Result<()> {
    let mut found: Vec<Value> = fetch(args, connection, kinds).await?.into_iter().map(|(_, object)| object).collect();
    found.iter_mut().for_each(tidy);
    match (args.names.len(), found.pop()) {
        (1, Some(object)) if found.is_empty() => output.say(&object),
        (_, last) => {
            found.extend(last);
            output.say(&json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": found}))
        }
    }
}
