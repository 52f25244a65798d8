//! Kinds of `apiextensions.k8s.io`.

kinds! {
    pub(crate) mod custom_resource_definition;
}

pub(crate) use custom_resource_definition::KIND as CUSTOM_RESOURCE_DEFINITION;

const GROUP: &str = "apiextensions.k8s.io";
