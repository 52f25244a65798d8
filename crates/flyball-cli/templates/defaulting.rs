
/// Completes {{a_kind}}. Constant defaults are better declared with the type; what depends on something is found here.
{{pub}}fn complete({{variable}}: &mut {{type}}, _: &AdmissionRequest<{{type}}>) -> Result<()> {
    let labels = {{variable}}.metadata.labels.get_or_insert_default();
    labels.entry("app.kubernetes.io/name".into()).or_insert_with(|| "{{lower}}".into());
    Ok(())
}
