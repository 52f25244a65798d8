//! Kinds of `scheduling.k8s.io`.

kinds! {
    mod priority_class;
}

pub(crate) use priority_class::KIND as PRIORITY_CLASS;

const GROUP: &str = "scheduling.k8s.io";
