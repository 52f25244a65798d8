//! Platforms of images, and their Rust targets.

use crate::error::{Error, Result, ResultExt};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// A supported platform of images.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// Name of the platform.
    pub(crate) name: &'static str,
    architecture: &'static str,
    variant: Option<&'static str>,
    /// The target whose programs need no library.
    musl: &'static str,
    /// The target with glibc, which can be linked statically.
    gnu: &'static str,
    /// ELF machine type, see [`elf`](super::elf).
    pub(crate) machine: u16,
}

/// The platform of an image, as descriptors and configurations contain it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub(crate) struct ImagePlatform {
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) variant: Option<String>,
    /// Unknown fields, which are written unchanged.
    #[serde(flatten)]
    pub(crate) others: BTreeMap<String, Value>,
}

const fn platform(
    name: &'static str,
    architecture: &'static str,
    variant: Option<&'static str>,
    musl: &'static str,
    gnu: &'static str,
    machine: u16,
) -> Platform {
    Platform { name, architecture, variant, musl, gnu, machine }
}

pub(crate) const PLATFORMS: [Platform; 4] = [
    platform("linux/amd64", "amd64", None, "x86_64-unknown-linux-musl", "x86_64-unknown-linux-gnu", 62),
    platform("linux/arm64", "arm64", None, "aarch64-unknown-linux-musl", "aarch64-unknown-linux-gnu", 183),
    platform("linux/arm/v7", "arm", Some("v7"), "armv7-unknown-linux-musleabihf", "armv7-unknown-linux-gnueabihf", 40),
    platform("linux/riscv64", "riscv64", None, "riscv64gc-unknown-linux-musl", "riscv64gc-unknown-linux-gnu", 243),
];

/// Toolchain for a platform on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    /// Link glibc statically.
    pub(crate) is_gnu: bool,
}

/// Reads a platform's name, as `--platform` has it.
pub(crate) fn parse(name: &str) -> Result<&'static Platform, String> {
    let known = || PLATFORMS.iter().map(|platform| platform.name).collect::<Vec<_>>().join(", ");
    PLATFORMS.iter().find(|platform| platform.name == name).ok_or_else(|| format!("expected one of {}", known()))
}

impl Platform {
    /// Finds the platform of this machine.
    ///
    /// # Errors
    ///
    /// If the platform is not supported.
    pub(crate) fn host() -> Result<&'static Self> {
        let host = PLATFORMS.iter().find(|platform| platform.gnu.starts_with(std::env::consts::ARCH));
        host.ok_or_else(|| {
            Error::new(format!("unsupported machine type {}", std::env::consts::ARCH))
                .hint("pass --platform linux/amd64")
        })
    }

    /// Returns the platform of images for it.
    pub(crate) fn image_platform(&self) -> ImagePlatform {
        ImagePlatform {
            os: "linux".into(),
            architecture: self.architecture.into(),
            variant: self.variant.map(str::to_owned),
            others: BTreeMap::new(),
        }
    }

    /// Returns true if an image is for this platform. A missing variant is the usual one.
    pub(crate) fn is_of(&self, image: &ImagePlatform) -> bool {
        let variant = image.variant.as_deref();
        image.os == "linux"
            && image.architecture == self.architecture
            && (self.variant.is_none() || variant.is_none() || variant == self.variant)
    }

    /// Finds the target of programs for it: musl if it is installed, otherwise statically linked glibc.
    ///
    /// # Errors
    ///
    /// If no suitable target is installed.
    pub(crate) fn target(&self) -> Result<Target> {
        let sysroot = sysroot()?;
        let is_installed = |target: &str| Path::new(&sysroot).join("lib/rustlib").join(target).join("lib").is_dir();
        if is_installed(self.musl) {
            return Ok(Target { name: self.musl, is_gnu: false });
        }
        if is_installed(self.gnu) {
            return Ok(Target { name: self.gnu, is_gnu: true });
        }
        Err(Error::new(format!("no Rust target installed for {}", self.name))
            .hint(format!("rustup target add {}", self.musl))
            .hint("or build the program elsewhere and pass --program FILE"))
    }
}

/// Returns the sysroot of the compiler.
fn sysroot() -> Result<String> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let response = Command::new(compiler).args(["--print", "sysroot"]).output().context("cannot run rustc");
    let response =
        response.map_err(|error| error.hint("install Rust from https://rustup.rs, or pass --program FILE"))?;
    Ok(String::from_utf8_lossy(&response.stdout).trim().to_owned())
}
