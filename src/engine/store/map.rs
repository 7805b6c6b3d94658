//! A file, mapped to be read. This file and `slot.rs` hold the store's only unsafe code, but for one call in `io.rs`.
//!
//! Another handle or program may append to a mapped file at any time, so no `&[u8]` is formed over a whole map:
//! table entries are loaded atomically, raw records are copied through pointers, and a slice exists only over one
//! committed record, whose bytes the store never writes again. What no process can guard against is that another
//! program truncates a mapped file (the system then sends a bus error) or rewrites a record in place; the
//! documentation of [`ReadMode`](super::ReadMode) says so.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(feature = "remote")]
use memmap2::MmapMut;
use memmap2::{MmapOptions, MmapRaw};

/// How many bytes of a record are asked for in advance; the processor itself goes on from there.
#[cfg(target_arch = "x86_64")]
const PREFETCH: usize = 512;
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// A read-only map of a whole file, as long as the file was when it was mapped.
#[derive(Debug)]
pub(crate) struct Map {
    /// `None` for an empty file, which cannot be mapped.
    raw: Option<MmapRaw>,
}

impl Map {
    pub(super) fn of(file: &File) -> io::Result<Map> {
        Map::of_first(file, file.metadata()?.len())
    }

    /// The first `len` bytes of a file that has as many.
    pub(crate) fn of_first(file: &File, len: u64) -> io::Result<Map> {
        if file.metadata()?.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if len == 0 {
            return Ok(Map { raw: None });
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        Ok(Map { raw: Some(MmapOptions::new().len(len).map_raw_read_only(file)?) })
    }

    /// The same of a file that is in memory, or will be read at once.
    #[cfg(feature = "remote")]
    pub(crate) fn of_block(file: &File, len: u64) -> io::Result<Map> {
        if len == 0 || file.metadata()?.len() < len {
            return Map::of_first(file, len);
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        Ok(Map { raw: Some(MmapOptions::new().len(len).populate().map_raw_read_only(file)?) })
    }

    /// Bytes that no file has.
    #[cfg(feature = "remote")]
    pub(crate) fn of_bytes(bytes: &[u8]) -> io::Result<Map> {
        if bytes.is_empty() {
            return Ok(Map { raw: None });
        }
        let mut map = MmapMut::map_anon(bytes.len())?;
        map.copy_from_slice(bytes);
        Ok(Map { raw: Some(map.into()) })
    }

    pub(crate) fn len(&self) -> u64 {
        self.raw.as_ref().map_or(0, |raw| raw.len() as u64)
    }

    /// Where `len` bytes from `offset` begin, if they lie within the map.
    #[inline]
    fn at(&self, offset: u64, len: usize) -> Option<*const u8> {
        let raw = self.raw.as_ref()?;
        let end = offset.checked_add(len as u64)?;
        if end > raw.len() as u64 {
            return None;
        }
        // SAFETY: offset <= end <= the map's length, so the result stays within the one mapping.
        Some(unsafe { raw.as_ptr().add(offset as usize) })
    }

    /// The two words at a multiple of 8, each loaded in one piece; `None` past the end.
    #[inline]
    pub(super) fn words(&self, offset: u64) -> Option<[u64; 2]> {
        debug_assert!(offset.is_multiple_of(8));
        let at = self.at(offset, 16)?.cast::<u64>();
        // SAFETY: 16 bytes from `at` lie within the mapping, which is page-aligned, so that a multiple of 8 is aligned
        // for a u64. The bytes are initialised by the system, and are only ever read here, atomically; the mapping
        // outlives the reference, which ends with this call.
        let load = |at: *const u64| unsafe { AtomicU64::from_ptr(at.cast_mut()) }.load(Ordering::Relaxed);
        Some([load(at), load(at.wrapping_add(1))])
    }

    /// Copies the bytes from `offset` over all of `out`; `false` where they reach past the end, with `out` untouched.
    #[inline]
    pub(crate) fn copy_to(&self, offset: u64, out: &mut [MaybeUninit<u8>]) -> bool {
        let Some(from) = self.at(offset, out.len()) else { return out.is_empty() };
        // SAFETY: `from` has out.len() readable bytes within the mapping; `out` is a Rust slice, which no read-only
        // mapping of ours overlaps.
        unsafe { ptr::copy_nonoverlapping(from, out.as_mut_ptr().cast::<u8>(), out.len()) };
        true
    }

    /// Asks the processor for the first bytes from `offset`, so that they are near when they are copied. It reads
    /// nothing, and does nothing past the end.
    #[inline]
    pub(super) fn prefetch(&self, offset: u64, len: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(from) = self.at(offset, len) {
            for line in (0..len.min(PREFETCH)).step_by(LINE) {
                // SAFETY: `from` has `len` bytes within the mapping, and SSE is part of x86-64.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(from.add(line).cast()) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, len);
    }

    /// Asks the system to read what lies there from the disk, if it is not in memory, without waiting for it. It does
    /// nothing past the end, nor where a system has no such call.
    pub(super) fn need(&self, offset: u64, len: usize) {
        #[cfg(unix)]
        if let (Some(raw), Some(_)) = (&self.raw, self.at(offset, len)) {
            // Nothing depends on it: what was not read ahead is read when it is touched.
            let _ = raw.advise_range(memmap2::Advice::WillNeed, offset as usize, len);
        }
        #[cfg(not(unix))]
        let _ = (offset, len);
    }

    /// Calls `f` on one committed record's stored bytes; `None` where they reach past the end.
    pub(crate) fn with_frame<R>(&self, offset: u64, len: usize, f: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let from = self.at(offset, len)?;
        // SAFETY: `len` bytes from `from` lie within the mapping and are initialised. They belong to a committed
        // record, which this crate never writes again, so the slice is not changed while it is borrowed; a foreign
        // program that does so breaks the condition that `ReadMode::Mapped` states.
        Some(f(unsafe { std::slice::from_raw_parts(from, len) }))
    }
}
