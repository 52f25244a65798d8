//! Messages of templates in short: Helm's own names each template on the way to the reason, which comes last.

/// The longest message that is left as Helm writes it, and the longest reason, in bytes.
const MAX_REASON: usize = 512;
/// The longest location, in bytes.
const MAX_LOCATION: usize = 128;

/// Shortens a message: the reason first, then where it is, and the call that it began with.
pub(super) fn brief(message: &str) -> String {
    if message.len() <= MAX_REASON {
        return message.to_owned();
    }
    let (mut reason, mut locations) = (message, Vec::new());
    while let Some((location, rest)) = call(reason) {
        locations.push(location);
        reason = rest;
    }
    // Which template it is, the location says.
    let bare =
        reason.strip_prefix("template: ").and_then(|rest| rest.split_once(": ")).map_or(reason, |(_, bare)| bare);
    let reason = cut(bare, MAX_REASON);
    match &locations[..] {
        [] => reason,
        [only] => format!("{reason} (at {})", cut(only, MAX_LOCATION)),
        [first, .., last] => format!(
            "{reason} (at {}, {} calls of templates below {})",
            cut(last, MAX_LOCATION),
            locations.len() - 1,
            cut(first, MAX_LOCATION)
        ),
    }
}

/// Splits what a template says of itself off a message: `template: LOCATION: executing "NAME" at <ACTION>: error
/// calling FUNCTION: `.
fn call(message: &str) -> Option<(&str, &str)> {
    let (location, rest) = message.strip_prefix("template: ")?.split_once(": executing ")?;
    let (_, rest) = rest.split_once(">: ")?;
    // What a function says itself stays with its name.
    let called = rest.strip_prefix("error calling ").and_then(|rest| rest.split_once(": "));
    let inner = called.map(|(_, inner)| inner).filter(|inner| inner.starts_with("template: "));
    Some((location, inner.unwrap_or(rest)))
}

fn cut(text: &str, max: usize) -> String {
    match text.len() <= max {
        true => text.to_owned(),
        false => format!("{}…", &text[..text.floor_char_boundary(max)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(depth: usize, reason: &str) -> String {
        let call =
            "template: demo/templates/_h.tpl:1:24: executing \"loop\" at <include \"loop\" .>: error calling include: ";
        let first = "template: demo/templates/t.yaml:2:6: executing \"demo/templates/t.yaml\" at <include \"loop\" .>: error calling include: ";
        format!("{first}{}{reason}", call.repeat(depth))
    }

    #[test]
    fn the_reason_of_a_deep_template_comes_first() {
        let reason = "rendering template has a nested reference name: loop: unable to execute template";
        assert_eq!(
            brief(&nested(1000, reason)),
            format!(
                "error calling include: {reason} (at demo/templates/_h.tpl:1:24, 1000 calls of templates below \
                 demo/templates/t.yaml:2:6)"
            )
        );
        // Whatever the reason holds, it stays within bounds.
        for reason in ["é".repeat(10_000), format!("template: {}", "x: executing y>: ".repeat(1000)), String::new()] {
            let said = brief(&nested(1000, &reason));
            assert!(said.len() < 1000, "{} {said}", said.len());
        }
    }

    #[test]
    fn a_short_message_is_helms_own() {
        let message = nested(1, "nil pointer evaluating interface {}.name");
        assert_eq!(brief(&message), message);
        let long = "a".repeat(2000);
        assert_eq!(brief(&long), format!("{}…", "a".repeat(MAX_REASON)));
    }
}
