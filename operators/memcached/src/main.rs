//! The `memcached` program, see `memcached --help`.

fn main() -> std::process::ExitCode {
    memcached::operator().main()
}
