//! `flyball cluster`.

use crate::Home;
use std::fs;
use std::net::TcpListener;

#[test]
fn cluster_starts_and_stops() {
    let home = Home::new("up");
    let config = home.0.join(".kube/config");
    home.run(&["cluster", "status"]).fails_with(&["not running", "flyball cluster up"]);
    assert_eq!(home.run(&["cluster", "down"]).ok().out, "flyball is not running\n");

    let up = home.run(&["cluster", "up"]).ok();
    assert!(up.out.starts_with("cluster flyball is ready\n"), "{up:?}");
    assert!(fs::read_to_string(&config).unwrap().contains("current-context: flyball"));
    let status: serde_json::Value =
        serde_json::from_str(&home.run(&["cluster", "status", "-o", "json"]).ok().out).unwrap();
    assert_eq!((&status["running"], &status["ready"]), (&true.into(), &true.into()));
    assert!(status["version"].as_str().unwrap().starts_with("v1."));
    home.run(&["get", "pods", "--context", "nope"])
        .fails_with(&["context \"nope\" not found", "the contexts are flyball"]);
    let again = home.run(&["cluster", "up"]).ok();
    assert!(again.out.starts_with("cluster flyball is already running\n"), "{again:?}");
    home.run(&["cluster", "up", "--port", "1"]).fails_with(&["already running", "cluster down"]);
    home.run(&["cluster", "up", "--nodes", "2"])
        .fails_with(&["already running and was started with 0 nodes", "flyball cluster node add"]);

    assert_eq!(home.run(&["cluster", "down"]).ok().out, "flyball is down\n");
    assert!(!fs::read_to_string(&config).unwrap().contains("flyball"));
    home.run(&["cluster", "status"]).fails_with(&["not running"]);
}

#[test]
fn clusters_are_listed() {
    let home = Home::new("list");
    assert_eq!(home.run(&["cluster", "list"]).ok().out, "no clusters found; start one: flyball cluster up\n");
    home.run(&["cluster", "up", "--name", "two", "--nodes", "2", "--quiet", "--no-kubeconfig"]).ok();
    let output = home.run(&["cluster", "list"]).ok().out;
    assert!(
        output.starts_with("NAME   STATE     SERVER ") && output.contains("\ntwo    running   https://127.0.0.1:"),
        "{output}"
    );
    let json: serde_json::Value = serde_json::from_str(&home.run(&["cluster", "list", "-o", "json"]).ok().out).unwrap();
    assert_eq!((&json[0]["name"], &json[0]["state"], &json[0]["nodes"]), (&"two".into(), &"running".into(), &2.into()));
    home.run(&["cluster", "down", "--name", "two"]).ok();
    assert_eq!(home.run(&["cluster", "list", "-o", "json"]).ok().out, "[]\n");
}

#[test]
fn invalid_number_is_reported_with_its_flag() {
    let home = Home::new("number");
    for (line, message) in [
        ("cluster up --nodes many", "invalid value 'many' for '--nodes <N>': expected a whole number, such as 3\n"),
        ("cluster up --port 70000", "invalid value '70000' for '--port <N>': expected a port from 0 to 65535\n"),
        ("dev --nodes=-1", "invalid value '-1' for '--nodes <N>': expected a whole number, such as 3\n"),
    ] {
        let output = home.run(&line.split(' ').collect::<Vec<_>>());
        assert!(output.code == Some(2) && output.err.contains(message), "{output:?}");
    }
}

#[test]
fn only_the_given_kubeconfig_is_changed() {
    let home = Home::new("named");
    home.run(&["cluster", "up", "--kubeconfig", "here.yaml", "--quiet"]).ok();
    assert!(fs::read_to_string(home.0.join("here.yaml")).unwrap().contains("current-context: flyball"));
    assert!(!home.0.join(".kube").exists());
    let down = |flags: &[&str]| home.run(&[&["cluster", "down", "--quiet"], flags].concat());
    down(&["--kubeconfig", "other.yaml"]).fails_with(&["no cluster has its context in", "other.yaml", "cluster list"]);
    down(&["--name", "flyball", "--kubeconfig", "other.yaml"]).fails_with(&["the context of cluster flyball is in"]);
    home.run(&["cluster", "up", "--name", "b", "--kubeconfig", "here.yaml", "--quiet"]).ok();
    down(&["--kubeconfig", "here.yaml"]).fails_with(&["has the contexts of b, flyball", "--name NAME"]);
    down(&["--name", "b", "--kubeconfig", "here.yaml"]).ok();
    down(&["--kubeconfig", "here.yaml"]).ok();
    assert!(!fs::read_to_string(home.0.join("here.yaml")).unwrap().contains("flyball"));
    home.run(&["cluster", "up", "--no-kubeconfig"]).ok();
    assert!(!home.0.join(".kube").exists());
}

#[test]
fn port_in_use_is_named() {
    let home = Home::new("port");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let output = home.run(&["cluster", "up", "--port", &port]);
    output.fails_with(&[&format!("port {port} of 127.0.0.1 is in use"), "--port"]);
    assert!(!home.0.join(".kube/config").exists(), "what failed leaves nothing behind");
}

#[test]
fn invalid_kubeconfig_is_not_overwritten() {
    let home = Home::new("broken");
    fs::create_dir(home.0.join(".kube")).unwrap();
    fs::write(home.0.join(".kube/config"), "}{").unwrap();
    home.run(&["cluster", "up"]).fails_with(&[".kube/config is not a kubeconfig"]);
    assert_eq!(fs::read_to_string(home.0.join(".kube/config")).unwrap(), "}{");
}

#[test]
fn killed_cluster_can_be_cleaned_up() {
    let home = Home::new("killed");
    home.run(&["cluster", "up"]).ok();
    let status: serde_json::Value =
        serde_json::from_str(&home.run(&["cluster", "status", "-o", "json"]).ok().out).unwrap();
    let pid = rustix::process::Pid::from_raw(status["pid"].as_i64().unwrap() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    while home.run(&["cluster", "status"]).code == Some(0) {}
    home.run(&["cluster", "up"]).ok();
    home.run(&["cluster", "down"]).ok();
    let config = fs::read_to_string(home.0.join(".kube/config")).unwrap();
    assert!(!config.contains("flyball"), "{config}");
}

#[test]
fn controllers_can_be_excluded() {
    let home = Home::new("controllers");
    let bad = home.run(&["cluster", "up", "--controllers", "*,-nobody"]);
    assert_eq!(bad.code, Some(2));
    assert!(bad.err.contains("unknown controller \"nobody\"") && bad.err.contains("kube-scheduler"), "{bad:?}");
    let up = home.run(&["cluster", "up", "--controllers", "*,-job-controller", "--without", "kubelet"]).ok();
    assert!(up.out.contains("flyball cluster node add"), "{up:?}");
    // Without a kubelet nodes do not become ready.
    home.run(&["cluster", "node", "add", "--no-wait"]).ok();
    let list: serde_json::Value =
        serde_json::from_str(&home.run(&["cluster", "node", "list", "-o", "json"]).ok().out).unwrap();
    assert_eq!(list[0]["ready"], false);
}
