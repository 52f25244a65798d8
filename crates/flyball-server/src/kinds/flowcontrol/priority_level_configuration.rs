//! Priority levels: shares of the server, and queues.

use super::{EXEMPT, GROUP, bootstrap, check_status, fixed};
use crate::kinds::field::{Errors, Field};
use crate::kinds::fill::Fields;
use crate::kinds::kind::{Checks, Kind};
use crate::kinds::printer::{Heading, NONE, Row, View};
use crate::kinds::subresource::{Part, Subresource as Sub};
use flyball_core::Object;
use serde_json::Value;

pub(crate) static KIND: Kind = Kind::new(GROUP, "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations")
    .printed(COLUMNS, row)
    .default(default)
    .checks(Checks::Whole)
    .validate(validate)
    .cluster()
    .generation()
    .subresources(&[Sub::STATUS]);

const COLUMNS: &[Heading] = &[
    Heading::NAME,
    Heading::text(
        "Type",
        "`type` indicates whether this priority level is subject to limitation on request execution.  A value of \
         `\"Exempt\"` means that requests of this priority level are not subject to a limit (and thus are never \
         queued) and do not detract from the capacity made available to other priority levels.  A value of \
         `\"Limited\"` means that (a) requests of this priority level _are_ subject to limits and (b) some of the \
         server's limited capacity is made available exclusively to this priority level. Required.",
    ),
    Heading::text(
        "NominalConcurrencyShares",
        "`nominalConcurrencyShares` (NCS) contributes to the computation of the NominalConcurrencyLimit (NominalCL) \
         of this level. This is the number of execution seats available at this priority level.",
    ),
    Heading::text(
        "Queues",
        "`queues` is the number of queues for this priority level. The queues exist independently at each apiserver. \
         The value must be positive.  Setting it to 1 effectively precludes shufflesharding and thus makes the \
         distinguisher method of associated flow schemas irrelevant.  This field has a default value of 64.",
    ),
    Heading::text(
        "HandSize",
        "`handSize` is a small positive number that configures the shuffle sharding of requests into queues.  When \
         enqueuing a request at this priority level the request's flow identifier (a string pair) is hashed and the \
         hash value is used to shuffle the list of queues and deal a hand of the size specified here.  The request \
         is put into one of the shortest queues in that hand. `handSize` must be no larger than `queues`, and should \
         be significantly smaller (so that a few heavy flows do not saturate most of the queues).  See the \
         user-facing documentation for more extensive guidance on setting this field.  This field has a default \
         value of 8.",
    ),
    Heading::text(
        "QueueLengthLimit",
        "`queueLengthLimit` is the maximum number of requests allowed to be waiting in a given queue of this \
         priority level at a time; excess requests are rejected.  This value must be positive.  If not specified, it \
         will be defaulted to 50.",
    ),
    Heading::AGE,
];

/// Bits of a flow's hash for shuffle sharding.
const MAX_HASH_BITS: f64 = 60.0;

const MAX_QUEUES: i64 = 10_000_000;

fn default(level: &mut Object) {
    let spec = level.inner_or_new("spec");
    if let Some(exempt) = spec.inner("exempt") {
        exempt.fill("nominalConcurrencyShares", 0);
        exempt.fill("lendablePercent", 0);
    }
    let Some(limited) = spec.inner("limited") else { return };
    limited.fill("nominalConcurrencyShares", 30);
    limited.fill("lendablePercent", 0);
    if let Some(queuing) = limited.inner("limitResponse").and_then(|response| response.inner("queuing")) {
        for (field, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
            if queuing.get(field).and_then(Value::as_i64).unwrap_or_default() == 0 {
                queuing.set(field, value);
            }
        }
    }
}

fn validate(object: &Object, _: Option<&Object>, part: Part) -> Errors {
    let root = Field::root(object);
    if part == Part::Status {
        return check_status(&root);
    }
    let spec = root.at("spec");
    let (ty, limited, exempt) = (spec.at("type"), spec.at("limited"), spec.at("exempt"));
    let mut errors = Errors::new();
    if (object.name() == EXEMPT) != (ty.text() == "Exempt") {
        errors.push(ty.invalid_as(ty.text(), "type must be 'Exempt' if and only if name is 'exempt'"));
    }
    match ty.text() {
        "Exempt" => {
            if limited.is_set() {
                errors.push(limited.forbidden("must be nil if the type is not Limited"));
            }
            errors.extend(shares(&exempt));
        }
        "Limited" => {
            if exempt.is_set() {
                errors.push(exempt.forbidden("must be nil if the type is Limited"));
            }
            match limited.is_set() {
                true => errors.extend(limits(&limited)),
                false => errors.push(limited.required("must not be empty when type is Limited")),
            }
        }
        _ => errors.push(ty.not_supported(&["Exempt", "Limited"])),
    }
    let mandatory = bootstrap::mandatory_level(object.name()).map(|mut mandatory| {
        // Administrators may set the borrowing limit of the exempt level.
        if object.name() == EXEMPT {
            mandatory["exempt"] = exempt.value().clone();
        }
        mandatory
    });
    let mandatory = mandatory.map(|mut mandatory| {
        mandatory.as_object_mut().into_iter().for_each(|mandatory| mandatory.retain(|_, value| !value.is_null()));
        mandatory
    });
    errors.extend(fixed(&spec, object.name(), mandatory));
    errors.extend(check_status(&root));
    errors
}

/// Validates the shares of both types of levels.
fn shares(of: &Field<'_>) -> Errors {
    let (shares, lendable) = (of.at("nominalConcurrencyShares"), of.at("lendablePercent"));
    let mut errors = Errors::new();
    if shares.int() < 0 {
        errors.push(shares.invalid("must be a non-negative integer"));
    }
    if !(0..=100).contains(&lendable.int()) {
        errors.push(lendable.invalid("must be between 0 and 100, inclusive"));
    }
    errors
}

fn limits(limited: &Field<'_>) -> Errors {
    let mut errors = shares(limited);
    let borrowed = limited.at("borrowingLimitPercent");
    if borrowed.int_if_set().is_some_and(|percent| percent < 0) {
        errors.push(borrowed.invalid("if specified, must be a non-negative integer"));
    }
    let response = limited.at("limitResponse");
    let (ty, queuing) = (response.at("type"), response.at("queuing"));
    match (ty.text(), queuing.is_set()) {
        ("Reject", true) => {
            errors.push(queuing.forbidden("must be nil if limited.limitResponse.type is not Limited"));
        }
        ("Reject", false) => {}
        ("Queue", false) => {
            errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"));
        }
        ("Queue", true) => errors.extend(queues(&queuing)),
        _ => errors.push(ty.not_supported(&["Queue", "Reject"])),
    }
    errors
}

fn queues(queuing: &Field<'_>) -> Errors {
    let (length, queues, hand) = (queuing.at("queueLengthLimit"), queuing.at("queues"), queuing.at("handSize"));
    let mut errors = Errors::new();
    if length.int() <= 0 {
        errors.push(length.invalid("must be positive"));
    }
    if queues.int() <= 0 {
        errors.push(queues.invalid("must be positive"));
    } else if queues.int() > MAX_QUEUES {
        errors.push(queues.invalid(format!("must not be greater than {MAX_QUEUES}")));
    }
    if hand.int() <= 0 {
        errors.push(hand.invalid("must be positive"));
    } else if hand.int() > queues.int() {
        errors.push(hand.invalid(format!("should not be greater than queues ({})", queues.int())));
    } else if !fits_hash(queues.int(), hand.int()) {
        let (deck, hand_size) = (queues.int(), hand.int());
        errors.push(hand.invalid(format!(
            "required entropy bits of deckSize {deck} and handSize {hand_size} should not be greater than {MAX_HASH_BITS}"
        )));
    }
    errors
}

/// Returns true if a hash is long enough for shuffle sharding with these parameters.
fn fits_hash(queues: i64, hand: i64) -> bool {
    let mut bits = 0.0;
    for dealt in 0..hand {
        bits += ((queues - dealt) as f64).log2();
        if bits.ceil() > MAX_HASH_BITS {
            return false;
        }
    }
    true
}

fn row(view: &View<'_>) -> Row {
    let number = |path: &str| match view.at(&format!("spec.limited.{path}")) {
        Value::Null => NONE.into(),
        number => number.clone(),
    };
    Row::from([
        view.name(),
        view.text("spec.type").into(),
        number("nominalConcurrencyShares"),
        number("limitResponse.queuing.queues"),
        number("limitResponse.queuing.handSize"),
        number("limitResponse.queuing.queueLengthLimit"),
        view.age(),
    ])
}
