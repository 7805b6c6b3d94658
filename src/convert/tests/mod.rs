//! What the tests of this room share: source files, made in memory.

mod crash;
mod import;
#[cfg(feature = "remote")]
mod publish;
mod sources;

use std::io::{Cursor, Write};
use std::path::Path;

use super::npy::header_bytes;
use crate::data::{ByteOrder, DType};

pub(super) fn npy(descr: &str, fortran: bool, shape: &[u64], data: &[u8]) -> Vec<u8> {
    let mut header = header_bytes(Path::new("x"), descr, shape).unwrap();
    if fortran {
        let text = String::from_utf8_lossy(&header[10..]).replace("False", "True ");
        header.truncate(10);
        header.extend(text.as_bytes());
    }
    [&header, data].concat()
}

pub(super) fn npz(members: &[(&str, &[u8])], method: zip::CompressionMethod) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = zip::write::SimpleFileOptions::default().compression_method(method);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub(super) const METHODS: [zip::CompressionMethod; 2] =
    [zip::CompressionMethod::Stored, zip::CompressionMethod::Deflated];

/// The numbers 0, 1, 2 … in C order, as a .npy file of that order holds them.
pub(super) fn counted(descr: &str, fortran: bool, shape: &[u64]) -> (Vec<u8>, Vec<u8>) {
    let (dtype, order) = DType::from_numpy(descr).unwrap();
    let element = |number: u64| number.to_le_bytes()[..dtype.size()].to_vec();
    let count: u64 = shape.iter().product();
    let expected: Vec<u8> = (0..count).flat_map(element).collect();
    let mut data = vec![0; expected.len()];
    for number in 0..count {
        // Where the element of that C index lies in the file.
        let (mut rest, mut at, mut stride) = (number, 0, count);
        for dimension in shape.iter().rev() {
            stride /= dimension;
            at += rest % dimension * stride;
            rest /= dimension;
        }
        let at = if fortran { at } else { number } as usize * dtype.size();
        let mut bytes = element(number);
        if order == ByteOrder::Big {
            bytes.reverse();
        }
        data[at..at + dtype.size()].copy_from_slice(&bytes);
    }
    (npy(descr, fortran, shape, &data), expected)
}
