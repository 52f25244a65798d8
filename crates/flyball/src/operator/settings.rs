//! Options from environment variables and from a file.
//!
//! Each option has the same name everywhere: `--metrics-addr`, `FLYBALL_METRICS_ADDR`, `metrics-addr:` in the file. For
//! manifests of operator-sdk, `WATCH_NAMESPACE` is read if `FLYBALL_NAMESPACE` is not set.
//! Values found become the option's default, so that the command line takes precedence. `--help` does not show them,
//! since they may be secret.

use clap::{Arg, ArgAction, Command};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The option with the path of the file.
const FILE_OPTION: &str = "config";
/// Prefix of the environment variables.
const VARIABLE_PREFIX: &str = "FLYBALL_";

/// An invalid setting.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error("cannot read the configuration {}: {why}", path.display())]
    File { path: PathBuf, why: String },
    #[error("{} in {origin}: {why}", key)]
    Setting { key: String, origin: String, why: String },
}

/// Sets the defaults of options from a file and from environment variables, which take precedence. An empty variable
/// counts as unset.
pub(super) fn with_defaults(
    command: Command,
    arguments: &[OsString],
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Command, Error> {
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    // Other errors of the command line are reported later.
    let named = command.clone().ignore_errors(true).try_get_matches_from(arguments).ok();
    let named = named.and_then(|matches| matches.try_get_one::<PathBuf>(FILE_OPTION).ok().flatten().cloned());
    let path = named.or_else(|| variable(&variable_of(FILE_OPTION)).map(PathBuf::from));
    let mut file = path.as_deref().map(read).transpose()?.unwrap_or_default();
    let origin = path.map(|path| path.display().to_string()).unwrap_or_default();

    let mut found = BTreeMap::new();
    for arg in command.get_arguments().filter(|arg| arg.get_id() != FILE_OPTION) {
        let Some(key) = arg.get_long().map(str::to_owned) else { continue };
        let (in_file, mut variable_name) = (file.remove(&key), variable_of(&key));
        if key == "namespace" && variable(&variable_name).is_none() {
            variable_name = "WATCH_NAMESPACE".to_owned();
        }
        let (origin, value) = match (variable(&variable_name), in_file) {
            (Some(value), _) => (format!("the environment ({variable_name})"), Ok(value)),
            (None, Some(value)) => (origin.clone(), text(&value)),
            (None, None) => continue,
        };
        let checked = value.and_then(|value| check(arg, &key, &value).map(|()| value));
        let value = checked.map_err(|why| Error::Setting { key: key.clone(), origin, why })?;
        found.insert(key, value);
    }
    if let Some((key, _)) = file.into_iter().next() {
        return Err(Error::Setting { key, origin, why: "unknown option; see --help".into() });
    }
    Ok(command.mut_args(|arg| match arg.get_long().and_then(|key| found.remove(key)) {
        // Settings live as long as the process.
        Some(value) => {
            let hidden = arg.get_action().takes_values();
            arg.required(false).default_value(&*value.leak()).hide_default_value(hidden)
        }
        None => arg,
    }))
}

fn variable_of(key: &str) -> String {
    format!("{VARIABLE_PREFIX}{}", key.to_uppercase().replace('-', "_"))
}

fn read(path: &Path) -> Result<BTreeMap<String, Value>, Error> {
    let wrong = |why: String| Error::File { path: path.to_owned(), why };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let empty = text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'));
    if empty {
        return Ok(BTreeMap::new());
    }
    serde_saphyr::from_str(&text).map_err(|error| wrong(error.to_string()))
}

/// Formats a value of the file as on the command line.
fn text(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(_) | Value::Number(_) => Ok(value.to_string()),
        Value::Array(values) => values.iter().map(text).collect::<Result<Vec<_>, _>>().map(|texts| texts.join(",")),
        Value::Null | Value::Object(_) => Err("expected a string, a number, true or false, or a list of them".into()),
    }
}

/// Returns the reason why a value is invalid.
fn check(arg: &Arg, key: &str, value: &str) -> Result<(), String> {
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => {
            value.parse::<bool>().map(drop).map_err(|_| "expected true or false".into())
        }
        ArgAction::Count => value.parse::<u8>().map(drop).map_err(|_| "expected a number from 0 to 255".into()),
        _ => {
            let alone = Command::new("check").arg(arg.clone().required(false));
            let parsed = alone.try_get_matches_from(["check".to_owned(), format!("--{key}={value}")]);
            parsed.map(drop).map_err(|error| {
                let message = error.to_string();
                message.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Args, FromArgMatches, Parser};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Debug, Parser)]
    struct Cli {
        #[arg(long)]
        config: Option<PathBuf>,
        #[command(flatten)]
        flags: Flags,
    }

    #[derive(Args, Debug)]
    struct Flags {
        #[arg(long, value_delimiter = ',')]
        namespace: Vec<String>,
        #[arg(long, default_value_t = 8080)]
        port: u16,
        #[arg(long)]
        token: String,
        #[arg(short, long, action = ArgAction::Count)]
        verbose: u8,
        #[arg(long)]
        quick: bool,
    }

    fn parse(arguments: &[&str], variables: &[(&str, &str)], file: &str) -> Result<String, String> {
        use clap::CommandFactory;
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        // Tests run at the same time.
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("flyball-settings-{}-{number}.yaml", std::process::id()));
        std::fs::write(&path, file).unwrap();
        let config = format!("--config={}", path.display());
        let arguments: Vec<OsString> =
            ["op", &config].into_iter().chain(arguments.iter().copied()).map(Into::into).collect();
        let variable =
            |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let command = with_defaults(Cli::command(), &arguments, variable);
        std::fs::remove_file(&path).unwrap();
        let command = command.map_err(|error| error.to_string().replace(&path.display().to_string(), "FILE_OPTION"))?;
        let matches = command.try_get_matches_from(&arguments).map_err(|error| error.to_string())?;
        let Flags { namespace, port, token, verbose, quick } = Cli::from_arg_matches(&matches).unwrap().flags;
        Ok(format!("{} {port} {token} {verbose} {quick}", namespace.join("+")))
    }

    #[test]
    fn flags_override_variables_and_variables_override_the_file() {
        let file = "# of two teams\nnamespace: [a, b]\nport: 1\ntoken: file\nverbose: 2\nquick: true\n";
        let check = |arguments: &[&str], variables: &[(&str, &str)], file: &str, expected: &str| {
            assert_eq!(parse(arguments, variables, file).as_deref(), Ok(expected));
        };
        check(&["--token=flag"], &[], "# nothing\n", " 8080 flag 0 false");
        check(&[], &[], file, "a+b 1 file 2 true");
        let variables = [("FLYBALL_NAMESPACE", "c,d"), ("FLYBALL_PORT", "2"), ("FLYBALL_TOKEN", "")];
        check(&[], &variables, file, "c+d 2 file 2 true");
        check(&["--namespace=e", "-v", "--port", "3"], &variables, file, "e 3 file 1 true");
        let of_operator_sdk = [("WATCH_NAMESPACE", "g,h"), ("FLYBALL_NAMESPACE", "")];
        check(&[], &of_operator_sdk, file, "g+h 1 file 2 true");
        check(&[], &[("WATCH_NAMESPACE", "g"), ("FLYBALL_NAMESPACE", "h")], file, "h 1 file 2 true");
        check(&[], &[("WATCH_NAMESPACE", "")], file, "a+b 1 file 2 true");
        check(&[], &[("FLYBALL_QUICK", "false"), ("FLYBALL_TOKEN", "t")], "quick: true", " 8080 t 0 false");
    }

    #[test]
    fn help_hides_current_values() {
        let help = parse(&["--help"], &[("FLYBALL_TOKEN", "secret")], "").unwrap_err();
        assert!(help.contains("--token") && help.contains("8080") && !help.contains("secret"), "{help}");
    }

    #[test]
    fn invalid_settings_are_reported_with_name_and_source() {
        let check = |variables: &[(&str, &str)], file: &str, expected: &str| {
            let error = parse(&["--token=t"], variables, file).expect_err(expected);
            assert!(error.starts_with(expected), "{error}");
        };
        check(
            &[("FLYBALL_PORT", "x")],
            "port: 1",
            "port in the environment (FLYBALL_PORT): invalid value 'x' for '--port",
        );
        check(&[], "port: 70000", "port in FILE_OPTION: invalid value '70000' for '--port");
        check(&[], "ports: 1", "ports in FILE_OPTION: unknown option");
        check(&[], "config: a", "config in FILE_OPTION: unknown option");
        check(&[], "token: {a: b}", "token in FILE_OPTION: expected a string");
        check(&[], "quick: 7", "quick in FILE_OPTION: expected true or false");
        check(&[("FLYBALL_VERBOSE", "much")], "", "verbose in the environment (FLYBALL_VERBOSE): expected a number");
        check(&[], "[a]", "cannot read the configuration FILE_OPTION");
        check(&[], "port: 1\nport: 2", "cannot read the configuration FILE_OPTION");
    }
}
