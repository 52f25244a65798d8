//! The list of the writes of a recording.

use crate::cluster::connection::block_on;
use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_labeled, print_line};
use clap::Args;
use flyball_cluster::{Cluster, Options, RecordedWrite, Recording, RecordingEnd, RecordingHistory};
use flyball_core::GroupResource;
use flyball_core::time::{rfc3339, rfc3339_micro};
use serde::Serialize;
use std::collections::BTreeSet;

/// Flags that select writes.
#[derive(Args, Clone, Debug)]
pub(super) struct FilterArgs {
    /// List only writes of this object, such as deployment/web, or of this kind; kinds have the names that kubectl
    /// takes: deployments.apps, deployment, deploy
    #[arg(long, value_name = "KIND[/NAME]", value_parser = parse_object, conflicts_with = "at")]
    object: Option<SelectedObject>,
    /// List only writes of objects in this namespace
    #[arg(short, long, conflicts_with = "at")]
    namespace: Option<String>,
    /// List only writes of this user
    #[arg(long, conflicts_with = "at")]
    user: Option<String>,
    /// List only writes of this field manager
    #[arg(long, conflicts_with = "at")]
    manager: Option<String>,
}

/// A resource, and the name of an object if only one is selected.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SelectedObject {
    resource: String,
    group: Option<String>,
    name: Option<String>,
}

fn parse_object(text: &str) -> Result<SelectedObject, String> {
    let (kind, name) = text.split_once('/').map_or((text, None), |(kind, name)| (kind, Some(name)));
    let (resource, group) = kind.split_once('.').map_or((kind, None), |(resource, group)| (resource, Some(group)));
    if resource.is_empty() || name.is_some_and(|name| name.is_empty() || name.contains('/')) {
        return Err("expected KIND/NAME, such as deployment/web, or KIND".into());
    }
    let (group, name) = (group.map(str::to_lowercase), name.map(str::to_owned));
    Ok(SelectedObject { resource: resource.to_lowercase(), group, name })
}

impl SelectedObject {
    /// Selects all objects of a resource.
    fn of(resource: &GroupResource) -> Self {
        let (group, resource) = (Some(resource.group.to_string()), resource.resource.to_string());
        Self { resource, group, name: None }
    }

    /// Returns the name of the kind on the command line.
    fn kind_name(&self) -> String {
        let group = self.group.as_ref().map(|group| format!(".{group}")).unwrap_or_default();
        format!("{}{group}", self.resource)
    }

    /// Returns true for the plural name, and for the singular one of regular names.
    fn is_of(&self, table: &GroupResource) -> bool {
        let plural = &*table.resource;
        let singular = &self.resource;
        let is_plural = |ending: &str| plural.strip_prefix(&**singular) == Some(ending);
        let is_named = *plural == **singular
            || is_plural("s")
            || is_plural("es")
            || singular.strip_suffix('y').is_some_and(|stem| plural.strip_prefix(stem) == Some("ies"));
        is_named && self.group.as_ref().is_none_or(|group| *group == *table.group)
    }
}

impl FilterArgs {
    /// Returns the filter with the resource of its kind.
    ///
    /// # Errors
    ///
    /// If the recording contains no write of the resource, and the control plane has no such kind: the name may be
    /// misspelled.
    fn resolved(&self, recording: &Recording, history: &RecordingHistory) -> Result<Self> {
        let resources: BTreeSet<&GroupResource> = history.writes.iter().map(|write| &write.resource).collect();
        let is_recorded = |object: &SelectedObject| resources.iter().any(|resource| object.is_of(resource));
        let Some(object) = self.object.as_ref().filter(|object| !is_recorded(object) && !resources.is_empty()) else {
            return Ok(self.clone());
        };
        let found = resource_of(recording, history, &object.kind_name())?;
        let found = found.map(|found| SelectedObject { name: object.name.clone(), ..SelectedObject::of(&found) });
        if let Some(object) = found {
            return Ok(Self { object: Some(object), ..self.clone() });
        }
        let names: Vec<String> = resources.iter().take(20).map(ToString::to_string).collect();
        let error = Error::new(format!("no write of a resource {:?} is recorded", object.kind_name()));
        Err(error.hint(format!("the recorded resources are {}", names.join(", "))))
    }

    fn selects(&self, write: &RecordedWrite) -> bool {
        let origin = write.origin.as_deref();
        let is = |expected: &Option<String>, found: Option<&str>| {
            expected.as_deref().is_none_or(|expected| found == Some(expected))
        };
        let object = self.object.as_ref().is_none_or(|object| {
            object.is_of(&write.resource) && object.name.as_deref().is_none_or(|name| name == write.key.name())
        });
        object
            && is(&self.namespace, write.key.namespace())
            && is(&self.user, origin.map(|origin| &*origin.user))
            && is(&self.manager, origin.map(|origin| &*origin.manager))
    }
}

/// The writes for programs.
#[derive(Serialize)]
struct Page<'h> {
    recording: String,
    first: String,
    last: String,
    end: &'static str,
    writes: Vec<Row<'h>>,
}

/// A write, with the fields of the page `/debug/api/writes` of a control plane.
#[derive(Serialize)]
struct Row<'h> {
    revision: String,
    time: Option<String>,
    group: &'h str,
    resource: &'h str,
    subresource: &'h str,
    namespace: Option<&'h str>,
    name: &'h str,
    user: &'h str,
    agent: &'h str,
    manager: &'h str,
    verb: &'h str,
    removed: bool,
}

impl<'h> Row<'h> {
    fn of(write: &'h RecordedWrite) -> Self {
        let origin = write.origin.as_deref();
        let text = |of: fn(&flyball_cluster::RecordedOrigin) -> &str| origin.map_or("", of);
        Self {
            revision: write.revision.to_string(),
            time: origin.map(|origin| rfc3339_micro(origin.time)),
            group: &write.resource.group,
            resource: &write.resource.resource,
            subresource: text(|origin| &origin.subresource),
            namespace: write.key.namespace(),
            name: write.key.name(),
            user: text(|origin| &origin.user),
            agent: text(|origin| &origin.agent),
            manager: text(|origin| &origin.manager),
            verb: text(|origin| &origin.verb),
            removed: write.is_removal,
        }
    }
}

fn name_of(end: RecordingEnd) -> &'static str {
    match end {
        RecordingEnd::Closed => "closed",
        RecordingEnd::Limit => "limit",
        RecordingEnd::Overload => "overload",
        RecordingEnd::Open => "open",
    }
}

/// Prints the writes that a filter selects.
pub(super) fn print(
    recording: &Recording,
    history: &RecordingHistory,
    filter: &FilterArgs,
    output: Option<Output>,
) -> Result<()> {
    let filter = filter.resolved(recording, history)?;
    let writes: Vec<_> = history.writes.iter().filter(|write| filter.selects(write)).collect();
    if let Some(output) = output {
        return output.print(&Page {
            recording: recording.path().display().to_string(),
            first: history.first.to_string(),
            last: history.last.to_string(),
            end: name_of(history.end),
            writes: writes.into_iter().map(Row::of).collect(),
        });
    }
    table(&writes).iter().for_each(|line| print_line(line));
    print_labeled("note", &summary(history, writes.len()));
    Ok(())
}

/// Finds the resource of a kind by any of its names, such as `deploy`. The names are those of the control plane at the
/// end of the recording; if that cannot be replayed, those of a new one.
fn resource_of(recording: &Recording, history: &RecordingHistory, name: &str) -> Result<Option<GroupResource>> {
    block_on(async {
        let options = || Options::system().context("cannot start a cluster");
        let cluster = match Cluster::replay(options()?, recording, history.last) {
            Ok(cluster) => cluster,
            Err(_) => Cluster::new(options()?),
        };
        let kinds = Kinds::discover(&cluster.admin()).await?;
        Ok(kinds.find(name).map(Kind::resource))
    })
}

fn table(writes: &[&RecordedWrite]) -> Vec<String> {
    let head = ["REVISION", "TIME", "VERB", "NAMESPACE", "OBJECT", "USER", "MANAGER"];
    let head = head.map(|word| paint(Style::Strong, word)).to_vec();
    let cells = |write: &&RecordedWrite| {
        let row = Row::of(write);
        let or_none = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let time = write.origin.as_ref().map_or_else(|| "-".to_owned(), |origin| rfc3339(origin.time));
        let part = if row.subresource.is_empty() { String::new() } else { format!("/{}", row.subresource) };
        let object = format!("{}/{}{part}", write.resource, row.name);
        let verb = match row.verb {
            "" if row.removed => "delete",
            verb => verb,
        };
        let namespace = row.namespace.unwrap_or_default();
        [row.revision.clone(), time, or_none(verb), or_none(namespace), object, or_none(row.user), or_none(row.manager)]
            .to_vec()
    };
    columns(std::iter::once(head).chain(writes.iter().map(cells)).collect())
}

/// Describes the range of the recording, and its end.
fn summary(history: &RecordingHistory, listed: usize) -> String {
    let end = match history.end {
        RecordingEnd::Closed => "it ends with the cluster",
        RecordingEnd::Limit => "it ends at its limit, before the cluster",
        RecordingEnd::Overload => "it ends before the cluster, since the disk was too slow",
        RecordingEnd::Open => "the cluster still runs, or was killed",
    };
    let RecordingHistory { first, last, writes, .. } = history;
    format!("{listed} of {} writes; revisions {first} to {last} are recorded; {end}", writes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_selected_by_resource_and_name() {
        let is_of = |text: &str, group: &str, resource: &str| {
            parse_object(text).is_ok_and(|object| object.is_of(&GroupResource::new(group, resource)))
        };
        for text in ["deployments", "Deployment", "deployment/web", "deployments.apps/web"] {
            assert!(is_of(text, "apps", "deployments"), "{text}");
        }
        assert!(is_of("networkpolicy", "networking.k8s.io", "networkpolicies") && is_of("ingress", "", "ingresses"));
        for text in ["deploy", "deployments.extensions", "s", "ss"] {
            assert!(!is_of(text, "apps", "deployments"), "{text}");
        }
        for text in ["", "/", "a/", "/b", "a/b/c"] {
            assert!(parse_object(text).is_err(), "{text}");
        }
        assert_eq!(parse_object("pods/A").unwrap().name.as_deref(), Some("A"));
    }
}
