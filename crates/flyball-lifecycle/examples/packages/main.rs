//! Walks through all channels of published packages, on a control plane with simulated nodes.
//!
//! ```text
//! cargo run -p flyball-lifecycle --example packages FOLDER [PACKAGE...]
//! ```
//!
//! The folder has a file for each package, with names, versions, channels, replacements, APIs, install modes and
//! webhooks of its bundles, as in `tests/data/catalog-sample`; the manifests are generated from these. Each channel is
//! walked in a cluster of its own: a Subscription begins with the oldest bundle, and upgrades automatically to the
//! newest one. A step that does not end within an hour of simulated time hangs. The exit code is 1 if one does.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a tool that measures real time and may panic"
)]

mod manifests;
mod sample;
mod walk;

use sample::Package;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use walk::{Walk, walk};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        println!("usage: packages FOLDER [PACKAGE...]");
        return ExitCode::FAILURE;
    };
    let wanted: Vec<String> = arguments.collect();
    let mut packages = Package::read_all(Path::new(&folder));
    packages.retain(|package| wanted.is_empty() || wanted.contains(&package.name));
    println!("| package | channels | bundles | steps | requests per step | time per step | remarks |");
    println!("|---|---|---|---|---|---|---|");
    let mut total = Row::default();
    for package in &packages {
        let row = Row::of(package);
        println!("| {} | {}", package.name, row.text());
        total.add(&row);
    }
    println!("| **{} packages** | {}", packages.len(), total.text());
    if total.hanging == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The figures of a package.
#[derive(Default)]
struct Row {
    channels: usize,
    bundles: usize,
    steps: usize,
    requests: usize,
    time: Duration,
    remarks: Vec<String>,
    hanging: usize,
}

impl Row {
    fn of(package: &Package) -> Self {
        let mut row = Self { bundles: package.bundles.len(), ..Self::default() };
        for channel in package.channels() {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
            let walk = runtime.block_on(walk(package, &channel));
            row.channels += 1;
            match walk {
                Walk::Done { steps, requests, time } => {
                    row.steps += steps;
                    row.requests += requests;
                    row.time += time;
                }
                Walk::Ends(why) => row.remarks.push(format!("{channel} {why}")),
                Walk::Refused(why) => row.remarks.push(format!("{channel}: {why}")),
                Walk::Hangs(why) => {
                    row.hanging += 1;
                    row.remarks.push(format!("**{channel} hangs**: {why}"));
                }
            }
        }
        row
    }

    fn add(&mut self, other: &Self) {
        self.channels += other.channels;
        self.bundles += other.bundles;
        self.steps += other.steps;
        self.requests += other.requests;
        self.time += other.time;
        self.hanging += other.hanging;
    }

    fn text(&self) -> String {
        let Self { channels, bundles, steps, requests, time, remarks, .. } = self;
        let divisor = (*steps).max(1);
        let time = *time / u32::try_from(divisor).unwrap_or(u32::MAX);
        let requests = requests / divisor;
        format!("{channels} | {bundles} | {steps} | {requests} | {} ms | {} |", time.as_millis(), remarks.join("; "))
    }
}
