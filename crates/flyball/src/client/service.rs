//! The interface of HTTP services.

use super::pool::PooledBody;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use kube::client::Body;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower::BoxError;

/// An HTTP service, which returns a response when its header arrives.
pub(crate) trait HttpService: Send + Sync + 'static {
    /// Sends a request.
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<ResponseBody>>>;
}

impl HttpService for kube::Client {
    fn send(&self, request: Request<Body>) -> BoxFuture<'_, kube::Result<Response<ResponseBody>>> {
        Box::pin(async move { Ok(Self::send(self, request).await?.map(ResponseBody::Kube)) })
    }
}

/// The body of a response.
pub(crate) enum ResponseBody {
    /// Received over a connection of [`Transport`](super::transport::Transport).
    Pooled(PooledBody),
    /// Received by kube's client.
    Kube(Body),
}

impl http_body::Body for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Pooled(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Kube(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pooled(body) => body.is_end_stream(),
            Self::Kube(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pooled(body) => body.size_hint(),
            Self::Kube(body) => body.size_hint(),
        }
    }
}
