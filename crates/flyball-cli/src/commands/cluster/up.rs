//! `flyball cluster up`.

use super::record::{Files, Record};
use super::serving::{self, Purpose, ServingArgs, absolute};
use super::{ClusterNameArgs, parse_count, status};
use crate::allocator;
use crate::cluster::connection::block_on_threads;
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use flyball_cluster::{
    Cluster, DataDir, DataDirError, Endpoint, EndpointError, Nodes, OpeningStage, Options, RecordingError,
};
use flyball_core::Quantity;
use flyball_files::Lock;
use parking_lot::Mutex;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};

/// Polling interval of a starting cluster.
const START_POLL: Duration = Duration::from_millis(10);
/// Timeout of a start without progress.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval of progress reports of a start.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Start a control plane and return when it is ready
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  flyball cluster up
  flyball cluster up --nodes 3
  flyball cluster up --record history.fly     for flyball replay
  flyball cluster up --without kube-scheduler --without deployment-controller
  flyball cluster up --controllers '*,-job-controller'")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Run in the foreground until SIGTERM or Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Store objects, keys and certificates in this directory and load its content; by default, they are in memory
    /// only
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Record all objects and all writes in this new file, for `flyball replay`; it contains all secrets
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Size at which the recording ends; the cluster continues
    #[arg(long, value_name = "SIZE", default_value = "256Mi", value_parser = parse_size, requires = "record")]
    record_limit: u64,
    /// Number of simulated nodes; by default none, so pods stay pending
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = parse_count)]
    nodes: u32,
    #[command(flatten)]
    serving: ServingArgs,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
    /// Output format: prints what `cluster status` prints
    #[arg(short, long, value_enum, conflicts_with_all = ["quiet", "foreground"])]
    output: Option<Output>,
}

/// Smallest limit of a recording: the objects of a new cluster take less.
const MIN_RECORDING: i64 = 1 << 20;

fn parse_size(text: &str) -> Result<u64, String> {
    let size = text.parse::<Quantity>().ok().map(|size| size.value()).filter(|size| *size >= MIN_RECORDING);
    size.and_then(|size| u64::try_from(size).ok()).ok_or_else(|| "expected a size of at least 1Mi, such as 1Gi".into())
}

pub(crate) fn cmd_up(args: UpArgs, verbose: u8) -> Result<()> {
    let files = Files::of(&args.named.name)?;
    files.prepare()?;
    let Some(lock) = files.lock()? else { return check_running(&files, &args) };
    if args.foreground {
        return serve(&args, &files, lock);
    }
    // The cluster acquires the lock itself.
    drop(lock);
    let record = spawn(&args, &files, verbose)?;
    if let Some(output) = args.output {
        return output.print(&status::of(&args.named.name, &record)?);
    }
    if !args.quiet {
        print(&record, "ready");
        hint_at_nodes(&args);
    }
    Ok(())
}

fn hint_at_nodes(args: &UpArgs) {
    if args.nodes == 0 {
        let name = args.named.flag();
        print_line(&format!("  {:<8} none; pods stay pending until: flyball cluster node add{name}", "nodes"));
    }
}

fn check_running(files: &Files, args: &UpArgs) -> Result<()> {
    let name = &args.named.name;
    let record = files.read()?.ok_or_else(|| Error::new(format!("cluster {name} is starting or stopping")))?;
    let requested = if args.serving.no_kubeconfig {
        None
    } else {
        args.serving.kubeconfig.clone().or_else(|| record.kubeconfig.clone())
    };
    let other_port = args.serving.port != 0 && !record.url.ends_with(&format!(":{}", args.serving.port));
    let other_data = args.data_dir.as_ref().is_some_and(|path| record.data_dir != Some(absolute(path)));
    let other_recording = args.record.as_ref().is_some_and(|path| record.recording != Some(absolute(path)));
    if args.foreground || other_port || other_data || other_recording || requested.map(absolute) != record.kubeconfig {
        let error = Error::new(format!("cluster {name} is already running at {}", record.url));
        return Err(error.hint(format!("flyball cluster down --name {name}")).hint("or name the new one with --name"));
    }
    if args.nodes != 0 && args.nodes != record.nodes {
        let error =
            Error::new(format!("cluster {name} is already running and was started with {} nodes", record.nodes));
        return Err(error.hint(format!("flyball cluster node add{}", args.named.flag())));
    }
    if let Some(output) = args.output {
        return output.print(&status::of(name, &record)?);
    }
    if !args.quiet {
        print(&record, "already running");
    }
    Ok(())
}

fn print(record: &Record, state: &str) {
    let pairs = [("server", record.url.clone()), ("process", record.pid.to_string())];
    print_line(&format!("cluster {} is {}", paint(Style::Strong, &record.name), paint(Style::Good, state)));
    for (what, value) in pairs {
        print_line(&format!("  {what:<8} {value}"));
    }
    if let Some(path) = &record.data_dir {
        print_line(&format!("  {:<8} {}", "data", path.display()));
    }
    if let Some(path) = &record.recording {
        print_line(&format!("  {:<8} {}", "record", path.display()));
    }
    serving::print_context(record);
}

/// Starts this program in the background, and waits until it serves.
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn spawn(args: &UpArgs, files: &Files, verbose: u8) -> Result<Record> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let log = files.create_log()?;
    let also = log.try_clone().context("cannot share the log")?;
    let mut command = Command::new(program);
    command.args(["cluster", "up", "--foreground", "--quiet", "--name", &args.named.name]);
    args.serving.pass_to(&mut command);
    if let Some(path) = &args.data_dir {
        command.arg("--data-dir").arg(absolute(path));
    }
    if let Some(path) = &args.record {
        command.arg("--record").arg(absolute(path)).args(["--record-limit", &args.record_limit.to_string()]);
    }
    command.args(["--nodes", &args.nodes.to_string()]);
    command.args((0..verbose).map(|_| "-v"));
    allocator::purge_at_once(&mut command);
    // A process group of its own, so that Ctrl-C at this terminal does not stop it. Its working directory must not
    // block unmounts.
    command.stdin(Stdio::null()).stdout(log).stderr(also).process_group(0).current_dir("/");
    files.remove_progress();
    let mut child = command.spawn().context("cannot start the cluster")?;
    let (mut progress, mut progressed) = (String::new(), Instant::now());
    while progressed.elapsed() < START_TIMEOUT {
        if let Some(record) = files.read()?.filter(|record| u32::try_from(record.pid) == Ok(child.id())) {
            return Ok(record);
        }
        if let Some(status) = child.try_wait().context("cannot wait for the cluster")? {
            let words = files.log_tail();
            // Its message is repeated without the prefix, which is added again.
            let words = words.strip_prefix("error: ").unwrap_or(&words);
            return Err(Error::new(if words.is_empty() {
                format!("the cluster exited: {status}")
            } else {
                words.into()
            }));
        }
        let now = files.read_progress();
        if now != progress {
            (progress, progressed) = (now, Instant::now());
            if !args.quiet && args.output.is_none() && !progress.is_empty() {
                print_line(&progress);
            }
        }
        thread::sleep(START_POLL);
    }
    let _ = child.kill();
    let error = Error::new(format!("the cluster made no progress for {} s", START_TIMEOUT.as_secs()));
    Err(error.hint(format!("see {}", files.log().display())))
}

/// Returns a callback that records the progress of a slow start.
#[expect(clippy::disallowed_methods, reason = "people wait in real time")]
fn progress_writer(files: Files) -> impl Fn(OpeningStage, u64, u64) + Send + Sync + 'static {
    let last = Mutex::new(Instant::now());
    move |stage, done, of| {
        let mut last = last.lock();
        if last.elapsed() >= PROGRESS_INTERVAL {
            *last = Instant::now();
            files.write_progress(&match stage {
                OpeningStage::Reading => format!("read {} of {} MiB", done >> 20, of >> 20),
                OpeningStage::Definitions => format!("compiled {done} of {of} CustomResourceDefinitions"),
                OpeningStage::Selecting => format!("indexed {done} of {of} objects"),
            });
        }
    }
}

/// Runs the cluster until a stop signal.
fn serve(args: &UpArgs, files: &Files, lock: Lock) -> Result<()> {
    serving::raise_file_limit();
    let served = block_on_threads(async {
        let options = Options::system().context("cannot start a cluster")?;
        let directory = args.data_dir.as_ref().map(|path| DataDir::open(absolute(path))).transpose();
        let directory = directory.map_err(|error| data_dir_error(error, args))?;
        let directory = directory.map(|directory| directory.on_progress(progress_writer(files.clone())));
        let port = args.serving.port;
        let endpoint = match &directory {
            Some(directory) => Endpoint::bind_stored(port, &options.clock, directory).await,
            None => Endpoint::bind(port, &options.clock).await,
        };
        let endpoint = endpoint.map_err(|error| match error {
            EndpointError::DataDir(error) => data_dir_error(error, args),
            error => serving::endpoint_error(error, port),
        })?;
        let started = options.clock.now_rfc3339();
        let options = endpoint.aggregating(options);
        let cluster = match directory {
            Some(directory) => Cluster::open(options, directory).map_err(|error| data_dir_error(error, args))?,
            None => Cluster::new(options),
        };
        let cluster = cluster.with_certificate(endpoint.certificate());
        if let Some(path) = &args.record {
            cluster.record(&absolute(path), args.record_limit).map_err(recording_error)?;
        }
        let mut terminated = signal(SignalKind::terminate()).context("cannot listen to signals")?;

        if args.nodes > 0 {
            let nodes = Nodes::new("node", usize::try_from(args.nodes).unwrap_or(usize::MAX));
            nodes.add_to(&cluster.admin()).await.context("cannot add nodes")?;
        }
        let purpose = Purpose {
            data_dir: args.data_dir.as_ref().map(absolute),
            recording: args.record.as_ref().map(absolute),
            nodes: args.nodes,
            ..Purpose::default()
        };
        let record = serving::write_record(&args.serving, files, &endpoint, started, purpose)?;
        if !args.quiet {
            print(&record, "ready");
            hint_at_nodes(args);
        }
        let stop = async {
            tokio::select! {
                biased;
                _ = terminated.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        let served = serving::run(&cluster, endpoint, args.serving.controllers(), stop).await;
        files.remove();
        let cleaned = record.remove_context();
        served.and(cleaned)
    });
    drop(lock);
    served
}

/// Adds a hint to the error about a recording.
fn recording_error(error: RecordingError) -> Error {
    let hint = match &error {
        RecordingError::Exists { .. } => "pass the name of a new file, or delete this one",
        RecordingError::TooSmall { .. } => "pass a larger --record-limit",
        _ => "pass a --record file in a directory that is writable and has free space",
    };
    Error::caused("cannot record the cluster", error).hint(hint)
}

/// Adds a hint to the error about a data directory.
fn data_dir_error(error: DataDirError, args: &UpArgs) -> Error {
    let hint = match &error {
        DataDirError::InUse { .. } => "stop that process, or pass another --data-dir",
        DataDirError::Newer { .. } => "use the release that wrote it, or pass another --data-dir",
        DataDirError::Foreign { .. } => "pass an empty or new directory",
        DataDirError::Damaged { .. } | DataDirError::Missing { .. } => {
            "restore a copy of the whole directory, or move it away to start empty"
        }
        DataDirError::NotOwned { .. } => "run as that user, or pass another --data-dir",
        DataDirError::Exposed { .. } => {
            "if no other user wrote to it, run chmod 700 on the directory and 600 on its files; otherwise pass another --data-dir"
        }
        DataDirError::NotAFile { .. } => "another user may have created it; pass another --data-dir",
        DataDirError::Io { .. } => "pass a --data-dir that is writable and has free space",
    };
    let what =
        args.data_dir.as_ref().map_or_else(String::new, |path| format!("cannot start a cluster in {}", path.display()));
    Err::<(), _>(error).context(what).expect_err("it is one").hint(hint)
}
