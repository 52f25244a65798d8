//! The answer to a question about an object.

use super::page::Object;
use crate::render::terminal::{Style, columns, one_line, paint};
use flyball_core::time::{SignedDuration, Timestamp, human_duration};
use serde::{Serialize, Serializer};

/// A question about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    /// The cause of the state of the object.
    Object,
    /// The cause of the value of a field.
    Field(String),
    /// The reasons for inaction.
    Not,
}

/// The findings about an object.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer {
    pub(crate) object: Object,
    /// State in a word or two, such as `Pending`.
    pub(crate) state: String,
    #[serde(serialize_with = "write_time", skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) field: Option<Field>,
    /// From the last write back to its origin.
    pub(crate) chain: Vec<Step>,
    /// Reasons to wait that the object itself reports.
    pub(crate) waits: Vec<String>,
    /// Reasons for inaction.
    pub(crate) reasons: Vec<Reason>,
    /// Excluded reasons.
    pub(crate) excluded: Vec<String>,
    pub(crate) sources: Vec<Source>,
    #[serde(skip)]
    pub(crate) now: Timestamp,
}

/// A field and its value.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Field {
    pub(crate) path: String,
    /// `null` if the field is absent.
    pub(crate) value: serde_json::Value,
    pub(crate) managers: Vec<String>,
}

/// A step of a chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    #[serde(rename = "type")]
    pub(crate) kind: StepKind,
    #[serde(serialize_with = "write_time", skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<Timestamp>,
    pub(crate) text: String,
    pub(crate) object: Object,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resource_version: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) fields: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reconcile: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) manager: Option<String>,
    /// The authenticated user, if the control plane keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) user: Option<String>,
    /// The Deployment, as `NAMESPACE/NAME`, that claims it without proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_by: Option<String>,
    /// The API server confirms the claimed write, but not its cause.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) confirmed: bool,
    /// Other Deployments with an equal claim to the write, which has one writer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) also_claimed_by: Vec<String>,
    /// The number of further ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) claims_omitted: usize,
    /// The source: `ledger`, `writes` (of an embedded control plane), `managedFields` or `owners`; empty for none.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(crate) source: &'static str,
}

/// The type of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum StepKind {
    /// A write of a controller.
    Write,
    /// The change that caused the reconcile of the step before.
    CausedBy,
    /// The first write of a chain.
    Origin,
    /// The owner of the object of the step before.
    Owner,
    /// A write or an object that cannot be determined; the text contains the reason.
    Unknown,
}

/// A reason why nothing happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reason {
    pub(crate) reason: &'static str,
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<String>,
    #[serde(serialize_with = "write_time", skip_serializing_if = "Option::is_none")]
    pub(crate) until: Option<Timestamp>,
    /// The Deployment, as `NAMESPACE/NAME`, that claims it without proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_by: Option<String>,
}

/// An operator whose ledger was read, or not.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Source {
    pub(crate) address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) operator: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn write_time<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => serializer.collect_str(time),
        None => serializer.serialize_none(),
    }
}

impl Step {
    /// Describes who claims it; empty for a fact.
    fn claim(&self) -> String {
        match (&self.claimed_by, self.also_claimed_by.is_empty()) {
            (None, _) => String::new(),
            (Some(by), true) if self.confirmed => format!(", claimed by {by}, the API server confirms the write"),
            (Some(by), true) => format!(", claimed by {by}"),
            (Some(by), false) => {
                let more = match self.claims_omitted {
                    0 => String::new(),
                    omitted => format!(" and {omitted} more"),
                };
                format!(", ambiguous: claimed by {by} and by {}{more}", self.also_claimed_by.join(", "))
            }
        }
    }
}

impl Answer {
    /// Formats the answer for a terminal.
    pub(crate) fn lines(&self, question: &Question) -> Vec<String> {
        let mut lines = vec![self.headline()];
        let rows = match question {
            Question::Object | Question::Field(_) => self.rows(),
            Question::Not => self.reason_rows(),
        };
        lines.extend(columns(rows).into_iter().map(|line| format!("  {line}")));
        let mut remark = |text: &str| lines.push(paint(Style::Faint, &format!("  {}", one_line(text))));
        for source in &self.sources {
            if let Some(error) = &source.error {
                remark(&format!("not reached: operator at {}: {error}", source.address));
            }
        }
        if *question != Question::Not && !self.sources.iter().any(|source| source.operator.is_some()) {
            remark("no operator with a ledger was reached; pass --operator URL for causes of reconciles");
        }
        if let Some(deployment) = self.claimant() {
            remark(&format!(
                "claimed: everyone can label a Deployment; if you trust it, name it: --operator {deployment}"
            ));
        }
        lines
    }

    /// Returns a Deployment that claims something.
    fn claimant(&self) -> Option<&str> {
        let of_steps = self.chain.iter().map(|step| &step.claimed_by);
        let mut claims = of_steps.chain(self.reasons.iter().map(|reason| &reason.claimed_by));
        claims.find_map(Option::as_deref)
    }

    fn headline(&self) -> String {
        let name = paint(Style::Strong, &one_line(&self.object.to_string()));
        if let Some(field) = &self.field {
            let managers = match field.managers.len() {
                0 => String::new(),
                _ => format!(", set by {}", field.managers.join(", ")),
            };
            let value = if field.value.is_null() { "absent".to_owned() } else { field.value.to_string() };
            return format!("{name} {}", one_line(&format!("{} is {value}{managers}", field.path)));
        }
        let since = self.since.map(|since| format!(" since {}", self.age(since))).unwrap_or_default();
        if self.state.is_empty() { name } else { format!("{name} is {}{since}", one_line(&self.state)) }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let mut rows: Vec<Vec<String>> = self.chain.iter().map(|step| self.step(step)).collect();
        let row = |name: &str, text: &str| vec![paint(Style::Faint, name), one_line(text).into_owned()];
        rows.extend(self.waits.iter().map(|text| row("waiting", text)));
        rows.extend(self.reasons.iter().map(|reason| {
            let claim = reason.claimed_by.as_ref().map(|by| format!(" [claimed by {by}]")).unwrap_or_default();
            let label = if reason.reason == "paused" { "paused: " } else { "" };
            row("next", &format!("{label}{}{claim}", reason.text))
        }));
        if !self.excluded.is_empty() {
            rows.push(row("excluded", &self.excluded.join(", ")));
        }
        rows
    }

    fn reason_rows(&self) -> Vec<Vec<String>> {
        let row = |reason: &Reason| {
            let by = match (&reason.operator, &reason.controller) {
                (Some(operator), Some(controller)) => format!("controller {controller} of {operator}"),
                (Some(operator), None) => operator.clone(),
                _ => String::new(),
            };
            let claim = reason.claimed_by.as_ref().map(|by| format!(", claimed by {by}")).unwrap_or_default();
            let by = format!("{by}{claim}");
            let by = match by.is_empty() {
                true => String::new(),
                false => format!("  {}", paint(Style::Faint, &one_line(&format!("[{by}]")))),
            };
            vec![paint(Style::Strong, reason.reason), format!("{}{by}", one_line(&reason.text))]
        };
        let mut rows: Vec<Vec<String>> = self.reasons.iter().map(row).collect();
        rows.extend(self.waits.iter().map(|text| vec![paint(Style::Strong, "waiting"), one_line(text).into_owned()]));
        if rows.is_empty() {
            let text = "no reason was found that keeps it from being reconciled".to_owned();
            rows.push(vec![paint(Style::Strong, "none"), text]);
        }
        if !self.excluded.is_empty() {
            let text = one_line(&self.excluded.join(", ")).into_owned();
            rows.push(vec![paint(Style::Faint, "excluded"), text]);
        }
        rows
    }

    fn step(&self, step: &Step) -> Vec<String> {
        let ago = step.time.map(|time| format!("{} ago", self.age(time))).unwrap_or_default();
        let claim = step.claim();
        let mut text = one_line(&step.text).into_owned();
        let lead = match step.kind {
            StepKind::Write => ago,
            StepKind::CausedBy => paint(Style::Faint, "caused by"),
            StepKind::Owner => paint(Style::Faint, "owned by"),
            StepKind::Unknown => paint(Style::Faint, "unknown"),
            StepKind::Origin => {
                if !ago.is_empty() {
                    text = format!("{text}, {ago}");
                }
                paint(Style::Faint, "origin")
            }
        };
        if matches!(step.kind, StepKind::Write | StepKind::Origin) || !claim.is_empty() {
            text = format!("{text}  {}", paint(Style::Faint, &one_line(&format!("[{}{claim}]", step.source))));
        }
        vec![lead, text]
    }

    fn age(&self, since: Timestamp) -> String {
        human_duration(self.now.duration_since(since).max(SignedDuration::ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::super::chain;
    use super::*;

    #[test]
    fn equal_claims_are_ambiguous() {
        let object = serde_json::from_str(r#"{"kind": "Pod", "name": "a"}"#).unwrap();
        let fact = chain::unknown(&object, String::new());
        assert_eq!(fact.claim(), "");
        let claimed = Step { claimed_by: Some("a/op".into()), ..fact };
        assert_eq!(claimed.claim(), ", claimed by a/op");
        let confirmed = Step { confirmed: true, ..claimed.clone() };
        assert_eq!(confirmed.claim(), ", claimed by a/op, the API server confirms the write");
        let ambiguous = Step { also_claimed_by: vec!["b/op".into(), "c/op".into()], ..claimed };
        assert_eq!(ambiguous.claim(), ", ambiguous: claimed by a/op and by b/op, c/op");
        let many = Step { claims_omitted: 12, ..ambiguous };
        assert_eq!(many.claim(), ", ambiguous: claimed by a/op and by b/op, c/op and 12 more");
    }
}
