//! `include` and `tpl`: templates that execute templates.

use super::exec::Templates;
use super::node::Source;
use crate::context::{Executor, RenderContext};
use crate::message;
use crate::text::{Text, Writer, lossy};
use crate::value::Value;
use memchr::memmem;
use std::borrow::Cow;
use std::rc::Rc;

/// Limit of nested includes of one template, as in Helm.
const MAX_NESTED_INCLUDES: usize = 1_000;

impl Executor for Rc<Templates> {
    fn include(&self, context: &RenderContext<'_>, name: &str, data: Value) -> Result<Value, String> {
        {
            let mut included = context.included.borrow_mut();
            let count = included.entry(name.to_owned()).or_insert(0);
            if *count > MAX_NESTED_INCLUDES {
                let name = message::excerpt(name);
                return Err(format!(
                    "rendering template has a nested reference name: {name}: unable to execute template"
                ));
            }
            *count += 1;
        }
        let result = self.execute(context, name, data);
        if let Some(count) = context.included.borrow_mut().get_mut(name) {
            *count -= 1;
        }
        result.map(Value::Str)
    }

    fn tpl(&self, context: &RenderContext<'_>, text: &Text, data: Value, is_evaluated: bool) -> Result<Value, String> {
        let is_evaluated = (is_evaluated || text.is_data()) && context.evaluates;
        let (readable, marks) = match lossy(text) {
            Cow::Borrowed(readable) => (readable.to_owned(), text.marks().to_vec()),
            // The positions of data are lost then.
            Cow::Owned(_) if text.is_data() && !is_evaluated => return Ok(Value::Str(text.to_data())),
            Cow::Owned(readable) => (readable, Vec::new()),
        };
        let quoted = || message::quoted(&readable);
        context.charge(text.len(), readable.len() * 2)?;
        let mut templates = self.with_string(context)?;
        let source = Source::with_data("gotpl", readable.clone(), marks, is_evaluated);
        templates
            .add(source, context)
            .map_err(|message| message::write(format_args!("cannot parse template {}: {message}", quoted())))?;
        let out = Rc::new(templates).execute(context, "gotpl", data).map_err(|message| {
            message::write(format_args!("error during tpl function execution for {}: {message}", quoted()))
        })?;
        Ok(Value::Str(without_no_value(out)))
    }
}

/// Removes Go's text for missing values.
pub(crate) fn without_no_value(out: Text) -> Text {
    const WORDS: &[u8] = b"<no value>";
    let mut output = Writer::default();
    let mut from = 0;
    while let Some(at) = memmem::find(&out[from..], WORDS) {
        output.part(&out, from..from + at);
        from += at + WORDS.len();
    }
    if from == 0 {
        return out;
    }
    output.part(&out, from..out.len());
    output.text()
}
