//! The package of a new project without kinds.

use super::changes::Changes;
use super::library::{Library, quoted};
use super::template::fill;
use super::workspace::Workspace;
use crate::error::Result;
use crate::project::{FILE, Project};
use std::fmt::Write;

/// The dependencies of a project for Cargo.toml; those without a version are the library's.
const DEPENDENCIES: &[(&str, &str, &str)] = &[
    ("flyball", "", ""),
    ("k8s-openapi", "0.29", "default-features = false, features = [\"v1_36\"]"),
    ("kube", "5", "default-features = false, features = [\"derive\"]"),
    ("schemars", "1", ""),
    ("serde", "1", "features = [\"derive\"]"),
    ("serde_json", "1", ""),
];

/// Dependencies of the tests of a project.
const FOR_TESTS: &[(&str, &str, &str)] = &[
    ("flyball-cluster", "", "features = [\"testing\"]"),
    ("flyball-explore", "", ""),
    ("tokio", "1", "default-features = false, features = [\"macros\", \"rt\", \"test-util\"]"),
];

/// With newer resolvers `cargo test` turns on more features of shared crates than `cargo run`, which then compiles them
/// once more.
const RESOLVER: &str =
    "# Shares crate features between tests and programs, so that dependencies are compiled once.\nresolver = \"1\"\n";

/// Tests are in the library and in `tests`, so that `cargo test` does not compile the program twice.
const NO_TESTS: &str =
    "# All tests are in the library and in tests/: `cargo test` compiles the program once.\ntest = false\n";

/// Writes the package.
pub(crate) fn write(
    changes: &mut Changes,
    project: &Project,
    library: &Library,
    workspace: Option<&Workspace>,
) -> Result<()> {
    let name = project.project_name.as_str();
    let note = match library {
        Library::Path { .. } => {
            "# Docker cannot access the path of the library in Cargo.toml: use a git dependency instead.\n"
        }
        Library::Git { .. } | Library::Registry { .. } => "",
    };
    let gaps = [("name", name), ("crate", &name.replace('-', "_")), ("note", note)];
    changes.create("Cargo.toml", manifest(project, library, workspace), false)?;
    for (path, template) in [
        ("src/lib.rs", include_str!("../../../templates/lib.rs")),
        ("src/main.rs", include_str!("../../../templates/main.rs")),
        ("README.md", include_str!("../../../templates/README.md")),
    ] {
        changes.create(path, fill(template, &gaps), false)?;
    }
    changes.create(FILE, project.text()?, false)?;
    // In a workspace, these settings belong to its root.
    if workspace.is_some() {
        return Ok(());
    }
    changes.create("Dockerfile", fill(include_str!("../../../templates/Dockerfile"), &gaps), false)?;
    // Hidden files may exist in an empty directory.
    let hidden = [
        (".dockerignore", include_str!("../../../templates/dockerignore")),
        (".gitignore", include_str!("../../../templates/gitignore")),
    ];
    for (path, text) in hidden {
        if changes.read(path)?.is_none() {
            changes.create(path, text, false)?;
        }
    }
    library.lock().map_or(Ok(()), |lock| changes.create("Cargo.lock", lock, false))
}

fn manifest(project: &Project, library: &Library, workspace: Option<&Workspace>) -> String {
    let shared = |table: &str, name: &str| workspace.is_some_and(|workspace| workspace.has(table, name));
    let mut text = format!("[package]\nname = {}\n", quoted(&project.project_name));
    let repository = project.repo.as_deref().map(|repo| {
        let scheme = if repo.contains("://") { "" } else { "https://" };
        quoted(&format!("{scheme}{repo}"))
    });
    let fields = [
        ("version", Some("\"0.1.0\"".to_owned())),
        ("edition", Some("\"2024\"".to_owned())),
        ("rust-version", Some("\"1.95\"".to_owned())),
        ("license", None),
        ("repository", repository),
    ];
    for (name, own) in fields {
        let own_first = name == "repository" && own.is_some();
        if !own_first && shared("workspace.package", name) {
            text += &format!("{name}.workspace = true\n");
        } else if let Some(own) = own {
            text += &format!("{name} = {own}\n");
        }
    }
    if workspace.is_none() {
        text += RESOLVER;
    }
    let _ = write!(text, "\n[[bin]]\nname = {}\n{NO_TESTS}", quoted(&project.project_name));
    for (table, dependencies) in [("dependencies", DEPENDENCIES), ("dev-dependencies", FOR_TESTS)] {
        let _ = writeln!(text, "\n[{table}]");
        for (name, version, more) in dependencies {
            let is_shared = shared("workspace.dependencies", name);
            // A member cannot override the workspace's default features.
            let more = if is_shared { more.trim_start_matches("default-features = false, ") } else { more };
            let source = match (is_shared, *version) {
                (true, _) => "workspace = true".to_owned(),
                (false, "") => library.dependency(name),
                (false, version) => format!("version = {}", quoted(version)),
            };
            let _ = match (is_shared, *version, more) {
                (true, _, "") => writeln!(text, "{name}.workspace = true"),
                (false, version, "") if !version.is_empty() => writeln!(text, "{name} = {}", quoted(version)),
                (_, _, "") => writeln!(text, "{name} = {{ {source} }}"),
                _ => writeln!(text, "{name} = {{ {source}, {more} }}"),
            };
        }
    }
    match workspace {
        None => text += include_str!("../../../templates/profile.toml"),
        Some(workspace) if workspace.has_table("workspace.lints") => text += "\n[lints]\nworkspace = true\n",
        Some(_) => {}
    }
    text
}
