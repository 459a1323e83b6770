//! The agent's memory across restarts: one directory with versioned JSON documents.
//!
//! `inventory.json` holds cards with their last identity by PCI address, `findings.json` findings with their first time and
//! boot id, `stamps.json` the times that the API server gave to taints, `marks.json` what people asked for, `others.json` which cards somebody else offers. A document is replaced as a whole: written beside,
//! synced, renamed, and the directory synced, so that a crash leaves the old one or the new one. A document that cannot be
//! read is set aside and told; one of a newer program stops the start, for going on would destroy it.

mod document;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use document::{Document, FILES, Kind};
pub use document::{SetAside, StateError};

use crate::health::{HealthRecord, Intent, Stamp};
use crate::inventory::InventoryRecord;
use crate::owner::Offer;

/// Everything that is remembered.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Memory {
    /// Cards and versions.
    pub inventory: InventoryRecord,
    /// Findings, history and stamps.
    pub health: HealthRecord,
    /// The taints that people asked for, as they were last read.
    pub marks: Vec<Intent>,
    /// What other owners offer.
    pub others: BTreeSet<Offer>,
}

/// The state directory. It writes a document only when it differs from what is on disk.
#[derive(Debug)]
pub struct State {
    dir: PathBuf,
    written: [Option<Vec<u8>>; FILES],
}

impl State {
    /// Opens the directory, makes it if it is not there, and reads what it holds. Documents that could not be read are told
    /// in the last part of the result; what they held is then empty.
    ///
    /// # Errors
    /// When the directory cannot be made or read, or a document is of a newer version than this program writes.
    pub fn load(dir: &Path) -> Result<(Self, Memory, Vec<SetAside>), StateError> {
        fs::create_dir_all(dir).map_err(|error| StateError::io("create", dir, error))?;
        document::sweep(dir)?;
        let mut state = Self { dir: dir.to_owned(), written: Default::default() };
        let mut aside = Vec::new();
        let inventory = state.read(Kind::Inventory, &mut aside)?;
        let cards = state.read(Kind::Findings, &mut aside)?;
        let stamps = state.read(Kind::Stamps, &mut aside)?;
        let marks = state.read(Kind::Marks, &mut aside)?;
        let others = state.read(Kind::Others, &mut aside)?;
        Ok((state, Memory { inventory, health: HealthRecord { cards, stamps }, marks, others }, aside))
    }

    /// Saves what differs. Documents that were already replaced stay replaced when a later one fails: each is whole by itself.
    ///
    /// # Errors
    /// When a document cannot be written, for want of space or rights; try again later, the old one is still there.
    pub fn save(&mut self, memory: &Memory) -> Result<(), StateError> {
        self.write(Kind::Inventory, &memory.inventory)?;
        self.write(Kind::Findings, &memory.health.cards)?;
        self.write::<Vec<Stamp>>(Kind::Stamps, &memory.health.stamps)?;
        self.write(Kind::Marks, &memory.marks)?;
        self.write(Kind::Others, &memory.others)
    }

    fn read<T: Document>(&mut self, kind: Kind, aside: &mut Vec<SetAside>) -> Result<T, StateError> {
        match document::read::<T>(&self.dir, kind)? {
            document::Read::Absent => Ok(T::default()),
            document::Read::Found { value, bytes } => {
                self.written[kind.index()] = Some(bytes);
                Ok(value)
            }
            document::Read::Unreadable(entry) => {
                aside.push(entry);
                Ok(T::default())
            }
        }
    }

    fn write<T: Document>(&mut self, kind: Kind, value: &T) -> Result<(), StateError> {
        let bytes = document::encode(&self.dir, kind, value)?;
        let written = &mut self.written[kind.index()];
        if written.as_ref() == Some(&bytes) {
            return Ok(());
        }
        document::replace(&self.dir, kind, &bytes)?;
        *written = Some(bytes);
        Ok(())
    }
}
