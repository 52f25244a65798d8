//! The `{{name}}` program, see `{{name}} --help`.

fn main() -> std::process::ExitCode {
    {{crate}}::operator().main()
}
