//! Places where operators may respond.

use super::claims::Claimant;
use super::token::VARIABLE;
use crate::error::Error;

/// The location of the pages of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Url(String),
    /// A path of the API server, which forwards requests to a pod.
    Pod {
        /// The Deployment of the pod, as `NAMESPACE/NAME`.
        deployment: String,
        path: String,
    },
}

/// A place where an operator may respond.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: Address,
    /// True if the command line names it, so that it may receive the token.
    pub(crate) is_named: bool,
    /// The Deployment of an operator that was found by a label, which everyone may set.
    pub(crate) claimant: Option<Claimant>,
}

impl Endpoint {
    pub(super) fn named(address: Address) -> Self {
        Self { address, is_named: true, claimant: None }
    }

    /// Creates the endpoint of a process on this machine.
    pub(super) fn local(address: Address) -> Self {
        Self { address, is_named: false, claimant: None }
    }

    pub(super) fn discovered(address: Address, claimant: Claimant) -> Self {
        Self { address, is_named: false, claimant: Some(claimant) }
    }

    /// Returns how the command line names it.
    pub(super) fn name(&self) -> String {
        self.claimant.as_ref().map_or_else(|| self.address.to_string(), |claimant| claimant.deployment.clone())
    }

    /// Describes the missing permission of the caller.
    pub(super) fn refusal(&self, has_token: bool) -> Error {
        let needed = "it requires a token that may get /debug/flyball";
        match (self.is_named, has_token) {
            (true, false) => Error::new(format!("{needed}: set {VARIABLE}, or pass --operator-token-file FILE")),
            (true, true) => Error::new(format!("{needed}, and rejects this one")),
            (false, _) => Error::new(format!("{needed}; only named operators receive it: --operator {}", self.name())),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(text) | Self::Pod { path: text, .. } => f.write_str(text),
        }
    }
}
