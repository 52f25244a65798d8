//! The `sample-controller` program, see `sample-controller --help`.

fn main() -> std::process::ExitCode {
    sample_controller::operator().main()
}
