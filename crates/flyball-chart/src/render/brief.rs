//! Short messages of template errors. Helm's messages list every template on the call path before the cause.

/// Size limit of a message that is kept unchanged, and of a cause, in bytes.
const MAX_REASON: usize = 512;
/// Size limit of a location, in bytes.
const MAX_LOCATION: usize = 128;

/// Shortens a message: the cause first, then its location, and the outermost call.
pub(super) fn brief(message: &str) -> String {
    if message.len() <= MAX_REASON {
        return message.to_owned();
    }
    let (mut reason, mut locations) = (message, Vec::new());
    while let Some((location, rest)) = call(reason) {
        locations.push(location);
        reason = rest;
    }
    // The location already contains the name of the template.
    let bare =
        reason.strip_prefix("template: ").and_then(|rest| rest.split_once(": ")).map_or(reason, |(_, bare)| bare);
    let reason = cut(bare, MAX_REASON);
    match &locations[..] {
        [] => reason,
        [only] => format!("{reason} (at {})", cut(only, MAX_LOCATION)),
        [first, .., last] => format!(
            "{reason} (at {}, {} template calls below {})",
            cut(last, MAX_LOCATION),
            locations.len() - 1,
            cut(first, MAX_LOCATION)
        ),
    }
}

/// Splits the prefix of a template call off a message: `template: LOCATION: executing "NAME" at <ACTION>: error
/// calling FUNCTION: `.
fn call(message: &str) -> Option<(&str, &str)> {
    let (location, rest) = message.strip_prefix("template: ")?.split_once(": executing ")?;
    let (_, rest) = rest.split_once(">: ")?;
    // Messages of functions keep the name of the function.
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
    fn reason_of_a_nested_template_comes_first() {
        let reason = "rendering template has a nested reference name: loop: unable to execute template";
        assert_eq!(
            brief(&nested(1000, reason)),
            format!(
                "error calling include: {reason} (at demo/templates/_h.tpl:1:24, 1000 template calls below \
                 demo/templates/t.yaml:2:6)"
            )
        );
        // The result is within the limit for any message.
        for reason in ["é".repeat(10_000), format!("template: {}", "x: executing y>: ".repeat(1000)), String::new()] {
            let message = brief(&nested(1000, &reason));
            assert!(message.len() < 1000, "{} {message}", message.len());
        }
    }

    #[test]
    fn short_message_is_unchanged() {
        let message = nested(1, "nil pointer evaluating interface {}.name");
        assert_eq!(brief(&message), message);
        let long = "a".repeat(2000);
        assert_eq!(brief(&long), format!("{}…", "a".repeat(MAX_REASON)));
    }
}
