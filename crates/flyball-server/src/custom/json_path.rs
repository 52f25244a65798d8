//! JSON paths of printer columns, with the semantics of kubectl and kube-apiserver.
//!
//! See <https://kubernetes.io/docs/reference/kubectl/jsonpath/>. Each step takes a list of values to a list of values,
//! or fails, and with it the whole path. A missing field leaves the list shorter; null is a value like any other.
//! Steps can repeat values, so the paths of a row share a budget of values: see [`Budget`].

use serde_json::Value;

/// Values that the paths of one row may visit.
const MAX_VISITS: usize = 200_000;

/// The number of values that the paths of one row may still visit. Beyond it, all paths fail.
#[derive(Debug)]
pub(super) struct Budget(usize);

impl Budget {
    pub(super) const fn of_row() -> Self {
        Self(MAX_VISITS)
    }

    /// Charges values before they are collected.
    pub(super) fn spend(&mut self, visits: usize) -> Result<(), PathMismatch> {
        let remaining = self.0.checked_sub(visits);
        self.0 = remaining.unwrap_or(0);
        remaining.map(drop).ok_or(PathMismatch)
    }
}

/// A path such as `.status.conditions[?(@.type=="Ready")].status`.
#[derive(Clone, Debug)]
pub(super) struct JsonPath(Vec<Step>);

/// A path cannot be followed in an object.
#[derive(Debug, PartialEq)]
pub(super) struct PathMismatch;

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// `[2]`, `[1:3]` or `[*]`.
    Slice(Slice),
    /// `.*`: all values of a list or map.
    Every,
    /// `..`: all descendants of a value.
    Within,
    /// `[0,2]` or `['a','b']`.
    Union(Vec<Step>),
    /// Items whose field compares so with a value.
    Where(Vec<String>, String, Value),
    /// Items that have a field.
    Has(Vec<String>),
}

/// Part of a list, from the end where negative.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    by: Option<i64>,
    /// True if `to` only follows from `from`, as in `[-1]`.
    one: bool,
}

impl JsonPath {
    /// Parses a path; `None` if it is malformed.
    pub(super) fn parse(path: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = path.trim().trim_start_matches('$');
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                let (token, after) = inner.split_at(closing(inner));
                rest = after.strip_prefix(']')?;
                steps.push(bracket(token.trim())?);
                continue;
            }
            let bare = match rest.strip_prefix("..") {
                Some(_) if steps.last() == Some(&Step::Within) => return None,
                Some(inner) => {
                    steps.push(Step::Within);
                    inner
                }
                None => rest.strip_prefix('.').unwrap_or(rest),
            };
            let (name, length) = field(bare);
            rest = &bare[length..];
            if rest.starts_with(['{', ']', ',']) {
                return None;
            }
            match name.as_str() {
                "" => {}
                "*" => steps.push(Step::Every),
                _ => steps.push(Step::Field(name)),
            }
        }
        Some(Self(steps))
    }

    /// Returns the first value that the path leads to.
    pub(super) fn first<'v>(&self, value: &'v Value, budget: &mut Budget) -> Option<&'v Value> {
        budget.spend(1).ok()?;
        self.0.iter().try_fold(vec![value], |values, step| step.follow(&values, budget)).ok()?.first().copied()
    }

    /// Returns true if the path visits all descendants of a value.
    pub(super) fn descends(&self) -> bool {
        self.0.contains(&Step::Within)
    }
}

/// Parses the name of a field, in which `\` escapes the next character; also returns its length.
fn field(text: &str) -> (String, usize) {
    let mut name = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => name.extend(chars.next().map(|(_, escaped)| escaped)),
            '.' | '[' | '{' | ']' | ',' => return (name, at),
            c => name.push(c),
        }
    }
    (name, text.len())
}

/// Finds the bracket that ends a token, past those inside quotes.
fn closing(text: &str) -> usize {
    let mut quote = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, ']') => return at,
            _ => {}
        }
    }
    text.len()
}

fn bracket(token: &str) -> Option<Step> {
    let unquoted = |text: &str| text.trim_matches(['\'', '"']).to_owned();
    if let Some(filter) = token.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let field = |text: &str| -> Vec<String> {
            text.trim().trim_start_matches('@').trim_start_matches('.').split('.').map(str::to_owned).collect()
        };
        let Some(operator) = ["==", "!=", "<=", ">=", "<", ">"].into_iter().find(|known| filter.contains(known)) else {
            return Some(Step::Has(field(filter)));
        };
        let (left, right) = filter.split_once(operator)?;
        let right = right.trim();
        let value = match right.starts_with(['"', '\'']) {
            true => Value::String(unquoted(right)),
            false => serde_json::from_str(right).unwrap_or_default(),
        };
        return Some(Step::Where(field(left), operator.to_owned(), value));
    }
    if token.contains(',') {
        return token.split(',').map(|part| bracket(part.trim())).collect::<Option<_>>().map(Step::Union);
    }
    if token.starts_with(['\'', '"']) {
        return Some(Step::Field(unquoted(token)));
    }
    slice(if token == "*" { ":" } else { token }).map(Step::Slice)
}

fn slice(token: &str) -> Option<Slice> {
    let number = |text: Option<&str>| -> Option<Option<i64>> {
        match text {
            None | Some("") => Some(None),
            Some(text) => text.parse().ok().map(Some),
        }
    };
    let mut parts = token.split(':');
    let (from, to, by) = (number(parts.next())?, parts.next(), number(parts.next().filter(|by| !by.is_empty()))?);
    if parts.next().is_some() {
        return None;
    }
    let one = to.is_none();
    let to = if one { Some(from.unwrap_or(0).checked_add(1)?) } else { number(to)? };
    Some(Slice { from, to, by, one })
}

impl Slice {
    fn of(self, items: &[Value]) -> Result<impl ExactSizeIterator<Item = &Value>, PathMismatch> {
        let length = i64::try_from(items.len()).map_err(|_| PathMismatch)?;
        let mut from = self.from.unwrap_or(0);
        if from < 0 {
            from += length;
        }
        let mut to = self.to.unwrap_or(length);
        if to < 0 || to == 0 && self.one {
            to += length;
        }
        let by = self.by.unwrap_or(1);
        let empty = from == to;
        if !empty && (from < 0 || from >= length || to < 0 || to > length || from > to || by <= 0) {
            return Err(PathMismatch);
        }
        let (from, to) = if empty { (0, 0) } else { (from, to) };
        let [from, to, by] = [from, to, by.max(1)].map(|number| usize::try_from(number).unwrap_or_default());
        Ok(items[from..to].iter().step_by(by))
    }
}

impl Step {
    fn follow<'v>(&self, values: &[&'v Value], budget: &mut Budget) -> Result<Vec<&'v Value>, PathMismatch> {
        let mut found = Vec::new();
        if let Self::Union(steps) = self {
            for step in steps {
                found.extend(step.follow(values, budget)?);
            }
            return Ok(found);
        }
        budget.spend(1 + values.len())?;
        for value in values {
            match (self, value) {
                (Self::Field(name), Value::Object(fields)) => found.extend(fields.get(name)),
                (Self::Every, Value::Array(items)) => {
                    budget.spend(items.len())?;
                    found.extend(items);
                }
                (Self::Every, Value::Object(fields)) => {
                    budget.spend(fields.len())?;
                    found.extend(fields.values());
                }
                (Self::Within, value) => within(value, &mut found, budget)?,
                (Self::Slice(_), Value::Null) | (Self::Field(_) | Self::Every | Self::Union(_), _) => {}
                (Self::Slice(slice), Value::Array(items)) => {
                    let items = slice.of(items)?;
                    budget.spend(items.len())?;
                    found.extend(items);
                }
                (Self::Has(field), Value::Array(items)) => {
                    budget.spend(items.len().saturating_mul(field.len()))?;
                    found.extend(items.iter().filter(|item| at(item, field).is_some()));
                }
                (Self::Where(field, operator, wanted), Value::Array(items)) => {
                    budget.spend(items.len().saturating_mul(field.len()))?;
                    for item in items {
                        if let Some(value) = at(item, field)
                            && compare(value, operator, wanted)?
                        {
                            found.push(item);
                        }
                    }
                }
                (Self::Slice(_) | Self::Has(_) | Self::Where(..), _) => return Err(PathMismatch),
            }
        }
        Ok(found)
    }
}

/// Collects the descendants of a value, breadth first.
fn within<'v>(value: &'v Value, found: &mut Vec<&'v Value>, budget: &mut Budget) -> Result<(), PathMismatch> {
    let inner: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => return Ok(()),
    };
    budget.spend(inner.len())?;
    found.extend(&inner);
    inner.into_iter().try_for_each(|value| within(value, found, budget))
}

fn at<'v>(value: &'v Value, field: &[String]) -> Option<&'v Value> {
    field.iter().try_fold(value, |value, name| value.get(name))
}

/// Compares two values of one type.
fn compare(found: &Value, operator: &str, expected: &Value) -> Result<bool, PathMismatch> {
    let order = match (found, expected) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => a.as_f64().partial_cmp(&b.as_f64()),
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (Value::Bool(a), Value::Bool(b)) if matches!(operator, "==" | "!=") => Some(a.cmp(b)),
        _ => None,
    };
    let order = order.ok_or(PathMismatch)?;
    Ok(match operator {
        "==" => order.is_eq(),
        "!=" => order.is_ne(),
        "<" => order.is_lt(),
        "<=" => order.is_le(),
        ">" => order.is_gt(),
        _ => order.is_ge(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn slices_select_as_in_go() {
        let object = json!({"l": [1, 2, 3, 4], "e": [], "n": null, "m": {"a": 1}});
        let cases = [
            (".l[-1:]", Some(json!(4))),
            (".l[-2:]", Some(json!(3))),
            (".l[1:3]", Some(json!(2))),
            (".l[:1]", Some(json!(1))),
            (".l[:-3]", Some(json!(1))),
            (".l[0:0]", None),
            (".l[::2]", Some(json!(1))),
            (".l[-9:]", None),
            (".l[4]", None),
            (".l[-1]", Some(json!(4))),
            (".l[3,0]", Some(json!(4))),
            (".l[*]", Some(json!(1))),
            (".e[*]", None),
            (".e[-1:]", None),
            (".n", Some(Value::Null)),
            (".n.x", None),
            (".none[0]", None),
            (".m[0]", None),
            (".m.*", Some(json!(1))),
            (".m['none','a']", Some(json!(1))),
            (".l[x]", None),
            ("..a", Some(json!(1))),
            (".m..a", None),
            ("..a..b", None),
            (".l....a", None),
            (".m.{a}", None),
        ];
        for (path, expected) in cases {
            let found = JsonPath::parse(path).and_then(|path| path.first(&object, &mut Budget::of_row()).cloned());
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn filters_compare_values_of_one_type() {
        let object = json!({"l": [{"a": 1, "b": "x"}, {"a": 2}, {"b": "y"}]});
        let cases = [
            ("[?(@.a==2)].a", Some(json!(2))),
            ("[?(@.a>=1)].a", Some(json!(1))),
            (r#"[?(@.b!="x")].b"#, Some(json!("y"))),
            ("[?(@.b)].b", Some(json!("x"))),
            (r#"[?(@.a=="2")].a"#, None),
        ];
        for (path, expected) in cases {
            let found = JsonPath::parse(&format!(".l{path}"))
                .and_then(|path| path.first(&object, &mut Budget::of_row()).cloned());
            assert_eq!(found, expected, "{path}");
        }
    }

    #[test]
    fn multiplying_steps_stop_at_the_budget() {
        let deep = (0..105).fold(json!({"z": 1}), |inner, _| json!({ "a": inner }));
        let mut budget = Budget::of_row();
        let path = JsonPath::parse("..*..*..*..*..*..*..*").unwrap();
        assert!(path.descends());
        assert_eq!(path.first(&deep, &mut budget), None);
        assert_eq!(budget.0, 0);
        let repeated = JsonPath::parse(&format!(".l{}", "[0:2,0:2,0:2,0:2][*]".repeat(20))).unwrap();
        let lists = (0..50).fold(json!([null, null]), |inner, _| json!([inner, null]));
        let mut budget = Budget::of_row();
        assert_eq!(repeated.first(&json!({ "l": lists }), &mut budget), None);
        assert_eq!(budget.0, 0);
    }

    #[test]
    fn paths_are_charged_by_visited_values() {
        let object = json!({"spec": {"a": [{"b": 1}, {"b": 2}]}});
        let visits = |path: &str| {
            let mut budget = Budget::of_row();
            let found = JsonPath::parse(path).unwrap().first(&object, &mut budget).cloned();
            (found, MAX_VISITS - budget.0)
        };
        assert_eq!(visits(".spec.a[0].b"), (Some(json!(1)), 1 + 2 + 2 + (2 + 1) + 2));
        assert_eq!(visits(".spec..b"), (Some(json!(1)), 1 + 2 + (2 + 1 + 2 + 1 + 1) + (1 + 5)));
        assert_eq!(visits(".spec.a[?(@.b==2)].b"), (Some(json!(2)), 1 + 2 + 2 + (2 + 2) + 2));
    }
}
