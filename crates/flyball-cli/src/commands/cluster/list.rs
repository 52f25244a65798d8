//! `flyball cluster list`.

use super::record::Files;
use super::status::read_server;
use crate::error::{Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, columns, paint, print_line};
use clap::Args;
use serde_json::{Value, json};

/// List the control planes on this machine
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster list
  flyball cluster list -o json")]
pub(super) struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum)]
    output: Option<Output>,
}

pub(super) fn cmd_list(args: &ListArgs) -> Result<()> {
    let mut rows = Vec::new();
    for files in Files::all()? {
        let (is_running, record) = files.find()?;
        let state = match (is_running, &record) {
            (true, Some(_)) => "running",
            (true, None) => "starting",
            (false, Some(_)) => "crashed",
            (false, None) => continue,
        };
        let mut row = json!({"name": files.name(), "state": state});
        if let Some(mut record) = record {
            // Nodes may have been added or removed since the start.
            if let Some(server) = is_running.then(|| read_server(&record.own_kubeconfig).ok()).flatten() {
                record.nodes = u32::try_from(server.nodes).unwrap_or(u32::MAX);
            }
            let known = serde_json::to_value(record).context("cannot write the record")?;
            row.as_object_mut().zip(known.as_object()).into_iter().for_each(|(row, known)| row.extend(known.clone()));
        }
        rows.push(row);
    }
    match args.output {
        Some(output) => output.print(&rows)?,
        None if rows.is_empty() => print_line("no clusters found; start one: flyball cluster up"),
        None => table(&rows).iter().for_each(|line| print_line(line)),
    }
    Ok(())
}

fn table(rows: &[Value]) -> Vec<String> {
    let head = ["NAME", "STATE", "SERVER", "NODES", "DATA"].map(|word| paint(Style::Strong, word)).to_vec();
    let cells = |row: &Value| {
        let text = |field: &str| row[field].as_str().unwrap_or("-").to_owned();
        let nodes = row["nodes"].as_u64().map_or("-".to_owned(), |nodes| nodes.to_string());
        vec![text("name"), text("state"), text("url"), nodes, text("dataDir")]
    };
    columns(std::iter::once(head).chain(rows.iter().map(cells)).collect())
}
