//! Fills secrets of type `kubernetes.io/service-account-token` with a token, and deletes them with their account.
//!
//! The secret names its account in an annotation; another one holds the account's UID, so that a later account of the
//! same name does not get the token. See
//! <https://kubernetes.io/docs/concepts/configuration/secret/#serviceaccount-token-secrets>.

use crate::workload::references;
use flyball::{Action, Context, Controller, ObjectKey, Reconcile, Result};
use flyball_server::Server;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, ResourceExt};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// Creates the controller; `certificate` is the server's certificate in PEM.
pub(super) fn controller(server: Server, certificate: Option<String>) -> Controller<impl Reconcile> {
    Controller::new(Tokens { server, certificate })
        .refers_to::<ServiceAccount>(|secret: &Secret| account(secret).into_iter().collect())
        .replaces::<Secret>()
}

fn account(secret: &Secret) -> Option<ObjectKey> {
    let name = secret.annotations().get(ACCOUNT).filter(|_| secret.type_.as_deref() == Some(TYPE))?;
    Some(ObjectKey::new(secret.metadata.namespace.as_deref(), name))
}

struct Tokens {
    server: Server,
    certificate: Option<String>,
}

impl Reconcile for Tokens {
    type Resource = Secret;

    async fn reconcile(&self, secret: &Secret, cx: &Context<Secret>) -> Result<Action> {
        let Some(key) = account(secret) else { return Ok(Action::done()) };
        let noted = secret.annotations().get(ACCOUNT_UID).filter(|uid| !uid.is_empty());
        let is_ours = |account: &ServiceAccount| noted.is_none_or(|uid| account.metadata.uid.as_ref() == Some(uid));
        let known = cx.get::<ServiceAccount>(&key).await?.filter(is_ours);
        let account = match known {
            Some(account) => Some(account),
            // The cache may not show it yet.
            None => references::read(&key, cx).await?.filter(is_ours),
        };
        let secrets = Api::<Secret>::namespaced(cx.client().clone(), key.namespace().unwrap_or_default());
        let Some(account) = account else {
            let preconditions = Preconditions { uid: secret.uid(), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            return match secrets.delete(&secret.name_any(), &params).await {
                Err(kube::Error::Api(status)) if !status.is_not_found() => Err(kube::Error::Api(status).into()),
                _ => Ok(Action::done()),
            };
        };
        if let Some(filled) = self.fill(secret, &account) {
            let params = PostParams { field_manager: Some(super::MANAGER.into()), ..PostParams::default() };
            cx.record_write(&secrets.replace(&secret.name_any(), &params, &filled).await?);
        }
        Ok(Action::done())
    }
}

impl Tokens {
    /// Returns the secret with the missing data; `None` if it is complete.
    fn fill(&self, secret: &Secret, account: &ServiceAccount) -> Option<Secret> {
        let mut filled = secret.clone();
        let (namespace, uid) = (secret.namespace().unwrap_or_default(), account.uid().unwrap_or_default());
        let data = filled.data.get_or_insert_default();
        if let Some(certificate) = &self.certificate {
            data.insert("ca.crt".into(), ByteString(certificate.as_bytes().into()));
        }
        let lacks = |key: &str| data.get(key).is_none_or(|value| value.0.is_empty());
        let [lacks_namespace, lacks_token] = ["namespace", "token"].map(lacks);
        if lacks_namespace {
            data.insert("namespace".into(), ByteString(namespace.as_bytes().into()));
        }
        if lacks_token {
            let token = self.server.token_in_secret((&namespace, &account.name_any(), &uid), &secret.name_any());
            data.insert("token".into(), ByteString(token.into_bytes()));
        }
        if filled.data == secret.data {
            return None;
        }
        filled.annotations_mut().insert(ACCOUNT_UID.into(), uid);
        Some(filled)
    }
}
