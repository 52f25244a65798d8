//! The flags of plugins, and their validation.

use serde::Deserialize;

/// A flag of the plugin's own.
#[derive(Debug, Deserialize)]
pub(super) struct Flag {
    #[serde(alias = "Name")]
    pub(super) name: String,
    /// `string`, `bool`, `int` or `float`.
    #[serde(default, rename = "type", alias = "Type")]
    pub(super) kind: String,
    #[serde(default, alias = "Default")]
    pub(super) default: String,
    #[serde(default, alias = "Usage")]
    pub(super) usage: String,
}

impl Flag {
    /// Returns its usage text.
    pub(super) fn usage(&self) -> String {
        match self.default.as_str() {
            "" => self.usage.clone(),
            default => format!("{} [default: {default}]", self.usage),
        }
    }

    /// Returns the expected form if a value is invalid. The forms are those of Go's package `strconv`, which most
    /// plugins use.
    fn value_error(&self, value: &str) -> Option<&'static str> {
        const BOOLEANS: [&str; 12] = ["1", "t", "T", "true", "TRUE", "True", "0", "f", "F", "false", "FALSE", "False"];
        let (fits, expected) = match self.kind.as_str() {
            "bool" => (BOOLEANS.contains(&value), "true or false"),
            "int" => (value.parse::<i64>().is_ok(), "a 64-bit integer"),
            "float" => (value.parse::<f64>().is_ok(), "a number"),
            // Values of other types are validated by the plugin.
            _ => (true, ""),
        };
        (!fits).then_some(expected)
    }
}

/// Validates flags and their values. As in Go, the value of a bool follows `=` or is omitted.
///
/// # Errors
///
/// Returns the error message.
pub(super) fn check(flags: &[Flag], args: &[String]) -> Result<(), String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let Some(argument) = arg.strip_prefix("--") else { continue };
        let (name, value) = argument.split_once('=').map_or((argument, None), |(name, value)| (name, Some(value)));
        // Plugins may share a flag; its value goes to each.
        let mut named = flags.iter().filter(|flag| flag.name == name).peekable();
        let Some(flag) = named.peek() else { return Err(format!("unknown plugin flag --{name}")) };
        let value = match value {
            Some(value) => value,
            None if flag.kind == "bool" => continue,
            None => args.next().ok_or_else(|| format!("flag --{name} needs a value of type {}", flag.kind))?,
        };
        if let Some((flag, expected)) = named.find_map(|flag| Some((flag, flag.value_error(value)?))) {
            return Err(format!("{value:?} is not a valid {} for flag --{name}: expected {expected}", flag.kind));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flag_values_are_checked_against_their_types() {
        let flag =
            |kind: &str| Flag { name: kind.into(), kind: kind.into(), default: String::new(), usage: String::new() };
        let flags = ["string", "bool", "int", "float", "duration"].map(flag);
        let check = |line: &str| {
            let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
            check(&flags, &args)
        };
        for good in [
            "--int 3 --float -1.5e3 --bool --string --int",
            "--int=-3 --bool=False --float=2 --string= plain",
            "--duration=soon --bool --int 0",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, expected) in [
            ("--int two", "\"two\" is not a valid int for flag --int: expected a 64-bit integer"),
            ("--int=1.5", "\"1.5\" is not a valid int for flag --int"),
            ("--int=9223372036854775808", "\"9223372036854775808\" is not a valid int for flag --int"),
            ("--float= --int 1", "\"\" is not a valid float for flag --float: expected a number"),
            ("--bool=yes", "\"yes\" is not a valid bool for flag --bool: expected true or false"),
            ("--bool --int", "flag --int needs a value of type int"),
            ("--size 3", "unknown plugin flag --size"),
        ] {
            let wrong = check(bad).unwrap_err();
            assert!(wrong.starts_with(expected), "{bad}: {wrong}");
        }
    }
}
