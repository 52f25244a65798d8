//! `flyball replay`: a control plane with the state of a recorded one at a moment of the past.

mod list;

use super::cluster::{
    self, Files, Purpose, Record, Replayed, ServingArgs, absolute, endpoint_error, parse_name, print_context,
    raise_file_limit, write_record,
};
use crate::cluster::connection::block_on_threads;
use crate::error::{Error, Result, ResultExt};
use crate::operator::process::{Process, stop_signal, supervised};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_labeled, print_line};
use clap::Args;
use flyball_cluster::{Cluster, Endpoint, Options, Recording, RecordingError};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::future::Future;
use std::path::PathBuf;
use std::process::ExitCode;

/// Start a control plane with the state of a recording, or list the writes of the recording
///
/// Reads a file of `flyball cluster up --record`. With --at, starts a control plane whose objects, resource versions
/// and revision are those of that moment. Later writes continue from there, and do not change the recording. Runs until
/// Ctrl-C, or runs COMMAND with the kubeconfig of the control plane in KUBECONFIG, and ends with it.
///
/// Without --at, lists the recorded writes: revision, time, object, user and field manager.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball replay history.fly
  flyball replay history.fly --object deploy/web --manager kubectl-edit
  flyball replay history.fly --at 1342
  flyball replay history.fly --at 1342 -- ./my-operator --metrics-addr 0

See also: flyball explore --replay, which repeats a schedule of faults.")]
pub(crate) struct ReplayArgs {
    /// Recording of a control plane
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Revision of the control plane, as in the list and in resource versions
    #[arg(long, value_name = "REVISION")]
    at: Option<u64>,
    #[command(flatten)]
    filter: list::FilterArgs,
    /// Name of the control plane and of its kubeconfig context
    #[arg(long, default_value = "replay", value_parser = parse_name)]
    name: String,
    #[command(flatten)]
    serving: ServingArgs,
    /// Output format: prints the writes, or the addresses of the control plane
    #[arg(short, long, value_enum)]
    output: Option<Output>,
    /// Program to run against the control plane, such as an operator
    #[arg(last = true, value_name = "COMMAND", requires = "at")]
    command: Vec<OsString>,
}

pub(crate) fn cmd_replay(args: ReplayArgs) -> Result<ExitCode> {
    let recording = Recording::open(&args.file).map_err(recording_error)?;
    match args.at {
        Some(revision) => replay(&args, &recording, revision),
        None => {
            let history = recording.history().map_err(recording_error)?;
            list::print(&recording, &history, &args.filter, args.output).map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Runs the control plane until a stop signal, or until the command ends.
fn replay(args: &ReplayArgs, recording: &Recording, revision: u64) -> Result<ExitCode> {
    let files = Files::of(&args.name)?;
    files.prepare()?;
    let Some(lock) = files.lock()? else {
        let url = files.read()?.map_or_else(String::new, |record| format!(" at {}", record.url));
        let error = Error::new(format!("cluster {} is already running{url}", args.name));
        return Err(error.hint(format!("flyball cluster down --name {}, or pass another --name", args.name)));
    };
    raise_file_limit();
    let served = block_on_threads(async {
        // Listened to from the start, so that a signal during it ends the process regularly.
        let stop = stop_signal()?;
        let (cluster, endpoint, record) = start(args, &files, recording, revision).await?;
        print(args, &record, revision)?;
        let code = Mutex::new(Ok(ExitCode::SUCCESS));
        let until = async {
            let ended = run_command(args, &record, stop).await;
            *code.lock() = ended;
        };
        let served = cluster::run(&cluster, endpoint, args.serving.controllers(), until).await;
        files.remove();
        let cleaned = record.remove_context();
        served.and(cleaned)?;
        code.into_inner()
    });
    drop(lock);
    served
}

async fn start(
    args: &ReplayArgs,
    files: &Files,
    recording: &Recording,
    revision: u64,
) -> Result<(Cluster, Endpoint, Record)> {
    let options = Options::system().context("cannot start a cluster")?;
    let port = args.serving.port;
    let endpoint = Endpoint::bind(port, &options.clock).await.map_err(|error| endpoint_error(error, port))?;
    let started = options.clock.now_rfc3339();
    let cluster = Cluster::replay(endpoint.aggregating(options), recording, revision).map_err(recording_error)?;
    let cluster = cluster.with_certificate(endpoint.certificate());
    let replayed = Replayed { recording: absolute(&args.file), revision: revision.to_string() };
    let nodes = u32::try_from(cluster.server().count("", "nodes")).unwrap_or(u32::MAX);
    let purpose = Purpose { replayed: Some(replayed), nodes, ..Purpose::default() };
    let record = write_record(&args.serving, files, &endpoint, started, purpose)?;
    Ok((cluster, endpoint, record))
}

fn print(args: &ReplayArgs, record: &Record, revision: u64) -> Result<()> {
    if let Some(output) = args.output {
        return output.print(record);
    }
    // Standard output belongs to the command.
    if !args.command.is_empty() {
        let Record { name, url, .. } = record;
        print_labeled("note", &format!("cluster {name} is ready at revision {revision}: {url}"));
        return Ok(());
    }
    let name = paint(Style::Strong, &record.name);
    print_line(&format!("cluster {name} is {} at revision {revision}", paint(Style::Good, "ready")));
    print_line(&format!("  {:<8} {}", "server", record.url));
    print_context(record);
    Ok(())
}

/// Waits for a stop signal, or until the command ends; returns its exit code.
async fn run_command(args: &ReplayArgs, record: &Record, stop: impl Future<Output = ()>) -> Result<ExitCode> {
    if args.command.is_empty() {
        stop.await;
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = supervised(&args.command);
    command.env("KUBECONFIG", &record.own_kubeconfig);
    let mut process = Process::start(command, None)?;
    let status = tokio::select! {
        biased;
        () = stop => return process.stop().await.map(|_| ExitCode::SUCCESS),
        status = process.wait() => status?,
    };
    match status.code() {
        Some(code) => Ok(u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from)),
        None => Err(Error::new(format!("the command was ended: {status}"))),
    }
}

/// Adds a hint to the error about a recording.
fn recording_error(error: RecordingError) -> Error {
    let hint = match &error {
        RecordingError::Foreign { .. } => "pass a file of flyball cluster up --record FILE",
        RecordingError::Format { .. } => "use the release that wrote it",
        RecordingError::NotRecorded { .. } => "list the revisions: flyball replay FILE",
        RecordingError::Damaged { .. } => "revisions before the damage can still be replayed: pass a smaller --at",
        RecordingError::Entry { .. } => {
            "revisions before this entry may still be valid: pass a smaller --at, or record the cluster again"
        }
        RecordingError::TooMany { .. } => "pass --at REVISION; the writes of this file are too many to list",
        _ => return Error::caused("cannot read the recording", error),
    };
    Error::caused("cannot read the recording", error).hint(hint)
}
