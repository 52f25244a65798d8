//! The `redis` program, see `redis --help`.

fn main() -> std::process::ExitCode {
    redis::operator().main()
}
