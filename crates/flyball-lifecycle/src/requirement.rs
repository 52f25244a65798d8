//! Requirements of a bundle on the other bundles in its namespace.

use crate::bundle::{Api, Bundle, Property};
use crate::catalog::{Catalogs, EntryId};
use crate::version::{InvalidRange, VersionRange, parse_tolerant};
use flyball_schema::cel::{Budget, Cel, Expression, Scope};
use flyball_schema::rules::to_cel;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fmt;
use std::sync::Arc;

/// A condition that another bundle has to meet.
#[derive(Clone, Debug)]
pub enum Requirement {
    /// The bundle provides an API.
    Api(Api),
    /// The bundle is a version of a package.
    Package {
        /// The package.
        name: String,
        /// The versions.
        range: VersionRange,
        /// The versions as written.
        text: String,
    },
    /// The bundle meets all of these.
    All(Vec<Requirement>),
    /// The bundle meets one of these.
    Any(Vec<Requirement>),
    /// The bundle meets none of these.
    Not(Vec<Requirement>),
    /// A CEL expression over `properties` is true for the bundle.
    Cel(Arc<Expression>),
}

/// A property that constrains other bundles but is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidConstraint {
    /// The value does not have the form of its type.
    #[error("invalid property {kind:?}: {why}")]
    Form {
        /// The type of the property.
        kind: String,
        /// The reason.
        why: String,
    },
    /// A version range is invalid.
    #[error(transparent)]
    Range(#[from] InvalidRange),
    /// A CEL expression is invalid.
    #[error("convert olm.constraint to resolver predicate: {0}")]
    Cel(String),
    /// A constraint has not exactly one condition.
    #[error("an olm.constraint must have exactly one of all, any, cel, gvk, not and package, not {found:?}")]
    Conditions {
        /// The conditions.
        found: Vec<String>,
    },
    /// Constraints are nested too deeply.
    #[error("olm.constraint is nested more than {MAX_DEPTH} levels")]
    Depth,
}

/// Maximum nesting of constraints.
const MAX_DEPTH: usize = 32;
/// The conditions of an `olm.constraint`.
const CONDITIONS: &[&str] = &["all", "any", "cel", "gvk", "not", "package"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PackageRange {
    package_name: String,
    version_range: String,
}

impl Requirement {
    /// Returns the requirements of a bundle.
    pub fn of(bundle: &Bundle) -> Result<Vec<Self>, InvalidConstraint> {
        bundle.properties().iter().filter_map(|property| Self::of_property(property).transpose()).collect()
    }

    fn of_property(property: &Property) -> Result<Option<Self>, InvalidConstraint> {
        Ok(Some(match property.kind.as_str() {
            "olm.gvk.required" => Self::Api(decode(&property.kind, &property.value())?),
            "olm.package.required" => Self::of_package(&property.kind, &property.value())?,
            "olm.constraint" => Self::of_constraint(&property.value(), 0)?,
            _ => return Ok(None),
        }))
    }

    fn of_package(kind: &str, value: &Value) -> Result<Self, InvalidConstraint> {
        let PackageRange { package_name: name, version_range: text } = decode(kind, value)?;
        Ok(Self::Package { name, range: VersionRange::parse(&text)?, text })
    }

    fn of_constraint(value: &Value, depth: usize) -> Result<Self, InvalidConstraint> {
        const KIND: &str = "olm.constraint";
        if depth > MAX_DEPTH {
            return Err(InvalidConstraint::Depth);
        }
        let form = |why: &str| InvalidConstraint::Form { kind: KIND.to_owned(), why: why.to_owned() };
        let fields = value.as_object().ok_or_else(|| form("it is not an object"))?;
        let mut found = fields.keys().filter(|field| *field != "failureMessage");
        let (Some(condition), None) = (found.next(), found.next()) else {
            let found = fields.keys().filter(|field| *field != "failureMessage").cloned().collect();
            return Err(InvalidConstraint::Conditions { found });
        };
        if !CONDITIONS.contains(&condition.as_str()) {
            return Err(InvalidConstraint::Conditions { found: vec![condition.clone()] });
        }
        let value = &fields[condition];
        let nested = || {
            let constraints = value["constraints"].as_array().ok_or_else(|| form("`constraints` is not a list"))?;
            constraints.iter().map(|nested| Self::of_constraint(nested, depth + 1)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match condition.as_str() {
            "gvk" => Self::Api(decode(KIND, value)?),
            "package" => Self::of_package(KIND, value)?,
            "all" => Self::All(nested()?),
            "any" => Self::Any(nested()?),
            "not" => Self::Not(nested()?),
            _ => {
                let expression = Expression::new(value["rule"].as_str().unwrap_or_default());
                expression.check().map_err(|why| InvalidConstraint::Cel(why.to_owned()))?;
                Self::Cel(Arc::new(expression))
            }
        })
    }

    /// Returns true if a bundle meets this requirement.
    pub fn is_met_by(&self, bundle: &Bundle) -> bool {
        match self {
            Self::Api(api) => bundle.apis().contains(api),
            Self::Package { name, range, .. } => {
                bundle.packages().any(|package| package == name)
                    && bundle.versions().any(|version| range.includes(&version))
            }
            Self::All(all) => all.iter().all(|requirement| requirement.is_met_by(bundle)),
            Self::Any(any) => any.iter().any(|requirement| requirement.is_met_by(bundle)),
            Self::Not(none) => !none.iter().any(|requirement| requirement.is_met_by(bundle)),
            Self::Cel(expression) => is_true(expression, bundle),
        }
    }

    /// Returns the entries whose bundles meet this requirement.
    pub(crate) fn entries(&self, catalogs: &Catalogs) -> Vec<EntryId> {
        let is_met = |id: &EntryId| self.is_met_by(&catalogs.entry(*id).bundle);
        match self {
            Self::Api(api) => catalogs.providing(api).to_vec(),
            Self::Package { name, .. } => catalogs.declaring(name).iter().copied().filter(is_met).collect(),
            Self::All(all) => match all.iter().find(|part| part.is_indexed()) {
                Some(indexed) => indexed.entries(catalogs).into_iter().filter(is_met).collect(),
                None => catalogs.all().filter(is_met).collect(),
            },
            Self::Any(any) if any.iter().all(Self::is_indexed) => {
                let mut entries: Vec<_> = any.iter().flat_map(|part| part.entries(catalogs)).collect();
                entries.sort();
                entries.dedup();
                entries
            }
            Self::Any(_) | Self::Not(_) | Self::Cel(_) => catalogs.all().filter(is_met).collect(),
        }
    }

    /// Returns true if an index finds the entries.
    fn is_indexed(&self) -> bool {
        match self {
            Self::Api(_) | Self::Package { .. } => true,
            Self::All(all) => all.iter().any(Self::is_indexed),
            Self::Any(any) => any.iter().all(Self::is_indexed),
            Self::Not(_) | Self::Cel(_) => false,
        }
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, word: &str, parts: &[Self]| {
            for (index, part) in parts.iter().enumerate() {
                let separator = if index == 0 { "" } else { word };
                write!(f, "{separator}{part}")?;
            }
            Ok(())
        };
        match self {
            Self::Api(Api { group, version, kind }) => {
                write!(f, "providing an API with group: {group}, version: {version}, kind: {kind}")
            }
            Self::Package { name, text, .. } => write!(f, "with package: {name} and with version in range: {text}"),
            Self::All(all) => list(f, " and ", all),
            Self::Any(any) => list(f, " or ", any),
            Self::Not(none) => {
                write!(f, "not ")?;
                list(f, " or ", none)
            }
            Self::Cel(expression) => write!(f, "with constraint: {:?}", expression.text()),
        }
    }
}

fn decode<T: for<'de> Deserialize<'de>>(kind: &str, value: &Value) -> Result<T, InvalidConstraint> {
    let invalid = |error: serde_json::Error| InvalidConstraint::Form { kind: kind.to_owned(), why: error.to_string() };
    T::deserialize(value).map_err(invalid)
}

/// Evaluates an expression for a bundle; false if it fails or exceeds its budget.
fn is_true(expression: &Expression, bundle: &Bundle) -> bool {
    let properties: Vec<Value> = bundle.properties().iter().map(|property| json!(property)).collect();
    let mut scope = Scope::new();
    scope.set("properties", to_cel(None, &Value::Array(properties)));
    scope.set_comparison("semver_compare", |one, other| {
        let version = |text: &str| parse_tolerant(text).ok_or_else(|| format!("invalid version {text:?}"));
        Ok(version(one)?.cmp_precedence(&version(other)?))
    });
    matches!(expression.run(&scope, &Budget::of_conditions()), Ok(Cel::Bool(true)))
}
