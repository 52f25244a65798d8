//! The timeline: the history of an object and its descendants.
//!
//! It uses owner references, conditions, events and managed fields, which every cluster has. It writes nothing.

mod history;

use crate::cluster::kinds::{Kind, Kinds};
use crate::error::{Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{LiveLines, Style, one_line, paint};
use flyball_console::hide_values;
use flyball_core::time::{SignedDuration, Timestamp};
use history::Node;
use http::Request;
use http::header::ACCEPT;
use kube::Client;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Objects in one tree; a larger one is cut.
const MAX_OBJECTS: usize = 1000;
/// Refresh interval.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Content type of lists: metadata only.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Prints the history of an object, and continues to do so on changes if it is watched.
///
/// # Errors
///
/// If the object cannot be read.
pub(crate) async fn print_timeline(
    client: &Client,
    kinds: &Kinds,
    (kind, namespace, name): (&Kind, &str, &str),
    is_watched: bool,
    output: Option<Output>,
) -> Result<()> {
    let (mut live, mut printed) = (LiveLines::default(), None);
    loop {
        let tree = build_tree(client, kinds, kind, namespace, name).await?;
        match output {
            Some(_) if printed.as_ref() == Some(&tree) => {}
            Some(output) if is_watched => output.print_next(&tree)?,
            Some(output) => output.print(&tree)?,
            None => live.show(lines(&tree)),
        }
        printed = Some(tree);
        if !is_watched {
            return Ok(());
        }
        sleep(REFRESH_INTERVAL).await;
    }
}

/// Reads the current state of an object and its descendants.
async fn build_tree(client: &Client, kinds: &Kinds, kind: &Kind, namespace: &str, name: &str) -> Result<Node> {
    let scope = kind.namespaced.then_some(namespace);
    let object = get(client, &kind.path(scope, Some(name)), "application/json").await;
    let object = object.context(format!("cannot read {} {name}", kind.kind))?;
    let mut above = vec![object];
    // The chain of controllers, up to the root.
    while let Some(owner) = history::controller(&above[above.len() - 1]).filter(|_| above.len() < 20) {
        let Some(kind) = kinds.of(owner.api_version, owner.kind) else { break };
        let path = kind.path(kind.namespaced.then_some(namespace), Some(owner.name));
        match get(client, &path, "application/json").await {
            Ok(found) if found["metadata"]["uid"] == owner.uid => above.push(found),
            _ => break,
        }
    }
    let mut objects = BTreeMap::new();
    for object in &above {
        objects.insert(history::uid(object).to_owned(), object.clone());
    }
    let below = descendants(client, kinds, scope, history::uid(&above[0])).await;
    for (kind, object) in below {
        let metadata = &object["metadata"];
        let path = kind.path(metadata["namespace"].as_str(), metadata["name"].as_str());
        // Objects that were deleted meanwhile are skipped.
        if let Ok(full) = get(client, &path, "application/json").await {
            objects.insert(history::uid(&full).to_owned(), full);
        }
    }
    let events = match scope {
        Some(namespace) => format!("/api/v1/namespaces/{namespace}/events"),
        None => "/api/v1/events".to_owned(),
    };
    // Without permission to read events, the other sources are used.
    let events = get(client, &events, "application/json").await.unwrap_or_default();
    let root = &above[above.len() - 1];
    Ok(history::tree_of(root, &objects, events["items"].as_array().map(Vec::as_slice).unwrap_or_default()))
}

/// Finds the objects that an object owns, directly and indirectly. Kinds that may not be listed are skipped.
async fn descendants<'a>(
    client: &Client,
    kinds: &'a Kinds,
    namespace: Option<&str>,
    root: &str,
) -> Vec<(&'a Kind, Value)> {
    let mut lists = JoinSet::new();
    for (at, kind) in kinds.all().iter().enumerate() {
        // Events are read separately; they have no owners.
        if kind.can_list && kind.plural != "events" && (kind.namespaced || namespace.is_none()) {
            let (client, path) = (client.clone(), kind.path(namespace, None));
            lists.spawn(async move { (at, get(&client, &path, METADATA).await.unwrap_or_default()) });
        }
    }
    let mut lists = lists.join_all().await;
    lists.sort_by_key(|(at, _)| *at);
    let mut owned: BTreeMap<String, Vec<(&Kind, Value)>> = BTreeMap::new();
    for (at, list) in lists {
        for object in list["items"].as_array().into_iter().flatten() {
            for owner in history::owners(object) {
                owned.entry(owner.uid.to_owned()).or_default().push((&kinds.all()[at], object.clone()));
            }
        }
    }
    let (mut found, mut open) = (Vec::new(), vec![root.to_owned()]);
    while let Some(uid) = open.pop() {
        // Removing the list ends cycles.
        for child in owned.remove(&uid).unwrap_or_default() {
            if found.len() < MAX_OBJECTS {
                open.push(history::uid(&child.1).to_owned());
                found.push(child);
            }
        }
    }
    found
}

async fn get(client: &Client, path: &str, accept: &str) -> kube::Result<Value> {
    let request = Request::get(path).header(ACCEPT, accept).body(Vec::new()).map_err(kube::Error::HttpError)?;
    let mut object: Value = client.request(request).await?;
    if object["kind"] == "Secret" && object["apiVersion"] == "v1" {
        hide_values(&mut object);
    }
    Ok(object)
}

/// Draws the tree.
fn lines(tree: &Node) -> Vec<String> {
    let mut lines = Vec::new();
    draw(tree, tree.created, "", "", &mut lines);
    lines
}

fn draw(node: &Node, began: Option<Timestamp>, first: &str, rest: &str, lines: &mut Vec<String>) {
    let painted = |style, text: &str| if text.is_empty() { String::new() } else { paint(style, &one_line(text)) };
    let state = if node.state.is_empty() { String::new() } else { format!("  {}", painted(Style::Good, &node.state)) };
    lines.push(format!("{first}{}{state}", painted(Style::Strong, &format!("{}/{}", node.kind, node.name))));
    let bar = if node.children.is_empty() { "  " } else { "│ " };
    for step in &node.steps {
        let since = began.map_or(SignedDuration::ZERO, |began| step.time.duration_since(began));
        let by = if step.by.is_empty() { String::new() } else { format!("  {}", painted(Style::Faint, &step.by)) };
        lines.push(format!("{rest}{bar}{:>8}  {}{by}", after(since), one_line(&step.what)));
    }
    for (at, child) in node.children.iter().enumerate() {
        let (fork, line) = if at + 1 == node.children.len() { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        draw(child, began, &format!("{rest}{fork}"), &format!("{rest}{line}"), lines);
    }
}

/// Formats the time since the start; most times have a precision of one second.
fn after(since: SignedDuration) -> String {
    let seconds = since.as_secs();
    let sign = if seconds < 0 { '-' } else { '+' };
    match seconds.unsigned_abs() {
        seconds @ 0..=599 => format!("{sign}{seconds}s"),
        seconds @ 600..=35_999 => format!("{sign}{}m{}s", seconds / 60, seconds % 60),
        seconds @ 36_000..=863_999 => format!("{sign}{}h{}m", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{sign}{}d{}h", seconds / 86_400, seconds / 3600 % 24),
    }
}
