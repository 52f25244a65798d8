//! Admission and conversion webhooks: validate, default and convert objects before they are stored.
//!
//! A [`Webhook`] declares the calls for one kind; the operator serves it, rotates its certificates, and publishes its
//! address and authority to the API server. See
//! <https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/>.
//!
//! ```no_run
//! use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
//! use flyball::{FieldError, Operator};
//! use k8s_openapi::api::core::v1::ConfigMap;
//!
//! fn main() -> std::process::ExitCode {
//!     let pages = Webhook::new().validates(|request: &AdmissionRequest<ConfigMap>| {
//!         let empty = request.object().data.as_ref().is_none_or(|data| data.is_empty());
//!         Ok(Verdict::from_errors(empty.then(|| FieldError::required("data", "a page needs a text"))))
//!     });
//!     Operator::new("pages").webhook(pages).main()
//! }
//! ```
//!
//! # Discovery by the API server
//!
//! `pages manifests` prints the webhook configuration, a service, and the required permissions; the deployment must
//! label its pods `app.kubernetes.io/name: pages`. At start:
//!
//! - The operator issues a certificate authority and a serving certificate, and stores them in a secret that all its
//!   replicas share. Both are replaced after two thirds of their year, without a failed call: the new authority is
//!   published an hour before it signs anything. The key of the authority is discarded once it has signed. Replicas
//!   compare certificates with the API server's clock instead of their own.
//! - It writes the authority into its webhook configurations and into the conversion of its custom resources.
//! - On a developer's machine, against a cluster on the same machine, it writes a URL of the loopback interface
//!   instead of the service. `--webhook-url` sets any other URL. A cluster in a container on this machine needs
//!   `https://host.docker.internal:9443`, with `--webhook-addr :9443`.
//!
//! The service selects replicas that are ready. A replica is ready once it has completed a handshake with itself, with
//! the authority in its configurations, wherever the certificate comes from. A configuration that is missing, that the
//! operator may not read, or that has no bundle makes `/readyz` report `not verified`.
//!
//! With [`Certificates::Files`] (`--webhook-cert-dir`) it serves the certificate in a directory, and reads it again
//! when it changes; the authority has to be published separately. cert-manager does both, see
//! [`Certificates::CertManager`].
//!
//! # Excluded objects
//!
//! A webhook is called for all objects of its kind, with one exception. While the operator is down, writes of the kind
//! are rejected, unless the webhook is [optional](Webhook::optional). For built-in kinds such as pods, secrets and
//! leases, this would keep the operator from ever starting again. So their webhooks exclude the operator's own
//! namespace and `kube-system`; those of cluster-scoped kinds exclude writes of nodes and of the controllers of
//! `kube-system`.
//!
//! # Limits
//!
//! The API server presents no client certificate unless its
//! [configuration](https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers)
//! says so, and none for conversions, so every peer that reaches the port may send reviews. Their cost is bounded: 256
//! connections, of which the slowest is closed for a new one; 3 s for a handshake or a request head; 5 s for a body,
//! and one more for each 100 KiB; 8 MiB for a review of a write, 16 MiB for a conversion
//! ([`Webhook::max_conversion_bytes`]), 64 MiB for all bodies together, of which the largest is rejected; 96 MiB for
//! all parsed reviews, 128 MiB for all objects that are decoded from them as the operator's types, 64 MiB for those of
//! conversions. A review that takes more than 64 MiB of typed objects alone is rejected, others wait. 8 MiB more of
//! each of the last three are reserved for small reviews, so that an ordinary one, of up to 64 KiB, never waits for
//! large ones.
//!
//! Keys come from the operating system, never from the operator's [`Rng`](crate::Rng): a simulation calls
//! [`Webhooks::handle`] instead, without TLS.

mod budget;
mod certificate;
mod convert;
mod files;
mod handler;
mod listener;
mod lockout;
mod manifests;
mod merge;
mod meter;
mod metrics;
mod probe;
mod request;
mod rotator;
mod scope;
mod secret;
mod service;
mod verdict;

pub(crate) use certificate::Identity;
pub(crate) use files::read as read_certificate;
pub use handler::{Defaulter, Validator};
pub(crate) use listener::{ServingCertificate, Verification, serve, serve_tls};
pub(crate) use manifests::{Target, WebhookAddress, cluster_rules, convert_crd, manifests, service_name};
pub(crate) use metrics::WebhookMetrics;
pub use request::{AdmissionRequest, Operation};
pub(crate) use rotator::CertificateRotator;
pub(crate) use scope::{ADMISSION, Scope, scope_methods};
pub(crate) use service::OperatorState;
pub use service::Webhooks;
pub use verdict::Verdict;

use crate::kind::Resource;
use convert::Conversions;
use handler::{DefaultingHandler, Handler, ValidationHandler};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Default port of webhooks, as in controller-runtime.
pub(crate) const PORT: u16 = 9443;

/// Source of the certificate that webhooks are served with.
#[doc(alias = "certwatcher")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Certificates {
    /// The operator issues it, keeps it in a secret, and rotates it.
    #[default]
    Own,
    /// Files `tls.crt` and `tls.key` in this directory, which are read again when they change.
    Files(PathBuf),
    /// [cert-manager](https://cert-manager.io/docs/concepts/ca-injector/) issues it for a `Certificate` and publishes
    /// its authority; the secret is mounted at the directory.
    CertManager {
        /// Namespace and name of the `Certificate`, as `namespace/name`.
        certificate: String,
        /// The directory where its secret is mounted.
        directory: PathBuf,
    },
}

/// The admission and conversion webhooks of one kind.
///
/// ```
/// # use flyball::webhook::{AdmissionRequest, Verdict, Webhook};
/// # use kube::CustomResource;
/// # use serde::{Deserialize, Serialize};
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
/// #[kube(group = "example.com", version = "v1", kind = "Site", namespaced)]
/// struct SiteSpec {
///     titles: Vec<String>,
/// }
///
/// mod v1beta1 {
/// # use super::*;
///     #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, schemars::JsonSchema)]
///     #[kube(group = "example.com", version = "v1beta1", kind = "Site", namespaced)]
///     pub struct SiteSpec {
///         pub title: String,
///     }
/// }
///
/// impl From<v1beta1::Site> for Site {
///     fn from(old: v1beta1::Site) -> Self {
///         Self { metadata: old.metadata, spec: SiteSpec { titles: vec![old.spec.title] } }
///     }
/// }
///
/// impl TryFrom<Site> for v1beta1::Site {
///     type Error = &'static str;
///
///     fn try_from(new: Site) -> Result<Self, Self::Error> {
///         let [title] = <[String; 1]>::try_from(new.spec.titles).map_err(|_| "v1beta1 holds one title")?;
///         Ok(Self { metadata: new.metadata, spec: v1beta1::SiteSpec { title } })
///     }
/// }
///
/// # fn main() {
/// let webhook = Webhook::new()
///     .defaults(|site: &mut Site, _: &AdmissionRequest<Site>| {
///         site.spec.titles.iter_mut().for_each(|title| *title = title.trim().to_owned());
///         Ok(())
///     })
///     .validates(|request: &AdmissionRequest<Site>| {
///         let long = request.object().spec.titles.len() > 1;
///         Ok(if long { Verdict::allow().warn("clients of v1beta1 cannot read this") } else { Verdict::allow() })
///     })
///     .converts::<v1beta1::Site>();
/// # }
/// ```
///
/// It is called for writes through any version of the kind, converted to the version of `T`.
#[doc(alias = "WebhookManagedBy")]
#[must_use = "a webhook does nothing until it is added to an operator"]
pub struct Webhook<T: Resource> {
    declared: Declaration,
    kind: PhantomData<fn(T)>,
}

/// A webhook whose type is erased.
pub(crate) struct Declaration {
    pub(crate) scope: Scope,
    validates: Option<Arc<dyn Handler>>,
    defaults: Option<Arc<dyn Handler>>,
    converts: Option<Arc<Conversions>>,
    deletions: bool,
    timeout: Duration,
    max_conversion_bytes: usize,
}

impl Declaration {
    /// Returns the names of the calls.
    pub(crate) fn call_names(&self) -> Vec<&'static str> {
        let call_names = [
            (self.defaults.is_some(), "defaults"),
            (self.validates.is_some(), "validates"),
            (self.converts.is_some(), "converts"),
        ];
        call_names.into_iter().filter(|(is_declared, _)| *is_declared).map(|(_, name)| name).collect()
    }
}

impl<T: Resource + Serialize> Webhook<T> {
    /// Creates a webhook that serves no calls yet.
    pub fn new() -> Self {
        let declared = Declaration {
            scope: Scope::of::<T>(),
            validates: None,
            defaults: None,
            converts: None,
            deletions: false,
            timeout: Duration::from_secs(10),
            max_conversion_bytes: service::MAX_CONVERSION_BYTES,
        };
        Self { declared, kind: PhantomData }
    }

    /// Adds a validator of creations and updates.
    #[doc(alias = "CustomValidator")]
    #[doc(alias = "ValidatingWebhook")]
    #[doc(alias = "WithValidator")]
    #[doc(alias = "on.validate")]
    pub fn validates(mut self, validator: impl Validator<T>) -> Self {
        self.declared.validates = Some(Arc::new(ValidationHandler(validator, PhantomData)));
        self
    }

    /// Adds a defaulter of creations and updates.
    #[doc(alias = "CustomDefaulter")]
    #[doc(alias = "MutatingWebhook")]
    #[doc(alias = "WithDefaulter")]
    #[doc(alias = "on.mutate")]
    pub fn defaults(mut self, defaulter: impl Defaulter<T>) -> Self {
        self.declared.defaults = Some(Arc::new(DefaultingHandler(defaulter, PhantomData)));
        self
    }

    /// Adds the conversion between `T` and another version of the kind, and so between any two versions that are
    /// added.
    ///
    /// A conversion there and back must not lose data; keep data without a field in the other version in an annotation.
    /// A conversion may change only labels and annotations of the metadata.
    #[doc(alias = "Hub")]
    #[doc(alias = "Convertible")]
    pub fn converts<Other>(mut self) -> Self
    where
        T: TryFrom<Other, Error: Display>,
        Other: Resource + Serialize + TryFrom<T, Error: Display>,
    {
        let conversions = self.declared.converts.get_or_insert_with(|| Arc::new(Conversions::of::<T>()));
        Arc::get_mut(conversions)
            .expect("there is a single reference before the webhook is declared")
            .add::<T, Other>();
        self
    }

    /// Sets the largest conversion review that is accepted: 16 MiB by default, and never less.
    ///
    /// The API server sends all objects of a list in one review, so a client that lists without pages needs as much as
    /// all objects take. The largest limit of all webhooks of an operator counts.
    #[doc(alias = "limit")]
    pub fn max_conversion_bytes(mut self, bytes: usize) -> Self {
        self.declared.max_conversion_bytes = bytes;
        self
    }

    /// Validates deletions as well.
    pub fn on_deletion(mut self) -> Self {
        self.declared.deletions = true;
        self
    }

    /// Sets the timeout of calls, in whole seconds from 1 to 30: 10 by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.declared.timeout = Duration::from_secs(timeout.as_secs().clamp(1, 30));
        self
    }

    scope_methods!("webhook", "while the webhook cannot be called");

    pub(crate) fn declared(self) -> Declaration {
        self.declared
    }
}

impl<T: Resource + Serialize> Default for Webhook<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Resource> fmt::Debug for Webhook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Declaration { scope, .. } = &self.declared;
        f.debug_struct("Webhook")
            .field("kind", &scope.kind)
            .field("calls", &self.declared.call_names())
            .finish_non_exhaustive()
    }
}
