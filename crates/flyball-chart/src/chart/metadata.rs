//! `Chart.yaml`: the metadata of a chart.

use super::ChartError;
use crate::functions::encoding;
use crate::helm::HelmVersion;
use crate::quote::{is_print, quote};
use crate::value::object::{Field, Object, Record};
use crate::value::{List, ListKind, Map as ValueMap, MapKind, Value};
use crate::yaml::{Data, Error};
use std::collections::BTreeMap;

/// `Chart.yaml`. See <https://helm.sh/docs/topics/charts/#the-chartyaml-file>.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Metadata {
    /// The name.
    pub name: String,
    /// URL of the project.
    pub home: String,
    /// URLs of the source code.
    pub sources: Vec<String>,
    /// The version of the chart.
    pub version: String,
    /// One-sentence description.
    pub description: String,
    /// Keywords.
    pub keywords: Vec<String>,
    /// Maintainers.
    pub maintainers: Vec<Maintainer>,
    /// URL of an icon.
    pub icon: String,
    /// `v2`, or `v1` for charts of Helm 2.
    pub api_version: String,
    /// Path of the value in the parent that enables the chart.
    pub condition: String,
    /// Tags that enable the chart.
    pub tags: String,
    /// The version of the application.
    pub app_version: String,
    /// True if the chart is deprecated.
    pub deprecated: bool,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Constraint on the Kubernetes version.
    pub kube_version: String,
    /// Its subcharts.
    pub dependencies: Vec<Dependency>,
    /// `application`, which is the default, or `library`.
    pub chart_type: String,
}

/// A maintainer of a chart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Maintainer {
    /// The name.
    pub name: String,
    /// The email address.
    pub email: String,
    /// The URL.
    pub url: String,
}

/// A dependency on a subchart. See <https://helm.sh/docs/topics/charts/#chart-dependencies>.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dependency {
    /// The name; after dependencies are processed, the alias.
    pub name: String,
    /// Version constraint.
    pub version: String,
    /// URL of the repository.
    pub repository: String,
    /// Paths in the values; the first boolean enables or disables it.
    pub condition: String,
    /// Keys of `tags` in the values that enable or disable it if no condition does.
    pub tags: Vec<String>,
    /// Values that the parent imports from it.
    pub import_values: Vec<ImportValue>,
    /// An alias.
    pub alias: String,
    /// True if its tags and condition enable it.
    pub enabled: bool,
    /// `import-values` as they are written.
    pub(super) written_imports: Vec<Data>,
}

/// Values that a parent imports from a subchart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportValue {
    /// The path in the subchart's values.
    pub child: String,
    /// Path in the parent's values.
    pub parent: String,
    pub(crate) is_export: bool,
}

/// Decodes the fields of a mapping; error messages contain the path of the field.
pub(super) struct Fields<'d> {
    owner: &'static str,
    path: &'static str,
    map: &'d BTreeMap<String, Data>,
}

impl<'d> Fields<'d> {
    pub(super) fn of(
        data: &'d Data,
        owner: &'static str,
        path: &'static str,
        expected: &str,
    ) -> Result<Option<Fields<'d>>, Error> {
        match data {
            Data::Map(map) => Ok(Some(Fields { owner, path, map })),
            Data::Null => Ok(None),
            other if path.is_empty() => Err(other.mismatch("Go value", expected)),
            other => Err(other.mismatch(&format!("Go struct field {}", path.trim_end_matches('.')), expected)),
        }
    }

    fn get(&self, name: &str) -> &'d Data {
        let found = self.map.get(name).or_else(|| {
            // Go's JSON decoder ignores the case of names.
            self.map.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
        });
        found.unwrap_or(&Data::Null)
    }

    fn field_path(&self, name: &str) -> String {
        format!("{}.{}{name}", self.owner, self.path)
    }

    pub(super) fn text(&self, name: &str) -> Result<String, Error> {
        self.get(name).to_text(&self.field_path(name))
    }

    fn boolean(&self, name: &str) -> Result<bool, Error> {
        match self.get(name) {
            Data::Null => Ok(false),
            Data::Bool(is) => Ok(*is),
            other => Err(other.mismatch(&format!("Go struct field {}", self.field_path(name)), "bool")),
        }
    }

    pub(super) fn list(&self, name: &str, expected: &str) -> Result<&'d [Data], Error> {
        match self.get(name) {
            Data::Null => Ok(&[]),
            Data::List(items) => Ok(items),
            other => Err(other.mismatch(&format!("Go struct field {}", self.field_path(name)), expected)),
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, Error> {
        self.list(name, "[]string")?.iter().map(|item| item.to_text(&self.field_path(name))).collect()
    }
}

impl Metadata {
    /// Reads `Chart.yaml`.
    pub(crate) fn of(data: &Data) -> Result<Metadata, Error> {
        let mut metadata = Metadata::default();
        metadata.read(data)?;
        Ok(metadata)
    }

    /// Decodes `Chart.yaml`, or the dependencies in `requirements.yaml`.
    pub(super) fn read(&mut self, data: &Data) -> Result<(), Error> {
        let Some(fields) = Fields::of(data, "Metadata", "", "chart.Metadata")? else { return Ok(()) };
        let set = |into: &mut String, name: &str| -> Result<(), Error> {
            if *fields.get(name) != Data::Null {
                *into = fields.text(name)?;
            }
            Ok(())
        };
        set(&mut self.name, "name")?;
        set(&mut self.home, "home")?;
        set(&mut self.version, "version")?;
        set(&mut self.description, "description")?;
        set(&mut self.icon, "icon")?;
        set(&mut self.api_version, "apiVersion")?;
        set(&mut self.condition, "condition")?;
        set(&mut self.tags, "tags")?;
        set(&mut self.app_version, "appVersion")?;
        set(&mut self.kube_version, "kubeVersion")?;
        set(&mut self.chart_type, "type")?;
        if *fields.get("deprecated") != Data::Null {
            self.deprecated = fields.boolean("deprecated")?;
        }
        if *fields.get("sources") != Data::Null {
            self.sources = fields.texts("sources")?;
        }
        if *fields.get("keywords") != Data::Null {
            self.keywords = fields.texts("keywords")?;
        }
        if let Some(annotations) =
            Fields::of(fields.get("annotations"), "Metadata", "annotations.", "map[string]string")?
        {
            let entries = annotations.map.iter();
            self.annotations = entries
                .map(|(key, value)| Ok((key.clone(), value.to_text("Metadata.annotations")?)))
                .collect::<Result<_, Error>>()?;
        }
        if *fields.get("maintainers") != Data::Null {
            self.maintainers = fields
                .list("maintainers", "[]*chart.Maintainer")?
                .iter()
                .map(|item| {
                    let Some(fields) = Fields::of(item, "Maintainer", "maintainers.", "chart.Maintainer")? else {
                        return Ok(Maintainer::default());
                    };
                    Ok(Maintainer {
                        name: fields.text("name")?,
                        email: fields.text("email")?,
                        url: fields.text("url")?,
                    })
                })
                .collect::<Result<_, Error>>()?;
        }
        if *fields.get("dependencies") != Data::Null {
            let items = fields.list("dependencies", "[]*chart.Dependency")?;
            self.dependencies = items.iter().map(Dependency::read).collect::<Result<_, Error>>()?;
        }
        Ok(())
    }

    /// Performs Helm's validation, and removes unprintable characters.
    pub(super) fn validate(&mut self) -> Result<(), ChartError> {
        for text in [
            &mut self.name,
            &mut self.description,
            &mut self.home,
            &mut self.icon,
            &mut self.condition,
            &mut self.tags,
            &mut self.app_version,
            &mut self.kube_version,
        ] {
            *text = clean(text);
        }
        self.sources.iter_mut().chain(&mut self.keywords).for_each(|text| *text = clean(text));
        let quoted = |text: &str| quote(text.as_bytes());
        let invalid = |message: String| Err(ChartError::Invalid(message));
        if self.api_version.is_empty() {
            return invalid("chart.metadata.apiVersion is required".to_owned());
        }
        if self.name.is_empty() {
            return invalid("chart.metadata.name is required".to_owned());
        }
        if self.name == "." || self.name == ".." {
            return invalid(format!("chart.metadata.name {} is not allowed", quoted(&self.name)));
        }
        if self.name.contains('/') {
            return invalid(format!("chart.metadata.name {} is invalid", quoted(&self.name)));
        }
        if self.version.is_empty() {
            return invalid("chart.metadata.version is required".to_owned());
        }
        if crate::semver::Version::parse(&self.version).is_err() {
            return invalid(format!("chart.metadata.version {} is invalid", quoted(&self.version)));
        }
        if !matches!(self.chart_type.as_str(), "" | "application" | "library") {
            return invalid("chart.metadata.type must be application or library".to_owned());
        }
        for maintainer in &mut self.maintainers {
            if *maintainer == Maintainer::default() {
                return invalid("maintainers must not contain empty or null nodes".to_owned());
            }
            for text in [&mut maintainer.name, &mut maintainer.email, &mut maintainer.url] {
                *text = clean(text);
            }
        }
        let mut names = std::collections::BTreeSet::new();
        for dependency in &mut self.dependencies {
            if dependency.name.is_empty() && dependency.version.is_empty() && dependency.repository.is_empty() {
                return invalid("dependencies must not contain empty or null nodes".to_owned());
            }
            for text in
                [&mut dependency.name, &mut dependency.version, &mut dependency.repository, &mut dependency.condition]
            {
                *text = clean(text);
            }
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            if !dependency.alias.chars().all(is_word) {
                return invalid(format!(
                    "dependency {} has disallowed characters in the alias",
                    quoted(&dependency.name)
                ));
            }
            let name = if dependency.alias.is_empty() { &dependency.name } else { &dependency.alias };
            if !names.insert(name.clone()) {
                return invalid(format!("more than one dependency with name or alias {}", quoted(name)));
            }
        }
        Ok(())
    }

    /// Returns `Chart.yaml` as Helm writes it.
    pub fn to_yaml(&self) -> String {
        let fields = self.fields(self.dependencies.iter().map(Dependency::as_written).collect());
        let (type_name, embedded) = ("chart.Metadata", fields.len());
        let record = Record { type_name, is_pointer: false, embedded, fields, string: None };
        document(&Value::object(Object::Record(record)))
    }

    /// Returns `.Chart`. With Helm 4, it is a map.
    pub(crate) fn to_value(&self, is_root: bool, helm: HelmVersion) -> Value {
        let value = self.to_record(is_root);
        helm.choose(value.clone(), as_map(&value))
    }

    fn to_record(&self, is_root: bool) -> Value {
        let mut fields = self.fields(self.dependencies.iter().map(Dependency::to_value).collect());
        let embedded = fields.len();
        fields.push(Field::plain("IsRoot", Value::Bool(is_root)));
        let type_name = "struct { chart.Metadata; IsRoot bool }";
        Value::object(Object::Record(Record { type_name, is_pointer: false, embedded, fields, string: None }))
    }

    fn fields(&self, dependencies: Vec<Value>) -> Vec<Field> {
        let text = |name, json, text: &str| Field { name, json, omit_empty: true, value: Value::str(text) };
        let list = |name, json, value| Field { name, json, omit_empty: true, value };
        let named = |kind, items: Vec<Value>| Value::List(List::new(ListKind::Named(kind), items));
        let annotations = self.annotations.iter().map(|(key, value)| (key.clone(), Value::str(value))).collect();
        let maintainers = self.maintainers.iter().map(Maintainer::to_value).collect();
        vec![
            text("Name", "name", &self.name),
            text("Home", "home", &self.home),
            list("Sources", "sources", Value::strings(&self.sources)),
            text("Version", "version", &self.version),
            text("Description", "description", &self.description),
            list("Keywords", "keywords", Value::strings(&self.keywords)),
            list("Maintainers", "maintainers", named("[]*chart.Maintainer", maintainers)),
            text("Icon", "icon", &self.icon),
            text("APIVersion", "apiVersion", &self.api_version),
            text("Condition", "condition", &self.condition),
            text("Tags", "tags", &self.tags),
            text("AppVersion", "appVersion", &self.app_version),
            list("Deprecated", "deprecated", Value::Bool(self.deprecated)),
            list("Annotations", "annotations", Value::Map(ValueMap::new(MapKind::Strings, annotations))),
            text("KubeVersion", "kubeVersion", &self.kube_version),
            list("Dependencies", "dependencies", named("[]*chart.Dependency", dependencies)),
            text("Type", "type", &self.chart_type),
        ]
    }
}

impl Maintainer {
    fn to_value(&self) -> Value {
        let text = |name, json, text: &str| Field { name, json, omit_empty: true, value: Value::str(text) };
        let fields =
            vec![text("Name", "name", &self.name), text("Email", "email", &self.email), text("URL", "url", &self.url)];
        let type_name = "*chart.Maintainer";
        Value::object(Object::Record(Record { type_name, is_pointer: true, embedded: 0, fields, string: None }))
    }
}

impl Dependency {
    /// Creates the entry of a lock: a subchart with its version.
    pub fn locked(name: &str, repository: &str, version: &str) -> Self {
        let [name, repository, version] = [name, repository, version].map(str::to_owned);
        Self { name, repository, version, ..Self::default() }
    }

    pub(super) fn read(data: &Data) -> Result<Dependency, Error> {
        let Some(fields) = Fields::of(data, "Dependency", "dependencies.", "chart.Dependency")? else {
            return Ok(Dependency::default());
        };
        let import = |data: &Data| match data {
            Data::Str(name) => {
                Some(ImportValue { child: format!("exports.{name}"), parent: ".".to_owned(), is_export: true })
            }
            Data::Map(map) => {
                let word = |name: &str| match map.get(name) {
                    Some(Data::Null) | None => "<nil>".to_owned(),
                    Some(other) => other.to_text("").unwrap_or_default(),
                };
                Some(ImportValue { child: word("child"), parent: word("parent"), is_export: false })
            }
            _ => None,
        };
        Ok(Dependency {
            name: fields.text("name")?,
            version: fields.text("version")?,
            repository: fields.text("repository")?,
            condition: fields.text("condition")?,
            tags: fields.texts("tags")?,
            import_values: fields.list("import-values", "[]interface {}")?.iter().filter_map(import).collect(),
            alias: fields.text("alias")?,
            enabled: fields.boolean("enabled")?,
            written_imports: fields.list("import-values", "[]interface {}")?.to_vec(),
        })
    }

    fn to_value(&self) -> Value {
        let imports = self.import_values.iter().map(|import| {
            let entries = [("child", &import.child), ("parent", &import.parent)];
            let entries = entries.map(|(key, value)| (key.to_owned(), Value::str(value))).into_iter().collect();
            Value::Map(ValueMap::new(MapKind::Strings, entries))
        });
        self.to_record(imports.collect())
    }

    /// Returns the dependency as it is written.
    pub(super) fn as_written(&self) -> Value {
        self.to_record(self.written_imports.iter().map(|import| Value::from(&import.clone().into_values())).collect())
    }

    fn to_record(&self, imports: Vec<Value>) -> Value {
        let text = |name, json, omit_empty, text: &str| Field { name, json, omit_empty, value: Value::str(text) };
        let fields = vec![
            text("Name", "name", false, &self.name),
            text("Version", "version", true, &self.version),
            text("Repository", "repository", false, &self.repository),
            text("Condition", "condition", true, &self.condition),
            Field { name: "Tags", json: "tags", omit_empty: true, value: Value::strings(&self.tags) },
            Field { name: "Enabled", json: "enabled", omit_empty: true, value: Value::Bool(self.enabled) },
            Field { name: "ImportValues", json: "import-values", omit_empty: true, value: Value::list(imports) },
            text("Alias", "alias", true, &self.alias),
        ];
        let type_name = "*chart.Dependency";
        Value::object(Object::Record(Record { type_name, is_pointer: true, embedded: 0, fields, string: None }))
    }
}

/// Converts structs to maps.
fn as_map(value: &Value) -> Value {
    match value {
        Value::Object(object) => match object.as_ref() {
            Object::Record(record) => {
                let entry = |field: &Field| (field.name.to_owned(), as_map(&field.value));
                Value::map(record.fields.iter().map(entry).collect())
            }
            _ => value.clone(),
        },
        Value::List(list) => Value::list(list.items.iter().map(as_map).collect()),
        other => other.clone(),
    }
}

/// Replaces white space by plain spaces and removes unprintable characters.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).filter(|c| is_print(*c)).collect()
}

/// Returns a value as a YAML document.
pub(super) fn document(value: &Value) -> String {
    let text = match encoding::to_yaml(value) {
        Value::Str(text) => String::from_utf8_lossy(&text).into_owned(),
        _ => String::new(),
    };
    format!("{text}\n")
}
