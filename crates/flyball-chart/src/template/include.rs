//! `include` and `tpl`: templates that execute templates.

use super::exec::Templates;
use super::node::Source;
use crate::quote::quote;
use crate::text::{Text, Writer, lossy};
use crate::value::Value;
use crate::world::{Executor, World};
use memchr::memmem;
use std::borrow::Cow;
use std::rc::Rc;

/// Limit of nested includes of one template, as in Helm.
const MAX_NESTED_INCLUDES: usize = 1_000;
/// Size limit of a message that quotes a template.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

impl Executor for Rc<Templates> {
    fn include(&self, world: &World<'_>, name: &str, data: Value) -> Result<Value, String> {
        {
            let mut included = world.included.borrow_mut();
            let count = included.entry(name.to_owned()).or_insert(0);
            if *count > MAX_NESTED_INCLUDES {
                return Err(format!(
                    "rendering template has a nested reference name: {name}: unable to execute template"
                ));
            }
            *count += 1;
        }
        let result = self.execute(world, name, data);
        if let Some(count) = world.included.borrow_mut().get_mut(name) {
            *count -= 1;
        }
        result.map(Value::Str)
    }

    fn tpl(&self, world: &World<'_>, text: &Text, data: Value, is_evaluated: bool) -> Result<Value, String> {
        let is_evaluated = (is_evaluated || text.is_data()) && world.evaluates;
        let (readable, marks) = match lossy(text) {
            Cow::Borrowed(readable) => (readable.to_owned(), text.marks().to_vec()),
            // The positions of data are lost then.
            Cow::Owned(_) if text.is_data() && !is_evaluated => return Ok(Value::Str(text.to_data())),
            Cow::Owned(readable) => (readable, Vec::new()),
        };
        let quoted = || quote(readable.as_bytes());
        world.charge(text.len(), readable.len() * 2)?;
        let mut templates = self.with_string(world)?;
        let source = Source::with_data("gotpl", readable.clone(), marks, is_evaluated);
        templates
            .add(source, world)
            .map_err(|message| shortened(format!("cannot parse template {}: {message}", quoted())))?;
        let out = Rc::new(templates)
            .execute(world, "gotpl", data)
            .map_err(|message| shortened(format!("error during tpl function execution for {}: {message}", quoted())))?;
        Ok(Value::Str(without_no_value(out)))
    }
}

/// Truncates a message that quotes templates, which may quote further ones.
fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        let end = message.floor_char_boundary(MAX_MESSAGE_BYTES);
        message.truncate(end);
        message.push_str(" ...");
    }
    message
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
