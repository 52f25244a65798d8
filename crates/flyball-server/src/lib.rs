//! The embedded API server: a function from request to response.

mod request;
mod storage;
