//! `flyball dev`, and `flyball run --watch`.

use crate::Home;
use crate::run::{SAMPLE, operator};
use std::fs;
use std::io::{BufRead, BufReader, pipe};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Collects the output of a program by line.
pub(crate) struct LineReader {
    pub(crate) child: Child,
    lines: Receiver<String>,
    pub(crate) all: Vec<String>,
}

impl LineReader {
    /// Starts it with one pipe for all output, so that the output stays in order.
    pub(crate) fn new(mut command: Command) -> Self {
        let (reader, writer) = pipe().unwrap();
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let child = command.spawn().unwrap();
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(reader).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self { child, lines, all: Vec::new() }
    }

    /// Waits for a line with these words.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str) {
        loop {
            match self.lines.recv_timeout(Duration::from_secs(60)) {
                Ok(line) => {
                    self.all.push(line);
                    if self.all.last().is_some_and(|line| line.contains(words)) {
                        return;
                    }
                }
                Err(_) => panic!("no {words:?} in {:#?}", self.all),
            }
        }
    }

    /// Stops it as Ctrl-C does, and waits.
    #[track_caller]
    pub(crate) fn stop(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let status = self.child.wait().unwrap();
        self.all.extend(self.lines.iter());
        assert!(status.success(), "{status} {:#?}", self.all);
        self.all
    }
}

/// A program that is the operator, greeting in its own way.
fn write(home: &Home, greeting: &str) {
    let new = home.0.join("op.new");
    fs::write(&new, format!("#!/bin/sh\nexport GREETING='{greeting}'\nexec {} \"$@\"\n", operator())).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(new, home.0.join("op")).unwrap();
}

#[test]
fn dev_rebuilds_and_restarts_the_operator() {
    let home = Home::new("dev");
    fs::create_dir_all(home.0.join("config/samples")).unwrap();
    let sample = home.0.join("config/samples/shop.yaml");
    fs::write(&sample, SAMPLE).unwrap();
    write(&home, "first");
    let mut dev = LineReader::new(home.command(&["dev", "--program=./op"]));
    dev.until("export KUBECONFIG=");
    let kubeconfig = dev.all.last().unwrap().split('=').nth(1).unwrap().to_owned();
    dev.until("applied ClusterRoleBinding myapp-operator");
    dev.until("applied MyApp default/shop");
    dev.until("reconciled outcome=Success writes=");
    assert!(dev.all.iter().any(|line| line == "operator | first"), "{:#?}", dev.all);
    // It runs as its own service account.
    let binding =
        home.run(&["get", "clusterrolebindings", "myapp-operator", "-o=json", "--kubeconfig", &kubeconfig]).ok();
    assert!(
        binding.out.contains("\"name\": \"myapp-operator\"") && binding.out.contains("ServiceAccount"),
        "{binding:?}"
    );

    // The program is another one.
    write(&home, "second");
    dev.until("stopping the previous program");
    dev.until("shutting down");
    dev.until("operator | second");
    // The samples are others.
    fs::write(&sample, SAMPLE.replace("'1.0'", "'1.1'")).unwrap();
    dev.until("applied MyApp default/shop");
    // A failed build does not stop the previous process.
    fs::write(home.0.join("op.new"), "#!/bin/sh\nexit 3\n").unwrap();
    fs::set_permissions(home.0.join("op.new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(home.0.join("op.new"), home.0.join("op")).unwrap();
    dev.until("manifests` failed with exit status: 3");
    dev.until("the operator continues; waiting for a file change");
    fs::write(&sample, "a: [").unwrap();
    dev.until("shop.yaml is not valid YAML");
    fs::write(&sample, SAMPLE).unwrap();
    write(&home, "third");
    dev.until("operator | third");

    let output = dev.stop();
    assert!(output.iter().any(|line| line.contains("shutting down")), "{output:#?}");
    let remaining: Vec<_> = fs::read_dir(&home.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!remaining.iter().any(|name| name.to_string_lossy().starts_with("flyball-dev")), "{remaining:?}");
}

#[test]
fn failed_build_keeps_the_previous_program_running() {
    let home = Home::new("devbuild");
    write(&home, "hello");
    fs::create_dir(home.0.join("src")).unwrap();
    fs::write(home.0.join("Cargo.toml"), "").unwrap();
    let source = home.0.join("src/main.rs");
    fs::write(&source, "good").unwrap();
    // Cargo's output, without the time.
    let cargo = home.0.join("cargo");
    let op = home.0.join("op");
    let script = format!(
        "#!/bin/sh\nread line < src/main.rs\n[ \"$line\" = good ] || {{ echo 'error: expected `;`' >&2; exit 101; }}\n\
         echo '   Compiling op v0.1.0' >&2\necho '{{\"executable\": \"{}\", \"package_id\": \"op\"}}'\n",
        op.display()
    );
    fs::write(&cargo, script).unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let dev = || {
        fs::write(&source, "bad\n").unwrap();
        let mut command = home.command(&["dev"]);
        command.env("CARGO", &cargo);
        LineReader::new(command)
    };
    let mut running = dev();
    running.until("cargo | error: expected `;`");
    running.until("error: the project failed to build");
    running.until("nothing is running; waiting for a file change");
    fs::write(&source, "good\n").unwrap();
    running.until("cargo |    Compiling op v0.1.0");
    running.until("starting operator=\"myapp-operator\"");
    fs::write(&source, "worse\n").unwrap();
    running.until("the operator continues; waiting for a file change");
    fs::write(&source, "good\n\n").unwrap();
    running.until("cargo |    Compiling op v0.1.0");
    let output = running.stop();
    assert_eq!(output.iter().filter(|line| line.contains("starting operator")).count(), 1, "{output:#?}");
}

/// Returns the names of the objects of a new cluster once its controllers have created the last of them.
fn started(names: impl Fn() -> String) -> String {
    // Each attempt starts a process.
    let mut attempts = (0..1000).map(|_| names());
    attempts.find(|names| names.contains("serviceaccount/default")).expect("controllers create it")
}

#[test]
fn dev_restores_an_existing_cluster() {
    let home = Home::new("develsewhere");
    home.run(&["cluster", "up", "--quiet"]).ok();
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    write(&home, "hello");
    let names = || {
        let kinds = "crds,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,secrets,\
            validatingadmissionpolicies,validatingadmissionpolicybindings";
        home.run(&["get", kinds, "-o=name"]).ok().out
    };
    let before = started(names);
    let dev = || {
        let mut dev = LineReader::new(home.command(&["dev", "--no-cluster", "--program=./op"]));
        dev.until("reconciled outcome=Success writes=");
        dev
    };
    dev().stop();
    // Dependents of the samples were deleted before them.
    assert_eq!(names(), before);
    // An object of another client prevents the removal of the definition.
    let running = dev();
    let other = SAMPLE.split("---").next().unwrap().replace("shop", "mine");
    fs::write(home.0.join("other.yaml"), other).unwrap();
    home.run(&["apply", "-f", "other.yaml"]).ok();
    let output = running.stop();
    let note = "note: CustomResourceDefinition myapps.apps.flyball.dev was kept: it has objects";
    assert!(output.iter().any(|line| line == note), "{output:#?}");
    home.run(&["get", "myapps", "mine"]).ok();
}

#[test]
#[cfg(target_os = "linux")]
fn leftovers_of_a_killed_dev_are_removed() {
    let home = Home::new("devkilled");
    home.run(&["cluster", "up", "--quiet"]).ok();
    fs::create_dir(home.0.join("samples")).unwrap();
    fs::write(home.0.join("samples/shop.yaml"), SAMPLE).unwrap();
    write(&home, "hello");
    let names = || {
        home.run(&["get", "crds,clusterroles,serviceaccounts,secrets,validatingadmissionpolicies", "-o=name"]).ok().out
    };
    let before = started(names);
    let dev = || LineReader::new(home.command(&["dev", "--no-cluster", "--program=./op"]));
    let mut killed = dev();
    killed.until("reconciled outcome=Success writes=");
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert_ne!(names(), before);
    let mut next = dev();
    next.until("note: a previous `flyball dev` was killed and left ");
    let note = next.all.last().unwrap().clone();
    for object in
        ["CustomResourceDefinition myapps.apps.flyball.dev", "ClusterRole myapp-operator", "MyApp default/shop"]
    {
        assert!(note.contains(object), "{note}");
    }
    next.until("starting operator=");
    next.stop();
    assert_eq!(names(), before);
    let remaining = fs::read_dir(&home.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(remaining.filter(|name| name.starts_with("flyball-dev")).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn run_watch_restarts_the_operator_on_change() {
    let home = Home::new("runwatch");
    home.run(&["cluster", "up", "--quiet"]).ok();
    write(&home, "first");
    let flags = ["run", "--watch", "--program=./op", "--", "--metrics-addr=0", "--health-addr=0"];
    let mut run = LineReader::new(home.command(&flags));
    run.until("starting operator=\"myapp-operator\"");
    write(&home, "second");
    run.until("stopping the previous program");
    run.until("shutting down");
    run.until("starting operator=\"myapp-operator\"");
    assert!(run.all.iter().any(|line| line == "second"), "{:#?}", run.all);
    run.stop();
}

#[test]
#[cfg(target_os = "linux")]
#[expect(clippy::disallowed_methods, reason = "another process is given its time")]
fn operator_ends_with_its_parent() {
    let home = Home::new("leash");
    home.run(&["cluster", "up", "--quiet"]).ok();
    write(&home, "hello");
    let pid = home.0.join("pid");
    let script = fs::read_to_string(home.0.join("op")).unwrap();
    fs::write(home.0.join("op"), script.replace("exec", &format!("echo $$ > {}; exec", pid.display()))).unwrap();
    for command in ["run", "dev"] {
        let flags = [command, "--program=./op", "--", "--metrics-addr=0", "--health-addr=0"];
        let mut running = LineReader::new(home.command(&flags));
        running.until("starting operator=\"myapp-operator\"");
        // Its pid is the last one: an earlier process printed the manifests.
        let process = format!("/proc/{}/cmdline", fs::read_to_string(&pid).unwrap().trim());
        assert!(fs::read_to_string(&process).unwrap().contains("operator"), "{process}");
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        let is_there = || fs::read_to_string(&process).is_ok_and(|words| !words.is_empty());
        for _ in 0..300 {
            if is_there() {
                thread::sleep(Duration::from_millis(50));
            }
        }
        assert!(!is_there(), "{command}: {process}");
    }
}

#[test]
fn port_conflict_of_two_operators_is_explained() {
    let home = Home::new("ports");
    home.run(&["cluster", "up", "--quiet"]).ok();
    write(&home, "hello");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flag = format!("--metrics-addr={}", listener.local_addr().unwrap());
    let output = home.run(&["run", "--program=./op", "--", "--health-addr=0", &flag]);
    output.fails_with(&["cannot listen on 127.0.0.1:", "hint: --metrics-addr, --health-addr", "0 disables the server"]);
}

#[test]
fn unusable_projects_are_named() {
    let home = Home::new("nodev");
    home.run(&["dev"]).fails_with(&["no project here: no Cargo.toml or watches.yaml found in", "--program FILE"]);
    fs::write(home.0.join("watches.yaml"), "[]\n").unwrap();
    home.run(&["dev", "--no-cluster"]).fails_with(&["no cluster to connect to", "flyball cluster up"]);
    home.run(&["dev", "--samples=none.yaml"]).fails_with(&["cannot read none.yaml"]);
    assert_eq!(home.run(&["dev", "--no-cluster", "--nodes=2"]).code, Some(2));
}
