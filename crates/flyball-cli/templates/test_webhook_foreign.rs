//! What the operator says of each `{{kind}}`, whose definition is somebody else's: the functions alone, without a control plane.

{{uses}}

/// Makes {{a_kind}} of this name.
fn named(name: &str) -> {{type}} {
    let object = json!({{object}});
    from_value(object).expect("the definition admits it")
}
