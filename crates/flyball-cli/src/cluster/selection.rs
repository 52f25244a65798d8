//! Selection of objects on the command line, as in kubectl: `TYPE NAME...`, `TYPE/NAME...`, or `TYPE -l SELECTOR`.

use super::connection::{Connection, ConnectionArgs};
use super::kinds::{Kind, Kinds};
use crate::error::{Error, Result, ResultExt};
use clap::Args;
use http::{HeaderMap, Request};
use kube::api::{GetParams, ListParams};
use serde::de::DeserializeOwned;

/// Kinds, names and flags that select objects.
#[derive(Args, Clone, Debug)]
pub(crate) struct SelectionArgs {
    /// Kinds, separated by commas, and names, or KIND/NAME: pods, deploy web, svc/web pod/a, all
    #[arg(value_name = "KIND [NAME] | KIND/NAME")]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) connection: ConnectionArgs,
    /// Select objects in all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(crate) all_namespaces: bool,
    /// Label selector, such as app=web,tier!=test
    #[arg(short = 'l', long)]
    pub(crate) selector: Option<String>,
    /// Field selector, such as status.phase=Running
    #[arg(long, value_name = "SELECTOR")]
    pub(crate) field_selector: Option<String>,
    /// Do not fail if a named object does not exist
    #[arg(long)]
    pub(crate) ignore_not_found: bool,
}

/// Selected objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Selection {
    pub(crate) kind: Kind,
    /// All objects, if empty.
    pub(crate) names: Vec<String>,
}

impl SelectionArgs {
    /// Returns true if objects are selected by labels or fields.
    pub(crate) fn has_selector(&self) -> bool {
        self.selector.is_some() || self.field_selector.is_some()
    }

    /// Resolves the arguments with the kinds of a cluster.
    pub(crate) fn resolve(&self, served: &Kinds) -> Result<Vec<Selection>> {
        let selections = resolve(&self.targets, served)?;
        let is_named = |selection: &Selection| !selection.names.is_empty();
        if self.has_selector() && selections.iter().any(is_named) {
            return Err(Error::usage("a name cannot be combined with a selector"));
        }
        if self.all_namespaces && selections.iter().any(|one| is_named(one) && one.kind.namespaced) {
            return Err(Error::new("a name cannot be combined with -A").hint("choose a namespace with -n"));
        }
        Ok(selections)
    }

    /// Returns the namespace of the selected objects, unless all namespaces are selected.
    pub(crate) fn namespace<'a>(&self, connection: &'a Connection) -> Option<&'a str> {
        (!self.all_namespaces).then_some(connection.namespace.as_str())
    }

    /// Returns the requests for a selection: one for a list, or one for each named object.
    pub(crate) fn requests(&self, connection: &Connection, selection: &Selection) -> Result<Vec<Request<Vec<u8>>>> {
        let Selection { kind, names } = selection;
        let objects = kube::core::Request::new(kind.path(self.namespace(connection), None));
        let what = || format!("cannot get {}", kind.plural);
        if names.is_empty() {
            let params = ListParams {
                label_selector: self.selector.clone(),
                field_selector: self.field_selector.clone(),
                ..ListParams::default()
            };
            return Ok(vec![objects.list(&params).context(what())?]);
        }
        names.iter().map(|name| objects.get(name, &GetParams::default()).context(what())).collect()
    }

    /// Sends the requests for a selection with these headers. Names without an object are errors in `missing`.
    pub(crate) async fn fetch<T: DeserializeOwned>(
        &self,
        connection: &Connection,
        selection: &Selection,
        headers: &HeaderMap,
        missing: &mut Vec<Error>,
    ) -> Result<Vec<T>> {
        let mut responses = Vec::new();
        for mut request in self.requests(connection, selection)? {
            request.headers_mut().extend(headers.clone());
            match connection.client.request(request).await {
                Err(kube::Error::Api(status)) if status.is_not_found() && !selection.names.is_empty() => {
                    missing.extend((!self.ignore_not_found).then(|| not_found(status.message, selection, connection)));
                }
                response => responses.push(response.context(format!("cannot get {}", selection.kind.plural))?),
            }
        }
        Ok(responses)
    }
}

/// Reports all missing objects; returns the last one, which ends the command.
pub(crate) fn fail_if_missing(mut missing: Vec<Error>) -> Result<()> {
    let last = missing.pop();
    missing.iter().for_each(crate::render::terminal::print_error);
    last.map_or(Ok(()), Err)
}

/// Returns the error for a missing object, with the reason as kubectl prints it.
fn not_found(message: String, selection: &Selection, connection: &Connection) -> Error {
    let Kind { plural, namespaced, .. } = &selection.kind;
    let place = if *namespaced { format!(" -n {}", connection.namespace) } else { String::new() };
    Error::new(format!("{message} (NotFound)")).hint(format!("list the existing ones: flyball get {plural}{place}"))
}

fn resolve(targets: &[String], served: &Kinds) -> Result<Vec<Selection>> {
    let Some((first, names)) = targets.split_first() else { return Ok(Vec::new()) };
    if !targets.iter().any(|target| target.contains('/')) {
        let mut selections = Vec::new();
        for word in first.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            let kinds = served.resolve(word)?.into_iter().cloned();
            selections.extend(kinds.map(|kind| Selection { kind, names: names.to_vec() }));
        }
        return Ok(selections);
    }
    let mut selections: Vec<Selection> = Vec::new();
    for target in targets {
        let parts = target.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
        let (word, name) = parts.filter(|(_, name)| !name.contains('/')).ok_or_else(|| {
            Error::usage(format!("{target:?} is not of the form KIND/NAME"))
                .hint("select objects as `KIND NAME...` or `KIND/NAME...`, not as both")
        })?;
        for kind in served.resolve(word)? {
            match selections.iter_mut().find(|selection| selection.kind == *kind) {
                Some(selection) => selection.names.push(name.into()),
                None => selections.push(Selection { kind: kind.clone(), names: vec![name.into()] }),
            }
        }
    }
    Ok(selections)
}
