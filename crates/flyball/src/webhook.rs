//! Asks and answers before something is stored: webhooks that validate, complete and convert objects.
//!
//! A [`Webhook`] says for one kind what is to be asked; the operator serves it, keeps the certificates, and tells the API server
//! where it is and whom to trust. See
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
//! # How the API server finds it
//!
//! `pages manifests` prints the webhook configuration, a service, and the permissions that follow; whoever deploys the operator
//! labels its pods `app.kubernetes.io/name: pages`. Everything else happens at start:
//!
//! - The operator makes an authority of its own and a serving certificate, and keeps them in a secret that all its replicas
//!   share. Both are replaced after two thirds of their year, without a call that fails: the new authority is made known
//!   an hour before anything is signed by it. The authority's key is thrown away once it has signed.
//!   Replicas judge certificates by the API server's clock, not by their own.
//! - It writes the authority into its webhook configurations and into the conversion of its custom resources.
//! - On a developer's machine, against a cluster on the same machine, it writes a URL of the loopback interface in place
//!   of the service. `--webhook-url` gives any other, which a cluster in a container on this machine needs: there
//!   `https://host.docker.internal:9443` leads here, with `--webhook-addr :9443`.
//!
//! The service leads to replicas that are ready, and a replica is ready once it has shaken hands with itself, trusting what its
//! configurations tell the API server to trust, whoever makes the certificate. A configuration that is not there, that the operator may
//! not read, or that holds no bundle makes `/readyz` say `not verified`.
//!
//! # What is not asked about
//!
//! A webhook is asked about all objects of its kind, with one exception. While the operator does not run, writes of the kind are
//! refused, unless the webhook is [optional](Webhook::optional). For kinds of Kubernetes itself, such as pods, secrets and leases, that
//! would keep the operator from ever running again, so their webhooks leave out the operator's own namespace and `kube-system`;
//! those of kinds without a namespace leave out what nodes and the controllers of `kube-system` write.
//!
//! # What others may send
//!
//! The API server shows no certificate unless its
//! [configuration](https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#authenticate-apiservers)
//! says so, and none for conversions, so everybody who reaches the port may send a review. What that can cost is bounded: 256
//! connections, of which the slowest is closed for a new one; 3 s for a handshake or a head, 5 s and one more for each 100 KiB for a
//! body; 8 MiB for a review of a write, 16 MiB for a conversion ([`Webhook::max_conversion_bytes`]), 64 MiB for all bodies together,
//! of which the largest is refused for others; reviews that would take too much once they are parsed.
//!
//! With [`Certificates::Files`] (`--webhook-cert-dir`) it serves what lies in a directory instead, and takes what
//! changes there; whoever puts it there makes the authority known. cert-manager does both, see [`Certificates::CertManager`].
//!
//! Keys come from the operating system, never from the operator's [`Rng`](crate::Rng): a simulation calls
//! [`Webhooks::handle`] instead, without TLS.

mod budget;
mod certificate;
mod convert;
mod files;
mod graft;
mod handler;
mod keeper;
mod listener;
mod lockout;
mod manifests;
mod metrics;
mod probe;
mod request;
mod scope;
mod secret;
mod service;
mod verdict;

pub(crate) use certificate::Identity;
pub(crate) use files::read as read_certificate;
pub use handler::{Defaulter, Validator};
pub(crate) use keeper::Keeper;
pub(crate) use listener::{Serving, Verification, serve, serve_tls};
pub(crate) use manifests::{Reach, Target, cluster_rules, convert_crd, manifests, service_name};
pub(crate) use metrics::WebhookMetrics;
pub use request::{AdmissionRequest, Operation};
pub(crate) use scope::{ADMISSION, Scope};
pub(crate) use service::Live;
pub use service::Webhooks;
pub use verdict::Verdict;

use crate::kind::Resource;
use convert::Conversions;
use handler::{Defaulting, Handler, Validating};
use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Serialize;
use std::fmt::{self, Display};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The port that webhooks are served at unless told otherwise, as in controller-runtime.
pub(crate) const PORT: u16 = 9443;

/// Where the certificate comes from that webhooks are served with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Certificates {
    /// The operator makes it, keeps it in a secret, and replaces it in time.
    #[default]
    Own,
    /// It lies in this directory, as `tls.crt` and `tls.key`, and is read again when it changes.
    Files(PathBuf),
    /// [cert-manager](https://cert-manager.io/docs/concepts/ca-injector/) makes it for a `Certificate` and tells the API server of
    /// its authority; the secret is mounted at the directory.
    CertManager {
        /// Namespace and name of the `Certificate`, as `namespace/name`.
        certificate: String,
        /// Where its secret is mounted.
        directory: PathBuf,
    },
}

/// What is asked before objects of one kind are stored, or shown in another version.
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
/// Writes through any version of the kind are asked about, converted to that of `T`.
pub struct Webhook<T: Resource> {
    declared: Declaration,
    kind: PhantomData<fn(T)>,
}

/// A webhook of whatever kind.
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
    /// Names what is asked, for people.
    pub(crate) fn duties(&self) -> Vec<&'static str> {
        let duties = [
            (self.defaults.is_some(), "defaults"),
            (self.validates.is_some(), "validates"),
            (self.converts.is_some(), "converts"),
        ];
        duties.into_iter().filter(|(asked, _)| *asked).map(|(_, name)| name).collect()
    }
}

impl<T: Resource + Serialize> Webhook<T> {
    /// Makes a webhook that is asked nothing yet.
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

    /// Has creations and updates validated.
    pub fn validates(mut self, validator: impl Validator<T>) -> Self {
        self.declared.validates = Some(Arc::new(Validating(validator, PhantomData)));
        self
    }

    /// Has objects completed when they are created and updated.
    pub fn defaults(mut self, defaulter: impl Defaulter<T>) -> Self {
        self.declared.defaults = Some(Arc::new(Defaulting(defaulter, PhantomData)));
        self
    }

    /// Converts between `T` and another version of the kind, and so between any two that are named here.
    ///
    /// Nothing may be lost on the way there and back; what the other version has no field for is best kept in an
    /// annotation. Of the metadata only labels and annotations can be changed by a conversion.
    pub fn converts<Other>(mut self) -> Self
    where
        T: TryFrom<Other, Error: Display>,
        Other: Resource + Serialize + TryFrom<T, Error: Display>,
    {
        let conversions = self.declared.converts.get_or_insert_with(|| Arc::new(Conversions::of::<T>()));
        Arc::get_mut(conversions).expect("nobody else has it before the webhook is declared").add::<T, Other>();
        self
    }

    /// Admits reviews of conversions with so many bytes: 16 MiB unless told otherwise, and never less.
    ///
    /// The API server sends all objects of a list in one review, so a client that lists without pages needs as much as all
    /// objects take. The largest limit of all webhooks of an operator counts.
    #[doc(alias = "limit")]
    pub fn max_conversion_bytes(mut self, bytes: usize) -> Self {
        self.declared.max_conversion_bytes = bytes;
        self
    }

    /// Has deletions validated as well.
    pub fn on_deletion(mut self) -> Self {
        self.declared.deletions = true;
        self
    }

    /// Lets writes pass when the operator cannot be asked. Unless told so, they are refused then.
    pub fn optional(mut self) -> Self {
        self.declared.scope.optional = true;
        self
    }

    /// Gives an answer this time, in whole seconds from 1 to 30: 10 unless told otherwise.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.declared.timeout = Duration::from_secs(timeout.as_secs().clamp(1, 30));
        self
    }

    /// Asks only about objects in namespaces with these labels.
    pub fn namespace_selector(mut self, selector: LabelSelector) -> Self {
        self.declared.scope.namespaces = Some(selector);
        self
    }

    /// Asks only about objects with these labels.
    pub fn object_selector(mut self, selector: LabelSelector) -> Self {
        self.declared.scope.objects = Some(selector);
        self
    }

    /// Asks only if this CEL expression holds as well, such as `!has(object.metadata.deletionTimestamp)`.
    pub fn match_condition(mut self, name: impl Into<String>, expression: impl Into<String>) -> Self {
        self.declared.scope.conditions.push(MatchCondition { name: name.into(), expression: expression.into() });
        self
    }

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
            .field("asked", &self.declared.duties())
            .finish_non_exhaustive()
    }
}
