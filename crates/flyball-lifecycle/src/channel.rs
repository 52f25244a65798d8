//! The order of a channel: its chain of replacements, newest first.

use crate::catalog::{Catalogs, EntryId};
use std::collections::{HashMap, HashSet};

/// A channel whose entries have no unique order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidChannel {
    /// Every entry is replaced by another one.
    #[error(
        "no channel heads (entries not replaced by another entry) found in channel {channel:?} of package {package:?}"
    )]
    NoHead {
        /// The channel.
        channel: String,
        /// The package.
        package: String,
    },
    /// Replacements form a cycle.
    #[error(
        "a cycle exists in the chain of replacement beginning with {head:?} in channel {channel:?} of package {package:?}"
    )]
    Cycle {
        /// The first entry of the chain.
        head: String,
        /// The channel.
        channel: String,
        /// The package.
        package: String,
    },
    /// Several entries are not replaced by another one.
    #[error(
        "a unique replacement chain within a channel is required to determine the relative order between channel \
         entries, but {} replacement chains were found in channel {channel:?} of package {package:?}: {}",
        chains.len(), chains.join(", ")
    )]
    SeveralChains {
        /// The first and the last entry of each chain.
        chains: Vec<String>,
        /// The channel.
        channel: String,
        /// The package.
        package: String,
    },
}

/// Returns the entries of one channel, newest first, without skipped ones.
pub(crate) fn sort_channel(catalogs: &Catalogs, entries: &[EntryId]) -> Result<Vec<EntryId>, InvalidChannel> {
    let Some(first) = entries.first() else { return Ok(Vec::new()) };
    let name = |id: &EntryId| catalogs.entry(*id).name();
    let by_name: HashMap<&str, EntryId> = entries.iter().map(|id| (name(id), *id)).collect();
    let (mut replaced, mut replaces, mut skipped) = (HashSet::new(), HashMap::new(), HashSet::new());
    for id in entries {
        let entry = catalogs.entry(*id);
        if let Some(older) = entry.replaces.as_deref().and_then(|older| by_name.get(older)) {
            replaced.insert(*older);
            replaces.insert(*id, *older);
        }
        for older in entry.skips.iter().filter_map(|older| by_name.get(older.as_str())) {
            replaced.insert(*older);
            skipped.insert(*older);
        }
    }
    let entry = catalogs.entry(*first);
    let (channel, package) = (entry.channel.clone(), entry.package.clone());
    let mut chains = Vec::new();
    for head in entries.iter().filter(|id| !replaced.contains(*id)) {
        let (mut chain, mut visited, mut current) = (Vec::new(), HashSet::new(), *head);
        loop {
            visited.insert(current);
            if !skipped.contains(&current) {
                chain.push(current);
            }
            let Some(next) = replaces.get(&current) else { break };
            if visited.contains(next) {
                return Err(InvalidChannel::Cycle { head: name(head).to_owned(), channel, package });
            }
            current = *next;
        }
        chains.push(chain);
    }
    match chains.len() {
        0 => Err(InvalidChannel::NoHead { channel, package }),
        1 => Ok(chains.remove(0)),
        _ => {
            let describe = |chain: &Vec<EntryId>| match &**chain {
                [] => "[]".to_owned(),
                [only] => name(only).to_owned(),
                [first, .., last] => format!("{}...{}", name(first), name(last)),
            };
            let chains = chains.iter().map(describe).collect();
            Err(InvalidChannel::SeveralChains { chains, channel, package })
        }
    }
}
