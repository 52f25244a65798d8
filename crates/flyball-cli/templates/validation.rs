
/// Maximum length of a name, so that names of child objects can add a suffix.
const MAX_NAME_LENGTH: usize = 40;

/// Validates {{a_kind}}. Prefer validation attributes on the type for rules about a single field.
{{pub}}fn validate(request: &AdmissionRequest<{{type}}>) -> Result<Verdict> {
    let is_too_long = request.key().name().len() > MAX_NAME_LENGTH;
    let error = || FieldError::too_long("metadata.name", MAX_NAME_LENGTH as u64);
    Ok(Verdict::from_errors(is_too_long.then(error)))
}
