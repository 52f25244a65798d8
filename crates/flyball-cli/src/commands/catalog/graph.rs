//! `flyball catalog graph`: the upgrades in the channels of a catalog.

use super::ImageFlags;
use crate::catalog::reference;
use crate::cluster::connection::block_on;
use crate::error::{Error, Result};
use crate::render::output::Output;
use crate::render::terminal::{Style, one_line, paint, print_line};
use clap::{Args, ValueEnum};
use flyball_lifecycle::content::{ChannelGraph, Content, GraphEdge};
use std::collections::BTreeMap;

/// Draw the upgrades in the channels of a catalog
///
/// Lists the versions of each channel, newest first, with the versions that they upgrade. GitHub and documentation
/// sites draw Mermaid, Graphviz draws Dot.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball catalog graph catalog/
  flyball catalog graph quay.io/team/catalog:latest --package site-operator --channel stable
  flyball catalog graph catalog/ -o mermaid > graph.mmd
  flyball catalog graph catalog/ -o dot | dot -Tsvg > graph.svg")]
pub(super) struct GraphArgs {
    /// Folder, template or image of the catalog
    #[arg(value_name = "REF")]
    reference: String,
    /// Package; defaults to all
    #[arg(long, value_name = "NAME")]
    package: Option<String>,
    /// Channel; defaults to all
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    #[command(flatten)]
    images: ImageFlags,
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Format>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Mermaid,
    Dot,
    Json,
    Yaml,
}

/// Creates the error about a package or a channel that does not exist.
fn unknown(args: &GraphArgs, content: &Content) -> Error {
    let package = args.package.as_deref().and_then(|name| content.packages().find(|package| package.name == name));
    if let (Some(package), Some(channel)) = (package, &args.channel) {
        let known: Vec<String> = package.channels.keys().cloned().collect();
        let error = Error::new(format!("package {} has no channel {channel:?}", package.name));
        return error.hint(format!("it has the channels {}", one_line(&known.join(", "))));
    }
    let known: Vec<&str> = content.packages().map(|package| package.name.as_str()).collect();
    let error = Error::new(format!("{} has no such package or channel", args.reference));
    error.hint(format!("it has the packages {}", one_line(&known.join(", "))))
}

pub(super) fn cmd_graph(args: &GraphArgs) -> Result<()> {
    // Channels with problems can be drawn as well.
    let content = block_on(reference::load(&args.reference, args.images.images())).map(Content::unchecked)?;
    let mut graphs: Vec<ChannelGraph> = content.packages().flat_map(|package| package.graphs()).collect();
    let is_wanted = |wanted: &Option<String>, name: &str| wanted.as_deref().is_none_or(|wanted| wanted == name);
    graphs.retain(|graph| is_wanted(&args.package, &graph.package) && is_wanted(&args.channel, &graph.channel));
    if graphs.is_empty() {
        return Err(unknown(args, &content));
    }
    match args.output {
        None => graphs.iter().for_each(print),
        Some(Format::Mermaid) => mermaid(&graphs).iter().for_each(|line| print_line(line)),
        Some(Format::Dot) => dot(&graphs).iter().for_each(|line| print_line(line)),
        Some(Format::Json) => Output::Json.print(&graphs)?,
        Some(Format::Yaml) => Output::Yaml.print(&graphs)?,
    }
    Ok(())
}

fn print(graph: &ChannelGraph) {
    let default = if graph.is_default { ", the default" } else { "" };
    let title = format!("package {}, channel {}{default}", graph.package, graph.channel);
    print_line(&paint(Style::Strong, &one_line(&title)));
    for node in &graph.nodes {
        let mut upgraded: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for edge in graph.edges.iter().filter(|edge| edge.to == node.bundle) {
            upgraded.entry(edge.field).or_default().push(&edge.from);
        }
        let of: Vec<String> = upgraded.iter().map(|(field, from)| format!("{field} {}", from.join(", "))).collect();
        let marks = [(node.is_head, "head"), (node.is_skipped, "skipped"), (node.is_deprecated, "deprecated")];
        let marks = marks.iter().filter(|(holds, _)| *holds).map(|(_, mark)| (*mark).to_owned());
        let notes: Vec<String> = marks.chain(of).collect();
        let (bundle, notes) = (one_line(&node.bundle), notes.join("; "));
        print_line(format!("  {bundle:<32} {}", one_line(&notes)).trim_end());
    }
}

/// Returns the upgrades without those that `skipRange` permits beside `replaces` or `skips`.
fn drawn(graph: &ChannelGraph) -> impl Iterator<Item = &GraphEdge> {
    graph.edges.iter().filter(|edge| {
        let is_same = |other: &&GraphEdge| (&other.from, &other.to) == (&edge.from, &edge.to);
        edge.field != "skipRange" || graph.edges.iter().filter(is_same).count() == 1
    })
}

fn mermaid(graphs: &[ChannelGraph]) -> Vec<String> {
    let mut lines = vec!["graph LR".to_owned()];
    for (number, graph) in graphs.iter().enumerate() {
        let id = |bundle: &str| format!("c{number}-{}", identifier(bundle));
        let title = mermaid_label(&format!("{}, {}", graph.package, graph.channel));
        lines.push(format!("  subgraph c{number}[\"{title}\"]"));
        for node in &graph.nodes {
            let shape = if node.is_skipped { ("([\"", "\"])") } else { ("[\"", "\"]") };
            lines.push(format!("    {}{}{}{}", id(&node.bundle), shape.0, mermaid_label(&node.bundle), shape.1));
        }
        for edge in drawn(graph) {
            let arrow = if edge.field == "replaces" { "-->" } else { "-.->" };
            lines.push(format!("    {} {arrow}|{}| {}", id(&edge.from), edge.field, id(&edge.to)));
        }
        lines.push("  end".to_owned());
    }
    lines
}

/// Returns a name that Mermaid accepts as an identifier.
fn identifier(name: &str) -> String {
    name.chars().map(|char| if char.is_ascii_alphanumeric() { char } else { '-' }).collect()
}

/// Escapes the text of a label, see <https://mermaid.js.org/syntax/flowchart.html#entity-codes-to-escape-characters>.
fn mermaid_label(text: &str) -> String {
    one_line(text).replace('#', "#35;").replace('"', "#quot;").replace('<', "#lt;").replace('>', "#gt;")
}

/// Escapes the text of a quoted string, see <https://graphviz.org/doc/info/lang.html>.
fn dot_text(text: &str) -> String {
    one_line(text).replace('\\', "\\\\").replace('"', "\\\"")
}

fn dot(graphs: &[ChannelGraph]) -> Vec<String> {
    let mut lines = vec!["digraph catalog {".to_owned(), "  rankdir=LR; node [shape=box];".to_owned()];
    for (number, graph) in graphs.iter().enumerate() {
        let id = |bundle: &str| format!("\"{number}/{}\"", dot_text(bundle));
        let title = dot_text(&format!("{}, {}", graph.package, graph.channel));
        lines.push(format!("  subgraph cluster_{number} {{ label=\"{title}\";"));
        for node in &graph.nodes {
            let style = if node.is_skipped { ", style=dashed" } else { "" };
            lines.push(format!("    {} [label=\"{}\"{style}];", id(&node.bundle), dot_text(&node.bundle)));
        }
        for edge in drawn(graph) {
            let style = if edge.field == "replaces" { "" } else { ", style=dashed" };
            lines.push(format!("    {} -> {} [label=\"{}\"{style}];", id(&edge.from), id(&edge.to), edge.field));
        }
        lines.push("  }".to_owned());
    }
    lines.push("}".to_owned());
    lines
}
