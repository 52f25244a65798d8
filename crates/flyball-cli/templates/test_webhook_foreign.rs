//! Unit tests of the webhook functions for `{{kind}}`, a kind of another project. They need no control plane.

{{uses}}

/// Returns {{a_kind}} with the given name.
fn named(name: &str) -> {{type}} {
    let object = json!({{object}});
    from_value(object).expect("the object matches the CRD")
}
