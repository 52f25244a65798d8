//! The `crontab` program, see `crontab --help`.

fn main() -> std::process::ExitCode {
    crontab::operator().main()
}
