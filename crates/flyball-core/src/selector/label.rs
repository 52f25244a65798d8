//! Label selectors: `app=web,tier in (a, b),!legacy`.

use super::Error;
use crate::field::{FieldError, aggregate};
use crate::names;
use serde_json::Value;
use std::collections::BTreeSet;

/// A label selector: all of its requirements must hold; an empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[doc(alias = "labels.Selector")]
pub struct LabelSelector {
    /// The requirements, in the order of the selector.
    pub requirements: Vec<Requirement>,
}

/// A requirement on a label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// Key of the label.
    pub key: String,
    /// Comparison of its value.
    pub operator: Operator,
    /// Values that it is compared with.
    pub values: BTreeSet<String>,
}

/// The comparison of a label's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    GreaterThan,
    LessThan,
}

impl LabelSelector {
    /// Parses the selector of a query.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Parser { tokens: tokens(text), at: 0 }.parse().map_err(Error)
    }

    /// Parses a validated `metav1.LabelSelector`; a malformed one selects no objects.
    pub fn from_value(selector: &Value) -> Self {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let mut requirements: Vec<Requirement> = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            requirements.push(Requirement { key: key.clone(), operator: Operator::In, values: [text(value)].into() });
        }
        for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
            let operator = match expression["operator"].as_str() {
                Some("In") => Operator::In,
                Some("NotIn") => Operator::NotIn,
                Some("Exists") => Operator::Exists,
                Some("DoesNotExist") => Operator::DoesNotExist,
                _ => {
                    return Self {
                        requirements: vec![Requirement {
                            key: String::new(),
                            operator: Operator::Exists,
                            values: BTreeSet::new(),
                        }],
                    };
                }
            };
            let values = expression["values"].as_array().into_iter().flatten().map(text).collect();
            requirements.push(Requirement { key: text(&expression["key"]), operator, values });
        }
        Self { requirements }
    }

    /// Returns true if every object is selected.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns true if an object is selected. `get` looks up its labels.
    pub fn matches<'a>(&self, get: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| requirement.holds(get(&requirement.key)))
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        match (self.operator, value) {
            (Operator::In, Some(value)) => self.values.contains(value),
            (Operator::NotIn, Some(value)) => !self.values.contains(value),
            (Operator::In | Operator::Exists, None) => false,
            (Operator::NotIn | Operator::DoesNotExist, None) | (Operator::Exists, Some(_)) => true,
            (Operator::DoesNotExist, Some(_)) | (Operator::GreaterThan | Operator::LessThan, None) => false,
            (Operator::GreaterThan, Some(value)) => self.compares(value, |a, b| a > b),
            (Operator::LessThan, Some(value)) => self.compares(value, |a, b| a < b),
        }
    }

    fn compares(&self, value: &str, holds: fn(i64, i64) -> bool) -> bool {
        let bound = self.values.first().and_then(|bound| bound.parse().ok());
        matches!((value.parse(), bound), (Ok(value), Some(bound)) if holds(value, bound))
    }

    /// Rejects keys and values that are not valid in labels.
    fn checked(self, text_operator: &str) -> Result<Self, String> {
        let mut errors = Vec::new();
        let key = names::qualified_name(&self.key);
        if !key.is_empty() {
            errors.push(FieldError::invalid("key", self.key.as_str(), key.join("; ")));
        }
        for (i, value) in self.values.iter().enumerate() {
            if matches!(text_operator, ">" | "<") && value.parse::<i64>().is_err() {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(FieldError::invalid(format!("values[{i}]"), value.as_str(), detail));
            }
        }
        for (i, value) in self.values.iter().enumerate() {
            let problems = names::label_value(value);
            if !problems.is_empty() {
                errors.push(FieldError::invalid(
                    format!("values[{i}][{}]", self.key),
                    value.as_str(),
                    problems.join("; "),
                ));
            }
        }
        if errors.is_empty() { Ok(self) } else { Err(aggregate(errors)) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Symbol(&'a str),
    Broken(&'a str),
    End,
}

impl Token<'_> {
    /// The token as quoted in errors.
    fn literal(self) -> String {
        match self {
            Self::Word(text) | Self::Symbol(text) => text.to_owned(),
            Self::Broken(text) => format!("error expected: keyword found '{text}'"),
            Self::End => String::new(),
        }
    }
}

fn tokens(text: &str) -> Vec<Token<'_>> {
    const SPECIAL: &[char] = &['=', '!', '(', ')', ',', '>', '<'];
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\r', '\n']);
        let Some(first) = rest.chars().next() else {
            tokens.push(Token::End);
            return tokens;
        };
        let length = if SPECIAL.contains(&first) {
            ["==", "!=", "=", "!", "(", ")", ",", ">", "<"]
                .iter()
                .find(|symbol| rest.starts_with(**symbol))
                .map_or(1, |symbol| symbol.len())
        } else {
            rest.find(|c| SPECIAL.contains(&c) || " \t\r\n".contains(c)).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        tokens.push(match token {
            "\0" => Token::Broken(token),
            _ if SPECIAL.contains(&first) => Token::Symbol(token),
            _ => Token::Word(token),
        });
        rest = after;
    }
}

/// A recursive descent parser of selectors; `in` and `notin` are operators only where an operator is expected.
struct Parser<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Token<'a> {
        self.tokens[self.at]
    }

    fn next_token(&mut self) -> Token<'a> {
        let token = self.peek();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        token
    }

    fn parse(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::Word(_) | Token::Symbol("!") => {
                    requirements.push(self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?);
                    match self.next_token() {
                        Token::End => return Ok(LabelSelector { requirements }),
                        Token::Symbol(",") => match self.peek() {
                            Token::Word(_) | Token::Symbol("!") => {}
                            other => {
                                return Err(format!("found '{}', expected: identifier after ','", other.literal()));
                            }
                        },
                        other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.literal())),
                    }
                }
                Token::End => return Ok(LabelSelector { requirements }),
                other => {
                    return Err(format!("found '{}', expected: !, identifier, or 'end of string'", other.literal()));
                }
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = self.peek() == Token::Symbol("!");
        if negated {
            self.next_token();
        }
        let key = match self.next_token() {
            Token::Word(key) => key.to_owned(),
            other => return Err(format!("found '{}', expected: identifier", other.literal())),
        };
        let problems = names::qualified_name(&key);
        if !problems.is_empty() {
            return Err(FieldError::invalid("<nil>", key, problems.join("; ")).to_string());
        }
        if negated || matches!(self.peek(), Token::End | Token::Symbol(",")) {
            let operator = if negated { Operator::DoesNotExist } else { Operator::Exists };
            return Requirement { key, operator, values: BTreeSet::new() }.checked("");
        }
        let (text, operator) = match self.next_token() {
            Token::Word("in") => ("in", Operator::In),
            Token::Word("notin") => ("notin", Operator::NotIn),
            Token::Symbol(text @ ("=" | "==")) => (text, Operator::In),
            Token::Symbol("!=") => ("!=", Operator::NotIn),
            Token::Symbol(">") => (">", Operator::GreaterThan),
            Token::Symbol("<") => ("<", Operator::LessThan),
            other => return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.literal())),
        };
        let values = if matches!(text, "in" | "notin") { self.set()? } else { [self.value()?].into() };
        Requirement { key, operator, values }.checked(text)
    }

    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.next_token();
                Ok(value.to_owned())
            }
            other => Err(format!("found '{}', expected: identifier", other.literal())),
        }
    }

    /// Parses `(a, b)`; no characters between commas mean the empty value.
    fn set(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next_token() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.literal())),
        }
        let mut values = BTreeSet::new();
        match self.peek() {
            Token::Word(_) | Token::Symbol(",") => {}
            Token::Symbol(")") => {
                self.next_token();
                return Ok([String::new()].into());
            }
            other => return Err(format!("found '{}', expected: ',', ')' or identifier", other.literal())),
        }
        loop {
            match self.next_token() {
                Token::Word(value) => {
                    values.insert(value.to_owned());
                    match self.peek() {
                        Token::Symbol(",") => {}
                        Token::Symbol(")") => break,
                        other => return Err(format!("found '{}', expected: ',' or ')'", other.literal())),
                    }
                }
                Token::Symbol(",") => {
                    if values.is_empty() || matches!(self.peek(), Token::Symbol("," | ")")) {
                        values.insert(String::new());
                    }
                    if self.peek() == Token::Symbol(")") {
                        break;
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.literal())),
            }
        }
        self.next_token();
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
        let selector = LabelSelector::parse(selector).unwrap();
        selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn each_operator_selects() {
        let labels = [("app", "web"), ("n", "5"), ("empty", "")];
        for yes in [
            "",
            "app",
            "app=web",
            "app==web",
            "app!=db",
            "x!=y",
            "app in (web, db)",
            "app notin (db)",
            "!x",
            "n>4",
            "n<6",
            "empty=",
            "empty in ()",
            " app = web , n ",
        ] {
            assert!(selects(yes, &labels), "{yes}");
        }
        for no in ["x", "app=db", "app!=web", "app in (db,)", "!app", "n>5", "x>1", "app notin (web)", "app in ()"] {
            assert!(!selects(no, &labels), "{no}");
        }
    }

    #[test]
    fn operator_names_are_valid_keys() {
        assert!(selects("in in (in)", &[("in", "in")]));
    }

    #[test]
    fn errors_name_the_expected_token() {
        let error = |text: &str| LabelSelector::parse(text).unwrap_err().to_string();
        assert_eq!(error("a,"), "found '', expected: identifier after ','");
        assert_eq!(error("a b"), "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt");
        assert_eq!(error("a in b"), "unable to parse requirement: found 'b' expected: '('");
        assert_eq!(error("=a"), "found '=', expected: !, identifier, or 'end of string'");
        assert!(error("a>b").contains("the value must be an integer"), "{}", error("a>b"));
        assert!(
            error("-a=b")
                .starts_with("unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist")
        );
    }

    #[test]
    fn selectors_are_parsed_from_objects() {
        let selector = LabelSelector::from_value(
            &serde_json::json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "Exists"}]}),
        );
        assert!(selector.matches(|key| if key == "a" { Some("b") } else { Some("x") }));
        assert!(!selector.matches(|key| if key == "a" { Some("b") } else { None }));
    }
}
