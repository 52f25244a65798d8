//! The ports of operators on this machine: those that are configured, and the usual ones.
//!
//! An operator binds its ports itself, some time after a command has chosen them. Until then, and as long as it runs, a
//! lock keeps other commands of this user from choosing the same ones.

use crate::files::private::state_directory;
use crate::operator::metrics::{HEALTH_PORT, HEALTH_VARIABLE, METRICS_PORT, METRICS_VARIABLE};
use flyball_files::{Lock, private_directory, try_lock};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

/// A page that an operator serves at a usual address, which another operator on this machine may have taken.
pub(crate) struct Page {
    pub(crate) what: &'static str,
    pub(crate) port: u16,
    pub(crate) path: &'static str,
    flag: &'static str,
    pub(crate) variable: &'static str,
}

pub(crate) const PAGES: [Page; 2] = [
    Page {
        what: "metrics are",
        port: METRICS_PORT,
        path: "/metrics",
        flag: "--metrics-addr",
        variable: METRICS_VARIABLE,
    },
    Page { what: "health is", port: HEALTH_PORT, path: "/readyz", flag: "--health-addr", variable: HEALTH_VARIABLE },
];

impl Page {
    /// Returns true if the address is configured: by a flag, by a variable, or in a file.
    pub(crate) fn is_configured(&self, args: &[String], variables: &BTreeMap<String, String>) -> bool {
        let is_flag = |arg: &String, flag: &str| {
            arg.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        };
        let is_set = |name: &str| variables.contains_key(name) || std::env::var_os(name).is_some();
        args.iter().any(|arg| is_flag(arg, self.flag) || is_flag(arg, "--config"))
            || is_set(self.variable)
            || is_set("FLYBALL_CONFIG")
    }
}

/// A port that no other command of this user chooses, until this is dropped.
#[derive(Debug)]
pub(crate) struct PortReservation {
    pub(crate) port: u16,
    /// `None` if locks are not possible here.
    _lock: Option<Lock>,
}

impl PortReservation {
    /// Reserves a port; `None` if it is in use, or another command has reserved it.
    pub(crate) fn new(port: u16) -> Option<Self> {
        Self::below(state_directory().ok().as_deref(), port)
    }

    fn below(folder: Option<&Path>, port: u16) -> Option<Self> {
        let lock = folder.map(|folder| {
            let folder = folder.join("ports");
            private_directory().recursive(true).create(&folder)?;
            try_lock(&folder.join(port.to_string()))
        });
        let lock = match lock {
            Some(Ok(None)) => return None,
            Some(Ok(lock)) => lock,
            Some(Err(_)) | None => None,
        };
        is_free(port).then_some(Self { port, _lock: lock })
    }
}

/// Returns true if nothing listens at a port of the loopback interface.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// Returns the address of the metrics that flags or variables configure, unless it is in a file, is secure or is not
/// served.
pub(crate) fn configured_metrics(args: &[String], variables: &BTreeMap<String, String>) -> Option<String> {
    let flag = "--metrics-addr";
    let mut flags = args.iter().enumerate().filter_map(|(at, arg)| match arg.strip_prefix(flag)? {
        "" => args.get(at + 1).cloned(),
        rest => rest.strip_prefix('=').map(str::to_owned),
    });
    let of_variable = || variables.get(METRICS_VARIABLE).cloned().or_else(|| std::env::var(METRICS_VARIABLE).ok());
    let address = flags.next_back().or_else(of_variable)?;
    let is_secure = args.iter().any(|arg| arg.starts_with("--metrics-secure"));
    let (host, port) = address.rsplit_once(':')?;
    let is_served = !is_secure && port.parse::<u16>().is_ok_and(|port| port > 0);
    let host = if matches!(host, "" | "0.0.0.0" | "[::]") { "127.0.0.1" } else { host };
    is_served.then(|| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;

    #[test]
    fn configured_address_is_detected() {
        let configured = |args: &[&str], variables: &[(&str, &str)]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            PAGES.map(|page| page.is_configured(&args, &variables))
        };
        assert_eq!(configured(&["--metrics-address-book=1"], &[]), [false, false]);
        assert_eq!(configured(&["--metrics-addr", "0"], &[]), [true, false]);
        assert_eq!(configured(&["--health-addr=0"], &[]), [false, true]);
        assert_eq!(configured(&[], &[(METRICS_VARIABLE, "0")]), [true, false]);
        assert_eq!(configured(&["--config=a.yaml"], &[]), [true, true]);
        let metrics = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(ToString::to_string).collect();
            configured_metrics(&args, &BTreeMap::new())
        };
        assert_eq!(metrics(&["--metrics-addr", "127.0.0.1:9"]).as_deref(), Some("127.0.0.1:9"));
        assert_eq!(metrics(&["--metrics-addr=:9"]).as_deref(), Some("127.0.0.1:9"));
        assert_eq!(metrics(&["--metrics-addr=0"]), None);
        assert_eq!(metrics(&["--metrics-addr=:9", "--metrics-secure"]), None);
    }

    #[test]
    fn port_is_reserved_once_and_only_if_it_is_free() {
        let folder = PrivateDirectory::new("flyball-ports").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let reserve = || PortReservation::below(Some(folder.path()), port);
        assert!(reserve().is_none(), "it is in use");
        drop(listener);
        let reserved = reserve().unwrap();
        assert_eq!((reserved.port, reserve().is_none()), (port, true), "its operator has not bound it yet");
        drop(reserved);
        assert!(reserve().is_some());
    }
}
