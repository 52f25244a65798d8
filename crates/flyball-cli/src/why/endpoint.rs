//! Places where operators may respond.

use super::token::Credentials;
use flyball_console::{Address, Claimant, Location, Origin};

/// A place where an operator may respond.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(super) location: Location,
    origin: Origin,
    /// The Deployment of an operator that was found by a label, which everyone may set.
    pub(super) claimant: Option<Claimant>,
}

impl Endpoint {
    pub(super) fn named(location: Location) -> Self {
        Self { location, origin: Origin::Named, claimant: None }
    }

    /// Creates the endpoint of a process on this machine.
    pub(super) fn local(location: Location) -> Self {
        Self { location, origin: Origin::Local, claimant: None }
    }

    pub(super) fn discovered(location: Location, claimant: Claimant) -> Self {
        Self { location, origin: Origin::Discovered, claimant: Some(claimant) }
    }

    /// Returns its address with credentials, which only named operators receive.
    pub(crate) fn address(&self, credentials: &Credentials) -> Address {
        let Credentials { token, insecure_token, authority } = credentials.clone();
        let token = token.filter(|_| self.origin == Origin::Named);
        let account = self.claimant.as_ref().map(|claimant| claimant.account.clone()).unwrap_or_default();
        let (location, origin) = (self.location.clone(), self.origin);
        Address { location, origin, account, token, insecure_token, authority }
    }
}

impl std::fmt::Display for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.location.to_string().trim_end_matches('/'))
    }
}
