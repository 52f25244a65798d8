//! Verbs of operator-sdk, kubebuilder, their Makefiles, Helm and earlier releases, with the command to use instead.

use crate::error::Error;

const BUNDLE: &str = "flyball bundle create --image IMAGE";
const PUBLISH: &str = "flyball bundle publish";
const SUBSCRIBE: &str = "flyball deploy --image IMAGE, or flyball olm install and a Subscription to a published bundle";
const RUN_WATCHES: &str = "flyball run, in the directory of watches.yaml";
const NO_RELEASES: &str = "flyball create api --chart CHART, whose operator installs the chart for each object, \
                           or the program helm for a release without an operator";
const NO_ARCHIVES: &str = "the program helm; flyball image build packs the chart with its operator";
const HELM_READS: &str = "the program helm, which reads the releases of operators";

/// Beginnings of command lines, and the equivalent command.
const INSTEAD: &[(&str, &str)] = &[
    ("add api", "flyball create api --group cache --version v1alpha1 --kind Redis"),
    ("add controller", "flyball create api --group cache --version v1alpha1 --kind Redis --resource=false"),
    ("add crd", "flyball create api --group cache --version v1alpha1 --kind Redis --controller=false"),
    ("add webhook", "flyball create webhook --group cache --version v1alpha1 --kind Redis --validation"),
    ("add", "flyball create api, flyball create webhook"),
    ("ansible-operator", RUN_WATCHES),
    ("build-installer", "flyball render --image IMAGE"),
    ("build", "cargo build, or flyball image build"),
    ("bundle-build", PUBLISH),
    ("bundle-push", PUBLISH),
    ("catalog-build", "flyball catalog render"),
    ("cleanup", "flyball undeploy"),
    ("docker-build", "flyball image build --tag IMAGE"),
    ("docker-buildx", "flyball image build --tag IMAGE --platform linux/amd64,linux/arm64"),
    ("docker-push", "flyball image push IMAGE"),
    ("fmt", "cargo fmt"),
    ("generate bundle", BUNDLE),
    ("generate crds", "flyball manifests"),
    ("generate k8s", "cargo build: the types derive what they need, and nothing has to be generated"),
    ("generate kustomize", "flyball manifests, which writes kustomization.yaml as well"),
    ("generate openapi", "flyball manifests: schemas are in the definitions"),
    ("generate packagemanifests", BUNDLE),
    ("helm create", "flyball create api, which writes a chart"),
    ("helm get", HELM_READS),
    ("helm history", HELM_READS),
    ("helm install", NO_RELEASES),
    ("helm list", HELM_READS),
    ("helm ls", HELM_READS),
    ("helm package", NO_ARCHIVES),
    ("helm push", NO_ARCHIVES),
    ("helm registry", "--username and --password-stdin"),
    ("helm repo", "--repo URL: repositories have no aliases"),
    ("helm rollback", "flyball apply: restore the custom resource, and the operator upgrades the release"),
    ("helm search", "flyball helm show chart NAME --repo URL"),
    ("helm status", HELM_READS),
    ("helm test", HELM_READS),
    ("helm uninstall", "flyball delete: the operator uninstalls the releases of deleted custom resources"),
    ("helm upgrade", "flyball apply: the operator upgrades the release when the custom resource changes"),
    ("helm version", "flyball --version"),
    ("helm-operator", RUN_WATCHES),
    ("new", "flyball init --domain acme.io redis-operator, with --helm or --ansible if not in Rust"),
    ("olm-catalog", BUNDLE),
    ("opm", "flyball catalog"),
    ("pkgman-to-bundle", BUNDLE),
    ("run --local", "flyball run: it always runs the operator on this machine"),
    ("run bundle", SUBSCRIBE),
    ("run packagemanifests", SUBSCRIBE),
    ("test local", "flyball test"),
    ("trace", "flyball why --timeline, such as flyball why deployment/web --timeline"),
    ("up", "flyball run"),
    ("vet", "cargo clippy, flyball lint"),
];

/// Finds the command to use instead of a command line that clap rejects.
pub(crate) fn replacement_error(arguments: &[String]) -> Option<Error> {
    let mut words = arguments.iter().map(String::as_str).skip_while(|word| word.starts_with('-')).peekable();
    let is_make = words.next_if_eq(&"make").is_some();
    let first = words.peek().copied().unwrap_or("--help");
    let line = words.collect::<Vec<_>>().join(" ") + " ";
    let found = INSTEAD.iter().find(|(verb, _)| line.starts_with(&format!("{verb} ")));
    let (verb, instead) = match found {
        Some((verb, instead)) => (*verb, (*instead).to_owned()),
        None if is_make => (first, format!("flyball {first}")),
        None => return None,
    };
    let make = if is_make { "make " } else { "" };
    Some(Error::usage(format!("no such command: flyball {make}{verb}")).hint(format!("use {instead}")))
}
