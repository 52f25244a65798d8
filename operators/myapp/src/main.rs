//! The `myapp` program, see `myapp --help`.

fn main() -> std::process::ExitCode {
    myapp::operator().main()
}
