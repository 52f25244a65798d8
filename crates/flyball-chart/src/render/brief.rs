//! Short messages of template errors. Helm's messages list every template on the call path before the cause.

use crate::context::FailedCalls;

/// Size limit of a message that is kept unchanged, and of a cause, in bytes.
const MAX_REASON: usize = 512;
/// Size limit of a location, in bytes.
const MAX_LOCATION: usize = 128;

/// Shortens a message: the reason first, then its location, and the outermost call.
pub(super) fn brief(message: &str, calls: Option<&FailedCalls>) -> String {
    if message.len() <= MAX_REASON {
        return message.to_owned();
    }
    let Some(FailedCalls { reason, innermost, outermost, count }) = calls.filter(|calls| calls.count > 0) else {
        return cut(message, MAX_REASON);
    };
    let (reason, at) = (cut(reason, MAX_REASON), cut(innermost, MAX_LOCATION));
    match count {
        1 => format!("{reason} (at {at})"),
        _ => {
            format!("{reason} (at {at}, {} template calls below {})", count - 1, cut(outermost, MAX_LOCATION))
        }
    }
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

    fn nested(depth: usize, reason: &str) -> (String, FailedCalls) {
        let calls = FailedCalls {
            reason: reason.to_owned(),
            innermost: "demo/templates/_h.tpl:1:24".to_owned(),
            outermost: "demo/templates/t.yaml:2:6".to_owned(),
            count: depth + 1,
        };
        (format!("{}{reason}", "error calling include: ".repeat(depth)), calls)
    }

    #[test]
    fn reason_of_a_nested_template_comes_first() {
        let reason = "rendering template has a nested reference name: loop: unable to execute template";
        let (message, calls) = nested(1000, reason);
        assert_eq!(
            brief(&message, Some(&calls)),
            format!("{reason} (at demo/templates/_h.tpl:1:24, 1000 template calls below demo/templates/t.yaml:2:6)")
        );
        // The result is within the limit for any message.
        for reason in ["é".repeat(10_000), "x: executing y>: ".repeat(1000), String::new()] {
            let (message, mut calls) = nested(1000, &reason);
            calls.innermost = "é".repeat(1000);
            let message = brief(&message, Some(&calls));
            assert!(message.len() < 1000, "{} {message}", message.len());
        }
    }

    #[test]
    fn short_message_is_unchanged() {
        let (message, calls) = nested(1, "nil pointer evaluating interface {}.name");
        assert_eq!(brief(&message, Some(&calls)), message);
        let long = "a".repeat(2000);
        assert_eq!(brief(&long, None), format!("{}…", "a".repeat(MAX_REASON)));
        let calls = FailedCalls { count: 1, innermost: "t.yaml:1:2".to_owned(), reason: long.clone(), ..calls };
        assert_eq!(brief(&long, Some(&calls)), format!("{}… (at t.yaml:1:2)", "a".repeat(MAX_REASON)));
    }
}
