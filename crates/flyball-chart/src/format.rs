//! Go's `fmt`: `print`, `printf` with its verbs, and `%v` for all values.

use crate::number::{format_float, special};
use crate::quote::{escape, quote, quote_with, unicode};
use crate::text::Writer;
use crate::value::object::Object;
use crate::value::{IntKind, Value};

/// Nesting limit of a value; deeper values are treated as cycles.
const DEPTH: usize = 1_000;

/// `fmt.Sprint`: spaces between operands of which neither is a string.
pub(crate) fn sprint(args: &[Value]) -> Writer {
    let mut out = Writer::default();
    for (at, arg) in args.iter().enumerate() {
        let is_text = |value: &Value| matches!(value, Value::Str(_));
        if at > 0 && !is_text(arg) && !is_text(&args[at - 1]) {
            out.add(b" ");
        }
        write(&mut out, arg);
    }
    out
}

/// `fmt.Sprintln`.
pub(crate) fn sprintln(args: &[Value]) -> Writer {
    let mut out = Writer::default();
    for (at, arg) in args.iter().enumerate() {
        if at > 0 {
            out.add(b" ");
        }
        write(&mut out, arg);
    }
    out.add(b"\n");
    out
}

/// `%v`, with the value's data marks.
pub(crate) fn write(out: &mut Writer, value: &Value) {
    match value {
        Value::Str(text) => out.text_of(text),
        other => out.written(other.is_data(), |bytes| plain(bytes, other)),
    }
}

/// `%v`.
pub(crate) fn plain(out: &mut Vec<u8>, value: &Value) {
    Verb::default().write(out, value, 'v', 0);
}

/// `%v` as a string.
pub(crate) fn display(value: &Value) -> String {
    let mut out = Vec::new();
    plain(&mut out, value);
    String::from_utf8_lossy(&out).into_owned()
}

/// The flags, the width and the precision of a verb.
#[derive(Default, Clone)]
struct Verb {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

/// `fmt.Sprintf`. Output much longer than `room` is truncated.
pub(crate) fn sprintf(format: &[u8], args: &[Value], room: usize) -> Writer {
    let mut out = Writer::default();
    let mut next = 0;
    let mut reordered = false;
    let mut at = 0;
    while at < format.len() && out.len() <= room {
        if format[at] != b'%' {
            let length = format[at..].iter().position(|byte| *byte == b'%').unwrap_or(format.len() - at);
            out.add(&format[at..at + length]);
            at += length;
            continue;
        }
        at += 1;
        let mut verb = Verb::default();
        let mut good_index = true;
        let mut after_index = false;
        while let Some(flag) = format.get(at) {
            match flag {
                b'#' => verb.sharp = true,
                b'0' => verb.zero = true,
                b'+' => verb.plus = true,
                b'-' => verb.minus = true,
                b' ' => verb.space = true,
                _ => break,
            }
            at += 1;
        }
        argument_index(format, &mut at, &mut next, args.len(), &mut reordered, &mut good_index, &mut after_index);
        if format.get(at) == Some(&b'*') {
            at += 1;
            match star(args, &mut next) {
                Some(width) => {
                    verb.minus |= width < 0;
                    verb.width = Some(usize::try_from(width.unsigned_abs()).unwrap_or(0));
                }
                None => out.add(b"%!(BADWIDTH)"),
            }
            after_index = false;
        } else {
            verb.width = digits(format, &mut at);
            if after_index && verb.width.is_some() {
                good_index = false;
            }
        }
        if format.get(at) == Some(&b'.') {
            at += 1;
            if after_index {
                good_index = false;
            }
            argument_index(format, &mut at, &mut next, args.len(), &mut reordered, &mut good_index, &mut after_index);
            if format.get(at) == Some(&b'*') {
                at += 1;
                match star(args, &mut next) {
                    Some(precision) if precision >= 0 => verb.precision = usize::try_from(precision).ok(),
                    Some(_) => {}
                    None => out.add(b"%!(BADPREC)"),
                }
                after_index = false;
            } else {
                verb.precision = Some(digits(format, &mut at).unwrap_or(0));
            }
        }
        if !after_index {
            argument_index(format, &mut at, &mut next, args.len(), &mut reordered, &mut good_index, &mut after_index);
        }
        let rest = String::from_utf8_lossy(&format[at..format.len().min(at + 4)]);
        let Some(letter) = rest.chars().next() else {
            out.add(b"%!(NOVERB)");
            break;
        };
        at += if letter == char::REPLACEMENT_CHARACTER { 1 } else { letter.len_utf8() };
        if letter == '%' {
            out.add(b"%");
        } else if !good_index {
            out.add(format!("%!{letter}(BADINDEX)").as_bytes());
        } else if next >= args.len() {
            out.add(format!("%!{letter}(MISSING)").as_bytes());
        } else {
            verb.marked(&mut out, &args[next], letter);
            next += 1;
        }
    }
    if !reordered && next < args.len() {
        out.add(b"%!(EXTRA ");
        for (at, arg) in args[next..].iter().enumerate() {
            if at > 0 {
                out.add(b", ");
            }
            if matches!(arg, Value::Nil) {
                out.add(b"<nil>");
            } else {
                out.add(format!("{}=", arg.type_name()).as_bytes());
                write(&mut out, arg);
            }
        }
        out.add(b")");
    }
    out
}

/// Limit of width, precision and index, as in Go.
const MAX_WIDTH: usize = 1_000_000;

fn digits(format: &[u8], at: &mut usize) -> Option<usize> {
    let from = *at;
    while format.get(*at).is_some_and(u8::is_ascii_digit) {
        *at += 1;
    }
    std::str::from_utf8(&format[from..*at]).ok()?.parse().ok().filter(|number| *number <= MAX_WIDTH)
}

fn star(args: &[Value], next: &mut usize) -> Option<i64> {
    let value = args.get(*next)?;
    *next += 1;
    match value {
        Value::Int(_, number) if number.unsigned_abs() <= 1_000_000 => Some(*number),
        _ => None,
    }
}

/// `[2]`: the next verb takes the second argument.
fn argument_index(
    format: &[u8],
    at: &mut usize,
    next: &mut usize,
    count: usize,
    reordered: &mut bool,
    good: &mut bool,
    after: &mut bool,
) {
    if format.get(*at) != Some(&b'[') {
        return;
    }
    *reordered = true;
    let Some(length) = format[*at..].iter().position(|byte| *byte == b']') else {
        *good = false;
        *at += 1;
        return;
    };
    let inside = &format[*at + 1..*at + length];
    *at += length + 1;
    match std::str::from_utf8(inside).ok().and_then(|text| text.parse::<usize>().ok()) {
        Some(index) if index >= 1 && index <= count => {
            *next = index - 1;
            *after = true;
        }
        _ => *good = false,
    }
}

impl Verb {
    /// Writes a value with its data marks; characters formatted from numbers are data too.
    fn marked(&self, out: &mut Writer, value: &Value, letter: char) {
        let is_simple = !self.sharp && self.width.is_none() && self.precision.is_none() && matches!(letter, 's' | 'v');
        match value {
            Value::Str(text) if is_simple => out.text_of(text),
            _ => {
                let has_characters = matches!(letter, 'c' | 'q' | 'U') && !matches!(value, Value::Str(_));
                out.written(has_characters || value.is_data(), |bytes| self.write(bytes, value, letter, 0));
            }
        }
    }

    fn write(&self, out: &mut Vec<u8>, value: &Value, letter: char, depth: usize) {
        if depth > DEPTH {
            return out.extend(b"...");
        }
        match (letter, value) {
            ('T', value) => return self.pad_text(out, value.type_name().as_bytes()),
            ('v', Value::Nil) => return self.pad_text(out, b"<nil>"),
            (letter, Value::Nil) => return out.extend(format!("%!{letter}(<nil>)").bytes()),
            _ => {}
        }
        match value {
            Value::Nil => {}
            Value::Bool(is) if matches!(letter, 't' | 'v') => self.pad_text(out, is.to_string().as_bytes()),
            Value::Int(kind, number) => self.integer(out, *kind, *number, letter, value),
            Value::Float(number) => self.float(out, *number, letter, value),
            Value::Str(bytes) => self.string(out, bytes, letter, value),
            Value::Bytes(bytes) if matches!(letter, 's' | 'q' | 'x' | 'X') => self.string(out, bytes, letter, value),
            Value::Bytes(bytes) => {
                let items: Vec<Value> = bytes.iter().map(|b| Value::Int(IntKind::Uint8, i64::from(*b))).collect();
                self.sequence(out, &value.type_name(), &items, letter, depth);
            }
            Value::List(list) => self.sequence(out, &value.type_name(), &list.items, letter, depth),
            Value::Map(map) => {
                let is_syntax = self.sharp && letter == 'v';
                out.extend(if is_syntax { format!("{}{{", value.type_name()) } else { "map[".to_owned() }.bytes());
                for (at, (key, item)) in map.entries.borrow().iter().enumerate() {
                    if at > 0 {
                        out.extend(if is_syntax { &b", "[..] } else { b" " });
                    }
                    self.write(out, &Value::str(&**key), letter, depth + 1);
                    out.push(b':');
                    self.item(out, item, letter, depth + 1);
                }
                out.push(if is_syntax { b'}' } else { b']' });
            }
            Value::Object(object) => self.object(out, object, letter, value, depth),
            Value::Bool(_) => self.bad(out, letter, value),
        }
    }

    /// Elements have an interface type, in which nil has no type.
    fn item(&self, out: &mut Vec<u8>, item: &Value, letter: char, depth: usize) {
        match item {
            Value::Nil if self.sharp && letter == 'v' => out.extend(b"interface {}(nil)"),
            Value::Nil => out.extend(b"<nil>"),
            item => self.write(out, item, letter, depth),
        }
    }

    fn sequence(&self, out: &mut Vec<u8>, name: &str, items: &[Value], letter: char, depth: usize) {
        let is_syntax = self.sharp && letter == 'v';
        out.extend(if is_syntax { format!("{name}{{") } else { "[".to_owned() }.bytes());
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                out.extend(if is_syntax { &b", "[..] } else { b" " });
            }
            self.item(out, item, letter, depth + 1);
        }
        out.push(if is_syntax { b'}' } else { b']' });
    }

    fn object(&self, out: &mut Vec<u8>, object: &Object, letter: char, value: &Value, depth: usize) {
        if let Some(text) = object.string() {
            return match letter {
                'v' | 's' | 'x' | 'X' | 'q' => self.string(out, text.as_bytes(), letter, value),
                'd' if object.as_int().is_some() => {
                    self.integer(out, IntKind::Int, object.as_int().unwrap_or(0), letter, value);
                }
                _ => self.bad(out, letter, value),
            };
        }
        let Object::Record(record) = object else { return self.bad(out, letter, value) };
        if record.is_pointer {
            if depth > 0 {
                return out.extend(b"0xc000000000");
            }
            out.push(b'&');
        }
        out.push(b'{');
        if record.embedded > 0 {
            out.push(b'{');
        }
        for (at, field) in record.fields.iter().enumerate() {
            if at > 0 {
                out.push(b' ');
            }
            if self.plus || self.sharp {
                out.extend(format!("{}:", field.name).bytes());
            }
            self.item(out, &field.value, letter, depth + 1);
            if at + 1 == record.embedded {
                out.push(b'}');
            }
        }
        out.push(b'}');
    }

    /// Writes Go's text for a verb that does not support a type: `%!d(string=x)`.
    fn bad(&self, out: &mut Vec<u8>, letter: char, value: &Value) {
        out.extend(format!("%!{letter}({}=", value.type_name()).bytes());
        let inner = Verb { zero: false, ..self.clone() };
        inner.write(out, value, 'v', 0);
        out.push(b')');
    }

    fn pad_text(&self, out: &mut Vec<u8>, text: &[u8]) {
        let width = self.width.unwrap_or(0);
        let padding = width.saturating_sub(String::from_utf8_lossy(text).chars().count());
        let fill = if self.zero && !self.minus { b'0' } else { b' ' };
        if !self.minus {
            out.extend(std::iter::repeat_n(fill, padding));
        }
        out.extend(text);
        if self.minus {
            out.extend(std::iter::repeat_n(b' ', padding));
        }
    }

    fn string(&self, out: &mut Vec<u8>, bytes: &[u8], letter: char, value: &Value) {
        let cut = match self.precision {
            Some(precision) if !matches!(letter, 'x' | 'X') => {
                let text = String::from_utf8_lossy(bytes);
                text.chars().take(precision).collect::<String>().into_bytes()
            }
            _ => bytes.to_vec(),
        };
        match letter {
            'v' if self.sharp => self.pad_text(out, quote(&cut).as_bytes()),
            'v' | 's' => self.pad_text(out, &cut),
            'q' if self.sharp && !cut.contains(&b'`') && !cut.iter().any(u8::is_ascii_control) => {
                self.pad_text(out, &[b"`", &cut[..], b"`"].concat());
            }
            'q' => self.pad_text(out, quote_with(&cut, self.plus).as_bytes()),
            'x' | 'X' => {
                let hex = |byte: &u8| if letter == 'x' { format!("{byte:02x}") } else { format!("{byte:02X}") };
                let cut = &cut[..self.precision.unwrap_or(cut.len()).min(cut.len())];
                let parts: Vec<String> = cut.iter().map(hex).collect();
                let prefix = if self.sharp && !parts.is_empty() { format!("0{letter}") } else { String::new() };
                let joint = if self.space { format!(" {prefix}") } else { String::new() };
                self.pad_text(out, format!("{prefix}{}", parts.join(&joint)).as_bytes());
            }
            _ => self.bad(out, letter, value),
        }
    }

    fn integer(&self, out: &mut Vec<u8>, kind: IntKind, number: i64, letter: char, value: &Value) {
        let magnitude =
            if kind == IntKind::Uint64 { u64::from_ne_bytes(number.to_ne_bytes()) } else { number.unsigned_abs() };
        let is_negative = number < 0 && kind != IntKind::Uint64;
        let digits = match letter {
            'v' | 'd' => magnitude.to_string(),
            'b' => format!("{magnitude:b}"),
            'o' | 'O' => format!("{magnitude:o}"),
            'x' => format!("{magnitude:x}"),
            'X' => format!("{magnitude:X}"),
            'c' | 'q' | 'U' => {
                let c = u32::try_from(magnitude).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER);
                let text = match letter {
                    'c' => c.to_string(),
                    'U' if self.sharp => unicode(c),
                    'U' => format!("U+{magnitude:04X}"),
                    _ => {
                        let mut inner = String::new();
                        escape(&mut inner, c, '\'', self.plus);
                        format!("'{inner}'")
                    }
                };
                return Verb { zero: false, ..self.clone() }.pad_text(out, text.as_bytes());
            }
            'e' | 'E' | 'f' | 'F' | 'g' | 'G' | 's' | 't' => return self.bad(out, letter, value),
            _ => return self.bad(out, letter, value),
        };
        let prefix = match letter {
            'x' | 'X' if self.sharp => format!("0{letter}"),
            'o' if self.sharp => "0".to_owned(),
            'O' => "0o".to_owned(),
            'b' if self.sharp => "0b".to_owned(),
            _ => String::new(),
        };
        let sign = if is_negative {
            "-"
        } else if self.plus && letter != 'v' {
            "+"
        } else if self.space {
            " "
        } else {
            ""
        };
        let least = match self.precision {
            Some(precision) => precision,
            None if self.zero && !self.minus => self.width.unwrap_or(0).saturating_sub(sign.len()),
            None => 0,
        };
        if self.precision == Some(0) && magnitude == 0 {
            return Verb { zero: false, ..self.clone() }.pad_text(out, b"");
        }
        let zeros = "0".repeat(least.saturating_sub(digits.len()));
        let text = format!("{sign}{prefix}{zeros}{digits}");
        Verb { zero: false, ..self.clone() }.pad_text(out, text.as_bytes());
    }

    fn float(&self, out: &mut Vec<u8>, number: f64, letter: char, value: &Value) {
        let mut text = match (special(number), letter) {
            (Some(word), 'v' | 'e' | 'E' | 'f' | 'F' | 'g' | 'G') => word.trim_start_matches('+').to_owned(),
            (None, 'v') if self.precision.is_none() => format_float(number),
            (None, 'g' | 'G' | 'v') => match self.precision {
                None => format_float(number),
                Some(precision) => general(number, precision.max(1), self.sharp),
            },
            (None, 'f' | 'F') => format!("{number:.*}", self.precision.unwrap_or(6)),
            (None, 'x' | 'X') if self.precision.is_none() => hexadecimal(number),
            (None, 'e' | 'E') => scientific(number, self.precision.unwrap_or(6)),
            _ => return self.bad(out, letter, value),
        };
        if matches!(letter, 'E' | 'G' | 'X') {
            text = text.to_uppercase();
        }
        let is_infinite = number.is_infinite();
        if !text.starts_with('-') {
            if (self.plus && letter != 'v') || (is_infinite && !self.space) {
                text.insert(0, '+');
            } else if self.space {
                text.insert(0, ' ');
            }
        }
        let is_padded = self.zero && !self.minus && special(number).is_none();
        if let (true, Some(width)) = (is_padded, self.width) {
            let sign = usize::from(text.starts_with(['+', '-', ' ']));
            let zeros = "0".repeat(width.saturating_sub(text.len()));
            text.insert_str(sign, &zeros);
        }
        Verb { zero: false, ..self.clone() }.pad_text(out, text.as_bytes());
    }
}

/// `%e`.
fn scientific(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    format!("{mantissa}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `%x` of a float: its bits.
fn hexadecimal(number: f64) -> String {
    const FRACTION: u32 = 52;
    const BIAS: i64 = 1023;
    let bits = number.abs().to_bits();
    let (mut fraction, mut exponent) =
        (bits & ((1 << FRACTION) - 1), i64::try_from(bits >> FRACTION).unwrap_or(0) - BIAS);
    if number == 0.0 {
        exponent = 0;
    } else if exponent == -BIAS {
        // Subnormal numbers have no leading one.
        let shift = fraction.leading_zeros() - (u64::BITS - FRACTION - 1);
        (fraction, exponent) = ((fraction << shift) & ((1 << FRACTION) - 1), 1 - BIAS - i64::from(shift));
    }
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let sign = if number.is_sign_negative() { "-" } else { "" };
    let lead = u8::from(number != 0.0);
    let point = if digits.is_empty() { "" } else { "." };
    format!("{sign}0x{lead}{point}{digits}p{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// `%.3g`.
fn general(number: f64, precision: usize, keep_zeros: bool) -> String {
    let text = scientific(number, precision - 1);
    let exponent: i64 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    let significant = i64::try_from(precision).unwrap_or(i64::MAX);
    let trim = |text: &str| match text.contains('.') && !keep_zeros {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= significant {
        let (mantissa, tail) = text.split_once('e').unwrap_or((&text, ""));
        return format!("{}e{tail}", trim(mantissa));
    }
    let decimals = usize::try_from(significant - 1 - exponent).unwrap_or(0);
    trim(&format!("{number:.decimals$}"))
}
