//! The `demovolume` program, see `demovolume --help`.

fn main() -> std::process::ExitCode {
    demovolume::operator().main()
}
