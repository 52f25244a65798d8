//! `flyball cluster up`.

use super::record::{Files, Record};
use super::{ClusterNameArgs, parse_count, status};
use crate::allocator;
use crate::cluster::connection::block_on_threads;
use crate::cluster::kubeconfig;
use crate::error::{Error, Result, ResultExt};
use crate::render::output::Output;
use crate::render::terminal::{Style, paint, print_line};
use clap::Args;
use flyball_cluster::{
    Cluster, Controller, Controllers, DataDir, DataDirError, Endpoint, EndpointError, Nodes, OpeningStage, Options,
};
use parking_lot::Mutex;
use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

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
  flyball cluster up --without kube-scheduler --without deployment-controller
  flyball cluster up --controllers '*,-job-controller'")]
pub(crate) struct UpArgs {
    #[command(flatten)]
    named: ClusterNameArgs,
    /// Run in the foreground until SIGTERM or Ctrl-C
    #[arg(long)]
    foreground: bool,
    /// Kubeconfig to write the context to; defaults to the first file of KUBECONFIG or ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Do not write a kubeconfig context
    #[arg(long, conflicts_with = "kubeconfig")]
    no_kubeconfig: bool,
    /// Store objects, keys and certificates in this directory and load its content; by default, they are in memory
    /// only
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Port on 127.0.0.1; defaults to the last port of the data directory, or a free one
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = parse_port)]
    port: u16,
    /// Number of simulated nodes; by default none, so pods stay pending
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = parse_count)]
    nodes: u32,
    /// Controllers to run, separated by commas: '*' for all, NAME to include, -NAME to exclude
    #[arg(long, value_name = "LIST", default_value = "*", allow_hyphen_values = true)]
    controllers: Controllers,
    /// Controller to exclude; may be repeated
    #[arg(long, value_name = "NAME")]
    without: Vec<Controller>,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
    /// Output format: prints what `cluster status` prints
    #[arg(short, long, value_enum, conflicts_with_all = ["quiet", "foreground"])]
    output: Option<Output>,
}

impl UpArgs {
    fn controllers(&self) -> Controllers {
        self.without.iter().fold(self.controllers.clone(), |all, one| all.without(*one))
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| "expected a port from 0 to 65535".into())
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
    let requested =
        if args.no_kubeconfig { None } else { args.kubeconfig.clone().or_else(|| record.kubeconfig.clone()) };
    let other_port = args.port != 0 && !record.url.ends_with(&format!(":{}", args.port));
    let other_data = args.data_dir.as_ref().is_some_and(|path| record.data_dir != Some(absolute(path)));
    if args.foreground || other_port || other_data || requested.map(absolute) != record.kubeconfig {
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
    match &record.kubeconfig {
        Some(path) => print_line(&format!("  {:<8} {} in {}", "context", record.name, path.display())),
        None => print_line(&format!("  {:<8} none; its kubeconfig is {}", "context", record.own_kubeconfig.display())),
    }
    print_line(&format!("  {:<8} kubectl{} get namespaces", "try", record.kubectl_flags()));
}

/// Starts this program in the background, and waits until it serves.
#[expect(clippy::disallowed_methods, reason = "waits for another process")]
fn spawn(args: &UpArgs, files: &Files, verbose: u8) -> Result<Record> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    let log = flyball_files::private(OpenOptions::new().write(true).create(true).truncate(true)).open(files.log());
    let log = log.context(format!("cannot write {}", files.log().display()))?;
    let also = log.try_clone().context("cannot share the log")?;
    let mut command = Command::new(program);
    command.args(["cluster", "up", "--foreground", "--quiet", "--name", &args.named.name]);
    command.args(["--port", &args.port.to_string()]);
    if let Some(path) = &args.kubeconfig {
        command.arg("--kubeconfig").arg(absolute(path.clone()));
    }
    if let Some(path) = &args.data_dir {
        command.arg("--data-dir").arg(absolute(path));
    }
    if args.no_kubeconfig {
        command.arg("--no-kubeconfig");
    }
    command.args(["--nodes", &args.nodes.to_string(), "--controllers", &args.controllers().to_string()]);
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
fn serve(args: &UpArgs, files: &Files, lock: File) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // Each connection is an open file, and the default limit is low.
    let most = getrlimit(Resource::Nofile).maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
    let served = block_on_threads(async {
        let options = Options::system().context("cannot start a cluster")?;
        let directory = args.data_dir.as_ref().map(|path| DataDir::open(absolute(path))).transpose();
        let directory = directory.map_err(|error| data_dir_error(error, args))?;
        let directory = directory.map(|directory| directory.on_progress(progress_writer(files.clone())));
        let endpoint = match &directory {
            Some(directory) => Endpoint::bind_stored(args.port, &options.clock, directory).await,
            None => Endpoint::bind(args.port, &options.clock).await,
        };
        let endpoint = endpoint.map_err(|error| endpoint_error(error, args))?;
        let started = options.clock.now_rfc3339();
        let options = endpoint.aggregating(options);
        let cluster = match directory {
            Some(directory) => Cluster::open(options, directory).map_err(|error| data_dir_error(error, args))?,
            None => Cluster::new(options),
        };
        let cluster = cluster.with_certificate(endpoint.certificate());
        let mut terminated = signal(SignalKind::terminate()).context("cannot listen to signals")?;

        if args.nodes > 0 {
            let nodes = Nodes::new("node", usize::try_from(args.nodes).unwrap_or(usize::MAX));
            nodes.add_to(&cluster.admin()).await.context("cannot add nodes")?;
        }
        let record = write_record(args, files, &endpoint, started)?;
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
        // A task like those of requests: otherwise this thread would be woken for each change.
        let (controlled, controllers) = (cluster.clone(), args.controllers());
        let mut running = JoinSet::new();
        running.spawn(async move { controlled.run(&controllers).await });
        let served = tokio::select! {
            biased;
            served = endpoint.serve(&cluster, stop) => served.context("cannot serve"),
            Some(result) = running.join_next() => result.context("the controllers exited"),
        };
        running.shutdown().await;
        cluster.close();
        files.remove();
        let cleaned = record.remove_context();
        served.and(cleaned)
    });
    drop(lock);
    served
}

/// Writes the record of the cluster, which marks it as ready.
fn write_record(args: &UpArgs, files: &Files, endpoint: &Endpoint, started: String) -> Result<Record> {
    let name = &args.named.name;
    let config = endpoint.kubeconfig(name);
    let own_kubeconfig = files.kubeconfig();
    kubeconfig::write(&own_kubeconfig, &config)?;
    let kubeconfig = match (&args.kubeconfig, args.no_kubeconfig) {
        (_, true) => None,
        (Some(path), _) => Some(absolute(path.clone())),
        (None, _) => Some(absolute(kubeconfig::path()?)),
    };
    // A crashed cluster may have left its context; then the context before that one counts.
    let crashed = files.read().ok().flatten().filter(|record| record.kubeconfig == kubeconfig);
    let mut context_before = None;
    if let Some(path) = &kubeconfig {
        context_before = kubeconfig::add(path, &config)?.or_else(|| crashed.and_then(|record| record.context_before));
    }
    files.remove_progress();
    let pid = rustix::process::getpid().as_raw_nonzero().get();
    let record = Record {
        name: name.clone(),
        pid,
        url: endpoint.url(),
        own_kubeconfig,
        kubeconfig,
        context_before,
        started,
        data_dir: args.data_dir.as_ref().map(absolute),
        nodes: args.nodes,
    };
    files.write(&record)?;
    Ok(record)
}

fn endpoint_error(error: EndpointError, args: &UpArgs) -> Error {
    match error {
        EndpointError::Listen { port, source } if source.kind() == std::io::ErrorKind::AddrInUse => {
            let error = Error::new(format!("port {port} of 127.0.0.1 is in use"));
            match args.port {
                // Kubeconfigs of this cluster use this port.
                0 => error.hint("pass another --port; existing kubeconfigs point to this one"),
                _ => error.hint("pass another --port, or none to use a free one"),
            }
        }
        EndpointError::DataDir(error) => data_dir_error(error, args),
        error => Err::<(), _>(error).context("no cluster").expect_err("it is one"),
    }
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

fn absolute(path: impl AsRef<Path>) -> PathBuf {
    std::path::absolute(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_owned())
}
