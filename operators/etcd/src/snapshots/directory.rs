use super::{Error, Result, Snapshots};
use crate::etcd::Chunks;
use bytes::Bytes;
use flyball::listener;
use futures_util::StreamExt;
use futures_util::stream::try_unfold;
use http::{Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// Maximum number of concurrent connections; others wait.
const CONNECTIONS: usize = 16;
/// Timeout of a request's header.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Timeout of a transfer.
const TIME: Duration = Duration::from_secs(30 * 60);
const PIECE_BYTES: usize = 64 << 10;

/// Stores snapshots in a directory, on a volume that outlives the operator's pod, and serves them.
#[derive(Clone, Debug)]
pub struct SnapshotDirectory {
    path: PathBuf,
    url: String,
    limit: u64,
}

impl SnapshotDirectory {
    /// Stores snapshots of up to `limit` bytes at `path`; members fetch them below `url`.
    pub fn new(path: impl Into<PathBuf>, url: impl Into<String>, limit: u64) -> Self {
        Self { path: path.into(), url: url.into(), limit }
    }

    /// Returns the path of a snapshot, if the name is valid and does not leave the directory.
    fn file(&self, name: &str) -> io::Result<PathBuf> {
        let is_fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        match !name.starts_with('.') && !name.is_empty() && name.chars().all(is_fit) {
            true => Ok(self.path.join(name)),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    async fn write(&self, name: &str, path: &Path, partial: &Path, mut snapshot: Chunks) -> Result<u64> {
        let storage_error = |source| Error::Place { name: name.into(), source };
        fs::create_dir_all(&self.path).await.map_err(storage_error)?;
        let (mut file, mut size) = (File::create(partial).await.map_err(storage_error)?, 0);
        while let Some(piece) = snapshot.next().await {
            let piece = piece.map_err(|source| Error::Source { name: name.into(), source })?;
            size += piece.len() as u64;
            if size > self.limit {
                return Err(Error::TooLarge { name: name.into(), limit: self.limit });
            }
            file.write_all(&piece).await.map_err(storage_error)?;
        }
        file.sync_all().await.map_err(storage_error)?;
        fs::rename(partial, path).await.map_err(storage_error)?;
        Ok(size)
    }

    /// Serves the snapshots to all clients while it is polled.
    ///
    /// Restrict access to members: a client with the name of a snapshot can read all of it.
    pub async fn serve(self, listener: TcpListener) {
        listener::accept(listener, CONNECTIONS, |stream| {
            let folder = self.clone();
            async move {
                let response = service_fn(|request: Request<Incoming>| folder.respond(request));
                let mut server = hyper::server::conn::http1::Builder::new();
                server.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).keep_alive(false);
                let _ = tokio::time::timeout(TIME, server.serve_connection(TokioIo::new(stream), response)).await;
            }
        })
        .await;
    }

    async fn respond(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<UnsyncBoxBody<Bytes, io::Error>>, Infallible> {
        let found = async {
            let path = self.file(request.uri().path().trim_start_matches('/')).ok()?;
            let file = File::open(path).await.ok().filter(|_| request.method() == Method::GET)?;
            Some((file.metadata().await.ok().filter(|data| data.is_file())?.len(), file))
        };
        let Some((size, file)) = found.await else {
            let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        };
        let pieces = try_unfold(file, |mut file| async move {
            let mut piece = vec![0; PIECE_BYTES];
            let read = file.read(&mut piece).await?;
            piece.truncate(read);
            Ok((read > 0).then(|| (Frame::data(Bytes::from(piece)), file)))
        });
        let mut response = Response::new(StreamBody::new(pieces).boxed_unsync());
        response.headers_mut().insert(CONTENT_LENGTH, size.into());
        Ok(response)
    }
}

impl Snapshots for SnapshotDirectory {
    async fn save(&self, name: &str, snapshot: Chunks) -> Result<u64> {
        let path = self.file(name).map_err(|source| Error::Place { name: name.into(), source })?;
        let partial = path.with_extension("partial");
        let saved = self.write(name, &path, &partial, snapshot).await;
        if saved.is_err() {
            let _ = fs::remove_file(&partial).await;
        }
        saved
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let removed = match self.file(name) {
            Ok(path) => fs::remove_file(path).await,
            Err(error) => Err(error),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::Place { name: name.into(), source: error })
            }
            _ => Ok(()),
        }
    }

    fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.url.trim_end_matches('/'))
    }
}
