//! A proxy for tests: it connects every tunnel to this machine, for any requested host.

use crate::{CommandOutput, Home};
use std::fs;
use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

pub(crate) struct Proxy {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let log = requests.clone();
        // Ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let log = log.clone();
                thread::spawn(move || lead(stream.unwrap(), &log));
            }
        });
        Self { url, requests }
    }

    /// Returns the requested hosts since the last call.
    pub(crate) fn tunnels(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

fn lead(mut stream: TcpStream, log: &Mutex<Vec<String>>) {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).unwrap_or(&head).to_owned();
    let port = target.rsplit(':').next().unwrap().to_owned();
    log.lock().unwrap().push(target);
    let server = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").unwrap();
    let (mut back, mut from) = (stream.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || {
        let _ = copy(&mut from, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let _ = copy(&mut stream, &mut &server);
    let _ = server.shutdown(Shutdown::Write);
}

#[test]
fn cluster_is_reached_through_its_proxy() {
    let home = Home::new("proxy");
    home.run(&["cluster", "up", "--quiet"]).ok();
    let proxy = Proxy::start();
    let get = |kubeconfig: &str, variables: &[(&str, &str)]| {
        let mut command = home.command(&["get", "namespaces", "--kubeconfig", kubeconfig]);
        CommandOutput::of(&command.envs(variables.iter().copied()).output().unwrap())
    };
    // An unreachable proxy does not affect connections to this machine.
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY"] {
        get(".kube/config", &[(name, "http://127.0.0.1:1"), ("NO_PROXY", "example.com,,")]).ok();
    }
    get(".kube/config", &[("HTTPS_PROXY", "socks5://127.0.0.1:1")]).ok();

    // The server's certificate is for this name too, which leads nowhere.
    let known = fs::read_to_string(home.0.join(".kube/config")).unwrap();
    let elsewhere = known.replace("https://127.0.0.1:", "https://kubernetes:");
    assert_ne!(known, elsewhere);
    fs::write(home.0.join("elsewhere"), &elsewhere).unwrap();
    for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        get("elsewhere", &[(name, &proxy.url), ("NO_PROXY", "example.com,10.0.0.0/8")]).ok();
        let tunnels = proxy.tunnels();
        assert!(!tunnels.is_empty() && tunnels.iter().all(|to| to.starts_with("kubernetes:")), "{name}: {tunnels:?}");
    }
    for list in ["*", "kubernetes", "KUBERNETES , x"] {
        assert_eq!(get("elsewhere", &[("HTTPS_PROXY", &proxy.url), ("no_proxy", list)]).code, Some(1), "{list}");
    }
    assert_eq!(proxy.tunnels(), [""; 0]);
    get("elsewhere", &[("HTTPS_PROXY", "socks5://me:hush@127.0.0.1:1")])
        .fails_with(&["HTTPS_PROXY: invalid proxy \"socks5://127.0.0.1:1\"", "http://proxy.example.com:3128"]);

    // The proxy of the kubeconfig takes precedence over the environment.
    let line = elsewhere.lines().find(|line| line.contains("https://kubernetes:")).unwrap();
    let indent = &line[..line.len() - line.trim_start().len()];
    let with = elsewhere.replace(line, &format!("{line}\n{}proxy-url: {}", indent.replace('-', " "), proxy.url));
    fs::write(home.0.join("with"), with).unwrap();
    get("with", &[("HTTPS_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "*")]).ok();
    assert!(!proxy.tunnels().is_empty());
}
