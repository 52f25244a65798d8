//! The lookup `password`, as far as it reads and writes no file.

use super::lookups::{NO_FILE, unknown_lookup};
use super::output::check_size;
use super::{Scope, reject};
use minijinja::Error;
use minijinja::value::{Kwargs, Value};

const LOWERCASE: &str = "abcdefghijklmnopqrstuvwxyz";
const UPPERCASE: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &str = "0123456789";
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// Creates a password from a term such as `/dev/null length=32 chars=ascii_letters,digits`.
pub(super) fn of(scope: &Scope, term: &str, options: &Kwargs) -> Result<String, Error> {
    let mut words = term.split_whitespace();
    if words.next() != Some(NO_FILE) {
        return Err(reject(unknown_lookup("password")));
    }
    let mut length: Option<Value> = options.get("length")?;
    let chars: Option<Value> = options.get("chars")?;
    let mut sets = match &chars {
        Some(chars) if chars.as_str().is_none() => chars.try_iter()?.map(|set| set.to_string()).collect(),
        Some(chars) => split(chars.as_str().unwrap_or_default()),
        None => ["ascii_letters", "digits", ".,:-_"].map(str::to_owned).to_vec(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("length", number)) => length = Some(number.into()),
            Some(("chars", names)) => sets = split(names),
            _ => return Err(reject(format!("the built-in executor does not support {word} in the lookup password"))),
        }
    }
    let length = match length {
        None => Some(20),
        Some(text) => text.as_str().map_or_else(|| usize::try_from(text.clone()).ok(), |text| text.parse().ok()),
    };
    let length = length.ok_or_else(|| reject("password: length must be a number"))?;
    check_size("password", length)?;
    let letters: Vec<char> =
        sets.iter().flat_map(|set| chars_of(set).chars().collect::<Vec<_>>()).filter(|c| !"\"'".contains(*c)).collect();
    if letters.is_empty() {
        return Err(reject("password: chars is empty"));
    }
    let draw = |_| scope.sources().below(letters.len() as u64).map(|at| letters[at as usize]);
    (0..length).map(draw).collect::<Result<_, _>>().map_err(reject)
}

fn split(names: &str) -> Vec<String> {
    let comma = names.contains(",,").then(|| ",".to_owned());
    let names = names.replace(",,", ",");
    comma.into_iter().chain(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned)).collect()
}

/// Returns the characters of one of Python's sets; other names are characters themselves.
fn chars_of(set: &str) -> String {
    match set {
        "ascii_letters" => [LOWERCASE, UPPERCASE].concat(),
        "ascii_lowercase" => LOWERCASE.to_owned(),
        "ascii_uppercase" => UPPERCASE.to_owned(),
        "digits" => DIGITS.to_owned(),
        "hexdigits" => [DIGITS, "abcdefABCDEF"].concat(),
        "octdigits" => "01234567".to_owned(),
        "punctuation" => PUNCTUATION.to_owned(),
        other => other.to_owned(),
    }
}
