//! Record of objects that a command created in an existing cluster, to be removed at its end.
//!
//! The record is written as objects are created, in the state directory: a killed command removes nothing, and the next
//! one removes its objects. Each command has its own file `made-<pid>.json`, which is locked while it runs. It has one
//! line for the URL of the cluster, and one for each object.

use crate::error::{Result, ResultExt};
use crate::files::entries;
use crate::files::private::state_directory;
use serde_json::{Value, json};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Objects created by a command.
pub(crate) struct CreatedObjects {
    parts: Vec<Value>,
    samples: Vec<Value>,
    file: File,
    path: PathBuf,
}

impl CreatedObjects {
    /// Creates the record of objects created in the cluster at this URL.
    pub(crate) fn begin(url: &str) -> Result<Self> {
        Self::in_directory(&state_directory()?, std::process::id(), url)
    }

    fn in_directory(folder: &Path, pid: u32, url: &str) -> Result<Self> {
        let prepared = flyball_files::private_directory().recursive(true).create(folder);
        prepared.context(format!("cannot create {}", folder.display()))?;
        let path = folder.join(format!("made-{pid}.json"));
        let what = || format!("cannot write {}", path.display());
        let file = flyball_files::private(OpenOptions::new().write(true).create(true).truncate(true))
            .open(&path)
            .context(what())?;
        file.try_lock().context(what())?;
        let mut created = Self { parts: Vec::new(), samples: Vec::new(), file, path: path.clone() };
        created.write(&json!({"url": url})).context(what())?;
        Ok(created)
    }

    fn write(&mut self, line: &Value) -> std::io::Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes())
    }

    /// Adds an object that the operator needs.
    pub(crate) fn add_part(&mut self, object: &Value) -> Result<()> {
        self.parts.push(object.clone());
        self.write_object("part", object)
    }

    /// Adds a sample.
    pub(crate) fn add_sample(&mut self, object: &Value) -> Result<()> {
        self.samples.push(object.clone());
        self.write_object("sample", object)
    }

    fn write_object(&mut self, role: &str, object: &Value) -> Result<()> {
        let path = self.path.display().to_string();
        self.write(&json!({role: identity(object)})).context(format!("cannot write {path}"))
    }

    pub(crate) fn parts(&self) -> &[Value] {
        &self.parts
    }

    pub(crate) fn samples(&self) -> &[Value] {
        &self.samples
    }

    /// Takes over the records of killed commands for the cluster at this URL, and returns their objects.
    pub(crate) fn adopt(&mut self, url: &str) -> Result<Vec<Value>> {
        let mut adopted = Vec::new();
        let folder = self.path.parent().unwrap_or(Path::new(".")).to_owned();
        for path in entries(&folder)?.into_iter().filter(|path| is_record(path)) {
            let Some(lines) =
                read_abandoned(&path).filter(|lines| lines.first().is_some_and(|first| first["url"] == url))
            else {
                continue;
            };
            for line in &lines[1..] {
                let known = |object: &Value| adopted.contains(object);
                match (&line["part"], &line["sample"]) {
                    (Value::Null, sample) if sample.is_object() && !known(sample) => {
                        self.add_sample(sample)?;
                        adopted.push(sample.clone());
                    }
                    (part, _) if part.is_object() && !known(part) => {
                        self.add_part(part)?;
                        adopted.push(part.clone());
                    }
                    _ => {}
                }
            }
            // Its content has been copied to this record.
            let _ = fs::remove_file(&path);
        }
        Ok(adopted)
    }

    /// Deletes the file after all objects were removed.
    pub(crate) fn end(self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn is_record(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.strip_prefix("made-").and_then(|rest| rest.strip_suffix(".json")).is_some_and(|pid| pid.parse::<u32>().is_ok())
}

/// Reads the file of an ended command; an incomplete line is skipped.
fn read_abandoned(path: &Path) -> Option<Vec<Value>> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    let mut text = String::new();
    (&file).take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Returns the identity of an object, and for a definition also the defined kind.
fn identity(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut outline = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
    });
    if object["kind"] == "CustomResourceDefinition" {
        let spec = &object["spec"];
        let version = json!({"name": spec["versions"][0]["name"]});
        outline["spec"] = json!({"group": spec["group"], "names": spec["names"], "versions": [version]});
    }
    outline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::private::PrivateDirectory;

    #[test]
    fn objects_of_a_killed_command_are_adopted_once() {
        let folder = PrivateDirectory::new("flyball-made").unwrap();
        let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": null}, "spec": {"a": 1}});
        let begin = |pid| CreatedObjects::in_directory(folder.path(), pid, "https://a").unwrap();
        let mut killed = begin(1);
        killed.add_part(&object("ClusterRole", "r")).unwrap();
        killed.add_sample(&object("Site", "s")).unwrap();
        killed.file.write_all(b"{\"part\": {\"ki").unwrap();
        let mut running = begin(2);
        running.add_part(&object("ClusterRole", "running")).unwrap();
        assert_eq!(begin(3).adopt("https://a").unwrap(), Vec::<Value>::new(), "it runs");
        drop(killed);
        assert_eq!(begin(4).adopt("https://b").unwrap(), Vec::<Value>::new(), "another cluster");
        let mut next = begin(5);
        let names =
            |objects: &[Value]| objects.iter().map(|object| object["metadata"]["name"].clone()).collect::<Vec<_>>();
        assert_eq!(names(&next.adopt("https://a").unwrap()), ["r", "s"]);
        assert_eq!((names(next.parts()), names(next.samples())), (vec![json!("r")], vec![json!("s")]));
        assert_eq!(next.adopt("https://a").unwrap(), Vec::<Value>::new());
        // It is not lost if that one is killed too.
        drop(next);
        assert_eq!(names(&begin(6).adopt("https://a").unwrap()), ["r", "s"]);
    }
}
