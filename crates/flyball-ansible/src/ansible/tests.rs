//! Processes of runs: their environment, their output, and their termination.

use super::*;
use std::fs;
use std::path::Path;
use std::time::Duration;

#[tokio::test]
async fn long_lines_are_truncated() {
    let mut text = "x".repeat(40 << 20);
    text.push_str("\nlast\n\nend");
    let mut from = text.as_bytes();
    let mut lines = Vec::new();
    while let Some(line) = next_line(&mut from).await.unwrap() {
        lines.push(line);
    }
    assert_eq!(lines[0].len(), MAX_LINE_BYTES);
    assert_eq!(lines[1..], ["last", "", "end"]);
}

/// Starts a shell as the leader of a group.
fn start(script: &str, folder: &Path) -> Group {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    Group::start(command, folder).unwrap()
}

fn folder(name: &str) -> PathBuf {
    let folder = env::temp_dir().join(format!("flyball-group-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    folder
}

/// Waits until the processes with IDs in these files are gone; zombies count as gone.
async fn gone(folder: &Path, files: &[&str]) {
    for file in files {
        let path = folder.join(file);
        let pid = loop {
            match fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => break text.trim().to_owned(),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let alive = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        for _ in 0..500 {
            if !alive() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!alive(), "the process of {file} is still running");
    }
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn grandchildren_end_with_their_leader() {
    let folder = folder("leader");
    let at = folder.display();
    // One process in the group, which keeps the output open, and one that left it.
    let script = format!(
        "sh -c 'echo $$ >{at}/a.new; mv {at}/a.new {at}/a; exec sleep 1000' & \
         setsid sh -c 'echo $$ >{at}/b.new; mv {at}/b.new {at}/b; exec sleep 1000' & \
         while ! [ -e {at}/a ] || ! [ -e {at}/b ]; do sleep 0.05; done; exit 3"
    );
    let mut group = start(&script, &folder);
    let (mut out, _) = group.output().unwrap();
    let mut output = Vec::new();
    let (status, read) = tokio::join!(group.ended(), out.read_to_end(&mut output));
    read.unwrap();
    assert_eq!(status.unwrap().code(), Some(3));
    gone(&folder, &["a", "b"]).await;
    fs::remove_dir_all(folder).unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn grandchildren_end_with_a_canceled_run() {
    let folder = folder("cut");
    let at = folder.display();
    let script = format!(
        "setsid sh -c 'echo $$ >{at}/b.new; mv {at}/b.new {at}/b; exec sleep 1000' & \
         sh -c 'echo $$ >{at}/a.new; mv {at}/a.new {at}/a; exec sleep 1000'"
    );
    let group = start(&script, &folder);
    while !(folder.join("a").exists() && folder.join("b").exists()) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(group);
    gone(&folder, &["a", "b"]).await;
    fs::remove_dir_all(folder).unwrap();
}
