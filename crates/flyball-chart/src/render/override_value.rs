//! The values that the author of an operator sets in `watches.yaml`, as operator-sdk and helm-operator-plugins do:
//! environment variables are replaced, and the result is executed as a template without data.

use crate::context::{Budget, RenderContext};
use crate::environment::expand_variables;
use crate::functions::FAILURE;
use crate::memory;
use crate::message;
use crate::quote::quote;
use crate::seed::Seed;
use crate::template::exec::Templates;
use crate::template::node::Source;
use crate::text::lossy;
use crate::value::Value;
use flyball_core::Clock;
use std::rc::Rc;

/// Evaluates an override value with these environment variables. Its path is the name of the template.
///
/// The functions are those of [slim-sprig](https://github.com/go-task/slim-sprig), among them `env` and `expandenv`, but
/// not `now`, `ago`, `randInt` and `getHostByName`: other results at each start would upgrade all releases.
///
/// # Errors
///
/// If the text is not a template, or if it fails; with the message of operator-sdk.
pub fn override_value(path: &str, text: &str, variable: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let text = expand_variables(text, variable);
    if !text.contains("{{") {
        return Ok(text);
    }
    stacker::grow(super::STACK, || {
        let budget = Budget::untrusted();
        let _bounds = (memory::Scope::new(budget.bytes), message::Scope::new(budget.message));
        let clock = Clock::new(|| jiff::Timestamp::UNIX_EPOCH);
        let context = RenderContext::new(clock, &Seed::default(), None, budget, false).with_variables(variable);
        let written = quote(text.as_bytes());
        let mut templates = Templates::default();
        templates
            .add(Source::new(path, text), &context)
            .map_err(|message| format!("invalid template string {written}: {message}"))?;
        let executed = Rc::new(templates).execute(&context, path, Value::Nil);
        let message = |message: String| message.replace(FAILURE.0, "").replace(FAILURE.1, "");
        let executed = executed.map_err(|error| format!("failed to execute template {written}: {}", message(error)))?;
        Ok(lossy(&executed).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(text: &str) -> Result<String, String> {
        override_value("image.tag", text, &|name| (name == "IMAGE").then(|| "quay.io/site:1.6".to_owned()))
    }

    #[test]
    fn override_values_are_templates_with_environment_variables() {
        for (text, expected) in [
            ("$IMAGE", "quay.io/site:1.6"),
            ("a${NONE}b", "ab"),
            ("{{ (\"$IMAGE\" | split \":\")._0 }}", "quay.io/site"),
            ("{{ (\"$IMAGE\" | split \":\")._1 }}", "1.6"),
            ("{{ env \"IMAGE\" | upper }}-{{ env \"NONE\" | default \"x\" }}", "QUAY.IO/SITE:1.6-x"),
            ("{{ expandenv \"a ${IMAGE}\" }}", "a quay.io/site:1.6"),
            ("{{ if contains \"quay\" \"$IMAGE\" }}yes{{ end }} {{ printf \"%03d\" 7 }}", "yes 007"),
            ("{{ . }}", "<no value>"),
            ("{ {plain} }", "{ {plain} }"),
        ] {
            assert_eq!(evaluate(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_templates_are_rejected_with_the_message_of_go() {
        for (text, expected) in [
            (
                "{{ (\"$IMAGE\" | split \":\")._1",
                "invalid template string \"{{ (\\\"quay.io/site:1.6\\\" | split \\\":\\\")._1\": template: image.tag:1: unclosed action",
            ),
            (
                "{{ include \"a\" . }}",
                "invalid template string \"{{ include \\\"a\\\" . }}\": template: image.tag:1: function \"include\" not defined",
            ),
            (
                "{{ fail \"no\" }}",
                "failed to execute template \"{{ fail \\\"no\\\" }}\": template: image.tag:1:3: executing \"image.tag\" at <fail \"no\">: \
                 error calling fail: no",
            ),
        ] {
            assert_eq!(evaluate(text), Err(expected.to_owned()), "{text}");
        }
        for function in ["lookup", "tpl", "genCA", "randAlphaNum", "uuidv4", "toYaml", "now"] {
            let error = evaluate(&format!("{{{{ {function} }}}}")).unwrap_err();
            assert!(error.ends_with(&format!("function \"{function}\" not defined")), "{error}");
        }
    }
}
