//! The messages of `registry.proto` of operator-registry, and of `grpc/health/v1/health.proto`.
//!
//! Tests compare the fields and their numbers with the public files.

use prost::{Enumeration, Message};

/// A deprecated package, channel or bundle.
#[derive(Clone, PartialEq, Message)]
pub struct Deprecation {
    /// The text for users.
    #[prost(string, tag = "1")]
    pub message: String,
}

/// A channel and its newest bundle.
#[derive(Clone, PartialEq, Message)]
pub struct Channel {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The name of the newest bundle.
    #[prost(string, tag = "2")]
    pub csv_name: String,
    /// Its deprecation.
    #[prost(message, optional, tag = "3")]
    pub deprecation: Option<Deprecation>,
}

/// The name of a package.
#[derive(Clone, PartialEq, Message)]
pub struct PackageName {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A package and its channels.
#[derive(Clone, PartialEq, Message)]
pub struct Package {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// The channels.
    #[prost(message, repeated, tag = "2")]
    pub channels: Vec<Channel>,
    /// The default channel.
    #[prost(string, tag = "3")]
    pub default_channel_name: String,
    /// Its deprecation.
    #[prost(message, optional, tag = "4")]
    pub deprecation: Option<Deprecation>,
}

/// An API, by group, version, kind and plural.
#[derive(Clone, PartialEq, Message)]
pub struct GroupVersionKind {
    /// The group.
    #[prost(string, tag = "1")]
    pub group: String,
    /// The version.
    #[prost(string, tag = "2")]
    pub version: String,
    /// The kind.
    #[prost(string, tag = "3")]
    pub kind: String,
    /// The plural.
    #[prost(string, tag = "4")]
    pub plural: String,
}

/// A dependency of a bundle.
#[derive(Clone, PartialEq, Message)]
pub struct Dependency {
    /// The type.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The value as JSON.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A property of a bundle.
#[derive(Clone, PartialEq, Message)]
pub struct Property {
    /// The type.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// The value as JSON.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// A bundle in a channel.
#[derive(Clone, PartialEq, Message)]
pub struct Bundle {
    /// The name.
    #[prost(string, tag = "1")]
    pub csv_name: String,
    /// The package.
    #[prost(string, tag = "2")]
    pub package_name: String,
    /// The channel.
    #[prost(string, tag = "3")]
    pub channel_name: String,
    /// The CSV.
    #[prost(string, tag = "4")]
    pub csv_json: String,
    /// The objects.
    #[prost(string, repeated, tag = "5")]
    pub object: Vec<String>,
    /// The image.
    #[prost(string, tag = "6")]
    pub bundle_path: String,
    /// The APIs that it provides.
    #[prost(message, repeated, tag = "7")]
    pub provided_apis: Vec<GroupVersionKind>,
    /// The APIs that it requires.
    #[prost(message, repeated, tag = "8")]
    pub required_apis: Vec<GroupVersionKind>,
    /// The version.
    #[prost(string, tag = "9")]
    pub version: String,
    /// The versions that it upgrades.
    #[prost(string, tag = "10")]
    pub skip_range: String,
    /// The dependencies.
    #[prost(message, repeated, tag = "11")]
    pub dependencies: Vec<Dependency>,
    /// The properties.
    #[prost(message, repeated, tag = "12")]
    pub properties: Vec<Property>,
    /// The bundle that it upgrades.
    #[prost(string, tag = "13")]
    pub replaces: String,
    /// Further bundles that it upgrades.
    #[prost(string, repeated, tag = "14")]
    pub skips: Vec<String>,
    /// Its deprecation.
    #[prost(message, optional, tag = "15")]
    pub deprecation: Option<Deprecation>,
}

/// An edge of the graph of upgrades.
#[derive(Clone, PartialEq, Message)]
pub struct ChannelEntry {
    /// The package.
    #[prost(string, tag = "1")]
    pub package_name: String,
    /// The channel.
    #[prost(string, tag = "2")]
    pub channel_name: String,
    /// The bundle.
    #[prost(string, tag = "3")]
    pub bundle_name: String,
    /// The bundle that it upgrades.
    #[prost(string, tag = "4")]
    pub replaces: String,
}

/// A request for all packages.
#[derive(Clone, PartialEq, Message)]
pub struct ListPackageRequest {}

/// A request for all bundles.
#[derive(Clone, PartialEq, Message)]
pub struct ListBundlesRequest {}

/// A request for a package.
#[derive(Clone, PartialEq, Message)]
pub struct GetPackageRequest {
    /// The name.
    #[prost(string, tag = "1")]
    pub name: String,
}

/// A request for a bundle.
#[derive(Clone, PartialEq, Message)]
pub struct GetBundleRequest {
    /// The package.
    #[prost(string, tag = "1")]
    pub pkg_name: String,
    /// The channel.
    #[prost(string, tag = "2")]
    pub channel_name: String,
    /// The name.
    #[prost(string, tag = "3")]
    pub csv_name: String,
}

/// A request for the newest bundle of a channel.
#[derive(Clone, PartialEq, Message)]
pub struct GetBundleInChannelRequest {
    /// The package.
    #[prost(string, tag = "1")]
    pub pkg_name: String,
    /// The channel.
    #[prost(string, tag = "2")]
    pub channel_name: String,
}

/// A request for the entries that upgrade a bundle.
#[derive(Clone, PartialEq, Message)]
pub struct GetAllReplacementsRequest {
    /// The name of the bundle.
    #[prost(string, tag = "1")]
    pub csv_name: String,
}

/// A request for the bundle of a channel that upgrades another.
#[derive(Clone, PartialEq, Message)]
pub struct GetReplacementRequest {
    /// The name of the other bundle.
    #[prost(string, tag = "1")]
    pub csv_name: String,
    /// The package.
    #[prost(string, tag = "2")]
    pub pkg_name: String,
    /// The channel.
    #[prost(string, tag = "3")]
    pub channel_name: String,
}

/// A request for the providers of an API. The three requests of the protocol have the same fields.
pub type GetAllProvidersRequest = GroupVersionKind;
/// A request for the newest providers of an API.
pub type GetLatestProvidersRequest = GroupVersionKind;
/// A request for the default provider of an API.
pub type GetDefaultProviderRequest = GroupVersionKind;

/// A request of the health protocol.
#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckRequest {
    /// The service; empty for the whole server.
    #[prost(string, tag = "1")]
    pub service: String,
}

/// The health of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Enumeration)]
#[repr(i32)]
pub enum ServingStatus {
    /// The state is not known.
    Unknown = 0,
    /// The service answers requests.
    Serving = 1,
    /// The service does not answer requests.
    NotServing = 2,
    /// There is no such service.
    ServiceUnknown = 3,
}

/// A response of the health protocol.
#[derive(Clone, PartialEq, Message)]
pub struct HealthCheckResponse {
    /// The health.
    #[prost(enumeration = "ServingStatus", tag = "1")]
    pub status: i32,
}
