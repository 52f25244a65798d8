//! Durations as Go writes them: `1h30m`, `500ms`.

use std::time::Duration;

/// Reads a duration of Go's, which is not negative.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').filter(|end| *end > 0)?;
        let (number, unit) = rest.split_at(end);
        let end = unit.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(unit.len());
        let (unit, left) = unit.split_at(end);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number.parse::<f64>().ok()? * unit;
        if left.is_empty() {
            return Duration::try_from_secs_f64(seconds).ok();
        }
        rest = left;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_go_are_read() {
        let cases = [("30s", 30_000), ("1h1m1s", 3_661_000), ("1.5m", 90_000), ("500ms", 500), ("0", 0), ("0s", 0)];
        for (text, expected) in cases {
            assert_eq!(parse(text), Some(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1d", "1s1", "1.2.3s", "1 s", "99999999999999999999999h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
