//! The syntax of JSON numbers.

/// A number that is not valid JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidNumber {
    /// Position of the byte that no number has there; the end of the text if it is truncated.
    pub at: usize,
    /// The part of the number, in the words of Go's `encoding/json`.
    pub context: &'static str,
}

/// Returns the end of the number that starts at `at`.
///
/// ```
/// use flyball_core::json::{InvalidNumber, number_end};
///
/// assert_eq!(number_end(b"[-1.5e3]", 1), Ok(7));
/// assert_eq!(number_end(b"1.x", 0), Err(InvalidNumber { at: 2, context: "after decimal point in numeric literal" }));
/// ```
pub fn number_end(json: &[u8], at: usize) -> Result<usize, InvalidNumber> {
    let is = |at: usize, bytes: &[u8]| json.get(at).is_some_and(|byte| bytes.contains(byte));
    let digits = |at: usize, context: &'static str| {
        let count = json[at.min(json.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count > 0 { Ok(at + count) } else { Err(InvalidNumber { at, context }) }
    };
    let mut end = if is(at, b"-") { at + 1 } else { at };
    end = if is(end, b"0") { end + 1 } else { digits(end, "in numeric literal")? };
    if is(end, b".") {
        end = digits(end + 1, "after decimal point in numeric literal")?;
    }
    if is(end, b"eE") {
        end += 1;
        end = digits(if is(end, b"+-") { end + 1 } else { end }, "in exponent of numeric literal")?;
    }
    Ok(end)
}
