//! The numbers of `with_sequence`.

/// Limit of the numbers of a sequence.
const MAX_NUMBERS: usize = 10_000;
/// Limit of the digits of a number.
const MAX_WIDTH: usize = 64;

/// Returns the numbers of a term: `start=1 end=5 stride=2 format=a%02d`, or `1-5/2:a%02d`.
pub(crate) fn sequence(term: &str) -> Result<Vec<String>, String> {
    let (mut start, mut end, mut stride, mut count, mut format) = (1, None, 1, None, "%d");
    if term.contains('=') {
        for word in term.split_whitespace() {
            let (key, value) =
                word.split_once('=').ok_or_else(|| format!("{word} is not an argument of a sequence"))?;
            let value = value.trim_matches(['"', '\'']);
            match key {
                "start" => start = number(value)?,
                "end" => end = Some(number(value)?),
                "stride" => stride = number(value)?,
                "count" => count = Some(number(value)?),
                "format" => format = value,
                _ => return Err(format!("unrecognized argument of with_sequence: {key}")),
            }
        }
    } else {
        let (range, shown) = term.trim().split_once(':').unwrap_or((term.trim(), format));
        let (range, step) = range.split_once('/').unwrap_or((range, "1"));
        let (first, last) = range.split_once('-').unwrap_or(("1", range));
        (start, end, stride, format) = (number(first)?, Some(number(last)?), number(step)?, shown);
    }
    let end = match (count, end) {
        (None, None) => return Err("must specify count or end in with_sequence".into()),
        (Some(_), Some(_)) => return Err("can't specify both count and end in with_sequence".into()),
        (Some(0), None) => return Ok(Vec::new()),
        (Some(count), None) => start.saturating_add(count.saturating_mul(stride)).saturating_sub(1),
        (None, Some(end)) => end,
    };
    match stride {
        0 => return Ok(Vec::new()),
        1.. if end < start => return Err("to count backwards make stride negative".into()),
        ..0 if end > start => return Err("to count forward don't make stride negative".into()),
        _ => {}
    }
    let format = Format::parse(format).ok_or_else(|| format!("bad formatting string: {format}"))?;
    let numbers = std::iter::successors(Some(start), |number: &i64| number.checked_add(stride));
    let numbers = numbers.take_while(|number| if stride > 0 { *number <= end } else { *number >= end });
    let numbers: Vec<_> = numbers.take(MAX_NUMBERS + 1).map(|number| format.write(number)).collect();
    if numbers.len() > MAX_NUMBERS {
        Err(format!("the sequence has more than {MAX_NUMBERS} numbers"))
    } else {
        Ok(numbers)
    }
}

fn number(text: &str) -> Result<i64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "with_sequence: a bound is no integer".to_owned())
}

/// A format with one number, such as `host%02d`.
struct Format<'f> {
    before: &'f str,
    after: &'f str,
    is_padded: bool,
    width: usize,
    letter: char,
}

impl<'f> Format<'f> {
    fn parse(text: &'f str) -> Option<Self> {
        let (before, rest) = text.split_once('%')?;
        let at = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (width, rest) = rest.split_at(at);
        let letter = rest.chars().next().filter(|letter| "dioxX".contains(*letter))?;
        let number = if width.is_empty() { Some(0) } else { width.parse().ok() };
        let (after, width) = (&rest[1..], number.filter(|width| *width <= MAX_WIDTH)?);
        (!after.contains('%')).then_some(Self {
            before,
            after,
            is_padded: text[before.len() + 1..].starts_with('0'),
            width,
            letter,
        })
    }

    fn write(&self, number: i64) -> String {
        let absolute = number.unsigned_abs();
        let digits = match self.letter {
            'x' => format!("{absolute:x}"),
            'X' => format!("{absolute:X}"),
            'o' => format!("{absolute:o}"),
            _ => absolute.to_string(),
        };
        let sign = if number < 0 { "-" } else { "" };
        let missing = self.width.saturating_sub(digits.len() + sign.len());
        let (spaces, zeros) = if self.is_padded { (0, missing) } else { (missing, 0) };
        format!("{}{}{sign}{}{digits}{}", self.before, " ".repeat(spaces), "0".repeat(zeros), self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Results of ansible-core 2.19.
    #[test]
    fn sequences_are_those_of_ansible() {
        for (term, expected) in [
            ("5", "1 2 3 4 5"),
            ("5-8", "5 6 7 8"),
            ("2-10/2", "2 4 6 8 10"),
            ("4:host%02d", "host01 host02 host03 host04"),
            ("start=5 end=11 stride=2 format=0x%02x", "0x05 0x07 0x09 0x0b"),
            ("count=5", "1 2 3 4 5"),
            ("start=0x0f00 count=4 format=%04x", "0f00 0f01 0f02 0f03"),
            ("start=0 count=5 stride=2", "0 2 4 6 8"),
            ("start=10 end=0 stride=-5", "10 5 0"),
            ("start=1 count=0", ""),
        ] {
            assert_eq!(sequence(term).map(|numbers| numbers.join(" ")).as_deref(), Ok(expected), "{term}");
        }
        for term in [
            "start=1",
            "start=1 end=2 count=3",
            "start=5 end=1",
            "end=a",
            "3:%s",
            "3:%d%d",
            "end=99999999",
            "x=1 end=2",
        ] {
            assert!(sequence(term).is_err(), "{term}");
        }
    }
}
