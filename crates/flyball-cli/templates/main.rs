//! The program `{{name}}`: see `{{name}} --help`.

fn main() -> std::process::ExitCode {
    {{crate}}::operator().main()
}
