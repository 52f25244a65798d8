//! Go's time layouts, which consist of the reference time, 2 January 2006, 15:04:05.

use super::{DAYS, MONTHS, Moment};
use crate::message;
use jiff::Zoned;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

/// An element of a layout.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Element {
    LongMonth,
    Month,
    NumMonth,
    ZeroMonth,
    LongWeekday,
    Weekday,
    Day,
    UnderDay,
    ZeroDay,
    UnderYearDay,
    ZeroYearDay,
    Hour,
    Hour12,
    ZeroHour12,
    Minute,
    ZeroMinute,
    Second,
    ZeroSecond,
    LongYear,
    Year,
    UpperPm,
    LowerPm,
    Zone,
    /// `Z` for UTC; with or without minutes, seconds and colons.
    Offset {
        z: bool,
        minutes: bool,
        seconds: bool,
        colon: bool,
    },
    /// Fraction of a second with this number of digits, with or without trailing zeros.
    Fraction {
        digits: usize,
        keeps_zeros: bool,
    },
}

/// Finds the first element of a layout; returns the text before it, the element, and the rest.
fn next_element(layout: &str) -> Option<(&str, Element, &str)> {
    const OFFSETS: [(&str, bool, bool, bool, bool); 10] = [
        ("-070000", false, true, true, false),
        ("-07:00:00", false, true, true, true),
        ("-0700", false, true, false, false),
        ("-07:00", false, true, false, true),
        ("-07", false, false, false, false),
        ("Z070000", true, true, true, false),
        ("Z07:00:00", true, true, true, true),
        ("Z0700", true, true, false, false),
        ("Z07:00", true, true, false, true),
        ("Z07", true, false, false, false),
    ];
    for (at, c) in layout.char_indices() {
        let rest = &layout[at..];
        let before = &layout[..at];
        let found = |piece: Element, length: usize| Some((before, piece, &layout[at + length..]));
        let is_lower_next = |length: usize| rest[length..].starts_with(|c: char| c.is_ascii_lowercase());
        match c {
            'J' if rest.starts_with("January") => return found(Element::LongMonth, 7),
            'J' if rest.starts_with("Jan") && !is_lower_next(3) => return found(Element::Month, 3),
            'M' if rest.starts_with("Monday") => return found(Element::LongWeekday, 6),
            'M' if rest.starts_with("Mon") && !is_lower_next(3) => return found(Element::Weekday, 3),
            'M' if rest.starts_with("MST") => return found(Element::Zone, 3),
            '0' => {
                let piece = match rest.as_bytes().get(1) {
                    Some(b'1') => Element::ZeroMonth,
                    Some(b'2') => Element::ZeroDay,
                    Some(b'3') => Element::ZeroHour12,
                    Some(b'4') => Element::ZeroMinute,
                    Some(b'5') => Element::ZeroSecond,
                    Some(b'6') => Element::Year,
                    Some(b'0') if rest.starts_with("002") => return found(Element::ZeroYearDay, 3),
                    _ => continue,
                };
                return found(piece, 2);
            }
            '1' if rest.starts_with("15") => return found(Element::Hour, 2),
            '1' => return found(Element::NumMonth, 1),
            '2' if rest.starts_with("2006") => return found(Element::LongYear, 4),
            '2' => return found(Element::Day, 1),
            '_' if rest.starts_with("_2006") => return Some((&layout[..at + 1], Element::LongYear, &layout[at + 5..])),
            '_' if rest.starts_with("__2") => return found(Element::UnderYearDay, 3),
            '_' if rest.starts_with("_2") => return found(Element::UnderDay, 2),
            '3' => return found(Element::Hour12, 1),
            '4' => return found(Element::Minute, 1),
            '5' => return found(Element::Second, 1),
            'P' if rest.starts_with("PM") => return found(Element::UpperPm, 2),
            'p' if rest.starts_with("pm") => return found(Element::LowerPm, 2),
            '-' | 'Z' => {
                if let Some((text, z, minutes, seconds, colon)) =
                    OFFSETS.iter().find(|(text, ..)| rest.starts_with(text)).copied()
                {
                    return found(Element::Offset { z, minutes, seconds, colon }, text.len());
                }
            }
            '.' | ',' => {
                let digit = rest.as_bytes().get(1).copied();
                if let Some(digit @ (b'0' | b'9')) = digit {
                    let digits = rest.bytes().skip(1).take_while(|byte| *byte == digit).count();
                    if !rest[1 + digits..].starts_with(|c: char| c.is_ascii_digit()) {
                        return found(Element::Fraction { digits, keeps_zeros: digit == b'0' }, 1 + digits);
                    }
                }
            }
            _ => {}
        }
    }
    None
}

/// Formats a date.
pub(super) fn format(layout: &str, date: &Zoned) -> String {
    let mut out = String::new();
    let mut rest = layout;
    while let Some((before, piece, after)) = next_element(rest) {
        out.push_str(before);
        // A fraction is recognized only after seconds.
        if let (Element::Fraction { .. }, false) = (piece, out.ends_with(|c: char| c.is_ascii_digit())) {
            out.push_str(&rest[before.len()..rest.len() - after.len()]);
        } else {
            write(&mut out, piece, date, &rest[before.len()..]);
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn write(out: &mut String, piece: Element, date: &Zoned, written: &str) {
    let month = usize::try_from(date.month()).unwrap_or(1);
    let weekday = usize::try_from(date.weekday().to_sunday_zero_offset()).unwrap_or(0);
    let hour12 = match date.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    let text = match piece {
        Element::LongMonth => MONTHS[month - 1].to_owned(),
        Element::Month => MONTHS[month - 1][..3].to_owned(),
        Element::NumMonth => month.to_string(),
        Element::ZeroMonth => format!("{month:02}"),
        Element::LongWeekday => DAYS[weekday].to_owned(),
        Element::Weekday => DAYS[weekday][..3].to_owned(),
        Element::Day => date.day().to_string(),
        Element::UnderDay => format!("{:2}", date.day()),
        Element::ZeroDay => format!("{:02}", date.day()),
        Element::UnderYearDay => format!("{:3}", date.day_of_year()),
        Element::ZeroYearDay => format!("{:03}", date.day_of_year()),
        Element::Hour => format!("{:02}", date.hour()),
        Element::Hour12 => hour12.to_string(),
        Element::ZeroHour12 => format!("{hour12:02}"),
        Element::Minute => date.minute().to_string(),
        Element::ZeroMinute => format!("{:02}", date.minute()),
        Element::Second => date.second().to_string(),
        Element::ZeroSecond => format!("{:02}", date.second()),
        Element::LongYear => format!("{:04}", date.year()),
        Element::Year => format!("{:02}", date.year().rem_euclid(100)),
        Element::UpperPm => if date.hour() >= 12 { "PM" } else { "AM" }.to_owned(),
        Element::LowerPm => if date.hour() >= 12 { "pm" } else { "am" }.to_owned(),
        Element::Zone => zone_name(date),
        Element::Offset { z, minutes, seconds, colon } => {
            offset_text(date.offset().seconds(), z, minutes, seconds, colon)
        }
        Element::Fraction { digits, keeps_zeros } => {
            let nanos = format!("{:09}", date.subsec_nanosecond());
            let nanos = &nanos[..digits.min(9)];
            let fraction = if keeps_zeros { nanos } else { nanos.trim_end_matches('0') };
            let point = if written.starts_with(',') { "," } else { "." };
            if fraction.is_empty() { String::new() } else { format!("{point}{fraction}") }
        }
    };
    out.push_str(&text);
}

fn zone_name(date: &Zoned) -> String {
    if *date.time_zone() == TimeZone::UTC {
        return "UTC".to_owned();
    }
    match date.time_zone().to_offset_info(date.timestamp()).abbreviation() {
        name if name.starts_with(['+', '-']) || name.is_empty() => {
            let text = offset_text(date.offset().seconds(), false, true, false, false);
            text.strip_suffix("00").unwrap_or(&text).to_owned()
        }
        name => name.to_owned(),
    }
}

fn offset_text(seconds: i32, z: bool, has_minutes: bool, has_seconds: bool, colon: bool) -> String {
    if z && seconds == 0 {
        return "Z".to_owned();
    }
    let size = seconds.abs();
    let colon = if colon { ":" } else { "" };
    let mut out = format!("{}{:02}", if seconds < 0 { '-' } else { '+' }, size / 3600);
    if has_minutes {
        out.push_str(&format!("{colon}{:02}", size / 60 % 60));
    }
    if has_seconds {
        out.push_str(&format!("{colon}{:02}", size % 60));
    }
    out
}

/// The fields of a date parsed so far.
struct Fields {
    year: i16,
    month: Option<i8>,
    day: Option<i8>,
    year_day: Option<i16>,
    hour: i8,
    minute: i8,
    second: i8,
    nanos: i32,
    is_pm: Option<bool>,
    offset: Option<i32>,
}

/// Parses a date.
///
/// # Errors
///
/// Returns Go's message about the mismatch.
pub(crate) fn parse(layout: &str, value: &str) -> Result<Moment, String> {
    let quoted = message::quoted;
    let head = format!("parsing time {}", quoted(value));
    let cannot = |rest: &str, element: &str| {
        format!("{head} as {}: cannot parse {} as {}", quoted(layout), quoted(rest), quoted(element))
    };
    let out_of_range = |what: &str| format!("{head}: {what} out of range");
    let mut fields = Fields {
        year: 0,
        month: None,
        day: None,
        year_day: None,
        hour: 0,
        minute: 0,
        second: 0,
        nanos: 0,
        is_pm: None,
        offset: None,
    };
    let (mut form, mut rest) = (layout, value);
    loop {
        let Some((before, piece, after)) = next_element(form) else {
            rest = skip(rest, form).map_err(|rest| cannot(rest, form))?;
            if !rest.is_empty() {
                return Err(format!("{head}: extra text: {}", quoted(rest)));
            }
            break;
        };
        let element = &form[before.len()..form.len() - after.len()];
        rest = skip(rest, before).map_err(|rest| cannot(rest, before))?;
        let unparsed = rest;
        match fields.read(piece, rest, after) {
            Ok(next) => rest = next,
            Err(Some(what)) => return Err(out_of_range(what)),
            Err(None) => return Err(cannot(unparsed, element)),
        }
        form = after;
    }
    fields.finish().map_err(out_of_range)
}

/// Skips the literal text of a layout; a space matches any number of spaces.
fn skip<'v>(mut value: &'v str, mut prefix: &str) -> Result<&'v str, &'v str> {
    while let Some(c) = prefix.chars().next() {
        if c == ' ' {
            if !value.is_empty() && !value.starts_with(' ') {
                return Err(value);
            }
            prefix = prefix.trim_start_matches(' ');
            value = value.trim_start_matches(' ');
            continue;
        }
        value = value.strip_prefix(c).ok_or(value)?;
        prefix = &prefix[c.len_utf8()..];
    }
    Ok(value)
}

type Read<'v> = Result<&'v str, Option<&'static str>>;

impl Fields {
    fn read<'v>(&mut self, piece: Element, text: &'v str, after: &str) -> Read<'v> {
        let ranged =
            |number: i32, range: std::ops::RangeInclusive<i32>, what: &'static str| match range.contains(&number) {
                true => i8::try_from(number).map_err(|_| Some(what)),
                false => Err(Some(what)),
            };
        match piece {
            Element::LongYear | Element::Year => {
                let count = if piece == Element::LongYear { 4 } else { 2 };
                let (number, rest) = fixed(text, count)?;
                self.year = i16::try_from(number).map_err(|_| None)?;
                if count == 2 {
                    self.year += if self.year >= 69 { 1900 } else { 2000 };
                }
                Ok(rest)
            }
            Element::LongMonth | Element::Month => {
                let (at, rest) = name(text, &MONTHS, piece == Element::Month)?;
                self.month = i8::try_from(at + 1).ok();
                Ok(rest)
            }
            Element::NumMonth | Element::ZeroMonth => {
                let (number, rest) = number(text, piece == Element::ZeroMonth)?;
                self.month = Some(ranged(number, 1..=12, "month")?);
                Ok(rest)
            }
            Element::LongWeekday | Element::Weekday => Ok(name(text, &DAYS, piece == Element::Weekday)?.1),
            Element::Day | Element::UnderDay | Element::ZeroDay => {
                let text = if piece == Element::UnderDay { text.strip_prefix(' ').unwrap_or(text) } else { text };
                let (number, rest) = number(text, piece == Element::ZeroDay)?;
                self.day = Some(i8::try_from(number).map_err(|_| Some("day"))?);
                Ok(rest)
            }
            Element::UnderYearDay | Element::ZeroYearDay => {
                let (number, rest) = fixed(text, 3)?;
                self.year_day = i16::try_from(number).ok();
                Ok(rest)
            }
            Element::Hour => {
                let (number, rest) = number(text, false)?;
                self.hour = ranged(number, 0..=23, "hour")?;
                Ok(rest)
            }
            Element::Hour12 | Element::ZeroHour12 => {
                let (number, rest) = number(text, piece == Element::ZeroHour12)?;
                self.hour = ranged(number, 0..=12, "hour")?;
                Ok(rest)
            }
            Element::Minute | Element::ZeroMinute => {
                let (number, rest) = number(text, piece == Element::ZeroMinute)?;
                self.minute = ranged(number, 0..=59, "minute")?;
                Ok(rest)
            }
            Element::Second | Element::ZeroSecond => {
                let (number, rest) = number(text, piece == Element::ZeroSecond)?;
                self.second = ranged(number, 0..=59, "second")?;
                // A fraction may follow even if the layout has none.
                let has_fraction = matches!(next_element(after), Some(("", Element::Fraction { .. }, _)));
                if !has_fraction && rest.starts_with(['.', ',']) && rest[1..].starts_with(|c: char| c.is_ascii_digit())
                {
                    let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
                    self.nanos = nanos(&rest[1..=digits]);
                    return Ok(&rest[1 + digits..]);
                }
                Ok(rest)
            }
            Element::UpperPm | Element::LowerPm => {
                let word = text.get(..2).ok_or(None)?;
                let (am, pm) = if piece == Element::UpperPm { ("AM", "PM") } else { ("am", "pm") };
                self.is_pm = Some(if word == pm {
                    true
                } else if word == am {
                    false
                } else {
                    return Err(None);
                });
                Ok(&text[2..])
            }
            Element::Zone => {
                if let Some(rest) = text.strip_prefix("UTC") {
                    self.offset = Some(0);
                    return Ok(rest);
                }
                let length = text.bytes().take_while(u8::is_ascii_uppercase).count();
                if !(3..=5).contains(&length) {
                    return Err(None);
                }
                self.offset = Some(0);
                Ok(&text[length..])
            }
            Element::Offset { z, minutes, seconds, colon } => self.read_offset(text, z, minutes, seconds, colon),
            Element::Fraction { digits, keeps_zeros } => {
                if !text.starts_with(['.', ',']) {
                    return if keeps_zeros { Err(None) } else { Ok(text) };
                }
                let count = text[1..].bytes().take_while(u8::is_ascii_digit).count();
                let count = if keeps_zeros { digits } else { count.min(9) };
                let found =
                    text.get(1..=count).filter(|found| found.bytes().all(|b| b.is_ascii_digit())).ok_or(None)?;
                self.nanos = nanos(found);
                Ok(&text[1 + count..])
            }
        }
    }

    fn read_offset<'v>(&mut self, text: &'v str, z: bool, minutes: bool, seconds: bool, colon: bool) -> Read<'v> {
        if z && let Some(rest) = text.strip_prefix('Z') {
            self.offset = Some(0);
            return Ok(rest);
        }
        let (sign, mut rest) = match text.as_bytes().first() {
            Some(b'+') => (1, &text[1..]),
            Some(b'-') => (-1, &text[1..]),
            _ => return Err(None),
        };
        let mut total = 0;
        for (at, unit) in [3600, 60, 1].into_iter().enumerate().take(1 + usize::from(minutes) + usize::from(seconds)) {
            if at > 0 && colon {
                rest = rest.strip_prefix(':').ok_or(None)?;
            }
            let (number, next) = fixed(rest, 2)?;
            total += number * unit;
            rest = next;
        }
        self.offset = Some(sign * total);
        Ok(rest)
    }

    fn finish(self) -> Result<Moment, &'static str> {
        let hour = match (self.is_pm, self.hour) {
            (Some(true), hour) if hour < 12 => hour + 12,
            (Some(false), 12) => 0,
            (_, hour) => hour,
        };
        let date = if let Some(day) = self.year_day {
            let first = jiff::civil::Date::new(self.year, 1, 1).map_err(|_| "day-of-year")?;
            let date = first.checked_add(jiff::Span::new().days(i64::from(day) - 1)).map_err(|_| "day-of-year")?;
            if day < 1 || date.year() != self.year {
                return Err("day-of-year");
            }
            date
        } else {
            jiff::civil::Date::new(self.year, self.month.unwrap_or(1), self.day.unwrap_or(1)).map_err(|_| "day")?
        };
        let time = jiff::civil::Time::new(hour, self.minute, self.second, self.nanos).map_err(|_| "hour")?;
        let zone = match self.offset {
            None | Some(0) => TimeZone::UTC,
            Some(seconds) => Offset::from_seconds(seconds).map_err(|_| "time zone offset hour")?.to_time_zone(),
        };
        DateTime::from_parts(date, time).to_zoned(zone).map(Moment).map_err(|_| "day")
    }
}

fn nanos(digits: &str) -> i32 {
    let digits: String = digits.chars().chain("000000000".chars()).take(9).collect();
    digits.parse().unwrap_or(0)
}

/// Parses a number with one or two digits, or exactly two if required.
fn number(text: &str, must_be_two: bool) -> Result<(i32, &str), Option<&'static str>> {
    let count = text.bytes().take(2).take_while(u8::is_ascii_digit).count();
    if count == 0 || (must_be_two && count < 2) {
        return Err(None);
    }
    fixed(text, count)
}

fn fixed(text: &str, count: usize) -> Result<(i32, &str), Option<&'static str>> {
    let digits = text.get(..count).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit())).ok_or(None)?;
    Ok((digits.parse().map_err(|_| None)?, &text[count..]))
}

/// Returns the index of a name, ignoring case.
fn name<'v>(text: &'v str, names: &[&str], is_short: bool) -> Result<(usize, &'v str), Option<&'static str>> {
    for (at, name) in names.iter().enumerate() {
        let name = if is_short { &name[..3] } else { name };
        if text.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)) {
            return Ok((at, &text[name.len()..]));
        }
    }
    Err(None)
}
