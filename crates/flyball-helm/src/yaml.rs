//! YAML files of a project and of charts, which are not templates.

use serde_json::Value;

/// Parses all documents of a text.
pub(crate) fn documents(text: &str) -> Result<Vec<Value>, String> {
    serde_saphyr::from_multiple(text).map_err(|error| problem(&error))
}

/// Returns the problem in words for users. Those for programmers name options of the library.
pub(crate) fn problem(error: &serde_saphyr::Error) -> String {
    error.render_with_formatter(&serde_saphyr::UserMessageFormatter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_no_options_of_the_library() {
        let problem = documents("a: 1\na: 2\n").unwrap_err();
        assert!(problem.contains("duplicate mapping key: a not allowed here"), "{problem}");
        assert!(!problem.contains("Policy") && documents("a: [").is_err());
        assert_eq!(documents("a: 1\n---\nb: 2\n").map(|all| all.len()), Ok(2));
    }
}
