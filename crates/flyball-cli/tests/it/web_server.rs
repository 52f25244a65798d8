//! A web server for tests: files by path, with optional authentication and redirects.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Response to a path.
#[derive(Clone, Debug)]
pub(crate) enum Page {
    File(Vec<u8>),
    /// A file for `me` with the password `secret`.
    Secret(Vec<u8>),
    Redirect(String),
    /// A response that claims a size, and ends early.
    Sized(u64),
    /// A response without a size that does not end before this many bytes.
    Endless(u64),
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<String, Page>,
    requests: Vec<String>,
}

pub(crate) struct WebServer {
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
}

impl WebServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        // Ends with the process of the tests.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let state = shared.clone();
                thread::spawn(move || answer(&stream.unwrap(), &state));
            }
        });
        Self { url, state }
    }

    pub(crate) fn put(&self, path: &str, page: Page) {
        self.state.lock().unwrap().pages.insert(path.to_owned(), page);
    }

    /// Returns the paths of the requests since the last call, with an asterisk for those with credentials.
    pub(crate) fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().unwrap().requests)
    }
}

fn answer(stream: &TcpStream, state: &Mutex<State>) {
    let mut lines = BufReader::new(stream).lines();
    while let Some(Ok(first)) = lines.next() {
        let path = first.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut authorization = None;
        for line in lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(": ").unwrap_or_default();
            if name.eq_ignore_ascii_case("authorization") {
                authorization = Some(value.to_owned());
            }
        }
        let page = {
            let mut state = state.lock().unwrap();
            state.requests.push(format!("{path}{}", if authorization.is_some() { "*" } else { "" }));
            state.pages.get(&path).cloned()
        };
        let is_known = authorization.as_deref() == Some(&format!("Basic {}", crate::registry::AUTH));
        // A client that rejects a response closes the connection.
        if write(stream, page, is_known).is_err() {
            return;
        }
    }
}

fn write(mut stream: &TcpStream, page: Option<Page>, is_known: bool) -> std::io::Result<()> {
    let head = |status: &str, rest: &str| format!("HTTP/1.1 {status}\r\n{rest}\r\n");
    let length = |bytes: &[u8]| format!("content-length: {}\r\n", bytes.len());
    match page {
        Some(Page::File(bytes)) => {
            stream.write_all(head("200 OK", &length(&bytes)).as_bytes())?;
            stream.write_all(&bytes)
        }
        Some(Page::Secret(bytes)) if is_known => write(stream, Some(Page::File(bytes)), true),
        Some(Page::Secret(_)) => stream.write_all(head("401 Unauthorized", &length(b"")).as_bytes()),
        Some(Page::Redirect(to)) => {
            let rest = format!("location: {to}\r\n{}", length(b""));
            stream.write_all(head("302 Found", &rest).as_bytes())
        }
        Some(Page::Sized(size)) => {
            stream.write_all(head("200 OK", &format!("content-length: {size}\r\n")).as_bytes())?;
            stream.shutdown(std::net::Shutdown::Both)
        }
        Some(Page::Endless(size)) => {
            stream.write_all(head("200 OK", "connection: close\r\n").as_bytes())?;
            let part = vec![b'\n'; 1 << 20];
            for _ in 0..(size >> 20) {
                stream.write_all(&part)?;
            }
            stream.shutdown(std::net::Shutdown::Both)
        }
        None => stream.write_all(head("404 Not Found", &length(b"")).as_bytes()),
    }
}
