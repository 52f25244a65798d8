//! Connections of servers on localhost.

use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Pause after a failure to accept a connection: most likely, the process is out of file descriptors.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Accepts connections until it is dropped, which closes them. Those beyond the limit wait.
pub(crate) async fn accept<F>(listener: TcpListener, limit: usize, converse: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (mut open, slots) = (JoinSet::new(), Arc::new(Semaphore::new(limit)));
    while let Ok(slot) = slots.clone().acquire_owned().await {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => tracing::warn!(%error, "failed to accept a connection"),
            }
            sleep(RETRY_INTERVAL).await;
        };
        let conversation = converse(stream);
        open.spawn(async move {
            let _slot = slot;
            conversation.await;
        });
        while open.try_join_next().is_some() {}
    }
}
