
/// Longest name that leaves room for the names of what is made for {{a_kind}}.
const LONGEST_NAME: usize = 40;

/// Judges {{a_kind}}. Rules about its own fields are better declared with the type; what lies beyond is judged here.
{{pub}}fn judge(request: &AdmissionRequest<{{type}}>) -> Result<Verdict> {
    let is_long = request.key().name().len() > LONGEST_NAME;
    let error = || FieldError::too_long("metadata.name", LONGEST_NAME as u64);
    Ok(Verdict::from_errors(is_long.then(error)))
}
