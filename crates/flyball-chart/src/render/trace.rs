//! Multi-line messages of template errors, as in Helm 4.
//!
//! Helm 4 splits the text of the error, including any text that a message quotes, so this works on the text as well:
//! the output is the same for any error. Nothing else depends on it.

/// Location and message of a failed template.
#[derive(PartialEq)]
struct Frame<'m> {
    location: &'m str,
    executed: Option<(&'m str, &'m str)>,
    message: &'m str,
}

/// Formats the calls that led to an error on separate lines; messages without a template call are unchanged.
pub(super) fn trace(message: &str) -> String {
    let (mut frames, mut rest) = (Vec::new(), message);
    loop {
        let Some(frame) = frame(rest) else { return message.to_owned() };
        if frames.last() != Some(&frame) {
            frames.push(frame);
        }
        match called(rest) {
            Some(inner) => rest = inner,
            None => break,
        }
    }
    let mut out = String::new();
    for Frame { location, executed, message } in frames {
        if !location.is_empty() {
            out.push_str(&format!("{location}\n  "));
        }
        if let Some((name, at)) = executed {
            out.push_str(&format!("executing \"{name}\" at <{at}>:\n    "));
        }
        if !message.is_empty() {
            out.push_str(&format!("{message}\n"));
        }
    }
    out.trim().to_owned()
}

/// Returns the message of the called function, if a function failed.
fn called(message: &str) -> Option<&str> {
    let (_, executed) = message.strip_prefix("template: ")?.split_once(": executing ")?;
    let (_, reason) = executed.split_once(">: ")?;
    reason.strip_prefix("error calling ")?.split_once(": ").map(|(_, inner)| inner)
}

fn frame(message: &str) -> Option<Frame<'_>> {
    let rest = message.strip_prefix("template: ")?;
    if rest.starts_with("no template ") {
        return Some(Frame { location: "", executed: None, message });
    }
    let until_next = |text: &'_ str| text.find(" template:").unwrap_or(text.len());
    let executing = || {
        let (location, after) = rest.split_once(": executing \"")?;
        let (name, after) = after.split_once('"')?;
        let (at, text) = after.strip_prefix(" at <")?.split_once(">: ")?;
        Some(Frame { location, executed: Some((name, at)), message: &text[..until_next(text)] })
    };
    executing().or_else(|| {
        let (location, text) = rest.rsplit_once(": ")?;
        Some(Frame { location, executed: None, message: &text[..until_next(text)] })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn template_calls_are_printed_on_separate_lines() {
        let inner = "template: a/templates/_h.tpl:1:24: executing \"h\" at <.Values.x.y>: nil pointer evaluating interface {}.y";
        let outer = format!(
            "template: a/templates/t.yaml:2:6: executing \"a/templates/t.yaml\" at <include \"h\" .>: error calling include: {inner}"
        );
        assert_eq!(
            trace(&outer),
            "a/templates/t.yaml:2:6\n  executing \"a/templates/t.yaml\" at <include \"h\" .>:\n    error calling include:\n\
             a/templates/_h.tpl:1:24\n  executing \"h\" at <.Values.x.y>:\n    nil pointer evaluating interface {}.y"
        );
    }

    #[test]
    fn function_errors_stay_on_one_line() {
        let message = "template: a/templates/t.yaml:2:6: executing \"a/templates/t.yaml\" at <atoi>: error calling atoi: no number";
        assert_eq!(trace(message), message);
    }
}
