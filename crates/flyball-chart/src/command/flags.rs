//! Parser of Helm's command line, with Helm's error messages.

use crate::quote::quote;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches};

/// A command of Helm as a separate program.
#[derive(clap::Parser)]
#[command(disable_version_flag = true, no_binary_name = true, name = "helm")]
struct Program<A: clap::Args> {
    #[command(flatten)]
    args: A,
}

/// Flags of Helm that select the source of a chart.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct ChartPathArgs {
    /// URL of the repository of the chart
    #[arg(long, value_name = "URL")]
    pub repo: Option<String>,
    /// Version of the chart, or a constraint such as ^1.2; the newest release by default
    #[arg(long, value_name = "VERSION")]
    pub version: Option<String>,
    /// Select pre-releases as well, like --version '>0.0.0-0'
    #[arg(long)]
    pub devel: bool,
    /// Flags of access.
    #[command(flatten)]
    pub access: AccessArgs,
}

/// Flags of Helm for access to repositories and registries.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct AccessArgs {
    /// User of the repository or registry
    #[arg(long, value_name = "NAME")]
    pub username: Option<String>,
    /// Password of the user; --password-stdin keeps it out of the list of processes
    #[arg(long, value_name = "PASSWORD", conflicts_with = "password_stdin")]
    pub password: Option<String>,
    /// Read the password from standard input
    #[arg(long)]
    pub password_stdin: bool,
    /// Trust the certificate authorities in this file, in PEM, instead of those of the machine
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<String>,
    /// Credentials of registries; defaults to HELM_REGISTRY_CONFIG, and to Docker's configuration
    #[arg(long, value_name = "FILE")]
    pub registry_config: Option<String>,
    /// Use HTTP without TLS, for servers on this machine only
    #[arg(long, hide = true)]
    pub plain_http: bool,
    /// Send the credentials to all servers; not supported
    #[arg(long, hide = true)]
    pub pass_credentials: bool,
    /// Verify the signature of the chart in its provenance file, with gpgv
    #[arg(long)]
    pub verify: bool,
    /// Public keys for --verify; defaults to pubring.gpg or pubring.kbx of GnuPG
    #[arg(long, value_name = "FILE")]
    pub keyring: Option<String>,
    /// Certificate of the client; not supported
    #[arg(long, hide = true)]
    pub cert_file: Option<String>,
    /// Key of the client; not supported
    #[arg(long, hide = true)]
    pub key_file: Option<String>,
    /// Accept any certificate; not supported
    #[arg(long, hide = true)]
    pub insecure_skip_tls_verify: bool,
}

/// Parses the arguments after a command of Helm.
///
/// # Errors
///
/// Returns Helm's message if a flag is unknown, lacks its value or has an invalid one; or the help text, if requested.
pub fn parse<A: clap::Args>(arguments: &[String]) -> Result<A, String> {
    let command = Program::<A>::command();
    let arguments = plain_switches(&command, arguments)?;
    let matches = command.try_get_matches_from(arguments).map_err(|error| message(&error))?;
    Program::<A>::from_arg_matches(&matches).map(|program| program.args).map_err(|error| message(&error))
}

/// Boolean flags may have a value, as in `--no-hooks=false`: they are replaced with the flag without a value, or
/// removed.
fn plain_switches(command: &clap::Command, arguments: &[String]) -> Result<Vec<String>, String> {
    let is_switch = |name: &str| {
        command.get_arguments().any(|arg| {
            let names = arg.get_long_and_visible_aliases().unwrap_or_default();
            let aliases = arg.get_all_aliases().unwrap_or_default();
            !arg.get_action().takes_values() && (names.contains(&name) || aliases.contains(&name))
        })
    };
    let mut plain = Vec::new();
    for argument in arguments {
        let split = argument.strip_prefix("--").and_then(|flag| flag.split_once('='));
        match split.filter(|(name, _)| is_switch(name)) {
            None => plain.push(argument.clone()),
            Some((name, value)) => match parse_bool(value) {
                Some(true) => plain.push(format!("--{name}")),
                Some(false) => {}
                None => return Err(invalid_argument(&format!("--{name}"), value, &not_parsed("ParseBool", value))),
            },
        }
    }
    Ok(plain)
}

/// Parses a boolean like Go's `strconv.ParseBool`.
pub(super) fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Go's message about a text that one of the functions of `strconv` rejects.
pub(super) fn not_parsed(function: &str, text: &str) -> String {
    format!("strconv.{function}: parsing {}: invalid syntax", quote(text.as_bytes()))
}

/// Helm's message about an invalid value of a flag.
pub(super) fn invalid_argument(flag: &str, value: &str, problem: &str) -> String {
    format!("invalid argument {} for \"{flag}\" flag: {problem}", quote(value.as_bytes()))
}

fn message(error: &clap::Error) -> String {
    let flag = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let name = flag.split([' ', '=', '[']).next().unwrap_or(&flag);
    match error.kind() {
        ErrorKind::UnknownArgument => match name.strip_prefix('-').filter(|short| !short.starts_with('-')) {
            Some(short) => format!("unknown shorthand flag: '{short}' in -{short}"),
            None => format!("unknown flag: {name}"),
        },
        ErrorKind::InvalidValue => format!("flag needs an argument: {name}"),
        _ => error.to_string().trim_start_matches("error: ").to_owned(),
    }
}
