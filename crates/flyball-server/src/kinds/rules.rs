//! Validation rules shared by many kinds: addresses, labels and selectors, ports, quantities, file system paths.
//!
//! Each rule takes a [`Field`](super::field::Field) and returns its errors, with kube-apiserver's messages.

pub(super) mod address;
pub(super) mod affinity;
pub(super) mod label;
pub(super) mod number;
pub(super) mod path;
pub(super) mod pem;
pub(super) mod port;
pub(super) mod resource;
pub(super) mod text;
pub(super) mod url;
