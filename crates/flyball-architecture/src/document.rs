//! The table of layers in a Markdown document.

/// Compares the rows below a heading with a table of layers.
pub(crate) fn errors(text: &str, heading: &str, table: &[(&str, &[&str])]) -> Vec<String> {
    let mut lines = text.lines().skip_while(|line| line.trim_start_matches('#').trim() != heading);
    if lines.next().is_none() {
        return vec![format!("there is no heading {heading:?}")];
    }
    let section = lines.take_while(|line| !line.starts_with('#'));
    let found: Vec<String> = section.filter(|line| line.starts_with("| `")).map(row).collect();
    let expected = table.iter().map(|(module, imports)| {
        let imports: Vec<String> = imports.iter().map(|import| format!("`{import}`")).collect();
        format!("| `{module}` | {}", imports.join(", ")).trim_end().to_owned()
    });
    let expected: Vec<String> = expected.collect();
    let missing = expected.iter().filter(|row| !found.contains(row)).map(|row| format!("{heading}: no row {row:?}"));
    let surplus =
        found.iter().filter(|row| !expected.contains(row)).map(|row| format!("{heading}: unexpected row {row:?}"));
    let mut errors: Vec<String> = missing.chain(surplus).collect();
    if errors.is_empty() && found != expected {
        errors.push(format!("{heading}: the rows are in another order than those of the table of layers"));
    }
    errors
}

/// Returns the first two columns of a row.
fn row(line: &str) -> String {
    let mut columns = line.split('|').skip(1).map(str::trim);
    let (module, imports) = (columns.next().unwrap_or_default(), columns.next().unwrap_or_default());
    format!("| {module} | {imports}").trim_end().to_owned()
}
