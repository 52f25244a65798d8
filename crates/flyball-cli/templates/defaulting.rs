
/// Sets defaults of {{a_kind}}. Prefer `#[serde(default)]` on the type for constant defaults.
{{pub}}fn set_defaults({{variable}}: &mut {{type}}, _: &AdmissionRequest<{{type}}>) -> Result<()> {
    let labels = {{variable}}.metadata.labels.get_or_insert_default();
    labels.entry("app.kubernetes.io/name".into()).or_insert_with(|| "{{lower}}".into());
    Ok(())
}
