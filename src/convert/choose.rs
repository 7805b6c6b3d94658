//! Which tables of a file are imported, and where below the destination their stores lie.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use super::table::{Source, Table};
use crate::data::DType;
use crate::error::{Error, Result};

/// A table that is imported.
pub(super) struct Chosen {
    pub(super) index: usize,
    pub(super) table: Table,
    /// Where its store lies below the destination; empty where the destination is the store.
    pub(super) parts: Vec<String>,
}

/// What the caller chooses of a file.
#[derive(Debug, Clone, Default)]
pub(super) struct Choice {
    /// The names of tables; all where there are none.
    pub(super) tensors: Vec<String>,
    /// What `<V2` means.
    pub(super) dtype: Option<DType>,
}

impl Choice {
    /// The chosen tables of a file, each looked at, none of them in the way of another.
    pub(super) fn tables(&self, source: &mut dyn Source) -> Result<Vec<Chosen>> {
        if let Some(dtype) = self.dtype
            && dtype != DType::BF16
        {
            let reason = format!("{dtype} was given: only bf16 has no name in NumPy and needs to be said");
            return Err(Error::invalid("dtype", reason));
        }
        let mut tables = Vec::new();
        for index in self.indices(source)? {
            let table = source.table(index, self.dtype)?;
            let parts = if source.is_archive() { name_parts(&table.path, &source.names()[index])? } else { Vec::new() };
            tables.push(Chosen { index, table, parts });
        }
        let Some(first) = tables.first() else {
            return Err(Error::unsupported(source.path(), "a file without arrays", "there is nothing to import"));
        };
        if self.dtype.is_some() && !tables.iter().any(|chosen| chosen.table.dtype == DType::BF16) {
            return Err(Error::mismatch(&first.table.path, "dtype", "bf16", first.table.dtype.name()));
        }
        refuse_overlaps(&tables)?;
        Ok(tables)
    }

    /// The indices of the tables that were asked for: all, unless some are named.
    fn indices(&self, source: &dyn Source) -> Result<BTreeSet<usize>> {
        let names = source.names();
        if self.tensors.is_empty() {
            return Ok((0..names.len()).collect());
        }
        if !source.is_archive() {
            let reason = format!("{} holds one array, without a name: leave the names out", source.path().display());
            return Err(Error::invalid("tensors", reason));
        }
        self.tensors
            .iter()
            .map(|wanted| {
                let wanted = wanted.strip_suffix(".npy").unwrap_or(wanted);
                names.iter().position(|name| name == wanted).ok_or_else(|| {
                    let some: Vec<&str> = names.iter().take(10).map(String::as_str).collect();
                    let reason = format!("{} has no {wanted:?}; it has {some:?}", source.path().display());
                    Error::invalid("tensors", reason)
                })
            })
            .collect()
    }
}

/// The directories and the store that a table's name stands for, below the destination.
///
/// Names come from files that anybody may have made. Only what is a plain relative path on every system is taken.
fn name_parts(path: &Path, name: &str) -> Result<Vec<String>> {
    let plain = |part: &str| {
        let mut components = Path::new(part).components();
        let alone = matches!(components.next(), Some(Component::Normal(normal)) if normal == part);
        alone && components.next().is_none() && !part.contains(['\\', '\0'])
    };
    if !name.split('/').all(plain) {
        let reason = "it must be a relative path without '.', '..', empty parts, backslashes and NUL, \
                      since the store gets this name below the destination: choose the other arrays by name";
        return Err(Error::unsupported(path, format!("the name {name:?}"), reason));
    }
    Ok(name.split('/').map(str::to_owned).collect())
}

/// Refuses two tables of one name, and a table whose store would lie inside of another's.
fn refuse_overlaps(tables: &[Chosen]) -> Result<()> {
    let mut parts: Vec<&[String]> = tables.iter().map(|chosen| &chosen.parts[..]).collect();
    parts.sort();
    // In this order, what lies below a name follows it.
    match parts.windows(2).find(|pair| pair[1].starts_with(pair[0])) {
        Some(pair) if tables.len() > 1 => {
            let reason = format!("{:?} would lie inside of it: import them one by one", pair[1].join("/"));
            let inner = tables.iter().find(|chosen| chosen.parts == pair[0]).unwrap_or(&tables[0]);
            Err(Error::unsupported(&inner.table.path, format!("the name {:?}", pair[0].join("/")), reason))
        }
        _ => Ok(()),
    }
}
