//! The `visitors` program, see `visitors --help`.

fn main() -> std::process::ExitCode {
    visitors::operator().main()
}
