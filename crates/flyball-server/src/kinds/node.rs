//! Kinds of `node.k8s.io`.

kinds! {
    mod runtime_class;
}

pub(crate) use runtime_class::KIND as RUNTIME_CLASS;

const GROUP: &str = "node.k8s.io";
