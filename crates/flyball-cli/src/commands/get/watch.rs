//! `flyball get -w`: prints the existing objects, and then each changed one, like `kubectl get -w`.
//!
//! It runs while the cluster responds and the output is read. After an expired resource version, all objects are
//! printed again. See <https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes>.

use super::{Format, GetArgs, remove_managed_fields};
use crate::cluster::connection::Connection;
use crate::cluster::kinds::Kind;
use crate::cluster::selection::{Selection, fail_if_missing};
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::table::{TABLE, Table, TableOptions};
use crate::render::terminal::try_print_line;
use futures_util::TryStreamExt;
use http::header::ACCEPT;
use http::{HeaderMap, HeaderValue};
use kube::api::WatchParams;
use kube::core::WatchEvent;
use serde_json::Value;
use std::pin::pin;

/// Status code of an expired resource version.
const STATUS_GONE: u16 = 410;

pub(super) async fn watch(args: &GetArgs, connection: &Connection, selections: &[Selection]) -> Result<()> {
    let Some((selection @ Selection { kind, names }, [])) =
        selections.split_first().filter(|(first, _)| first.names.len() <= 1)
    else {
        return Err(
            Error::new("--watch takes one kind or one object").hint("select with -l, or watch in several terminals")
        );
    };
    let what = || format!("cannot watch {}", kind.plural);
    let mut view = View::new(args, kind);
    'anew: loop {
        let mut missing = Vec::new();
        let responses = args.objects.fetch(connection, selection, &view.headers(), &mut missing).await?;
        fail_if_missing(missing)?;
        let Some(first) = responses.into_iter().next() else { return Ok(()) };
        let mut version = version_of(&first);
        if !view.show_first(first)? {
            return Ok(());
        }
        loop {
            let objects = kube::core::Request::new(kind.path(args.objects.namespace(connection), None));
            let mut request = objects.watch(&params(args, names), &version).context(what())?;
            request.headers_mut().extend(view.headers());
            let events = match connection.client.request_events::<Value>(request).await {
                Err(kube::Error::Api(status)) if status.code == STATUS_GONE => continue 'anew,
                other => other.context(what())?,
            };
            let mut events = pin!(events);
            while let Some(event) = events.try_next().await.context(what())? {
                let object = match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => object,
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(status) if status.code == STATUS_GONE => continue 'anew,
                    WatchEvent::Error(status) => return Err(kube::Error::Api(status)).context(what()),
                };
                version = version_of(object.pointer("/rows/0/object").unwrap_or(&object));
                if !view.show_next(object)? {
                    return Ok(());
                }
            }
        }
    }
}

fn params(args: &GetArgs, names: &[String]) -> WatchParams {
    let mut params = WatchParams::default().disable_bookmarks();
    params.label_selector.clone_from(&args.objects.selector);
    let named = names.first().map(|name| format!("metadata.name={name}"));
    params.field_selector = named.or_else(|| args.objects.field_selector.clone());
    params
}

fn version_of(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Printer of watched objects. It reports whether the output is still read.
enum View<'a> {
    /// Lines below one heading, whose columns get wider and never narrower.
    Table {
        table: Option<Table>,
        widths: Vec<usize>,
        shown: TableOptions,
    },
    Name(&'a Kind),
    Object(&'a Kind, Output),
}

impl<'a> View<'a> {
    fn new(args: &GetArgs, kind: &'a Kind) -> Self {
        let namespaces = args.objects.all_namespaces && kind.namespaced;
        let table = |wide| Self::Table { table: None, widths: Vec::new(), shown: TableOptions { wide, namespaces } };
        match args.output {
            None => table(false),
            Some(Format::Wide) => table(true),
            Some(Format::Name) => Self::Name(kind),
            Some(Format::Json) => Self::Object(kind, Output::Json),
            Some(Format::Yaml) => Self::Object(kind, Output::Yaml),
        }
    }

    fn headers(&self) -> HeaderMap {
        let accept = matches!(self, Self::Table { .. }).then(|| (ACCEPT, HeaderValue::from_static(TABLE)));
        accept.into_iter().collect()
    }

    /// Prints the initial state: a table, a list or an object.
    fn show_first(&mut self, first: Value) -> Result<bool> {
        if let Self::Table { table, .. } = self {
            *table = Some(serde_json::from_value(first).context("the response is not a table")?);
            return Ok(self.show_table());
        }
        let (Self::Name(kind) | Self::Object(kind, _)) = *self else { return Ok(true) };
        for object in kind.items(first) {
            if !self.show_next(object)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn show_next(&mut self, mut object: Value) -> Result<bool> {
        match self {
            Self::Table { table, .. } => {
                table.iter_mut().try_for_each(|table| table.show_next(&mut object))?;
                Ok(self.show_table())
            }
            Self::Name(kind) => {
                Ok(try_print_line(&kind.object_name(object["metadata"]["name"].as_str().unwrap_or_default())))
            }
            Self::Object(kind, output) => {
                kind.set_type(&mut object);
                remove_managed_fields(&mut object);
                Ok(try_print_line(&output.write_next(&object)?))
            }
        }
    }

    fn show_table(&mut self) -> bool {
        let Self::Table { table: Some(table), widths, shown } = self else { return true };
        table.is_empty() || table.lines_after(*shown, widths).iter().all(|line| try_print_line(line))
    }
}
