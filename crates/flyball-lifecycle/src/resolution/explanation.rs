//! Explanations of Subscriptions that cannot be satisfied.

use crate::bundle::Api;
use crate::catalog::CatalogKey;
use crate::channel::InvalidChannel;
use crate::requirement::InvalidConstraint;
use std::fmt;

/// A bundle that was considered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The catalog; `None` for an installed bundle.
    pub catalog: Option<CatalogKey>,
    /// The namespace of the resolution.
    pub namespace: String,
    /// The channel.
    pub channel: String,
    /// The name of the bundle.
    pub name: String,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { catalog, namespace, channel, name } = self;
        match catalog {
            Some(catalog) => write!(f, "{catalog}/{channel}/{name}"),
            None => write!(f, "@existing/{namespace}//{name}"),
        }
    }
}

/// A fact that contributes to a contradiction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fact {
    /// A Subscription has to be satisfied.
    Exists {
        /// The Subscription.
        subscription: String,
    },
    /// The catalog of a Subscription has no matching bundle.
    NoBundles {
        /// The Subscription.
        subscription: String,
        /// The missing part of the catalog.
        missing: Missing,
    },
    /// A Subscription needs one of these bundles.
    Selects {
        /// The Subscription.
        subscription: String,
        /// The bundles, preferred ones first.
        candidates: Vec<Candidate>,
    },
    /// An installed bundle belongs to no Subscription, so it stays.
    Unreferenced {
        /// The bundle.
        name: String,
    },
    /// An installed bundle stays because its Subscription cannot be satisfied.
    Stays {
        /// The bundle.
        name: String,
    },
    /// A bundle may no longer be installed.
    Deprecated {
        /// The bundle.
        candidate: Candidate,
    },
    /// A bundle has an invalid constraint, or requires bundles of an invalid channel.
    Invalid {
        /// The bundle.
        candidate: Candidate,
        /// The error.
        error: String,
    },
    /// A bundle requires another one.
    Requires {
        /// The bundle.
        name: String,
        /// The requirement.
        requirement: String,
        /// The bundles that meet it, preferred ones first.
        candidates: Vec<Candidate>,
    },
    /// A bundle cannot be installed beside the one that it replaces.
    Replaces {
        /// The bundle.
        candidate: Candidate,
        /// The installed one.
        installed: Candidate,
    },
    /// Bundles provide the same API.
    SameApi {
        /// The API.
        api: Api,
        /// The bundles.
        candidates: Vec<Candidate>,
    },
    /// Bundles come from the same package.
    SamePackage {
        /// The package.
        package: String,
        /// The bundles.
        candidates: Vec<Candidate>,
    },
}

/// A part that a catalog does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Any bundle.
    Bundles {
        /// The catalog.
        catalog: CatalogKey,
    },
    /// The package.
    Package {
        /// The package.
        package: String,
    },
    /// The channel of the package.
    Channel {
        /// The channel.
        channel: String,
        /// The package.
        package: String,
    },
    /// The starting bundle in the channel.
    StartingCsv {
        /// The bundle.
        name: String,
        /// The channel.
        channel: String,
        /// The package.
        package: String,
    },
}

/// Joins texts: `a, b and c`.
fn join(candidates: &[Candidate], last: &str) -> String {
    let texts: Vec<String> = candidates.iter().map(ToString::to_string).collect();
    match &*texts {
        [] => String::new(),
        [only] => only.clone(),
        [rest @ .., end] => format!("{} {last} {end}", rest.join(", ")),
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists { subscription } => write!(f, "subscription {subscription} exists"),
            Self::NoBundles { subscription, missing } => {
                let reference = format_args!("referenced by subscription {subscription}");
                match missing {
                    Missing::Bundles { catalog: CatalogKey { namespace, name } } => {
                        write!(f, "no operators found from catalog {name} in namespace {namespace} {reference}")
                    }
                    Missing::Package { package } => {
                        write!(f, "no operators found in package {package} in the catalog {reference}")
                    }
                    Missing::Channel { channel, package } => {
                        write!(
                            f,
                            "no operators found in channel {channel} of package {package} in the catalog {reference}"
                        )
                    }
                    Missing::StartingCsv { name, channel, package } => write!(
                        f,
                        "no operators found with name {name} in channel {channel} of package {package} in the catalog {reference}"
                    ),
                }
            }
            Self::Selects { subscription, candidates } => match candidates.len() {
                0 => write!(f, "subscription {subscription} has no candidates"),
                1 => write!(f, "subscription {subscription} requires {}", candidates[0]),
                _ => write!(f, "subscription {subscription} requires at least one of {}", join(candidates, "or")),
            },
            Self::Unreferenced { name } => {
                write!(f, "clusterserviceversion {name} exists and is not referenced by a subscription")
            }
            Self::Stays { name } => write!(f, "clusterserviceversion {name} stays installed"),
            Self::Deprecated { candidate } => write!(f, "bundle {candidate} is deprecated"),
            Self::Invalid { candidate, error } => write!(f, "bundle {candidate} is invalid: {error}"),
            Self::Requires { name, requirement, .. } => write!(f, "bundle {name} requires an operator {requirement}"),
            Self::Replaces { candidate, installed } => write!(f, "{candidate} replaces {installed}"),
            Self::SameApi { api, candidates } => write!(f, "{} provide {api}", join(candidates, "and")),
            Self::SamePackage { package, candidates } => {
                write!(f, "{} originate from package {package}", join(candidates, "and"))
            }
        }
    }
}

/// The reason why a Subscription cannot be satisfied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Explanation {
    /// A channel has no unique order.
    Channel(InvalidChannel),
    /// A bundle has an invalid constraint.
    Constraint {
        /// The bundle.
        bundle: String,
        /// The error.
        error: InvalidConstraint,
    },
    /// A minimal set of contradicting facts: without any of them there would be a solution.
    Conflict(Vec<Fact>),
    /// The search for a solution took too long.
    TooComplex,
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => write!(f, "{error}"),
            Self::Constraint { error, .. } => write!(f, "{error}"),
            Self::Conflict(facts) => {
                let mut texts: Vec<String> = facts.iter().map(ToString::to_string).collect();
                texts.sort();
                write!(f, "constraints not satisfiable: {}", texts.join(", "))
            }
            Self::TooComplex => f.write_str("the resolution takes too many steps"),
        }
    }
}

/// Subscriptions that cannot be satisfied, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolutionError {
    /// The names of the Subscriptions.
    pub subscriptions: Vec<String>,
    /// The reason.
    pub explanation: Explanation,
}
