//! Kinds of `policy`.

kinds! {
    mod pod_disruption_budget;
}

pub(crate) use pod_disruption_budget::KIND as POD_DISRUPTION_BUDGET;

const GROUP: &str = "policy";
